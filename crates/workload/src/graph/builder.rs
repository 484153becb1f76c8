//! Writing a graph: one call a kernel, with shapes inferred and checked as they come.
//!
//! A network reads like a network only if its lines do not each handle an error, so the builder remembers the
//! first thing that did not fit, makes every later call a no-op, and [`Builder::finish`] returns it.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use super::infer;
use super::op::Op;
use super::shape::{DType, Shape};
use super::{Graph, Init, Node, Value, ValueId};
use crate::trace::{Derived, Phase, Role};

/// What does not fit in a graph, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct GraphError {
    /// The node or value.
    pub place: String,
    /// What is wrong with it.
    pub message: String,
}

/// Builds a [`Graph`] call by call.
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) graph: Graph,
    pub(crate) layer: u32,
    pub(crate) phase: Phase,
    dtype: DType,
    /// How often each name was asked for, by its hash: two names of one hash only cost one of them a number.
    names: HashMap<u64, u32>,
    bytes: u64,
    seeds: u64,
    error: Option<GraphError>,
}

/// More forward kernels than any program has; a slip in an option should be an error, not a machine without memory.
const MOST_NODES: usize = 1 << 21;

/// What a call returns once something did not fit.
const NOWHERE: ValueId = ValueId(u32::MAX);

impl Builder {
    /// An empty graph of this name whose weights and activations have this number format.
    pub fn new(name: &str, dtype: DType) -> Builder {
        Builder {
            graph: Graph { name: name.to_string(), ..Graph::default() },
            layer: 0,
            phase: Phase::Forward,
            dtype,
            names: HashMap::new(),
            bytes: 0,
            seeds: 0,
            error: None,
        }
    }

    /// Starts a layer: kernels and weights belong to it, and are named after it, until the next one starts.
    pub fn layer(&mut self, name: &str) {
        self.layer = self.graph.layers.len() as u32;
        let unique = self.fresh(Kind::Layer, name.to_string());
        self.graph.layers.push(unique);
    }

    /// The number format of weights and activations.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape of a value; that of a single number once something did not fit.
    pub fn shape(&self, x: ValueId) -> Shape {
        self.graph.values.get(x.index()).map_or(Shape::from([]), |v| v.shape)
    }

    /// The graph so far.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What did not fit, if anything.
    pub fn error(&self) -> Option<&GraphError> {
        self.error.as_ref()
    }

    /// Records that something does not fit; the first record stays.
    pub fn fail(&mut self, place: &str, message: impl Into<String>) {
        if self.error.is_none() {
            self.error = Some(GraphError { place: place.to_string(), message: message.into() });
        }
    }

    /// The graph, or the first thing that did not fit.
    pub fn finish(self) -> Result<Graph, GraphError> {
        match self.error {
            Some(error) => Err(error),
            None if self.graph.nodes.is_empty() => {
                Err(GraphError { place: self.graph.name, message: "has no kernels".to_string() })
            }
            None => Ok(self.graph),
        }
    }

    /// A batch of data from outside, in the number format of the network.
    pub fn input(&mut self, name: &str, shape: impl Into<Shape>) -> ValueId {
        self.outside(name, shape.into(), self.dtype, Init::Normal(1.0))
    }

    /// Whole numbers from outside, all below `below`: labels, token ids.
    pub fn ids(&mut self, name: &str, shape: impl Into<Shape>, below: u64) -> ValueId {
        self.outside(name, shape.into(), DType::I32, Init::Below(below))
    }

    /// Any data from outside: the same number everywhere, or ids of another width.
    pub fn outside(&mut self, name: &str, shape: Shape, dtype: DType, init: Init) -> ValueId {
        self.declare(name.to_string(), shape, dtype, Role::Input, false, init)
    }

    /// A parameter of the current layer, called `name` in it.
    pub fn weight(&mut self, name: &str, shape: impl Into<Shape>, init: Init) -> ValueId {
        let name = self.path(name);
        self.declare(name, shape.into(), self.dtype, Role::Weight, true, init)
    }

    /// What outlives the iteration beside the weights, such as running statistics; always f32.
    pub fn state(&mut self, name: &str, shape: impl Into<Shape>, init: Init) -> ValueId {
        let name = self.path(name);
        self.declare(name, shape.into(), DType::F32, Role::State, true, init)
    }

    /// Keeps a value beyond the iteration, so that whoever runs the program can read it: the loss.
    pub fn keep(&mut self, x: ValueId) {
        if let Some(value) = self.graph.values.get_mut(x.index()) {
            value.persistent = true;
        }
    }

    /// A seed that no earlier call returned.
    pub fn seed(&mut self) -> u64 {
        self.seeds += 1;
        self.seeds
    }

    /// Adds a kernel and returns its first result.
    pub fn apply(&mut self, op: Op, inputs: &[ValueId]) -> ValueId {
        self.apply_all(op, inputs).first().copied().unwrap_or(NOWHERE)
    }

    /// Adds a kernel and returns all its results.
    pub fn apply_all(&mut self, op: Op, inputs: &[ValueId]) -> Vec<ValueId> {
        let nowhere = match &op {
            Op::Split { sizes, .. } => vec![NOWHERE; sizes.len()],
            _ => vec![NOWHERE; 5],
        };
        if self.error.is_some() {
            return nowhere;
        }
        let forms: Vec<_> = inputs
            .iter()
            .filter_map(|i| self.graph.values.get(i.index()))
            .map(|v| (v.shape, v.dtype))
            .collect();
        self.start();
        let base = self.path(&op.name());
        if forms.len() != inputs.len() {
            self.fail(&base, "an operand is of another graph");
            return nowhere;
        }
        match infer::results(&op, &forms) {
            Ok(results) => self.push(base, op, inputs, &results),
            Err(message) => {
                self.fail(&base, message);
                nowhere
            }
        }
    }

    /// A value filled with one number by a kernel.
    pub fn fill(&mut self, shape: impl Into<Shape>, value: f32) -> ValueId {
        if self.error.is_some() {
            return NOWHERE;
        }
        self.start();
        let base = self.path("fill");
        let form = (shape.into(), self.dtype);
        self.push(base, Op::Fill { value }, &[], &[form]).first().copied().unwrap_or(NOWHERE)
    }

    /// The same memory under another shape with as many elements; no kernel.
    pub fn reshape(&mut self, x: ValueId, shape: impl Into<Shape>) -> ValueId {
        let shape = shape.into();
        let (old, name) = match self.graph.values.get(x.index()) {
            Some(value) => (value.shape, value.name.clone()),
            None => return NOWHERE,
        };
        if old.elements() != shape.elements() {
            self.fail(&name, format!("{old} cannot be reshaped to {shape}"));
            return NOWHERE;
        }
        self.view(x, shape, false)
    }

    /// A reshape to two axes: the batch, and all the rest.
    pub fn flatten(&mut self, x: ValueId) -> ValueId {
        let shape = self.shape(x);
        let batch = shape.dim(0);
        self.reshape(x, [batch, shape.elements() / batch.max(1)])
    }

    /// The same memory, but gradients do not pass.
    pub fn detach(&mut self, x: ValueId) -> ValueId {
        self.view(x, self.shape(x), true)
    }

    pub(crate) fn view(&mut self, x: ValueId, shape: Shape, detached: bool) -> ValueId {
        let Some(value) = self.graph.values.get(x.index()) else { return NOWHERE };
        let mut view = value.clone();
        view.view_of = Some(value.view_of.unwrap_or(x));
        view.shape = shape;
        view.detached |= detached;
        view.name = self.fresh(Kind::Value, format!("{}.view", view.name));
        self.graph.values.push(view);
        ValueId(self.graph.values.len() as u32 - 1)
    }

    /// Adds a kernel whose results have these forms.
    fn push(&mut self, base: String, op: Op, inputs: &[ValueId], forms: &[infer::Form]) -> Vec<ValueId> {
        if self.graph.nodes.len() >= MOST_NODES {
            self.fail(&base, format!("there are more than {MOST_NODES} kernels"));
        }
        let name = self.fresh(Kind::Node, base);
        let mut outputs = Vec::with_capacity(forms.len());
        for (at, (shape, dtype)) in forms.iter().enumerate() {
            let value = match (at, op.further_results().get(at.wrapping_sub(1))) {
                (0, _) => name.clone(),
                (_, Some(further)) => format!("{name}.{further}"),
                (_, None) => format!("{name}.{at}"),
            };
            outputs.push(self.declare(value, *shape, *dtype, Role::Activation, false, Init::Computed));
        }
        if let Op::BatchNorm { .. } = op {
            outputs.extend(&inputs[3..5]);
        }
        let (layer, phase) = (self.layer, self.phase);
        let node = Node {
            name,
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            derived: Derived::default(),
            layer,
            phase,
        };
        self.graph.nodes.push(node);
        outputs
    }

    /// Adds a kernel of the backward pass or the update, named `name`, with the given results.
    pub(crate) fn emit(&mut self, name: &str, op: Op, inputs: Vec<ValueId>, outputs: Vec<ValueId>) {
        if self.error.is_some() {
            return;
        }
        debug_assert!(self.fits(&op, &inputs, &outputs), "{name}: {op:?} does not make its result");
        let name = self.fresh(Kind::Node, name.to_string());
        let (layer, phase) = (self.layer, self.phase);
        let derived = Derived::default();
        self.graph.nodes.push(Node { name, op, inputs, outputs, layer, phase, derived });
    }

    /// Whether a kernel of the backward pass that also occurs in forward passes makes results of the right shapes.
    fn fits(&self, op: &Op, inputs: &[ValueId], outputs: &[ValueId]) -> bool {
        let form = |v: &ValueId| (self.shape(*v), self.graph.value(*v).dtype);
        let forms: Vec<_> = inputs.iter().map(form).collect();
        match infer::results(op, &forms) {
            Ok(results) => results.iter().map(|r| r.0).eq(outputs.iter().map(|v| self.shape(*v))),
            Err(_) => true,
        }
    }

    /// Adds a value, and refuses one without elements or beyond what 63 bits can count.
    pub(crate) fn declare(
        &mut self,
        name: String,
        shape: Shape,
        dtype: DType,
        role: Role,
        persistent: bool,
        init: Init,
    ) -> ValueId {
        if self.error.is_some() {
            return NOWHERE;
        }
        let bytes = shape.bytes(dtype).0;
        match self.bytes.checked_add(bytes) {
            Some(sum) if bytes > 0 && sum < 1 << 62 => self.bytes = sum,
            _ => {
                self.fail(&name, format!("{shape} is no size for a tensor"));
                return NOWHERE;
            }
        }
        let name = self.fresh(Kind::Value, name);
        let layer = self.layer;
        let value = Value {
            name,
            shape,
            dtype,
            role,
            persistent,
            view_of: None,
            start: 0,
            pitch: None,
            part_of: None,
            detached: false,
            init,
            layer,
        };
        self.graph.values.push(value);
        ValueId(self.graph.values.len() as u32 - 1)
    }

    /// Sees to it that a kernel has a layer to belong to.
    fn start(&mut self) {
        if self.graph.layers.is_empty() {
            self.layer("main");
        }
    }

    /// `name` in the current layer.
    fn path(&self, name: &str) -> String {
        match self.graph.layers.get(self.layer as usize) {
            Some(layer) => format!("{layer}.{name}"),
            None => name.to_string(),
        }
    }

    /// `name`, with a number behind it where something of this kind has it already.
    fn fresh(&mut self, kind: Kind, name: String) -> String {
        let hash = |name: &str| BuildHasherDefault::<DefaultHasher>::default().hash_one((kind as u8, name));
        let key = hash(&name);
        let Some(known) = self.names.get(&key) else {
            self.names.insert(key, 1);
            return name;
        };
        let mut count = *known;
        let unique = loop {
            count += 1;
            let candidate = format!("{name}.{count}");
            if !self.names.contains_key(&hash(&candidate)) {
                break candidate;
            }
        };
        self.names.insert(key, count);
        self.names.insert(hash(&unique), 1);
        unique
    }
}

/// What has a name; names of different kinds do not clash.
#[derive(Clone, Copy)]
enum Kind {
    Layer,
    Node,
    Value,
}

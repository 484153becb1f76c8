//! Reverse-mode differentiation: writes the backward kernels and the optimizer's updates behind the forward ones.
//!
//! [`Builder::backward`] walks the forward kernels in reverse. Every kernel that lies between a wanted weight and a
//! loss gets the kernels of its rule (`rules.rs`); a value with several users gets its gradients added as they
//! arrive, so that at most two of them are alive at once, as in the frameworks. No kernel is written for what needs no
//! gradient: images, labels, weights that are not wanted, what lies behind a [`Builder::detach`]. A rule names the
//! values that its kernels read, and thereby decides what stays alive from forward to backward; nothing else does.
//!
//! A table that only one embedding reads gets no dense gradient: its gradient is the rows of the result's gradient
//! together with the ids, and its update changes only those rows.

mod rules;

use std::collections::HashMap;

use crate::graph::{Builder, DType, Init, Node, Op, Optimizer, Shape, ValueId};
use crate::trace::{Phase, Role};

/// The gradient of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gradient {
    /// A number for every parameter.
    Dense(ValueId),
    /// Rows for the ids that were looked up, all others being zero.
    Rows {
        /// The ids.
        ids: ValueId,
        /// The gradient of what was looked up.
        rows: ValueId,
        /// Whether the rows of the last axis of ids were summed.
        bag: bool,
    },
}

impl Builder {
    /// Every weight so far.
    pub fn weights(&self) -> Vec<ValueId> {
        let values = self.graph.values.iter().enumerate();
        values
            .filter(|(_, v)| v.role == Role::Weight && v.view_of.is_none())
            .map(|(i, _)| ValueId(i as u32))
            .collect()
    }

    /// Differentiates the losses by every weight, and updates every weight that has a gradient.
    pub fn train(&mut self, losses: &[ValueId], optimizer: Optimizer) {
        let weights = self.weights();
        let gradients = self.backward(losses, &weights);
        self.update(&gradients, optimizer);
    }

    /// Writes the kernels that compute the gradient of the sum of `losses` by each of the `wanted` weights, and
    /// returns those weights with their gradients, in the order of `wanted`.
    pub fn backward(&mut self, losses: &[ValueId], wanted: &[ValueId]) -> Vec<(ValueId, Gradient)> {
        if self.error().is_some() {
            return Vec::new();
        }
        let layer = self.layer;
        self.phase = Phase::Backward;
        let mut tape = Tape::new(self, losses, wanted);
        tape.run();
        let gradients = tape.gradients;
        self.phase = Phase::Forward;
        self.layer = layer;
        wanted.iter().filter_map(|w| Some((*w, gradients[w.index()]?))).collect()
    }

    /// Writes the kernel that changes each weight by its gradient, and the state that the optimizer needs for it.
    pub fn update(&mut self, gradients: &[(ValueId, Gradient)], optimizer: Optimizer) {
        let layer = self.layer;
        self.phase = Phase::Update;
        for (weight, gradient) in gradients {
            let value = self.graph.value(*weight);
            let (name, shape, dtype) = (value.name.clone(), value.shape, value.dtype);
            self.layer = value.layer;
            let mut outputs = vec![*weight];
            let mut state = |builder: &mut Builder, kind: &str, init| {
                let name = format!("{name}.{kind}");
                outputs.push(builder.declare(name, shape, DType::F32, Role::State, true, init));
            };
            for kind in optimizer.states() {
                state(self, kind, Init::Constant(0.0));
            }
            if dtype == DType::Bf16 {
                state(self, "master", Init::Copy(*weight));
            }
            let (op, by) = match *gradient {
                Gradient::Dense(g) => (Op::Update(optimizer), vec![g]),
                Gradient::Rows { ids, rows, bag } => (Op::UpdateRows { optimizer, bag }, vec![ids, rows]),
            };
            let inputs = [*weight].into_iter().chain(by).chain(outputs[1..].iter().copied()).collect();
            self.emit(&format!("{name}.update"), op, inputs, outputs);
        }
        self.phase = Phase::Forward;
        self.layer = layer;
    }
}

/// The state of one differentiation.
struct Tape<'a> {
    builder: &'a mut Builder,
    /// Whether a value leads from a wanted weight; by value.
    needs: Vec<bool>,
    /// How many forward kernels read a value; by value.
    users: Vec<u32>,
    /// The gradient so far; by value, and only for values that are no views.
    gradients: Vec<Option<Gradient>>,
    /// Whether a value is a loss, whose gradient is 1; by value.
    is_loss: Vec<bool>,
}

impl<'a> Tape<'a> {
    fn new(builder: &'a mut Builder, losses: &[ValueId], wanted: &[ValueId]) -> Tape<'a> {
        let graph = &builder.graph;
        let values = graph.values.len();
        let mut tape_needs = vec![false; values];
        let mut users = vec![0; values];
        let mut is_loss = vec![false; values];
        for weight in wanted {
            tape_needs[weight.index()] = true;
        }
        for loss in losses {
            is_loss[loss.index()] = true;
        }
        let leads = |needs: &[bool], v: ValueId| {
            let value = graph.value(v);
            !value.detached && needs[value.view_of.unwrap_or(v).index()]
        };
        for node in graph.nodes.iter().filter(|n| n.phase == Phase::Forward) {
            let mut any = false;
            for input in &node.inputs {
                users[graph.root(*input).index()] += 1;
                any |= leads(&tape_needs, *input);
            }
            for output in node.outputs.iter().filter(|_| any) {
                // Integers and statistics that are changed in place have no gradient.
                let value = graph.value(*output);
                tape_needs[output.index()] |= value.role == Role::Activation && !value.dtype.is_integer();
            }
        }
        let gradients = vec![None; values];
        Tape { builder, needs: tape_needs, users, gradients, is_loss }
    }

    fn run(&mut self) {
        for at in (0..self.builder.graph.nodes.len()).rev() {
            let node = &self.builder.graph.nodes[at];
            let reached = node.outputs.iter().any(|o| {
                self.is_loss[o.index()]
                    || (self.needs[o.index()]
                        && matches!(self.gradients[o.index()], Some(Gradient::Dense(_))))
            });
            if node.phase == Phase::Forward && reached && node.outputs.iter().any(|o| self.needs[o.index()]) {
                let node = node.clone();
                self.builder.layer = node.layer;
                self.differentiate(&node);
            }
        }
        self.sum_last();
    }

    /// Puts the kernels that add up a recurrent layer's gradients by its weights, one for every time step, behind all of
    /// the layer that go back in time: weights and their gradients then need not be at hand at the same time. cuDNN does
    /// the same.
    fn sum_last(&mut self) {
        let nodes = &mut self.builder.graph.nodes;
        let sums = |node: &Node| (node.op == Op::LstmCellBackwardWeight).then(|| node.outputs[0]);
        let last: HashMap<ValueId, usize> =
            nodes.iter().enumerate().filter_map(|(at, node)| Some((sums(node)?, at))).collect();
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_by_key(|at| sums(&nodes[*at]).map_or(*at, |sum| last[&sum]));
        if !last.is_empty() {
            *nodes = order.into_iter().map(|at| nodes[at].clone()).collect();
        }
    }

    /// Whether a gradient by this value is wanted.
    fn wants(&self, value: ValueId) -> bool {
        let graph = &self.builder.graph;
        !graph.value(value).detached && self.needs[graph.root(value).index()]
    }

    /// The gradient by a kernel's result; zeros where nobody used that result.
    fn gradient(&mut self, value: ValueId) -> ValueId {
        if let Some(Gradient::Dense(gradient)) = self.gradients[value.index()] {
            return gradient;
        }
        let zeros = self.fresh(value);
        let name = format!("{}.zero", self.builder.graph.value(value).name);
        self.builder.emit(&name, Op::Fill { value: 0.0 }, vec![], vec![zeros]);
        zeros
    }

    /// A new value for a gradient by `value`, with its shape.
    fn fresh(&mut self, value: ValueId) -> ValueId {
        let shape = self.builder.graph.value(value).shape;
        self.fresh_of(value, shape)
    }

    /// A new value for a gradient by `value`, with another shape.
    fn fresh_of(&mut self, value: ValueId, shape: Shape) -> ValueId {
        let of = self.builder.graph.value(value);
        let role = if of.role == Role::Weight { Role::Gradient } else { Role::Activation };
        let (name, dtype) = (format!("{}.grad", of.name), of.dtype);
        self.builder.declare(name, shape, dtype, role, false, Init::Computed)
    }

    /// Adds `gradient` to what is already known of the gradient by `value`.
    fn contribute(&mut self, value: ValueId, gradient: ValueId) {
        let root = self.builder.graph.root(value);
        let shape = self.builder.shape(root);
        let gradient = if self.builder.shape(gradient) == shape {
            gradient
        } else {
            self.builder.view(gradient, shape, false)
        };
        let sum = match self.gradients[root.index()] {
            Some(Gradient::Dense(known)) => {
                let sum = self.fresh(root);
                let name = format!("{}.accumulate", self.builder.graph.value(root).name);
                self.builder.emit(&name, Op::Add, vec![known, gradient], vec![sum]);
                sum
            }
            _ => gradient,
        };
        self.gradients[root.index()] = Some(Gradient::Dense(sum));
    }
}

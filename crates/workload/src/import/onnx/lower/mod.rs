//! From operators to kernels: one rule an operator, all listed in `rules.rs`.
//!
//! A rule reads its operands as one of three things: data that a kernel made or that comes from outside, a weight, or a
//! constant known now. A weight gets its memory when a rule first uses it, in the form in which training kernels want it
//! (a linear layer's is stored output by input); the numbers in the file are not kept, because a trace does not depend on
//! them and a training run starts from random ones.

mod conv;
mod data;
mod linear;
mod norm;
mod pointwise;
mod recurrent;
mod rules;

pub(super) use norm::{Softened, softened};

use std::collections::HashMap;

use rules::RULES;

use super::constant::{Constant, Format};
use super::fold::{FOLDED, Folder};
use super::model::{Model, Node, Tensor};
use super::plan::{Plan, Step};
use crate::graph::{Builder, DType, Init, Op, Shape, ValueId};
use crate::trace::Role;

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Item<'a> {
    /// Data, with its place in the graph.
    Data(ValueId),
    /// A weight that has no place yet, or is used in a form of its own.
    Weight {
        /// Its name in the file.
        name: &'a str,
        /// Its extents in the file.
        shape: Shape,
        /// Whether it is read with its two axes exchanged.
        transposed: bool,
    },
    /// A tensor that is known.
    Constant(Constant),
}

/// The result of a rule; the error is a sentence about its node.
pub(super) type Outcome<T = ()> = Result<T, String>;

/// The operators that are supported, in alphabetical order.
pub(super) fn supported() -> Vec<&'static str> {
    let mut names: Vec<&str> = RULES.iter().map(|rule| rule.0).chain(FOLDED).collect();
    names.sort_unstable();
    names
}

/// What a `Reshape` with a stated shape did when the file's own batch was used.
#[derive(Clone, Debug)]
pub(super) struct Reshaped {
    pub from: Shape,
    pub target: Vec<i64>,
    pub to: Shape,
}

/// What the file's own batch was, and what the `Reshape` nodes did then, by their positions.
pub(super) struct Past {
    /// The batch.
    pub batch: u64,
    /// The nodes.
    pub reshapes: HashMap<usize, Reshaped>,
}

/// One pass over a file.
pub(super) struct Lowering<'a> {
    /// The graph so far.
    pub builder: Builder,
    /// The version of the operators.
    pub opset: i64,
    /// What the reshapes of this pass did.
    pub reshapes: HashMap<usize, Reshaped>,
    /// What they did under the file's own batch, where another is wanted now.
    pub past: Option<&'a Past>,
    plan: &'a Plan<'a>,
    initializers: &'a HashMap<&'a str, Tensor<'a>>,
    items: HashMap<&'a str, Item<'a>>,
    weights: HashMap<(&'a str, u8), ValueId>,
    /// Constants and turned weights that kernels read.
    placed: HashMap<&'a str, ValueId>,
    rows: HashMap<ValueId, u64>,
    folder: Folder,
    cells: u64,
}

impl<'a> Lowering<'a> {
    /// A pass over a file of so many bytes.
    pub fn new(
        builder: Builder,
        model: &'a Model<'a>,
        plan: &'a Plan<'a>,
        past: Option<&'a Past>,
        bytes: usize,
    ) -> Lowering<'a> {
        Lowering {
            builder,
            opset: model.opset,
            reshapes: HashMap::new(),
            past,
            plan,
            initializers: &model.initializers,
            items: HashMap::new(),
            weights: HashMap::new(),
            placed: HashMap::new(),
            rows: HashMap::new(),
            folder: Folder::new(bytes, past.map(|past| past.batch)),
            cells: 0,
        }
    }

    /// Gives a name its meaning.
    pub fn bind(&mut self, name: &'a str, item: Item<'a>) {
        if !name.is_empty() {
            self.items.insert(name, item);
        }
    }

    /// Does what the plan says of a node.
    pub fn step(&mut self, node: &Node<'a>, step: Step<'a>) -> Outcome {
        match step {
            Step::Skip => return Ok(()),
            Step::Node => self.node(node)?,
            Step::Linear { x, weight, bias } => {
                self.start(node);
                let y = linear::linear(self, x, weight, Some(bias), false)?;
                self.give(node, y);
            }
            Step::Gelu { x } => {
                let x = self.data(x)?;
                let y = self.builder.apply(Op::Activate(crate::graph::Activation::Gelu), &[x]);
                self.give(node, y);
            }
            Step::LayerNorm { x, gamma, beta, epsilon } => {
                let y = norm::normalised(self, [x, gamma, beta], 1, epsilon)?;
                self.give(node, y);
            }
        }
        match self.builder.error() {
            Some(error) => Err(error.message.clone()),
            None => Ok(()),
        }
    }

    fn node(&mut self, node: &Node<'a>) -> Outcome {
        if !matches!(node.domain, "" | "ai.onnx") {
            return Err(format!("operator `{}` of the domain `{}` is not supported", node.op, node.domain));
        }
        let rule = RULES.iter().find(|rule| rule.0 == node.op);
        if rule.is_none() && !FOLDED.contains(&node.op) {
            return Err(format!("operator `{}` is not supported; supported are {}", node.op, short_list()));
        }
        if self.fold(node)? {
            return Ok(());
        }
        let Some((_, attributes, lower)) = rule else {
            return Err(format!(
                "`{}` of data is not supported; it is where all its operands are constants",
                node.op
            ));
        };
        if let Some(unknown) = node.attribute_names()?.iter().find(|name| !attributes.contains(name)) {
            return Err(format!("attribute `{unknown}` of `{}` is not supported", node.op));
        }
        lower(self, node)
    }

    /// Evaluates a node whose operands are all known; says whether it did.
    fn fold(&mut self, node: &Node<'a>) -> Outcome<bool> {
        let folded = match node.op {
            "Shape" => Some(self.shape_node(node)?),
            "Size" => {
                let elements = self.shape(node.input(0))?.elements();
                Some(Constant::ints(Shape::from([]), vec![i64::try_from(elements).unwrap_or(i64::MAX)]))
            }
            _ => {
                let mut operands = Vec::with_capacity(node.inputs.len());
                for name in &node.inputs {
                    operands.push(match self.optional(name)? {
                        None => None,
                        Some(Item::Constant(constant)) => Some(constant),
                        Some(_) => return Ok(false),
                    });
                }
                self.folder.fold(node, &operands)?
            }
        };
        let Some(constant) = folded else { return Ok(false) };
        // A tensor of stated shape and equal numbers, where data is expected, is a weight without its numbers.
        let stated = node.op == "ConstantOfShape" && self.initializers.contains_key(node.input(0));
        let item = if stated && !constant.is_integer() && constant.shape.elements() > 1 {
            Item::Weight { name: node.output(0), shape: constant.shape, transposed: false }
        } else {
            Item::Constant(constant)
        };
        self.bind(node.output(0), item);
        Ok(true)
    }

    fn shape_node(&mut self, node: &Node<'a>) -> Outcome<Constant> {
        let shape = self.shape(node.input(0))?;
        let rank = shape.rank() as i64;
        let place = |n: i64| (if n < 0 { n.saturating_add(rank) } else { n }).clamp(0, rank) as usize;
        let (start, end) = (place(node.int("start", 0)?), place(node.int("end", rank)?));
        let dims = shape.dims().get(start..end).unwrap_or_default();
        Ok(Constant::list(dims.iter().map(|d| i64::try_from(*d).unwrap_or(i64::MAX)).collect()))
    }

    /// What a name stands for; `None` for the empty name.
    fn optional(&mut self, name: &'a str) -> Outcome<Option<Item<'a>>> {
        if name.is_empty() {
            return Ok(None);
        }
        if let Some(item) = self.items.get(name) {
            return Ok(Some(item.clone()));
        }
        let Some(tensor) = self.initializers.get(name) else {
            return Err(format!("reads `{}`, which nothing before it makes", short(name)));
        };
        let shape = tensor.extents().map_err(|e| format!("`{}`: {e}", short(name)))?;
        let weight =
            Format::of(tensor.format).map_err(|e| format!("`{}`: {e}", short(name)))? == Format::Float;
        let item = if weight && shape.elements() > 1 && !self.plan.masks.contains(name) {
            Item::Weight { name, shape, transposed: false }
        } else {
            Item::Constant(tensor.constant().map_err(|e| format!("`{}`: {e}", short(name)))?)
        };
        self.bind(name, item.clone());
        Ok(Some(item))
    }

    /// What a name stands for.
    pub fn item(&mut self, name: &'a str) -> Outcome<Item<'a>> {
        self.optional(name)?.ok_or_else(|| "an operand is missing".to_string())
    }

    /// The extents of what a name stands for.
    pub fn shape(&mut self, name: &'a str) -> Outcome<Shape> {
        Ok(match self.item(name)? {
            Item::Data(value) => self.builder.shape(value),
            Item::Weight { shape, transposed: false, .. } => shape,
            Item::Weight { shape, transposed: true, .. } => Shape::from([shape.dim(1), shape.dim(0)]),
            Item::Constant(constant) => constant.shape,
        })
    }

    /// What a name stands for, as a value that kernels can read.
    pub fn data(&mut self, name: &'a str) -> Outcome<ValueId> {
        let item = self.item(name)?;
        if let Some(value) = self.placed.get(name) {
            return Ok(*value);
        }
        let value = match item {
            Item::Data(value) => return Ok(value),
            Item::Weight { name: weight, shape, transposed } => {
                let value = self.weight(weight, 0, shape, Init::Normal(0.02));
                if !transposed {
                    return Ok(value);
                }
                self.builder.apply(Op::Transpose { order: vec![1, 0] }, &[value])
            }
            Item::Constant(constant) => self.constant(name, &constant),
        };
        self.placed.insert(name, value);
        Ok(value)
    }

    /// A value under another shape with as many elements.
    pub fn view(&mut self, x: ValueId, shape: impl Into<Shape>) -> ValueId {
        let shape = shape.into();
        if self.builder.shape(x) == shape { x } else { self.builder.reshape(x, shape) }
    }

    /// Operand `at` of a node as a value.
    pub fn operand(&mut self, node: &Node<'a>, at: usize) -> Outcome<ValueId> {
        self.data(node.input(at))
            .map_err(|e| if node.input(at).is_empty() { format!("operand {at} is missing") } else { e })
    }

    /// A constant as a value that comes from outside.
    pub fn constant(&mut self, name: &str, constant: &Constant) -> ValueId {
        let integer = constant.is_integer();
        let dtype = if integer { DType::I64 } else { self.builder.dtype() };
        let numbers = constant.as_floats().unwrap_or_default();
        let init = match numbers.first() {
            Some(first) if numbers.iter().all(|n| n == first) => Init::Constant(*first),
            _ if integer => Init::Below(1),
            _ => Init::Normal(1.0),
        };
        self.builder.outside(short(name), constant.shape, dtype, init)
    }

    /// A single known number, if that is what the name stands for.
    pub fn number(&mut self, name: &'a str) -> Outcome<Option<f32>> {
        Ok(match self.optional(name)? {
            Some(Item::Constant(constant)) => constant.scalar(),
            _ => None,
        })
    }

    /// A list of known whole numbers as operand `at`; `None` where there is no such operand.
    pub fn list(&mut self, node: &Node<'a>, at: usize) -> Outcome<Option<Vec<i64>>> {
        match self.optional(node.input(at))? {
            None => Ok(None),
            Some(Item::Constant(constant)) => match constant.as_ints() {
                Some(list) => Ok(Some(list.to_vec())),
                None => Err(format!(
                    "the numbers of operand {at} (`{}`) are not in the file",
                    short(node.input(at))
                )),
            },
            Some(_) => Err(format!(
                "operand {at} (`{}`) depends on data; only constants are supported there",
                short(node.input(at))
            )),
        }
    }

    /// Part `piece` of a weight of the file, in this shape: declared at first use, a view of that later.
    pub fn weight(&mut self, name: &'a str, piece: u8, shape: Shape, init: Init) -> ValueId {
        if let Some(value) = self.weights.get(&(name, piece)) {
            let value = *value;
            return self.view(value, shape);
        }
        let mut path = short(name).to_string();
        if piece > 0 {
            path = format!("{path}.{piece}");
        }
        let dtype = self.builder.dtype();
        let value = self.builder.declare(path, shape, dtype, Role::Weight, true, init);
        self.weights.insert((name, piece), value);
        value
    }

    /// A parameter of a layer as a value: a weight of this shape, or data.
    pub fn parameter(&mut self, name: &'a str, shape: Shape, init: Init) -> Outcome<ValueId> {
        match self.item(name)? {
            Item::Weight { name: weight, shape: own, transposed: false }
                if own.elements() == shape.elements() =>
            {
                Ok(self.weight(weight, 0, shape, init))
            }
            Item::Constant(constant)
                if !constant.is_integer() && constant.shape.elements() == shape.elements() =>
            {
                Ok(self.weight(name, 0, shape, init))
            }
            _ => {
                let value = self.data(name)?;
                let own = self.builder.shape(value);
                if own.elements() != shape.elements() {
                    return Err(format!("`{}` is {own} where {shape} is needed", short(name)));
                }
                Ok(self.view(value, shape))
            }
        }
    }

    /// Whether one node alone reads a weight.
    pub fn is_alone(&self, name: &str) -> bool {
        self.plan.uses.get(name).copied().unwrap_or(0) <= 1
    }

    /// Whether a result is wanted.
    pub fn wanted(&self, node: &Node<'a>, at: usize) -> bool {
        self.plan.uses.contains_key(node.output(at))
    }

    /// Starts the layer of a node that has weights.
    pub fn start(&mut self, node: &Node<'a>) {
        self.builder.layer(&title(node));
    }

    /// Gives a node's first result.
    pub fn give(&mut self, node: &Node<'a>, value: ValueId) {
        self.bind(node.output(0), Item::Data(value));
    }

    /// Notes that ids point into a table of so many rows, so that whoever runs the program draws such ids.
    pub fn bound(&mut self, ids: ValueId, rows: u64) {
        let Some(value) = self.builder.graph.values.get(ids.index()) else { return };
        let root = value.view_of.unwrap_or(ids);
        let rows = self.rows.get(&root).map_or(rows, |known| rows.min(*known));
        self.rows.insert(root, rows);
        if let Some(value) = self.builder.graph.values.get_mut(root.index())
            && value.role == Role::Input
        {
            value.init = Init::Below(rows);
        }
    }

    /// Counts unrolled cells, and refuses more than any network has.
    pub fn unroll(&mut self, cells: u64) -> Outcome {
        const MOST: u64 = 1 << 16;
        self.cells = self.cells.saturating_add(cells);
        if self.cells > MOST { Err(format!("more than {MOST} recurrent steps")) } else { Ok(()) }
    }
}

/// The name that a node goes by: its own, that of its result, or its operator and position.
pub(super) fn title(node: &Node<'_>) -> String {
    match (node.name, node.output(0)) {
        ("", "") => format!("{}-{}", short(node.op), node.at),
        ("", result) => short(result).to_string(),
        (name, _) => short(name).to_string(),
    }
}

/// A name, less what is beyond any sensible length.
pub(super) fn short(name: &str) -> &str {
    match name.char_indices().nth(120) {
        Some((end, _)) => &name[..end],
        None if name.is_empty() => "-",
        None => name,
    }
}

/// Some of the supported operators, and where the others are listed.
fn short_list() -> String {
    let shown: Vec<&str> = RULES.iter().step_by(RULES.len().div_ceil(8)).map(|rule| rule.0).collect();
    format!("{} and {} more (docs/onnx.md)", shown.join(", "), supported().len() - shown.len())
}

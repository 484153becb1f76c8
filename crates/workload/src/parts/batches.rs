//! Activations in parts of some samples each.
//!
//! Most kernels treat every sample of a batch by itself: such a kernel becomes several, each on its part, and kernels in a
//! row take a part through all of them before the next. A linear layer's gradient by its weights is added up part by part.
//! What else sums over the batch (a convolution's gradient by its weights, a batch norm) stays one kernel that takes all
//! parts as operands. Small tensors stay whole, and kernels on parts see a stretch of them.
//!
//! The logits of a large vocabulary are the case in point: a part of them is made, turned into its loss, its gradient and
//! what that adds to the gradients of the layer, and forgotten, so that no more than a part is ever there.

use std::collections::{HashMap, HashSet};

use tiercel_core::Bytes;

use super::{FEW, MOST, PART, ROWS};
use crate::graph::{DType, Graph, Init, Node, Op, Value, ValueId};
use crate::trace::{Derived, Role};

/// How a kernel treats the samples of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Each by itself.
    Each,
    /// Each by itself, and adds what comes of it to results that are no batch.
    Sum,
    /// All together, in parts that are operands of their own.
    Together,
}

/// Which operands and results of a kernel are a batch, and how it treats its samples; `None` where that is not known.
struct Samples {
    way: Way,
    inputs: Vec<bool>,
    outputs: Vec<bool>,
}

impl Samples {
    fn of(graph: &Graph, node: &Node, limit: Bytes) -> Option<Samples> {
        let (mut way, all) = (Way::Each, vec![true; node.inputs.len()]);
        let mut outputs = vec![true; node.outputs.len()];
        let only = |some: &[usize]| (0..node.inputs.len()).map(|at| some.contains(&at)).collect();
        let shape = |at: usize| graph.value(node.inputs[at]).shape;
        // Weights are read for every part, so they weigh no more than one.
        let light = |v: ValueId| graph.value(v).shape.bytes(graph.value(v).dtype) <= limit;
        let inputs: Vec<bool> = match &node.op {
            Op::Conv(_) => only(&[0]),
            Op::ConvBackwardData(_) => only(&[1]),
            Op::ResponseNorm(_) | Op::ResponseNormBackward(_) => all,
            Op::Activate(_) | Op::ActivateBackward(_) | Op::Scale { .. } => all,
            Op::Pool(_) | Op::PoolBackward(_) | Op::GlobalPool | Op::GlobalPoolBackward => all,
            Op::Add | Op::Mul if shape(0) == shape(1) => all,
            Op::Concat { axis } | Op::Slice { axis, .. } if *axis > 0 => all,
            Op::Split { axis, .. } | Op::Pad { axis, .. } if *axis > 0 => all,
            Op::Linear if light(node.inputs[1]) => only(&[0]),
            Op::LinearBackwardData if node.inputs.len() == 2 && light(node.inputs[0]) => only(&[1]),
            Op::LinearBackwardWeight if node.inputs.len() == 2 && light(node.outputs[0]) => {
                (way, outputs) = (Way::Sum, vec![false; node.outputs.len()]);
                all
            }
            Op::CrossEntropy => {
                outputs[0] = false;
                all
            }
            Op::CrossEntropyBackward { .. } => all,
            Op::ConvBackwardWeight(_) if node.parts() == 1 => {
                (way, outputs) = (Way::Together, vec![false; node.outputs.len()]);
                all
            }
            Op::BatchNorm { .. } if node.parts() == 1 => {
                (way, outputs) = (Way::Together, (0..node.outputs.len()).map(|at| at == 0).collect());
                only(&[0])
            }
            Op::BatchNormBackward if node.parts() == 1 => {
                (way, outputs) = (Way::Together, (0..node.outputs.len()).map(|at| at == 0).collect());
                only(&[0, 4])
            }
            _ => return None,
        };
        let samples = Samples { way, inputs, outputs };
        let first = graph.value(samples.batches(node).next()?).shape.dim(0);
        let alike = samples.batches(node).all(|v| {
            let value = graph.value(v);
            value.dtype != DType::Bf16 && value.pitch.is_none() && value.shape.dim(0) == first
        });
        (alike && samples.unit(graph, node) < first).then_some(samples)
    }

    /// Parts have a multiple of so many samples: products of matrices sum over rows in blocks.
    fn unit(&self, graph: &Graph, node: &Node) -> u64 {
        match node.op {
            Op::Linear | Op::LinearBackwardData | Op::LinearBackwardWeight => {
                let rows = self.batches(node).next().map_or(1, |v| rows(graph.value(v)));
                ROWS >> rows.trailing_zeros().min(ROWS.trailing_zeros())
            }
            _ => 1,
        }
    }

    /// The operands and results that are a batch.
    fn batches<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = ValueId> + 'a {
        let inputs = node.inputs.iter().zip(&self.inputs);
        inputs.chain(node.outputs.iter().zip(&self.outputs)).filter(|(_, batch)| **batch).map(|(v, _)| *v)
    }
}

/// The same graph with activations of more than `limit` in parts of about that size; `None` where there are none that
/// could be.
pub(super) fn split(graph: &Graph, limit: Bytes) -> Option<Graph> {
    let limit = limit.max(Bytes(1));
    let ways: Vec<Option<Samples>> = graph.nodes.iter().map(|node| Samples::of(graph, node, limit)).collect();
    let large = large(graph, &ways, limit);
    if large.is_empty() {
        return None;
    }
    let steps = steps(graph, &ways, &large, limit)?;
    let new = Graph { nodes: Vec::with_capacity(graph.nodes.len()), ..graph.clone() };
    let mut split = Split { old: graph, new, large, steps, parts: HashMap::new(), losses: HashMap::new() };
    let mut row = Row::default();
    for (node, samples) in graph.nodes.iter().zip(&ways) {
        let Some(samples) = samples.as_ref().filter(|samples| split.touches(node, samples)) else {
            split.part_by_part(&mut row);
            split.new.nodes.push(node.clone());
            continue;
        };
        if samples.way == Way::Together || !row.can_take(graph, node, samples) {
            split.part_by_part(&mut row);
        }
        match samples.way {
            Way::Each | Way::Sum => row.take(graph, node, samples),
            Way::Together => split.together(node, samples),
        }
    }
    split.part_by_part(&mut row);
    Some(split.new)
}

/// Rows of a matrix, one for every vector along the last axis, that a sample has.
fn rows(value: &Value) -> u64 {
    value.shape.elements() / value.shape.last().max(1) / value.shape.dim(0).max(1)
}

/// For batches of so many samples, the samples of a part: as few as the largest of them needs, in whole units. `None` where
/// a part would have all of them.
fn steps(
    graph: &Graph,
    ways: &[Option<Samples>],
    large: &HashSet<ValueId>,
    limit: Bytes,
) -> Option<HashMap<u64, u64>> {
    let mut steps: HashMap<u64, u64> = HashMap::new();
    for value in large.iter().map(|v| graph.value(*v)) {
        let (samples, bytes) = (value.shape.dim(0), value.shape.bytes(value.dtype));
        let parts = bytes.0.div_ceil(limit.0).clamp(2, MOST.min(samples));
        let step = steps.entry(samples).or_insert(samples);
        *step = samples.div_ceil(parts).min(*step);
    }
    for (node, way) in graph.nodes.iter().zip(ways) {
        let Some(way) = way.as_ref().filter(|way| way.batches(node).any(|v| large.contains(&v))) else {
            continue;
        };
        let first = way.batches(node).next().map(|v| graph.value(v))?;
        let (samples, unit) = (first.shape.dim(0), way.unit(graph, node));
        let step = steps.get_mut(&samples)?;
        // Units are powers of two, so the largest is a multiple of all.
        *step = step.next_multiple_of(unit);
        let few = |step: u64| unit > 1 && (1..=FEW).contains(&(samples % step * rows(first)));
        while few(*step) {
            *step += unit;
        }
    }
    steps.iter().all(|(samples, step)| step < samples).then_some(steps)
}

/// The activations of more than `limit` that every kernel could take in parts.
fn large(graph: &Graph, ways: &[Option<Samples>], limit: Bytes) -> HashSet<ValueId> {
    let viewed: HashSet<ValueId> = graph.values.iter().filter_map(|value| value.view_of).collect();
    let could = |v: &ValueId| {
        let value = graph.value(*v);
        let made = value.role == Role::Activation && value.init == Init::Computed && !value.persistent;
        let whole = value.view_of.is_none() && !viewed.contains(v);
        made && whole && value.shape.dim(0) > 1 && value.shape.bytes(value.dtype) > limit
    };
    let mut large: HashSet<ValueId> = (0..graph.values.len() as u32).map(ValueId).filter(could).collect();
    // What one kernel cannot take in parts may keep another from taking its other operands so.
    loop {
        let before = large.len();
        for (node, samples) in graph.nodes.iter().zip(ways) {
            let batches: HashSet<ValueId> = samples.iter().flat_map(|s| s.batches(node)).collect();
            let whole = samples.as_ref().is_some_and(|samples| {
                let mut results = node.outputs.iter().zip(&samples.outputs).filter(|(_, batch)| **batch);
                match node.op {
                    // Probabilities and gradients take the place of logits, which they could not if those were whole.
                    Op::CrossEntropy | Op::CrossEntropyBackward { .. } => {
                        large.contains(&node.inputs[0]) && results.all(|(v, _)| large.contains(v))
                    }
                    _ => samples.way != Way::Together || results.all(|(v, _)| large.contains(v)),
                }
            });
            for v in node.inputs.iter().chain(&node.outputs) {
                if !batches.contains(v) || !whole {
                    large.remove(v);
                }
            }
        }
        if large.len() == before {
            return large;
        }
    }
}

/// Kernels in a row that take each part through all of them.
#[derive(Default)]
struct Row<'g> {
    nodes: Vec<(&'g Node, &'g Samples)>,
    /// Samples of the batch.
    samples: u64,
    /// What they make.
    made: HashSet<ValueId>,
}

impl<'g> Row<'g> {
    /// Whether a kernel needs nothing but its own part of what the others make.
    fn can_take(&self, graph: &Graph, node: &Node, samples: &Samples) -> bool {
        let mut shared = node.inputs.iter().zip(&samples.inputs).filter(|(_, batch)| !**batch);
        let same = samples.batches(node).all(|v| graph.value(v).shape.dim(0) == self.samples);
        self.nodes.is_empty() || (same && !shared.any(|(v, _)| self.made.contains(&graph.root(*v))))
    }

    fn take(&mut self, graph: &Graph, node: &'g Node, samples: &'g Samples) {
        self.samples = samples.batches(node).next().map_or(1, |v| graph.value(v).shape.dim(0));
        self.made.extend(node.outputs.iter().map(|v| graph.root(*v)));
        self.nodes.push((node, samples));
    }
}

/// A graph that is being rewritten.
struct Split<'g> {
    old: &'g Graph,
    new: Graph,
    large: HashSet<ValueId>,
    /// For batches of so many samples, the samples of a part; the last may have fewer.
    steps: HashMap<u64, u64>,
    /// The parts of values, and the stretches of others that kernels on parts see.
    parts: HashMap<(ValueId, u64), ValueId>,
    /// The losses of rows, by the loss that is their mean.
    losses: HashMap<ValueId, ValueId>,
}

impl<'g> Split<'g> {
    /// Whether something that a kernel works on comes in parts.
    fn touches(&self, node: &Node, samples: &Samples) -> bool {
        samples.batches(node).any(|v| self.large.contains(&v))
    }

    /// How many parts a batch of so many samples has.
    fn count(&self, samples: u64) -> u64 {
        samples.div_ceil(self.steps.get(&samples).copied().unwrap_or(samples).max(1))
    }

    /// A part of a value, or the stretch of it that belongs to the part.
    fn part(&mut self, v: ValueId, index: u64) -> ValueId {
        if let Some(known) = self.parts.get(&(v, index)) {
            return *known;
        }
        let value = self.new.value(v).clone();
        let samples = value.shape.dim(0);
        let step = self.steps.get(&samples).copied().unwrap_or(samples);
        let first = index * step;
        let own = self.large.contains(&v);
        let new = ValueId(self.new.values.len() as u32);
        self.new.values.push(Value {
            name: format!("{}{PART}{index}", value.name),
            shape: value.shape.with(0, step.min(samples - first)),
            view_of: (!own).then(|| self.new.root(v)),
            start: if own { 0 } else { value.start + first * (value.shape.elements() / samples) },
            part_of: own.then_some((v, first * (value.shape.elements() / samples))),
            ..value
        });
        self.parts.insert((v, index), new);
        new
    }

    /// Puts the kernels of a row, part by part.
    fn part_by_part(&mut self, row: &mut Row<'g>) {
        let Row { nodes, samples, .. } = std::mem::take(row);
        for index in 0..self.count(samples) {
            for (node, samples) in &nodes {
                let mut parts = |values: &[ValueId], batches: &[bool]| -> Vec<ValueId> {
                    let part = |(v, batch): (&ValueId, &bool)| if *batch { self.part(*v, index) } else { *v };
                    values.iter().zip(batches).map(part).collect()
                };
                let (mut inputs, mut outputs) =
                    (parts(&node.inputs, &samples.inputs), parts(&node.outputs, &samples.outputs));
                if samples.way == Way::Sum && index > 0 {
                    inputs.extend(&outputs);
                }
                if node.op == Op::CrossEntropy {
                    let losses = self.row_losses(node);
                    outputs[0] = self.part(losses, index);
                }
                let (name, op) = (format!("{}{PART}{index}", node.name), node.op.clone());
                let derived = node.derived.part(&node.name);
                self.new.nodes.push(Node { name, op, inputs, outputs, derived, ..**node });
            }
        }
        for (node, _) in nodes.into_iter().filter(|(node, _)| node.op == Op::CrossEntropy) {
            let (inputs, outputs) = (vec![self.row_losses(node)], vec![node.outputs[0]]);
            let (name, op) = (format!("{}.mean", node.name), Op::Mean);
            let derived = Derived::default();
            self.new.nodes.push(Node { name, op, inputs, outputs, derived, ..*node });
        }
    }

    /// Where the loss of every row goes, of which a cross-entropy in parts is the mean.
    fn row_losses(&mut self, node: &Node) -> ValueId {
        let (loss, labels) = (node.outputs[0], self.new.value(node.inputs[1]).shape);
        *self.losses.entry(loss).or_insert_with(|| {
            let value = self.new.value(loss).clone();
            let name = format!("{}.rows", value.name);
            self.new.values.push(Value {
                name,
                shape: labels,
                role: Role::Activation,
                persistent: false,
                ..value
            });
            ValueId(self.new.values.len() as u32 - 1)
        })
    }

    /// Puts a kernel that takes all parts.
    fn together(&mut self, node: &Node, samples: &Samples) {
        let extent = samples.batches(node).next().map_or(1, |v| self.old.value(v).shape.dim(0));
        let count = self.count(extent);
        let mut parts = |values: &[ValueId], batches: &[bool]| -> Vec<ValueId> {
            let all = |(v, batch): (&ValueId, &bool)| -> Vec<ValueId> {
                if *batch { (0..count).map(|index| self.part(*v, index)).collect() } else { vec![*v] }
            };
            values.iter().zip(batches).flat_map(all).collect()
        };
        let (inputs, outputs) =
            (parts(&node.inputs, &samples.inputs), parts(&node.outputs, &samples.outputs));
        self.new.nodes.push(Node { inputs, outputs, ..node.clone() });
    }
}

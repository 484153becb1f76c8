//! Weights of linear layers in parts of some rows each, with their gradients and the optimizer's state.
//!
//! A row of the weights makes one column of the result. So a layer's kernel becomes several, each of which makes some
//! columns; the gradient by the operand is added up part by part; and each part of the weights' gradient is used to update
//! its part before the next is made. In a row, backward and update kernels take a part of the weights through all of them:
//! it is fetched once, and its gradient need never leave the fast memory. Most often they are one kernel then (`fused.rs`),
//! and there is no gradient. Kernels sum over rows of weights in blocks, and
//! parts are whole blocks ([`ROWS`](super::ROWS)), so bits are the same.

use std::collections::{HashMap, HashSet};

use tiercel_core::Bytes;

use super::fused::Fused;
use super::{MOST, PART, ROWS};
use crate::graph::{DType, Graph, Node, Op, Value, ValueId};
use crate::trace::{Phase, Role};

/// Layers with fewer samples are left whole: kernels may treat these in ways of their own.
pub const SAMPLES: u64 = 16;

/// Weights with rows that are no longer are left whole for the same reason.
pub const SHORT: u64 = 16;

/// So are kernels of weights with no more rows left single.
pub const OUTPUTS: u64 = 4;

/// The rows that a part of each weight has, by the weight's name.
type Steps = HashMap<String, u64>;

/// The same graph with weights of more than `limit` in parts of about that size; `None` where there are none that could be.
pub(super) fn split(graph: &Graph, limit: Bytes) -> Option<Graph> {
    let step = |weight: &Value| {
        let (rows, bytes) = (weight.shape.dim(0), weight.shape.bytes(weight.dtype));
        let parts = bytes.0.div_ceil(limit.0.max(1)).min(MOST);
        Some(rows.div_ceil(parts.max(1)).next_multiple_of(ROWS).min(rows))
    };
    cut(graph, step)
}

/// The same graph with the weights in parts that have them in another graph of the same network, cut at the same rows.
pub(crate) fn like(graph: &Graph, other: &Graph) -> Option<Graph> {
    let firsts = other.values.iter().filter(|value| value.role == Role::Weight);
    let steps: Steps = firsts
        .filter_map(|value| match value.part_of {
            Some((whole, 0)) => Some((other.value(whole).name.clone(), value.shape.dim(0))),
            _ => None,
        })
        .collect();
    cut(graph, |weight| steps.get(&weight.name).copied())
}

/// The same graph with weights cut after as many rows as `step` says, if that is before the end of any.
fn cut(graph: &Graph, step: impl Fn(&Value) -> Option<u64>) -> Option<Graph> {
    let groups = Groups::new(graph, step);
    if !groups.steps.iter().any(|(weight, step)| *step < graph.value(*weight).shape.dim(0)) {
        return None;
    }
    let new = Graph { nodes: Vec::with_capacity(graph.nodes.len()), ..graph.clone() };
    let mut cut = Cut { old: graph, new, groups, parts: HashMap::new() };
    let mut row = Row::default();
    for node in &graph.nodes {
        match cut.groups.of(node) {
            Some(weight) => {
                if !row.can_take(graph, node, weight) {
                    cut.part_by_part(&mut row);
                }
                row.weight = Some(weight);
                row.nodes.push(node);
            }
            // What else is updated meanwhile can wait.
            None if row.weight.is_some() && node.phase == Phase::Update => row.after.push(node),
            None => {
                cut.part_by_part(&mut row);
                cut.new.nodes.push(node.clone());
            }
        }
    }
    cut.part_by_part(&mut row);
    Some(cut.new)
}

/// Weights that are cut, each with what is cut in the same way.
struct Groups {
    /// The rows of a part, for every weight that is cut.
    steps: HashMap<ValueId, u64>,
    /// The weight that a value is cut like.
    members: HashMap<ValueId, ValueId>,
}

impl Groups {
    /// The weights for which `step` says something and that all kernels could take in parts.
    fn new(graph: &Graph, step: impl Fn(&Value) -> Option<u64>) -> Groups {
        let viewed: HashSet<ValueId> = graph.values.iter().filter_map(|value| value.view_of).collect();
        let matrix = |v: ValueId| {
            let value = graph.value(v);
            let whole = value.view_of.is_none() && value.part_of.is_none() && !viewed.contains(&v);
            whole && value.dtype == DType::F32 && value.shape.rank() == 2 && value.shape.last() > SHORT
        };
        let weight = |v: &ValueId| graph.value(*v).role == Role::Weight && matrix(*v);
        let weights = (0..graph.values.len() as u32).map(ValueId).filter(weight);
        let steps = weights.filter_map(|v| Some((v, step(graph.value(v))?)));
        let mut groups = Groups { steps: steps.collect(), members: HashMap::new() };
        groups.members = groups.steps.keys().map(|v| (*v, *v)).collect();
        // A gradient and the optimizer's state are cut like the weight that they change.
        for node in graph.nodes.iter().filter(|node| matches!(node.op, Op::Update(_))) {
            if groups.steps.contains_key(&node.inputs[0]) {
                groups.members.extend(node.inputs.iter().map(|v| (*v, node.inputs[0])));
            }
        }
        let refused: HashSet<ValueId> = graph
            .nodes
            .iter()
            .filter(|node| !groups.suits(graph, node, matrix))
            .flat_map(|node| node.inputs.iter().chain(&node.outputs))
            .filter_map(|v| groups.members.get(v).copied())
            .collect();
        groups.steps.retain(|weight, _| !refused.contains(weight));
        groups.members.retain(|_, weight| !refused.contains(weight));
        groups
    }

    /// Whether a node could take what it touches in parts.
    fn suits(&self, graph: &Graph, node: &Node, matrix: impl Fn(ValueId) -> bool) -> bool {
        let touched: Vec<ValueId> = node.inputs.iter().chain(&node.outputs).copied().collect();
        let is_member = |v: &ValueId| self.members.contains_key(v);
        // The side of the node that has a column for every row of the weights.
        let side = |v: ValueId| {
            let value = graph.value(v);
            let plain = value.pitch.is_none() && value.dtype == DType::F32;
            plain && value.shape.elements() / value.shape.last().max(1) >= SAMPLES
        };
        let (member, wide) = match node.op {
            _ if !touched.iter().any(is_member) => return true,
            Op::Update(_) => return touched.iter().all(|v| is_member(v) && matrix(*v)),
            Op::Linear => (node.inputs[1], node.outputs[0]),
            Op::LinearBackwardData if node.inputs.len() == 2 => (node.inputs[0], node.inputs[1]),
            Op::LinearBackwardWeight => (node.outputs[0], node.inputs[1]),
            _ => return false,
        };
        side(wide) && touched.iter().filter(|v| is_member(v)).all(|v| *v == member)
    }

    /// The weight whose parts a node works on, if it does on any.
    fn of(&self, node: &Node) -> Option<ValueId> {
        node.inputs.iter().chain(&node.outputs).find_map(|v| self.members.get(v).copied())
    }
}

/// Kernels in a row that take each part of a weight through all of them.
#[derive(Default)]
struct Row<'g> {
    weight: Option<ValueId>,
    nodes: Vec<&'g Node>,
    /// Updates of other weights that come when the row is done.
    after: Vec<&'g Node>,
}

impl Row<'_> {
    /// Whether a kernel works on the same weight and needs nothing else that the others make.
    fn can_take(&self, graph: &Graph, node: &Node, weight: ValueId) -> bool {
        let needed: HashSet<ValueId> = node.inputs.iter().map(|v| graph.root(*v)).collect();
        let made = |other: &&Node| other.outputs.iter().any(|v| needed.contains(&graph.root(*v)));
        let parted = |other: &&Node| matches!(other.op, Op::LinearBackwardWeight | Op::Update(_));
        let whole = self.nodes.iter().filter(|other| !parted(other));
        self.weight == Some(weight) && !whole.chain(&self.after).any(made)
    }
}

/// A graph that is being rewritten.
struct Cut<'g> {
    old: &'g Graph,
    new: Graph,
    groups: Groups,
    /// The parts of values, and the stretches of others that belong to them.
    parts: HashMap<(ValueId, u64), ValueId>,
}

impl<'g> Cut<'g> {
    /// Puts the kernels of a row, part by part.
    fn part_by_part(&mut self, row: &mut Row<'g>) {
        let Row { weight, nodes, mut after } = std::mem::take(row);
        if let Some(weight) = weight {
            let (rows, step) = (self.old.value(weight).shape.dim(0), self.groups.steps[&weight]);
            let fused = Fused::of(self.old, &nodes, &after);
            let bias = fused.as_ref().and_then(|fused| fused.bias).map(|at| after.remove(at));
            for (index, first) in (0..rows).step_by(step as usize).enumerate() {
                let part = Part { index: index as u64, first, rows: step.min(rows - first) };
                let mut on = |node: &Node| if step < rows { self.on_part(node, part) } else { node.clone() };
                let (all, bias): (Vec<Node>, _) = (nodes.iter().map(|n| on(n)).collect(), bias.map(&mut on));
                match &fused {
                    Some(fused) => {
                        let mut node = fused.node(&all.iter().collect::<Vec<_>>(), bias.as_ref());
                        if step < rows {
                            node.derived = node.derived.part(&node.name);
                            node.name = format!("{}{PART}{}", node.name, part.index);
                        }
                        self.new.nodes.push(node);
                    }
                    None => self.new.nodes.extend(all),
                }
            }
        }
        self.new.nodes.extend(after.into_iter().cloned());
    }

    /// A kernel that does a part of what this one does.
    fn on_part(&mut self, node: &Node, part: Part) -> Node {
        // An operand of the layer and its gradient have nothing to do with rows of the weights.
        let (inputs, outputs) = match node.op {
            Op::Linear | Op::LinearBackwardWeight => (1, 0),
            Op::LinearBackwardData => (0, 1),
            _ => (0, 0),
        };
        let mut take = |values: &[ValueId], whole: usize| -> Vec<ValueId> {
            let each = values.iter().enumerate();
            each.map(|(at, v)| if at < whole { *v } else { self.part(*v, part) }).collect()
        };
        let (mut inputs, outputs) = (take(&node.inputs, inputs), take(&node.outputs, outputs));
        if node.op == Op::LinearBackwardData && part.first > 0 {
            inputs.push(outputs[0]);
        }
        let (name, derived) = (format!("{}{PART}{}", node.name, part.index), node.derived.part(&node.name));
        Node { name, inputs, outputs, derived, ..node.clone() }
    }

    /// A part of a value: rows of what is cut, and of others the last axis that belongs to them.
    fn part(&mut self, v: ValueId, part: Part) -> ValueId {
        if let Some(known) = self.parts.get(&(v, part.index)) {
            return *known;
        }
        let value = self.old.value(v);
        let name = format!("{}{PART}{}", value.name, part.index);
        let last = value.shape.rank() - 1;
        let new = if self.groups.members.contains_key(&v) {
            let start = part.first * value.shape.last();
            Value { name, shape: value.shape.with(0, part.rows), part_of: Some((v, start)), ..value.clone() }
        } else {
            Value {
                name,
                shape: value.shape.with(last, part.rows),
                view_of: Some(self.old.root(v)),
                start: value.start + part.first,
                pitch: (last > 0).then(|| value.shape.last()),
                ..value.clone()
            }
        };
        let id = ValueId(self.new.values.len() as u32);
        self.new.values.push(new);
        self.parts.insert((v, part.index), id);
        id
    }
}

/// Some rows of a weight.
#[derive(Clone, Copy)]
struct Part {
    index: u64,
    first: u64,
    rows: u64,
}

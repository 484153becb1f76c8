//! Dropping activations and computing them again: a third choice beside keeping and moving them.
//!
//! A graph is rewritten, nothing else: a value that is dropped is used by the forward kernels alone, and just before the
//! first backward kernel that wants it, the forward kernels that made it run again from values that were kept. What
//! comes out is an ordinary graph, so schedules, plans, checks and kernels need to know nothing of it; the same kernels
//! on the same bytes give the same bits.
//!
//! A kernel that changes state (the running statistics of a batch norm) changes a scratch copy when it runs again.

use std::collections::{HashMap, HashSet};

use crate::graph::{Graph, Init, Node, Op, Value, ValueId};
use crate::trace::{Derived, Phase, Role};

/// Dropped values that depend on dropped values are computed again together, up to so many kernels in a row; the operand
/// at which the row would become longer is kept after all.
const CHAIN: usize = 64;

/// What the name of a kernel ends with that runs again, and that of what it makes.
pub(crate) const AGAIN: &str = ".again";

/// What could be computed again: a value that the backward pass wants and a forward kernel makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The value, which owns its memory.
    pub value: ValueId,
    /// The kernel that makes it, as a position in [`Graph::nodes`].
    pub node: usize,
    /// Whether a forward kernel of another layer uses it.
    pub leaves_layer: bool,
}

/// What could be computed again in a graph.
pub fn candidates(graph: &Graph) -> Vec<Candidate> {
    let uses = Uses::new(graph);
    let wanted = (0..graph.values.len()).filter(|v| uses.backward[*v]);
    let candidate = |v: usize| {
        Some(Candidate { value: ValueId(v as u32), node: uses.maker[v]?, leaves_layer: uses.leaves[v] })
    };
    wanted.filter_map(candidate).collect()
}

/// The same graph with some values dropped after the forward pass and computed again for the backward pass.
pub fn recompute(graph: &Graph, dropped: &HashSet<ValueId>) -> Graph {
    let uses = Uses::new(graph);
    let mut again = Again {
        kept: (0..graph.values.len())
            .map(|v| uses.maker[v].is_none() || (uses.backward[v] && !dropped.contains(&ValueId(v as u32))))
            .collect(),
        graph: Graph { nodes: Vec::with_capacity(graph.nodes.len()), ..graph.clone() },
        old: graph,
        uses,
        known: HashMap::new(),
    };
    // Weights change as late as they may, so that what runs again finds them as they were: before the next kernel that
    // sees them changed, as where two networks are trained in turn.
    let mut waiting: Vec<&Node> = Vec::new();
    let mut held: HashSet<ValueId> = HashSet::new();
    let touched = |node: &Node| -> Vec<ValueId> {
        node.inputs.iter().chain(&node.outputs).map(|v| graph.root(*v)).collect()
    };
    for node in &graph.nodes {
        let touches = touched(node);
        if node.phase == Phase::Update {
            waiting.push(node);
            held.extend(touches);
            continue;
        }
        if touches.iter().any(|v| held.contains(v)) {
            let due = |update: &&Node| touched(update).iter().any(|v| touches.contains(v));
            let (due, later): (Vec<&Node>, Vec<&Node>) = waiting.into_iter().partition(due);
            again.graph.nodes.extend(due.into_iter().cloned());
            held = later.iter().flat_map(|update| touched(update)).collect();
            waiting = later;
        }
        let mut node = node.clone();
        if node.phase != Phase::Forward {
            for input in &mut node.inputs {
                if dropped.contains(&graph.root(*input)) {
                    *input = again.value(*input, node.layer, 0);
                }
            }
        }
        again.graph.nodes.push(node);
    }
    again.graph.nodes.extend(waiting.into_iter().cloned());
    again.graph
}

/// Who makes each value, whether the backward pass wants it, and whether a forward kernel of another layer does.
struct Uses {
    maker: Vec<Option<usize>>,
    backward: Vec<bool>,
    leaves: Vec<bool>,
}

impl Uses {
    fn new(graph: &Graph) -> Uses {
        let none = vec![false; graph.values.len()];
        let mut uses = Uses { maker: vec![None; graph.values.len()], backward: none.clone(), leaves: none };
        for (at, node) in graph.nodes.iter().enumerate() {
            if node.phase != Phase::Forward {
                node.inputs.iter().for_each(|v| uses.backward[graph.root(*v).index()] = true);
                continue;
            }
            for value in &node.inputs {
                let root = graph.root(*value).index();
                uses.leaves[root] |=
                    uses.maker[root].is_some_and(|maker| graph.nodes[maker].layer != node.layer);
            }
            for value in &node.outputs {
                let (root, changed) = (graph.root(*value), node.inputs.contains(value));
                let Value { persistent, role, .. } = graph.value(root);
                // A loss is told once.
                let loss = matches!(node.op, Op::CrossEntropy | Op::BinaryCrossEntropy | Op::MeanSquare);
                if !changed && !persistent && !loss && *role != Role::Input {
                    uses.maker[root.index()] = Some(at);
                }
            }
        }
        uses
    }
}

/// A graph on which kernels are put to run again.
struct Again<'a> {
    old: &'a Graph,
    graph: Graph,
    uses: Uses,
    kept: Vec<bool>,
    /// What has been computed again, under its old name.
    known: HashMap<ValueId, ValueId>,
}

impl Again<'_> {
    /// The value that holds the same as an old one, made by kernels that run again where need be.
    fn value(&mut self, old: ValueId, layer: u32, chain: usize) -> ValueId {
        let root = self.old.root(old);
        if self.kept[root.index()] || chain > CHAIN {
            return old;
        }
        if !self.known.contains_key(&root) {
            let maker = self.uses.maker[root.index()].expect("what nobody makes is kept");
            self.run(maker, layer, chain);
        }
        let new = self.known[&root];
        if old == root {
            return new;
        }
        if let Some(view) = self.known.get(&old) {
            return *view;
        }
        let view = self.fresh(old);
        self.graph.values[view.index()].view_of = Some(new);
        self.known.insert(old, view);
        view
    }

    /// Puts a kernel that has run to run again.
    fn run(&mut self, at: usize, layer: u32, chain: usize) {
        let old = &self.old.nodes[at];
        let mut inputs = Vec::with_capacity(old.inputs.len());
        for input in &old.inputs {
            inputs.push(match old.outputs.contains(input) {
                true => self.scratch(*input, old, layer),
                false => self.value(*input, layer, chain + 1),
            });
        }
        let mut outputs = Vec::with_capacity(old.outputs.len());
        for output in &old.outputs {
            outputs.push(match old.inputs.iter().position(|input| input == output) {
                Some(changed) => inputs[changed],
                None => {
                    let new = self.fresh(*output);
                    self.known.insert(*output, new);
                    new
                }
            });
        }
        let name = format!("{}{AGAIN}", old.name);
        let phase = Phase::Backward;
        let (op, derived) = (old.op.clone(), old.derived.again(&old.name));
        self.graph.nodes.push(Node { name, inputs, outputs, layer, phase, op, derived });
    }

    /// State that a kernel may change when it runs again: filled anew, and of no use to anybody.
    fn scratch(&mut self, state: ValueId, node: &Node, layer: u32) -> ValueId {
        let scratch = self.fresh(state);
        let value = &mut self.graph.values[scratch.index()];
        (value.persistent, value.role) = (false, Role::Activation);
        let name = format!("{}.{}.fill", node.name, value.name);
        let (op, phase) = (Op::Fill { value: 1.0 }, Phase::Backward);
        let (inputs, outputs, derived) = (Vec::new(), vec![scratch], Derived::default());
        self.graph.nodes.push(Node { name, op, inputs, outputs, layer, phase, derived });
        scratch
    }

    /// A value like an old one that a kernel will write.
    fn fresh(&mut self, old: ValueId) -> ValueId {
        let old = self.old.value(old);
        let name = format!("{}{AGAIN}", old.name);
        self.graph.values.push(Value { name, init: Init::Computed, view_of: None, ..old.clone() });
        ValueId(self.graph.values.len() as u32 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lifetimes, nets};

    #[test]
    fn what_is_computed_again_is_all_there_and_needs_less_memory() {
        for (name, less) in
            [("resnet32", 0.9), ("vgg16", 1.001), ("gpt2", 0.8), ("densenet264", 0.8), ("lstm", 1.001)]
        {
            let options = nets::NetOptions { batch: Some(8), ..nets::NetOptions::default() };
            let program = nets::find(name).expect("built in").build(&options).expect("sound");
            let inside = |c: &Candidate| !c.leaves_layer;
            let dropped: HashSet<ValueId> =
                candidates(&program.graph).into_iter().filter(inside).map(|c| c.value).collect();
            let again = program.recomputing(&dropped);
            again.trace.check().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(dropped.is_empty() || again.trace.kernels.len() > program.trace.kernels.len(), "{name}");
            assert_eq!(again.graph.parameters(), program.graph.parameters());
            let peak = |trace| Lifetimes::new(trace).peak().1.0 as f64;
            let ratio = peak(&again.trace) / peak(&program.trace);
            assert!(ratio <= less, "{name}: {ratio} of the memory");
        }
    }

    #[test]
    fn dropping_nothing_changes_nothing() {
        let program =
            nets::find("resnet32").expect("built in").build(&nets::NetOptions::default()).expect("sound");
        assert_eq!(program.recomputing(&HashSet::new()).trace, program.trace);
    }
}

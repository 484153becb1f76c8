//! What every program must keep, wherever it comes from.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use tiercel_core::Step;
use tiercel_workload::graph::ValueId;
use tiercel_workload::trace::Role;
use tiercel_workload::{Program, TensorId};

/// The elements of a value's memory that it is; of rows that are wider than the value, its columns in the first of them.
fn stretch(program: &Program, value: ValueId) -> Range<u64> {
    let value = program.graph.value(value);
    value.start..value.start + value.pitch.map_or(value.shape.elements(), |_| value.shape.last())
}

/// Whether stretches cover a range, one behind the other.
fn cover(stretches: &BTreeMap<u64, u64>, range: Range<u64>) -> bool {
    let mut at = range.start;
    for (start, end) in stretches {
        at = if *start <= at { at.max(*end) } else { at };
    }
    at >= range.end
}

/// Plays the program with the names of values instead of numbers: whenever a kernel reads a value, the tensor that
/// should hold it does hold it, and no other that was written over it.
pub fn nothing_reads_what_was_overwritten(program: &Program) {
    let graph = &program.graph;
    let mut holds: HashMap<TensorId, ValueId> = HashMap::new();
    let mut written: HashMap<ValueId, BTreeMap<u64, u64>> = HashMap::new();
    for (step, node) in graph.nodes.iter().enumerate() {
        let kernel = program.trace.kernel(Step(step as u32));
        for value in &node.inputs {
            let root = graph.root(*value);
            let tensor = program.tensor(*value).expect("touched");
            assert!(kernel.reads.iter().any(|u| u.tensor == tensor), "{}", node.name);
            let given = graph.value(root).persistent || graph.value(root).role == Role::Input;
            let held = holds.entry(tensor).or_insert(root);
            assert!(*held == root, "{} reads {} too late", node.name, graph.value(*value).name);
            let there = written.get(&root).is_some_and(|all| cover(all, stretch(program, *value)));
            assert!(given || there, "{} reads {} too early", node.name, graph.value(*value).name);
        }
        for value in &node.outputs {
            let tensor = program.tensor(*value).expect("touched");
            assert!(kernel.writes.iter().any(|u| u.tensor == tensor), "{}", node.name);
            let (root, range) = (graph.root(*value), stretch(program, *value));
            let before = holds.insert(tensor, root);
            // What is written in stretches keeps those that were written before.
            assert!(range.start == 0 || before == Some(root), "{} writes over {:?}", node.name, before);
            let all = written.entry(root).or_default();
            // When all columns of the first row are there, so are those of all others.
            let mut end = range.end;
            if let Some(pitch) = graph.value(*value).pitch {
                all.insert(range.start, end);
                end = if cover(all, 0..pitch) { graph.value(root).shape.elements() } else { end };
            }
            let known = all.entry(range.start).or_insert(end);
            *known = end.max(*known);
        }
    }
}

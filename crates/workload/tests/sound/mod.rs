//! What every program must keep, wherever it comes from.

use std::collections::{HashMap, HashSet};

use tiercel_core::Step;
use tiercel_workload::graph::ValueId;
use tiercel_workload::trace::Role;
use tiercel_workload::{Program, TensorId};

/// Plays the program with the names of values instead of numbers: whenever a kernel reads a value, the tensor that
/// should hold it does hold it, and no other that was written over it.
pub fn nothing_reads_what_was_overwritten(program: &Program) {
    let graph = &program.graph;
    let mut holds: HashMap<TensorId, ValueId> = HashMap::new();
    let mut written: HashSet<ValueId> = HashSet::new();
    for (step, node) in graph.nodes.iter().enumerate() {
        let kernel = program.trace.kernel(Step(step as u32));
        for value in &node.inputs {
            let root = graph.root(*value);
            let tensor = program.tensor(*value).expect("touched");
            assert!(kernel.reads.iter().any(|u| u.tensor == tensor), "{}", node.name);
            let given = graph.value(root).persistent || graph.value(root).role == Role::Input;
            let held = holds.entry(tensor).or_insert(root);
            assert!(*held == root, "{} reads {} too late", node.name, graph.value(*value).name);
            assert!(given || written.contains(&root), "{} reads {} too early", node.name, root.0);
        }
        for value in &node.outputs {
            let tensor = program.tensor(*value).expect("touched");
            assert!(kernel.writes.iter().any(|u| u.tensor == tensor), "{}", node.name);
            holds.insert(tensor, graph.root(*value));
            written.insert(*value);
        }
    }
}

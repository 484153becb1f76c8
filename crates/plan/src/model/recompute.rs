//! Which activations might be worth dropping and computing again: sets to plan with, from cautious to bold.
//!
//! What is cheap to make again for its size goes first: an element-wise result or a norm costs one pass over memory, a
//! convolution's or a product's much more. Each set is a graph of its own (`tiercel_workload::recompute`), for which
//! keeping and moving are planned as ever; whoever plans tries some sets and takes the best plan. The empty set is one of
//! them, so moving alone is never better.

use std::collections::{HashMap, HashSet};

use tiercel_core::{Machine, TierId};
use tiercel_sim::KernelTime;
use tiercel_workload::graph::ValueId;
use tiercel_workload::recompute::{Candidate, candidates};
use tiercel_workload::trace::Phase;
use tiercel_workload::{Kernel, Program};

/// What each kernel takes with all its operands in the fastest tier.
pub fn fastest(kernels: &[Kernel], machine: &Machine, times: &dyn KernelTime) -> Vec<f64> {
    let time = |kernel: &Kernel| {
        let tiers = vec![TierId(0); kernel.reads.len() + kernel.writes.len()];
        times.chosen(machine, kernel, &tiers).0 as f64
    };
    kernels.iter().map(time).collect()
}

/// What could be dropped, the most worthwhile first: once without values that pass from layer to layer and once with them.
#[derive(Debug)]
pub struct Sets {
    orders: [Vec<(ValueId, f64)>; 2],
}

/// How much is dropped of what could be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Boldness {
    /// Whether values that pass from layer to layer are among them.
    pub passing: bool,
    /// The share of the bytes.
    pub share: f64,
}

impl Sets {
    /// What could be dropped in a program.
    pub fn new(program: &Program, machine: &Machine, times: &dyn KernelTime) -> Sets {
        let graph = &program.graph;
        let own = fastest(&program.trace.kernels, machine, times);
        let mut all = candidates(graph);
        let mut backward: HashSet<ValueId> = HashSet::new();
        for node in graph.nodes.iter().filter(|node| node.phase != Phase::Forward) {
            backward.extend(node.inputs.iter().map(|v| graph.root(*v)));
        }
        let forward = || graph.nodes.iter().enumerate().filter(|(_, node)| node.phase == Phase::Forward);
        let mut makers: HashMap<ValueId, usize> = HashMap::new();
        for (at, node) in forward() {
            for output in node.outputs.iter().filter(|output| !node.inputs.contains(output)) {
                makers.insert(graph.root(*output), at);
            }
        }
        // What is not kept for the backward pass anyway has to be made again too; makers come before users.
        let mut again = own.clone();
        for (at, node) in forward() {
            let lost = node.inputs.iter().map(|v| graph.root(*v)).filter(|v| !backward.contains(v));
            again[at] += lost.filter_map(|v| makers.get(&v)).map(|maker| again[*maker]).sum::<f64>();
        }
        let bytes = |c: &Candidate| {
            let value = graph.value(c.value);
            value.shape.bytes(value.dtype).0 as f64
        };
        let price = |c: &Candidate| again[c.node] / bytes(c).max(1.0);
        all.sort_by(|a, b| price(a).total_cmp(&price(b)).then(a.value.cmp(&b.value)));
        let order = |passing: bool| {
            let some = all.iter().filter(|c| passing || !c.leaves_layer);
            some.map(|c| (c.value, bytes(c))).collect()
        };
        Sets { orders: [false, true].map(order) }
    }

    /// The values to drop.
    pub fn set(&self, Boldness { passing, share }: Boldness) -> HashSet<ValueId> {
        let order = &self.orders[usize::from(passing)];
        let most = share * order.iter().map(|(_, bytes)| bytes).sum::<f64>() + 1.0;
        let mut taken = 0.0;
        let within = order.iter().take_while(|(_, bytes)| {
            taken += bytes;
            taken <= most
        });
        within.map(|(value, _)| *value).collect()
    }
}

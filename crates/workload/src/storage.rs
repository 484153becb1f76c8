//! Which values share memory: the one place that decides what works in place.
//!
//! A view lives where its root lives. A result may live where an operand lives if the kernel allows the pair
//! ([`Op::may_overwrite`](crate::graph::Op::may_overwrite)), the operand's bytes are of the same number, nothing
//! reads the operand later, and the operand neither comes from outside nor outlives the iteration. That one rule
//! yields what frameworks do by hand: a ReLU in place behind a convolution or a batch norm, whose backward kernels
//! do not read the ReLU's operand; the residual add into the branch's last result; gradients that are added up in
//! place; a ReLU's gradient over the gradient that it came from. It refuses, for instance, a GELU in place, whose
//! gradient needs the operand.

use crate::graph::{Graph, ValueId};
use crate::trace::Role;

/// The value whose memory each value uses; itself where it has memory of its own.
pub(crate) fn share(graph: &Graph, in_place: bool) -> Vec<ValueId> {
    let mut owners: Vec<ValueId> = (0..graph.values.len() as u32).map(|v| graph.root(ValueId(v))).collect();
    if !in_place {
        return owners;
    }
    let mut last_use = vec![0usize; graph.values.len()];
    for (at, node) in graph.nodes.iter().enumerate() {
        for value in node.inputs.iter().chain(&node.outputs) {
            last_use[graph.root(*value).index()] = at;
        }
    }
    for (at, node) in graph.nodes.iter().enumerate() {
        let parts = node.parts();
        // What comes in parts may overwrite what comes in the same parts; of other choices, the first.
        let pairs = node.op.may_overwrite().iter();
        let pairs = pairs.flat_map(|(operand, result)| {
            let first = if *operand == 0 { 0 } else { operand + parts - 1 };
            (0..parts).map(move |part| (first + part, result + part))
        });
        for (operand, result) in pairs {
            let (Some(operand), Some(result)) = (node.inputs.get(operand), node.outputs.get(result)) else {
                continue;
            };
            let root = graph.root(*operand);
            let (from, to) = (graph.value(root), graph.value(*result));
            let free = last_use[root.index()] == at && !from.persistent && from.role != Role::Input;
            // A result that is a stretch of something larger stays there.
            let own = !to.persistent && to.view_of.is_none();
            if free && own && from.shape.bytes(from.dtype) == to.shape.bytes(to.dtype) {
                owners[result.index()] = owners[root.index()];
                if parts == 1 {
                    break;
                }
            }
        }
    }
    // A view of a result that was moved in with another moves too.
    for value in 0..owners.len() {
        if let Some(root) = graph.values[value].view_of {
            owners[value] = owners[root.index()];
        }
    }
    owners
}

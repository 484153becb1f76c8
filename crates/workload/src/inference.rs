//! The forward pass alone, as a program of its own: to see how well a network does on data that it does not learn from.
//!
//! Nothing is dropped by chance, and batch norms use the running statistics: a batch norm of an inference has one
//! result, the normalised values. Values keep their ids and names, so weights are those of the training program.

use crate::graph::{Graph, Op};
use crate::trace::Phase;

/// The graph of the forward pass of a graph that trains.
pub fn inference(graph: &Graph) -> Graph {
    let mut graph = graph.clone();
    graph.nodes.retain(|node| node.phase == Phase::Forward);
    for node in &mut graph.nodes {
        match &mut node.op {
            Op::Dropout { rate, .. } => *rate = 0.0,
            Op::Attention(attention) => attention.dropout = 0.0,
            Op::BatchNorm { .. } => node.outputs.truncate(1),
            _ => {}
        }
    }
    graph
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nets::{self, NetOptions};
    use crate::{Lifetimes, Program, schedule};

    #[test]
    fn an_inference_keeps_the_weights_and_needs_less_memory() {
        for name in ["cnn", "resnet32", "gpt2", "lstm"] {
            let options = NetOptions { batch: Some(4), depth: Some(2), ..NetOptions::default() };
            let training = nets::find(name).expect("a network").build(&options).expect("fits");
            let graph = inference(&training.graph);
            let program = Program::new(graph, schedule::ScheduleOptions::default());
            program.trace.check().expect("a sound trace");
            assert!(program.trace.kernels.iter().all(|k| k.phase == Phase::Forward));
            assert!(Lifetimes::new(&program.trace).peak().1 < Lifetimes::new(&training.trace).peak().1);
            for tensor in program.trace.tensors.iter().filter(|t| t.persistent) {
                assert!(training.trace.tensors.contains(tensor), "{name}: {}", tensor.name);
            }
        }
    }
}

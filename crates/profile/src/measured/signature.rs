//! What makes two kernels the same to a clock: the operation with its attributes, the shapes and number formats of its
//! operands, which of them share memory, and which of them a run would still find in the caches.
//!
//! Networks repeat themselves: ResNet-200 has thousands of kernels and some hundred signatures (AutoTM section 4.1
//! profiles each kind once, too). The text of a signature is what the file of measured times is keyed by, so it must say
//! all that matters, and nothing that does not, such as the seed of a dropout.

use std::collections::HashMap;
use std::fmt::Write;

use tiercel_core::{Access, Bytes, Machine, TierId};
use tiercel_run::executor::operands;
use tiercel_workload::graph::{Attention, Node, Op, ValueId};
use tiercel_workload::{Program, TensorId};

use super::placements::{Sampling, chosen};

/// One kernel of a program, as the clock sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// Equal for kernels that take as long as each other.
    pub text: String,
    /// The tensors that it uses, each once.
    pub operands: Vec<(TensorId, Access, Bytes)>,
    /// For each of the kernel's reads, then for each of its writes, which operand it is.
    pub slots: Vec<usize>,
    /// Which operands a run would find in the caches, because they were in use shortly before.
    pub warm: Vec<bool>,
}

impl Signature {
    /// The placements in which it is measured on a machine.
    pub fn placements(&self, machine: &Machine, sampling: Sampling) -> Vec<Vec<TierId>> {
        let operands: Vec<Access> = self.operands.iter().map(|(_, access, _)| *access).collect();
        chosen(&operands, machine, sampling)
    }
}

/// The signature of every kernel of a program, on a processor with so much cache.
pub fn signatures(program: &Program, cache: Bytes) -> Vec<Signature> {
    let trace = &program.trace;
    // Bytes touched so far, and what they were when each tensor was last in use.
    let mut touched = Bytes::ZERO;
    let mut last: HashMap<TensorId, Bytes> = HashMap::new();
    let mut all = Vec::with_capacity(trace.kernels.len());
    for (at, kernel) in trace.kernels.iter().enumerate() {
        let (operands, slots) = operands(kernel);
        let size = |id: TensorId| trace.tensor(id).bytes;
        let warm = operands.iter().map(|(id, ..)| {
            let since = last.get(id).map(|then| touched - *then);
            since.is_some_and(|since| since + size(*id) <= cache)
        });
        let warm: Vec<bool> = warm.collect();
        for (id, ..) in &operands {
            touched += size(*id);
            last.insert(*id, touched);
        }
        let text = text(program, &program.graph.nodes[at], (&operands, &slots, &warm));
        all.push(Signature { text, operands, slots, warm });
    }
    all
}

type Uses<'a> = (&'a [(TensorId, Access, Bytes)], &'a [usize], &'a [bool]);

fn text(program: &Program, node: &Node, (operands, slots, warm): Uses<'_>) -> String {
    let mut text = format!("{:?}", plain(&node.op));
    let mut list = |values: &[ValueId]| {
        for value in values {
            let v = program.graph.value(*value);
            let slot = operands.iter().position(|(id, ..)| Some(*id) == program.tensor(*value));
            let _ = write!(text, " {}{:?}", v.dtype.name(), v.shape.dims());
            // Writing to a string never fails.
            let _ = slot.map_or(Ok(()), |slot| write!(text, "@{slot}"));
        }
    };
    list(&node.inputs);
    list(&node.outputs);
    let _ = write!(text, " uses");
    slots.iter().for_each(|slot| {
        let _ = write!(text, " {slot}");
    });
    let _ = write!(text, " of");
    for ((id, access, bytes), warm) in operands.iter().zip(warm) {
        let how = match access {
            Access::Read => "r",
            Access::Write => "w",
            Access::ReadWrite => "rw",
        };
        let size = program.trace.tensor(*id).bytes;
        let _ = write!(text, " {}{how}{}{}", size.0, bytes.0, if *warm { "+" } else { "" });
    }
    text
}

/// The operation without what chance follows from.
fn plain(op: &Op) -> Op {
    match op.clone() {
        Op::Dropout { rate, .. } => Op::Dropout { rate, seed: 0 },
        Op::DropoutBackward { rate, .. } => Op::DropoutBackward { rate, seed: 0 },
        Op::Attention(a) => Op::Attention(Attention { seed: 0, ..a }),
        Op::AttentionBackward(a) => Op::AttentionBackward(Attention { seed: 0, ..a }),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use tiercel_kernels::prepare;
    use tiercel_workload::nets;

    fn program(net: &str) -> Program {
        let options = nets::NetOptions { batch: Some(4), ..nets::NetOptions::default() };
        prepare(nets::find(net).expect("built in").build(&options).expect("sound"), 2)
    }

    #[test]
    fn a_network_repeats_itself() {
        let program = program("resnet200");
        let all = signatures(&program, Bytes::ZERO);
        let distinct: HashSet<&str> = all.iter().map(|s| s.text.as_str()).collect();
        assert_eq!(all.len(), program.trace.kernels.len());
        assert!(distinct.len() * 10 < all.len(), "{} of {}", distinct.len(), all.len());
    }

    #[test]
    fn seeds_make_no_difference_and_shapes_do() {
        let gpt = program("gpt2");
        let all = signatures(&gpt, Bytes::ZERO);
        let of = |op: &str| -> HashSet<&str> {
            let kernels = gpt.trace.kernels.iter().zip(&all);
            kernels.filter(|(kernel, _)| kernel.op == op).map(|(_, s)| s.text.as_str()).collect()
        };
        assert_eq!(of("attention").len(), 1);
        assert!(of("linear").len() > 1);
    }

    #[test]
    fn what_was_just_made_is_in_the_cache() {
        let program = program("mlp");
        let all = signatures(&program, Bytes::gib(1));
        assert!(all[0].warm.iter().all(|warm| !warm), "nothing was in use before the first kernel");
        assert!(all[1].warm.iter().any(|warm| *warm));
        assert!(signatures(&program, Bytes::ZERO).iter().all(|s| s.warm.iter().all(|warm| !warm)));
    }
}

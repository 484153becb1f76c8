//! Kernels that change weights at once, without a gradient in between: the same bits as the single kernels', whatever the
//! parts, the threads and the vectors.

mod harness;

use std::collections::BTreeMap;
use std::sync::Arc;

use harness::{Numbers, run};
use tiercel_core::Bytes;
use tiercel_kernels::{Library, prepare};
use tiercel_workload::graph::{Builder, DType, Init, Op, Optimizer};
use tiercel_workload::{Program, schedule};

/// Three layers, of which the first needs no gradient by its operand, and the last is small.
struct Net {
    samples: u64,
    widths: [u64; 4],
    optimizer: Optimizer,
    bias: bool,
}

impl Net {
    fn program(&self) -> Program {
        let mut b = Builder::new("layers", DType::F32);
        let mut x = b.input("x", [self.samples, self.widths[0]]);
        for (at, pair) in self.widths.windows(2).enumerate() {
            b.layer(&format!("layer{at}"));
            x = match self.bias {
                true => b.linear(x, pair[1]),
                false => {
                    let weight = b.weight("weight", [pair[1], pair[0]], Init::Normal(0.1));
                    b.apply(Op::Linear, &[x, weight])
                }
            };
        }
        let loss = b.cross_entropy(x, "labels");
        b.train(&[loss], self.optimizer);
        Program::new(b.finish().expect("it fits"), schedule::ScheduleOptions::default())
    }
}

/// The bits of what outlives some iterations, with parts put together.
fn bits(numbers: Numbers) -> BTreeMap<String, Vec<u32>> {
    let mut whole: BTreeMap<String, BTreeMap<usize, Vec<u32>>> = BTreeMap::new();
    for (name, numbers) in numbers {
        let (name, part) = match name.rsplit_once(".part") {
            Some((name, part)) => (name.to_string(), part.parse().expect("a part's number")),
            None => (name, 0),
        };
        let bits = numbers.into_iter().map(f32::to_bits).collect();
        whole.entry(name).or_default().insert(part, bits);
    }
    whole.into_iter().map(|(name, parts)| (name, parts.into_values().flatten().collect())).collect()
}

/// How many kernels change weights at once, and how many gradients of weights there are.
fn count(program: &Program) -> (usize, usize) {
    let fused = program.graph.nodes.iter().filter(|n| matches!(n.op, Op::LinearBackwardUpdate { .. }));
    let gradients = program.trace.tensors.iter().filter(|t| t.name.contains(".weight.grad"));
    (fused.count(), gradients.count())
}

#[test]
fn weights_that_change_at_once_have_the_same_bits() {
    let rule = [Optimizer::SGD, Optimizer::MOMENTUM, Optimizer::ADAMW];
    let net = |samples, widths, optimizer, bias| Net { samples, widths, optimizer, bias };
    let nets = [
        net(16, [100, 513, 300, 5], rule[0], true),
        net(33, [784, 1000, 600, 10], rule[1], true),
        net(64, [50, 300, 257, 20], rule[2], false),
        net(65, [333, 700, 290, 10], rule[2], true),
        net(300, [90, 600, 520, 17], rule[1], false),
    ];
    for net in nets {
        let program = net.program();
        let sizes = program.trace.tensors.iter().map(|tensor| tensor.bytes.0);
        let largest = sizes.max().expect("tensors");
        let none = Arc::new(Numbers::new());
        let expected = bits(run(&prepare(program.clone(), 1), &none, 1, 3));
        for (threads, shares) in [(1, 2), (2, 3), (3, 16)] {
            // A program that is rewritten when it has its scratch memory has enough of it.
            let early = prepare(program.updating_early(), threads);
            let parts = early.in_parts(Bytes(largest / shares)).expect("large weights");
            let (fused, gradients) = count(&parts);
            assert!(fused > 3 && gradients == 0, "{fused} kernels, {gradients} gradients");
            let found = bits(run(&parts, &none, threads, 3));
            assert!(found == expected, "{} samples, {threads} threads, {shares} shares", net.samples);
        }
    }
}

#[test]
fn gradients_that_others_need_stay() {
    // A weight that two layers share has a sum for its gradient.
    let mut b = Builder::new("shared", DType::F32);
    let x = b.input("x", [20, 600]);
    let weight = b.weight("weight", [600, 600], Init::Normal(0.01));
    let x = b.apply(Op::Linear, &[x, weight]);
    let x = b.apply(Op::Linear, &[x, weight]);
    let loss = b.cross_entropy(x, "labels");
    b.train(&[loss], Optimizer::SGD);
    let program = Program::new(b.finish().expect("it fits"), schedule::ScheduleOptions::default());
    let early = program.updating_early();
    let parts = early.in_parts(Bytes::kib(600)).unwrap_or(early);
    assert_eq!(count(&parts).0, 0);
    // Where updates come at the end, most gradients have to wait for that.
    let late =
        Net { samples: 16, widths: [100, 513, 300, 5], optimizer: Optimizer::SGD, bias: true }.program();
    assert!(count(&late.in_parts(Bytes::kib(100)).expect("large weights")).1 > 1);
}

/// Scratch memory stays small: beyond what the single kernels have, as much as is told.
#[test]
fn scratch_memory_stays_small() {
    for threads in [1, 2, 7, 24] {
        for samples in [16, 64, 65, 1000] {
            let widths = [4096, 4096, 40_000, 10];
            let net = Net { samples, widths, optimizer: Optimizer::ADAMW, bias: true };
            let ready = prepare(net.program().updating_early(), threads);
            let parts = ready.in_parts(Bytes::mib(16)).expect("large weights");
            assert!(count(&parts).0 > 3);
            Library::new(&parts, threads).unwrap_or_else(|why| panic!("{threads} threads: {why}"));
        }
    }
}

//! Whatever the policy, the tier and the number of threads, training gives the same bits.

use tiercel_core::{Bytes, Machine, Manager, TierId};
use tiercel_kernels::{Library, prepare};
use tiercel_policies::by_name;
use tiercel_run::{Executor, Host, Stage};
use tiercel_workload::graph::{Builder, ConvLayer, DType, Optimizer};
use tiercel_workload::{Lifetimes, Program, Trace, schedule};

fn perceptron(dtype: DType) -> Program {
    let mut b = Builder::new("mlp", dtype);
    let mut x = b.input("images", [32, 100]);
    for i in 0..3 {
        b.layer(&format!("hidden{i}"));
        x = b.linear(x, 120);
        x = b.relu(x);
        x = b.dropout(x, 0.2);
    }
    let logits = b.linear(x, 10);
    let loss = b.cross_entropy(logits, "labels");
    b.train(&[loss], Optimizer::ADAMW);
    Program::new(b.finish().expect("it fits"), schedule::ScheduleOptions::default())
}

fn convolutions() -> Program {
    let mut b = Builder::new("cnn", DType::F32);
    let mut x = b.input("images", [6, 3, 17, 15]);
    for (i, channels) in [8, 16, 16].into_iter().enumerate() {
        b.layer(&format!("conv{i}"));
        x = b.conv(x, ConvLayer::new(channels, 3).same().stride(if i == 1 { 2 } else { 1 }));
        x = b.batch_norm(x);
        x = b.relu(x);
    }
    let x = b.max_pool(x, 2, 2, 0);
    let x = b.global_pool(x);
    let logits = b.linear(x, 10);
    let loss = b.cross_entropy(logits, "labels");
    b.train(&[loss], Optimizer::MOMENTUM);
    Program::new(b.finish().expect("it fits"), schedule::ScheduleOptions::default())
}

fn machine(trace: &Trace, fast: f64) -> Machine {
    let all: u64 = trace.tensors.iter().map(|t| t.bytes.0.next_multiple_of(64)).sum();
    let mut capacity = Bytes((all as f64 * fast) as u64);
    if fast < 1.0 {
        // Scratch memory makes up much of all; there must be too little for what lives at once.
        let peak = Lifetimes::new(trace).peak().1;
        capacity = capacity.min(Bytes(peak.0 / 10 * 8));
    }
    tiercel_testbed::machine(&[all, all * 2], 2).with_capacity(TierId(0), capacity)
}

/// Trains three iterations and returns the bytes of all that outlives them.
fn train(program: &Program, policy: &str, fast: f64, threads: usize) -> Vec<(String, Vec<u8>)> {
    let machine = machine(&program.trace, fast);
    let library = Library::new(program, threads).expect("a prepared program").seed(7);
    let mut manager =
        Manager::new(machine.clone(), Stage::new(Host::open(&machine).expect("memory"), library));
    let mut policy = by_name(policy).expect("it is listed");
    let mut executor = Executor::new(&program.trace);
    for _ in 0..3 {
        executor.iterate(&mut manager, policy.as_mut()).unwrap_or_else(|e| panic!("{}: {e}", policy.name()));
    }
    manager.drain().expect("no copy fails");
    // Pages stay for seconds, and without convolutions vDNN has nothing to move.
    let moves = !["fast-only", "ial", "memory-mode", "vdnn"].contains(&policy.name());
    assert!(!moves || manager.totals().evicted > Bytes::ZERO, "{} moves nothing", policy.name());
    let kept = program.trace.tensors.iter().enumerate().filter(|(_, t)| t.persistent);
    kept.map(|(at, tensor)| {
        let object = executor.object(tiercel_workload::TensorId(at as u32)).expect("it persists");
        let place = manager.place(object).expect("it is placed");
        let slice = manager.backend().host().slice(place, tensor.bytes).expect("plain memory");
        // SAFETY: no copy flies and no kernel runs.
        (tensor.name.clone(), unsafe { slice.as_ref() }.to_vec())
    })
    .collect()
}

#[test]
fn policies_and_threads_do_not_change_a_bit() {
    for program in [perceptron(DType::F32), perceptron(DType::Bf16), convolutions()] {
        let mut expected = None;
        for threads in [1, 2, 3] {
            let program = prepare(program.clone(), threads);
            let all = ["redl", "ial", "unified-memory", "vdnn", "capuchin", "memory-mode", "sentinel"]
                .map(|policy| (policy, 0.25));
            let others = all.into_iter().filter(|_| threads == 2);
            for (policy, fast) in [("fast-only", 1.0), ("cachedarrays-lm", 0.25)].into_iter().chain(others) {
                let result = train(&program, policy, fast, threads);
                let expected = expected.get_or_insert_with(|| result.clone());
                for ((name, bytes), (_, expected)) in result.iter().zip(expected.iter()) {
                    assert!(
                        bytes == expected,
                        "{}: {name} differs: {policy}, {threads} threads",
                        program.graph.name
                    );
                    assert!(bytes.iter().any(|b| *b != 0), "{name} is zero");
                }
            }
        }
    }
}

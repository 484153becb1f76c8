//! Activations that are dropped and computed again give the same losses and the same weights, bit for bit.

use std::collections::HashSet;

use tiercel_core::{Backing, Bytes};
use tiercel_policies::by_name;
use tiercel_run::kernels::{Library, prepare};
use tiercel_run::train::{Schedule, Settings, Synthetic, Task, Trainer, room};
use tiercel_workload::recompute::candidates;
use tiercel_workload::{Program, nets};

fn train(program: Program) -> (Vec<u32>, u64) {
    let task = Task::new(program, 4, |program| prepare(program, 2));
    let trace = &task.training.trace;
    let machine = room::machine(trace, room::ample(trace, Bytes::kib(4)), Backing::Dram);
    let policy = by_name("fast-only").expect("built in");
    let settings = Settings { seed: 1, schedule: Schedule::Constant, lookahead: 0 };
    let library = |program: &_| Library::new(program, 2);
    let mut trainer =
        Trainer::new(&task, &machine, policy, Box::new(Synthetic), settings, library).expect("room");
    let losses = (0..3).map(|_| trainer.iterate().expect("it trains").loss.to_bits()).collect();
    (losses, trainer.digest().expect("weights"))
}

#[test]
fn bits_do_not_depend_on_what_is_computed_again() {
    let cases = [
        ("resnet32", None, None),
        ("gpt2", Some(2), Some(64)),
        ("mlp", None, None),
        ("lstm", None, Some(32)),
    ];
    for (name, depth, width) in cases {
        let sequence = (name != "resnet32" && name != "mlp").then_some(16);
        let options = nets::Options { batch: Some(4), depth, width, sequence, ..nets::Options::default() };
        let program = nets::find(name).expect("built in").build(&options).expect("sound");
        let all = candidates(&program.graph);
        let inside: HashSet<_> = all.iter().filter(|c| !c.leaves_layer).map(|c| c.value).collect();
        let half: HashSet<_> = all.iter().step_by(2).map(|c| c.value).collect();
        let expected = train(program.clone());
        for dropped in [inside, half].into_iter().filter(|dropped| !dropped.is_empty()) {
            let again = program.recomputing(&dropped);
            assert!(again.trace.kernels.len() > program.trace.kernels.len(), "{name}: nothing runs again");
            assert_eq!(train(again), expected, "{name}");
        }
    }
}

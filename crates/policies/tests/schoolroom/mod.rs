//! Trains a program for a few iterations in ample memory, for tests of what must not change a bit.

use tiercel_core::{Backing, Bytes};
use tiercel_policies::by_name;
use tiercel_run::kernels::{Library, prepare};
use tiercel_run::train::{Schedule, Settings, Synthetic, Task, Trainer, room};
use tiercel_workload::Program;

/// The losses, and a digest of the weights.
pub fn train(program: Program) -> (Vec<u32>, u64) {
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

//! Trains a program for a few iterations in ample memory, for tests of what must not change a bit.

use std::path::Path;

use tiercel_core::{Backing, Bandwidth, Bytes, Detached};
use tiercel_kernels::{Library, prepare};
use tiercel_policies::by_name;
use tiercel_train::{Data, Images, Pictures, Schedule, Settings, Synthetic, Task, Trainer, room};
use tiercel_workload::Program;

/// The losses, and a digest of the weights.
pub fn train(program: Program) -> (Vec<u32>, u64) {
    train_on(program, None)
}

/// The same on a machine that runs kernels beside others.
#[allow(dead_code)] // Not every test has such kernels.
pub fn train_detached(program: Program) -> (Vec<u32>, u64) {
    train_on(program, Some(Detached { bandwidth: Bandwidth::gb(1.0), threads: 0 }))
}

fn train_on(program: Program, detached: Option<Detached>) -> (Vec<u32>, u64) {
    let task = Task::new(program, 4, |program| prepare(program, 2));
    let mut trainer = trainer(&task, Box::new(Synthetic), detached);
    (losses(&mut trainer), trainer.digest().expect("weights"))
}

/// The losses of some iterations, from a checkpoint on where there is one, and how well the network does then; leaves a
/// checkpoint.
#[allow(dead_code)] // Not every test goes on from a checkpoint.
pub fn lessons(task: &Task, from: Option<&Path>, to: &Path) -> (Vec<u32>, f64) {
    let pictures = |count: usize| {
        let pixels = (0..count * 28 * 28).map(|at| (at * at / 7) as u8).collect();
        Pictures::new(28, 28, pixels, (0..count).map(|at| (at % 10) as u8).collect()).expect("pictures")
    };
    let data = Images::new("stripes", pictures(100), pictures(40)).expect("data");
    let mut trainer = trainer(task, Box::new(data), None);
    if let Some(from) = from {
        trainer.resume(from).expect("it goes on");
    }
    let losses = losses(&mut trainer);
    trainer.save(to).expect("a checkpoint");
    (losses, trainer.evaluate().expect("it is judged").expect("by something").loss)
}

fn trainer(task: &Task, data: Box<dyn Data>, detached: Option<Detached>) -> Trainer<'_, Library> {
    let trace = &task.training.trace;
    let mut machine = room::machine(trace, room::ample(trace, Bytes::kib(4)), Backing::Dram);
    machine.detached = detached;
    let policy = by_name("fast-only").expect("built in");
    let settings = Settings { seed: 1, schedule: Schedule::Constant, lookahead: 0 };
    let library = |program: &_| Library::new(program, 2);
    Trainer::new(task, &machine, policy, data, settings, library).expect("room")
}

fn losses(trainer: &mut Trainer<'_, Library>) -> Vec<u32> {
    (0..3).map(|_| trainer.iterate().expect("it trains").loss.to_bits()).collect()
}

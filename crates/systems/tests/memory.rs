//! A program on arrays is recorded, simulated, planned, and run under its plan: the same numbers, and the moves that were
//! foreseen.

use tiercel_core::{Bytes, Machine, TierId};
use tiercel_policies::{CachedArrays, Mode};
use tiercel_profile::{Model, machines};
use tiercel_run::{Array, Memory, MemoryError};
use tiercel_systems::{Setting, Times, named, simulate};

const BLOCKS: usize = 6;
const LEN: usize = 64 << 10;

/// A chain of blocks there and back: what is made on the way there is wanted on the way back.
fn pass(memory: &mut Memory, weights: &mut [Array<f32>]) -> Result<(), MemoryError> {
    let mut made: Vec<Array<f32>> = Vec::new();
    for (at, weight) in weights.iter().enumerate() {
        let mut next = memory.array::<f32>(&format!("made {at}"), LEN)?;
        match made.last() {
            None => memory.run_as("first", (weight, &mut next), |(w, y)| y.copy_from_slice(w))?,
            Some(last) => memory.run_as("forward", (weight, last, &mut next), |(w, x, y)| {
                for ((y, x), w) in y.iter_mut().zip(x).zip(w) {
                    *y = 0.5 * x + w;
                }
            })?,
        }
        made.push(next);
    }
    for weight in weights.iter_mut().rev() {
        let last = made.pop().expect("one for each weight");
        memory.run_as("backward", (&last, weight), |(x, w)| {
            for (w, x) in w.iter_mut().zip(x) {
                *w -= 0.25 * x;
            }
        })?;
    }
    Ok(())
}

/// Some passes; what the weights are then.
fn play(memory: &mut Memory, passes: usize) -> Result<Vec<Vec<f32>>, MemoryError> {
    let mut weights = weights(memory)?;
    for _ in 0..passes {
        pass(memory, &mut weights)?;
        memory.iteration_ended()?;
    }
    weights.iter().map(|weight| memory.read(weight)).collect()
}

fn weights(memory: &mut Memory) -> Result<Vec<Array<f32>>, MemoryError> {
    let weight = |at: usize| {
        let mut weight = memory.array::<f32>(&format!("weight {at}"), LEN)?;
        let numbers: Vec<f32> = (0..LEN).map(|i| ((i * (at + 3)) % 101) as f32).collect();
        memory.write(&mut weight, &numbers)?;
        Ok(weight)
    };
    (0..BLOCKS).map(weight).collect()
}

/// Fast memory for so many blocks, and slow memory on which kernels do not work.
fn machine(blocks: u64) -> Machine {
    let mut machine = machines::named("dram-throttled").expect("it ships");
    machine.tiers[1].computable = false;
    machine.with_capacity(TierId(0), Bytes(blocks * (LEN * size_of::<f32>()) as u64))
}

#[test]
fn a_program_runs_under_its_plan() {
    let roomy = machine(2 * BLOCKS as u64 + 1);
    let mut memory = Memory::open(&roomy, CachedArrays::new(Mode::LMP)).expect("a little memory");
    let expected = play(&mut memory, 4).expect("it runs");
    let mut again = weights(&mut memory).expect("there is room");
    memory.record_pass().expect("nothing is in the way");
    pass(&mut memory, &mut again).expect("it runs");
    let trace = memory.take_pass("there and back").expect("a pass leaves nothing behind");
    assert_eq!((trace.kernels.len(), trace.tensors.len()), (2 * BLOCKS, 2 * BLOCKS));

    let tight = machine(BLOCKS as u64);
    let times = Times::new(Model::new(&tight).expect("a machine file without kinds"));
    for system in ["tiercel", "autotm-sync"] {
        let setting = Setting::new(&trace, &tight, &times);
        let run = simulate(named(system).expect("built in"), &setting, 2).expect("it is simulated");
        let prepared = named(system).expect("built in").prepare(&setting).expect("it is planned");
        assert!(prepared.planned.is_some() && prepared.rewritten.is_none() && prepared.implemented.is_none());
        let mut memory = Memory::open_boxed(&tight, prepared.policy).expect("a little memory");
        let mut weights = weights(&mut memory).expect("there is room");
        let mut fetched = Vec::new();
        for _ in 0..4 {
            let before = memory.totals().fetched;
            pass(&mut memory, &mut weights).expect("it runs");
            memory.iteration_ended().expect("nothing is in the way");
            fetched.push(memory.totals().fetched - before);
        }
        let found: Vec<Vec<f32>> = weights.iter().map(|w| memory.read(w).expect("it is there")).collect();
        assert!(found == expected, "{system}: other numbers");
        // The first iteration begins with the weights elsewhere.
        assert!(fetched[1] > Bytes::ZERO);
        assert_eq!(fetched[1..], [run.iterations[1].fetched; 3], "{system}: as it was foreseen");
    }
}

//! Every system on real memory: whatever it plans, moves, computes again or updates early, training gives the same bits.

use tiercel_core::{Backing, Bytes, Machine, TierId};
use tiercel_kernels::{Library, prepare};
use tiercel_sim::Roofline;
use tiercel_systems::{ALL, Choices, Options, Setting, System, Times, named};
use tiercel_train::{Settings, Synthetic, Task, Trainer, room};
use tiercel_workload::trace::Phase;
use tiercel_workload::{Lifetimes, Program, nets};

const THREADS: usize = 2;

/// A small network, ready for kernels.
fn task(net: &str, batch: u64, image: Option<u64>) -> Task {
    let options = nets::NetOptions { batch: Some(batch), image, ..nets::NetOptions::default() };
    let program = nets::find(net).expect("built in").build(&options).expect("sound");
    Task::new(program, batch, |program| prepare(program, THREADS))
}

/// Fast memory for a share of the peak, and emulated slow memory behind it.
fn machine(task: &Task, share: f64) -> Machine {
    let trace = &task.training.trace;
    let fast = Bytes((Lifetimes::new(trace).peak().1.0 as f64 * share) as u64);
    let machine = room::machine(trace, fast, Backing::Throttled);
    let whole = Bytes(fast.0.next_multiple_of(machine.grain().0));
    machine.with_capacity(TierId(0), whole)
}

/// What a run came to.
struct Trained {
    losses: Vec<u32>,
    digest: u64,
    /// Kernels that ran again.
    again: usize,
    /// Whether a weight was updated before the last kernel that is no update.
    early: bool,
    moved: Bytes,
}

/// Trains for three iterations what the system makes of the task.
fn train(system: &System, task: &Task, machine: &Machine, choices: Choices) -> Trained {
    let program: &Program = &task.training;
    let machine = system.machine(&program.trace, machine);
    // Rounds bound the search, so that it does not depend on how busy the machine is.
    let options = Options { time: std::time::Duration::MAX, rounds: 2, choices, ..Options::default() };
    let times = Times::new(Roofline);
    let setting = Setting::of(program, &machine, &times).with(options);
    let mut prepared = system.prepare(&setting).unwrap_or_else(|error| panic!("{error}"));
    let task = prepared.rewritten.take().map_or(task.clone(), |program| task.played_as(program));
    let settings = Settings { seed: 3, lookahead: prepared.lookahead, ..Settings::default() };
    let library = |program: &_| Library::new(program, THREADS);
    let mut trainer = Trainer::new(&task, &machine, prepared.policy, Box::new(Synthetic), settings, library)
        .unwrap_or_else(|error| panic!("{}: {error}", system.name));
    let mut losses = Vec::new();
    for _ in 0..3 {
        let lesson = trainer.iterate().unwrap_or_else(|error| panic!("{}: {error}", system.name));
        losses.push(lesson.loss.to_bits());
    }
    let kernels = &task.training.trace.kernels;
    let update = |phase: Phase| phase == Phase::Update;
    let first = kernels.iter().position(|kernel| update(kernel.phase));
    Trained {
        losses,
        digest: trainer.digest().expect("weights"),
        again: kernels.iter().filter(|kernel| kernel.name.ends_with(".again")).count(),
        early: kernels.iter().skip(first.unwrap_or(0)).any(|kernel| !update(kernel.phase)),
        moved: trainer.totals().evicted,
    }
}

#[test]
fn no_system_changes_a_bit() {
    let task = task("cnn", 16, Some(16));
    let machine = machine(&task, 0.2);
    let expected = train(named("fast-only").expect("listed"), &task, &machine, Choices::Both);
    for system in &ALL {
        let found = train(system, &task, &machine, Choices::Both);
        assert_eq!(found.losses, expected.losses, "losses under {}", system.name);
        assert_eq!(found.digest, expected.digest, "weights under {}", system.name);
    }
}

#[test]
fn what_tiercel_rewrites_computes_the_same() {
    let tiercel = named("tiercel").expect("listed");
    let (mut again, mut early, mut moved) = (0, 0, 0);
    for (net, image) in [("cnn", Some(16)), ("resnet32", None), ("mlp", None)] {
        let task = task(net, 8, image);
        let ample = machine(&task, 1.0);
        let expected = train(named("fast-only").expect("listed"), &task, &ample, Choices::Both);
        for (share, choices) in
            [(0.2, Choices::Both), (0.3, Choices::Move), (0.8, Choices::Recompute), (0.5, Choices::Both)]
        {
            if net == "mlp" && choices == Choices::Recompute {
                // Its weights alone are more than can be saved.
                continue;
            }
            let found = train(tiercel, &task, &machine(&task, share), choices);
            assert_eq!(found.losses, expected.losses, "{net}, {share} {choices:?}");
            assert_eq!(found.digest, expected.digest, "{net}, {share} {choices:?}");
            again += u32::from(found.again > 0);
            early += u32::from(found.early);
            moved += u32::from(found.moved > Bytes::ZERO);
        }
    }
    assert!(
        again > 0 && early > 0 && moved > 0,
        "{again} computed again, {early} updated early, {moved} moved"
    );
}

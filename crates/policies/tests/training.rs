//! Networks learn, on real data and on little fast memory, and where their tensors live changes nothing but time.

mod training_runs;

use tiercel_core::{Backing, Bytes, Nanos, TierId};
use tiercel_train::data::grammar;
use tiercel_train::{Schedule, Settings, Synthetic, Text};
use tiercel_workload::graph::Optimizer;
use tiercel_workload::nets::NetOptions;
use training_runs::{Folder, Home, Outcome, digits, net, train, trainer};

/// A small convolutional network with batch norms on the digits that ship.
fn learn_digits(home: &Home, iterations: u64) -> Outcome {
    let options = NetOptions { batch: Some(64), image: Some(8), width: Some(16), ..NetOptions::default() };
    let task = net("cnn", options);
    let schedule = Schedule::Cosine { warmup: 10, iterations };
    let mut run = trainer(&task, home, digits(), Settings { seed: 1, schedule, lookahead: 0 });
    train(&mut run, iterations, |_| {})
}

#[test]
fn digits_are_learnt_and_where_tensors_live_changes_nothing() {
    let fast = learn_digits(&Home::fast(), 160);
    let score = fast.score.expect("there are labels");
    assert_eq!(score.guesses, 359);
    assert!(score.accuracy() >= 0.96, "{score:?}");
    assert_eq!(learn_digits(&Home::tight("cachedarrays-lm"), 160), fast);
}

#[test]
fn every_policy_and_an_emulated_tier_give_the_same_bits() {
    let fast = learn_digits(&Home::fast(), 8);
    for policy in [
        "slow-only",
        "first-touch",
        "memory-mode",
        "cachedarrays-0",
        "cachedarrays-l",
        "cachedarrays-lmp",
        "sentinel",
    ] {
        for lookahead in [0, 3] {
            let home = Home { slow: Backing::Throttled, lookahead, ..Home::tight(policy) };
            assert_eq!(learn_digits(&home, 8), fast, "{policy}, lookahead {lookahead}");
        }
    }
}

#[test]
fn a_language_is_learnt_and_where_tensors_live_changes_nothing() {
    let options = NetOptions {
        batch: Some(16),
        sequence: Some(64),
        depth: Some(2),
        width: Some(64),
        words: Some(256),
        optimizer: Some(Optimizer::AdamW { rate: 2e-3, betas: [0.9, 0.999], epsilon: 1e-8, decay: 0.01 }),
        ..NetOptions::default()
    };
    let task = net("gpt2", options);
    let learn = |home: &Home| {
        let schedule = Schedule::Cosine { warmup: 40, iterations: 250 };
        let text = Text::new("grammar", grammar(5, 200_000));
        let mut run = trainer(&task, home, text, Settings { seed: 2, schedule, lookahead: 0 });
        train(&mut run, 250, |_| {})
    };
    let fast = learn(&Home::fast());
    let score = fast.score.expect("there are labels");
    // One of 256 bytes at random costs 5.55, letters by their frequency 2.77, letters by the one before them 1.46.
    assert!(score.loss < 1.2, "{score:?}");
    assert_eq!(learn(&Home::tight("cachedarrays-lm")), fast);
}

#[test]
fn the_disk_can_be_the_slow_memory() {
    let folder = Folder::new("disk");
    let options = NetOptions {
        batch: Some(32),
        image: Some(16),
        depth: Some(10),
        width: Some(256),
        ..NetOptions::default()
    };
    let task = net("mlp", options);
    let run = |home: &Home| {
        let mut run = trainer(&task, home, Synthetic, Settings::default());
        let (mut time, mut stall) = (Nanos::ZERO, Nanos::ZERO);
        let outcome = train(&mut run, 12, |lesson| {
            time += lesson.figures.time;
            stall += lesson.figures.stall;
        });
        (outcome, stall.seconds() / time.seconds(), run.totals().clone())
    };
    let (fast, ..) = run(&Home::fast());
    for (policy, lookahead) in [("cachedarrays-lm", 0), ("cachedarrays-lmp", 3), ("sentinel", 0)] {
        let slow = Backing::File(folder.0.display().to_string());
        let home = Home { policy, share: 0.2, slow, lookahead };
        let (outcome, share, totals) = run(&home);
        assert_eq!(outcome, fast, "{policy}");
        assert!(totals.evicted > Bytes::ZERO && totals.peak[1] > Bytes::ZERO);
        println!("{policy}, lookahead {lookahead}: kernels waited {:.0} % of the time", share * 100.0);
    }
    assert_eq!(std::fs::read_dir(&folder.0).expect("it is there").count(), 0, "nothing is left on the disk");
}

#[test]
fn kernels_are_timed_by_where_their_operands_are() {
    let task = net("mlp", NetOptions { batch: Some(16), width: Some(64), ..NetOptions::default() });
    let home = Home { slow: Backing::Throttled, ..Home::tight("slow-only") };
    let mut run = trainer(&task, &home, Synthetic, Settings::default());
    run.record_times();
    for _ in 0..3 {
        run.iterate().expect("it trains");
    }
    run.evaluate().expect("no test data, no error");
    let times = run.take_times();
    let mut seen = 0;
    for line in times.iter() {
        let kernel = task.training.trace.kernel(line.step);
        assert_eq!(line.tiers.len(), kernel.reads.len() + kernel.writes.len());
        assert!(line.tiers.iter().all(|tier| *tier == TierId(1)));
        assert_eq!(line.runs, 3);
        assert!(line.least > Nanos::ZERO && line.least <= line.mean() && line.total >= line.least);
        assert_eq!(line.timing().time, line.least);
        assert_eq!(times.of(line.step), std::slice::from_ref(line));
        seen += 1;
    }
    assert_eq!(seen, task.training.trace.kernels.len());
    run.iterate().expect("it trains");
    assert_eq!(run.take_times().iter().count(), 0, "nothing is recorded unless asked");
}

#[test]
fn every_kind_of_network_trains() {
    let small = NetOptions { batch: Some(4), ..NetOptions::default() };
    let nets = [
        ("resnet32", NetOptions { image: Some(16), ..small }),
        ("mobilenet", NetOptions { image: Some(32), ..small }),
        ("dcgan", NetOptions { image: Some(16), width: Some(8), ..small }),
        ("lstm", NetOptions { sequence: Some(5), width: Some(24), words: Some(64), ..small }),
        ("bert-large", NetOptions { sequence: Some(12), width: Some(64), depth: Some(1), ..small }),
        (
            "gpt2",
            NetOptions { sequence: Some(12), width: Some(64), depth: Some(1), words: Some(64), ..small },
        ),
    ];
    for (name, options) in nets {
        let task = net(name, options);
        let learn = |home: &Home| {
            let mut run = trainer(&task, home, Synthetic, Settings { seed: 3, ..Settings::default() });
            train(&mut run, 2, |_| {})
        };
        let fast = learn(&Home::fast());
        assert_eq!(learn(&Home::tight("cachedarrays-lm")), fast, "{name}");
    }
}

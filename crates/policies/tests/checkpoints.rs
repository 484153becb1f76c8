//! A run that was stopped and resumed is a run that was never stopped; what is no checkpoint of this run is refused.

mod training_runs;

use std::fs;

use tiercel_testbed::for_seeds;
use tiercel_train::{Schedule, Settings, Synthetic, Task};
use tiercel_workload::graph::{Builder, DType, Optimizer};
use tiercel_workload::{Program, nets, schedule};
use training_runs::{Folder, Home, net, train, trainer};

const SETTINGS: Settings =
    Settings { seed: 11, schedule: Schedule::Cosine { warmup: 3, iterations: 40 }, lookahead: 0 };

/// A small network; AdamW corrects for the first iterations, and the dropout differs in every one.
fn network(name: &str, width: u64, dtype: DType) -> Task {
    let mut b = Builder::new(name, dtype);
    let x = b.input("images", [16, 8, 8]);
    let x = b.flatten(x);
    b.layer("hidden");
    let x = b.linear(x, width);
    let x = b.relu(x);
    let x = b.dropout(x, 0.25);
    b.layer("classes");
    let logits = b.linear(x, 10);
    let loss = b.cross_entropy(logits, "labels");
    b.train(&[loss], Optimizer::AdamW { rate: 0.01, betas: [0.9, 0.999], epsilon: 1e-8, decay: 0.01 });
    training_runs::task(Program::new(b.finish().expect("it fits"), schedule::ScheduleOptions::default()), 16)
}

#[test]
fn a_resumed_run_is_bit_identical() {
    let folder = Folder::new("resume");
    let file = folder.file("run.safetensors");
    for dtype in [DType::F32, DType::Bf16] {
        let task = network("small", 32, dtype);
        let tight = Home::tight("cachedarrays-lm");
        let whole = train(&mut trainer(&task, &Home::fast(), Synthetic, SETTINGS), 20, |_| {});
        for stop in [1, 7, 19] {
            // The two halves may have different homes.
            let mut first = trainer(&task, &tight, Synthetic, SETTINGS);
            let early = train(&mut first, stop, |_| {});
            first.save(&file).expect("a checkpoint");
            drop(first);
            let other_seed = Settings { seed: 999, ..SETTINGS };
            let mut second = trainer(&task, &Home::fast(), Synthetic, other_seed);
            let progress = second.resume(&file).expect("it goes on");
            assert_eq!((progress.iteration, progress.position, progress.seed), (stop, stop * 16, 11));
            assert_eq!(progress.schedule, "cosine:3:40");
            let late = train(&mut second, 20 - stop, |_| {});
            let losses: Vec<u32> = early.losses.iter().chain(&late.losses).copied().collect();
            assert_eq!(losses, whole.losses, "{stop}");
            assert_eq!(late.digest, whole.digest, "{stop}");
            // Saving at once what was loaded gives the same file.
            let mut third = trainer(&task, &Home::fast(), Synthetic, SETTINGS);
            third.resume(&file).expect("it goes on");
            third.save(&folder.file("again")).expect("a checkpoint");
            assert_eq!(fs::read(&file).unwrap(), fs::read(folder.file("again")).unwrap());
        }
    }
    let left: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "nothing else is left behind: {left:?}");
}

/// What resuming a task from the file says.
fn refusal(task: &Task, file: &std::path::Path) -> String {
    let mut run = trainer(task, &Home::fast(), Synthetic, SETTINGS);
    run.resume(file).expect_err("it is refused").to_string()
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let folder = Folder::new("misfit");
    let file = folder.file("run.safetensors");
    let small = network("small", 32, DType::F32);
    let mut run = trainer(&small, &Home::fast(), Synthetic, SETTINGS);
    train(&mut run, 1, |_| {});
    run.save(&file).expect("a checkpoint");
    let shown = file.display().to_string();
    let expect = |task: &Task, expected: &str| {
        assert_eq!(refusal(task, &file).replace(&shown, "FILE"), expected);
    };
    expect(
        &network("other", 32, DType::F32),
        "checkpoint `FILE` is of the network `small`; `other` is to be trained",
    );
    expect(
        &network("small", 48, DType::F32),
        "checkpoint `FILE`, tensor `hidden.weight`: F32 48x64 was expected, F32 32x64 is there",
    );
    expect(
        &network("small", 32, DType::Bf16),
        "checkpoint `FILE`, tensor `hidden.weight`: BF16 32x64 was expected, F32 32x64 is there",
    );
    let mlp = net("mlp", nets::NetOptions { batch: Some(2), width: Some(8), ..nets::NetOptions::default() });
    expect(&mlp, "checkpoint `FILE` is of the network `small`; `mlp` is to be trained");
    let gone = refusal(&mlp, &folder.file("gone"));
    assert!(gone.starts_with("checkpoint `") && gone.contains("No such file"), "{gone}");

    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 5]).unwrap();
    let cut = refusal(&network("small", 32, DType::F32), &file);
    assert!(cut.ends_with(&format!(
        "{} bytes were expected and {} are there: it is cut off",
        bytes.len(),
        bytes.len() - 5
    )));
    fs::write(&file, b"{}").unwrap();
    let short = refusal(&network("small", 32, DType::F32), &file);
    assert!(short.ends_with("8 bytes were expected and 2 are there: it is cut off"), "{short}");
}

#[test]
fn damage_never_goes_unseen() {
    let folder = Folder::new("damage");
    let file = folder.file("run.safetensors");
    let task = network("small", 8, DType::F32);
    let mut run = trainer(&task, &Home::fast(), Synthetic, SETTINGS);
    train(&mut run, 2, |_| {});
    run.save(&file).expect("a checkpoint");
    let whole = fs::read(&file).unwrap();
    let open = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        tiercel_train::checkpoint::Checkpoint::open(&file, &task.training)
    };
    open(&whole).expect("it is whole");
    for_seeds(400, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = whole.clone();
        match random.u32(0..5) {
            0 => bytes.truncate(random.usize(0..whole.len())),
            1 => bytes.extend((0..random.usize(1..100)).map(|_| random.u8(..))),
            2 => {
                // The header, where sense is easily lost.
                let at = random.usize(0..2000);
                bytes[at] ^= 1 << random.u32(0..8);
            }
            3 => {
                let at = random.usize(0..whole.len());
                bytes[at] ^= 1 << random.u32(0..8);
            }
            _ => {
                let (at, to) = (random.usize(0..whole.len() - 8), random.usize(0..whole.len() - 8));
                let eight: [u8; 8] = bytes[at..at + 8].try_into().unwrap();
                bytes[to..to + 8].copy_from_slice(&eight);
            }
        }
        let opened = open(&bytes);
        assert!(opened.is_err() || bytes == whole, "damage of seed {seed} went unseen");
    });
}

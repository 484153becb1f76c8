//! Training runs for tests: a task, a policy and a share of fast memory, and what came of it.

// Each test binary uses the part that it needs.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

use tiercel_core::{Backing, Bytes, TierId};
use tiercel_kernels::{Library, prepare};
use tiercel_policies::by_name;
use tiercel_train::{Data, Images, Lesson, Score, Settings, Task, Trainer, room};
use tiercel_workload::{Lifetimes, Program, nets};

/// Threads that compute in tests.
pub const THREADS: usize = 2;

/// Where a run's tensors live.
#[derive(Clone, Debug)]
pub struct Home {
    pub policy: &'static str,
    /// Fast memory as a share of the peak.
    pub share: f64,
    pub slow: Backing,
    pub lookahead: usize,
}

impl Home {
    /// Everything in fast memory.
    pub fn fast() -> Home {
        Home { policy: "fast-only", share: 3.0, slow: Backing::Dram, lookahead: 0 }
    }

    /// A fifth in fast memory, the rest in other memory.
    pub fn tight(policy: &'static str) -> Home {
        Home { policy, share: 0.2, slow: Backing::Dram, lookahead: 0 }
    }
}

/// A network of the registry as a task.
pub fn net(name: &str, options: nets::NetOptions) -> Task {
    let net = nets::find(name).expect("a network");
    task(net.build(&options).expect("it fits"), net.batch(&options))
}

/// A program as a task.
pub fn task(program: Program, batch: u64) -> Task {
    Task::new(program, batch, |program| prepare(program, THREADS))
}

/// The images that come with the project.
pub fn digits() -> Images {
    Images::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/digits")).expect("they ship")
}

/// A run before its first iteration.
pub fn trainer<'t>(
    task: &'t Task,
    home: &Home,
    data: impl Data + 'static,
    settings: Settings,
) -> Trainer<'t, Library> {
    let trace = &task.training.trace;
    let peak = Lifetimes::new(trace).peak().1;
    let machine = room::machine(trace, Bytes::mib(1), home.slow.clone());
    let fast = Bytes((peak.0 as f64 * home.share) as u64).round_up(machine.grain()).expect("small");
    let machine = machine.with_capacity(TierId(0), fast);
    let settings = Settings { lookahead: home.lookahead, ..settings };
    let policy = by_name(home.policy).expect("it is listed");
    Trainer::new(task, &machine, policy, Box::new(data), settings, |program| Library::new(program, THREADS))
        .unwrap_or_else(|error| panic!("{}: {error}", home.policy))
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The bits of the losses.
    pub losses: Vec<u32>,
    /// The checksum of weights and optimizer state.
    pub digest: u64,
    pub score: Option<Score>,
}

impl Outcome {
    pub fn last_loss(&self) -> f32 {
        f32::from_bits(*self.losses.last().expect("it has trained"))
    }
}

/// Trains for so many iterations, calling `each` after every one.
pub fn train(trainer: &mut Trainer<'_, Library>, iterations: u64, mut each: impl FnMut(&Lesson)) -> Outcome {
    let mut losses = Vec::new();
    for _ in 0..iterations {
        let lesson = trainer.iterate().unwrap_or_else(|error| panic!("{error}"));
        each(&lesson);
        losses.push(lesson.loss.to_bits());
    }
    let score = trainer.evaluate().unwrap_or_else(|error| panic!("{error}"));
    Outcome { losses, digest: trainer.digest().expect("weights are there"), score }
}

/// A folder of its own that is gone when the test ends.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tiercel-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

//! How well predictors know the path: accuracy on samples that were not seen, misses with and without handling, and how long
//! a prediction takes (DyNN-Offload, sections 6.6.3, 6.6.5, 6.6.6 and 6.6.8).

use std::time::Instant;

use crate::blocks::Representation;
use crate::learned::{Case, Learned, Misses, Training};
use crate::operator::GlobalIds;
use crate::study::{Seen, Study};
use crate::workloads::{Sample, Source};

/// Samples that a model is trained on, and those that it is tested on.
pub const TRAINED: usize = 5000;
/// Samples of the test.
pub const TESTED: usize = 1000;
/// Samples over which misses are counted.
pub const COUNTED: usize = 3000;
/// Misses after which the model is trained on them, with how many of the first samples.
const EVERY: usize = 16;
const REFRESHED: usize = 240;

/// Samples of one network.
pub struct Drawn {
    /// For training.
    pub trained: Vec<Sample>,
    /// For the test.
    pub tested: Vec<Sample>,
}

/// Samples for the networks of a family: the same number of each, all different ones.
pub fn draw(studies: &[&Study], seed: u64) -> Vec<Drawn> {
    let each = |study: &&Study| {
        let mut source = Source::new(study.workload, seed);
        let n = studies.len().max(1);
        Drawn { trained: source.take(TRAINED / n), tested: source.take(TESTED / n) }
    };
    studies.iter().map(each).collect()
}

/// How a model is made and trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// How operators are told to it.
    pub representation: Representation,
    /// Hidden neurons in both layers together.
    pub hidden: usize,
    /// How it is trained.
    pub training: Training,
}

/// A trained model of a family.
pub fn train(studies: &[&Study], drawn: &[Drawn], setup: Setup) -> Learned {
    let mut ids = GlobalIds::default();
    let known = studies.iter().map(|study| study.known(setup.representation, &mut ids)).collect();
    let mut learned = Learned::new(known, setup.hidden, setup.training.seed);
    learned.train(&cases(studies, drawn), setup.training);
    learned
}

fn cases<'a>(studies: &[&Study], drawn: &'a [Drawn]) -> Vec<Case<'a>> {
    let of = |network: usize| {
        let study = studies[network];
        drawn[network].trained.iter().map(move |sample| Case {
            sample,
            network,
            record: study.course(sample),
        })
    };
    (0..studies.len()).flat_map(of).collect()
}

/// Which course a model says that a sample takes; batches of another bucket's sizes are out of the question.
pub fn said(learned: &mut Learned, study: &Study, network: usize, sample: &Sample) -> usize {
    let bucket = study.bucket(sample);
    learned.predict(sample, network, &|at| study.courses[at].bucket == bucket).unwrap_or(0)
}

/// The share of a test's samples whose course is predicted, for each network.
pub fn accuracy(learned: &mut Learned, studies: &[&Study], drawn: &[Drawn]) -> Vec<f64> {
    let mut of = |network: usize| {
        let (study, tested) = (studies[network], &drawn[network].tested);
        let right =
            tested.iter().filter(|sample| said(learned, study, network, sample) == study.course(sample));
        right.count() as f64 / tested.len() as f64
    };
    (0..studies.len()).map(&mut of).collect()
}

/// The same for ours, which learns while it sees the training samples, `passes` times.
pub fn our_accuracy(study: &Study, drawn: &Drawn, passes: usize) -> (f64, Seen) {
    let mut seen = Seen::default();
    for _ in 0..passes {
        drawn.trained.iter().for_each(|sample| seen.see(study, sample));
    }
    let right =
        drawn.tested.iter().filter(|sample| first(&mut seen, study, sample) == Some(study.course(sample)));
    let share = right.count() as f64 / drawn.tested.len() as f64;
    (share, seen)
}

fn first(seen: &mut Seen, study: &Study, sample: &Sample) -> Option<usize> {
    seen.likely(study, sample).first().map(|(course, _)| *course)
}

/// Misses among samples of one network: without handling, and with the record of misses and training on them.
pub fn misses(
    learned: &mut Learned,
    studies: &[&Study],
    drawn: &[Drawn],
    network: usize,
    seed: u64,
) -> (usize, usize) {
    let study = studies[network];
    let samples = Source::new(study.workload, seed).take(COUNTED);
    let wrong = |learned: &mut Learned| {
        samples.iter().filter(|sample| said(learned, study, network, sample) != study.course(sample)).count()
    };
    let without = wrong(learned);
    let all = cases(studies, drawn);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut record = Misses::default();
    let mut missed: Vec<Case<'_>> = Vec::new();
    let mut with = 0;
    for sample in &samples {
        let bucket = study.bucket(sample);
        let fits = |at: usize| study.courses[at].bucket == bucket;
        let output = learned.infer(sample, network).to_vec();
        let whole = learned.whole(&output, network, bucket);
        let advice = record.advice(network, &whole).filter(|at| fits(*at));
        let said = advice.or_else(|| learned.map(&output, network, &fits));
        let right = study.course(sample);
        if said == Some(right) {
            continue;
        }
        with += 1;
        record.note(network, whole, right);
        missed.push(Case { sample, network, record: right });
        if missed.len().is_multiple_of(EVERY) {
            let mut lesson = missed[missed.len() - EVERY..].to_vec();
            lesson.extend((0..REFRESHED).map(|_| all[random.usize(0..all.len())]));
            let training =
                Training { epochs: 2, rate: 3e-4, seed: missed.len() as u64, ..Training::default() };
            learned.train(&lesson, training);
        }
    }
    (without, with)
}

/// Misses of ours among samples of one network: as it is after training, and learning on.
pub fn our_misses(study: &Study, seen: &mut Seen, seed: u64) -> (usize, usize) {
    let samples = Source::new(study.workload, seed).take(COUNTED);
    let wrong = |sample: &&Sample, seen: &mut Seen| first(seen, study, sample) != Some(study.course(sample));
    let without = samples.iter().filter(|sample| wrong(sample, seen)).count();
    let mut with = 0;
    for sample in &samples {
        with += usize::from(wrong(&sample, seen));
        seen.see(study, sample);
    }
    (without, with)
}

/// Microseconds of a call, the middle one of many; read off this machine's clock.
fn middle(samples: &[Sample], mut call: impl FnMut(&Sample)) -> f64 {
    let mut times: Vec<u128> = samples
        .iter()
        .map(|sample| {
            let began = Instant::now();
            call(sample);
            began.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| *time as f64 / 1e3)
}

/// Microseconds of the model's inference and of mapping, each on one core.
pub fn times(learned: &mut Learned, study: &Study, network: usize, samples: &[Sample]) -> (f64, f64) {
    let inference = middle(samples, |sample| {
        std::hint::black_box(learned.infer(sample, network));
    });
    let outputs: Vec<Vec<f32>> =
        samples.iter().map(|sample| learned.infer(sample, network).to_vec()).collect();
    let mut turn = 0;
    let mapping = middle(samples, |sample| {
        let bucket = study.bucket(sample);
        std::hint::black_box(learned.map(&outputs[turn], network, &|at| study.courses[at].bucket == bucket));
        turn += 1;
    });
    (inference, mapping)
}

/// Microseconds of ours: inference and mapping in one.
pub fn our_time(study: &Study, seen: &mut Seen, samples: &[Sample]) -> f64 {
    middle(samples, |sample| {
        std::hint::black_box(seen.likely(study, sample));
    })
}

/// Nanoseconds that following the trie takes for an operation of a program that never repeats.
pub fn trie_time() -> f64 {
    let mut trie = crate::trie::Trie::new(crate::trie::Limits::default());
    let mut random = fastrand::Rng::with_seed(1);
    let began = Instant::now();
    let operations = 1_000_000;
    for at in 0..operations {
        trie.step(random.u64(0..1000));
        if at % 500 == 499 {
            trie.end();
        }
    }
    began.elapsed().as_nanos() as f64 / f64::from(operations)
}

//! Samples: words, and which way each goes.
//!
//! A sample is about two subjects at once; a table says which way each pair goes. Its words are drawn from the words of its
//! two subjects and from words that everybody uses. A few samples stray: they go another way than their words say, so no
//! predictor can be always right. Lengths fall as those of sentences do; where the length decides, it decides alone.
//!
//! The vectors of words stand for GloVe's, or for an autoencoder's codes of patches: words of one subject are near each other.

use super::{Cause, Workload};

/// Subjects that a sample can have in each of its two places.
const SUBJECTS: usize = 7;
/// Words that belong to one subject, and words that belong to none.
const OWN: usize = 24;
const COMMON: usize = 256;
/// Of 100 words, those from the first subject and those from the second.
const FROM_FIRST: u32 = 30;
const FROM_SECOND: u32 = 30;
/// Of 100 samples, those that stray.
const STRAY: u32 = 4;
/// Words of a sample that are looked at.
const READ: usize = 48;
/// What one round of a loop reads.
const ROUND: u32 = 12;

/// The numbers of a word's vector.
pub const VECTOR: usize = 88;
/// The numbers that say how long a sample is.
pub const LENGTHS: usize = 16;

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its words.
    pub words: Vec<u16>,
    /// How many words it has in all.
    pub length: u32,
    /// The rows of its batch.
    pub rows: u64,
    /// Which way it goes, as a position in [`Workload::ways`].
    pub way: usize,
}

/// Makes samples of one workload.
pub struct Source {
    random: fastrand::Rng,
    cause: Cause,
    rows: u64,
    varies: bool,
    shares: Vec<f64>,
    rounds: Vec<u32>,
    /// Which way each pair of subjects goes; where lengths decide the rest, an arm of the last branch.
    table: Vec<usize>,
}

impl Source {
    /// Samples of a workload, always the same ones from the same seed. What words mean does not depend on the seed.
    pub fn new(workload: &Workload, seed: u64) -> Source {
        let ways = workload.ways();
        let shares: Vec<f64> = ways.iter().map(|way| way.share).collect();
        let ends = if workload.cause == Cause::Both { 1 } else { 0 };
        let rounds = ways.iter().map(|way| {
            let loops = &way.path[..way.path.len() - ends.min(way.path.len())];
            loops.iter().filter(|arm| **arm == 1).count() as u32
        });
        let name = workload.name.bytes().fold(7u64, |hash, byte| hash.wrapping_mul(31) + u64::from(byte));
        let split = match workload.cause {
            Cause::Both => vec![0.6, 0.4],
            _ => shares.clone(),
        };
        Source {
            random: fastrand::Rng::with_seed(seed ^ name),
            cause: workload.cause,
            rows: workload.rows,
            varies: workload.varies,
            rounds: rounds.collect(),
            table: table(&split, name),
            shares,
        }
    }

    fn drawn(&mut self, shares: &[f64]) -> usize {
        let mut left = self.random.f64() * shares.iter().sum::<f64>();
        for (at, share) in shares.iter().enumerate() {
            left -= share;
            if left < 0.0 {
                return at;
            }
        }
        shares.len() - 1
    }

    fn subjects(&mut self) -> (usize, usize) {
        (self.random.usize(0..SUBJECTS), self.random.usize(0..SUBJECTS))
    }

    /// The next sample.
    pub fn sample(&mut self) -> Sample {
        let shares = self.shares.clone();
        let (first, second) = self.subjects();
        let said = self.table[first * SUBJECTS + second];
        let strays = self.random.u32(0..100) < STRAY;
        let (way, length) = match self.cause {
            Cause::None => (0, ROUND * 4),
            Cause::Words => {
                let way = if strays { self.drawn(&shares) } else { said };
                (way, 6 + (self.random.u32(0..24) + self.random.u32(0..24)) / 2 * 2)
            }
            Cause::Length => {
                let way = self.drawn(&shares);
                (way, ROUND * (self.rounds[way] - 1) + self.random.u32(1..=ROUND))
            }
            Cause::Both => {
                let drawn = self.drawn(&shares);
                let pair = if strays { drawn % 2 } else { said };
                let way = drawn / 2 * 2 + pair;
                (way, ROUND * (self.rounds[way] - 1) + self.random.u32(1..=ROUND))
            }
        };
        let rows = match self.varies {
            true => (self.rows * self.random.u64(60..=100) / 100).max(1),
            false => self.rows,
        };
        let words = (0..(length as usize).clamp(12, READ)).map(|_| self.word(first, second)).collect();
        Sample { words, length, rows, way }
    }

    fn word(&mut self, first: usize, second: usize) -> u16 {
        let at = self.random.u32(0..100);
        let own = self.random.usize(0..OWN);
        let word = match at {
            _ if at < FROM_FIRST => first * OWN + own,
            _ if at < FROM_FIRST + FROM_SECOND => (SUBJECTS + second) * OWN + own,
            _ => 2 * SUBJECTS * OWN + self.random.usize(0..COMMON),
        };
        word as u16
    }

    /// So many samples.
    pub fn take(&mut self, count: usize) -> Vec<Sample> {
        (0..count).map(|_| self.sample()).collect()
    }
}

/// Gives every pair of subjects a way, as many pairs as its share of the samples, in an order that has no pattern.
fn table(shares: &[f64], seed: u64) -> Vec<usize> {
    let cells = SUBJECTS * SUBJECTS;
    let mut counts: Vec<usize> = shares.iter().map(|share| (share * cells as f64).round() as usize).collect();
    counts.iter_mut().for_each(|count| *count = (*count).max(1));
    while counts.iter().sum::<usize>() > cells {
        let most = (0..counts.len()).max_by_key(|at| counts[*at]).expect("there is a way");
        counts[most] -= 1;
    }
    while counts.iter().sum::<usize>() < cells {
        let most = (0..counts.len()).max_by_key(|at| counts[*at]).expect("there is a way");
        counts[most] += 1;
    }
    let mut table: Vec<usize> =
        counts.iter().enumerate().flat_map(|(way, count)| vec![way; *count]).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut table);
    table
}

/// The vectors of words.
#[derive(Clone)]
pub struct Vectors(Vec<f32>);

impl Default for Vectors {
    fn default() -> Vectors {
        Vectors::new()
    }
}

impl Vectors {
    /// The same vectors always.
    pub fn new() -> Vectors {
        let mut random = fastrand::Rng::with_seed(77);
        let mut normal = || (0..6).map(|_| random.f32() - 0.5).sum::<f32>() * 1.4;
        let mut all = Vec::new();
        for _ in 0..2 * SUBJECTS {
            let subject: Vec<f32> = (0..VECTOR).map(|_| normal()).collect();
            for _ in 0..OWN {
                all.extend(subject.iter().map(|x| x + normal()));
            }
        }
        all.extend((0..COMMON * VECTOR).map(|_| normal()));
        Vectors(all)
    }

    /// Adds to `out` the mean of a sample's words, then its length as a row of marks.
    pub fn embed(&self, sample: &Sample, out: &mut Vec<f32>) {
        let start = out.len();
        out.resize(start + VECTOR, 0.0);
        let sum = &mut out[start..];
        for word in &sample.words {
            let vector = &self.0[usize::from(*word) * VECTOR..(usize::from(*word) + 1) * VECTOR];
            sum.iter_mut().zip(vector).for_each(|(s, v)| *s += v);
        }
        let share = 2.5 / sample.words.len().max(1) as f32;
        sum.iter_mut().for_each(|s| *s *= share);
        out.extend((0..LENGTHS as u32).map(|at| f32::from(u8::from(sample.length > at * ROUND / 2))));
    }
}

#[cfg(test)]
mod tests {
    use super::super::ALL;
    use super::*;

    #[test]
    fn ways_are_as_frequent_as_they_should_be() {
        for workload in &ALL {
            let ways = workload.ways();
            let total: f64 = ways.iter().map(|way| way.share).sum();
            assert!((total - 1.0).abs() < 1e-9, "{} {total}", workload.name);
            let samples = Source::new(workload, 1).take(3000);
            for (at, way) in ways.iter().enumerate() {
                let found = samples.iter().filter(|sample| sample.way == at).count() as f64 / 3000.0;
                // A way has whole pairs of subjects, of which there are 49.
                assert!((found - way.share).abs() < 0.05, "{} {at} {found} {}", workload.name, way.share);
            }
            assert_eq!(samples, Source::new(workload, 1).take(3000));
        }
    }
}

//! The learned model of DyNN-Offload (sections 6.4.1 to 6.4.5): a sample and a network's structure in, the execution blocks
//! out, and from those the path.
//!
//! 128 features (the mean of the sample's word vectors, its length, and the matrix of the network's structure pooled to 24
//! numbers), two hidden layers, 160 outputs. The paper counts 800 neurons, 512 of them hidden and 75 KB of memory: 512 is
//! the sum of both hidden layers, and so it is here. One model serves all networks of a family.
//!
//! Where it deviates: outputs are trained on records that are scaled to mean 0 and variance 1 among the paths of one network
//! and bucket of sizes, both of which are known before a sample runs. Mapping compares an output
//! with the record of every path of the network, which are kept from when the path was first seen, instead of walking the
//! structure anew; where no path matches exactly the nearest in all numbers is taken, because several paths often have the
//! same number of operators.

pub mod misses;
mod network;
mod wide;

use std::collections::{BTreeMap, HashMap};

use crate::blocks::{NUMBERS, OUTPUTS};
use crate::operator::Nine;
use crate::workloads::samples::{LENGTHS, VECTOR};
use crate::workloads::{Sample, samples::Vectors};

pub use misses::Misses;
pub use network::{Derivative, Network, Training};

/// The features of a sample in a network.
pub const FEATURES: usize = 128;
/// Those that come from the network's structure.
const POOLED: usize = FEATURES - VECTOR - LENGTHS;

/// What of a network is told to the model, and how its outputs are understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Pooled rows of the structure's matrix.
    pooled: Vec<f32>,
    /// For each path, and bucket of sizes, what the model should say; scaled bucket by bucket, and what by.
    scaled: Vec<Vec<f32>>,
    scales: BTreeMap<u32, (Vec<f32>, Vec<f32>)>,
}

impl Known {
    /// A network by the matrix of its structure and the records of its paths, each with its bucket of sizes.
    pub fn new(matrix: &[Nine], records: Vec<Vec<f32>>, buckets: Vec<u32>) -> Known {
        let mut pooled = Vec::with_capacity(POOLED);
        let half = matrix.len().div_ceil(2).max(1);
        for part in matrix.chunks(half) {
            for at in 0..9 {
                pooled.push((part.iter().map(|row| row[at]).sum::<f64>().ln_1p() / 10.0) as f32);
            }
        }
        let zeros = |rows: &[Nine]| rows.iter().filter(|row| row.iter().all(|x| *x == 0.0)).count() as f32;
        pooled.resize(18, 0.0);
        pooled.extend([(matrix.len() as f32).ln_1p() / 10.0, zeros(matrix) / 16.0, 1.0]);
        pooled.resize(POOLED, 0.0);
        let mut scales = BTreeMap::new();
        for bucket in &buckets {
            let of = || records.iter().zip(&buckets).filter(|(_, b)| *b == bucket).map(|(record, _)| record);
            scales.entry(*bucket).or_insert_with(|| scales_of(of));
        }
        let scaled =
            |(record, bucket): (&Vec<f32>, &u32)| scale(record, &scales[bucket].0, &scales[bucket].1);
        let scaled = records.iter().zip(&buckets).map(scaled).collect();
        Known { pooled, scaled, scales }
    }
}

/// The features of a sample in a network, added to `out`.
pub fn features(vectors: &Vectors, sample: &Sample, known: &Known, out: &mut Vec<f32>) {
    vectors.embed(sample, out);
    out.extend_from_slice(&known.pooled);
}

/// A sample of a network, with the record that is right.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The sample.
    pub sample: &'a Sample,
    /// The network, as a position among those of the family.
    pub network: usize,
    /// The record, as a position among the network's.
    pub record: usize,
}

/// The learned model of one family.
#[derive(Clone)]
pub struct Learned {
    network: Network,
    vectors: Vectors,
    networks: Vec<Known>,
    scratch: (Vec<f32>, Vec<f32>, Vec<f32>),
}

impl Learned {
    /// A model with so many hidden neurons in two layers, before it has been trained, for these networks.
    pub fn new(networks: Vec<Known>, hidden: usize, seed: u64) -> Learned {
        let half = hidden / 2;
        Learned {
            network: Network::new(&[FEATURES, half, half, OUTPUTS], seed),
            vectors: Vectors::new(),
            scratch: Default::default(),
            networks,
        }
    }

    /// How many numbers it has learned.
    pub fn parameters(&self) -> usize {
        self.network.parameters()
    }

    /// Trains it on cases.
    pub fn train(&mut self, cases: &[Case<'_>], training: Training) {
        let mut inputs = Vec::with_capacity(cases.len() * FEATURES);
        for case in cases {
            features(&self.vectors, case.sample, &self.networks[case.network], &mut inputs);
        }
        let networks = &self.networks;
        self.network.train(&inputs, training, &mut |at, out, derivative| {
            let right = &networks[cases[at].network].scaled[cases[at].record];
            derivative
                .iter_mut()
                .zip(out.iter().zip(right))
                .for_each(|(d, (x, y))| *d = (x - y) / NUMBERS as f32);
        });
    }

    /// Inference: what the model says of a sample of a network, scaled as it was trained.
    pub fn infer(&mut self, sample: &Sample, network: usize) -> &[f32] {
        let (input, scratch, out) = &mut self.scratch;
        input.clear();
        features(&self.vectors, sample, &self.networks[network], input);
        self.network.infer(input, scratch, out);
        out
    }

    /// Mapping: which record an output means, of those that `fits` allows (the sizes of a batch are known before it runs).
    pub fn map(&self, output: &[f32], network: usize, fits: &dyn Fn(usize) -> bool) -> Option<usize> {
        let mut best = (f32::INFINITY, None);
        for (at, record) in self.networks[network].scaled.iter().enumerate().filter(|(at, _)| fits(*at)) {
            let mut sums = [0f32; 16];
            for (a, b) in output.chunks(16).zip(record.chunks(16)) {
                for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
                    *sum += (a - b) * (a - b);
                }
            }
            let distance: f32 = sums.iter().sum();
            if distance < best.0 {
                best = (distance, Some(at));
            }
        }
        best.1
    }

    /// An output in whole operators, block by block: what two outputs are compared by in the record of misses.
    pub fn whole(&self, output: &[f32], network: usize, bucket: u32) -> misses::Whole {
        let Some((mean, spread)) = self.networks[network].scales.get(&bucket) else {
            return Default::default();
        };
        let mut whole = [0; crate::blocks::BLOCKS];
        for (block, count) in whole.iter_mut().enumerate() {
            let at = block * NUMBERS;
            *count = (output[at] * spread[at] + mean[at]).round() as i16;
        }
        whole
    }

    /// Which record a sample is said to follow.
    pub fn predict(
        &mut self,
        sample: &Sample,
        network: usize,
        fits: &dyn Fn(usize) -> bool,
    ) -> Option<usize> {
        let output = self.infer(sample, network).to_vec();
        self.map(&output, network, fits)
    }
}

/// The means and spreads of records; what is the same in all of them is known without a sample.
fn scales_of<'r, I: Iterator<Item = &'r Vec<f32>>>(records: impl Fn() -> I) -> (Vec<f32>, Vec<f32>) {
    let count = records().count().max(1) as f32;
    let (mut mean, mut spread) = (vec![0f32; OUTPUTS], vec![0f32; OUTPUTS]);
    records().for_each(|record| mean.iter_mut().zip(record).for_each(|(m, x)| *m += x / count));
    records().for_each(|record| {
        let both = mean.iter().zip(record);
        spread.iter_mut().zip(both).for_each(|(s, (m, x))| *s += (x - m) * (x - m) / count);
    });
    spread.iter_mut().for_each(|s| *s = if *s > 1e-9 { s.sqrt() } else { 0.0 });
    (mean, spread)
}

fn scale(record: &[f32], mean: &[f32], spread: &[f32]) -> Vec<f32> {
    let one = |((x, m), s): ((&f32, &f32), &f32)| if *s > 0.0 { (x - m) / s } else { 0.0 };
    record.iter().zip(mean).zip(spread).map(one).collect()
}

/// The numbers of operators' types in a structure, as the comparison has them in place of idioms: pooled in the same way.
pub fn by_ids(names: &HashMap<usize, usize>) -> Vec<Nine> {
    let mut rows: Vec<(usize, usize)> = names.iter().map(|(id, count)| (*id, *count)).collect();
    rows.sort_unstable();
    rows.into_iter().map(|(id, count)| [id as f64, count as f64, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]).collect()
}

//! Centres of clusters: k-means on a sample.

use super::product;
use crate::insert::mix;
use crate::parallel;

/// How often centres move.
const ROUNDS: usize = 6;

/// How many centres so many vectors get: few enough that a query's table of them costs little.
pub(super) fn count(vectors: usize) -> usize {
    (vectors / 256).clamp(1, 128)
}

/// The squared distance.
pub(super) fn apart(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; 16];
    for (a, b) in a.chunks_exact(16).zip(b.chunks_exact(16)) {
        for lane in 0..16 {
            sums[lane] += (a[lane] - b[lane]) * (a[lane] - b[lane]);
        }
    }
    sums.iter().sum()
}

/// The nearest centre.
pub(super) fn nearest(centres: &[f32], width: usize, vector: &[f32]) -> usize {
    let mut best = (f32::INFINITY, 0);
    for (at, centre) in centres.chunks_exact(width).enumerate() {
        let distance = apart(centre, vector);
        if distance < best.0 {
            best = (distance, at);
        }
    }
    best.1
}

/// So many centres of these vectors, one after the other.
pub(super) fn learn(sample: &[Vec<f32>], count: usize, seed: u64, threads: usize) -> Vec<f32> {
    let width = sample.first().map_or(0, Vec::len);
    let count = count.min(sample.len());
    let mut centres = Vec::with_capacity(count * width);
    let start = |at: usize| (mix(seed, at as u64) % sample.len() as u64) as usize;
    (0..count).for_each(|at| centres.extend_from_slice(&sample[start(at)]));
    let mut tools = vec![(); threads.max(1)];
    for _ in 0..ROUNDS {
        let homes = parallel::each(&mut tools, sample.len(), |(), at| nearest(&centres, width, &sample[at]));
        let mut sums = vec![0.0; count * width];
        let mut members = vec![0u32; count];
        for (home, row) in homes.into_iter().zip(sample) {
            members[home] += 1;
            sums[home * width..][..width].iter_mut().zip(row).for_each(|(sum, n)| *sum += n);
        }
        for (at, members) in members.iter().enumerate().filter(|(_, members)| **members > 0) {
            let centre = centres[at * width..].iter_mut().zip(&sums[at * width..(at + 1) * width]);
            centre.for_each(|(c, sum)| *c = sum / *members as f32);
        }
    }
    debug_assert!(product(&centres, &centres).is_finite());
    centres
}

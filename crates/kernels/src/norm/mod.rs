//! Batch norm and layer norm as they are trained, with their gradients.
//!
//! Statistics are gathered piece by piece around each piece's own mean and merged in f64 (Chan's formula), so that a large
//! mean costs no digits.

mod batch;
mod layer;

pub(super) use batch::{batch, batch_backward};
pub(super) use layer::{layer, layer_backward};

use super::simd::{Lanes, PARTS, Sums, lanes};

/// Numbers that are read twice in a row: they fit the first-level cache.
const PIECE: usize = 4096;

/// The count, the mean and the sum of squares around it.
#[derive(Clone, Copy, Default)]
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn merge(&mut self, other: Moments) {
        let count = self.count + other.count;
        let delta = other.mean - self.mean;
        self.mean += delta * other.count / count;
        self.squares += other.squares + delta * delta * self.count * other.count / count;
        self.count = count;
    }

    fn add(&mut self, numbers: &[f32]) {
        for piece in numbers.chunks(PIECE) {
            let mean = sum(piece) / piece.len() as f32;
            let squares = squares_around(piece, mean);
            self.merge(Moments { count: piece.len() as f64, mean: mean.into(), squares: squares.into() });
        }
    }

    fn deviation(&self, epsilon: f32) -> f32 {
        (1.0 / (self.squares / self.count + f64::from(epsilon)).sqrt()) as f32
    }
}

/// Sums that are added to in turn, so that none has to wait for itself.
const CHAINS: usize = 4;

/// Σ x, or Σ (x − mean)².
#[inline(always)]
fn total<L: Lanes, const SQUARED: bool>(l: L, numbers: &[f32], mean: f32) -> f32 {
    let (mut sums, minus) = ([Sums::new(l); CHAINS], l.splat(-mean));
    let (many, rest) = numbers.split_at(numbers.len() / (CHAINS * PARTS) * (CHAINS * PARTS));
    let (some, few) = rest.split_at(rest.len() / PARTS * PARTS);
    for (numbers, chains) in [(many, CHAINS), (some, 1)] {
        for first in (0..numbers.len()).step_by(chains * PARTS) {
            for (chain, sum) in sums[..chains].iter_mut().enumerate() {
                for part in (0..PARTS).step_by(L::COUNT) {
                    let x = l.load(numbers, first + chain * PARTS + part);
                    let off = l.add(x, minus);
                    sum.add(l, part, if SQUARED { l.mul(off, off) } else { x });
                }
            }
        }
    }
    let [mut all, b, mut c, d] = sums;
    all.merge(l, b);
    c.merge(l, d);
    all.merge(l, c);
    let mut rest = 0.0;
    for x in few {
        rest += if SQUARED { (x - mean) * (x - mean) } else { *x };
    }
    all.total(l) + rest
}

lanes! {
    /// Σ x.
    fn sum(l; numbers: &[f32]) -> f32 {
        total::<L, false>(l, numbers, 0.0)
    }
}

lanes! {
    /// Σ (x − mean)².
    fn squares_around(l; numbers: &[f32], mean: f32) -> f32 {
        total::<L, true>(l, numbers, mean)
    }
}

//! A rotation at random that costs n log n: signs flipped and Hadamard transforms, over both ends of a length that is no
//! power of two.

use crate::insert::mix;

/// How often everything is mixed.
const ROUNDS: u64 = 3;

/// A rotation of vectors of one length, padded to whole words of bits.
pub(super) struct Rotation {
    padded: usize,
    /// The largest power of two in it.
    power: usize,
    signs: Vec<f32>,
}

/// The length of rotated vectors.
pub(super) fn padded(dim: usize) -> usize {
    dim.next_multiple_of(64)
}

impl Rotation {
    /// The rotation of this seed.
    pub(super) fn new(dim: usize, seed: u64) -> Rotation {
        let padded = padded(dim);
        let power = 1 << padded.ilog2();
        let scale = 1.0 / (power as f32).sqrt();
        let sign = |n: u64| if mix(seed, n) & 1 == 0 { scale } else { -scale };
        Rotation { padded, power, signs: (0..ROUNDS * padded as u64).map(sign).collect() }
    }

    /// How long vectors are.
    pub(super) fn padded(&self) -> usize {
        self.padded
    }

    /// Rotates a vector in place.
    pub(super) fn turn(&self, vector: &mut [f32]) {
        let rest = self.padded - self.power;
        for (round, signs) in self.signs.chunks_exact(self.padded).enumerate() {
            // Every round takes one end, by turns, so that all meet all.
            let start = if round % 2 == 0 { 0 } else { rest };
            let part = &mut vector[start..start + self.power];
            part.iter_mut().zip(&signs[start..]).for_each(|(n, sign)| *n *= sign);
            transform(part);
            if rest > 0 {
                let start = rest - start;
                let part = &mut vector[start..start + self.power];
                part.iter_mut().zip(&signs[start..]).for_each(|(n, sign)| *n *= sign);
                transform(part);
            }
        }
    }
}

/// The Hadamard transform of a power of two of numbers, but for the scale.
fn transform(numbers: &mut [f32]) {
    let mut half = 1;
    while half < numbers.len() {
        for pair in numbers.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_products_stay() {
        for dim in [1, 64, 100, 128, 200, 784] {
            let rotation = Rotation::new(dim, 4);
            let vector = |by: f32| {
                let mut v: Vec<f32> = (0..rotation.padded()).map(|n| (n as f32 * by).sin()).collect();
                v[dim..].fill(0.0);
                v
            };
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
            let (mut a, mut b) = (vector(0.3), vector(1.7));
            let before = (dot(&a, &a), dot(&a, &b));
            rotation.turn(&mut a);
            rotation.turn(&mut b);
            let after = (dot(&a, &a), dot(&a, &b));
            assert!((before.0 - after.0).abs() < 1e-3 * before.0.max(1.0), "{dim}: {before:?}, {after:?}");
            assert!((before.1 - after.1).abs() < 1e-3 * before.0.max(1.0), "{dim}: {before:?}, {after:?}");
            if dim > 64 {
                let most = a.iter().fold(0.0f32, |m, n| m.max(n.abs()));
                assert!(most * most < 0.3 * after.0, "{dim}: no number stands out");
            }
        }
    }
}

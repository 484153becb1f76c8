//! Sums in sixteen parts, whatever the vectors of the processor: all of them add in the same order.
//!
//! Written out with vectors, because of two sums in one loop over arrays the compiler makes pairs of single numbers.

use super::{Lanes, lanes};

/// The parts of a sum.
pub(crate) const PARTS: usize = 16;

/// A sum of vectors: its parts are one vector or two.
#[derive(Clone, Copy)]
pub(crate) struct Sums<L: Lanes>([L::Vector; 2]);

impl<L: Lanes> Sums<L> {
    /// Nothing.
    #[inline(always)]
    pub fn new(l: L) -> Sums<L> {
        Sums([l.splat(0.0); 2])
    }

    /// These parts.
    #[inline(always)]
    pub fn load(l: L, parts: &[f32]) -> Sums<L> {
        Sums([l.load(parts, 0), l.load(parts, PARTS - L::COUNT)])
    }

    /// Adds numbers to the parts from `part` on, which is a multiple of the numbers of a vector.
    #[inline(always)]
    pub fn add(&mut self, l: L, part: usize, numbers: L::Vector) {
        let sum = &mut self.0[part / L::COUNT];
        *sum = l.add(*sum, numbers);
    }

    /// Adds another sum, part by part.
    #[inline(always)]
    pub fn merge(&mut self, l: L, other: Sums<L>) {
        self.0 = [l.add(self.0[0], other.0[0]), l.add(self.0[1], other.0[1])];
    }

    /// Writes the parts.
    #[inline(always)]
    pub fn store(self, l: L, parts: &mut [f32]) {
        for part in (0..PARTS).step_by(L::COUNT) {
            l.store(self.0[part / L::COUNT], parts, part);
        }
    }

    /// The parts added up: the halves to each other, again and again.
    #[inline(always)]
    pub fn total(self, l: L) -> f32 {
        let mut parts = [0f32; PARTS];
        self.store(l, &mut parts);
        halves(&parts, |a, b| a + b)
    }
}

/// Combines the halves of some numbers, again and again.
#[inline(always)]
pub(crate) fn halves(parts: &[f32; PARTS], combine: impl Fn(f32, f32) -> f32) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|at| combine(parts[at], parts[at + 8]));
    let four: [f32; 4] = std::array::from_fn(|at| combine(eight[at], eight[at + 4]));
    combine(combine(four[0], four[2]), combine(four[1], four[3]))
}

lanes! {
    /// Adds neighbours to each other, again and again, until one is left of so many, which are a power of two. The sums are
    /// then the first numbers.
    pub(crate) fn add_neighbours(l; numbers: &mut [f32], many: usize) {
        let (mut left, mut len) = (many, numbers.len());
        while left > 1 {
            (left, len) = (left / 2, len / 2);
            for at in (0..len).step_by(L::COUNT) {
                let from = 2 * at;
                let whole = from + 2 * L::COUNT <= numbers.len();
                let [even, odd] = match whole {
                    true => l.part(l.load(numbers, from), l.load(numbers, from + L::COUNT)),
                    false => l.part(l.load_some(numbers, from), l.load_some(numbers, from + L::COUNT)),
                };
                let sums = l.add(even, odd);
                if whole { l.store(sums, numbers, at) } else { l.store_some(sums, numbers, at) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    lanes! {
        fn sum(l; numbers: &[f32]) -> f32 {
            let mut sums = Sums::new(l);
            for first in (0..numbers.len()).step_by(PARTS) {
                for part in (0..PARTS).step_by(L::COUNT) {
                    sums.add(l, part, l.load_some(numbers, first + part));
                }
            }
            sums.total(l)
        }
    }

    #[test]
    fn neighbours_become_one() {
        for (count, many) in [(1, 1), (1, 16), (3, 4), (9, 8), (25, 16), (16, 2), (40, 16)] {
            let numbers: Vec<f32> = (0..count * many).map(|i| (i % 7) as f32).collect();
            let mut sums = numbers.clone();
            add_neighbours(&mut sums, many);
            let expected: Vec<f32> = numbers.chunks(many).map(|some| some.iter().sum()).collect();
            assert_eq!(sums[..count], expected, "{count} times {many}");
        }
    }

    #[test]
    fn all_numbers_are_added_in_the_same_order() {
        for count in [0, 1, 7, 8, 15, 16, 17, 40, 1000] {
            let numbers: Vec<f32> = (0..count).map(|i| 1.0 / (1.0 + i as f32)).collect();
            let mut parts = [0f32; PARTS];
            numbers.iter().enumerate().for_each(|(i, x)| parts[i % PARTS] += x);
            assert_eq!(sum(&numbers), halves(&parts, |a, b| a + b), "{count}");
        }
    }
}

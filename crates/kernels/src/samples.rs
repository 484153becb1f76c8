//! A batch whose samples lie in one or several places: what a kernel sees that sums over a batch which is worked on in
//! parts (`tiercel_workload::parts`).

use tiercel_workload::parts;

/// How many parts there may be.
pub(super) const MOST: usize = parts::MOST as usize;

/// The samples of a batch, in order.
#[derive(Clone, Copy)]
pub(super) struct Samples<'a> {
    parts: [&'a [f32]; MOST],
    /// Samples of a part; the last may have fewer.
    step: usize,
    /// Numbers of a sample.
    size: usize,
}

impl<'a> Samples<'a> {
    /// Samples of `size` numbers that all lie in one place.
    pub fn one(numbers: &'a [f32], size: usize) -> Samples<'a> {
        Samples::new(std::iter::once(numbers), usize::MAX, size)
    }

    /// Samples of `size` numbers in parts of `step` each, of which the last may have fewer.
    pub fn new(parts: impl Iterator<Item = &'a [f32]>, step: usize, size: usize) -> Samples<'a> {
        let mut all: [&[f32]; MOST] = [&[]; MOST];
        all.iter_mut().zip(parts).for_each(|(to, part)| *to = part);
        Samples { parts: all, step: step.max(1), size }
    }

    /// The numbers from sample `at` on, to the end of its part.
    #[inline(always)]
    pub fn from(&self, at: usize) -> &'a [f32] {
        // Divisions take long, and there is mostly one part.
        let (part, at) = if at < self.step { (0, at) } else { (at / self.step, at % self.step) };
        &self.parts[part][at * self.size..]
    }

    /// How many of `count` samples from `at` on lie side by side.
    pub fn beside(&self, at: usize, count: usize) -> usize {
        count.min(self.step - at % self.step)
    }

    /// Numbers of one sample, counted from the first of the first sample.
    pub fn numbers(&self, range: std::ops::Range<usize>) -> &'a [f32] {
        &self.from(range.start / self.size)[range.start % self.size..][..range.len()]
    }
}

//! Better orders for the skyline, for any number of blocks: the wheel that squeaks gets the grease.
//!
//! Squeaky wheel optimisation (Joslin and Clements 1999): pack, find the blocks that reach too high, put them further
//! forward in the order, pack again. Before that, each packing is mended where it is easy: blocks that reach
//! too high are lifted out and dropped into gaps, the largest first.

use fastrand::Rng;

use super::clock::Clock;
use super::problem::{Block, Problem, lowest};
use super::skyline;

/// How far forward a block goes, in units of the logarithm of its lifetime.
const GREASE: f64 = 0.5;
/// The most blocks that are dropped into gaps one by one.
const DROPPED: usize = 600;

/// An order that learns.
pub(super) struct Squeaky<'a> {
    problem: &'a Problem,
    keys: Vec<f64>,
    /// Blocks by birth, for finding those alive at a time.
    births: Vec<u32>,
    longest: u32,
}

impl<'a> Squeaky<'a> {
    /// Begins with the order of these powers of lifetime and size.
    pub fn new(problem: &'a Problem, length: f64, size: f64) -> Squeaky<'a> {
        let key =
            |block: &Block| length * (block.sections().len() as f64).ln() + size * (block.size as f64).ln();
        let mut births: Vec<u32> = (0..problem.blocks.len() as u32).collect();
        births.sort_by_key(|k| problem.blocks[*k as usize].from);
        let longest = problem.blocks.iter().map(|block| block.to - block.from).max().unwrap_or(0);
        Squeaky { problem, keys: problem.blocks.iter().map(key).collect(), births, longest }
    }

    /// The next packing, mended towards `target`.
    pub fn pack(&mut self, target: u64, rng: &mut Rng, clock: &Clock) -> Vec<u64> {
        let mut order: Vec<u32> = (0..self.keys.len() as u32).collect();
        order.sort_by(|a, b| self.keys[*b as usize].total_cmp(&self.keys[*a as usize]));
        let mut offsets = skyline::pack(self.problem, &order);
        let high: Vec<u32> = order.into_iter().filter(|k| self.problem.end(*k, &offsets) > target).collect();
        for &k in &high {
            self.keys[k as usize] += GREASE * (0.5 + rng.f64());
        }
        if high.len() <= DROPPED {
            self.drop(high, &mut offsets, target, clock);
        }
        offsets
    }

    /// Lifts blocks out, and drops each into the lowest gap that holds it.
    fn drop(&self, mut high: Vec<u32>, offsets: &mut [u64], target: u64, clock: &Clock) {
        let blocks = &self.problem.blocks;
        high.sort_by_key(|k| std::cmp::Reverse(blocks[*k as usize].size));
        let before: Vec<u64> = high.iter().map(|k| offsets[*k as usize]).collect();
        let mut lifted = vec![false; blocks.len()];
        high.iter().for_each(|k| lifted[*k as usize] = true);
        for (at, &k) in high.iter().enumerate() {
            let block = &blocks[k as usize];
            let mut taken = self.problem.blocked_for(block);
            let from = self.births.partition_point(|o| blocks[*o as usize].from + self.longest <= block.from);
            let near = self.births[from..].iter().take_while(|o| blocks[**o as usize].from < block.to);
            for &other in near.filter(|o| !lifted[**o as usize] && blocks[**o as usize].meets(block)) {
                taken.push((offsets[other as usize], self.problem.end(other, offsets)));
            }
            taken.sort_unstable();
            let offset = lowest(0, block, &taken);
            if offset + block.size > target.max(before[at] + block.size) || clock.over() {
                // Worse than it was: leave all as they were.
                high.iter().zip(&before).for_each(|(k, offset)| offsets[*k as usize] = *offset);
                return;
            }
            offsets[k as usize] = offset;
            lifted[k as usize] = false;
        }
    }
}

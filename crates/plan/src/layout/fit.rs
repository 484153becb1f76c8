//! One block after the other, each into a gap among those that lie already; and better orders for it.
//!
//! The order decides. Large blocks first is the known good one ("greedy by size" of Pisarchyk and Lee, "Efficient Memory
//! Management for Deep Neural Net Inference", 2020); from there the blocks that reach highest are moved forward in the
//! order, as long as the peak does not rise (an iterated greedy search).

use fastrand::Rng;

use super::clock::Clock;
use super::meeting::Meeting;
use super::problem::{Block, Problem};

/// Which gap a block takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    Lowest,
    Tightest,
}

/// Pairs that meet, for every block, from which on all blocks that lie are gone through by offset: else those that meet
/// the one to place are found, and sorted.
const CROWD: u64 = 64;

/// Places blocks in a given order; keeps what all orders share.
pub(super) struct Fit<'a> {
    problem: &'a Problem,
    meeting: Meeting,
    crowded: bool,
    taken: Vec<(u64, u64)>,
    /// Blocks and obstacles that lie, by offset: where, and when.
    lying: Vec<(u64, u64, u32, u32)>,
}

impl<'a> Fit<'a> {
    pub fn new(problem: &'a Problem) -> Fit<'a> {
        let crowded = problem.pairs() > CROWD * problem.blocks.len() as u64;
        Fit { problem, meeting: Meeting::new(problem), crowded, taken: Vec::new(), lying: Vec::new() }
    }

    /// Places all blocks in this order.
    pub fn pack(&mut self, order: &[u32], gap: Gap) -> Vec<u64> {
        let mut offsets = vec![u64::MAX; self.problem.blocks.len()];
        if self.crowded {
            let fixed = self.problem.obstacles.iter();
            self.lying.clear();
            self.lying.extend(fixed.map(|(block, at)| (*at, at + block.size, block.from, block.to)));
            self.lying.sort_unstable();
        }
        for &k in order {
            let block = &self.problem.blocks[k as usize];
            offsets[k as usize] = if self.crowded {
                let meets = |lies: &&(u64, u64, u32, u32)| lies.2 < block.to && block.from < lies.3;
                let taken = self.lying.iter().filter(meets).map(|lies| (lies.0, lies.1));
                let at = place(block, gap, taken);
                let lies = (at, at + block.size, block.from, block.to);
                let behind = self.lying.partition_point(|other| *other < lies);
                self.lying.insert(behind, lies);
                at
            } else {
                self.find_taken(block, &offsets);
                place(block, gap, self.taken.iter().copied())
            };
        }
        offsets
    }

    /// Finds the stretches that are taken where a block would meet what takes them.
    fn find_taken(&mut self, block: &Block, offsets: &[u64]) {
        self.taken.clear();
        for other in self.meeting.near(block) {
            let (offset, other) = (offsets[other as usize], &self.problem.blocks[other as usize]);
            if offset != u64::MAX && other.meets(block) {
                self.taken.push((offset, offset + other.size));
            }
        }
        self.taken.extend(self.problem.blocked_for(block));
        self.taken.sort_unstable();
    }

    /// Looks for a better order over `rounds` rounds, until all blocks end at `target` or below.
    pub fn improve(
        &mut self,
        order: &mut Vec<u32>,
        offsets: &mut Vec<u64>,
        target: u64,
        rounds: usize,
        rng: &mut Rng,
        clock: &Clock,
    ) {
        let problem = self.problem;
        let mut peak = problem.peak(offsets);
        for _ in 0..rounds {
            if peak <= target || clock.over() {
                return;
            }
            let mut trial = order.clone();
            let high: Vec<u32> = order
                .iter()
                .copied()
                .filter(|k| problem.end(*k, offsets) > target.max(peak / 100 * 99))
                .collect();
            if high.is_empty() {
                return;
            }
            let k = high[rng.usize(0..high.len())];
            let from = trial.iter().position(|other| *other == k).unwrap_or(0);
            let to = rng.usize(0..=from);
            trial.remove(from);
            trial.insert(to, k);
            // A little disorder, so that the same way is not gone twice.
            if trial.len() > 2 && rng.u8(0..4) == 0 {
                let at = rng.usize(1..trial.len());
                trial.swap(at - 1, at);
            }
            let gap = if rng.u8(0..4) == 0 { Gap::Tightest } else { Gap::Lowest };
            let found = self.pack(&trial, gap);
            let reached = problem.peak(&found);
            if reached <= peak {
                (*order, *offsets, peak) = (trial, found, reached);
            }
        }
    }
}

/// The offset for a block among the stretches taken, which come by offset.
fn place(block: &Block, gap: Gap, taken: impl Iterator<Item = (u64, u64)>) -> u64 {
    let mut best: Option<(u64, u64)> = None;
    let mut floor = 0u64;
    for (start, end) in taken {
        let at = floor.next_multiple_of(block.grain);
        if at + block.size <= start {
            if gap == Gap::Lowest {
                return at;
            }
            let spare = start - at - block.size;
            if best.is_none_or(|(least, _)| spare < least) {
                best = Some((spare, at));
            }
        }
        floor = floor.max(end);
    }
    best.map_or(floor.next_multiple_of(block.grain), |(_, at)| at)
}

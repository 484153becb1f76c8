//! Brings a packing down below a target: blocks that reach too high go where they push the least aside.
//!
//! What is pushed aside waits for a place of its own, below the target like all others; when nobody waits any more, the
//! packing is done. A block that was pushed aside often becomes dear, so that others are tried in its stead (after the guided
//! ejection search of Nagata and Bräysy, "A Powerful Route Minimization Heuristic for the Vehicle Routing Problem with
//! Time Windows", 2009). One step looks at the blocks that live when one block does, and at nothing else, so it
//! mends packings of any number of blocks as long as they are wrong in a few places only.

use fastrand::Rng;

use super::clock::Clock;
use super::meeting::Meeting;
use super::problem::Problem;

/// Nowhere yet.
const NOWHERE: u64 = u64::MAX;

/// A packing in which some blocks wait for a place.
pub(super) struct Ejection<'a> {
    problem: &'a Problem,
    meeting: Meeting,
    target: u64,
    offsets: Vec<u64>,
    waiting: Vec<u32>,
    /// How often each block has been pushed aside.
    pushed: Vec<u32>,
    scratch: Scratch,
}

/// The blocks around one, kept between steps.
#[derive(Default)]
struct Scratch {
    /// Start, end, number and price of those that live when it does.
    around: Vec<(u64, u64, u32, f64)>,
    starts: Vec<(u64, f64)>,
    ends: Vec<(u64, f64)>,
}

impl<'a> Ejection<'a> {
    /// Begins with a packing, of a problem without obstacles; those of its blocks wait that end above the target.
    pub fn new(problem: &'a Problem, offsets: &[u64], target: u64) -> Ejection<'a> {
        debug_assert!(problem.obstacles.is_empty());
        let mut ejection = Ejection {
            problem,
            meeting: Meeting::new(problem),
            target,
            offsets: offsets.to_vec(),
            waiting: Vec::new(),
            pushed: vec![0; problem.blocks.len()],
            scratch: Scratch::default(),
        };
        for k in 0..problem.blocks.len() as u32 {
            if problem.end(k, offsets) > target {
                ejection.offsets[k as usize] = NOWHERE;
                ejection.waiting.push(k);
            }
        }
        ejection
    }

    /// Goes on for so many steps; the offsets once nobody waits.
    pub fn run(mut self, steps: usize, rng: &mut Rng, clock: &Clock) -> Option<Vec<u64>> {
        for step in 0..steps {
            if self.waiting.is_empty() || (step % 16 == 0 && clock.over()) {
                break;
            }
            let blocks = &self.problem.blocks;
            // The largest first, and now and then any.
            let at = if rng.u8(0..8) == 0 {
                rng.usize(0..self.waiting.len())
            } else {
                let area = |at: &usize| blocks[self.waiting[*at] as usize].area();
                (0..self.waiting.len()).max_by_key(area).unwrap_or(0)
            };
            let k = self.waiting.swap_remove(at);
            self.insert(k, rng);
        }
        self.waiting.is_empty().then_some(self.offsets)
    }

    /// Puts a block where it pushes the least aside.
    fn insert(&mut self, k: u32, rng: &mut Rng) {
        self.look_around(k);
        let block = &self.problem.blocks[k as usize];
        let Some(room) = self.target.checked_sub(block.size) else { return self.waiting.push(k) };
        let up = |at: u64| at.next_multiple_of(block.grain);
        let down = |at: u64| at - at % block.grain;
        let mut best = (f64::INFINITY, 0);
        let scratch = &self.scratch;
        let tops = scratch.ends.iter().map(|(end, _)| up(*end));
        let bottoms = scratch.starts.iter().filter_map(|(start, _)| start.checked_sub(block.size)).map(down);
        for at in std::iter::once(0).chain(tops).chain(bottoms).filter(|at| *at <= room) {
            let price = scratch.price(at, at + block.size) * (1.0 + 0.2 * rng.f64());
            if price < best.0 {
                best = (price, at);
            }
        }
        let (start, end) = (best.1, best.1 + block.size);
        for &(from, to, other, _) in &scratch.around {
            if from < end && start < to {
                self.offsets[other as usize] = NOWHERE;
                self.pushed[other as usize] += 1;
                self.waiting.push(other);
            }
        }
        self.offsets[k as usize] = start;
    }

    /// Lists what lies around a block.
    fn look_around(&mut self, k: u32) {
        let block = &self.problem.blocks[k as usize];
        let Scratch { around, starts, ends } = &mut self.scratch;
        around.clear();
        for other in self.meeting.near(block) {
            let (offset, other_block) = (self.offsets[other as usize], &self.problem.blocks[other as usize]);
            if offset != NOWHERE && other_block.meets(block) {
                let price = (other_block.area() as f64).powi(2) * f64::from(1 + self.pushed[other as usize]);
                around.push((offset, offset + other_block.size, other, price));
            }
        }
        // Running sums of prices, by start and by end.
        let sums = |list: &mut Vec<(u64, f64)>, pick: fn(&(u64, u64, u32, f64)) -> u64| {
            list.clear();
            list.extend(around.iter().map(|entry| (pick(entry), entry.3)));
            list.sort_unstable_by_key(|(at, _)| *at);
            let mut sum = 0.0;
            for (_, price) in list {
                sum += *price;
                *price = sum;
            }
        };
        sums(starts, |entry| entry.0);
        sums(ends, |entry| entry.1);
    }
}

impl Scratch {
    /// What it costs to clear a stretch: the price of all that begins below its end and does not end below its start.
    fn price(&self, start: u64, end: u64) -> f64 {
        let sum = |list: &[(u64, f64)], to: usize| if to == 0 { 0.0 } else { list[to - 1].1 };
        let begun = sum(&self.starts, self.starts.partition_point(|(at, _)| *at < end));
        let ended = sum(&self.ends, self.ends.partition_point(|(at, _)| *at <= start));
        (begun - ended).max(0.0)
    }
}

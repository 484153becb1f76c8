//! From quick packings to a proof: the engines in turn, each from where the one before left off.
//!
//! ```text
//! skyline ──► fit ──► small: exact search at the goal, with growing limits, and between bound and best
//!                 └─► large: repair towards the goal
//! ```

use fastrand::Rng;

use super::clock::Clock;
use super::exact::Outcome;
use super::fit::{Fit, Gap};
use super::portfolio::Portfolio;
use super::problem::{Problem, lowest};
use super::{repair, skyline};

/// Pairs of blocks that meet, up to which blocks are fitted one by one.
const FIT_PAIRS: u64 = 4_000_000;
/// Blocks and pairs up to which the exact search takes all at once.
const EXACT_BLOCKS: usize = 3_000;
const EXACT_PAIRS: u64 = 1_000_000;

/// A packing on its way down.
pub(super) struct Solver<'a> {
    problem: &'a Problem,
    /// At this peak we are done.
    goal: u64,
    /// Whether a lower peak is worth having even if the goal is out of reach.
    pub proven: u64,
    pub best: Vec<u64>,
    pub peak: u64,
    rng: Rng,
    clock: &'a Clock,
    watch: &'a mut dyn FnMut(u64, u64),
}

impl<'a> Solver<'a> {
    /// Packs quickly. A goal below the bound is moved up to it when the search begins.
    pub fn new(
        problem: &'a Problem,
        bound: u64,
        goal: u64,
        seed: u64,
        clock: &'a Clock,
        watch: &'a mut dyn FnMut(u64, u64),
    ) -> Solver<'a> {
        let mut solver = Solver {
            problem,
            goal,
            proven: bound,
            best: Vec::new(),
            peak: u64::MAX,
            rng: Rng::with_seed(seed),
            clock,
            watch,
        };
        solver.quick();
        solver
    }

    /// Whether the goal is reached.
    pub fn done(&self) -> bool {
        self.peak <= self.goal.max(self.proven)
    }

    fn take(&mut self, offsets: Vec<u64>) {
        let fixed = self.problem.obstacles.iter().map(|(block, at)| at + block.size).max().unwrap_or(0);
        let peak = self.problem.peak(&offsets).max(fixed);
        if self.best.is_empty() || peak < self.peak {
            (self.best, self.peak) = (offsets, peak);
        }
        (self.watch)(self.peak, self.proven);
    }

    /// Packings that take no search.
    fn quick(&mut self) {
        let orders = orders(self.problem);
        for order in &orders {
            self.take(skyline::pack(self.problem, order));
            if self.done() || self.clock.over() {
                return;
            }
        }
        if self.problem.pairs() > FIT_PAIRS {
            return;
        }
        let mut fit = Fit::new(self.problem);
        for order in &orders {
            for gap in [Gap::Lowest, Gap::Tightest] {
                self.take(fit.pack(order, gap));
                if self.done() || self.clock.over() {
                    return;
                }
            }
        }
    }

    /// Searches until the goal is reached, or proven out of reach, or the time is over.
    pub fn search(&mut self) {
        let small = self.problem.blocks.len() <= EXACT_BLOCKS && self.problem.pairs() <= EXACT_PAIRS;
        let mut fit = small.then(|| Fit::new(self.problem));
        let mut order = by_offset(&self.best);
        for effort in 0..40 {
            if self.done() || self.clock.over() {
                return;
            }
            if small && self.exact(4000 << effort.min(40)) {
                return;
            }
            if let Some(fit) = &mut fit {
                let mut offsets = self.best.clone();
                let goal = self.goal.max(self.proven);
                fit.improve(&mut order, &mut offsets, goal, 50 << effort.min(10), &mut self.rng, self.clock);
                self.take(offsets);
            }
            self.descend(16 << effort.min(20));
        }
    }

    /// Exact search at the goal, then at easier aims. True once there is nothing left to find.
    fn exact(&mut self, nodes: u64) -> bool {
        let goal = self.goal.max(self.proven);
        let aims = [goal, goal + (self.peak - goal) / 4, goal + (self.peak - goal) / 2, self.peak - 1];
        for (at, aim) in aims.into_iter().enumerate() {
            if self.done() || self.clock.over() {
                break;
            }
            if aim < self.proven || aim >= self.peak || (at > 0 && aim == aims[at - 1]) {
                continue;
            }
            let nodes = if at == 0 { nodes } else { nodes / 8 };
            let mut search = Portfolio::new(self.problem, aim);
            match search.run(nodes, &mut self.rng, self.clock) {
                Outcome::Solved => self.take(search.offsets()),
                Outcome::Failed => self.proven = self.proven.max(aim + 1),
                Outcome::Stopped => {}
            }
            (self.watch)(self.peak, self.proven);
        }
        self.done()
    }

    /// Repairs towards the goal by steps: half of the way, and less where that fails.
    fn descend(&mut self, patience: usize) {
        let mut share = 1;
        while !self.done() && !self.clock.over() && share <= 16 {
            let goal = self.goal.max(self.proven);
            let target = self.peak - ((self.peak - goal) / share).max(1);
            let mut offsets = self.best.clone();
            if repair::repair(self.problem, &mut offsets, target, patience, &mut self.rng, self.clock) {
                self.take(offsets);
            } else {
                share *= 2;
            }
        }
    }
}

/// Orders that do well: by lifetime, by size, by area; longest, largest first.
fn orders(problem: &Problem) -> Vec<Vec<u32>> {
    let by = |key: &dyn Fn(u32) -> u128| {
        let mut order: Vec<u32> = (0..problem.blocks.len() as u32).collect();
        order.sort_by_cached_key(|k| std::cmp::Reverse(key(*k)));
        order
    };
    let size = |k: u32| u128::from(problem.blocks[k as usize].size);
    let length = |k: u32| problem.blocks[k as usize].sections().len() as u128;
    vec![
        by(&|k| (length(k) << 64) + size(k)),
        by(&|k| (size(k) << 32) + length(k)),
        by(&|k| size(k) * length(k)),
    ]
}

fn by_offset(offsets: &[u64]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..offsets.len() as u32).collect();
    order.sort_by_key(|k| offsets[*k as usize]);
    order
}

/// A peak that no packing can undercut: the most bytes alive at a time, alignment counted.
pub(super) fn bound(problem: &Problem) -> u64 {
    // If every offset is a multiple of a grain, every block but the top one takes a multiple of it.
    let grains = problem.blocks.iter().map(|block| block.grain);
    let grain = problem.obstacles.iter().map(|(_, at)| *at).chain(grains).fold(0, gcd).max(1);
    let mut padded = problem.clone();
    let mut most = 0;
    let all = padded.blocks.iter_mut().chain(padded.obstacles.iter_mut().map(|(block, _)| block));
    for block in all {
        let size = block.size.next_multiple_of(grain);
        most = most.max(size - block.size);
        block.size = size;
    }
    let live = padded.load().into_iter().max().unwrap_or(0).saturating_sub(most);
    let live = live.max(problem.load().into_iter().max().unwrap_or(0));
    let fixed = problem.obstacles.iter().map(|(block, at)| at + block.size).max().unwrap_or(0);
    let alone = |block| lowest(0, block, &problem.blocked_for(block)) + block.size;
    let alone = problem.blocks.iter().map(alone).max().unwrap_or(0);
    live.max(fixed).max(alone)
}

/// The greatest common divisor.
pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

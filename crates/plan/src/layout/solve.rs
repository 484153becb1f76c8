//! From quick packings to a proof: the engines in turn, each from where the one before left off.
//!
//! ```text
//! skylines ──► skylines that mind waste ──► few blocks: large ones before small ones; fit; exact search at the goal,
//!                      where memory is full │  with growing limits, and between bound and best; repair
//!                                          └► many: more such skylines, and ejection
//! ```

use fastrand::Rng;

use super::abreast::abreast;
use super::clock::Clock;
use super::eject::Ejection;
use super::exact::Outcome;
use super::fit::{Fit, Gap};
use super::levels;
use super::portfolio::Portfolio;
use super::problem::{Problem, lowest};
use super::repair;
use super::skyline::{self, Dear};

/// Pairs of blocks that meet, up to which blocks are fitted one by one.
const FIT_PAIRS: u64 = 4_000_000;
/// Blocks and pairs up to which the exact search takes all at once.
const EXACT_BLOCKS: usize = 3_000;
const EXACT_PAIRS: u64 = 1_000_000;

/// Exact searches that run side by side.
const WIDTH: usize = 2;
/// How large packings differ: the order, among how many blocks of it to choose, and how steeply waste becomes dearer
/// towards the peak.
const LEANINGS: [(usize, usize, i32); 8] = [
    (0, 16, 30),
    (0, 64, 30),
    (2, 64, 30),
    (0, 64, 100),
    (0, 128, 20),
    (2, 64, 60),
    (0, 32, 60),
    (2, 128, 100),
];
/// Nodes of the first search for each size of blocks.
const LEVEL_NODES: u64 = 4000;
/// Blocks that are pushed in before a packing is given up.
const EJECTIONS: usize = 100;

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
        for (order, among, steepness) in &LEANINGS[..2] {
            let dear = Dear::new(self.problem, *steepness);
            self.take(skyline::pack_closely(self.problem, &orders[*order], *among, &dear));
            if self.done() || self.clock.over() {
                return;
            }
        }
        self.levels(LEVEL_NODES);
        if self.done() || self.problem.pairs() > FIT_PAIRS {
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

    /// Packs large blocks before small ones, with a search of so many nodes for each size.
    fn levels(&mut self, nodes: u64) {
        let goal = self.goal.max(self.proven);
        if self.few() {
            let found = levels::pack(self.problem, goal, nodes, &mut self.rng, &self.clock.uncounted());
            found.into_iter().for_each(|offsets| self.take(offsets));
        }
    }

    /// Whether blocks are few enough for exact search.
    fn few(&self) -> bool {
        self.problem.blocks.len() <= EXACT_BLOCKS && self.problem.pairs() <= EXACT_PAIRS
    }

    /// Searches until the goal is reached, or proven out of reach, or the time is over.
    pub fn search(&mut self) {
        if self.few() {
            self.search_few();
        } else {
            self.search_many();
        }
    }

    /// For few blocks: exact search, better orders and repairs in turn, each longer from round to round.
    fn search_few(&mut self) {
        let mut fit = Fit::new(self.problem);
        let mut order = by_offset(&self.best);
        let mut at_goal = None;
        for effort in 0..40 {
            if self.done() || self.clock.over() || self.exact(&mut at_goal, 4000 << effort) {
                return;
            }
            self.levels(LEVEL_NODES << effort);
            let mut offsets = self.best.clone();
            let goal = self.goal.max(self.proven);
            fit.improve(&mut order, &mut offsets, goal, 50 << effort.min(10), &mut self.rng, self.clock);
            self.take(offsets);
            self.repair(16 << effort.min(20));
        }
    }

    /// For many blocks: packings that differ in how near the peak they mind waste, two at a time, and blocks that reach too
    /// high pushed in among the others.
    fn search_many(&mut self) {
        let orders = orders(self.problem);
        let mut leanings =
            LEANINGS.map(|(order, among, steepness)| (order, among, Dear::new(self.problem, steepness)));
        let problem = self.problem;
        for round in 1.. {
            if self.done() || self.clock.over() {
                return;
            }
            let goal = self.goal.max(self.proven);
            let pair = &mut leanings[2 * round % LEANINGS.len()..][..2];
            let run = |(order, among, dear): &mut (usize, usize, Dear)| {
                let offsets = skyline::pack_closely(problem, &orders[*order], *among, dear);
                dear.learn(problem, &offsets, goal);
                offsets
            };
            abreast(pair.iter_mut(), run).into_iter().for_each(|offsets| self.take(offsets));
            if self.problem.obstacles.is_empty() {
                self.eject(EJECTIONS);
            }
        }
    }

    /// Exact search at the goal, which goes on from round to round, then at easier aims. True once there is nothing left
    /// to find.
    fn exact(&mut self, at_goal: &mut Option<(u64, Portfolio)>, nodes: u64) -> bool {
        let goal = self.goal.max(self.proven);
        let width = if self.clock.counts() { 1 } else { WIDTH };
        let aims = [goal, goal + (self.peak - goal) / 4, goal + (self.peak - goal) / 2, self.peak - 1];
        for (at, aim) in aims.into_iter().enumerate() {
            if self.done() || self.clock.over() {
                break;
            }
            if aim < self.proven || aim >= self.peak || (at > 0 && aim == aims[at - 1]) {
                continue;
            }
            let mut other;
            let (search, nodes) = if at == 0 {
                let kept = at_goal.take().filter(|(aimed, _)| *aimed == aim);
                let (_, search) =
                    at_goal.insert(kept.unwrap_or_else(|| (aim, Portfolio::new(self.problem, aim, width))));
                (search, nodes)
            } else {
                other = Portfolio::new(self.problem, aim, width);
                (&mut other, nodes / 8)
            };
            match search.run(nodes, &mut self.rng, self.clock) {
                Outcome::Solved => self.take(search.offsets()),
                Outcome::Failed => self.proven = self.proven.max(aim + 1),
                Outcome::Stopped => {}
            }
            (self.watch)(self.peak, self.proven);
        }
        self.done()
    }

    /// Pushes blocks that are too high in among the others.
    fn eject(&mut self, steps: usize) {
        self.descend(|problem, best, target, rng, clock| {
            Ejection::new(problem, best, target).run(steps, rng, clock)
        });
    }

    /// Lifts some blocks out around one that is too high, and places them anew.
    fn repair(&mut self, patience: usize) {
        self.descend(|problem, best, target, rng, clock| {
            let mut offsets = best.to_vec();
            repair::repair(problem, &mut offsets, target, patience, rng, clock).then_some(offsets)
        });
    }

    /// Goes down towards the goal by steps: all of the way, and less where that fails.
    fn descend(&mut self, mut mend: impl FnMut(&Problem, &[u64], u64, &mut Rng, &Clock) -> Option<Vec<u64>>) {
        let mut share = 1;
        while !self.done() && !self.clock.over() && share <= 16 {
            let goal = self.goal.max(self.proven);
            let target = self.peak - ((self.peak - goal) / share).max(1);
            match mend(self.problem, &self.best, target, &mut self.rng, self.clock) {
                Some(offsets) => self.take(offsets),
                None => share *= 2,
            }
        }
    }
}

/// Orders that do well: by lifetime, by size, by area; longest, largest first.
pub(super) fn orders(problem: &Problem) -> Vec<Vec<u32>> {
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

//! Runs of the exact search with one taste after another, each for a while.
//!
//! How long a search takes depends on its first choices far more than on anything else: most runs solve a hard
//! instance at once or not at all (Gomes, Selman, Crato and Kautz, "Heavy-Tailed Phenomena in Satisfiability and
//! Constraint Satisfaction Problems", 2000). So tastes take turns with limits that grow by rounds, first some that do
//! well on average, then random ones; failures that one run proved are known to the next.

use fastrand::Rng;

use super::abreast::abreast;
use super::clock::Clock;
use super::exact::{Outcome, Search, Taste, Tie};
use super::problem::Problem;

/// Weights of lifetime and size, as powers, that make good orders.
const ORDERS: [(f64, f64); 6] = [(0.3, 1.0), (1.0, 1.0), (1.0, 0.3), (-0.3, 1.0), (1.0, 0.0), (0.0, 1.0)];
/// Nodes of the first runs, and how they grow from one round of as many runs as there are orders to the next.
const FIRST_LIMIT: f64 = 600.0;
const GROWTH: f64 = 1.4;

/// A search for offsets within one capacity that can be taken up again.
pub(super) struct Portfolio {
    /// As many as run at a time.
    searches: Vec<Search>,
    solved: usize,
    blocks: Vec<(f64, f64)>,
    runs: usize,
}

impl Portfolio {
    /// No search yet; `width` of them will run at a time.
    pub fn new(problem: &Problem, capacity: u64, width: usize) -> Portfolio {
        let logarithms = problem.blocks.iter().map(|block| {
            let sections = f64::from(block.to - block.from);
            (sections.ln(), (block.size as f64).ln())
        });
        let searches = (0..width.max(1)).map(|_| Search::new(problem, capacity)).collect();
        Portfolio { searches, solved: 0, blocks: logarithms.collect(), runs: 0 }
    }

    /// Searches on, over about `nodes` nodes more in each search.
    pub fn run(&mut self, nodes: u64, rng: &mut Rng, clock: &Clock) -> Outcome {
        let mut left = nodes;
        while left > 0 && !clock.over() {
            let limit = FIRST_LIMIT * GROWTH.powi((self.runs / ORDERS.len()) as i32);
            let limit = (limit as u64).min(left);
            let outcomes = self.runs(limit, rng, clock);
            // The first that came to an end counts, whichever was quicker: the result depends on the seed alone.
            if let Some(at) = outcomes.iter().position(|outcome| *outcome != Outcome::Stopped) {
                self.solved = at;
                return outcomes[at];
            }
            left -= limit;
        }
        Outcome::Stopped
    }

    /// One run of each search, side by side.
    fn runs(&mut self, limit: u64, rng: &mut Rng, clock: &Clock) -> Vec<Outcome> {
        let mut tastes = Vec::new();
        for _ in &self.searches {
            tastes.push(self.taste(rng));
            self.runs += 1;
        }
        let runs =
            self.searches.iter_mut().zip(&tastes).map(|(search, taste)| (search, taste, clock.clone()));
        abreast(runs, |(search, taste, clock)| search.run(taste, limit, &clock))
    }

    /// The offsets, once it is solved.
    pub fn offsets(&self) -> Vec<u64> {
        self.searches[self.solved].offsets().to_vec()
    }

    /// The taste of the next run.
    fn taste(&self, rng: &mut Rng) -> Taste {
        let mut between = |low: f64, high: f64| low + (high - low) * rng.f64();
        let known = ORDERS.get(self.runs).copied();
        let (length, size) = known.unwrap_or_else(|| (between(-0.5, 1.2), between(0.1, 1.2)));
        let noise = if known.is_some() { 0.0 } else { between(0.0, 3.5) };
        let [waste, wall, level] = match known {
            Some(_) => [1.0; 3],
            None => [0; 3].map(|_| between(0.0, 2.0)),
        };
        let fewest = known.is_some() || between(0.0, 1.0) < 0.6;
        let lowest = known.is_none() && between(0.0, 1.0) < 0.5;
        let priority =
            self.blocks.iter().map(|(l, s)| length * l + size * s + noise * between(-0.5, 0.5)).collect();
        let tie = match rng.u8(0..6) {
            _ if known.is_some() => Tie::Tightest,
            0 => Tie::Lowest,
            1 => Tie::Earliest,
            2 => Tie::Latest,
            _ => Tie::Tightest,
        };
        Taste { priority, waste, wall, level, fewest, tie, lowest }
    }
}

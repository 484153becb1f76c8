//! The default solver: prices for a lower bound, construction and local search for a plan, until the two meet.

use std::time::{Duration, Instant};

use crate::bound::dual::Dual;
use crate::bound::paths::{Path, States, straighten};
use crate::model::problem::Problem;
use crate::search::asynchronous;
use crate::search::branch::Search;
use crate::search::primal::{Calendar, Primal, construct, improve};
use crate::search::scope::Scope;
use crate::search::warm::Lesson;

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// The gap between plan and bound that is good enough.
    pub gap: f64,
    /// The time after which the best plan so far is taken.
    pub time: Duration,
    /// The rounds of search after which it is taken too, unless all 32 bits are set: unlike a time, the same on every
    /// machine.
    pub rounds: u32,
    /// Where randomness starts.
    pub seed: u64,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort { gap: 0.01, time: Duration::from_secs(10), rounds: u32::MAX, seed: 0 }
    }
}

impl Effort {
    /// Whether rounds end the search, so that with time enough its result is the same on every machine.
    pub(crate) fn counts(&self) -> bool {
        self.rounds != u32::MAX
    }
}

/// A plan's cost, and a proof of how good it is.
#[derive(Clone, Debug)]
pub struct Solution {
    pub(crate) paths: Vec<Path>,
    /// The same with copies that hold no more memory than they must, and what that takes; where there is a difference.
    pub(crate) hasty: Option<(Vec<Path>, f64)>,
    /// What the search learned, for another amount of memory.
    pub(crate) lesson: Lesson,
    /// What kernels and moves take together, in nanoseconds.
    pub cost: f64,
    /// No plan costs less than this.
    pub bound: f64,
    /// How long the search took.
    pub time: Duration,
    /// Whether it stopped because the gap was small enough.
    pub met: bool,
}

/// Why a solver stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The plan is as near to the bound as was asked for.
    Gap,
    /// The time was over.
    Time,
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Stop::Gap => "gap",
            Stop::Time => "time",
        })
    }
}

impl Solution {
    /// A plan, and the bound that was proven for it.
    pub(crate) fn new(
        problem: &Problem,
        states: &States,
        plan: Primal,
        bound: f64,
        effort: &Effort,
        started: Instant,
    ) -> Solution {
        let (cost, bound) = (plan.cost, bound.min(plan.cost));
        let mut paths: Vec<Path> = plan.paths.into_iter().flatten().collect();
        for (item, path) in problem.items.iter().zip(&mut paths) {
            straighten(states, item, path);
        }
        let met = near(bound, cost, effort);
        Solution { paths, hasty: None, lesson: Lesson::default(), cost, bound, time: started.elapsed(), met }
    }

    /// Why the solver stopped.
    pub fn stop(&self) -> Stop {
        if self.met { Stop::Gap } else { Stop::Time }
    }

    /// The plan whose copies hold no more memory than they must: slower, and easier to pack.
    pub(crate) fn hasty(&self) -> Option<Solution> {
        let (paths, cost) = self.hasty.clone()?;
        Some(Solution { paths, hasty: None, lesson: Lesson::default(), cost, ..*self })
    }

    /// How much less the best of all plans could cost, as a share of this one.
    pub fn gap(&self) -> f64 {
        ((self.cost - self.bound) / self.cost).max(0.0)
    }
}

/// Solves a problem again after it got less memory; what is known of it already is used.
pub(crate) fn solve_again(problem: &Problem, old: &Solution, effort: &Effort) -> Option<Solution> {
    let resumed = problem.lanes.is_some().then(|| asynchronous::resume(problem, old, effort));
    resumed.flatten().or_else(|| solve(problem, effort))
}

/// Solves a problem to the gap asked for, or as far as the time goes; `None` where no plan was found at all.
pub fn solve(problem: &Problem, effort: &Effort) -> Option<Solution> {
    solve_warm(problem, effort, None)
}

/// The same, with what was learned from another amount of memory.
pub(crate) fn solve_warm(problem: &Problem, effort: &Effort, lesson: Option<&Lesson>) -> Option<Solution> {
    if problem.lanes.is_some() {
        return asynchronous::solve(problem, effort, lesson);
    }
    let started = Instant::now();
    let states = States::new(problem);
    let mut scope = Scope::root(problem, &states);
    if !scope.tighten(problem) {
        return None;
    }
    let mut attempt = Attempt {
        problem,
        states: &states,
        calendar: Calendar::new(problem),
        effort,
        started,
        random: fastrand::Rng::with_seed(effort.seed),
    };
    let mut dual = Dual::warm(problem, lesson.and_then(|lesson| lesson.prices(0)));
    let plan = attempt.approach(&scope, &mut dual);
    let prices = dual.best.clone();
    let (plan, bound) = attempt.split(plan?, &mut dual);
    let lesson = Lesson::new(problem, vec![prices], &plan);
    Some(Solution { lesson, ..Solution::new(problem, &states, plan, bound, effort, started) })
}

/// What the stages of solving share.
struct Attempt<'a> {
    problem: &'a Problem,
    states: &'a States,
    calendar: Calendar,
    effort: &'a Effort,
    started: Instant,
    random: fastrand::Rng,
}

impl Attempt<'_> {
    fn over(&self) -> bool {
        self.started.elapsed() >= self.effort.time
    }

    fn near(&self, bound: f64, cost: f64) -> bool {
        near(bound, cost, self.effort)
    }

    /// Raises the bound and lowers the plan's cost in turn, as long as that brings them nearer to each other.
    fn approach(&mut self, scope: &Scope, dual: &mut Dual) -> Option<Primal> {
        let mut best = construct(self.problem, self.states, dual, &|| self.over());
        let (mut progress, mut rounds) = (Progress::default(), 0);
        loop {
            let upper = best.as_ref().map_or(f64::INFINITY, |plan| plan.cost);
            let enough = |bound: f64| self.over() || self.near(bound, upper);
            dual.ascend(self.problem, self.states, scope, upper, ROUNDS, enough);
            let plan = construct(self.problem, self.states, dual, &|| self.over());
            if plan.as_ref().is_some_and(|plan| plan.cost < upper) {
                best = plan;
            }
            let mut tries = 0;
            if let Some(plan) = &mut best {
                self.polish(plan, dual.bound, || {
                    tries += 1;
                    tries < TRIES
                });
            }
            let cost = best.as_ref().map(|plan| plan.cost);
            let met = cost.is_some_and(|cost| self.near(dual.bound, cost));
            // Rounds count without a plan too, or a search for what cannot be found would never end.
            let last = rounds >= self.effort.rounds;
            rounds = rounds.saturating_add(1);
            if met || self.over() || last || progress.stalls(dual.bound, cost) {
                return best;
            }
        }
    }

    /// Splits all plans until the bound of every part is near to the best plan, with as much time for the plan as for
    /// the bound; returns both.
    fn split(&mut self, mut best: Primal, dual: &mut Dual) -> (Primal, f64) {
        let mut bound = dual.bound;
        let mut search = Search::new(self.problem, self.states, dual);
        // Splitting goes by the clock, which counting rounds is there to avoid.
        while !self.near(bound, best.cost) && !self.over() && !self.effort.counts() {
            let cutoff = best.cost * (1.0 - self.effort.gap);
            let asked = Instant::now();
            let found = search.advance(self.problem, self.states, dual, cutoff, &|| self.over());
            bound = bound.max(search.bound(cutoff));
            let (spent, asked) = (asked.elapsed(), Instant::now());
            match found {
                Some(mut found) => {
                    self.polish(&mut found, bound, || asked.elapsed() < spent);
                    if found.cost < best.cost {
                        best = found;
                    }
                }
                None => self.polish(&mut best, bound, || asked.elapsed() < spent),
            }
        }
        (best, bound)
    }

    /// Improves a plan until it is near to the bound, or as long as `more` says.
    fn polish(&mut self, plan: &mut Primal, bound: f64, mut more: impl FnMut() -> bool) {
        let (effort, started, mut tries) = (self.effort, self.started, 0);
        improve(self.problem, self.states, &self.calendar, plan, &mut self.random, |plan| {
            tries += 1;
            let over = tries % 64 == 0 && started.elapsed() >= effort.time;
            more() && !near(bound, plan.cost, effort) && !over
        });
    }
}

/// Rounds of better prices, and tries for a better plan, in turn.
const ROUNDS: usize = 40;
const TRIES: usize = 2000;

/// Whether a plan is as near to a bound as was asked for.
pub(crate) fn near(bound: f64, cost: f64, effort: &Effort) -> bool {
    // A bound of just what was sought must not fail by a rounding.
    cost - bound <= cost * (effort.gap + ROUNDING)
}

const ROUNDING: f64 = 1e-9;

/// Whether bound and plan still approach each other.
#[derive(Default)]
struct Progress {
    gaps: Vec<f64>,
}

impl Progress {
    /// Notes where they are; says whether the last rounds brought next to nothing.
    fn stalls(&mut self, bound: f64, cost: Option<f64>) -> bool {
        let Some(cost) = cost else { return false };
        self.gaps.push((cost - bound) / cost);
        let rounds = self.gaps.len();
        rounds > PATIENCE && self.gaps[rounds - 1] > (1.0 - WORTH) * self.gaps[rounds - 1 - PATIENCE]
    }
}

/// Rounds that may bring next to nothing before all plans are split.
const PATIENCE: usize = 3;
/// The share of the gap that these rounds should have closed.
const WORTH: f64 = 0.1;

//! Branching: where the bound and the plan do not meet, all plans are split in two by where one tensor is at one time,
//! and each half gets a bound of its own.
//!
//! Prices cannot see that half a tensor cannot be in fast memory. Where a few huge tensors make up the problem, that
//! is what keeps the bound low, and there are few enough of them to try. A half whose bound passes what is sought is
//! done with; the half with the lowest bound comes next, so the bound of all plans rises as the search goes on.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::rc::Rc;

use crate::bound::dual::{Dual, Figures, Guide};
use crate::bound::paths::States;
use crate::model::problem::Problem;
use crate::search::primal::{Primal, by_worth};
use crate::search::scope::{Open, Scope, stretch};

/// A part of all plans that is yet to be looked at.
struct Part {
    bound: f64,
    open: Open,
    /// Prices that were good for the part that it was split off from.
    prices: Rc<Figures>,
    depth: usize,
}

impl PartialEq for Part {
    fn eq(&self, other: &Part) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Part {}

impl PartialOrd for Part {
    fn partial_cmp(&self, other: &Part) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Part {
    /// The part with the lowest bound is the greatest: it comes first. Of equal ones the deeper.
    fn cmp(&self, other: &Part) -> Ordering {
        other.bound.total_cmp(&self.bound).then(self.depth.cmp(&other.depth))
    }
}

/// The search over parts of all plans.
pub(crate) struct Search {
    parts: BinaryHeap<Part>,
    /// The half that the prices favour of what was split last: following it down leads to plans.
    next: Option<Part>,
    scope: Scope,
    /// The least bound of parts that could neither be split further nor be turned into a plan.
    settled: f64,
}

/// Rounds of better prices for each part, and between two attempts to rule things out.
const ROUNDS: [usize; 3] = [12, 12, 16];
/// How far prices move at first: they were good a moment ago.
const PACE: f64 = 0.5;

impl Search {
    /// Begins with all plans, and the prices that gave the best bound for them.
    pub(crate) fn new(problem: &Problem, states: &States, dual: &Dual) -> Search {
        let scope = Scope::root(problem, states);
        let (open, prices) = (scope.open.clone(), Rc::new(dual.best.clone()));
        let all = Part { bound: dual.bound, open, prices, depth: 0 };
        Search { parts: BinaryHeap::from([all]), next: None, scope, settled: f64::INFINITY }
    }

    /// What no plan can cost less than, as far as that is below `cutoff`.
    pub(crate) fn bound(&self, cutoff: f64) -> f64 {
        let open = self.parts.peek().into_iter().chain(&self.next).map(|part| part.bound);
        open.fold(self.settled.min(cutoff), f64::min)
    }

    /// Looks at the part with the lowest bound and splits it, unless nothing in it costs less than `cutoff`. Returns a
    /// plan that was found on the way.
    pub(crate) fn advance(
        &mut self,
        problem: &Problem,
        states: &States,
        dual: &mut Dual,
        cutoff: f64,
        over: &dyn Fn() -> bool,
    ) -> Option<Primal> {
        let part = self.next.take().or_else(|| self.parts.pop())?;
        self.scope.visit(problem, &part.open);
        if part.bound >= cutoff || !self.scope.tighten(problem) {
            return None;
        }
        dual.restart(&part.prices, PACE);
        for rounds in ROUNDS {
            dual.ascend(problem, states, &self.scope, cutoff, rounds, |bound| bound >= cutoff || over());
            if dual.bound >= cutoff {
                return None;
            }
            if over() {
                break;
            }
            let fewer = dual.rule_out(problem, states, &mut self.scope, cutoff);
            if fewer && !self.scope.tighten(problem) {
                return None;
            }
        }
        let (order, guide) = (by_worth(problem, dual), dual.guide());
        let plan = Primal::build(problem, states, &order, Some(&guide), Some(&self.scope));
        let split = self.split(problem, dual, &guide, &part);
        if !split && plan.is_none() {
            // It fits as long as the smallest tensors are left out of account, so it cannot be ruled out.
            self.settled = self.settled.min(dual.bound.max(part.bound));
        }
        plan
    }

    /// Splits what is left of a part by what is least decided and matters most; `false` where all is decided, and the
    /// part is the one plan that was built.
    fn split(&mut self, problem: &Problem, dual: &Dual, guide: &Guide<'_>, part: &Part) -> bool {
        let bound = dual.bound.max(part.bound);
        let Some((at, slot, keep, likely)) = self.question(problem, dual, guide) else {
            return false;
        };
        let prices = Rc::new(dual.best.clone());
        let mut half = |states: u64| {
            let before = self.scope.open.clone();
            self.scope.keep(at, slot, states);
            let open = std::mem::replace(&mut self.scope.open, before);
            Part { bound, open, prices: Rc::clone(&prices), depth: part.depth + 1 }
        };
        let (favoured, other) = if likely { (half(keep), half(!keep)) } else { (half(!keep), half(keep)) };
        self.parts.push(other);
        self.next = Some(favoured);
        true
    }

    /// The tensor, the slot and the states of which to ask whether they are taken, and whether that is likely.
    fn question(
        &self,
        problem: &Problem,
        dual: &Dual,
        guide: &Guide<'_>,
    ) -> Option<(usize, usize, u64, bool)> {
        let steps = problem.calls.len();
        let mut best: Option<(f64, (usize, usize, u64, bool))> = None;
        for (at, item) in problem.items.iter().enumerate() {
            for (slot, open) in self.scope.slots(at).iter().enumerate() {
                let span = stretch(item, slot, steps);
                if span.0 >= span.1 || open.count_ones() < 2 {
                    continue;
                }
                for tier in 0..problem.tiers {
                    let on = open & self.scope.on(tier);
                    if on == 0 || on == *open {
                        continue;
                    }
                    let share = dual.share(at, slot, tier, problem.tiers);
                    let doubt = share.min(1.0 - share).max(1e-3);
                    let score = doubt * (self.stake(problem, guide, at, tier) + 1.0);
                    if best.is_none_or(|(most, _)| score > most) {
                        best = Some((score, (at, slot, on, share >= 0.5)));
                    }
                }
                // On the same tier with or without copies: asked last of all.
                if best.is_none() {
                    best = Some((0.0, (at, slot, 1 << open.trailing_zeros(), true)));
                }
            }
        }
        best.map(|(_, question)| question)
    }

    /// What the room that a tensor may take on a tier is worth.
    fn stake(&self, problem: &Problem, guide: &Guide<'_>, at: usize, tier: usize) -> f64 {
        let item = &problem.items[at];
        let slots = self.scope.slots(at).iter().enumerate();
        let may = slots.filter(|(_, open)| *open & self.scope.on(tier) != 0);
        let rent = |slot: usize| guide.rent(at, tier, stretch(item, slot, problem.calls.len()));
        may.map(|(slot, _)| rent(slot)).sum()
    }
}

//! Computing activations again: which sets of them are worth a plan, and the plans.
//!
//! A set makes a program of its own, for which keeping and moving are planned as ever. Sets are ranked by plans that are
//! made in a hurry, and the best of them are planned for with care.

use std::collections::HashSet;
use std::sync::Arc;

use tiercel_core::{Bytes, TierId};
use tiercel_plan::recompute::{Boldness, Sets, fastest};
use tiercel_workload::graph::ValueId;
use tiercel_workload::{Lifetimes, Program};

use super::search::{Search, planned};
use super::{FEW, NEAR};
use crate::planning::Planner;
use crate::{Choices, Setting};

/// Shares of the bytes that could be dropped. The bold ones are tried only where kernels cannot work on slow memory: there all
/// that is kept and does not fit has to move. There, too, what lies near the best is looked at, in steps of so much.
const SHARES: [f64; 7] = [0.15, 0.3, 0.5, 0.75, 0.85, 0.95, 1.0];
const BOLD: [f64; 2] = [0.85, 0.95];
const STEP: f64 = 0.05;

/// Sets of activations in a row that are no better than the best of them, before no more are looked at.
const MISSES: u32 = 3;

/// How many sets are planned for where that takes little time, or where much depends on it because kernels cannot work on
/// slow memory; and how much longer than the best so far they may seem to take in either case, because plans made in a hurry
/// are rough.
const MANY: usize = 4;
const LITTLE: f64 = 1.02;
const MUCH: f64 = 1.15;

/// How much longer a plan takes than was estimated where its tensors cannot be put where it wants them.
const APART: f64 = 1.03;

/// A program that computes some activations again.
pub(super) struct Again {
    program: Arc<Program>,
    /// No plan takes less: the kernels alone, or what has to come back.
    least: f64,
    /// Whether all of it fits the fast memory.
    fits: bool,
    /// What a plan made in a hurry takes.
    estimate: f64,
    boldness: Boldness,
}

impl Again {
    fn new(setting: &Setting<'_>, program: Program, boldness: Boldness) -> Again {
        let work: f64 = fastest(&program.trace.kernels, setting.machine, setting.times).iter().sum();
        let (peak, fast) = (Lifetimes::new(&program.trace).peak().1, setting.machine.tiers[0].capacity);
        let least = work.max(returning(setting, Bytes(peak.0.saturating_sub(fast.0))));
        Again { program: Arc::new(program), least, fits: peak <= fast, estimate: f64::INFINITY, boldness }
    }
}

/// The least time in which so many bytes come back to the fast memory in every iteration, where they have to.
fn returning(setting: &Setting<'_>, bytes: Bytes) -> f64 {
    let back = setting.machine.links.iter().filter(|link| link.to == TierId(0));
    let speed: f64 = back.map(|link| link.bandwidth(link.threads).0).sum();
    if is_far(setting) { bytes.0 as f64 / speed * 1e9 } else { 0.0 }
}

/// Whether kernels can work on the fastest tier alone.
pub(super) fn is_far(setting: &Setting<'_>) -> bool {
    !setting.machine.tiers.iter().skip(1).any(|tier| tier.computable)
}

/// Sets that were looked at.
struct Guesses {
    found: Vec<Again>,
    /// The least estimate.
    least: f64,
    seen: Vec<HashSet<ValueId>>,
}

impl Guesses {
    /// Looks at a set, unless it cannot be the best: whether it is.
    fn look(
        &mut self,
        search: &Search,
        setting: &Setting<'_>,
        program: &Program,
        sets: &Sets,
        boldness: Boldness,
    ) -> Option<bool> {
        let set = sets.set(boldness);
        if set.is_empty() || self.seen.contains(&set) {
            return None;
        }
        let again = Again::new(setting, program.recomputing(&set), boldness);
        self.seen.push(set);
        // It would take longer than the best so far; or something would have to move.
        let slow = again.least >= self.least || !search.slower_than(again.least);
        if slow || (setting.options.choices == Choices::Recompute && !again.fits) {
            return None;
        }
        let hurried = Setting { trace: &again.program.trace, ..search.share(setting) };
        let estimate = Planner::Asynchronous.estimate(&hurried);
        let better = estimate.is_some_and(|estimate| estimate < self.least);
        if let Some(estimate) = estimate {
            self.least = self.least.min(estimate);
            self.found.push(Again { estimate, ..again });
        }
        Some(better)
    }

    /// How bold the best is.
    fn best(&self) -> Option<Boldness> {
        self.found.iter().min_by(|a, b| a.estimate.total_cmp(&b.estimate)).map(|again| again.boldness)
    }
}

impl Search {
    /// What can be computed again, the most promising first, as far as plans made in a hurry show it.
    pub(super) fn guesses(&mut self, setting: &Setting<'_>, program: &Program) -> Vec<Again> {
        let sets = Sets::new(program, setting.machine, setting.times);
        let far = is_far(setting);
        let mut guesses = Guesses { found: Vec::new(), least: f64::INFINITY, seen: Vec::new() };
        let shares = SHARES.iter().filter(|share| far || !BOLD.contains(share));
        let mut misses = 0;
        for (passing, share) in [false, true].into_iter().flat_map(|p| shares.clone().map(move |s| (p, *s))) {
            if self.done() || (misses == MISSES && !far) {
                break;
            }
            let better = guesses.look(self, setting, program, &sets, Boldness { passing, share });
            misses = better.map_or(misses, |better| if better { 0 } else { misses + 1 });
        }
        if let Some(best) = guesses.best().filter(|_| far) {
            for step in [-2.0, -1.0, 1.0, 2.0] {
                let share = best.share + STEP * step;
                if !self.done() && (0.0..1.0).contains(&share) {
                    guesses.look(self, setting, program, &sets, Boldness { share, ..best });
                }
            }
        }
        guesses.found.sort_by(|a, b| a.estimate.total_cmp(&b.estimate));
        guesses.found
    }

    /// Plans for what looks best. Activations and weights of more than `parts` are worked on in parts.
    pub(super) fn recompute(&mut self, setting: &Setting<'_>, guesses: &[Again], parts: Option<Bytes>) {
        let few = setting.trace.tensors.len() <= FEW && self.slower_than(NEAR * self.floor);
        let thorough = few || is_far(setting);
        let (tries, rough) = match (is_far(setting), few) {
            (true, _) => (MANY, MUCH),
            (_, true) => (MANY, LITTLE),
            _ => (2, 1.0),
        };
        for Again { program, estimate, .. } in guesses.iter().take(tries) {
            // What a set is worth is found out without parts, which takes far less time; with them it will be better.
            let hopes = parts.is_some() || self.slower_than(estimate / rough);
            if self.done() || !hopes {
                break;
            }
            let rewritten = parts.and_then(|limit| program.in_parts(limit)).map_or(program.clone(), Arc::new);
            let tried = planned(&self.share(setting), Some(rewritten));
            let apart = tried.as_ref().map_or(f64::INFINITY, |tried| tried.time) > APART * estimate;
            self.consider(tried);
            // Where its tensors cannot be put where it wants them, the next may do.
            if !apart && !thorough {
                break;
            }
        }
    }
}

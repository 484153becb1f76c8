//! Tiercel's own system: the asynchronous plan with every tensor at its place, weights updated as soon as their gradients
//! are there, rows of large tables beside other kernels where the machine has something to do so, activations computed again
//! where that beats moving them, large tensors worked on in parts, and whatever other system turns out to be better in
//! simulation.
//!
//! The policy that is simulated is the policy that runs, so the choice is made by playing each alternative on the machine
//! at hand. Most often there is nothing to choose, because the plan comes within a percent of having all memory fast; then
//! nothing else is tried. While it runs, a late copy makes a kernel wait, and where that happens again and again its move
//! begins earlier; a tensor that the plan does not know is placed and fetched as hints say ([`tiercel_policies::Follow`]).
//! Results are the same bits in any case.

mod again;
mod search;

use std::sync::Arc;
use std::time::Instant;

use tiercel_core::Bytes;
use tiercel_plan::recompute::fastest;
use tiercel_workload::trace::Role;
use tiercel_workload::{Lifetimes, Program};

use crate::autotm::{STATIC, SYNC};
use crate::cachedarrays::{LM, LMP};
use crate::copiers::Copies;
use crate::fixed::FIRST_TOUCH;
use crate::memory_mode::MEMORY_MODE;
use crate::pages::IAL;
use crate::planning::Planner;
use crate::swaps::{CAPUCHIN, VDNN};
use crate::{Allowance, Choices, Options, Prepared, Setting, System, SystemError, WarmStarts};
use again::is_far;
use search::{Search, Tried, Way, jointly, planned};

/// Tiercel.
pub(crate) const TIERCEL: System = System {
    name: "tiercel",
    about: "planned ahead: tensors move while kernels run, whole or in parts, or are computed again",
    paper: "this project",
    allowance: Allowance::Given,
    copies: Copies::Beside,
    hears_ahead: false,
    plans: true,
    prepare,
};

/// A plan this near to having all memory fast is good enough.
const ENOUGH: f64 = 1.01;

/// Systems that are tried where the plan is not good enough: others that move tensors, and those that move parts of them,
/// where a tensor is too large to be fast as a whole.
static RIVALS: [System; 7] = [LM, LMP, FIRST_TOUCH, IAL, MEMORY_MODE, VDNN, CAPUCHIN];

/// Planners that are tried after those where they could be better by more than this: their simpler problems are solved
/// better, and packed more easily. Where tensors are many, only if the best so far is far from what may be possible.
static PLANNERS: [System; 2] = [SYNC, STATIC];
const WORTH: f64 = 1.01;
const FEW: usize = 1000;
const FAR: f64 = 1.2;

/// Weights are updated early where they, and so their gradients, have at least this share of the peak.
const HEAVY: f64 = 0.005;

/// Tables have their rows updated beside other kernels where they have more than this part of the fast memory, as a divisor:
/// smaller ones will be fast, and soon updated.
const TABLE: u64 = 8;

/// The shares of the fast memory, as divisors, that parts of activations and weights may have, and the least size of a
/// part: moving and computing less at a time costs more than it saves.
const PARTS: [u64; 2] = [4, 8];
const PART: Bytes = Bytes(1 << 20);

/// With at most so many tensors a plan is made in no time. Then there are so many for every share, which differ by chance: few
/// tensors are large beside the fast memory, so which plans can be packed is partly chance, and so is how they play, because
/// the next iteration begins while the last copies fly.
const LIGHT: usize = 100;
const PLANS: u64 = 8;

/// How far from the bound a plan that moves whole tensors is before parts are tried.
const LARGE: f64 = 1.015;

/// How far from having all memory fast such a bound is at most: further, it is itself due to tensors that are too large. A
/// plan with early updates that is further from its bound may be worse than one without.
const NEAR: f64 = 1.05;

/// The part of the time that each plan for keeping, moving and running again gets where there is a trace alone.
const JOINTLY: f64 = 0.4;

/// How much longer than the best plan that computes again one that only moves may seem to take, as a plan made in a hurry
/// shows it, and still be worth planning where kernels cannot work on slow memory.
const HOPE: f64 = 1.2;

fn prepare(setting: &Setting<'_>) -> Result<Prepared, SystemError> {
    let own_starts = WarmStarts::default();
    let setting = &Setting { warm_starts: setting.warm_starts.or(Some(&own_starts)), ..*setting };
    let floor: f64 = fastest(&setting.trace.kernels, setting.machine, setting.times).iter().sum();
    let until = setting.options.time;
    let mut search = Search {
        floor,
        enough: ENOUGH * floor,
        best: None,
        fastest: f64::INFINITY,
        refused: None,
        started: Instant::now(),
        until,
    };
    let choices = setting.options.choices;
    let (mut bound, mut parts) = (0.0, None);
    let early = setting.program.and_then(|program| {
        let peak = Lifetimes::new(&program.trace).peak().1.0 as f64;
        let weights: u64 =
            program.trace.tensors.iter().filter(|t| t.role == Role::Weight).map(|t| t.bytes.0).sum();
        let early = (weights as f64 >= HEAVY * peak).then(|| program.updating_early())?;
        let limit = Bytes(setting.machine.tiers[0].capacity.0 / TABLE);
        let beside = setting.machine.detached.and_then(|_| early.updating_detached(limit));
        Some(Arc::new(beside.unwrap_or(early)))
    });
    let again = early.as_deref().or(setting.program).filter(|_| choices != Choices::Move);
    let far = is_far(setting);
    let mut guesses = None;
    if let Some(program) = again.filter(|_| far) {
        // Computing again is often better there than any moving, and then soon planned.
        let found = search.guesses(setting, program);
        search.recompute(setting, &found, None);
        guesses = Some(found);
        let best =
            search.rewritten().filter(|_| choices == Choices::Both && search.slower_than(NEAR * floor));
        if let Some(best) = best {
            search.parts(setting, &best);
        }
    }
    if setting.program.is_none() && far {
        // A trace from anywhere: what moves and what runs again is decided together, and gets most of the time.
        // Where places for what moves are not found, running again alone may play better than both, whatever is planned.
        let alone = (choices == Choices::Both).then_some(Choices::Recompute);
        for choices in [choices].into_iter().chain(alone) {
            let options = Options { time: until.mul_f64(JOINTLY), choices, ..setting.options };
            search.consider(jointly(&setting.with(options)));
        }
    }
    let moving =
        Setting { trace: early.as_ref().map_or(setting.trace, |p| &p.trace), ..search.share(setting) };
    let hopes =
        || Planner::Asynchronous.estimate(&moving).is_some_and(|time| search.slower_than(time / HOPE));
    if choices != Choices::Recompute && !search.done() && (search.best.is_none() || hopes()) {
        // What is updated early is often good enough where weights are heavy, and planned far sooner.
        if let Some(early) = &early {
            let plan = planned(&search.share(setting), Some(early.clone()));
            bound = plan.as_ref().map_or(0.0, Tried::bound);
            search.consider(plan);
        }
        if !search.done() && search.slower_than(NEAR * bound) {
            let plan = planned(&search.share(setting), None);
            bound = plan.as_ref().map_or(0.0, Tried::bound);
            search.consider(plan);
        }
        // A plan that is near its bound, and that a little, does not suffer from tensors being large.
        let program = early.as_deref().or(setting.program);
        if let Some(program) = program.filter(|_| search.slower_than(LARGE * bound.min(NEAR * floor))) {
            parts = search.parts(setting, program);
            // Far from it, it may be better to keep gradients until the end: which plan is found is partly chance.
            if early.is_some() && search.slower_than(FAR * floor) {
                parts = setting.program.and_then(|program| search.parts(setting, program)).or(parts);
            }
        }
    }
    if let Some(program) = again.filter(|_| !far || parts.is_some()) {
        let guesses = guesses.unwrap_or_else(|| search.guesses(setting, program));
        search.recompute(setting, &guesses, parts);
    }
    if choices == Choices::Both {
        let caches = setting.machine.tiers[0].caches;
        for rival in RIVALS.iter().filter(|rival| caches || rival.name != MEMORY_MODE.name) {
            // Those that move parts of tensors may beat any plan that moves whole ones.
            if !search.done() {
                search.consider(Way::Rival(rival).tried(setting));
            }
        }
        let few = setting.trace.tensors.len() <= FEW;
        for planner in PLANNERS.iter().filter(|_| !far) {
            if !search.done() && search.slower_than(if few { WORTH } else { FAR } * bound) {
                search.consider(Way::Rival(planner).tried(setting));
            }
        }
    }
    search.finish(setting);
    search.settle(setting);
    let none = || SystemError::NoPlan {
        system: TIERCEL.name,
        tier: setting.machine.tiers[0].name.clone(),
        limit: setting.machine.tiers[0].capacity,
    };
    search.best.ok_or_else(|| search.refused.map_or_else(none, own))?.way.adaptive().prepare(setting)
}

/// The error of a part, under the name that the user knows.
fn own(error: SystemError) -> SystemError {
    match error {
        SystemError::Problem { error, .. } => SystemError::Problem { system: TIERCEL.name, error },
        SystemError::NoPlan { tier, limit, .. } => SystemError::NoPlan { system: TIERCEL.name, tier, limit },
        other => other,
    }
}

impl Search {
    /// Tries to work on large activations and weights in parts; returns the size of the best, where that is better.
    fn parts(&mut self, setting: &Setting<'_>, program: &Program) -> Option<Bytes> {
        let fast = setting.machine.tiers[0].capacity;
        let plans = if program.trace.tensors.len() <= LIGHT { PLANS } else { 1 };
        let mut found = None;
        let mut limits = PARTS.map(|share| Bytes(fast.0 / share).max(PART)).to_vec();
        limits.dedup();
        for limit in limits {
            let rewritten = if self.done() { None } else { program.in_parts(limit) };
            let Some(rewritten) = rewritten.map(Arc::new) else { continue };
            let before = self.best.as_ref().map(|best| best.time);
            for chance in 0..plans {
                if self.done() {
                    break;
                }
                let share = self.share(setting);
                let options = Options { seed: share.options.seed.wrapping_add(chance), ..share.options };
                // What is known of one plan would lead to the same again.
                let warm_starts = share.warm_starts.filter(|_| chance == 0);
                self.consider(planned(&Setting { options, warm_starts, ..share }, Some(rewritten.clone())));
            }
            if self.best.as_ref().map(|best| best.time) != before {
                found = Some(limit);
            }
        }
        found
    }
}

//! Tiercel's own system: the asynchronous plan with every tensor at its place, weights updated as soon as their gradients
//! are there, activations computed again where that beats moving them, large tensors worked on in parts, and whatever other
//! system turns out to be better in simulation.
//!
//! The policy that is simulated is the policy that runs, so the choice is made by playing each alternative on the machine
//! at hand. Most often there is nothing to choose, because the plan comes within a percent of having all memory fast; then
//! nothing else is tried. While it runs, a late copy makes a kernel wait, and where that happens again and again its move
//! begins earlier; a tensor that the plan does not know is placed and fetched as hints say ([`tiercel_policies::Follow`]).
//! Results are the same bits in any case.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tiercel_core::Bytes;
use tiercel_plan::recompute::{fastest, sets};
use tiercel_workload::trace::Role;
use tiercel_workload::{Kernel, Lifetimes, Program};

use crate::autotm::{STATIC, SYNC};
use crate::cachedarrays::{LM, LMP};
use crate::fixed::FIRST_TOUCH;
use crate::memory_mode::MEMORY_MODE;
use crate::pages::IAL;
use crate::planning::{Planned, Planner, play};
use crate::swaps::{CAPUCHIN, VDNN};
use crate::{
    Choices, Experience, Options, Prepared, Recording, Room, Setting, System, SystemError, simulate_prepared,
};

/// Tiercel.
pub(crate) const TIERCEL: System = System {
    name: "tiercel",
    about: "planned ahead: tensors move while kernels run, whole or in parts, or are computed again",
    paper: "this project",
    room: Room::Given,
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

/// The shares of the fast memory, as divisors, that parts of activations and weights may have, and the least size of a
/// part: moving and computing less at a time costs more than it saves.
const PARTS: [u64; 2] = [4, 8];
const PART: Bytes = Bytes(1 << 20);

/// How far from the bound a plan that moves whole tensors is before parts are tried.
const LARGE: f64 = 1.015;

/// How far from having all memory fast such a bound is at most: further, it is itself due to tensors that are too large. A
/// plan with early updates that is further from its bound may be worse than one without.
const NEAR: f64 = 1.05;

/// How much longer a plan takes than was estimated where its tensors cannot be put where it wants them.
const APART: f64 = 1.03;

/// An alternative, and the time of its simulated iteration.
struct Tried {
    way: Way,
    time: f64,
}

impl Tried {
    /// What no plan that only moves takes less than, as far as this one proves.
    fn bound(&self) -> f64 {
        match &self.way {
            Way::Planned(planned, _) => planned.plan.bound_ns,
            Way::Rival(_) => 0.0,
        }
    }
}

/// How an alternative is prepared.
#[derive(Clone)]
enum Way {
    /// A plan, for the program as it is or rewritten.
    Planned(Box<Planned>, Option<Arc<Program>>),
    /// Another system.
    Rival(&'static System),
}

impl Way {
    fn prepare(self, setting: &Setting<'_>) -> Result<Prepared, SystemError> {
        match self {
            Way::Rival(system) => system.prepare(setting),
            Way::Planned(planned, rewritten) => {
                let trace = rewritten.as_ref().map_or(setting.trace, |program| &program.trace);
                let prepared = play(*planned, trace, setting.machine)?;
                Ok(Prepared { rewritten, ..prepared })
            }
        }
    }

    /// The same, and what comes late begins earlier; there is nothing to learn in the single iteration of a trial.
    fn heeded(mut self) -> Way {
        if let Way::Planned(planned, _) = &mut self {
            planned.heeded = true;
        }
        self
    }

    /// Plays it for as long as it takes to judge it.
    fn tried(self, setting: &Setting<'_>) -> Result<Tried, SystemError> {
        let prepared = self.clone().prepare(setting)?;
        let run = simulate_prepared(TIERCEL.name, prepared, setting, 1, Recording::Off)?;
        Ok(Tried { time: run.time().0 as f64, way: self })
    }
}

/// The part of the time left that an alternative gets, and the least part of all of it, as divisors.
const SHARE: u32 = 3;
const LEAST: u32 = 20;

/// Sets of activations in a row that are no better than the best of them, before no more are tried.
const MISSES: u32 = 3;

fn prepare(setting: &Setting<'_>) -> Result<Prepared, SystemError> {
    let own_experience = Experience::default();
    let setting = &Setting { experience: setting.experience.or(Some(&own_experience)), ..*setting };
    let floor: f64 = fastest(&setting.trace.kernels, setting.machine, setting.times).iter().sum();
    let until = setting.options.time;
    let mut search =
        Search { enough: ENOUGH * floor, best: None, refused: None, started: Instant::now(), until };
    let choices = setting.options.choices;
    let (mut bound, mut parts) = (0.0, None);
    let early = setting.program.and_then(|program| {
        let peak = Lifetimes::new(&program.trace).peak().1.0 as f64;
        let weights: u64 =
            program.trace.tensors.iter().filter(|t| t.role == Role::Weight).map(|t| t.bytes.0).sum();
        (weights as f64 >= HEAVY * peak).then(|| Arc::new(program.updating_early()))
    });
    let again = early.as_deref().or(setting.program).filter(|_| choices != Choices::Move);
    let computable = setting.machine.tiers.iter().skip(1).any(|tier| tier.computable);
    if let Some(program) = again.filter(|_| !computable) {
        search.stay(setting, program);
    }
    if choices != Choices::Recompute {
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
    if let Some(program) = again {
        search.recompute(setting, program, parts);
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
        for planner in PLANNERS.iter().filter(|_| computable) {
            if !search.done() && search.slower_than(if few { WORTH } else { FAR } * bound) {
                search.consider(Way::Rival(planner).tried(setting));
            }
        }
    }
    search.finish(setting);
    let none = || SystemError::NoPlan {
        system: TIERCEL.name,
        tier: setting.machine.tiers[0].name.clone(),
        limit: setting.machine.tiers[0].capacity,
    };
    search.best.ok_or_else(|| search.refused.map_or_else(none, own))?.way.heeded().prepare(setting)
}

/// The error of a part, under the name that the user knows.
fn own(error: SystemError) -> SystemError {
    match error {
        SystemError::Problem { error, .. } => SystemError::Problem { system: TIERCEL.name, error },
        SystemError::NoPlan { tier, limit, .. } => SystemError::NoPlan { system: TIERCEL.name, tier, limit },
        other => other,
    }
}

/// The best alternative so far.
struct Search {
    /// The time that is good enough.
    enough: f64,
    best: Option<Tried>,
    /// Why the first that could not be tried could not.
    refused: Option<SystemError>,
    started: Instant,
    /// When to stop with the best so far.
    until: Duration,
}

impl Search {
    fn done(&self) -> bool {
        self.best
            .as_ref()
            .is_some_and(|best| best.time <= self.enough || self.started.elapsed() >= self.until)
    }

    fn slower_than(&self, time: f64) -> bool {
        self.best.as_ref().is_none_or(|best| best.time > time)
    }

    /// The same setting with a part of the time that is left, so that other alternatives get theirs.
    fn share<'a>(&self, setting: &Setting<'a>) -> Setting<'a> {
        let left = self.until.saturating_sub(self.started.elapsed());
        let options = Options { time: (left / SHARE).max(self.until / LEAST), ..setting.options };
        Setting { options, ..*setting }
    }

    /// Takes an alternative if it is the best.
    fn consider(&mut self, tried: Result<Tried, SystemError>) {
        match tried {
            Ok(tried) if self.best.as_ref().is_none_or(|best| tried.time < best.time) => {
                self.best = Some(tried);
            }
            Ok(_) => {}
            Err(error) => _ = self.refused.get_or_insert(error),
        }
    }

    /// Goes on with the plan that turned out best, from where its share of the time was over.
    fn finish(&mut self, setting: &Setting<'_>) {
        let Some(Tried { way: Way::Planned(best, rewritten), .. }) = &self.best else { return };
        let left = self.until.saturating_sub(self.started.elapsed());
        if self.until == Duration::MAX || best.met || left < self.until / LEAST || self.done() {
            return;
        }
        let options = Options { time: left, ..setting.options };
        self.consider(planned(&setting.with(options), rewritten.clone()));
    }

    /// Tries to compute so much again that nothing has to move: where kernels cannot work on slow memory that is often
    /// better than any moving, and takes next to no time to plan.
    fn stay(&mut self, setting: &Setting<'_>, program: &Program) {
        let work = |kernels: &[Kernel]| fastest(kernels, setting.machine, setting.times).iter().sum::<f64>();
        let mut found: Option<(f64, Arc<Program>)> = None;
        for set in sets(program, setting.machine, setting.times) {
            let rewritten = Arc::new(program.recomputing(&set));
            let work = work(&rewritten.trace.kernels);
            let fits = Lifetimes::new(&rewritten.trace).peak().1 <= setting.machine.tiers[0].capacity;
            if fits && found.as_ref().is_none_or(|(least, _)| work < *least) {
                found = Some((work, rewritten));
            }
        }
        if let Some((_, rewritten)) = found {
            self.consider(planned(&self.share(setting), Some(rewritten)));
        }
    }

    /// Tries to work on large activations and weights in parts; returns the size of the best, where that is better.
    fn parts(&mut self, setting: &Setting<'_>, program: &Program) -> Option<Bytes> {
        let fast = setting.machine.tiers[0].capacity;
        let mut found = None;
        for share in PARTS {
            let limit = Bytes(fast.0 / share).max(PART);
            if self.done() || found == Some(limit) {
                break;
            }
            let Some(rewritten) = program.in_parts(limit) else { continue };
            let before = self.best.as_ref().map(|best| best.time);
            self.consider(planned(&self.share(setting), Some(Arc::new(rewritten))));
            if self.best.as_ref().map(|best| best.time) != before {
                found = Some(limit);
            }
        }
        found
    }

    /// Tries what can be computed again: the set of activations that looks best is planned for. Activations of more than
    /// `parts` are worked on in parts.
    fn recompute(&mut self, setting: &Setting<'_>, program: &Program, parts: Option<Bytes>) {
        let (mut found, mut least, mut misses) = (Vec::new(), f64::INFINITY, 0);
        for set in sets(program, setting.machine, setting.times) {
            if self.done() || misses == MISSES {
                break;
            }
            let rewritten = program.recomputing(&set);
            let work: f64 = fastest(&rewritten.trace.kernels, setting.machine, setting.times).iter().sum();
            let whole = Lifetimes::new(&rewritten.trace).peak().1 <= setting.machine.tiers[0].capacity;
            let slow = work >= least || self.best.as_ref().is_some_and(|best| work >= best.time);
            if slow || (setting.options.choices == Choices::Recompute && !whole) {
                // Computing again alone would take longer than the best so far; or something would have to move.
                continue;
            }
            let setting = self.share(setting);
            let estimate = Planner::Asynchronous.estimate(&Setting { trace: &rewritten.trace, ..setting });
            misses += 1;
            if let Some(time) = estimate.filter(|time| *time < least) {
                found.push((time, rewritten));
                (least, misses) = (time, 0);
            }
        }
        // The best comes last. Where its tensors cannot be put where it wants them, the one before may do.
        for (estimate, rewritten) in found.into_iter().rev().take(2) {
            // What a set is worth is found out without parts, which takes far less time; with them it will be better.
            let hopes = self.best.as_ref().is_none_or(|best| estimate < best.time) || parts.is_some();
            if self.done() || !hopes {
                break;
            }
            let rewritten = parts.and_then(|limit| rewritten.in_parts(limit)).unwrap_or(rewritten);
            let tried = planned(&self.share(setting), Some(Arc::new(rewritten)));
            let apart = tried.as_ref().map_or(f64::INFINITY, |tried| tried.time) > APART * estimate;
            self.consider(tried);
            if !apart {
                break;
            }
        }
    }
}

/// The asynchronous plan for a program, rewritten or as it is.
fn planned(setting: &Setting<'_>, rewritten: Option<Arc<Program>>) -> Result<Tried, SystemError> {
    let trace = rewritten.as_ref().map_or(setting.trace, |program| &program.trace);
    let mut planned = Planner::Asynchronous.plan(&Setting { trace, ..*setting })?;
    if let Some(program) = &rewritten {
        planned.plan = planned.plan.rewritten_as(program.rewriting());
    }
    Way::Planned(Box::new(planned), rewritten).tried(setting)
}

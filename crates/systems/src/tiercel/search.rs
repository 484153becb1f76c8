//! The best alternative so far, and how alternatives are tried: each is prepared and played on the machine at hand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tiercel_workload::Program;

use super::TIERCEL;
use crate::planning::{Planned, Planner, play};
use crate::{Options, Prepared, Recording, Setting, System, SystemError, simulate_prepared};

/// The part of the time left that an alternative gets, and the least part of all of it, as divisors.
const SHARE: u32 = 3;
const LEAST: u32 = 20;

/// An alternative, and the time of its simulated iteration.
pub(super) struct Tried {
    pub(super) way: Way,
    pub(super) time: f64,
}

impl Tried {
    /// What no plan that only moves takes less than, as far as this one proves.
    pub(super) fn bound(&self) -> f64 {
        match &self.way {
            Way::Planned(planned, _) => planned.plan.bound_ns,
            Way::Rival(_) => 0.0,
        }
    }
}

/// How an alternative is prepared.
#[derive(Clone)]
pub(super) enum Way {
    /// A plan, for the program as it is or rewritten.
    Planned(Box<Planned>, Option<Arc<Program>>),
    /// Another system.
    Rival(&'static System),
}

impl Way {
    pub(super) fn prepare(self, setting: &Setting<'_>) -> Result<Prepared, SystemError> {
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
    pub(super) fn heeded(mut self) -> Way {
        if let Way::Planned(planned, _) = &mut self {
            planned.heeded = true;
        }
        self
    }

    /// Plays it for as long as it takes to judge it.
    pub(super) fn tried(self, setting: &Setting<'_>) -> Result<Tried, SystemError> {
        let prepared = self.clone().prepare(setting)?;
        let run = simulate_prepared(TIERCEL.name, prepared, setting, 1, Recording::Off)?;
        Ok(Tried { time: run.time().0 as f64, way: self })
    }
}

/// The best alternative so far.
pub(super) struct Search {
    /// The time with all memory fast, and the time that is good enough.
    pub(super) floor: f64,
    pub(super) enough: f64,
    pub(super) best: Option<Tried>,
    /// Why the first that could not be tried could not.
    pub(super) refused: Option<SystemError>,
    pub(super) started: Instant,
    /// When to stop with the best so far.
    pub(super) until: Duration,
}

impl Search {
    pub(super) fn done(&self) -> bool {
        self.best
            .as_ref()
            .is_some_and(|best| best.time <= self.enough || self.started.elapsed() >= self.until)
    }

    pub(super) fn slower_than(&self, time: f64) -> bool {
        self.best.as_ref().is_none_or(|best| best.time > time)
    }

    /// The program that the best plan is for, where it was rewritten.
    pub(super) fn rewritten(&self) -> Option<Arc<Program>> {
        match &self.best.as_ref()?.way {
            Way::Planned(_, rewritten) => rewritten.clone(),
            Way::Rival(_) => None,
        }
    }

    /// The same setting with a part of the time that is left, so that other alternatives get theirs.
    pub(super) fn share<'a>(&self, setting: &Setting<'a>) -> Setting<'a> {
        let left = self.until.saturating_sub(self.started.elapsed());
        let options = Options { time: (left / SHARE).max(self.until / LEAST), ..setting.options };
        Setting { options, ..*setting }
    }

    /// Takes an alternative if it is the best.
    pub(super) fn consider(&mut self, tried: Result<Tried, SystemError>) {
        match tried {
            Ok(tried) if self.best.as_ref().is_none_or(|best| tried.time < best.time) => {
                self.best = Some(tried);
            }
            Ok(_) => {}
            Err(error) => _ = self.refused.get_or_insert(error),
        }
    }

    /// Goes on with the plan that turned out best, from where its share of the time was over.
    pub(super) fn finish(&mut self, setting: &Setting<'_>) {
        let Some(Tried { way: Way::Planned(best, rewritten), .. }) = &self.best else { return };
        let left = self.until.saturating_sub(self.started.elapsed());
        if self.until == Duration::MAX || best.met || left < self.until / LEAST || self.done() {
            return;
        }
        let options = Options { time: left, ..setting.options };
        self.consider(planned(&setting.with(options), rewritten.clone()));
    }
}

/// The asynchronous plan for a program, rewritten or as it is.
pub(super) fn planned(setting: &Setting<'_>, rewritten: Option<Arc<Program>>) -> Result<Tried, SystemError> {
    let trace = rewritten.as_ref().map_or(setting.trace, |program| &program.trace);
    let mut planned = Planner::Asynchronous.plan(&Setting { trace, ..*setting })?;
    if let Some(program) = &rewritten {
        planned.plan = planned.plan.rewritten_as(program.rewriting());
    }
    Way::Planned(Box::new(planned), rewritten).tried(setting)
}

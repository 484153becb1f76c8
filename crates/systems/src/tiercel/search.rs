//! The best alternative so far, and how alternatives are tried: each is prepared and played on the machine at hand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tiercel_core::Bytes;
use tiercel_plan::{Request, joint};
use tiercel_workload::{Lifetimes, Program, Trace};

use super::TIERCEL;
use crate::planning::{Planned, Planner, play, play_repeated};
use crate::{Choices, Options, Prepared, Recording, Setting, System, SystemError, simulate_prepared};

/// The part of the time left that an alternative gets, and the least part of all of it, as divisors.
const SHARE: u32 = 3;
const LEAST: u32 = 20;

/// Alternatives whose times differ by less than this are as fast as each other; then the one that moves less is better: links
/// are left to others, and a run that does not go as simulated waits for less.
const TIE: f64 = 1e-3;

/// A plan is lavish with copies where it moves so many times what has to move.
const LAVISH: f64 = 1.5;

/// An alternative, the time of its simulated iteration, and the bytes that it moves in it.
pub(super) struct Tried {
    pub(super) way: Way,
    pub(super) time: f64,
    pub(super) moved: Bytes,
}

impl Tried {
    /// What no plan that only moves takes less than, as far as this one proves.
    pub(super) fn bound(&self) -> f64 {
        match &self.way {
            Way::Planned(planned, _) => planned.plan.bound_ns,
            // What is moved alone has another bound.
            Way::Repeated(..) | Way::Rival(_) => 0.0,
        }
    }
}

/// How an alternative is prepared.
#[derive(Clone)]
pub(super) enum Way {
    /// A plan, for the program as it is or rewritten.
    Planned(Box<Planned>, Option<Arc<Program>>),
    /// A plan for a trace in which kernels run once more.
    Repeated(Box<Planned>, Arc<Trace>),
    /// Another system.
    Rival(&'static System),
}

impl Way {
    pub(super) fn prepare(self, setting: &Setting<'_>) -> Result<Prepared, SystemError> {
        match self {
            Way::Rival(system) => system.prepare(setting),
            Way::Repeated(planned, trace) => play_repeated(*planned, trace, setting.machine),
            Way::Planned(planned, rewritten) => {
                let trace = rewritten.as_ref().map_or(setting.trace, |program| &program.trace);
                let prepared = play(*planned, trace, setting.machine)?;
                Ok(Prepared { rewritten, ..prepared })
            }
        }
    }

    /// The same, and what comes late begins earlier; there is nothing to learn in the single iteration of a trial.
    pub(super) fn adaptive(mut self) -> Way {
        if let Way::Planned(planned, _) | Way::Repeated(planned, _) = &mut self {
            planned.adaptive = true;
        }
        self
    }

    /// Plays it for as long as it takes to judge it.
    pub(super) fn tried(self, setting: &Setting<'_>) -> Result<Tried, SystemError> {
        let prepared = self.clone().prepare(setting)?;
        let run = simulate_prepared(TIERCEL.name, prepared, setting, 1, Recording::Off)?;
        let moved = run.fetched() + run.evicted();
        Ok(Tried { time: run.time().0 as f64, moved, way: self })
    }
}

/// The best alternative so far.
pub(super) struct Search {
    /// The time with all memory fast, and the time that is good enough.
    pub(super) floor: f64,
    pub(super) enough: f64,
    pub(super) best: Option<Tried>,
    /// The time of the fastest so far, which may move more than the best.
    pub(super) fastest: f64,
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
            Way::Repeated(..) | Way::Rival(_) => None,
        }
    }

    /// The same setting with a part of the time that is left, so that other alternatives get theirs.
    pub(super) fn share<'a>(&self, setting: &Setting<'a>) -> Setting<'a> {
        let left = self.until.saturating_sub(self.started.elapsed());
        let options = Options { time: (left / SHARE).max(self.until / LEAST), ..setting.options };
        Setting { options, ..*setting }
    }

    /// Takes an alternative if it is the best: clearly faster, or as fast and moving less.
    pub(super) fn consider(&mut self, tried: Result<Tried, SystemError>) {
        match tried {
            Ok(tried) => {
                self.fastest = self.fastest.min(tried.time);
                let tie = (1.0 + TIE) * self.fastest;
                let better = |best: &Tried| match (tried.time <= tie, best.time <= tie) {
                    (true, true) => tried.moved < best.moved,
                    (fits, _) => fits,
                };
                if self.best.as_ref().is_none_or(better) {
                    self.best = Some(tried);
                }
            }
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

    /// Where the first plan for a rewritten program was good enough, nothing else was tried. If it moves much, the program as
    /// it is may be as fast and move less.
    pub(super) fn settle(&mut self, setting: &Setting<'_>) {
        let Some(Tried { way: Way::Planned(_, Some(_)), time, moved }) = &self.best else { return };
        let over = self.started.elapsed() >= self.until;
        if *time > self.enough || over || setting.options.choices == Choices::Recompute {
            return;
        }
        let peak = Lifetimes::new(setting.trace).peak().1;
        // What does not fit at the peak has to leave, and to come back.
        let least = peak.saturating_sub(setting.machine.tiers[0].capacity) * 2;
        if moved.0 as f64 > LAVISH * least.0 as f64 {
            self.consider(planned(&self.share(setting), None));
        }
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

/// The plan that keeps, moves and runs again, for a trace that has no program behind it.
pub(super) fn jointly(setting: &Setting<'_>) -> Result<Tried, SystemError> {
    let Setting { trace, machine, times, options, .. } = *setting;
    let request = Request {
        moves: options.choices != Choices::Recompute,
        again: options.choices != Choices::Move,
        rounds: match options.rounds {
            u32::MAX => u64::MAX,
            rounds => u64::from(rounds) * CHANGES,
        },
        time: options.time,
        seed: options.seed,
        ..Request::default()
    };
    let found = joint(trace, machine, times, &request)
        .map_err(|error| SystemError::Problem { system: TIERCEL.name, error })?;
    let planned = Planned { solve: Some(found.time), met: false, adaptive: false, plan: found.plan };
    match found.repeated.reruns.is_empty() {
        true => Way::Planned(Box::new(planned), None).tried(setting),
        false => Way::Repeated(Box::new(planned), Arc::new(found.repeated.trace)).tried(setting),
    }
}

/// The changes that the joint search tries for one round of the others.
const CHANGES: u64 = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed::{FIRST_TOUCH, SLOW_ONLY};

    fn search() -> Search {
        Search {
            floor: 0.0,
            enough: 0.0,
            best: None,
            fastest: f64::INFINITY,
            refused: None,
            started: Instant::now(),
            until: Duration::MAX,
        }
    }

    #[test]
    fn of_plans_that_are_as_fast_the_one_that_moves_less_is_taken() {
        // In whatever order they are tried; the last figure is what is taken.
        for (tried, taken) in [
            (vec![(1000.0, 108), (1000.5, 24)], 24),
            (vec![(1000.5, 24), (1000.0, 108)], 24),
            (vec![(1000.0, 108), (1020.0, 24)], 108),
            (vec![(1020.0, 24), (1000.0, 108)], 108),
            // Each as fast as the one before, but the last is not as fast as the first.
            (vec![(1000.0, 50), (1000.9, 40), (1001.8, 30)], 40),
        ] {
            let mut search = search();
            for (time, moved) in &tried {
                let way = Way::Rival(if *moved > 50 { &FIRST_TOUCH } else { &SLOW_ONLY });
                search.consider(Ok(Tried { way, time: *time, moved: Bytes(*moved) }));
            }
            assert_eq!(search.best.expect("there is one").moved, Bytes(taken), "{tried:?}");
        }
    }
}

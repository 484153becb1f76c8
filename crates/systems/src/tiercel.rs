//! Tiercel's own system: the asynchronous plan with every tensor at its place, activations computed again where that beats
//! moving them, and whatever other system turns out to be better in simulation.
//!
//! The policy that is simulated is the policy that runs, so the choice is made by playing: each alternative for two
//! iterations on the machine at hand. Most often there is nothing to choose, because the plan comes within a percent of
//! having all memory fast; then nothing else is tried. While it runs, a late copy makes a kernel wait and nothing else, a
//! tensor that the plan does not know is placed and fetched as hints say ([`tiercel_policies::Follow`]), and results are
//! the same bits in any case.

use std::sync::Arc;

use tiercel_plan::recompute::{fastest, sets};
use tiercel_workload::{Lifetimes, Program};

use crate::planning::{Planned, Planner, play};
use crate::{Choices, Prepared, Recording, Room, Setting, System, SystemError, simulate_prepared};

/// Tiercel.
pub(crate) const TIERCEL: System = System {
    name: "tiercel",
    about: "planned ahead: tensors move while kernels run, or are computed again, whichever is quicker",
    paper: "this project",
    room: Room::Given,
    prepare,
};

/// A plan this near to having all memory fast is good enough.
const ENOUGH: f64 = 1.01;

/// Systems that are tried where the plan is not good enough.
static RIVALS: [System; 2] = [crate::cachedarrays::LM, crate::cachedarrays::LMP];

/// An alternative, and the time of its simulated iteration.
struct Tried {
    way: Way,
    time: f64,
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

    /// Plays it for as long as it takes to judge it.
    fn tried(self, setting: &Setting<'_>) -> Result<Tried, SystemError> {
        let prepared = self.clone().prepare(setting)?;
        let run = simulate_prepared(TIERCEL.name, prepared, setting, 1, Recording::Off)?;
        Ok(Tried { time: run.time().0 as f64, way: self })
    }
}

fn prepare(setting: &Setting<'_>) -> Result<Prepared, SystemError> {
    let floor: f64 = fastest(&setting.trace.kernels, setting.machine, setting.times).iter().sum();
    let enough = |tried: &Option<Tried>| tried.as_ref().is_some_and(|best| best.time <= ENOUGH * floor);
    let mut best: Option<Tried> = None;
    let mut refused = None;
    let mut consider = |best: &mut Option<Tried>, tried: Result<Tried, SystemError>| match tried {
        Ok(tried) if best.as_ref().is_none_or(|best| tried.time < best.time) => *best = Some(tried),
        Ok(_) => {}
        Err(error) => _ = refused.get_or_insert(error),
    };
    if setting.options.choices != Choices::Recompute {
        consider(&mut best, planned(setting, None));
    }
    if let Some(program) = setting.program.filter(|_| setting.options.choices != Choices::Move) {
        for set in sets(program, setting.machine, setting.times) {
            if enough(&best) {
                break;
            }
            let rewritten = Arc::new(program.recomputing(&set));
            let work: f64 = fastest(&rewritten.trace.kernels, setting.machine, setting.times).iter().sum();
            // Computing again alone would take longer than the best so far.
            if best.as_ref().is_some_and(|best| work >= best.time) {
                continue;
            }
            if setting.options.choices == Choices::Recompute {
                let peak = Lifetimes::new(&rewritten.trace).peak().1;
                if peak > setting.machine.tiers[0].capacity {
                    continue;
                }
            }
            consider(&mut best, planned(setting, Some(rewritten)));
        }
    }
    if setting.options.choices == Choices::Both {
        for rival in &RIVALS {
            if enough(&best) {
                break;
            }
            consider(&mut best, Way::Rival(rival).tried(setting));
        }
    }
    let none = || SystemError::NoPlan {
        system: TIERCEL.name,
        tier: setting.machine.tiers[0].name.clone(),
        limit: setting.machine.tiers[0].capacity,
    };
    best.ok_or_else(|| refused.unwrap_or_else(none))?.way.prepare(setting)
}

/// The asynchronous plan for a program, rewritten or as it is.
fn planned(setting: &Setting<'_>, rewritten: Option<Arc<Program>>) -> Result<Tried, SystemError> {
    let trace = rewritten.as_ref().map_or(setting.trace, |program| &program.trace);
    let planned = Planner::Asynchronous.plan(&Setting { trace, ..*setting })?;
    Way::Planned(Box::new(planned), rewritten).tried(setting)
}

//! Who decides: a system by its name, or a plan that stands in for one.

use std::path::Path;

use tiercel_plan::Plan;
use tiercel_systems::planning::replay;
use tiercel_systems::{Planned, Prepared, Setting, System, named};

use crate::{SessionError, Watch};

/// A system, or a plan that was made before.
#[derive(Clone)]
pub enum Choice {
    /// A system.
    System(&'static System),
    /// A plan.
    Plan(Box<Plan>),
}

impl Choice {
    /// The system of this name.
    pub fn named(name: &str) -> Result<Choice, SessionError> {
        Ok(Choice::System(named(name)?))
    }

    /// The plan in this file.
    pub fn read(path: &Path) -> Result<Choice, SessionError> {
        let shown = || path.display().to_string();
        let text = tiercel_workload::open::read(path)
            .map_err(|error| SessionError::Read { path: shown(), error })?;
        let plan = serde_json::from_slice(&text);
        Ok(Choice::Plan(plan.map_err(|error| SessionError::NotAPlan { path: shown(), error })?))
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Choice::System(system) => system.name,
            Choice::Plan(_) => "plan",
        }
    }

    /// The system, where it is one.
    pub fn system(&self) -> Option<&'static System> {
        match self {
            Choice::System(system) => Some(system),
            Choice::Plan(_) => None,
        }
    }

    /// The plan, where it is one.
    pub fn plan(&self) -> Option<&Plan> {
        match self {
            Choice::System(_) => None,
            Choice::Plan(plan) => Some(plan),
        }
    }

    /// Wires it up.
    pub fn prepare(&self, setting: &Setting<'_>, watch: &dyn Watch) -> Result<Prepared, SessionError> {
        let _planning = watch.begin("planning", None);
        match self {
            Choice::System(system) => Ok(system.prepare(setting)?),
            Choice::Plan(plan) => {
                let planned = Planned { plan: (**plan).clone(), solve: None, met: true, adaptive: false };
                replay(planned, setting).map_err(|error| SessionError::Plan {
                    error: Box::new(error),
                    planned_for: plan.machine.clone(),
                    machine: setting.machine.name.clone(),
                })
            }
        }
    }
}

impl From<&'static System> for Choice {
    fn from(system: &'static System) -> Choice {
        Choice::System(system)
    }
}

impl From<Plan> for Choice {
    fn from(plan: Plan) -> Choice {
        Choice::Plan(Box::new(plan))
    }
}

//! Two solvers behind one trait: *fast* is always there, *exact* hands the whole problem to HiGHS.
//!
//! Both say what they proved and why they stopped. The exact one is slower and needs a library that is loaded at run
//! time; its purpose is to check the other, and to settle what that one leaves open.

use crate::exact::Exact;
use crate::exact::highs::HighsError;
use crate::model::problem::Problem;
use crate::search::solve::{Effort, Solution, solve};

/// Finds a plan and proves how good it is.
pub trait Solver {
    /// What it is called on the command line.
    fn name(&self) -> &'static str;

    /// Solves a problem to the gap asked for, or as far as the time goes.
    fn solve(&self, problem: &Problem, effort: &Effort) -> Result<Solution, SolveError>;
}

/// Why a solver has no plan.
#[derive(Debug, thiserror::Error)]
pub enum SolveError {
    /// It found none in the time it had.
    #[error("no plan was found in {0:.1} seconds")]
    NoPlan(f64),
    /// HiGHS failed.
    #[error(transparent)]
    Highs(#[from] HighsError),
    /// There is no such solver.
    #[error("there is no solver `{0}`; there are `fast` and `exact`")]
    Unknown(String),
}

/// Prices, local search and branching: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fast;

impl Solver for Fast {
    fn name(&self) -> &'static str {
        "fast"
    }

    fn solve(&self, problem: &Problem, effort: &Effort) -> Result<Solution, SolveError> {
        solve(problem, effort).ok_or(SolveError::NoPlan(effort.time.as_secs_f64()))
    }
}

/// The solver with this name.
pub fn named(name: &str) -> Result<Box<dyn Solver>, SolveError> {
    match name {
        "fast" => Ok(Box::new(Fast)),
        "exact" => Ok(Box::new(Exact::load()?)),
        other => Err(SolveError::Unknown(other.to_string())),
    }
}

//! Plans: where every tensor lives at every step, decided ahead of time, with a proof of how good that is.

mod dual;
mod lanes;
#[cfg(test)]
mod oracle;
mod overlap;
mod paths;
pub mod plan;
mod primal;
pub mod problem;
pub mod solve;
pub mod verify;

pub use plan::{Action, Birth, Move, Plan};
pub use problem::{Formulation, PlanError, Problem};
pub use solve::{Effort, Solution, solve};
pub use verify::{Flaw, verify};

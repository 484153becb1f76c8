//! Plans: where every tensor lives at every step, decided ahead of time, with a proof of how good that is.

#[cfg(test)]
mod agreement;
mod asynchronous;
mod branch;
mod dual;
pub mod exact;
mod highs;
mod lanes;
pub mod layout;
mod margins;
pub mod offsets;
#[cfg(test)]
mod oracle;
mod overlap;
mod paths;
pub mod plan;
mod primal;
pub mod problem;
pub mod recompute;
mod room;
mod rows;
mod scope;
mod sequence;
pub mod solve;
pub mod solver;
pub mod verify;

pub use exact::Exact;
pub use highs::HighsError;
pub use offsets::{Arranged, arranged};
pub use plan::{Action, Birth, Move, Plan};
pub use problem::{Formulation, PlanError, Problem};
pub use solve::{Effort, Solution, Stop, solve};
pub use solver::{Fast, SolveError, Solver};
pub use verify::{Flaw, verify};

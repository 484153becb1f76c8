//! Plans: where every tensor lives at every step, decided ahead of time, with a proof of how good that is.

#[cfg(test)]
mod agreement;
mod asynchronous;
mod branch;
mod crossing;
mod dual;
pub mod exact;
mod highs;
pub mod implementations;
mod lanes;
pub mod layout;
pub mod leeway;
mod margins;
pub mod offsets;
#[cfg(test)]
mod oracle;
pub mod outline;
mod overlap;
mod paths;
pub mod plan;
mod primal;
pub mod problem;
pub mod recompute;
mod residence;
mod room;
mod rounds;
mod rows;
mod scope;
mod sequence;
pub mod solve;
pub mod solver;
pub mod verify;
pub mod warm;

pub use exact::Exact;
pub use highs::HighsError;
pub use implementations::implemented;
pub use leeway::leeway;
pub use offsets::{Arranged, arranged, arranged_anew};
pub use outline::{Mismatch, Outline};
pub use plan::{Action, Birth, Implementation, Move, Plan};
pub use problem::{Formulation, PlanError, Problem};
pub use residence::Residence;
pub use solve::{Effort, Solution, Stop, solve};
pub use solver::{Fast, SolveError, Solver};
pub use verify::{Flaw, verify};
pub use warm::Known;

//! Plans: where every tensor lives at every step, decided ahead of time, with a proof of how good that is.
//!
//! | file | what |
//! |---|---|
//! | `model/` | the problem as numbers: tensors, kernels with a time for every placement, links, limits |
//! | `bound/` | what no plan can beat: prices on memory, and what must cross the links |
//! | `search/` | plans that fit: construction, local search, branching, copies that overlap kernels |
//! | `exact/` | the other solver: a mixed-integer program for HiGHS, which is loaded at run time |
//! | `plan/` | a plan as data: the replay that refuses a bad one, places for its tensors, leeway |
//! | `layout/` | packing: where on a tier each buffer lies |
//! | `oracle.rs`, `agreement.rs` | tests: the solver against brute force, and the two solvers against each other |

#[cfg(test)]
mod agreement;
mod bound;
pub mod exact;
pub mod joint;
pub mod layout;
mod model;
#[cfg(test)]
mod oracle;
pub mod plan;
mod search;

pub use exact::Exact;
pub use exact::highs::HighsError;
pub use joint::{Act, Around, Joint, Places, Request, Schedule, joint};
pub use model::implementations::implemented;
pub use model::outline::{Mismatch, Outline};
pub use model::problem::{Formulation, PlanError, Problem};
pub use model::{implementations, outline, problem, recompute};
pub use plan::leeway::leeway;
pub use plan::offsets::{Arranged, arranged, arranged_anew};
pub use plan::residence::Residence;
pub use plan::verify::{Flaw, verify};
pub use plan::{Action, Birth, Implementation, Move, Plan};
pub use plan::{offsets, verify};
pub use search::solve::{Effort, Solution, Stop, solve};
pub use search::solver::{Fast, SolveError, Solver};
pub use search::warm::WarmStart;
pub use search::{solve, solver, warm};

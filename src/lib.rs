//! Run programs that want a lot of fast memory on a little of it, beside a large slow memory.
//!
//! Two ways in. A program of your own keeps its data in a [`Memory`] and says what it will do with it: `examples/hints.rs`. A network
//! or a trace is opened as a [`Session`]: planned, predicted, run or trained on this machine, as the command line does:
//! `examples/outside`.
//!
//! ```
//! use tiercel::session::{Fast, Options, Session, nets};
//!
//! let session = Session::open("resnet32", &nets::NetOptions::default(), "optane-autotm")?;
//! let plan = session.plan("autotm-sync", Fast::Share(0.2), Options::default())?;
//! assert!(plan.bound_ns <= plan.iteration_ns);
//! # Ok::<(), tiercel::session::SessionError>(())
//! ```
//!
//! The parts are here under their names: [`core`] keeps objects over tiers of memory, [`policies`] decides where they live,
//! [`plan`] decides that ahead of time, [`run`] moves and computes, [`profile`] knows machines and how long kernels take on them,
//! [`workload`] says what runs, [`systems`] has what users choose by name, [`report`] shows what happened.

pub use tiercel_core as core;
pub use tiercel_plan as plan;
pub use tiercel_policies as policies;
pub use tiercel_profile as profile;
pub use tiercel_report as report;
pub use tiercel_run as run;
pub use tiercel_session as session;
pub use tiercel_systems as systems;
pub use tiercel_workload as workload;

pub use tiercel_core::{Bytes, Hint, Machine, Policy};
pub use tiercel_plan::Plan;
pub use tiercel_policies::{CachedArrays, Mode};
pub use tiercel_run::{Array, Memory, MemoryError, Overwrite};
pub use tiercel_session::{Session, SessionError};

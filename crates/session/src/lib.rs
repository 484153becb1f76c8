//! A session: a network or a trace on a machine, from opening it to running it for real.
//!
//! ```text
//! open ──► measure ──► plan ──► predict ──► run or train
//! ```
//!
//! The command line, tests and examples go through here, so what one verb plans is what another plays.
//!
//! ```
//! use tiercel_session::{Choice, Fast, Options, Session, nets};
//!
//! let session = Session::open("resnet32", &nets::NetOptions::default(), "optane-autotm")?;
//! let plan = session.plan("autotm-sync", "20%".parse()?, Options::default())?;
//! let run = session.predict(&Choice::from(plan), Fast::Share(0.2), Options::default(), 3)?;
//! assert_eq!(run.iterations.len(), 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | what |
//! |---|---|
//! | `session.rs` | a workload on a machine: plan, predict, run |
//! | `choice.rs` | who decides: a system, or a plan that stands in for one |
//! | `ends.rs` | the two ends that every plan lies between, and sweeps over amounts of fast memory |
//! | `machine.rs` | the machine that a user names |
//! | `measure.rs` | kernel times by this machine's clock |
//! | `ready.rs` | a system wired up for real memory |
//! | `source.rs` | what a network learns from, by name |
//! | `training.rs` | training under one system, from a checkpoint or anew |
//! | `trial.rs`, `turns.rs` | systems beside each other on real memory, an iteration each in turn |
//! | `outcome.rs` | what a run on real memory did |
//! | `watch.rs` | what somebody who waits is told |
//! | `error.rs` | what can be wrong |

mod choice;
mod ends;
mod error;
pub mod machine;
pub mod measure;
mod outcome;
mod ready;
mod session;
mod source;
mod training;
pub mod trial;
mod turns;
mod watch;

pub use choice::Choice;
pub use ends::{Ends, percent};
pub use error::SessionError;
pub use outcome::Outcome;
pub use ready::{Outlook, Ready, emulated, trainer};
pub use session::{Session, cores, net_name, playable};
pub use source::{Source, digits};
pub use training::{Checkpointing, Training};
pub use watch::{Silent, Steps, Watch};

pub use tiercel_systems::{Fast, Options, Run};
pub use tiercel_workload::nets;

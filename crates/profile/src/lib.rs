//! How long kernels take with their operands in given tiers, and the machines that are known by name.
//!
//! [`Model`] answers for machines that we do not have: a roofline whose parameters stand in the machine file, fitted
//! by [`fit`] to the profile that AutoTM's authors measured ([`autotm`] reads it). [`machines`] are the shipped ones, and
//! [`probe`](mod@probe) measures the one that we are on.
//!
//! ```
//! use tiercel_core::TierId;
//! use tiercel_profile::{Model, machines};
//! use tiercel_sim::KernelTime;
//! use tiercel_workload::nets;
//!
//! let machine = machines::named("optane-autotm")?;
//! let model = Model::new(&machine)?;
//! let options = nets::NetOptions { batch: Some(16), ..nets::NetOptions::default() };
//! let trace = nets::find("vgg16").expect("a built-in network").build(&options)?.trace;
//! let all = |tier: u8| -> u64 {
//!     let place = |k: &tiercel_workload::Kernel| vec![TierId(tier); k.reads.len() + k.writes.len()];
//!     trace.kernels.iter().map(|k| model.time(&machine, k, &place(k)).0).sum()
//! };
//! assert!(all(1) > 2 * all(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | what |
//! |---|---|
//! | `model.rs` | kernel times from the parameters of a machine file, and the formula |
//! | `kinds.rs` | which fitted kind stands for which operation: the one table |
//! | `autotm.rs` | the profile that AutoTM's authors measured |
//! | `fit.rs` | the fit to it (`crates/profile/examples/fit.rs`), with `minimise.rs` |
//! | `machines.rs` | the shipped machines by name |
//! | `probe/` | measures this machine; `probe/here.rs` keeps what it found |
//! | `measured/` | kernel times as measured here: which are the same, which placements, the stopwatch, the file |
//! | `quiet.rs` | whether other programs were in the way |
//! | `accesses/` | accesses to memory, tensor by tensor: from a trace, or counted by page faults |
//! | `sharing.rs` | which objects share pages, and a layout in which only the like do |

pub mod accesses;
pub mod autotm;
pub mod fit;
pub mod kinds;
pub mod machines;
pub mod measured;
mod minimise;
pub mod model;
pub mod probe;
pub mod quiet;
pub mod sharing;

pub use accesses::{Accesses, Counting};
pub use measured::{Kept, Measured, ProfileError, Survey};
pub use model::{Model, ModelError};

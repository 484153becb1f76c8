//! How long kernels take with their operands in given tiers, and the machines that are known by name.
//!
//! [`Model`] answers for machines that we do not have: a roofline whose parameters stand in the machine file, fitted
//! by [`fit`] to the profile that AutoTM's authors measured ([`autotm`] reads it). [`machines`] are the shipped ones, and
//! [`probe`](mod@probe) measures the one that we are on.
//!
//! ```
//! use tiercel_core::TierId;
//! use tiercel_profile::{Model, machines};
//! use tiercel_run::KernelTime;
//! use tiercel_workload::nets;
//!
//! let machine = machines::named("optane-autotm")?;
//! let model = Model::new(&machine)?;
//! let options = nets::Options { batch: Some(16), ..nets::Options::default() };
//! let trace = nets::find("vgg16").expect("a built-in network").build(&options)?.trace;
//! let all = |tier: u8| -> u64 {
//!     let place = |k: &tiercel_workload::Kernel| vec![TierId(tier); k.reads.len() + k.writes.len()];
//!     trace.kernels.iter().map(|k| model.time(&machine, k, &place(k)).0).sum()
//! };
//! assert!(all(1) > 2 * all(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod accesses;
pub mod autotm;
pub mod fit;
pub mod kinds;
pub mod machines;
pub mod measured;
mod minimise;
pub mod model;
pub mod probe;
pub mod sharing;

pub use accesses::{Accesses, Counting};
pub use measured::Measured;
pub use model::{Model, ModelError};

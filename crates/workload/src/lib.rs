//! What runs: a [`Trace`] is the kernels of one iteration in order, with the objects that they touch.
//!
//! ```text
//! nets, import ──► graph ──► autodiff ──► schedule ──► trace ──► lifetimes, intervals
//!                                                        ▲
//!                                                      text
//! ```
//!
//! A network is written with a [`graph::Builder`], which also differentiates it; [`schedule::Program`] holds the
//! scheduled graph (for whoever runs the arithmetic) beside its trace (for whoever places the memory).

pub mod autodiff;
pub mod check;
pub mod graph;
pub mod intervals;
pub mod lifetimes;
pub mod nets;
pub mod open;
pub mod schedule;
mod storage;
pub mod summary;
pub mod text;
pub mod trace;

pub use lifetimes::Lifetimes;
pub use open::{OpenError, Workload, open};
pub use schedule::Program;
pub use summary::Summary;
pub use trace::{Kernel, KernelId, Tensor, TensorId, Trace};

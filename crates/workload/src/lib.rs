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
//!
//! ```
//! use tiercel_workload::graph::{Builder, DType, Optimizer};
//! use tiercel_workload::{Lifetimes, Program, schedule};
//!
//! let mut b = Builder::new("tiny", DType::F32);
//! let x = b.input("x", [32, 784]);
//! b.layer("hidden");
//! let x = b.linear(x, 100);
//! let x = b.relu(x);
//! b.layer("classes");
//! let logits = b.linear(x, 10);
//! let loss = b.cross_entropy(logits, "labels");
//! b.train(&[loss], Optimizer::SGD);
//!
//! let program = Program::new(b.finish()?, schedule::Options::default());
//! assert_eq!(program.graph.parameters(), 784 * 100 + 100 + 100 * 10 + 10);
//! let (step, peak) = Lifetimes::new(&program.trace).peak();
//! println!("{peak} at {}", program.trace.kernel(step).name);
//! # Ok::<(), tiercel_workload::graph::GraphError>(())
//! ```

pub mod autodiff;
pub mod check;
pub mod graph;
pub mod import;
pub mod inference;
pub mod intervals;
pub mod lifetimes;
pub mod nets;
pub mod open;
pub mod parts;
pub mod recompute;
pub mod rewriting;
pub mod schedule;
pub mod spelling;
mod storage;
pub mod summary;
pub mod text;
pub mod trace;

pub use lifetimes::Lifetimes;
pub use open::{OpenError, Workload, open};
pub use schedule::Program;
pub use summary::Summary;
pub use trace::{Kernel, KernelId, Tensor, TensorId, Trace, Use};

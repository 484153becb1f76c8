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
//! let program = Program::new(b.finish()?, schedule::ScheduleOptions::default());
//! assert_eq!(program.graph.parameters(), 784 * 100 + 100 + 100 * 10 + 10);
//! let (step, peak) = Lifetimes::new(&program.trace).peak();
//! println!("{peak} at {}", program.trace.kernel(step).name);
//! # Ok::<(), tiercel_workload::graph::GraphError>(())
//! ```
//!
//! | file | what |
//! |---|---|
//! | `trace.rs` | the trace: all that executor, simulator, policies and planners see of a program |
//! | `graph/` | tensors, operations, shapes and costs of a network; the builder |
//! | `nets/` | the built-in networks, one a file (`docs/networks.md`) |
//! | `autodiff/` | backward kernels and optimizer updates |
//! | `schedule.rs` | from a graph to a trace |
//! | `storage.rs` | which values share memory: what works in place |
//! | `lifetimes.rs` | uses, distances, classes, peaks |
//! | `intervals.rs` | cuts of a trace |
//! | `text/` | the text form (`docs/trace-format.md`) |
//! | `import/onnx/` | ONNX inference graphs as training graphs (`docs/onnx.md`) |
//! | `open.rs` | from what a user names to a workload |
//! | `inference.rs` | the forward pass alone |
//! | `rewriting.rs` | how a program came from another, by names that a plan file can carry |
//! | `recompute.rs` | a graph that drops activations and computes them again |
//! | `parts/` | a graph that works on large tensors in parts: activations by samples, weights by rows |
//! | `check.rs` | what makes a trace sound |
//! | `summary.rs` | what a workload amounts to |
//! | `spelling.rs` | what somebody may have meant |

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
pub mod repeat;
pub mod repeated;
pub mod rewriting;
pub mod schedule;
pub mod spelling;
mod storage;
pub mod summary;
pub mod text;
pub mod trace;

pub use check::TierError;
pub use lifetimes::Lifetimes;
pub use open::{OpenError, Workload, open};
pub use schedule::Program;
pub use summary::Summary;
pub use trace::{Kernel, KernelId, Tensor, TensorId, Trace, Use};

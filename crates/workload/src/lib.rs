//! What runs: a [`Trace`] is the kernels of one iteration in order, with the objects that they touch.

pub mod trace;

pub use trace::{Kernel, KernelId, Tensor, TensorId, Trace, Use};

//! Working in parts, where tensors are too large for the fast memory: a choice beside keeping, moving and computing again.
//!
//! A tensor that takes up much of the fast memory, or more than there is, can hardly be moved while kernels run. So a
//! graph is rewritten: a large tensor becomes several, and a kernel becomes several that each work on a part. Activations
//! are parted by the samples of the batch (`batches.rs`), weights of linear layers by their rows (`weights.rs`), where
//! one kernel may then do all that changes a part (`fused.rs`). What comes out is an ordinary graph, so schedules, plans, checks and most kernels need to know nothing of it; every number is
//! computed from the same numbers in the same order, so bits are the same.
//!
//! TSPLIT (Nie et al., ICDE 2022) splits tensors in this way for GPUs, without regard to the bits.

mod batches;
pub mod fused;
pub mod weights;

use tiercel_core::Bytes;

use crate::graph::Graph;

/// The most parts of a tensor: kernels that take all of them have room for so many.
pub const MOST: u64 = 16;

/// Matrices whose rows are summed over are parted after a multiple of so many: kernels may add up so many at a time.
pub const ROWS: u64 = 256;

/// Kernels may treat so few rows of a matrix, or fewer, in ways of their own: no part has so few.
pub const FEW: u64 = 64;

/// What the name of a kernel ends with that works on a part, and that of what it makes, before the part's number.
pub(crate) const PART: &str = ".part";

/// The same graph with tensors of more than `limit` in parts of about that size; `None` where there are none that could be.
pub fn split(graph: &Graph, limit: Bytes) -> Option<Graph> {
    let weights = weights::split(graph, limit);
    let batches = batches::split(weights.as_ref().unwrap_or(graph), limit);
    batches.or(weights)
}

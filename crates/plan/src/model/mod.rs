//! What is planned: the trace as numbers, and the ways in which a kernel can be done.

pub mod implementations;
pub(crate) mod lanes;
pub mod outline;
pub mod problem;
pub mod recompute;
pub(crate) mod rows;

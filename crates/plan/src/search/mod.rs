//! Plans that fit: construction, local search, branch and bound, and plans whose copies overlap kernels.

pub(crate) mod asynchronous;
pub(crate) mod branch;
pub(crate) mod headroom;
pub(crate) mod overlap;
pub(crate) mod primal;
pub(crate) mod rounds;
pub(crate) mod scope;
pub(crate) mod sequence;
pub mod solve;
pub mod solver;
pub mod warm;

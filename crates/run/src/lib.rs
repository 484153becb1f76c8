//! The executor, and the worlds that it runs in.

pub mod host;
pub mod traffic;

pub use host::{Host, HostError};
pub use traffic::Traffic;

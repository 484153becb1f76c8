//! Bookkeeping of objects over tiers of memory.
//!
//! The application states what it will do with an object (a hint); a policy decides; the manager changes the
//! state; a backend moves the bytes. This crate holds the manager and the traits of the other three, and nothing
//! that touches the operating system.

pub mod backend;
pub mod machine;
pub mod units;

pub use backend::{Backend, CopyError, CopyOrder, Place, Ticket};
pub use machine::{Backing, Compute, Link, Machine, MachineError, Tier};
pub use units::{Bandwidth, Bytes, Nanos, Step, TierId};

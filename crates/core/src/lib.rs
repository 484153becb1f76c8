//! Bookkeeping of objects over tiers of memory.
//!
//! The application states what it will do with an object (a hint); a policy decides; the manager changes the
//! state; a backend moves the bytes. This crate holds the manager and the traits of the other three, and nothing
//! that touches the operating system.

pub mod backend;
pub mod error;
pub mod event;
pub mod heap;
pub mod hint;
pub mod kernels;
pub mod machine;
pub mod manager;
pub mod object;
pub mod policy;
pub mod region;
mod slab;
pub mod units;
pub mod zone;

pub use backend::{Backend, CopyError, CopyOrder, Place, Span, Ticket};
pub use error::{Error, Full};
pub use event::{Cause, Event, Outcome, Stamped, Totals};
pub use heap::End;
pub use hint::{Access, Hint};
pub use kernels::{KernelTier, Kernels, Kind};
pub use machine::{Backing, Beside, Compute, Link, Machine, MachineError, Tier};
pub use manager::{EvictError, Manager};
pub use object::ObjectId;
pub use policy::{Operand, Policy, Traffic};
pub use region::RegionId;
pub use units::{Bandwidth, Bytes, Nanos, Step, TierId};
pub use zone::{Space, ZoneId};

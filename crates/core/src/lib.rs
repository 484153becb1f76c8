//! Bookkeeping of objects over tiers of memory.
//!
//! The application states what it will do with an object (a hint); a policy decides; the manager changes the
//! state; a backend moves the bytes. This crate holds the manager and the traits of the other three, and nothing
//! that touches the operating system.
//!
//! | file | what |
//! |---|---|
//! | `units.rs` | amounts as types: `Bytes`, `Nanos`, `Bandwidth`, `Step`, `TierId` |
//! | `machine.rs` | tiers and links, and their TOML form |
//! | `link.rs` | the paths between tiers: bandwidths by copy threads, and what several of them share |
//! | `backing.rs` | what is behind a tier on this machine |
//! | `copiers.rs` | how many threads copy: beside kernels, while they wait, or for an interval that is known |
//! | `kernels.rs` | what a machine file says of kernels: kinds, and tiers as loads and stores see them |
//! | `heap.rs` | the allocator over one stretch of memory, and the cheapest window to clear |
//! | `zone.rs` | the memory of a tier: a heap and named carve-outs of it |
//! | `object.rs` | the movable unit, with a stable id |
//! | `region.rs` | the slices of heaps that hold its bytes |
//! | `manager/mod.rs` | the data-management interface (CachedArrays III-C): the only place where state changes |
//! | `manager/flight.rs` | copies in flight: what waits for what, cancelling, undoing one that failed |
//! | `manager/kernel.rs` | `begin` and `end` of a kernel: what it waits for, and how long |
//! | `manager/detached.rs` | kernels that go on beside those that follow, as copies do |
//! | `manager/check.rs` | verification of the entire state |
//! | `hint.rs` | what applications say of the future |
//! | `policy.rs` | who decides |
//! | `backend.rs` | who moves bytes |
//! | `event.rs` | what happened |
//! | `error.rs` | what can go wrong |
//! | `slab.rs` | storage with stable keys |

pub mod backend;
mod backing;
pub mod copiers;
pub mod error;
pub mod event;
pub mod heap;
pub mod hint;
pub mod kernels;
mod link;
pub mod machine;
pub mod manager;
pub mod object;
pub mod policy;
pub mod region;
mod slab;
pub mod units;
pub mod zone;

pub use backend::{Backend, CopyError, CopyOrder, Locked, Place, Span, Ticket};
pub use backing::{Backing, BackingError};
pub use error::{Error, Full, Unsound};
pub use event::{Cause, Event, Outcome, Stamped, Totals};
pub use heap::{BlockId, End, Heap};
pub use hint::{Access, Hint};
pub use kernels::{KernelTier, Kernels, Kind};
pub use link::{Bus, CopyThreads, Link};
pub use machine::{Compute, Detached, Machine, MachineError, Tier};
pub use manager::{EvictError, Manager};
pub use object::ObjectId;
pub use policy::{Operand, Policy, Traffic};
pub use region::RegionId;
pub use units::{Bandwidth, Bytes, Nanos, Step, TierId};
pub use zone::{Space, ZoneId};

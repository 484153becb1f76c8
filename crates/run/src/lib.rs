//! The executor, real memory with its copy engine, and `Memory` for programs of one's own.
//!
//! | file | what |
//! |---|---|
//! | `executor.rs` | the one loop that plays a trace, in any world, under any policy |
//! | `memory/` | `Memory`: arrays over tiers, for programs of one's own (`array.rs`, `operands.rs`), and a pass of such a program as a trace (`pass.rs`) |
//! | `host/` | real memory: mappings, files, emulated tiers, and the copy engine (`engine.rs`, `queue.rs`, `stream.rs`) |
//! | `stage.rs` | real memory with kernels, as a world for the executor |
//! | `profile.rs` | kernel times by the tiers of operands, recorded while they run |
//! | `cores.rs` | which cores a thread may use, and how soon it gets one |
//! | `files.rs` | files that are there as a whole or not at all |

pub mod cores;
pub mod executor;
pub mod files;
pub mod host;
pub mod memory;
pub mod profile;
pub mod stage;

pub use executor::{Executor, Iteration};
pub use host::{Host, HostError};
pub use memory::{Array, Memory, MemoryError, Operands, Overwrite};
pub use profile::{Profile, Profiled};
pub use stage::{Detached, Failure, Kernels, Stage, Turn, View};

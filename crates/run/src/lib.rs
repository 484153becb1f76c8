//! The executor, and the worlds that it runs in: a simulated one, and real memory.

pub mod cores;
pub mod executor;
pub mod files;
pub mod host;
pub mod kernels;
pub mod memory;
pub mod profile;
pub mod sim;
pub mod stage;
pub mod times;
pub mod train;
pub mod world;

pub use executor::{Executor, Iteration};
pub use host::{Host, HostError};
pub use kernels::Library;
pub use memory::{Array, Memory};
pub use profile::{Profile, Profiled};
pub use sim::Sim;
pub use stage::{Aside, Kernels, Stage, Turn, View};
pub use times::{KernelTime, Roofline};
pub use world::{Work, World};

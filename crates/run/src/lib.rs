//! The executor, and the worlds that it runs in: a simulated one, and real memory.

pub mod executor;
pub mod sim;
pub mod world;

pub use executor::{Executor, Iteration};
pub use sim::Sim;
pub use world::{Work, World};

//! Run programs that want a lot of fast memory on a little of it, beside a large slow memory.
//!
//! This crate gathers the parts under one name: [`core`] keeps objects over tiers of memory, [`policies`] decides
//! where they live, [`run`] moves and computes, [`profile`] knows machines and how long kernels take on them,
//! [`workload`] says what runs. Begin with [`Memory`] and
//! `examples/hints.rs`.

pub use tiercel_core as core;
pub use tiercel_policies as policies;
pub use tiercel_profile as profile;
pub use tiercel_run as run;
pub use tiercel_workload as workload;

pub use tiercel_core::{Bytes, Hint, Machine, Policy};
pub use tiercel_policies::{CachedArrays, Mode};
pub use tiercel_run::{Array, Memory, MemoryError, Overwrite};

//! Policies: which objects live where, decided while the program runs. One file a policy.

pub mod cachedarrays;
pub mod capuchin;
pub mod fixed;
pub mod follow;
pub mod forecast;
pub mod garbage;
pub mod gather;
pub mod heed;
mod ial;
pub mod locality;
pub mod memory_mode;
pub mod moves;
pub mod notebook;
pub mod pages;
mod quick;
pub mod recency;
pub mod recording;
pub mod redl;
pub mod search;
pub mod sentinel;
pub mod unified_memory;
pub mod vdnn;

pub use cachedarrays::{CachedArrays, Mode};
pub use capuchin::Capuchin;
pub use fixed::{Birthplace, Fixed};
pub use follow::Follow;
pub use ial::Ial;
pub use locality::{Locality, Watched};
pub use memory_mode::MemoryMode;
pub use recency::Recency;
pub use redl::Redl;
pub use sentinel::Sentinel;
pub use unified_memory::UnifiedMemory;
pub use vdnn::Vdnn;

use tiercel_core::Policy;

/// The names of all policies, as the command line knows them.
pub const NAMES: [&str; 14] = [
    "fast-only",
    "slow-only",
    "first-touch",
    "memory-mode",
    "cachedarrays-0",
    "cachedarrays-l",
    "cachedarrays-lm",
    "cachedarrays-lmp",
    "redl",
    "ial",
    "unified-memory",
    "vdnn",
    "capuchin",
    "sentinel",
];

/// The policies that work below the level of objects: only where kernels can work on the slowest tier, where every
/// object lives.
pub const BELOW: [&str; 2] = ["memory-mode", "ial"];

/// The policies that look at the clock, so that what they decide may differ from world to world; what comes out never
/// does.
pub const TIMED: [&str; 4] = ["redl", "ial", "capuchin", "sentinel"];

/// A policy by its name.
pub fn by_name(name: &str) -> Option<Box<dyn Policy>> {
    Some(match name {
        "fast-only" => Box::new(Fixed::new(Birthplace::FastOnly)),
        "slow-only" => Box::new(Fixed::new(Birthplace::SlowOnly)),
        "first-touch" => Box::new(Fixed::new(Birthplace::FirstTouch)),
        "memory-mode" => Box::new(MemoryMode::new(true)),
        "cachedarrays-0" => Box::new(CachedArrays::new(Mode::NONE)),
        "cachedarrays-l" => Box::new(CachedArrays::new(Mode::L)),
        "cachedarrays-lm" => Box::new(CachedArrays::new(Mode::LM)),
        "sentinel" => Box::new(Sentinel::new()),
        "cachedarrays-lmp" => Box::new(CachedArrays::new(Mode::LMP)),
        "redl" => Box::new(Redl::new()),
        "ial" => Box::new(Ial::default()),
        "unified-memory" => Box::new(UnifiedMemory::new()),
        "vdnn" => Box::new(Vdnn::new()),
        "capuchin" => Box::new(Capuchin::new()),
        _ => return None,
    })
}

//! Policies: which objects live where, decided while the program runs. One file a policy.

pub mod cachedarrays;
pub mod fixed;
pub mod follow;
pub mod garbage;
pub mod gather;
pub mod memory_mode;
pub mod moves;
pub mod recency;

pub use cachedarrays::{CachedArrays, Mode};
pub use fixed::{Birthplace, Fixed};
pub use follow::Follow;
pub use memory_mode::MemoryMode;
pub use recency::Recency;

use tiercel_core::Policy;

/// The names of all policies, as the command line knows them.
pub const NAMES: [&str; 8] = [
    "fast-only",
    "slow-only",
    "first-touch",
    "memory-mode",
    "cachedarrays-0",
    "cachedarrays-l",
    "cachedarrays-lm",
    "cachedarrays-lmp",
];

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
        "cachedarrays-lmp" => Box::new(CachedArrays::new(Mode::LMP)),
        _ => return None,
    })
}

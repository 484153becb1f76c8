//! Policies: which objects live where, decided while the program runs. One file a policy.

pub mod cachedarrays;
pub mod fixed;
pub mod follow;
pub mod garbage;
pub mod gather;
pub mod memory_mode;
pub mod moves;
pub mod recency;
pub mod recording;
pub mod sentinel;

pub use cachedarrays::{CachedArrays, Mode};
pub use fixed::{Birthplace, Fixed};
pub use follow::Follow;
pub use memory_mode::MemoryMode;
pub use recency::Recency;
pub use sentinel::Sentinel;

use tiercel_core::Policy;

/// The names of all policies, as the command line knows them.
pub const NAMES: [&str; 9] = [
    "fast-only",
    "slow-only",
    "first-touch",
    "memory-mode",
    "cachedarrays-0",
    "cachedarrays-l",
    "cachedarrays-lm",
    "cachedarrays-lmp",
    "sentinel",
];

/// The policies whose decisions depend on times that they measure: the same run in another world may decide otherwise, and
/// still computes the same.
pub const TIMED: [&str; 1] = ["sentinel"];

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
        _ => return None,
    })
}

//! Policies: which objects live where, decided while the program runs. One file a policy.
//!
//! | file | what |
//! |---|---|
//! | `moves.rs` | `evict` and `prefetch` (CachedArrays, Listings 1 and 2) |
//! | `cachedarrays.rs` | the modes ∅, L, LM and LMP |
//! | `follow.rs` | plays a plan; with `adapt.rs`, moves that come late begin earlier |
//! | `sentinel/` | Sentinel: a zone for short-lived objects, intervals, test and trial |
//! | `redl.rs` | ReDL; with `period_search.rs`, its search for the period |
//! | `ial.rs` | the operating system that moves hot pages; with `pages.rs`, its lists |
//! | `unified_memory.rs` | GPUs on demand |
//! | `vdnn.rs` | GPUs by layers |
//! | `capuchin.rs` | GPUs by measured gaps |
//! | `fixed.rs` | fast-only, slow-only, first-touch |
//! | `memory_mode.rs` | a hardware cache |
//! | `notebook.rs` | what a policy has seen of an iteration, as a trace |
//! | `recording.rs` | what a policy can write down of an iteration |
//! | `forecast.rs` | what that says of the next |
//! | `locality.rs` | how much kernels find in fast memory |
//! | `recency.rs` | the order of last use |
//! | `gather.rs` | a kernel's operands onto tiers where it can work |
//! | `garbage.rs` | retired but not freed |
//! | `quick.rs` | maps by small keys |

pub mod adapt;
pub mod cachedarrays;
pub mod capuchin;
pub mod fixed;
pub mod follow;
pub mod forecast;
pub mod garbage;
pub mod gather;
mod ial;
pub mod locality;
pub mod memory_mode;
pub mod moves;
pub mod notebook;
pub mod pages;
pub mod period_search;
mod quick;
pub mod recency;
pub mod recording;
pub mod redl;
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

/// A policy that can be asked for by its name.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The name, as the command line knows it.
    pub name: &'static str,
    /// What it knows of objects and of time.
    pub kind: Kind,
    /// Makes one.
    make: fn() -> Box<dyn Policy>,
}

/// What a policy knows of objects and of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It decides by objects and hints alone: the same in every world.
    Steady,
    /// It looks at the clock, so that what it decides may differ from world to world; what comes out never does.
    Timed,
    /// It works below the level of objects: only where kernels can work on the slowest tier, where every object lives.
    Below,
    /// Both of these.
    BelowTimed,
}

impl Kind {
    /// Whether it looks at the clock.
    pub fn is_timed(self) -> bool {
        matches!(self, Kind::Timed | Kind::BelowTimed)
    }

    /// Whether it works below the level of objects.
    pub fn is_below(self) -> bool {
        matches!(self, Kind::Below | Kind::BelowTimed)
    }
}

/// Every policy: whoever stands here is found by its name, and has to pass the conformance suite, the test of both worlds
/// and the test on all networks.
pub static ALL: [Entry; 14] = [
    entry("fast-only", Kind::Steady, || Box::new(Fixed::new(Birthplace::FastOnly))),
    entry("slow-only", Kind::Steady, || Box::new(Fixed::new(Birthplace::SlowOnly))),
    entry("first-touch", Kind::Steady, || Box::new(Fixed::new(Birthplace::FirstTouch))),
    entry("memory-mode", Kind::Below, || Box::new(MemoryMode::new(true))),
    entry("cachedarrays-0", Kind::Steady, || Box::new(CachedArrays::new(Mode::NONE))),
    entry("cachedarrays-l", Kind::Steady, || Box::new(CachedArrays::new(Mode::L))),
    entry("cachedarrays-lm", Kind::Steady, || Box::new(CachedArrays::new(Mode::LM))),
    entry("cachedarrays-lmp", Kind::Steady, || Box::new(CachedArrays::new(Mode::LMP))),
    entry("redl", Kind::Timed, || Box::new(Redl::new())),
    entry("ial", Kind::BelowTimed, || Box::new(Ial::default())),
    entry("unified-memory", Kind::Steady, || Box::new(UnifiedMemory::new())),
    entry("vdnn", Kind::Steady, || Box::new(Vdnn::new())),
    entry("capuchin", Kind::Timed, || Box::new(Capuchin::new())),
    entry("sentinel", Kind::Timed, || Box::new(Sentinel::new())),
];

const fn entry(name: &'static str, kind: Kind, make: fn() -> Box<dyn Policy>) -> Entry {
    Entry { name, kind, make }
}

/// The names of all policies.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|entry| entry.name)
}

/// What the policy of this name knows of objects and of time, where there is one.
pub fn kind(name: &str) -> Option<Kind> {
    ALL.iter().find(|entry| entry.name == name).map(|entry| entry.kind)
}

/// A policy by its name.
pub fn by_name(name: &str) -> Option<Box<dyn Policy>> {
    ALL.iter().find(|entry| entry.name == name).map(|entry| (entry.make)())
}

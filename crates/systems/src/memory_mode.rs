//! Optane's memory mode: fast memory as a hardware cache of the slow tier (CachedArrays' 2LM, AutoTM's 2LM).

use tiercel_policies::MemoryMode;

use crate::copiers::Copies;
use crate::{Allowance, Prepared, System};

/// A program that frees memory as soon as it can (CachedArrays' `2LM: M`).
pub(crate) const MEMORY_MODE: System = System {
    name: "memory-mode",
    about: "fast memory as a direct-mapped hardware cache of the slow tier",
    paper: "a baseline of AutoTM, CachedArrays and Sentinel",
    allowance: Allowance::Given,
    copies: Copies::Mixed,
    hears_ahead: false,
    plans: false,
    prepare: |_| Ok(Prepared::policy(MemoryMode::new(true))),
};

/// A program that frees memory between iterations alone (CachedArrays' `2LM: ∅`); for the paper's figures.
pub(crate) const LAZY: System = System {
    name: "memory-mode-0",
    about: "memory mode under a program that frees memory only between iterations",
    prepare: |_| Ok(Prepared::policy(MemoryMode::new(false))),
    ..MEMORY_MODE
};

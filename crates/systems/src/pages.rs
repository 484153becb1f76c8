//! Systems below the level of objects: pages move, whatever they hold.

use tiercel_policies::{Ial, UnifiedMemory};

use crate::copiers::Copies;
use crate::{Allowance, Prepared, System};

/// The improved active list.
pub(crate) const IAL: System = System {
    name: "ial",
    about: "pages move by active and inactive lists, now and then",
    paper: "Sentinel's baseline, HPCA 2021",
    allowance: Allowance::Given,
    copies: Copies::Mixed,
    hears_ahead: false,
    plans: false,
    prepare: |_| Ok(Prepared { warmup: 3, ..Prepared::policy(Ial::default()) }),
};

/// Unified memory.
pub(crate) const UNIFIED_MEMORY: System = System {
    name: "unified-memory",
    about: "pages move when a kernel touches them, the least recently used make room",
    paper: "CUDA",
    allowance: Allowance::Given,
    copies: Copies::Mixed,
    hears_ahead: false,
    plans: false,
    prepare: |_| Ok(Prepared::policy(UnifiedMemory::new())),
};

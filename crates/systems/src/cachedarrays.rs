//! CachedArrays in its four modes (section IV): an object moves when a hint says that it will be used.

use tiercel_policies::{CachedArrays, Mode};

use crate::copiers::Copies;
use crate::{Allowance, Prepared, System};

/// Where the modes were published.
const PAPER: &str = "CachedArrays, IPDPS 2024";

/// `CA: ∅`.
pub(crate) const NONE: System = System {
    name: "cachedarrays-0",
    about: "born in slow memory and fetched before every use, freed between iterations",
    paper: PAPER,
    allowance: Allowance::Given,
    copies: Copies::Mixed,
    hears_ahead: false,
    plans: false,
    prepare: |_| Ok(Prepared::policy(CachedArrays::new(Mode::NONE))),
};

/// `CA: L`.
pub(crate) const L: System = System {
    name: "cachedarrays-l",
    about: "born in fast memory, freed between iterations",
    prepare: |_| Ok(Prepared::policy(CachedArrays::new(Mode::L))),
    ..NONE
};

/// `CA: LM`.
pub(crate) const LM: System = System {
    name: "cachedarrays-lm",
    about: "born in fast memory, freed as soon as retired, read where it lies",
    prepare: |_| Ok(Prepared::policy(CachedArrays::new(Mode::LM))),
    ..NONE
};

/// `CA: LMP`.
pub(crate) const LMP: System = System {
    name: "cachedarrays-lmp",
    about: "born in fast memory, freed as soon as retired, fetched before it is read",
    hears_ahead: true,
    prepare: |_| Ok(Prepared::policy(CachedArrays::new(Mode::LMP))),
    ..NONE
};

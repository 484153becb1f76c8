//! The two ends and the operating system's way: `fast-only`, `slow-only`, `first-touch`.

use tiercel_policies::{Birthplace, Fixed};

use crate::copiers::Copies;
use crate::{Allowance, Prepared, System, SystemError};

/// The goal.
pub(crate) const FAST_ONLY: System = System {
    name: "fast-only",
    about: "everything in fast memory, of which there is enough: the goal",
    paper: "a baseline of all papers",
    allowance: Allowance::AllFast,
    copies: Copies::Awaited,
    hears_ahead: false,
    plans: false,
    prepare: |_| prepare(Birthplace::FastOnly),
};

/// The other end.
pub(crate) const SLOW_ONLY: System = System {
    name: "slow-only",
    about: "everything in slow memory; brought to fast memory only where kernels cannot do without",
    paper: "a baseline of all papers",
    allowance: Allowance::AllSlow,
    copies: Copies::Awaited,
    hears_ahead: false,
    plans: false,
    prepare: |_| prepare(Birthplace::SlowOnly),
};

/// What an operating system does with two NUMA nodes.
pub(crate) const FIRST_TOUCH: System = System {
    name: "first-touch",
    about: "fast memory until it is full, and no second thought: NUMA's default",
    paper: "a baseline of AutoTM, Sentinel and ReDL",
    allowance: Allowance::Given,
    copies: Copies::Awaited,
    hears_ahead: false,
    plans: false,
    prepare: |_| prepare(Birthplace::FirstTouch),
};

fn prepare(birthplace: Birthplace) -> Result<Prepared, SystemError> {
    Ok(Prepared::policy(Fixed::new(birthplace)))
}

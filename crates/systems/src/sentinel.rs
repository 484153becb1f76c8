//! Sentinel: one profiled iteration, then a zone for short-lived objects and migration by intervals.

use tiercel_policies::Sentinel;
use tiercel_policies::sentinel::schedule::Leaving;

use crate::copiers::Copies;
use crate::{Allowance, Prepared, System};

/// Sentinel.
pub(crate) const SENTINEL: System = System {
    name: "sentinel",
    about: "profiles an iteration, keeps what lives briefly in a zone and moves the rest by intervals",
    paper: "Sentinel, HPCA 2021",
    allowance: Allowance::Given,
    copies: Copies::Mixed,
    hears_ahead: false,
    plans: false,
    prepare: |_| Ok(Prepared::policy(Sentinel::new())),
};

/// The same as section IV-D has it on any machine: what the rest of an interval and the next one do not need leaves at once.
pub(crate) const AT_ONCE: System = System {
    name: "sentinel-at-once",
    prepare: |_| Ok(Prepared::policy(Sentinel::new().leaving(Leaving::AtOnce))),
    ..SENTINEL
};

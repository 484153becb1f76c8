//! Baselines that place an object once and leave it: everything fast, everything slow, first come first served.
//!
//! `fast-only` is the goal that all systems are measured against, `slow-only` the other end. `first-touch` is what
//! an operating system does on a machine whose memories are NUMA nodes: fast memory until it is full, and no second
//! thought. Where kernels cannot work on the slow tier, what they need is fetched for them and, by `slow-only`,
//! sent back.

use std::cell::RefCell;

use tiercel_core::{Error, Hint, Manager, ObjectId, Operand, Policy, Step, TierId};

use crate::gather::gather;
use crate::moves::{Pricing, evict};
use crate::recency::Recency;

/// Where objects are born.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Birthplace {
    /// The fastest tier, or an error where it is full.
    FastOnly,
    /// The slowest tier, or an error where it is full.
    SlowOnly,
    /// The fastest tier that has room.
    FirstTouch,
}

/// A policy that leaves objects where they were born.
#[derive(Clone, Debug)]
pub struct Fixed {
    birthplace: Birthplace,
    recency: RefCell<Recency>,
}

impl Fixed {
    /// A policy with this birthplace.
    pub fn new(birthplace: Birthplace) -> Fixed {
        Fixed { birthplace, recency: RefCell::default() }
    }
}

impl Policy for Fixed {
    fn name(&self) -> &str {
        match self.birthplace {
            Birthplace::FastOnly => "fast-only",
            Birthplace::SlowOnly => "slow-only",
            Birthplace::FirstTouch => "first-touch",
        }
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        let (fastest, slowest) = (TierId(0), m.machine().slowest());
        let tiers = match self.birthplace {
            Birthplace::FastOnly => fastest..=fastest,
            Birthplace::SlowOnly => slowest..=slowest,
            Birthplace::FirstTouch => fastest..=slowest,
        };
        let size = m.size(object)?;
        for tier in m.machine().tier_ids().filter(|tier| tiers.contains(tier)) {
            if let Ok(region) = m.allocate(tier, size) {
                return m.set_primary(object, region);
            }
        }
        Err(m.no_room(object, *tiers.end()))
    }

    fn hint(&mut self, m: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error> {
        if hint == Hint::Retire && m.contains(object) {
            m.retire(object)?;
            self.recency.get_mut().remove(object);
        }
        Ok(())
    }

    fn before(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        for operand in operands {
            if let Some(home) = m.home(operand.object) {
                self.recency.get_mut().touch(operand.object, home);
            }
        }
        gather(m, &self.recency, step, operands)
    }

    fn after(&mut self, m: &mut Manager, _step: Step, operands: &[Operand]) -> Result<(), Error> {
        let slowest = m.machine().slowest();
        if self.birthplace != Birthplace::SlowOnly || m.machine().tier(slowest).computable {
            return Ok(());
        }
        for operand in operands {
            while m.home(operand.object).is_some_and(|home| home < slowest) {
                evict(m, Pricing { recency: &self.recency, keep: &[] }, operand.object)?;
            }
        }
        Ok(())
    }
}

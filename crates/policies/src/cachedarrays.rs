//! CachedArrays (Hildebrand, Lowe-Power, Akella, IPDPS 2024): hints and recency decide.
//!
//! The modes of section IV, each with the optimisations of the one before:
//! - `cachedarrays-0`: every object begins on the slowest tier and is copied in before it is used, like in a true
//!   cache (the paper's CA: ∅);
//! - `cachedarrays-l`: objects are born in fast memory (L, local allocation);
//! - `cachedarrays-lm`: retired objects are freed at once (M, memory optimisation); without it they stay until the
//!   iteration ends or memory runs out, as they would under a garbage collector;
//! - `cachedarrays-lmp`: what will be read is fetched (P, prefetching); without it reads go to the slow tier.
//!
//! `evict` and `prefetch` of Listings 1 and 2 are in `moves.rs`. Copies here are asynchronous, where the paper's are
//! synchronous: a kernel waits for the bytes that it needs and no others.

use std::cell::RefCell;

use tiercel_core::{Error, Hint, Manager, ObjectId, Operand, Policy, Step, TierId};

use crate::garbage::Garbage;
use crate::gather::gather;
use crate::moves::{Pricing, make_room, prefetch};
use crate::recency::Recency;

/// Which optimisations are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// L: objects are born in fast memory.
    pub local: bool,
    /// M: retired objects are freed at once.
    pub eager: bool,
    /// P: what will be read is fetched.
    pub prefetch: bool,
}

impl Mode {
    /// No optimisation.
    pub const NONE: Mode = Mode { local: false, eager: false, prefetch: false };
    /// Local allocation.
    pub const L: Mode = Mode { local: true, eager: false, prefetch: false };
    /// Local allocation and eager freeing.
    pub const LM: Mode = Mode { local: true, eager: true, prefetch: false };
    /// Local allocation, eager freeing and prefetching.
    pub const LMP: Mode = Mode { local: true, eager: true, prefetch: true };
}

/// The policy of CachedArrays in one of its modes.
#[derive(Clone, Debug)]
pub struct CachedArrays {
    mode: Mode,
    recency: RefCell<Recency>,
    garbage: Garbage,
}

const FAST: TierId = TierId(0);

impl CachedArrays {
    /// The policy in this mode.
    pub fn new(mode: Mode) -> CachedArrays {
        CachedArrays { mode, recency: RefCell::default(), garbage: Garbage::default() }
    }

    fn touch(&mut self, m: &Manager, object: ObjectId) {
        if let Some(home) = m.home(object) {
            self.recency.get_mut().touch(object, home);
        }
    }

    fn pricing(&self) -> Pricing<'_> {
        Pricing { recency: &self.recency, keep: &[] }
    }

    /// Frees what is retired; says whether there was anything.
    fn collect(&mut self, m: &mut Manager) -> Result<bool, Error> {
        let CachedArrays { garbage, recency, .. } = self;
        garbage.collect(m, |object| recency.get_mut().remove(object))
    }

    /// Does something that may run out of memory; if it does, frees what is retired and tries once more.
    fn collecting<T>(
        &mut self,
        m: &mut Manager,
        mut act: impl FnMut(&mut Self, &mut Manager) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match act(self, m) {
            Err(Error::Full { .. }) if self.collect(m)? => act(self, m),
            result => result,
        }
    }

    /// Gives an object its first region on the first of these tiers that has room, or can make some.
    fn born(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        let size = m.size(object)?;
        let tiers = m.machine().tier_ids();
        let tiers: Vec<TierId> = if self.mode.local { tiers.collect() } else { tiers.rev().collect() };
        for &tier in &tiers {
            let mut region = m.allocate(tier, size);
            if region.is_err() && make_room(m, self.pricing(), object, tier)? {
                region = m.allocate(tier, size);
            }
            let Ok(region) = region else { continue };
            m.set_primary(object, region)?;
            if !self.mode.local {
                // Like memory behind a cache: what lies there counts, so that the first use copies it in.
                m.mark_dirty(region)?;
            }
            return Ok(());
        }
        Err(m.no_room(object, tiers[tiers.len() - 1]))
    }
}

impl Policy for CachedArrays {
    fn name(&self) -> &str {
        match self.mode {
            Mode { local: false, .. } => "cachedarrays-0",
            Mode { eager: false, .. } => "cachedarrays-l",
            Mode { prefetch: false, .. } => "cachedarrays-lm",
            Mode { .. } => "cachedarrays-lmp",
        }
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        self.collecting(m, |policy, m| policy.born(m, object))?;
        self.touch(m, object);
        Ok(())
    }

    fn hint(&mut self, m: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error> {
        let Some(home) = m.home(object) else { return Ok(()) };
        let fetches = match hint {
            Hint::WillUse | Hint::WillWrite => true,
            Hint::WillRead => self.mode.prefetch || !self.mode.local,
            Hint::Archive => {
                self.recency.get_mut().archive(object, home);
                return Ok(());
            }
            Hint::Retire if self.mode.eager => {
                m.retire(object)?;
                self.recency.get_mut().remove(object);
                return Ok(());
            }
            Hint::Retire => {
                self.recency.get_mut().archive(object, home);
                self.garbage.add(object);
                return Ok(());
            }
        };
        self.recency.get_mut().touch(object, home);
        if fetches && home != FAST {
            self.collecting(m, |policy, m| prefetch(m, policy.pricing(), object, FAST, true))?;
        }
        Ok(())
    }

    fn before(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        for operand in operands {
            self.touch(m, operand.object);
        }
        self.collecting(m, |policy, m| gather(m, &policy.recency, step, operands))
    }

    fn iteration_ended(&mut self, m: &mut Manager) -> Result<(), Error> {
        self.collect(m).map(|_| ())
    }
}

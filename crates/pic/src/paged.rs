//! Baselines on slow memory that nothing can compute on, such as a file: objects come when a kernel asks for them, as pages do.
//!
//! Kernels wait for each of them: nothing is brought ahead of its use. What differs is what may stay. Slow-only keeps nothing that the
//! next kernel does not use, first-touch and static placement keep what found room when it was made, and the cache
//! of memory mode keeps what was used last, as the system's page cache does.

use std::collections::HashMap;

use tiercel_core::{Bytes, Error, Manager, ObjectId, Operand, Step, TierId, ZoneId};

use crate::store::{Kind, Placement};

/// What may stay in fast memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// Nothing, once a pass is through with it.
    Nothing,
    /// What finds room when it is made, whatever it is.
    First,
    /// Fields that find room when they are made.
    Fields,
    /// What was used last, until its room is wanted.
    Last,
}

/// Objects come to fast memory when a kernel wants them, and not before.
pub struct Paged {
    name: &'static str,
    keeps: Keeps,
    /// Fast memory that is left free for what comes.
    reserve: Bytes,
    /// What is in fast memory for a while, and when it was used.
    visiting: HashMap<ObjectId, u64>,
    clock: u64,
}

impl Paged {
    /// A placement of this name that leaves so much fast memory to what comes and goes.
    pub fn new(name: &'static str, keeps: Keeps, reserve: Bytes) -> Paged {
        Paged { name, keeps, reserve, visiting: HashMap::new(), clock: 0 }
    }

    /// Sends an object back, its bytes only if they changed.
    fn leave(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        if self.visiting.remove(&object).is_none() {
            return Ok(());
        }
        let Some(region) = m.primary(object) else { return Ok(()) };
        let slowest = m.machine().slowest();
        let Some(home) = m.region_on(object, slowest) else { return Ok(()) };
        if m.is_written(object) && !m.is_current(home) {
            m.copy(region, home)?;
        }
        m.set_primary(object, home)?;
        m.free(region)
    }

    /// Brings an object to fast memory, in the place of those that were used longest ago and that this kernel does not want.
    fn fetch(&mut self, m: &mut Manager, object: ObjectId, operands: &[Operand]) -> Result<(), Error> {
        let Some(home) = m.primary(object) else { return Ok(()) };
        let region = loop {
            if let Ok(region) = m.allocate_in(TierId(0), ZoneId::MAIN, m.size_of(home)) {
                break region;
            }
            let idle = |other: &ObjectId| operands.iter().all(|operand| operand.object != *other);
            let others = self.visiting.iter().filter(|(other, _)| idle(other));
            let oldest = others.min_by_key(|(other, used)| (**used, **other)).map(|(other, _)| *other);
            let Some(oldest) = oldest else { return Err(m.no_room(object, TierId(0))) };
            self.leave(m, oldest)?;
        };
        if m.is_written(object) {
            m.copy(home, region)?;
        }
        m.link(home, region)?;
        m.set_primary(object, region)
    }
}

impl Placement for Paged {
    fn name(&self) -> &str {
        self.name
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId, kind: Kind) -> Result<(), Error> {
        let size = m.size(object)?;
        let stays = match self.keeps {
            Keeps::First => true,
            Keeps::Fields => kind == Kind::Fields,
            Keeps::Nothing | Keeps::Last => false,
        };
        let free = m.space(TierId(0)).heap(ZoneId::MAIN).free_bytes();
        let tier = if stays && free >= size + self.reserve { TierId(0) } else { m.machine().slowest() };
        let region = m.allocate_in(tier, ZoneId::MAIN, size).map_err(|_| m.no_room(object, tier))?;
        m.set_primary(object, region)
    }

    fn before(&mut self, m: &mut Manager, _: Step, operands: &[Operand]) -> Result<(), Error> {
        for operand in operands {
            let Some(tier) = m.home(operand.object) else { continue };
            if !m.machine().tier(tier).computable {
                self.fetch(m, operand.object, operands)?;
                self.visiting.insert(operand.object, 0);
            }
            if let Some(used) = self.visiting.get_mut(&operand.object) {
                self.clock += 1;
                *used = self.clock;
            }
        }
        Ok(())
    }

    fn passed(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        if self.keeps == Keeps::Last { Ok(()) } else { self.leave(m, object) }
    }

    fn retire(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        self.visiting.remove(&object);
        m.retire(object)
    }
}

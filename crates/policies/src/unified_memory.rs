//! Unified memory: pages come to the fast tier when a kernel touches them, and the least recently used leave.
//!
//! The baseline that Sentinel (section VII-C) and DyNN-Offload (section 6.6) compare with on GPUs: no profile, no
//! hints, no prefetch. Everything a kernel touches is brought in before it runs, on the critical path, and everything
//! has one home: what leaves is always written back.
//!
//! A fault brings in 64 KiB, and each takes the link's latency of the machine file before its bytes move, so a copy
//! on demand is slower than one ahead of time. (Where a machine file gives the link no latency, faults cost nothing;
//! real memory copies without faults.) It deviates from the driver in three ways, because the movable unit is the
//! object: recency is an object's, not a page's; an object needs one free stretch; and a kernel whose operands do not
//! fit together is refused where kernels cannot work on the slow tier, instead of thrashing. And the driver does not
//! know which memory the program has given up, while here it does: that flatters unified memory.

use std::cell::RefCell;

use tiercel_core::{Bytes, Error, Hint, Manager, ObjectId, Operand, Policy, Step, TierId};

use crate::gather::gather;
use crate::moves::{Pricing, make_room, place};
use crate::recency::Recency;

/// What one fault brings in.
const PAGE: Bytes = Bytes(64 << 10);

const FAST: TierId = TierId(0);

/// Pages on demand, the least recently used leave.
#[derive(Clone, Debug, Default)]
pub struct UnifiedMemory {
    recency: RefCell<Recency>,
}

impl UnifiedMemory {
    /// The policy before its first object.
    pub fn new() -> UnifiedMemory {
        UnifiedMemory::default()
    }

    /// Brings an object to the fast tier because a kernel touches it. Where no room can be made, it stays.
    fn demand(&self, m: &mut Manager, pricing: Pricing<'_>, object: ObjectId) -> Result<(), Error> {
        if m.home(object).is_none_or(|home| home == FAST) {
            return Ok(());
        }
        let size = m.size(object)?;
        let mut y = m.allocate(FAST, size);
        if y.is_err() && make_room(m, pricing, object, FAST)? {
            y = m.allocate(FAST, size);
        }
        let (Ok(y), Some(x)) = (y, m.primary(object)) else { return Ok(()) };
        if m.is_written(object) {
            m.copy_paged(x, y, PAGE)?;
        }
        m.set_primary(object, y)?;
        self.recency.borrow_mut().moved(object, FAST);
        m.free(x)
    }
}

impl Policy for UnifiedMemory {
    fn name(&self) -> &str {
        "unified-memory"
    }

    /// The first touch is the device's: what leaves for it is the least recently used.
    fn place(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        place(m, &self.recency, object)
    }

    fn hint(&mut self, m: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error> {
        if hint == Hint::Retire && m.contains(object) {
            m.retire(object)?;
            self.recency.get_mut().remove(object);
        }
        Ok(())
    }

    fn before(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        let keep: Vec<ObjectId> = operands.iter().map(|operand| operand.object).collect();
        for &object in &keep {
            if let Some(home) = m.home(object) {
                self.recency.get_mut().touch(object, home);
            }
        }
        for &object in &keep {
            self.demand(m, Pricing { recency: &self.recency, keep: &keep }, object)?;
        }
        gather(m, &self.recency, step, operands)
    }
}

//! What kernels do: they bracket the objects that they use, and wait for just the copies that stand in their way.
//!
//! Between `begin` and `end` an object's primary cannot change (CachedArrays section III-C), so a kernel may work
//! on the memory itself.

use crate::backend::Backend;
use crate::error::Error;
use crate::event::{Cause, Event};
use crate::object::ObjectId;
use crate::policy::Operand;
use crate::units::{Nanos, Step};

use super::{FlightId, Manager};

impl<B: Backend + ?Sized> Manager<B> {
    /// Waits until a kernel's operands are in place, and keeps them there until `end` is called with the same
    /// operands. An object is named once, with all that the kernel does with it. On an error nothing is kept.
    pub fn begin(&mut self, step: Step, operands: &[Operand]) -> Result<(), Error> {
        self.settle();
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.begun += 1;
        for operand in operands {
            self.usable(step, operand)?;
            let object = self.objects.get_mut(operand.object.0).expect("it is usable");
            if std::mem::replace(&mut object.named, self.begun) == self.begun {
                return Err(Error::Repeated { step, what: self.what(operand.object) });
            }
        }
        for operand in operands {
            self.await_operand(step, operand)?;
        }
        for operand in operands {
            self.pin(operand.object);
            if operand.access.writes() {
                self.objects.get_mut(operand.object.0).expect("just seen").writers += 1;
            }
        }
        self.note(|| Event::KernelBegan { step });
        Ok(())
    }

    /// A kernel has ended: its operands may move again, and what it wrote makes their other regions stale.
    pub fn end(&mut self, step: Step, operands: &[Operand]) {
        self.note(|| Event::KernelEnded { step });
        self.let_go(operands);
    }

    /// Lets a kernel's operands move again, and counts what it writes as written.
    pub(super) fn let_go(&mut self, operands: &[Operand]) {
        for operand in operands {
            self.unpin(operand.object);
            if operand.access.writes() {
                self.objects.get_mut(operand.object.0).expect("in use").writers -= 1;
                self.written(operand.object);
            }
        }
    }

    /// Keeps an object where it is until it is unpinned as often.
    fn pin(&mut self, object: ObjectId) {
        let o = self.objects.get_mut(object.0).expect("a pinned object exists");
        o.pins += 1;
        let r = self.regions.get(o.primary.expect("a pinned object is placed").0).expect("a primary exists");
        self.spaces[r.tier.index()].pin(r.zone, r.block);
    }

    fn unpin(&mut self, object: ObjectId) {
        let o = self.objects.get_mut(object.0).expect("a pinned object exists");
        o.pins = o.pins.checked_sub(1).expect("a kernel ends once");
        let r = self.regions.get(o.primary.expect("a pinned object is placed").0).expect("a primary exists");
        self.spaces[r.tier.index()].unpin(r.zone, r.block);
    }

    /// Whether a kernel could work on the operand at all, copies aside.
    fn usable(&self, step: Step, operand: &Operand) -> Result<(), Error> {
        let object = self.known(operand.object)?;
        let what = || self.what(operand.object);
        if object.lost {
            return Err(Error::Lost { what: what() });
        }
        let Some(primary) = object.primary else { return Err(Error::Unplaced { what: what() }) };
        let tier = self.machine.tier(self.region(primary).tier);
        if !tier.serves(operand.wanted(step), object.size) {
            return Err(Error::NotComputable { step, what: what(), tier: tier.name.clone() });
        }
        if operand.access.reads() && object.version == 0 {
            return Err(Error::Unwritten { step, what: what() });
        }
        Ok(())
    }

    /// Waits for the copies that stand between a kernel and one operand.
    fn await_operand(&mut self, step: Step, operand: &Operand) -> Result<(), Error> {
        let Some(primary) = self.primary(operand.object) else {
            return Err(Error::Unplaced { what: self.what(operand.object) });
        };
        let region = self.region(primary);
        let arrival = region.fill;
        let departing = operand.access.writes() && region.readers > 0;
        if arrival.is_none() && region.space.is_empty() && !departing {
            return Ok(());
        }
        for flight in region.space.clone() {
            self.stall(step, operand.object, flight, Cause::Space)?;
        }
        self.regions.get_mut(primary.0).expect("only a failed copy frees regions").space.clear();
        if let Some(flight) = arrival {
            self.stall(step, operand.object, flight, Cause::Arrival)?;
        }
        if departing {
            for flight in self.departures(primary) {
                // The copy's destination will be stale once the kernel has run.
                self.call_off(flight);
                self.stall(step, operand.object, flight, Cause::Departure)?;
            }
        }
        Ok(())
    }

    /// Waits for one copy, and charges the time to the kernel and the object.
    pub(super) fn stall(
        &mut self,
        step: Step,
        object: ObjectId,
        flight: FlightId,
        cause: Cause,
    ) -> Result<(), Error> {
        let Some(ticket) = self.ticket(flight) else { return Ok(()) };
        let before = self.now();
        let result = self.finish(flight);
        let time = self.now().saturating_sub(before);
        if time > Nanos::ZERO {
            self.totals.stall += time;
            self.note(|| Event::Stalled { step, object, ticket, cause, time });
        }
        result
    }
}

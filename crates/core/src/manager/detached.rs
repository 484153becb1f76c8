//! Kernels that run beside others: what nobody needs for a while is computed where its data lies, and not waited for.
//!
//! ZeRO-Offload updates weights on the host while the GPU goes on (section 4); rows of embedding tables in slow memory are
//! updated in the same way. Such a kernel waits for its operands like any other; then it is left alone, and from there on it
//! is like a copy in flight: its operands may move, its memory may be given back, and whoever needs what it writes, or would
//! change what it reads, waits for it and for nothing else. So what a policy decides does not depend on how long it takes.

use crate::backend::{Backend, Ticket};
use crate::error::Error;
use crate::event::{Cause, Event};
use crate::policy::Operand;
use crate::region::RegionId;
use crate::units::Step;

use super::flight::{Detached, Flight, Job};
use super::{FlightId, Manager};

impl<B: Backend + ?Sized> Manager<B> {
    /// A kernel that has begun goes on by itself, as this ticket of the backend. To be called instead of `end`, with the same
    /// operands.
    pub fn leave(&mut self, step: Step, operands: &[Operand], ticket: Ticket) {
        let region = |operand: &Operand| self.primary(operand.object).expect("a kernel's operand is placed");
        let (writes, reads): (Vec<&Operand>, Vec<&Operand>) =
            operands.iter().partition(|operand| operand.access.writes());
        let reads: Vec<RegionId> = reads.into_iter().map(region).collect();
        let writes: Vec<RegionId> = writes.into_iter().map(region).collect();
        self.note(|| Event::KernelLeft { step, ticket });
        self.let_go(operands);
        let object = operands.iter().find(|operand| operand.access.writes()).map(|operand| operand.object);
        let detached = Detached { step, object, reads: reads.clone(), writes: writes.clone() };
        let flight = FlightId(self.flights.insert(Flight::new(ticket, Job::Kernel(detached))));
        self.flying.push(flight);
        for region in reads {
            self.regions.get_mut(region.0).expect("a primary exists").readers += 1;
        }
        for region in writes {
            self.regions.get_mut(region.0).expect("a primary exists").fill = Some(flight);
        }
    }

    /// Waits until every kernel beside others has ended; the time counts as a stall of the kernel at `step`.
    pub fn rejoin(&mut self, step: Step) -> Result<(), Error> {
        let detached = |id: &FlightId| match &self.flight(*id).job {
            Job::Kernel(detached) => Some((*id, detached.object)),
            Job::Copy(_) => None,
        };
        for (flight, object) in self.flying.iter().filter_map(detached).collect::<Vec<_>>() {
            match object {
                Some(object) => self.stall(step, object, flight, Cause::Arrival)?,
                None => self.finish(flight)?,
            }
        }
        Ok(())
    }
}

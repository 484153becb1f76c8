//! A backend without bytes: it writes down what is to be copied and what has to be waited for.
//!
//! The manager asks for copies and waits as of any world. Here both become orders, in the order in which they were asked
//! for, and whoever holds the bytes carries them out. A copy counts as under way until the holder says that it has ended
//! or has been told to wait for it; what is ordered later on the waiting side comes after the copy by itself.

use std::collections::BTreeSet;
use std::time::Instant;

use tiercel_core::{Backend, Bytes, CopyError, CopyOrder, Locked, Nanos, Place, Ticket};
use tiercel_sim::{Work, World};
use tiercel_workload::Tensor;

/// Something that the holder of the bytes has to do, or a sign of what the manager did between orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Copy bytes. The memory at the destination is the object's from here on.
    Copy {
        /// The copy's number.
        ticket: u64,
        /// Where the bytes are.
        from: Place,
        /// Where they go.
        to: Place,
        /// How many.
        bytes: Bytes,
        /// Copies that must end before this one begins.
        after: Vec<u64>,
    },
    /// Let no kernel run before this copy has ended.
    Wait(u64),
}

/// Writes orders down.
#[derive(Debug)]
pub struct Ledger {
    orders: Vec<Order>,
    issued: u64,
    open: BTreeSet<u64>,
    began: Instant,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger { orders: Vec::new(), issued: 0, open: BTreeSet::new(), began: Instant::now() }
    }
}

impl Ledger {
    /// What has been ordered since this was last asked.
    pub fn take(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    /// Hears that a copy has ended.
    pub fn ended(&mut self, ticket: u64) {
        self.open.remove(&ticket);
    }
}

impl Backend for Ledger {
    fn copy(&mut self, order: CopyOrder<'_>) -> Ticket {
        self.issued += 1;
        let ticket = self.issued;
        self.open.insert(ticket);
        let after = order.after.iter().map(|t| t.0).filter(|t| self.open.contains(t)).collect();
        self.orders.push(Order::Copy { ticket, from: order.from, to: order.to, bytes: order.bytes, after });
        Ticket(ticket)
    }

    fn copy_paged(&mut self, order: CopyOrder<'_>, _pages: u64) -> Ticket {
        self.copy(order)
    }

    fn done(&mut self, ticket: Ticket) -> Result<bool, CopyError> {
        Ok(!self.open.contains(&ticket.0))
    }

    fn wait(&mut self, ticket: Ticket) -> Result<(), CopyError> {
        if self.open.remove(&ticket.0) {
            self.orders.push(Order::Wait(ticket.0));
        }
        Ok(())
    }

    // The holder carries every order out: a copy that nobody needs any more has been ordered all the same.
    fn cancel(&mut self, _ticket: Ticket) {}

    fn forget(&mut self, _ticket: Ticket) {}

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Locked for Ledger {
    type Key = ();
}

impl World for Ledger {
    unsafe fn key() {}

    unsafe fn load(&mut self, _tensor: &Tensor, _place: Place) -> Result<(), String> {
        Ok(())
    }

    unsafe fn compute(&mut self, _work: &Work<'_>) -> Result<(), String> {
        Ok(())
    }

    unsafe fn launch(&mut self, _work: &Work<'_>) -> Result<Option<Ticket>, String> {
        Ok(None)
    }

    fn measured(&self) -> bool {
        true
    }
}

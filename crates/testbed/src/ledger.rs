//! What every object should hold, kept in the simplest way, and kernels that check it byte by byte.

use std::collections::BTreeMap;

use tiercel_core::{
    Backend, Bytes, Error, Event, Locked, Machine, Manager, ObjectId, Operand, Place, Step, Ticket,
};
use tiercel_run::Host;
use tiercel_run::host::Key;

use crate::{Detached, Jumble};

/// A world whose bytes a test can see.
pub trait Visible: Locked {
    /// The key to the world: tests start no copies with it.
    fn key() -> Self::Key;

    /// The bytes at a place; nothing else may use them meanwhile.
    fn bytes(&mut self, place: Place, size: Bytes) -> &mut [u8];

    /// Starts a kernel beside others, or hands it back where there is nothing to run it.
    fn launch(&mut self, detached: Detached) -> Result<Ticket, Detached> {
        Err(detached)
    }
}

impl Locked for Jumble {
    type Key = ();
}

impl Visible for Jumble {
    fn key() {}

    fn bytes(&mut self, place: Place, size: Bytes) -> &mut [u8] {
        self.bytes_mut(place, size)
    }

    fn launch(&mut self, detached: Detached) -> Result<Ticket, Detached> {
        Ok(Jumble::launch(self, detached))
    }
}

impl Visible for Host {
    fn key() -> Key {
        // SAFETY: tests look at bytes with it and no more.
        unsafe { Key::new() }
    }

    fn bytes(&mut self, place: Place, size: Bytes) -> &mut [u8] {
        let mut slice = self.slice(place, size).expect("kernels work on memory");
        // SAFETY: called between `begin` and `end` of a kernel that uses this region: no copy writes it, and the
        // borrow of the host keeps a second slice away.
        unsafe { slice.as_mut() }
    }
}

/// What every object should hold: a number that stands for its bytes, none before the first write.
#[derive(Debug, Default)]
pub struct Ledger {
    contents: BTreeMap<ObjectId, Option<u64>>,
    writes: u64,
    retired: std::collections::BTreeSet<ObjectId>,
}

fn byte(number: u64, at: usize) -> u8 {
    ((number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ at as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 56) as u8
}

impl Ledger {
    /// A new object, not written yet.
    pub fn add(&mut self, object: ObjectId) {
        self.contents.insert(object, None);
    }

    /// The object has been given up.
    pub fn remove(&mut self, object: ObjectId) {
        self.contents.remove(&object);
    }

    /// Every object that has not been given up.
    pub fn objects(&self) -> Vec<ObjectId> {
        self.contents.keys().copied().collect()
    }

    /// Whether anything has been written to the object.
    pub fn is_written(&self, object: ObjectId) -> bool {
        self.contents.get(&object).is_some_and(Option::is_some)
    }

    /// Begins a kernel, verifies every byte that it reads, writes every byte that it writes, and ends it.
    pub fn kernel<W: Visible>(
        &mut self,
        manager: &mut Manager<W>,
        step: Step,
        operands: &[Operand],
        beside: impl FnOnce(&mut Manager<W>),
    ) -> Result<(), Error> {
        manager.begin(step, operands)?;
        let homes: Vec<_> = operands.iter().map(|o| manager.place(o.object)).collect();
        beside(manager);
        for (operand, home) in operands.iter().zip(homes) {
            let (place, size) = (manager.place(operand.object), manager.size(operand.object)?);
            assert_eq!(place, home, "a primary changed during a kernel");
            let place = place.expect("a kernel's operand has a place");
            if operand.access.reads() {
                self.verify(manager, operand.object, place, size);
            }
            if operand.access.writes() {
                self.writes += 1;
                let bytes = manager.backend_mut(W::key()).bytes(place, size);
                bytes.iter_mut().enumerate().for_each(|(at, b)| *b = byte(self.writes, at));
                self.contents.insert(operand.object, Some(self.writes));
            }
        }
        manager.end(step, operands);
        Ok(())
    }

    /// Begins a kernel that runs beside others, and leaves it; or ends it at once, where the world can do no better.
    pub fn detach<W: Visible>(
        &mut self,
        manager: &mut Manager<W>,
        step: Step,
        operands: &[Operand],
    ) -> Result<(), Error> {
        manager.begin(step, operands)?;
        let mut detached = Detached::default();
        for operand in operands {
            let place = manager.place(operand.object).expect("a kernel's operand has a place");
            let size = manager.size(operand.object)?;
            if operand.access.reads() {
                self.verify(manager, operand.object, place, size);
            }
            if operand.access.writes() {
                self.writes += 1;
                self.contents.insert(operand.object, Some(self.writes));
                detached.writes.push((place, (0..size.0 as usize).map(|at| byte(self.writes, at)).collect()));
            } else {
                detached.reads.push((place, manager.backend_mut(W::key()).bytes(place, size).to_vec()));
            }
        }
        match manager.backend_mut(W::key()).launch(detached) {
            Ok(ticket) => manager.leave(step, operands, ticket),
            Err(Detached { writes, .. }) => {
                for (place, bytes) in writes {
                    manager
                        .backend_mut(W::key())
                        .bytes(place, Bytes(bytes.len() as u64))
                        .copy_from_slice(&bytes);
                }
                manager.end(step, operands);
            }
        }
        Ok(())
    }

    fn verify<W: Visible>(&self, manager: &mut Manager<W>, object: ObjectId, place: Place, size: Bytes) {
        let Some(Some(number)) = self.contents.get(&object).copied() else { return };
        let bytes = manager.backend_mut(W::key()).bytes(place, size);
        let wrong = bytes.iter().enumerate().find(|(at, b)| **b != byte(number, *at));
        let wrong = wrong.map(|(at, b)| (at, *b));
        assert_eq!(wrong, None, "{} holds wrong bytes at {place:?}", manager.what(object));
    }

    /// Verifies that no object is copied after it was retired.
    pub fn watch<W: Backend>(&mut self, manager: &mut Manager<W>) {
        for stamped in manager.take_events() {
            match stamped.event {
                Event::Retired { object } => {
                    self.retired.insert(object);
                }
                Event::CopyStarted { object, .. } => {
                    assert!(!self.retired.contains(&object), "{object} is copied after it was retired");
                }
                _ => {}
            }
        }
    }
}

/// A machine with tiers of these capacities; kernels can work on the first `computable` of them.
pub fn machine(capacities: &[u64], computable: usize) -> Machine {
    let mut toml = "name = \"testbed\"\n".to_string();
    for (tier, capacity) in capacities.iter().enumerate() {
        toml += &format!(
            "[[tier]]\nname = \"t{tier}\"\ncapacity = \"{capacity} B\"\nread = \"{0} GB/s\"\nwrite = \"{0} GB/s\"\n\
             latency = \"{1} ns\"\ncomputable = {2}\n",
            100 >> tier,
            80 << tier,
            tier < computable,
        );
    }
    for tier in 1..capacities.len() {
        for (from, to) in [(tier - 1, tier), (tier, tier - 1)] {
            toml += &format!(
                "[[link]]\nfrom = \"t{from}\"\nto = \"t{to}\"\nthreads = 1\nbandwidth = {{ 1 = \"{} GB/s\" }}\n",
                40 >> tier
            );
        }
    }
    Machine::parse(&toml).expect("the testbed's machine is sound")
}

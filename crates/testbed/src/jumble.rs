//! A world with real bytes in which copies make progress at random moments, in random pieces and in random order, as
//! far as the order's dependencies allow; and in which they fail, if asked to.
//!
//! Whatever the manager forgets to wait for will sooner or later be seen as wrong bytes.

use std::collections::{BTreeMap, BTreeSet};

use tiercel_core::{Backend, Bytes, CopyError, CopyOrder, Machine, Nanos, Place, Ticket};

#[derive(Debug)]
struct Pending {
    from: Place,
    to: Place,
    left: std::ops::Range<usize>,
    after: Vec<Ticket>,
    cancelled: bool,
    doomed: bool,
    /// What it is, where it is no copy.
    detached: Option<Detached>,
}

/// A kernel beside others: what it expects to read, and what it writes.
#[derive(Debug, Default)]
pub struct Detached {
    /// Places and the bytes that are to be there all the time.
    pub reads: Vec<(Place, Vec<u8>)>,
    /// Places and the bytes that it leaves there.
    pub writes: Vec<(Place, Vec<u8>)>,
}

/// The awkward world.
pub struct Jumble {
    memory: Vec<Vec<u8>>,
    random: fastrand::Rng,
    tickets: u64,
    pending: BTreeMap<Ticket, Pending>,
    failed: BTreeSet<Ticket>,
    failure_rate: f64,
    clock: u64,
}

impl Jumble {
    /// A world of this machine; the seed decides everything that happens in it.
    pub fn new(machine: &Machine, seed: u64) -> Jumble {
        let mut random = fastrand::Rng::with_seed(seed);
        let tiers = machine.tiers.iter();
        let memory = tiers.map(|t| (0..t.capacity.0).map(|_| random.u8(..)).collect()).collect();
        Jumble {
            memory,
            random,
            tickets: 0,
            pending: BTreeMap::new(),
            failed: BTreeSet::new(),
            failure_rate: 0.0,
            clock: 0,
        }
    }

    /// From now on, this share of copies fail.
    pub fn fail(&mut self, rate: f64) {
        self.failure_rate = rate;
    }

    /// The bytes at a place, to change.
    pub fn bytes_mut(&mut self, place: Place, size: Bytes) -> &mut [u8] {
        let start = place.offset.0 as usize;
        &mut self.memory[place.tier.index()][start..start + size.0 as usize]
    }

    /// Starts a kernel beside others, which verifies what it reads whenever it goes on, and writes when it ends. Until then
    /// what it writes is nothing that anybody should read.
    pub fn launch(&mut self, detached: Detached) -> Ticket {
        let nowhere = Place { tier: Default::default(), offset: Bytes::ZERO };
        for (place, bytes) in &detached.writes {
            let noise = self.random.u8(..);
            self.bytes_mut(*place, Bytes(bytes.len() as u64)).fill(noise);
        }
        let ticket = self.copy(CopyOrder { from: nowhere, to: nowhere, bytes: Bytes::ZERO, after: &[] });
        if let Some(pending) = self.pending.get_mut(&ticket) {
            (pending.detached, pending.doomed) = (Some(detached), false);
        } else {
            // It has ended at once.
            self.failed.remove(&ticket);
            self.finish(&detached);
        }
        ticket
    }

    fn finish(&mut self, detached: &Detached) {
        for (place, bytes) in &detached.reads {
            let there = self.bytes_mut(*place, Bytes(bytes.len() as u64));
            assert!(there == bytes, "what a kernel beside others reads at {place:?} has changed");
        }
        for (place, bytes) in &detached.writes {
            self.bytes_mut(*place, Bytes(bytes.len() as u64)).copy_from_slice(bytes);
        }
    }

    /// Lets one copy that may go on do so for a bit.
    fn stir(&mut self) {
        let ready =
            |pending: &&Pending| pending.after.iter().all(|earlier| !self.pending.contains_key(earlier));
        let count = self.pending.values().filter(ready).count();
        if count == 0 {
            return;
        }
        let chosen = self.random.usize(0..count);
        let (ticket, _) = self.pending.iter().filter(|(_, p)| ready(p)).nth(chosen).expect("counted");
        let ticket = *ticket;
        let failed = self.pending[&ticket].after.iter().any(|earlier| self.failed.contains(earlier));
        let pending = self.pending.get_mut(&ticket).expect("chosen");
        let stops_early = pending.cancelled && self.random.bool();
        let length =
            if self.random.bool() { pending.left.len() } else { self.random.usize(0..=pending.left.len()) };
        if failed || (pending.doomed && length == pending.left.len()) {
            self.pending.remove(&ticket);
            self.failed.insert(ticket);
            return;
        }
        let piece = pending.left.start..pending.left.start + length;
        pending.left.start = piece.end;
        let ended = pending.left.is_empty() || stops_early;
        let (from, to) = (pending.from, pending.to);
        for at in piece {
            let byte = self.memory[from.tier.index()][from.offset.0 as usize + at];
            self.memory[to.tier.index()][to.offset.0 as usize + at] = byte;
        }
        if ended && let Some(Pending { detached: Some(detached), .. }) = self.pending.remove(&ticket) {
            self.finish(&detached);
        }
    }
}

impl Backend for Jumble {
    fn copy(&mut self, order: CopyOrder<'_>) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let pending = Pending {
            from: order.from,
            to: order.to,
            left: 0..order.bytes.0 as usize,
            after: order.after.to_vec(),
            cancelled: false,
            doomed: self.random.f64() < self.failure_rate,
            detached: None,
        };
        self.pending.insert(ticket, pending);
        if self.random.u8(0..4) == 0 {
            self.stir();
        }
        ticket
    }

    fn copy_paged(&mut self, order: CopyOrder<'_>, _: u64) -> Ticket {
        // It ends whenever it likes as it is.
        self.copy(order)
    }

    fn done(&mut self, ticket: Ticket) -> Result<bool, CopyError> {
        if self.random.u8(0..8) == 0 {
            self.stir();
        }
        match self.failed.contains(&ticket) {
            true => Err(CopyError("made to fail".to_string())),
            false => Ok(!self.pending.contains_key(&ticket)),
        }
    }

    fn wait(&mut self, ticket: Ticket) -> Result<(), CopyError> {
        while self.pending.contains_key(&ticket) {
            self.clock += 1;
            self.stir();
        }
        self.done(ticket).map(|_| ())
    }

    fn cancel(&mut self, ticket: Ticket) {
        if let Some(pending) = self.pending.get_mut(&ticket) {
            (pending.cancelled, pending.doomed) = (true, false);
        }
    }

    fn forget(&mut self, ticket: Ticket) {
        assert!(!self.pending.contains_key(&ticket), "a copy is forgotten before it has ended");
        self.failed.remove(&ticket);
    }

    fn now(&self) -> Nanos {
        Nanos(self.clock)
    }
}

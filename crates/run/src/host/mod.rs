//! Real memory: the tiers of a machine as mappings and files of this process, and threads that copy among them.
//!
//! [`Host`] is the world in which programs run for real. `tiers` knows what is behind each tier and moves a chunk
//! between any two; `memory` maps, `file` keeps bytes on disk, `supply` knows how much there is, [`stream`] is the
//! byte copy. `queue` says which chunk is next and `engine` has the threads that move it; `throttle` slows memory
//! down to stand in for one that this machine does not have.

mod engine;
mod error;
mod file;
mod memory;
mod queue;
pub mod stream;
pub mod supply;
mod throttle;
mod tiers;

use std::ptr::NonNull;

use tiercel_core::{
    Backend, Bytes, CopyError, CopyOrder, Locked, Machine, Nanos, Place, Span, Ticket, TierId, Traffic,
};

pub use error::HostError;

use engine::Engine;
use memory::PAGE;
pub(crate) use tiers::Job;
use tiers::{Memory, Store, Tiers};

/// A file wants several small requests in flight: as many threads as serve each of its directions at least.
const FILE_THREADS: u32 = 8;

/// How much of a file may be in flight for each thread of its link, and half as much of several copies: what comes first
/// shall be there first, and a device that has a lot to do at once may tell of none before all is done.
const WINDOW: u64 = 512 << 10;

/// The memories of this very machine.
///
/// A copy of less than 8 MiB begins at the latest with the next call other than `now`; the `slice` that every
/// kernel begins with is one.
///
/// Dropping it abandons the copies that have not begun, ends every thread, and gives all memory and disk space
/// back. The addresses that [`Host::slice`] gave are dead then.
pub struct Host {
    engine: Engine<Tiers>,
    threads: Vec<u32>,
    /// How much was done beside kernels and copies so far.
    jobs: u64,
    /// Whether the machine runs kernels beside others.
    detached: bool,
}

impl Host {
    /// Maps, reserves and faults in everything that the machine's tiers ask for, or says what is missing.
    pub fn open(machine: &Machine) -> Result<Host, HostError> {
        machine.check()?;
        let tiers = machine.tiers.iter().map(Memory::open).collect::<Result<Vec<_>, _>>()?;
        let (mut lanes, mut windows) = (Vec::new(), Vec::new());
        for from in machine.tier_ids() {
            for to in machine.tier_ids() {
                let threads = machine.link(from, to).map_or(1, |link| link.threads);
                let ends = [&tiers[from.index()], &tiers[to.index()]];
                let file = ends.iter().any(|memory| memory.filed());
                let sleepy = file || ends.iter().any(|memory| memory.throttle.is_some());
                if file {
                    windows.push((lanes.len(), WINDOW * u64::from(threads.max(FILE_THREADS))));
                }
                lanes.push((if file { threads.max(FILE_THREADS) } else { threads }, !sleepy));
            }
        }
        lanes.push((1, false));
        let mut engine = Engine::new(Tiers::new(tiers), &lanes);
        windows.into_iter().for_each(|(lane, window)| engine.limit(lane, window));
        let threads = lanes.into_iter().map(|(threads, _)| threads).collect();
        Ok(Host { engine, threads, jobs: 0, detached: machine.detached.is_some() })
    }

    /// From now on so many threads copy on each link at once, and no more than it was opened with.
    pub fn allow(&self, threads: u32) {
        for (lane, opened) in self.threads.iter().enumerate() {
            self.engine.allow(lane, threads.clamp(1, *opened));
        }
    }

    /// Whether kernels may run beside others.
    pub fn runs_detached(&self) -> bool {
        self.detached
    }

    /// Has a thread of its own do something beside kernels and copies, one such thing after the other. Throttled tiers are
    /// charged for the traffic. The ticket is one like those of copies; it must not be cancelled, and who waits for it may do
    /// the work.
    pub(crate) fn submit(&mut self, job: Job) -> Ticket {
        self.jobs += 1;
        let tiers = self.engine.mover();
        let lane = tiers.job_lane();
        tiers.submit(self.jobs, job);
        let number = Place { tier: TierId(0), offset: Bytes(self.jobs) };
        self.engine.start(&CopyOrder { from: number, to: number, bytes: Bytes(1), after: &[] }, lane, 1)
    }

    /// Whether a tier is plain memory slowed down to stand in for another; reports must say so.
    pub fn emulated(&self, tier: TierId) -> bool {
        self.memory(tier).throttle.is_some()
    }

    /// Whether a tier is a file on a file system that refuses direct I/O, so that the system's cache is in its way.
    pub fn buffered(&self, tier: TierId) -> bool {
        matches!(&self.memory(tier).store, Store::Filed(file) if !file.direct())
    }

    /// The bytes of a stretch of a tier, for a kernel to work on; `None` where the tier is a file.
    ///
    /// Making the address is safe, using it is not: the bytes may be read only while no copy writes them, and
    /// written only while no copy reads or writes them, and never after the host is dropped. The manager's
    /// `begin` and `end` see to the former. Panics where the stretch is not within the tier.
    pub fn slice(&self, place: Place, bytes: Bytes) -> Option<NonNull<[u8]>> {
        self.engine.nudge();
        let Store::Mapped(mapping) = &self.memory(place.tier).store else { return None };
        let start = NonNull::new(mapping.address(place.offset.0, bytes.0))?;
        Some(NonNull::slice_from_raw_parts(start, bytes.0 as usize))
    }

    /// Lets a kernel that began at `started`, and has done its own work, pay for its traffic with throttled tiers: returns when
    /// it would have ended on such memory, beside whatever the copies moved. Other tiers charge by being what they are.
    pub fn charge(&self, traffic: &[Traffic], started: Nanos) {
        self.engine.nudge();
        self.engine.mover().charge(traffic, started);
    }

    fn memory(&self, tier: TierId) -> &Memory {
        &self.engine.mover().tiers[tier.index()]
    }

    /// Panics where the stretch is no place for a copy: the manager never asks for one.
    fn check(&self, order: &CopyOrder<'_>) {
        let (from, to) = (order.from, order.to);
        let paged = self.memory(from.tier).filed() || self.memory(to.tier).filed();
        let unit = if paged { PAGE as u64 } else { 1 };
        let bytes = order.bytes.0.checked_next_multiple_of(unit).expect("a copy of an amount that exists");
        for place in [from, to] {
            let len = self.memory(place.tier).len();
            assert!(
                place.offset.0.checked_add(bytes).is_some_and(|end| end <= len),
                "a copy of {} at {} of {} leaves its {}",
                order.bytes,
                place.offset.0,
                place.tier,
                Bytes(len)
            );
            assert!(
                place.offset.0 % unit == 0,
                "a copy with a file starts at a page, not at {}",
                place.offset.0
            );
        }
        let apart = from.offset.0.abs_diff(to.offset.0) >= bytes;
        assert!(from.tier != to.tier || apart, "a copy within {} overlaps itself", from.tier);
    }

    fn lane(&self, order: &CopyOrder<'_>) -> usize {
        order.from.tier.index() * self.engine.mover().tiers.len() + order.to.tier.index()
    }
}

impl Backend for Host {
    fn copy(&mut self, order: CopyOrder<'_>) -> Ticket {
        self.check(&order);
        let lane = self.lane(&order);
        let chunk = self.engine.mover().chunk(&order, self.threads[lane]);
        self.engine.start(&order, lane, chunk)
    }

    fn copy_paged(&mut self, order: CopyOrder<'_>, pages: u64) -> Ticket {
        self.check(&order);
        let page = order.bytes.0.div_ceil(pages.max(1)).next_multiple_of(PAGE as u64);
        self.engine.start_cut(&order, self.lane(&order), (page.max(PAGE as u64), true))
    }

    fn done(&mut self, ticket: Ticket) -> Result<bool, CopyError> {
        self.engine.done(ticket)
    }

    fn wait(&mut self, ticket: Ticket) -> Result<(), CopyError> {
        self.engine.wait(ticket)
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.engine.cancel(ticket);
    }

    fn span(&self, ticket: Ticket) -> Option<Span> {
        self.engine.span(ticket)
    }

    fn forget(&mut self, ticket: Ticket) {
        self.engine.forget(ticket);
    }

    fn now(&self) -> Nanos {
        self.engine.mover().clock.now()
    }

    fn settle(&mut self) {
        self.engine.settle();
    }
}

/// What whoever reaches real memory behind its manager's back has to show.
#[derive(Debug)]
pub struct Key(());

impl Key {
    /// A key to all real memory.
    ///
    /// # Safety
    /// Nothing is copied with it, and no ticket of the manager is cancelled, forgotten or waited for.
    pub unsafe fn new() -> Key {
        Key(())
    }
}

impl Locked for Host {
    type Key = Key;
}

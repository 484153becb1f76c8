//! IAL, the improved active list (Nimble: Yan, Lustig, Nellans, Bhattacharjee, ASPLOS 2019): an operating system that
//! moves hot pages to fast memory every few seconds.
//!
//! Sentinel (section VII-B) calls it IAL, ReDL (section IV-A) calls the same system OIM and gives its figures: pages
//! are looked at every five seconds, eight move at a time, and four threads copy each. Pages are born in fast memory
//! while there is any; later, hot ones in slow memory change places with cold ones in fast memory, as the lists of
//! `pages.rs` tell them apart.
//!
//! Like the operating system it works below the level of objects. Every object lives at an address of the slowest
//! tier, where its bytes are always right, and a page table says which pages of those addresses count as fast;
//! kernels are charged for what they touch on either side. So a page serves whatever tensors the allocator puts
//! there, iteration after iteration, and one that is shared is shared. Pages in motion are copied for real between
//! the two tiers, beside the kernels, by objects of their own; but on real memory the kernels' speed is an emulation,
//! as with memory-mode. Pages are the 2 MiB that the paper moves; where fast memory is tiny, smaller. Between three
//! or more tiers only the first and the last are used. Looking at the pages costs no time, and the copy threads take
//! none from the kernels: that flatters IAL.

use std::collections::VecDeque;

use tiercel_core::{
    Bytes, Error, Hint, Manager, Nanos, ObjectId, Operand, Policy, RegionId, Step, TierId, Traffic,
};

use crate::pages::{Exchange, Pages};

const FAST: TierId = TierId(0);

/// Pages that move at a time.
const CONCURRENT: usize = 8;

/// Pages that one copy carries at most, so that copies go on while a kernel runs.
const CARRIED: usize = 16;

/// Pages of one batch in motion.
#[derive(Clone, Debug)]
struct Motion {
    pages: Vec<Exchange>,
    /// The objects that stand for them, with the regions that are filled.
    carriers: Vec<(ObjectId, RegionId)>,
}

/// The improved active list.
#[derive(Clone, Debug)]
pub struct Ial {
    period: Nanos,
    pages: Option<Pages>,
    looked: Nanos,
    /// What is still to move.
    queue: VecDeque<Exchange>,
    motions: Vec<Motion>,
    looks: u64,
}

impl Default for Ial {
    fn default() -> Ial {
        Ial::new(Nanos(5_000_000_000))
    }
}

impl Ial {
    /// An operating system that looks at the pages this often.
    pub fn new(period: Nanos) -> Ial {
        Ial {
            period,
            pages: None,
            looked: Nanos::ZERO,
            queue: VecDeque::new(),
            motions: Vec::new(),
            looks: 0,
        }
    }

    /// How often the pages have been looked at.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    fn pages(&mut self, m: &Manager) -> &mut Pages {
        let fast = m.machine().tier(FAST).capacity.0;
        // Large enough to be worth moving, small enough that there are some.
        let size = [2 << 20, 4 << 10].into_iter().find(|size| fast / size >= 64).unwrap_or(64);
        self.pages.get_or_insert_with(|| Pages::new(size, fast))
    }

    /// Lets what has arrived change places, and sends more.
    fn carry(&mut self, m: &mut Manager) -> Result<(), Error> {
        let (arrived, flying) = std::mem::take(&mut self.motions)
            .into_iter()
            .partition(|motion| motion.carriers.iter().all(|(_, region)| !m.is_filling(*region)));
        self.motions = flying;
        let arrived: Vec<Motion> = arrived;
        for motion in arrived {
            for exchange in motion.pages {
                self.pages(m).finish(exchange);
            }
            for (carrier, _) in motion.carriers {
                m.retire(carrier)?;
            }
        }
        while self.motions.len() < CONCURRENT && !self.queue.is_empty() {
            let batch = self.queue.len().min(CARRIED).min(self.pages(m).frames().div_ceil(64).max(1));
            let pages: Vec<Exchange> = self.queue.drain(..batch).collect();
            self.send(m, pages)?;
        }
        Ok(())
    }

    /// Starts the copies for a batch of pages, in both directions.
    fn send(&mut self, m: &mut Manager, pages: Vec<Exchange>) -> Result<(), Error> {
        let (size, slow) = (self.pages(m).size(), m.machine().slowest());
        let down = pages.iter().filter(|exchange| exchange.down.is_some()).count();
        let mut carriers = Vec::new();
        for (from, to, count) in [(slow, FAST, pages.len()), (FAST, slow, down)] {
            if count > 0
                && let Some(carrier) = carrier(m, from, to, Bytes(size * count as u64))?
            {
                carriers.push(carrier);
            }
        }
        for exchange in &pages {
            self.pages(m).begin(*exchange);
        }
        self.motions.push(Motion { pages, carriers });
        Ok(())
    }

    /// Looks at the pages if it is time to.
    fn look(&mut self, m: &Manager) {
        if m.now().saturating_sub(self.looked) >= self.period {
            (self.looked, self.looks) = (m.now(), self.looks + 1);
            self.queue = self.pages(m).scan().into();
        }
    }
}

/// An object that stands for pages in motion, and the region that its copy fills; none where there is no room for it,
/// and the pages then move for nothing.
fn carrier(
    m: &mut Manager,
    from: TierId,
    to: TierId,
    size: Bytes,
) -> Result<Option<(ObjectId, RegionId)>, Error> {
    let object = m.create(Some("pages in motion"), size)?;
    let (Ok(x), Ok(y)) = (m.allocate(from, size), m.allocate(to, size)) else {
        m.retire(object)?;
        return Ok(None);
    };
    m.set_primary(object, x)?;
    m.mark_dirty(x)?;
    m.link(x, y)?;
    m.copy(x, y)?;
    Ok(Some((object, y)))
}

impl Policy for Ial {
    fn name(&self) -> &str {
        "ial"
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        let (slowest, size) = (m.machine().slowest(), m.size(object)?);
        let region = m.allocate(slowest, size).map_err(|_| m.no_room(object, slowest))?;
        m.set_primary(object, region)
    }

    fn hint(&mut self, m: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error> {
        if hint == Hint::Retire && m.contains(object) { m.retire(object) } else { Ok(()) }
    }

    /// No object moves. A machine whose slow tier kernels cannot work on has no such operating system, and the
    /// manager says so when the kernel begins.
    fn before(&mut self, m: &mut Manager, _: Step, _: &[Operand]) -> Result<(), Error> {
        m.settle();
        self.look(m);
        self.carry(m)
    }

    fn traffic(&mut self, m: &mut Manager, operands: &[Operand]) -> Option<Vec<Traffic>> {
        let mut fast = Traffic { tier: FAST, read: Bytes::ZERO, write: Bytes::ZERO };
        let mut slow = Traffic { tier: m.machine().slowest(), ..fast };
        for operand in operands {
            let (Some(place), Ok(size)) = (m.place(operand.object), m.size(operand.object)) else { continue };
            let near = self.pages(m).touch(place.offset.0, size.0);
            let part = |bytes: u64| (u128::from(bytes) * u128::from(near) / u128::from(size.0.max(1))) as u64;
            if operand.access.reads() {
                let near = part(operand.bytes.0);
                fast.read += Bytes(near);
                slow.read += Bytes(operand.bytes.0 - near);
            }
            if operand.access.writes() {
                // Several passes are for reading.
                let written = operand.bytes.min(size).0;
                let near = part(written);
                fast.write += Bytes(near);
                slow.write += Bytes(written - near);
            }
        }
        Some(vec![fast, slow])
    }
}

//! What is behind each tier, and how a chunk gets from one to another.
//!
//! There are two kinds: memory that is mapped, whether plain, bound to a node, or a DAX file; and files. Bytes go
//! straight between a file and the memory of a tier; only between two files do they stop over in a buffer.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use tiercel_core::{Backing, Bytes, CopyError, CopyOrder, Nanos, Place, Tier, Traffic};
use tiercel_sim::{EMULATED_OVERLAP, together};

use super::engine::Mover;
use super::error::HostError;
use super::file::{self, Buffer, FileStore};
use super::memory::{HUGE, Mapping, PAGE};
use super::queue::Chunk;
use super::stream::Method;
use super::supply;
use super::throttle::{Clock, Throttle};

/// The least and the most that one request to a file moves. Two of them in flight are enough for a device, and the fewer
/// there are the less the threads have to do.
const REQUESTS: (u64, u64) = (1 << 20, 4 << 20);

/// The least and the most that one thread moves at a time between memories.
const CHUNKS: (u64, u64) = (512 << 10, 4 << 20);

/// The least between memories of which one is throttled.
const PACED: u64 = 64 << 10;

/// How long a chunk to or from a throttled tier should take, so that kernels and copies alternate finely.
const TURN: Nanos = Nanos(2_000_000);

/// The tiers and the clock, as the copy threads see them.
pub(crate) struct Tiers {
    pub(crate) clock: Clock,
    pub(crate) tiers: Vec<Memory>,
    /// What is to be done beside kernels and copies and has not been begun, by number.
    jobs: Mutex<HashMap<u64, Job>>,
}

/// Work that is no copy.
pub(crate) struct Job {
    pub(crate) work: Box<dyn FnOnce() -> Result<(), String> + Send>,
    /// What it moves on each tier, for those that are throttled.
    pub(crate) traffic: Vec<Traffic>,
}

/// The memory of one tier.
pub(crate) struct Memory {
    pub(crate) store: Store,
    pub(crate) throttle: Option<Throttle>,
    /// Whether even small copies to it should bypass the caches.
    far: bool,
}

/// Where the bytes of a tier are.
pub(crate) enum Store {
    Mapped(Mapping),
    Filed(FileStore),
}

impl Tiers {
    /// The tiers, and a clock that starts now.
    pub(crate) fn new(tiers: Vec<Memory>) -> Tiers {
        Tiers { clock: Clock::start(), tiers, jobs: Mutex::default() }
    }

    /// The lane of jobs: the one behind those of copies.
    pub(crate) fn job_lane(&self) -> usize {
        self.tiers.len() * self.tiers.len()
    }

    /// Takes a job for whoever carries the chunk of this number.
    pub(crate) fn submit(&self, number: u64, job: Job) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).insert(number, job);
    }

    /// Does a job.
    fn run(&self, number: u64) -> Result<(), CopyError> {
        let job = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        let Some(Job { work, traffic }) = job else { return Ok(()) };
        let started = self.clock.now();
        work().map_err(CopyError)?;
        self.charge(&traffic, started);
        Ok(())
    }

    /// Returns when a kernel that began then, and has done its own work, would have ended: what its bytes take on throttled
    /// tiers, beside whatever else they have to do, hides behind that work in part.
    pub(crate) fn charge(&self, traffic: &[Traffic], since: Nanos) {
        let reserve = |t: &Traffic| {
            let throttle = self.tiers[t.tier.index()].throttle.as_ref()?;
            Some(throttle.reserve(t.read, t.write, since))
        };
        if let Some(end) = traffic.iter().filter_map(reserve).max().filter(|end| *end > Nanos::ZERO) {
            let worked = (self.clock.now() - since).0 as f64;
            let moving = end.saturating_sub(since).0 as f64;
            self.clock.sleep(since + Nanos(together(worked, moving, EMULATED_OVERLAP) as u64));
        }
    }

    /// How much one thread should move at a time.
    pub(crate) fn chunk(&self, order: &CopyOrder<'_>, threads: u32) -> u64 {
        let ends = [order.from, order.to].map(|place| &self.tiers[place.tier.index()]);
        let filed = ends.iter().any(|memory| memory.filed());
        let (mut least, mut most) = if filed { REQUESTS } else { CHUNKS };
        let pieces = if filed { 2 } else { u64::from(threads) };
        for throttle in ends.iter().filter_map(|memory| memory.throttle.as_ref()) {
            most = most.min(throttle.in_time(TURN).0 / PAGE as u64 * PAGE as u64).max(PACED);
            least = least.min(most);
        }
        order.bytes.0.div_ceil(pieces).next_multiple_of(PAGE as u64).clamp(least, most)
    }

    fn transfer(&self, chunk: &Chunk, spare: &mut Buffer) -> Result<(), CopyError> {
        let [from, to] = [chunk.from, chunk.to].map(|place| &self.tiers[place.tier.index()]);
        let (source, target) = (chunk.from.offset.0, chunk.to.offset.0);
        let paged = chunk.bytes.0.next_multiple_of(PAGE as u64);
        match (&from.store, &to.store) {
            (Store::Mapped(a), Store::Mapped(b)) => {
                let bytes = chunk.bytes.0;
                let method = if to.far { Method::cold() } else { Method::best(chunk.whole) };
                let (a, b) = (a.address(source, bytes), b.address(target, bytes));
                // SAFETY: `address` has checked both stretches and `Host::check` that they are apart; that nobody
                // else uses them meanwhile is the contract of `Backend::copy` and `Host::slice`.
                unsafe { method.copy(a, b, bytes as usize) };
                Ok(())
            }
            (Store::Mapped(a), Store::Filed(b)) => {
                let a = a.address(source, paged);
                // SAFETY: `address` has checked the stretch, and nobody writes a copy's source.
                b.write(target, unsafe { std::slice::from_raw_parts(a, paged as usize) })
            }
            (Store::Filed(a), Store::Mapped(b)) => {
                let b = b.address(target, paged);
                // SAFETY: `address` has checked the stretch, and nobody else uses a copy's destination, which
                // heaps pad to whole pages.
                a.read(source, unsafe { std::slice::from_raw_parts_mut(b, paged as usize) })
            }
            (Store::Filed(a), Store::Filed(b)) => {
                let between = spare.get(REQUESTS.1 as usize).map_err(|e| {
                    CopyError(format!("no memory for a buffer of {} between files: {e}", Bytes(REQUESTS.1)))
                })?;
                let between = &mut between[..paged as usize];
                a.read(source, between)?;
                b.write(target, between)
            }
        }
    }
}

impl Mover for Tiers {
    fn carry(&self, chunk: &Chunk, spare: &mut Buffer) -> Result<(), CopyError> {
        if chunk.lane == self.job_lane() {
            return self.run(chunk.from.offset.0);
        }
        let reserve = |place: Place, read, write| {
            let throttle = self.tiers[place.tier.index()].throttle.as_ref();
            throttle.map_or(Nanos::ZERO, |t| t.reserve(read, write, chunk.since))
        };
        let (none, some) = (Bytes::ZERO, chunk.bytes);
        let end = reserve(chunk.from, some, none).max(reserve(chunk.to, none, some));
        let result = self.transfer(chunk, spare);
        if end > Nanos::ZERO {
            self.clock.sleep(end);
        }
        result
    }

    fn now(&self) -> Nanos {
        self.clock.now()
    }
}

impl Memory {
    /// Maps, reserves and faults in what a tier asks for.
    pub(crate) fn open(tier: &Tier) -> Result<Memory, HostError> {
        let throttled = tier.backing == Backing::Throttled;
        let far = matches!(tier.backing, Backing::Numa(_) | Backing::Dax(_));
        let store = match &tier.backing {
            Backing::Dram | Backing::Throttled => Store::Mapped(plain(tier, None)?),
            Backing::Numa(node) => Store::Mapped(plain(tier, Some(*node))?),
            Backing::Dax(path) => Store::Mapped(dax(tier, Path::new(path))?),
            Backing::File(path) => Store::Filed(FileStore::open(&tier.name, path, tier.capacity)?),
        };
        Ok(Memory { store, throttle: throttled.then(|| Throttle::new(tier)), far })
    }

    /// Whether the tier is a file.
    pub(crate) fn filed(&self) -> bool {
        matches!(self.store, Store::Filed(_))
    }

    /// The capacity, rounded up to whole pages.
    pub(crate) fn len(&self) -> u64 {
        match &self.store {
            Store::Mapped(mapping) => mapping.len(),
            Store::Filed(file) => file.len(),
        }
    }
}

/// Turns what the system said into what it means for a tier.
fn refused(tier: &Tier, what: &str) -> impl Fn(std::io::Error) -> HostError + use<> {
    let (tier, what) = (tier.name.clone(), what.to_string());
    move |source| HostError::System { tier: tier.clone(), what: what.clone(), source }
}

/// Memory of this machine, or of one of its nodes.
fn plain(tier: &Tier, node: Option<u32>) -> Result<Mapping, HostError> {
    let mut available = supply::memory();
    if let Some(node) = node {
        let here = supply::node(node).ok_or_else(|| HostError::Node {
            tier: tier.name.clone(),
            node,
            nodes: supply::nodes(),
        })?;
        available = available.min(here);
    }
    let short = || HostError::Memory {
        tier: tier.name.clone(),
        backing: tier.backing.to_string(),
        wanted: tier.capacity,
        available,
    };
    if tier.capacity > available {
        return Err(short());
    }
    let mapping = usize::try_from(tier.capacity.0)
        .ok()
        .and_then(|bytes| Mapping::plain(bytes).ok())
        .ok_or_else(short)?;
    if let Some(node) = node {
        mapping.bind(node).map_err(refused(tier, &format!("binding memory to NUMA node {node}")))?;
    }
    mapping.populate().map_err(|error| match error.raw_os_error() {
        Some(libc::ENOMEM) => short(),
        _ => refused(tier, &format!("faulting in {}", tier.capacity))(error),
    })?;
    Ok(mapping)
}

/// A DAX device, or a nameless file on a DAX file system.
fn dax(tier: &Tier, path: &Path) -> Result<Mapping, HostError> {
    let device = fs::metadata(path).ok().filter(|found| found.file_type().is_char_device());
    let too_large = |_| HostError::Memory {
        tier: tier.name.clone(),
        backing: tier.backing.to_string(),
        wanted: tier.capacity,
        available: Bytes(usize::MAX as u64),
    };
    let bytes = usize::try_from(tier.capacity.0).map_err(too_large)?;
    let mapping = match device {
        Some(found) => {
            let number = found.rdev();
            let (major, minor) = (libc::major(number), libc::minor(number));
            let size = fs::read_to_string(format!("/sys/dev/char/{major}:{minor}/size")).ok();
            let size = size.and_then(|size| size.trim().parse().ok()).map(Bytes);
            if let Some(available) = size.filter(|size| *size < tier.capacity) {
                let (tier, path, wanted) = (tier.name.clone(), path.to_path_buf(), tier.capacity);
                let reason = "the size of the device".to_string();
                return Err(HostError::Room { tier, path, wanted, available, reason });
            }
            let opening = refused(tier, &format!("opening {}", path.display()));
            let file = OpenOptions::new().read(true).write(true).open(path).map_err(opening)?;
            Mapping::shared(&file, bytes, HUGE)
        }
        None => {
            let len = tier.capacity.round_up(Bytes(PAGE as u64)).unwrap_or(tier.capacity);
            let file = file::nameless(&tier.name, path, len)?;
            Mapping::shared(&file, bytes, PAGE)
        }
    };
    let mapping =
        mapping.map_err(refused(tier, &format!("mapping {} of {}", tier.capacity, path.display())))?;
    let faulting = refused(tier, &format!("faulting in {} of {}", tier.capacity, path.display()));
    mapping.populate().map_err(faulting)?;
    Ok(mapping)
}

//! An arena for programs of one's own: one range of addresses over several directly accessible tiers, whose spans move between
//! tiers while threads read and write them.
//!
//! Every tier is a memory file, with its memory bound to a NUMA node where one is named. A span moves so: it is made
//! read-only for everybody (write protection through userfaultfd), copied into the other tier's file through a second
//! mapping, and that mapping, already populated, is put in its place in one step. Whoever writes meanwhile waits for the
//! span alone, and then writes to the new place. Readers never wait for the copy. After hm-keeper's mechanism (dissertation,
//! Section 8.6), in user space: a reserved bit of the page table is the write protection here.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

/// How large a span is, in bytes.
pub const SPAN: usize = 2 << 20;

const WORDS: usize = SPAN / 8;

/// Why there is no arena, or a span did not move.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// A call was refused.
    #[error("{what}: {error}")]
    System {
        /// What was asked of the kernel.
        what: &'static str,
        /// What it said.
        error: io::Error,
    },
    /// There is no such span or tier.
    #[error("no {what} {wanted}; there are {there}")]
    Unknown {
        /// Span or tier.
        what: &'static str,
        /// What was asked for.
        wanted: usize,
        /// How many there are.
        there: usize,
    },
    /// The tier has no room.
    #[error("tier {tier} has room for {room} spans and all are in use")]
    Full {
        /// The tier.
        tier: usize,
        /// How many spans it takes.
        room: usize,
    },
}

/// A tier of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierSpec {
    /// How many spans it takes.
    pub spans: usize,
    /// The NUMA node of its memory, if any.
    pub node: Option<u32>,
}

struct TierFile {
    file: File,
    /// Places in the file that hold no span.
    free: Vec<usize>,
    room: usize,
    node: Option<u32>,
}

/// Where a span is.
#[derive(Clone, Copy)]
struct Home {
    tier: usize,
    place: usize,
}

struct Books {
    tiers: Vec<TierFile>,
    homes: Vec<Home>,
}

/// One range of addresses over several tiers.
pub struct Arena {
    base: NonNull<u8>,
    spans: usize,
    guard: OwnedFd,
    /// Who moves a span holds the books; who reads and writes memory needs them not.
    books: Mutex<Books>,
}

// SAFETY: the memory behind `base` is only handed out as atomics, and everything else is behind the lock.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

const UFFD_API: u64 = 0xaa;
/// Write protection of shared memory.
const FEATURE_WP_SHMEM: u64 = 1 << 12;
const REGISTER_MODE_WP: u64 = 1 << 1;
const IOCTL_API: libc::c_ulong = 0xc018_aa3f;
const IOCTL_REGISTER: libc::c_ulong = 0xc020_aa00;
const IOCTL_WAKE: libc::c_ulong = 0x8010_aa02;
const IOCTL_WRITE_PROTECT: libc::c_ulong = 0xc018_aa06;

/// The argument of every request that we make: as many words as the longest has.
type Words = [u64; 4];

fn failed(what: &'static str) -> ArenaError {
    ArenaError::System { what, error: io::Error::last_os_error() }
}

fn ask(
    guard: &OwnedFd,
    request: libc::c_ulong,
    words: &mut Words,
    what: &'static str,
) -> Result<(), ArenaError> {
    // SAFETY: the requests above take structs of two to four words, and there are four; they live through the call.
    match unsafe { libc::ioctl(guard.as_raw_fd(), request, words.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(failed(what)),
    }
}

/// A handle that protects memory against writing.
fn guard() -> Result<OwnedFd, ArenaError> {
    // SAFETY: no pointer is passed; the handle that comes back is ours alone.
    let guard = unsafe {
        let handle = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
        if handle < 0 {
            return Err(failed("userfaultfd (it takes root, or vm.unprivileged_userfaultfd)"));
        }
        OwnedFd::from_raw_fd(handle as i32)
    };
    ask(
        &guard,
        IOCTL_API,
        &mut [UFFD_API, FEATURE_WP_SHMEM, 0, 0],
        "write protection of shared memory (Linux 5.19)",
    )?;
    Ok(guard)
}

/// Maps a span of a file: at an address of our own, or anywhere.
fn map(file: &File, place: usize, at: Option<*mut u8>, populate: bool) -> Result<*mut u8, ArenaError> {
    let fixed = if at.is_some() { libc::MAP_FIXED } else { 0 };
    let populate = if populate { libc::MAP_POPULATE } else { 0 };
    // SAFETY: a fixed address lies inside the arena's own range, whose spans are only ever replaced by spans.
    let found = unsafe {
        libc::mmap(
            at.unwrap_or(std::ptr::null_mut()).cast(),
            SPAN,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | fixed | populate,
            file.as_raw_fd(),
            (place * SPAN) as libc::off_t,
        )
    };
    if found == libc::MAP_FAILED { Err(failed("mapping a span")) } else { Ok(found.cast()) }
}

/// Binds a mapping's memory to a node.
fn bind(at: *mut u8, node: u32) -> Result<(), ArenaError> {
    let mut mask = [0u64; 16];
    mask[node as usize / 64 % 16] = 1 << (node % 64);
    // SAFETY: the range is a span that was just mapped; the mask lives through the call and is as long as is said.
    let code = unsafe { libc::syscall(libc::SYS_mbind, at, SPAN, libc::MPOL_BIND, mask.as_ptr(), 1024, 0) };
    if code == 0 { Ok(()) } else { Err(failed("binding memory to a node")) }
}

impl Arena {
    /// An arena of so many spans over these tiers, the fastest first; spans fill them in this order.
    pub fn new(spans: usize, tiers: &[TierSpec]) -> Result<Arena, ArenaError> {
        let room: usize = tiers.iter().map(|tier| tier.spans).sum();
        if spans == 0 || room < spans {
            return Err(ArenaError::Full { tier: tiers.len().saturating_sub(1), room });
        }
        let guard = guard()?;
        let mut files = Vec::new();
        for tier in tiers {
            // SAFETY: the name is a string that ends in zero; the handle that comes back is ours alone.
            let file = unsafe {
                let handle = libc::memfd_create(c"tiercel-arena".as_ptr(), libc::MFD_CLOEXEC);
                if handle < 0 {
                    return Err(failed("a memory file"));
                }
                File::from_raw_fd(handle)
            };
            let bytes = (tier.spans * SPAN) as u64;
            file.set_len(bytes)
                .map_err(|error| ArenaError::System { what: "the size of a memory file", error })?;
            let free = (0..tier.spans).rev().collect();
            files.push(TierFile { file, free, room: tier.spans, node: tier.node });
        }
        // SAFETY: a new mapping at an address that the kernel chooses; nothing is behind it yet.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                spans * SPAN,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(failed("addresses for the arena"));
        }
        let Some(base) = NonNull::new(base.cast::<u8>()) else {
            return Err(failed("addresses for the arena"));
        };
        let books = Mutex::new(Books { tiers: files, homes: Vec::with_capacity(spans) });
        let arena = Arena { base, spans, guard, books };
        {
            let mut books = arena.lock();
            for span in 0..spans {
                let found = books.tiers.iter().position(|tier| !tier.free.is_empty());
                let Some(tier) = found else { return Err(ArenaError::Full { tier: 0, room }) };
                let Some(place) = books.tiers[tier].free.pop() else { continue };
                let at = map(&books.tiers[tier].file, place, Some(arena.address(span)), false)?;
                if let Some(node) = books.tiers[tier].node {
                    bind(at, node)?;
                }
                books.homes.push(Home { tier, place });
            }
        }
        Ok(arena)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn address(&self, span: usize) -> *mut u8 {
        // SAFETY: callers name spans inside the range.
        unsafe { self.base.as_ptr().add(span * SPAN) }
    }

    /// How many spans there are.
    pub fn spans(&self) -> usize {
        self.spans
    }

    /// The memory of a span: any number of threads may use it while it moves.
    pub fn words(&self, span: usize) -> Result<&[AtomicU64], ArenaError> {
        if span >= self.spans {
            return Err(ArenaError::Unknown { what: "span", wanted: span, there: self.spans });
        }
        // SAFETY: the span is mapped for as long as the arena lives, aligned to pages, and shared as atomics alone; moving
        // it keeps its address and what it holds.
        Ok(unsafe { std::slice::from_raw_parts(self.address(span).cast::<AtomicU64>(), WORDS) })
    }

    /// The tier of a span.
    pub fn tier(&self, span: usize) -> Option<usize> {
        self.lock().homes.get(span).map(|home| home.tier)
    }

    /// Moves a span to another tier, under whoever uses it. A span that is there already stays.
    pub fn migrate(&self, span: usize, to: usize) -> Result<(), ArenaError> {
        let mut books = self.lock();
        let there = books.tiers.len();
        if to >= there {
            return Err(ArenaError::Unknown { what: "tier", wanted: to, there });
        }
        let Some(home) = books.homes.get(span).copied() else {
            return Err(ArenaError::Unknown { what: "span", wanted: span, there: self.spans });
        };
        if home.tier == to {
            return Ok(());
        }
        let tier = &mut books.tiers[to];
        let room = tier.room;
        let Some(place) = tier.free.pop() else { return Err(ArenaError::Full { tier: to, room }) };
        let moved = self.carry(span, &tier.file, place, tier.node);
        if let Err(error) = moved {
            tier.free.push(place);
            return Err(error);
        }
        books.homes[span] = Home { tier: to, place };
        punch(&books.tiers[home.tier].file, home.place);
        books.tiers[home.tier].free.push(home.place);
        Ok(())
    }

    fn carry(&self, span: usize, file: &File, place: usize, node: Option<u32>) -> Result<(), ArenaError> {
        let staging = map(file, place, None, node.is_none())?;
        let unmap = |error| {
            // SAFETY: the staging mapping is ours, and nobody else knows it.
            unsafe { libc::munmap(staging.cast(), SPAN) };
            error
        };
        if let Some(node) = node {
            bind(staging, node).map_err(unmap)?;
        }
        let (at, bytes) = (self.address(span) as u64, SPAN as u64);
        ask(&self.guard, IOCTL_REGISTER, &mut [at, bytes, REGISTER_MODE_WP, 0], "guarding a span")
            .map_err(unmap)?;
        let protected = ask(
            &self.guard,
            IOCTL_WRITE_PROTECT,
            &mut [at, bytes, 1, 0],
            "protecting a span against writing",
        );
        protected.map_err(unmap)?;
        // From here on nobody writes to the span, and all writes from before are in memory.
        // SAFETY: both are mapped, of this size, and apart. What lies there is only changed by whoever writes through
        // `words`, whom the protection stops.
        unsafe { std::ptr::copy_nonoverlapping(self.address(span), staging, SPAN) };
        // SAFETY: the staging mapping is ours; it takes the place of the span in one step, with the same bytes.
        let placed = unsafe {
            libc::mremap(
                staging.cast(),
                SPAN,
                SPAN,
                libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                self.address(span).cast::<libc::c_void>(),
            )
        };
        let error = (placed == libc::MAP_FAILED).then(|| failed("putting a span in its place"));
        if let Some(error) = error {
            // The span stays where it was; whoever waits may write again.
            let _ = ask(&self.guard, IOCTL_WRITE_PROTECT, &mut [at, bytes, 0, 0], "letting a span go");
            return Err(unmap(error));
        }
        // Whoever waited tries again, and finds the new place, which is not protected.
        ask(&self.guard, IOCTL_WAKE, &mut [at, bytes, 0, 0], "waking who waits for a span")
    }
}

/// Gives the memory of a place in a file back.
fn punch(file: &File, place: usize) {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: no pointer is passed. Where it is refused the memory stays until the place is used again.
    unsafe { libc::fallocate(file.as_raw_fd(), mode, (place * SPAN) as libc::off_t, SPAN as libc::off_t) };
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and nothing that was handed out outlives the arena.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.spans * SPAN) };
    }
}

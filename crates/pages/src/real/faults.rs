//! At which addresses a process takes page faults, as the kernel's own event counts them (perf's software event).
//!
//! Where NUMA balancing is on, the kernel makes pages inaccessible now and then to see who wants them: those faults are
//! among them, so that whoever listens sees which pages of another process are accessed. Each thread has an event and a ring
//! of its own, because the kernel gives no ring to an event that is handed down to threads yet to come.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;

/// Pages of a ring that hold records: a power of two. 256 KiB have room for 16,000 faults.
const RECORDS: usize = 64;

/// With more threads than this some are not listened to.
const MOST: usize = 256;

/// The part of `perf_event_attr` that every kernel knows.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample: u64,
    format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    more: u64,
}

const SOFTWARE: u32 = 1;
const PAGE_FAULTS: u64 = 2;
const ADDRESS: u64 = 1 << 3;
const CLOSES_ON_EXEC: libc::c_ulong = 1 << 3;
const NOT_THE_KERNEL: u64 = 1 << 5 | 1 << 6;

/// Where a ring's first page has how far the kernel has written and we have read.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

const LOST: u32 = 2;
const SAMPLE: u32 = 9;

/// The faults of one thread.
struct Ring {
    /// Keeps the event open.
    _event: OwnedFd,
    memory: *mut u8,
}

impl Ring {
    fn open(thread: u32) -> io::Result<Ring> {
        let open = |flags| {
            let attributes = Attributes {
                kind: SOFTWARE,
                size: size_of::<Attributes>() as u32,
                config: PAGE_FAULTS,
                period: 1,
                sample: ADDRESS,
                flags,
                ..Attributes::default()
            };
            // SAFETY: the attributes are as long as they say and live through the call; a handle that comes back is ours.
            unsafe {
                let event = libc::syscall(
                    libc::SYS_perf_event_open,
                    &raw const attributes,
                    thread as libc::pid_t,
                    -1,
                    -1,
                    CLOSES_ON_EXEC,
                );
                if event < 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(OwnedFd::from_raw_fd(event as i32))
            }
        };
        // Who may not see what the kernel does for the thread sees what it does itself.
        let event = open(0).or_else(|_| open(NOT_THE_KERNEL))?;
        // SAFETY: a new mapping of an open handle, at an address that the kernel chooses.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                (1 + RECORDS) * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Ring { _event: event, memory: memory.cast() })
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the first page of the mapping has aligned counters there, which the kernel and we change as a whole.
        unsafe { AtomicU64::from_ptr(self.memory.add(at).cast()) }
    }

    /// A byte of the records, which go round.
    fn byte(&self, at: u64) -> u8 {
        // SAFETY: below the length of the mapping; between tail and head the kernel does not write.
        unsafe { self.memory.add(PAGE + (at as usize) % (RECORDS * PAGE)).read_volatile() }
    }

    fn number<const N: usize>(&self, at: u64) -> [u8; N] {
        std::array::from_fn(|byte| self.byte(at + byte as u64))
    }

    /// Hands over what has come since the last time; how many records were lost because nobody came in time.
    fn drain(&mut self, tell: &mut dyn FnMut(u64)) -> u64 {
        let head = self.counter(HEAD).load(Ordering::Acquire);
        let mut at = self.counter(TAIL).load(Ordering::Relaxed);
        let mut lost = 0;
        while at + 8 <= head {
            let kind = u32::from_le_bytes(self.number(at));
            let size = u64::from(u16::from_le_bytes(self.number(at + 6)));
            if size < 8 {
                break;
            }
            match kind {
                SAMPLE if size >= 16 => tell(u64::from_le_bytes(self.number(at + 8))),
                LOST if size >= 24 => lost += u64::from_le_bytes(self.number(at + 16)),
                _ => {}
            }
            at += size;
        }
        self.counter(TAIL).store(head, Ordering::Release);
        lost
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping that `open` made, which nobody else has.
        unsafe { libc::munmap(self.memory.cast(), (1 + RECORDS) * PAGE) };
    }
}

/// The page faults of a process.
pub(super) struct Faults {
    pid: u32,
    rings: BTreeMap<u32, Ring>,
}

impl Faults {
    /// Listens to all threads that a process has now.
    pub(super) fn listen(pid: u32) -> io::Result<Faults> {
        let mut faults = Faults { pid, rings: BTreeMap::new() };
        faults.rings.insert(pid, Ring::open(pid)?);
        faults.refresh();
        Ok(faults)
    }

    /// Listens to threads that are new, and no more to those that have ended.
    pub(super) fn refresh(&mut self) {
        let list = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let threads: Vec<u32> =
            list.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(MOST).collect();
        self.rings.retain(|thread, _| threads.contains(thread));
        for thread in threads {
            if !self.rings.contains_key(&thread)
                && let Ok(ring) = Ring::open(thread)
            {
                // One that has just ended has nothing to tell.
                self.rings.insert(thread, ring);
            }
        }
    }

    /// Hands over the addresses of all faults since the last time; how many were lost.
    pub(super) fn drain(&mut self, tell: &mut dyn FnMut(u64)) -> u64 {
        self.rings.values_mut().map(|ring| ring.drain(tell)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_touches_of_our_own_are_told_by_address() {
        let mut faults = match Faults::listen(std::process::id()) {
            Ok(faults) => faults,
            Err(error) => return eprintln!("skipped: page faults as events: {error}"),
        };
        let (begin, began) = std::sync::mpsc::channel::<()>();
        let (ready, is_ready) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            ready.send(()).expect("somebody waits");
            began.recv().expect("somebody begins");
            // Fresh memory: more than an allocator keeps for itself.
            let mut memory = vec![0u8; 32 << 20];
            memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
            let first = std::hint::black_box(&memory).as_ptr() as u64;
            first..first + memory.len() as u64
        });
        is_ready.recv().expect("it runs");
        faults.refresh();
        faults.drain(&mut |_| {});
        begin.send(()).expect("it waits");
        let mut seen = Vec::new();
        let mut lost = 0;
        while !thread.is_finished() {
            lost += faults.drain(&mut |address| seen.push(address));
        }
        let touched = thread.join().expect("it ran");
        lost += faults.drain(&mut |address| seen.push(address));
        let inside = seen.iter().filter(|address| touched.contains(address)).count();
        assert!(inside as u64 + lost > 0, "of {} faults none was in the memory that was touched", seen.len());
    }
}

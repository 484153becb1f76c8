//! The waiting room: pages that were taken from the program and are on their way to the file. Whoever wants one meanwhile gets
//! it back without the disk, so that what is hot is told from what is not.
//!
//! A batch of pages is filled by the server, written by the writer, and stays until its place is wanted. The two threads
//! share counters alone: batches are handed over, written and recycled in order.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::area;
use crate::sys::{self, Errno, File, Kind, PAGE};

/// Pages in a batch.
pub const BATCH: u32 = 128;

/// The most batches.
pub const MOST: usize = 256;

/// What the threads of a process share, and its forks ask.
#[repr(C)]
pub struct Shared {
    /// The process whose this is; a child has a copy of the address alone.
    pub owner: AtomicU32,
    /// Forks under way, and [`ACTIVE`].
    pub gate: AtomicU32,
    /// Whether a thread changes the program's memory.
    pub changes: AtomicU32,
    /// Set once the server has files of its own.
    pub ready: AtomicU32,
    /// The page that a fork touches to have all of the program's memory brought back.
    pub doorbell: AtomicU64,
    /// Batches that were handed to the writer.
    handed: AtomicU32,
    /// Batches that it has written.
    written: AtomicU32,
    file: AtomicU32,
    base: AtomicU64,
    batches: AtomicU32,
    counts: [AtomicU32; MOST],
    errors: [AtomicU32; MOST],
    files: [AtomicU32; MOST * BATCH as usize],
}

/// The gate's mark for a program whose pages are kept.
pub const ACTIVE: u32 = 1 << 31;

/// A batch that can be recycled.
pub struct Done {
    /// Its place in the room.
    pub base: u64,
    /// Its pages: numbers in the room.
    pub pages: core::ops::Range<u32>,
    /// What the kernel said where it could not be written.
    pub error: Option<Errno>,
}

/// The server's side of it.
pub struct Room {
    shared: &'static Shared,
    base: u64,
    batches: u32,
    handed: u32,
    recycled: u32,
    /// Pages in the batch that is being filled.
    open: u32,
    /// Where each page belongs; 0 where nobody wants it any more.
    owners: &'static mut [u64],
}

impl Room {
    /// A room of so many batches, a power of two.
    pub fn new(shared: &'static Shared, batches: u32, file: File) -> Result<Room, Errno> {
        let batches = batches.next_power_of_two().clamp(2, MOST as u32);
        // The last page is the doorbell.
        let base = sys::memory(u64::from(batches * BATCH) * PAGE + PAGE, Kind::Private)?;
        sys::keep_from_children(base, u64::from(batches * BATCH) * PAGE);
        shared.base.store(base, Ordering::Relaxed);
        shared.file.store(file.0, Ordering::Relaxed);
        shared.batches.store(batches, Ordering::Relaxed);
        shared.doorbell.store(base + u64::from(batches * BATCH) * PAGE, Ordering::Release);
        let owners = area::zeroed((batches * BATCH) as usize)?;
        Ok(Room { shared, base, batches, handed: 0, recycled: 0, open: 0, owners })
    }

    /// Its addresses, the doorbell included.
    pub fn range(&self) -> (u64, u64) {
        (self.base, self.base + u64::from(self.batches * BATCH) * PAGE + PAGE)
    }

    /// Bytes that it takes.
    pub fn capacity(&self) -> u64 {
        u64::from(self.batches * BATCH) * PAGE
    }

    fn index(&self, batch: u32) -> u32 {
        batch & (self.batches - 1)
    }

    /// Pages for which there is room at once.
    pub fn left(&self) -> u32 {
        if self.handed.wrapping_sub(self.recycled) == self.batches { 0 } else { BATCH - self.open }
    }

    /// Bytes in it.
    pub fn held(&self) -> u64 {
        let mut pages = self.open;
        let mut batch = self.recycled;
        while batch != self.handed {
            pages += self.shared.counts[self.index(batch) as usize].load(Ordering::Relaxed);
            batch = batch.wrapping_add(1);
        }
        u64::from(pages) * PAGE
    }

    /// The number of the next page that comes in.
    pub fn next(&self) -> u32 {
        self.index(self.handed) * BATCH + self.open
    }

    /// Where a page of the room is.
    pub fn address(&self, page: u32) -> u64 {
        self.base + u64::from(page) * PAGE
    }

    /// Notes that the next page has come in from an address, to be written to a page of the file.
    pub fn enter(&mut self, owner: u64, file: u32) {
        let page = self.next() as usize;
        self.owners[page] = owner;
        self.shared.files[page].store(file, Ordering::Relaxed);
        self.open += 1;
        if self.open == BATCH {
            self.hand_over();
        }
    }

    /// Hands what there is to the writer.
    pub fn hand_over(&mut self) {
        if self.open == 0 {
            return;
        }
        let index = self.index(self.handed) as usize;
        self.shared.counts[index].store(self.open, Ordering::Relaxed);
        self.open = 0;
        self.handed = self.handed.wrapping_add(1);
        self.shared.handed.store(self.handed, Ordering::Release);
        sys::wake(&self.shared.handed);
    }

    /// Whose a page is.
    pub fn owner(&self, page: u32) -> u64 {
        self.owners.get(page as usize).copied().unwrap_or(0)
    }

    /// Which page of the file it is for.
    pub fn file(&self, page: u32) -> u32 {
        self.shared.files.get(page as usize).map_or(0, |file| file.load(Ordering::Relaxed))
    }

    /// It belongs elsewhere now, or, with 0, nowhere.
    pub fn give_to(&mut self, page: u32, owner: u64) {
        if let Some(old) = self.owners.get_mut(page as usize) {
            *old = owner;
        }
    }

    /// Whether the writer has something to do.
    pub fn is_writing(&self) -> bool {
        self.shared.written.load(Ordering::Acquire) != self.handed
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.open == 0 && self.recycled == self.handed
    }

    /// Waits until the writer has written something more, and no longer than this.
    pub fn wait(&self, nanoseconds: u64) {
        let written = self.shared.written.load(Ordering::Acquire);
        if written != self.handed && written == self.recycled {
            sys::sleep_while(&self.shared.written, written, nanoseconds);
        }
    }

    /// The oldest batch, where it has been written.
    pub fn done(&self) -> Option<Done> {
        if self.recycled == self.shared.written.load(Ordering::Acquire) {
            return None;
        }
        let index = self.index(self.recycled);
        let count = self.shared.counts[index as usize].load(Ordering::Relaxed);
        let error = self.shared.errors[index as usize].load(Ordering::Relaxed);
        Some(Done {
            base: self.address(index * BATCH),
            pages: index * BATCH..index * BATCH + count,
            error: (error != 0).then_some(Errno(error as i32)),
        })
    }

    /// The oldest batch is no longer needed.
    pub fn recycle(&mut self) {
        self.recycled = self.recycled.wrapping_add(1);
    }
}

/// The writer: writes batches in order, for ever.
pub extern "C" fn write(shared: u64) -> ! {
    sys::name(b"tiercel-write\0\0\0");
    // SAFETY: the server gives the address of the process's shared state, which is never unmapped.
    let shared: &'static Shared = unsafe { area::at(shared) };
    loop {
        let written = shared.written.load(Ordering::Relaxed);
        if shared.handed.load(Ordering::Acquire) == written {
            sys::sleep_while(&shared.handed, written, 1_000_000_000);
            continue;
        }
        let index = written & (shared.batches.load(Ordering::Relaxed) - 1);
        let error = write_batch(shared, index).err().map_or(0, |error| error.0 as u32);
        shared.errors[index as usize].store(error, Ordering::Relaxed);
        shared.written.store(written.wrapping_add(1), Ordering::Release);
        sys::wake(&shared.written);
    }
}

fn write_batch(shared: &Shared, index: u32) -> Result<(), Errno> {
    let file = File(shared.file.load(Ordering::Relaxed));
    let first = index * BATCH;
    let count = shared.counts[index as usize].load(Ordering::Relaxed);
    let page_of = |page: u32| shared.files[page as usize].load(Ordering::Relaxed);
    let mut at = first;
    while at < first + count {
        // Pages that are one after another in the file go with one call.
        let mut end = at + 1;
        while end < first + count && page_of(end) == page_of(end - 1) + 1 {
            end += 1;
        }
        let (mut done, all) = (0, u64::from(end - at) * PAGE);
        while done < all {
            let from = shared.base.load(Ordering::Relaxed) + u64::from(at) * PAGE + done;
            let to = u64::from(page_of(at)) * PAGE + done;
            match sys::write_at(file, from, all - done, to) {
                Ok(0) => return Err(Errno(28)),
                Ok(bytes) => done += bytes,
                Err(sys::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        at = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_waits_is_written_in_order_and_told_when_it_cannot_be() {
        // SAFETY: memory of this size that is never unmapped; it is shared as atomics.
        let shared: &'static Shared =
            unsafe { area::at(sys::memory(size_of::<Shared>() as u64, Kind::Shared).expect("memory")) };
        let path = std::env::temp_dir().join(std::format!("tiercel-room-{}", std::process::id()));
        let file =
            std::fs::File::options().create_new(true).read(true).write(true).open(&path).expect("a file");
        let mut room = Room::new(shared, 2, File(file.as_raw_fd() as u32)).expect("a room");
        assert_eq!((room.left(), room.is_empty()), (BATCH, true));
        for page in 0..BATCH + 3 {
            let at = room.address(room.next());
            // SAFETY: a page of the room, which nobody else uses yet.
            unsafe { core::ptr::write_bytes(at as *mut u8, page as u8, PAGE as usize) };
            room.enter(0x1000 * u64::from(page + 1), (page * 7) % 251);
        }
        room.hand_over();
        assert_eq!((room.left(), room.is_writing(), room.held()), (0, true, u64::from(BATCH + 3) * PAGE));
        for index in 0..2 {
            write_batch(shared, index).expect("it is written");
        }
        shared.written.store(2, Ordering::Release);
        let done = room.done().expect("a batch");
        assert!(done.error.is_none() && done.pages == (0..BATCH) && room.owner(1) == 0x2000);
        let mut byte = [0u8];
        for page in 0..BATCH + 3 {
            file.read_exact_at(&mut byte, u64::from((page * 7) % 251) * PAGE + 5).expect("it is there");
            assert_eq!(byte[0], page as u8);
        }
        room.recycle();
        assert_eq!((room.left(), room.held()), (BATCH, 3 * PAGE));
        // A file that cannot be written.
        let closed = std::fs::File::open(&path).expect("it is there");
        shared.file.store(closed.as_raw_fd() as u32, Ordering::Relaxed);
        assert!(write_batch(shared, 0).is_err());
        std::fs::remove_file(path).expect("it goes");
    }
}

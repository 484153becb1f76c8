//! A growing stretch of zeroed memory that starts at a page and takes huge pages where the system has them.
//!
//! A search touches memory at random all over an index; with small pages most touches miss the processor's table of
//! pages, too. Growing remaps pages and copies nothing, so that an index that grows never needs twice its memory.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

/// What mappings grow by.
const UNIT: usize = 2 << 20;

/// Bytes in pages of this process.
pub(crate) struct Arena {
    base: NonNull<u8>,
    len: usize,
    room: usize,
}

// SAFETY: the mapping belongs to the arena alone, and its methods follow the rules of references.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Nothing yet.
    pub(crate) fn new() -> Arena {
        Arena { base: NonNull::<u64>::dangling().cast(), len: 0, room: 0 }
    }

    /// So many zeros.
    pub(crate) fn zeroed(len: usize) -> io::Result<Arena> {
        let mut arena = Arena::new();
        arena.resize_exact(len)?;
        Ok(arena)
    }

    /// Makes it so long, with zeros behind what was there and room for as much again.
    pub(crate) fn resize(&mut self, len: usize) -> io::Result<()> {
        if len > self.room {
            self.remap(len.max(self.room.saturating_mul(2)))?;
        }
        self.set_len(len);
        Ok(())
    }

    /// The same without room for more.
    pub(crate) fn resize_exact(&mut self, len: usize) -> io::Result<()> {
        if len > self.room {
            self.remap(len)?;
        }
        self.set_len(len);
        Ok(())
    }

    fn set_len(&mut self, len: usize) {
        if len < self.len {
            self[len..].fill(0);
        }
        self.len = len;
    }

    fn remap(&mut self, len: usize) -> io::Result<()> {
        let unit = if len >= UNIT { UNIT } else { 4096 };
        let room =
            len.checked_next_multiple_of(unit).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let base = if self.room == 0 {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping at an address of the system's choice touches nobody's memory.
            unsafe { libc::mmap(ptr::null_mut(), room, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }
        } else {
            // SAFETY: the mapping is ours, and `&mut self` says that nobody has a reference into it.
            unsafe { libc::mremap(self.base.as_ptr().cast(), self.room, room, libc::MREMAP_MAYMOVE) }
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Without huge pages it works as well, only slower.
        // SAFETY: advice about the pages of our own mapping.
        unsafe { libc::madvise(base, room, libc::MADV_HUGEPAGE) };
        self.base = NonNull::new(base.cast()).expect("no mapping starts at zero");
        self.room = room;
        Ok(())
    }
}

impl Deref for Arena {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes of the mapping are there and were zeroed by the system; an empty slice may dangle.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for Arena {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only way to them.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.room > 0 {
            // SAFETY: the mapping is our own and dies with us.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.room) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_with_zeros_and_keeps_what_was_there() {
        let mut arena = Arena::new();
        assert!(arena.is_empty());
        for len in [1, 5000, 100, 3 << 20, 9 << 20] {
            let before = arena.to_vec();
            arena.resize(len).unwrap();
            assert_eq!(arena.len(), len);
            let kept = before.len().min(len);
            assert_eq!(arena[..kept], before[..kept]);
            assert!(arena[kept..].iter().all(|byte| *byte == 0));
            arena.fill(7);
        }
        assert!(arena.resize(usize::MAX).is_err());
        assert_eq!(arena[(9 << 20) - 1], 7);
    }
}

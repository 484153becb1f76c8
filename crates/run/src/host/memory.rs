//! Memory mappings: plain, bound to a NUMA node, or of a file on a DAX file system.
//!
//! Everything is mapped and faulted in when a machine is opened, so that no copy and no kernel ever waits for the
//! system to find a page, and so that memory that is not there is found out at once. Mappings start at a multiple
//! of 2 MiB, which huge pages and direct I/O both want.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};

/// The size of a huge page, which every mapping's start is a multiple of.
pub(crate) const HUGE: usize = 2 << 20;

/// The size of a page, which every mapping's length is a multiple of.
pub(crate) const PAGE: usize = 4096;

/// A stretch of this process's addresses that is unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address range that belongs to the process, not to a thread; those who read and write
// through it answer for the order among themselves.
unsafe impl Send for Mapping {}
// SAFETY: as above; the methods themselves only read `base` and `len`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Plain memory, with huge pages where the system has them; not faulted in yet.
    ///
    /// More than one huge page is rounded up to whole ones: a disk takes twice as long for memory in small pages, which
    /// what is left at the end of a tier would be.
    pub(crate) fn plain(bytes: usize) -> io::Result<Mapping> {
        let len = rounded(bytes, if bytes > HUGE { HUGE } else { PAGE })?;
        let room = len.checked_add(HUGE).ok_or_else(too_large)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the system's choice touches nobody's memory.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), room, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start: *mut u8 = start.cast();
        let head = start.align_offset(HUGE);
        // SAFETY: the head and the rest behind `len` are whole pages of the mapping just made, and unused.
        let base = unsafe {
            if head > 0 {
                libc::munmap(start.cast(), head);
            }
            if head < HUGE {
                libc::munmap(start.add(head + len).cast(), HUGE - head);
            }
            start.add(head)
        };
        let mapping = Mapping { base: NonNull::new(base).expect("no mapping starts at zero"), len };
        // Without huge pages the memory works as well, only slower.
        // SAFETY: advice about the pages of our own mapping.
        unsafe { libc::madvise(base.cast(), len, libc::MADV_HUGEPAGE) };
        Ok(mapping)
    }

    /// The first bytes of a file or a device, shared with it: what is written is in the file.
    ///
    /// A DAX file system is asked to keep its own records in step (`MAP_SYNC`); where that is not possible the
    /// mapping is an ordinary shared one.
    pub(crate) fn shared(file: &File, bytes: usize, unit: usize) -> io::Result<Mapping> {
        let len = rounded(bytes, unit)?;
        let map = |flags| {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping at an address of the system's choice touches nobody's memory.
            unsafe { libc::mmap(ptr::null_mut(), len, access, flags, file.as_raw_fd(), 0) }
        };
        let mut base = map(libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC);
        if base == libc::MAP_FAILED {
            base = map(libc::MAP_SHARED);
        }
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { base: NonNull::new(base.cast()).expect("no mapping starts at zero"), len })
    }

    /// Binds the pages to one NUMA node; to be called before they are faulted in.
    pub(crate) fn bind(&self, node: u32) -> io::Result<()> {
        const WORD: usize = libc::c_ulong::BITS as usize;
        const MPOL_BIND: libc::c_long = 2;
        let mut nodes = vec![0 as libc::c_ulong; node as usize / WORD + 1];
        nodes[node as usize / WORD] |= 1 << (node as usize % WORD);
        let bits = nodes.len() * WORD + 1;
        // SAFETY: the range is our own mapping, and the mask has the bits that its length says (the kernel counts
        // one more than it reads).
        let result = unsafe {
            libc::syscall(libc::SYS_mbind, self.base.as_ptr(), self.len, MPOL_BIND, nodes.as_ptr(), bits, 0)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Faults every page in, writable.
    pub(crate) fn populate(&self) -> io::Result<()> {
        loop {
            // SAFETY: faulting in pages of our own mapping changes no byte of them.
            let result =
                unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_POPULATE_WRITE) };
            if result == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) => {}
                Some(libc::EINVAL | libc::ENOSYS) => break,
                _ => return Err(error),
            }
        }
        for at in (0..self.len).step_by(PAGE) {
            // SAFETY: within our own mapping, which nobody else knows of yet.
            unsafe {
                let page = self.base.as_ptr().add(at);
                page.write_volatile(page.read_volatile());
            }
        }
        Ok(())
    }

    /// The address of a stretch that must lie within the mapping.
    pub(crate) fn address(&self, offset: u64, bytes: u64) -> *mut u8 {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.len as u64),
            "{bytes} bytes at {offset} lie outside a mapping of {} bytes",
            self.len
        );
        // SAFETY: just checked to be within the mapping.
        unsafe { self.base.as_ptr().add(offset as usize) }
    }

    /// How many bytes are mapped: the capacity, rounded up to whole pages.
    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is our own, and whoever took an address promised not to use it past this point.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

fn rounded(bytes: usize, unit: usize) -> io::Result<usize> {
    bytes.checked_next_multiple_of(unit).ok_or_else(too_large)
}

fn too_large() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_memory_is_aligned_zero_and_writable_to_its_end() {
        for bytes in [1, 4096, 5000, HUGE, HUGE + 1, 3 * HUGE - 4096] {
            let mapping = Mapping::plain(bytes).unwrap();
            mapping.populate().unwrap();
            let unit = if bytes > HUGE { HUGE } else { PAGE };
            assert_eq!(mapping.len() as usize, bytes.next_multiple_of(unit));
            let base = mapping.address(0, bytes as u64);
            assert_eq!(base as usize % HUGE, 0);
            // SAFETY: `address` has checked the range, and the test alone uses it.
            let all = unsafe { std::slice::from_raw_parts_mut(base, mapping.len() as usize) };
            assert!(all.iter().all(|b| *b == 0));
            all.fill(1);
        }
    }

    #[test]
    #[should_panic(expected = "outside a mapping")]
    fn an_address_outside_is_a_bug() {
        Mapping::plain(4096).unwrap().address(4096, 1);
    }

    #[test]
    fn more_than_all_addresses_is_an_error() {
        assert!(Mapping::plain(usize::MAX).is_err());
        assert!(Mapping::plain(usize::MAX / 2).is_err());
    }
}

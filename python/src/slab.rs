//! Slow memory for storages: one stretch of addresses, or a file without a name.
//!
//! The stretch is reserved at once and costs nothing until it is used; a device's driver may pin pieces of it. The file is
//! gone when the program ends, however it ends. Raw addresses come from Python, which owns the storages: they are checked
//! for being there as far as a slab can, that is for its own side.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use pyo3::exceptions::{PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;

enum Store {
    Memory { address: usize },
    File(File),
}

/// Slow memory.
#[pyclass(frozen)]
pub struct Slab {
    store: Store,
    bytes: usize,
}

#[pymethods]
impl Slab {
    /// Reserves addresses for so many bytes, or makes a file of that size in a folder.
    #[new]
    #[pyo3(signature = (bytes, folder=None))]
    fn new(bytes: usize, folder: Option<&str>) -> PyResult<Slab> {
        let store = match folder {
            None => reserve(bytes)?,
            Some(folder) => {
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .custom_flags(libc::O_TMPFILE)
                    .open(folder)
                    .map_err(|e| PyOSError::new_err(format!("{folder}: {e}")))?;
                // SAFETY: the descriptor is open; the call only takes disk space.
                let taken = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) };
                if taken != 0 {
                    let why = std::io::Error::from_raw_os_error(taken);
                    return Err(PyOSError::new_err(format!("{folder}: {bytes} bytes wanted: {why}")));
                }
                Store::File(file)
            }
        };
        Ok(Slab { store, bytes })
    }

    /// Where the slab starts; 0 for a file.
    #[getter]
    fn address(&self) -> usize {
        match self.store {
            Store::Memory { address } => address,
            Store::File(_) => 0,
        }
    }

    /// Copies bytes from an address to an offset of the slab.
    fn write(&self, py: Python<'_>, offset: usize, from: usize, bytes: usize) -> PyResult<()> {
        self.within(offset, from, bytes)?;
        // SAFETY: the caller owns the storage at `from` and keeps it, unchanged, until this returns.
        let source = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) };
        py.detach(|| match &self.store {
            Store::Memory { address } => {
                // SAFETY: within the slab, as checked; books give a place to one storage at a time.
                unsafe {
                    std::ptr::copy_nonoverlapping(source.as_ptr(), (address + offset) as *mut u8, bytes)
                };
                Ok(())
            }
            Store::File(file) => file.write_all_at(source, offset as u64),
        })
        .map_err(PyErr::from)
    }

    /// Copies bytes from an offset of the slab to an address.
    fn read(&self, py: Python<'_>, offset: usize, to: usize, bytes: usize) -> PyResult<()> {
        self.within(offset, to, bytes)?;
        // SAFETY: the caller owns the storage at `to`, and nobody else uses it until this returns.
        let target = unsafe { std::slice::from_raw_parts_mut(to as *mut u8, bytes) };
        py.detach(|| match &self.store {
            Store::Memory { address } => {
                // SAFETY: within the slab, as checked; books give a place to one storage at a time.
                unsafe {
                    std::ptr::copy_nonoverlapping((address + offset) as *const u8, target.as_mut_ptr(), bytes)
                };
                Ok(())
            }
            Store::File(file) => file.read_exact_at(target, offset as u64),
        })
        .map_err(PyErr::from)
    }

    /// Copies bytes from one slab to another.
    fn pass_on(&self, py: Python<'_>, offset: usize, other: &Slab, at: usize, bytes: usize) -> PyResult<()> {
        let mut buffer = vec![0u8; bytes.min(8 << 20)];
        let mut done = 0;
        while done < bytes {
            let piece = buffer.len().min(bytes - done);
            let address = buffer.as_mut_ptr() as usize;
            self.read(py, offset + done, address, piece)?;
            other.write(py, at + done, address, piece)?;
            done += piece;
        }
        Ok(())
    }
}

impl Slab {
    fn within(&self, offset: usize, address: usize, bytes: usize) -> PyResult<()> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        if !inside || address == 0 {
            let why = format!("{bytes} bytes at {offset} of a slab of {}, address {address:#x}", self.bytes);
            return Err(PyValueError::new_err(why));
        }
        Ok(())
    }
}

fn reserve(bytes: usize) -> PyResult<Store> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping of memory that nobody has.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes.max(1), libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if address == libc::MAP_FAILED {
        let why = std::io::Error::last_os_error();
        return Err(PyMemoryError::new_err(format!("{bytes} bytes of host memory: {why}")));
    }
    // SAFETY: the mapping was just made; large pages make copies and pinning faster.
    unsafe { libc::madvise(address, bytes, libc::MADV_HUGEPAGE) };
    Ok(Store::Memory { address: address as usize })
}

impl Drop for Slab {
    fn drop(&mut self) {
        if let Store::Memory { address } = self.store {
            // SAFETY: the mapping is the slab's own, and whoever had an address in it had it from the slab.
            unsafe { libc::munmap(address as *mut libc::c_void, self.bytes.max(1)) };
        }
    }
}

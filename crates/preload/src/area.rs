//! Memory of the library's own: shared mappings, so that it is never taken for the program's, and no heap.

use crate::sys::{self, Errno, Kind};

/// What may be all zero bytes.
///
/// # Safety
/// All bytes zero is a value of the type.
pub unsafe trait Plain {}
// SAFETY: numbers.
unsafe impl Plain for u8 {}
// SAFETY: numbers.
unsafe impl Plain for u32 {}
// SAFETY: numbers.
unsafe impl Plain for u64 {}
// SAFETY: numbers.
unsafe impl Plain for sys::Run {}
// SAFETY: an array of what is plain.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// So many values, all zero, for as long as the process lives; pages of it are there once they are touched.
pub fn zeroed<T: Plain>(count: usize) -> Result<&'static mut [T], Errno> {
    let at = sys::memory((count * size_of::<T>()).max(1) as u64, Kind::Shared)?;
    // SAFETY: a new mapping of at least this size, aligned to pages, all zero, that is never unmapped while it is used.
    Ok(unsafe { core::slice::from_raw_parts_mut(at as *mut T, count) })
}

/// One value in memory of ours at an address.
///
/// # Safety
/// There is a mapping of at least its size there, aligned to pages, that is not unmapped while the value is used, and whatever
/// else uses it does so through atomics.
pub unsafe fn at<T: Sync>(address: u64) -> &'static T {
    // SAFETY: as the caller says.
    unsafe { &*(address as *const T) }
}

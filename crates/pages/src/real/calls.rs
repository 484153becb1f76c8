//! The system calls that the standard library lacks, each behind a safe function with slices and errors.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What is said of another program's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// They will not be wanted soon: first to go when memory is short.
    Cold,
    /// Write them out now.
    PageOut,
    /// Read them in now, beside the program.
    WillNeed,
}

fn path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

fn result(code: libc::c_long) -> io::Result<usize> {
    usize::try_from(code).map_err(|_| io::Error::last_os_error())
}

/// A handle on a process, which never comes to mean another one.
pub fn process(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed; a handle that comes back is ours alone.
    unsafe {
        let handle = result(libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0))?;
        Ok(OwnedFd::from_raw_fd(handle as i32))
    }
}

/// Advises on address ranges of a process; how many bytes were advised on.
pub fn advise(process: &OwnedFd, ranges: &[Range<u64>], advice: Advice) -> io::Result<usize> {
    let advice = match advice {
        Advice::Cold => libc::MADV_COLD,
        Advice::PageOut => libc::MADV_PAGEOUT,
        Advice::WillNeed => libc::MADV_WILLNEED,
    };
    let mut done = 0;
    // The kernel takes 1024 ranges a call.
    for ranges in ranges.chunks(1024) {
        let vector: Vec<libc::iovec> = ranges
            .iter()
            .map(|range| libc::iovec {
                iov_base: range.start as *mut libc::c_void,
                iov_len: (range.end - range.start) as usize,
            })
            .collect();
        // SAFETY: the vector lives through the call, with its own length; its addresses are the other process's, which
        // the kernel checks. None of these advices changes what a page holds.
        done += result(unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                process.as_raw_fd(),
                vector.as_ptr(),
                vector.len(),
                advice,
                0,
            )
        })?;
    }
    Ok(done)
}

/// Pages that no other process maps (`MPOL_MF_MOVE`).
const MOVE_OWN: libc::c_int = 1 << 1;

/// Moves pages of a process to nodes, or asks where they are where `nodes` is `None`: a node or an error number each.
pub fn move_pages(pid: u32, pages: &[u64], nodes: Option<&[i32]>) -> io::Result<Vec<i32>> {
    let mut status = vec![-libc::EBUSY; pages.len()];
    if pages.is_empty() {
        return Ok(status);
    }
    let targets = match nodes {
        Some(nodes) if nodes.len() != pages.len() => return Err(io::ErrorKind::InvalidInput.into()),
        Some(nodes) => nodes.as_ptr(),
        None => std::ptr::null(),
    };
    // SAFETY: all three arrays have as many entries as the call is told, and live through it; the addresses are the other
    // process's, which the kernel checks.
    result(unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid as libc::pid_t,
            pages.len(),
            pages.as_ptr(),
            targets,
            status.as_mut_ptr(),
            MOVE_OWN,
        )
    })?;
    Ok(status)
}

/// Turns a swap file on.
pub fn swap_on(file: &Path) -> io::Result<()> {
    let file = path(file)?;
    // SAFETY: the path is a string that ends in zero and lives through the call.
    result(unsafe { libc::swapon(file.as_ptr(), 0) }.into()).map(drop)
}

/// Turns a swap file off; whatever is in it comes back to memory first.
pub fn swap_off(file: &Path) -> io::Result<()> {
    let file = path(file)?;
    // SAFETY: as above.
    result(unsafe { libc::swapoff(file.as_ptr()) }.into()).map(drop)
}

/// Asks a process to end, or ends it.
pub fn signal(pid: u32, signal: i32) -> io::Result<()> {
    // SAFETY: no pointer is passed.
    result(unsafe { libc::kill(pid as libc::pid_t, signal) }.into()).map(drop)
}

/// Reserves the blocks of a file.
pub fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    // SAFETY: the handle is open; no pointer is passed.
    let code = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// How many bytes the file system below a path has for us.
pub fn disk_free(at: &Path) -> io::Result<u64> {
    let at = path(at)?;
    // SAFETY: all bytes zero is a value of this struct; both pointers live through the call.
    unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        result(libc::statvfs(at.as_ptr(), &mut stat).into())?;
        Ok(stat.f_bavail * stat.f_frsize)
    }
}

/// Whether files below a path may be run, or loaded into programs.
pub fn programs_may_lie_in(at: &Path) -> bool {
    let Ok(at) = path(at) else { return false };
    // SAFETY: all bytes zero is a value of this struct; both pointers live through the call.
    unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        libc::statvfs(at.as_ptr(), &mut stat) == 0 && stat.f_flag & libc::ST_NOEXEC == 0
    }
}

/// What the processor time of this process has come to.
pub fn own_cpu() -> std::time::Duration {
    // SAFETY: all bytes zero is a value of this struct, which lives through the call.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        let time = |t: libc::timeval| std::time::Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        time(usage.ru_utime) + time(usage.ru_stime)
    }
}

/// What a page can be, for [`scan`].
pub mod kinds {
    /// It is in memory.
    pub const PRESENT: u64 = 1 << 3;
    /// It was swapped out.
    pub const SWAPPED: u64 = 1 << 4;
    /// It is a part of a huge page.
    pub const HUGE: u64 = 1 << 6;
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    kinds: u64,
}

#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    region_count: u64,
    max_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    returned: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;

/// Runs of pages of a kind in a range of a process, through its open `/proc/PID/pagemap`.
pub fn scan(pagemap: &File, range: Range<u64>, kind: u64) -> io::Result<Vec<Range<u64>>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut regions = vec![Region::default(); 1024];
    let mut start = range.start;
    while start < range.end {
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            start,
            end: range.end,
            regions: regions.as_mut_ptr() as u64,
            region_count: regions.len() as u64,
            all_of: kind,
            returned: kind,
            ..ScanArgument::default()
        };
        // SAFETY: the argument is the struct that this request takes, and points to as many regions as it says; both live
        // through the call.
        let count =
            result(unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut argument) }.into())?;
        for region in &regions[..count.min(regions.len())] {
            match found.last_mut() {
                Some(last) if last.end == region.start => last.end = region.end,
                _ => found.push(region.start..region.end),
            }
        }
        if argument.walk_end <= start {
            break;
        }
        start = argument.walk_end;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_of_the_kernel_is_what_it_answers() {
        let here = vec![7u8; 1 << 20];
        let first = here.as_ptr() as u64 & !4095;
        let range = first + 4096..first + (1 << 20) - 4096;
        let pagemap = File::open("/proc/self/pagemap").expect("our own pages");
        let runs = |kind| scan(&pagemap, range.clone(), kind);
        let bytes = |runs: Vec<Range<u64>>| runs.iter().map(|run| run.end - run.start).sum::<u64>();
        match (runs(kinds::PRESENT), runs(kinds::SWAPPED)) {
            // A page that is swapped out between the two looks is in both or in neither.
            (Ok(present), Ok(swapped)) if swapped.is_empty() => {
                assert_eq!(bytes(present), range.end - range.start, "written pages are in memory");
            }
            (Ok(_), Ok(_)) => eprintln!("skipped: this machine is short of memory and swaps us out"),
            (Err(error), _) | (_, Err(error)) => eprintln!("skipped: PAGEMAP_SCAN (Linux 6.7): {error}"),
        }
        let own = std::process::id();
        match move_pages(own, &[range.start], None) {
            Ok(nodes) => {
                assert!(nodes[0] >= 0 || nodes[0] == -libc::ENOENT, "the page is on some node: {nodes:?}")
            }
            Err(error) => eprintln!("skipped: move_pages: {error}"),
        }
        assert!(move_pages(own, &[range.start], Some(&[])).is_err(), "a node a page");
        assert!(process(u32::MAX >> 1).is_err(), "no such process");
        if let Ok(process) = process(own) {
            // Refused where process_madvise is not allowed; what matters is that nothing is lost.
            let _ = advise(&process, std::slice::from_ref(&range), Advice::Cold);
            assert!(here.iter().all(|byte| *byte == 7));
        }
        assert!(own_cpu().as_nanos() > 0);
    }
}

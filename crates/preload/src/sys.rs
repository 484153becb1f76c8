//! System calls without a C library, for threads that the program's C library knows nothing of: they have no `errno`, take
//! nothing from the program's heap, and have files of their own that the program cannot close.
//!
//! Every function names what it asks of the kernel; what comes back is a number or the kernel's error.

use core::arch::asm;

/// The kernel's number for what went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// No such process.
pub const ESRCH: Errno = Errno(3);
/// Try again.
pub const EAGAIN: Errno = Errno(11);
/// Interrupted.
pub const EINTR: Errno = Errno(4);
/// It is there already.
pub const EEXIST: Errno = Errno(17);
/// In use.
pub const EBUSY: Errno = Errno(16);
/// An argument is not understood.
pub const EINVAL: Errno = Errno(22);

/// A page.
pub const PAGE: u64 = 4096;

const READ: u64 = 0;
const CLOSE: u64 = 3;
const MMAP: u64 = 9;
const MPROTECT: u64 = 10;
const SIGPROCMASK: u64 = 14;
const IOCTL: u64 = 16;
const PREAD: u64 = 17;
const PWRITE: u64 = 18;
const MADVISE: u64 = 28;
const GETPID: u64 = 39;
const CLONE: u64 = 56;
const EXIT: u64 = 60;
const FTRUNCATE: u64 = 77;
const UNLINK: u64 = 87;
const PRCTL: u64 = 157;
const FUTEX: u64 = 202;
const CLOCK_GETTIME: u64 = 228;
const PPOLL: u64 = 271;
const OPENAT: u64 = 257;
const USERFAULTFD: u64 = 323;
const CLOSE_RANGE: u64 = 436;

fn call(number: u64, a: [u64; 6]) -> Result<u64, Errno> {
    let back: i64;
    // SAFETY: the instruction that enters the kernel; it changes `rcx`, `r11` and the result alone. What each call does to
    // memory is argued where it is made.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as i64 => back,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    if (-4095..0).contains(&back) { Err(Errno(-back as i32)) } else { Ok(back as u64) }
}

/// A system call of the program's own that changes its memory, by its number.
pub fn change(number: u64, a: [u64; 5]) -> Result<u64, Errno> {
    call(number, [a[0], a[1], a[2], a[3], a[4], 0])
}

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File(pub u32);

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// To be read.
    Read,
    /// To be read and written.
    Both,
    /// Made anew, to be read and written, past the kernel's cache.
    NewDirect,
    /// Made anew, to be read and written.
    New,
}

/// Opens a file; the path ends in a zero.
pub fn open(path: &[u8], mode: Mode) -> Result<File, Errno> {
    if path.last() != Some(&0) {
        return Err(EINVAL);
    }
    const CWD: u64 = -100i64 as u64;
    const CLOEXEC: u64 = 0o2_000_000;
    let flags = match mode {
        Mode::Read => 0,
        Mode::Both => 2,
        // Read and write, make, only if it is not there, past the cache.
        Mode::NewDirect => 2 | 0o100 | 0o200 | 0o40_000,
        Mode::New => 2 | 0o100 | 0o200,
    };
    call(OPENAT, [CWD, path.as_ptr() as u64, flags | CLOEXEC, 0o600, 0, 0]).map(|fd| File(fd as u32))
}

/// Removes a name.
pub fn unlink(path: &[u8]) -> Result<(), Errno> {
    if path.last() != Some(&0) {
        return Err(EINVAL);
    }
    call(UNLINK, [path.as_ptr() as u64, 0, 0, 0, 0, 0]).map(drop)
}

/// Closes a file.
pub fn close(file: File) {
    // Nothing is to be done where it fails.
    let _ = call(CLOSE, [file.0.into(), 0, 0, 0, 0, 0]);
}

/// Closes every file of this thread's table.
pub fn close_all() -> Result<(), Errno> {
    call(CLOSE_RANGE, [0, u32::MAX.into(), 0, 0, 0, 0]).map(drop)
}

/// Gives a file a length.
pub fn truncate(file: File, bytes: u64) -> Result<(), Errno> {
    call(FTRUNCATE, [file.0.into(), bytes, 0, 0, 0, 0]).map(drop)
}

/// Reads what comes next.
pub fn read(file: File, to: &mut [u8]) -> Result<usize, Errno> {
    call(READ, [file.0.into(), to.as_mut_ptr() as u64, to.len() as u64, 0, 0, 0]).map(|n| n as usize)
}

/// Reads from a place in a file.
pub fn read_at(file: File, to: &mut [u8], at: u64) -> Result<usize, Errno> {
    call(PREAD, [file.0.into(), to.as_mut_ptr() as u64, to.len() as u64, at, 0, 0]).map(|n| n as usize)
}

/// Writes memory at an address to a place in a file.
pub fn write_at(file: File, from: u64, bytes: u64, at: u64) -> Result<u64, Errno> {
    call(PWRITE, [file.0.into(), from, bytes, at, 0, 0])
}

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Shared, so that it never becomes one mapping with the program's own; no memory until it is touched.
    Shared,
    /// Private, with pages that cannot be touched on both sides, for the same reason.
    Private,
}

/// New memory, all zero; where it is.
pub fn memory(bytes: u64, kind: Kind) -> Result<u64, Errno> {
    const READ_WRITE: u64 = 3;
    const ANONYMOUS: u64 = 0x20;
    const NO_RESERVE: u64 = 0x4000;
    let bytes = bytes.next_multiple_of(PAGE);
    match kind {
        Kind::Shared => call(MMAP, [0, bytes, READ_WRITE, 1 | ANONYMOUS | NO_RESERVE, u64::MAX, 0]),
        Kind::Private => {
            let all = call(MMAP, [0, bytes + 2 * PAGE, 0, 2 | ANONYMOUS | NO_RESERVE, u64::MAX, 0])?;
            call(MPROTECT, [all + PAGE, bytes, READ_WRITE, 0, 0, 0])?;
            Ok(all + PAGE)
        }
    }
}

/// Maps a file that others map, too.
pub fn map(file: File, bytes: u64) -> Result<u64, Errno> {
    call(MMAP, [0, bytes, 3, 1, file.0.into(), 0])
}

/// Forgets what is in private memory of our own.
pub fn forget(at: u64, bytes: u64) -> Result<(), Errno> {
    call(MADVISE, [at, bytes, 4, 0, 0, 0]).map(drop)
}

/// Makes pages this process's alone, as if it had written to them, without changing them.
pub fn own_pages(at: u64, bytes: u64) -> Result<(), Errno> {
    call(MADVISE, [at, bytes, 23, 0, 0, 0]).map(drop)
}

/// Keeps memory of our own out of children.
pub fn keep_from_children(at: u64, bytes: u64) {
    let _ = call(MADVISE, [at, bytes, 10, 0, 0, 0]);
}

/// This process.
pub fn pid() -> u32 {
    call(GETPID, [0; 6]).unwrap_or(0) as u32
}

/// Writes a number in decimal digits; how many.
pub fn digits(number: u32, to: &mut [u8]) -> usize {
    let (mut count, mut rest) = (1, number);
    while rest >= 10 {
        (count, rest) = (count + 1, rest / 10);
    }
    rest = number;
    for at in (0..count).rev() {
        if let Some(to) = to.get_mut(at) {
            *to = b'0' + (rest % 10) as u8;
        }
        rest /= 10;
    }
    count
}

/// Whether a process is there and has memory: one that has ended and that nobody has waited for has none.
pub fn is_there(pid: u32) -> bool {
    let mut path = *b"/proc/..........................";
    let length = 6 + digits(pid, &mut path[6..]);
    path[length..length + 7].copy_from_slice(b"/statm\0");
    let Ok(file) = open(&path[..length + 7], Mode::Read) else { return false };
    let mut first = [0u8; 2];
    let found = read(file, &mut first);
    close(file);
    found == Ok(2) && first != *b"0 "
}

/// Names this thread.
pub fn name(name: &[u8; 16]) {
    let _ = call(PRCTL, [15, name.as_ptr() as u64, 0, 0, 0, 0]);
}

/// Nanoseconds of a clock that never goes back.
pub fn now() -> u64 {
    let mut time = [0u64; 2];
    let _ = call(CLOCK_GETTIME, [1, time.as_mut_ptr() as u64, 0, 0, 0, 0]);
    time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1])
}

/// Nanoseconds of processor time that the calling thread has had.
pub fn own_time() -> u64 {
    let mut time = [0u64; 2];
    let _ = call(CLOCK_GETTIME, [3, time.as_mut_ptr() as u64, 0, 0, 0, 0]);
    time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1])
}

/// Waits until a file has something to read, or so long; whether it has.
pub fn wait_for(file: File, nanoseconds: u64) -> bool {
    let mut which = [u64::from(file.0) | 1 << 32];
    let mut time = [nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000];
    let found = call(PPOLL, [which.as_mut_ptr() as u64, 1, time.as_mut_ptr() as u64, 0, 0, 0]);
    found.is_ok_and(|count| count > 0)
}

/// Sleeps while a word has a value, and no longer than this.
pub fn sleep_while(word: &core::sync::atomic::AtomicU32, value: u32, nanoseconds: u64) {
    let time = [nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000];
    let _ = call(FUTEX, [word.as_ptr() as u64, 0, value.into(), time.as_ptr() as u64, 0, 0]);
}

/// Wakes whoever sleeps on a word.
pub fn wake(word: &core::sync::atomic::AtomicU32) {
    let _ = call(FUTEX, [word.as_ptr() as u64, 1, i32::MAX as u64, 0, 0, 0]);
}

/// Blocks every signal in this thread; which were blocked before.
pub fn block_signals() -> u64 {
    let (all, mut before) = (u64::MAX, 0u64);
    let _ = call(SIGPROCMASK, [2, &raw const all as u64, &raw mut before as u64, 8, 0, 0]);
    before
}

/// Blocks these signals alone.
pub fn restore_signals(mask: u64) {
    let _ = call(SIGPROCMASK, [2, &raw const mask as u64, 0, 8, 0, 0]);
}

/// Ends this thread.
pub fn exit_thread() -> ! {
    loop {
        let _ = call(EXIT, [0; 6]);
    }
}

/// Whose files a new thread uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// A table of its own.
    Own,
    /// Those of the thread that starts it.
    Same,
}

/// Starts a thread that the C library knows nothing of: it is in no list, and the program ends when its own threads have.
///
/// `stack` is the end of its stack, `local` what takes the place of a thread's own data.
pub fn thread(
    files: Files,
    stack: u64,
    local: u64,
    run: extern "C" fn(u64) -> !,
    argument: u64,
) -> Result<(), Errno> {
    // Memory, root folder, signal handlers, process, semaphores of System V, own data.
    let mut flags: u64 = 0x100 | 0x200 | 0x800 | 0x1_0000 | 0x4_0000 | 0x8_0000;
    if files == Files::Same {
        flags |= 0x400;
    }
    let back: i64;
    // SAFETY: the new thread begins after the instruction with the given stack, which nobody else uses, calls `run` with its
    // argument from registers that the kernel keeps, and never comes back. The thread that called goes on as after any call.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") CLONE as i64 => back,
            in("rdi") flags, in("rsi") stack & !15, in("rdx") 0u64, in("r10") 0u64, in("r8") local,
            in("r12") run, in("r13") argument,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    if back < 0 { Err(Errno(-back as i32)) } else { Ok(()) }
}

/// Asks a file something by a number and words.
fn ioctl(file: File, request: u64, words: &mut [u64]) -> Result<u64, Errno> {
    call(IOCTL, [file.0.into(), request, words.as_mut_ptr() as u64, 0, 0, 0])
}

/// What a userfaultfd is told or asked.
pub mod guard {
    use super::{EINVAL, Errno, File, PAGE, USERFAULTFD, call, ioctl, open};

    /// Forks, moves, removals and unmappings are told, pages can be said to be lost, and they can be moved (Linux 6.8).
    const FEATURES: u64 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 14 | 1 << 16;

    /// A new one, which hears of missing pages of whoever touches them, the kernel too.
    pub fn new() -> Result<File, Errno> {
        // Close on exec, do not block.
        let flags = 0o2_000_000 | 0o4_000;
        let file = match call(USERFAULTFD, [flags, 0, 0, 0, 0, 0]) {
            Ok(fd) => File(fd as u32),
            Err(error) => {
                // The device is for those whom its rights allow it.
                let device = open(b"/dev/userfaultfd\0", super::Mode::Both).map_err(|_| error)?;
                let made = call(super::IOCTL, [device.0.into(), 0xaa00, flags, 0, 0, 0]);
                super::close(device);
                File(made? as u32)
            }
        };
        match ioctl(file, 0xc018_aa3f, &mut [0xaa, FEATURES, 0]) {
            Ok(_) => Ok(file),
            Err(error) => {
                super::close(file);
                Err(error)
            }
        }
    }

    /// From now on missing pages of a range are ours to bring.
    pub fn register(guard: File, at: u64, bytes: u64) -> Result<(), Errno> {
        ioctl(guard, 0xc020_aa00, &mut [at, bytes, 1, 0]).map(drop)
    }

    /// No longer.
    pub fn unregister(guard: File, at: u64, bytes: u64) -> Result<(), Errno> {
        ioctl(guard, 0x8010_aa01, &mut [at, bytes]).map(drop)
    }

    /// Whoever waits for a page tries again.
    pub fn wake(guard: File, at: u64, bytes: u64) {
        let _ = ioctl(guard, 0x8010_aa02, &mut [at, bytes]);
    }

    /// How many bytes were done, and why no more.
    fn outcome(back: Result<u64, Errno>, field: u64, all: u64) -> (u64, Option<Errno>) {
        match back {
            Ok(_) => (all, None),
            // What was done before it failed is in the field, an error number where that is nothing.
            Err(error) if field as i64 > 0 => (field, Some(error)),
            Err(error) => (0, Some(error)),
        }
    }

    /// Asks for many pages at once and, where they are of several mappings (ENOENT, EINVAL), for the first one alone.
    fn of_one_mapping(guard: File, request: u64, to: u64, from: u64, bytes: u64) -> (u64, Option<Errno>) {
        let mut words = [to, from, bytes, 0, 0];
        let back = ioctl(guard, request, &mut words);
        match outcome(back, words[4], bytes) {
            (0, Some(Errno(2) | EINVAL)) if bytes > PAGE => of_one_mapping(guard, request, to, from, PAGE),
            other => other,
        }
    }

    /// Fills missing pages with copies, and wakes who waits for them.
    pub fn copy(guard: File, to: u64, from: u64, bytes: u64) -> (u64, Option<Errno>) {
        of_one_mapping(guard, 0xc028_aa03, to, from, bytes)
    }

    /// Fills a missing page with zeros.
    pub fn zero(guard: File, at: u64, bytes: u64) -> (u64, Option<Errno>) {
        let mut words = [at, bytes, 0, 0];
        let back = ioctl(guard, 0xc020_aa04, &mut words);
        outcome(back, words[3], bytes)
    }

    /// A missing page cannot be brought: whoever touches it gets the signal that broken memory gives.
    pub fn poison(guard: File, at: u64, bytes: u64) -> Result<(), Errno> {
        ioctl(guard, 0xc020_aa08, &mut [at, bytes, 0, 0]).map(drop)
    }

    /// Whether a change of the program's memory is under way of which we have not been told, at the moment.
    pub fn is_changing(guard: File, at: u64) -> bool {
        // Nothing is protected here: the kernel refuses, and says which of the two it is.
        ioctl(guard, 0xc018_aa06, &mut [at, PAGE, 0]) == Err(super::EAGAIN)
    }

    /// Moves pages elsewhere; they are missing then.
    pub fn carry(guard: File, to: u64, from: u64, bytes: u64) -> (u64, Option<Errno>) {
        of_one_mapping(guard, 0xc028_aa05, to, from, bytes)
    }
}

/// A run of pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Where it begins.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// What its pages are.
    pub kinds: u64,
}

/// Runs of pages of this process that are in memory, other than the kernel's page of zeros; how many were found.
pub fn present(pagemap: File, start: u64, end: u64, runs: &mut [Run]) -> Result<usize, Errno> {
    const PRESENT: u64 = 1 << 3;
    const ZEROS: u64 = 1 << 5;
    let mut words = [
        96,
        0,
        start,
        end,
        0,
        runs.as_mut_ptr() as u64,
        runs.len() as u64,
        0,
        ZEROS,
        PRESENT | ZEROS,
        0,
        PRESENT,
    ];
    ioctl(pagemap, 0xc060_6610, &mut words).map(|count| (count as usize).min(runs.len()))
}

/// A mapping, as the kernel has it at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Where it begins.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// Whether it is private, may be written, and has no file.
    pub plain: bool,
}

/// The mapping at an address or, if there is none, the next one (Linux 6.11).
pub fn mapping_at(maps: File, address: u64) -> Result<Mapped, Errno> {
    const OR_NEXT: u64 = 0x10;
    let mut words = [104, OR_NEXT, address, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    ioctl(maps, 0xc068_6611, &mut words)?;
    // Readable and writable, neither shared nor of a file.
    let plain = words[5] & 0b1011 == 0b0011 && words[8] == 0;
    Ok(Mapped { start: words[3], end: words[4], plain })
}

//! How the library comes to life in a process: when it is loaded, and again in every child that is forked.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::area;
use crate::board::{self, Board, Slot, Stage, VARIABLE, Why};
use crate::room::{ACTIVE, Shared};
use crate::server::{Start, serve};
use crate::sys::{self, Errno, Files, Kind, Mode, PAGE};

/// The stack of each of our threads.
const STACK: u64 = 64 << 10;

/// Memory on both sides of where a thread's own data would be.
const LOCAL: u64 = 8 << 10;

/// The state of this process, 0 where there is none. A child has its parent's until it has its own.
static SHARED: AtomicU64 = AtomicU64::new(0);
static BOARD: AtomicU64 = AtomicU64::new(0);

/// Finds the board's path in the environment with which the process was started.
fn path(to: &mut [u8; 4096]) -> Option<&[u8]> {
    let environment = sys::open(b"/proc/self/environ\0", Mode::Read).ok()?;
    let mut text = [0u8; 4096];
    let (mut held, mut found) = (0, None);
    // Variables that are longer than the buffer are not ours.
    let mut skips = false;
    'read: while let Ok(length) = sys::read(environment, &mut text[held..]) {
        let end = held + length;
        let mut from = 0;
        while let Some(stop) = text[from..end].iter().position(|byte| *byte == 0).map(|at| from + at) {
            let value = text[from..stop].strip_prefix(VARIABLE.as_bytes()).and_then(|v| v.strip_prefix(b"="));
            if let (Some(value), false) = (value, skips) {
                to[..value.len()].copy_from_slice(value);
                to[value.len()] = 0;
                found = Some(value.len() + 1);
                break 'read;
            }
            skips = false;
            from = stop + 1;
        }
        text.copy_within(from..end, 0);
        held = end - from;
        if held == text.len() {
            (held, skips) = (0, true);
        }
        if length == 0 {
            break;
        }
    }
    sys::close(environment);
    to.get(..found?)
}

/// Attaches this process to its board, if it has one.
pub fn begin() {
    let mut buffer = [0u8; 4096];
    let Some(path) = path(&mut buffer) else { return };
    let Ok(file) = sys::open(path, Mode::Both) else { return };
    let mapped = board::map(file);
    sys::close(file);
    let Ok(board) = mapped else { return };
    if !board.is_one() {
        return;
    }
    BOARD.store(core::ptr::from_ref(board) as u64, Ordering::Release);
    start(board);
}

/// Starts the server for this process.
fn start(board: &'static Board) {
    SHARED.store(0, Ordering::Release);
    let Some(slot) = board.claim(sys::pid()) else { return };
    if let Err(error) = launch(board, slot) {
        slot.set_stage(Stage::Alone(Why::Thread, error));
    }
}

fn launch(board: &'static Board, slot: &'static Slot) -> Result<(), Errno> {
    let state = (size_of::<Shared>() as u64).next_multiple_of(PAGE);
    let all = state + 2 * STACK + 2 * LOCAL + PAGE;
    let base = sys::memory(all, Kind::Shared)?;
    // SAFETY: new memory of more than this size, all zero, that is never unmapped; it is atomics.
    let shared: &'static Shared = unsafe { area::at(base) };
    shared.owner.store(sys::pid(), Ordering::Relaxed);
    let stack = base + state + STACK;
    let writer_stack = stack + STACK;
    // What a thread finds of its own: zeros, and their own address.
    let local = writer_stack + LOCAL;
    let at = writer_stack + 2 * LOCAL;
    let start =
        Start { shared, board, slot, writer_stack, local, own_data: core::ptr::from_ref(&SHARED) as u64 };
    // SAFETY: both lie in the new memory, which nobody else knows yet, aligned to pages and to words.
    unsafe {
        (local as *mut u64).write(local);
        (at as *mut Start).write(start);
    }
    let mask = sys::block_signals();
    let started = sys::thread(Files::Own, stack, local, serve, at);
    sys::restore_signals(mask);
    started?;
    while shared.ready.load(Ordering::Acquire) == 0 {
        sys::sleep_while(&shared.ready, 0, 10_000_000);
    }
    SHARED.store(base, Ordering::Release);
    Ok(())
}

fn shared() -> Option<&'static Shared> {
    let at = SHARED.load(Ordering::Acquire);
    // SAFETY: only `launch` stores addresses, of memory that is never unmapped.
    let shared: &'static Shared = (at != 0).then(|| unsafe { area::at(at) })?;
    // A child that was forked behind our back has the address and not the server.
    (shared.owner.load(Ordering::Relaxed) == sys::pid()).then_some(shared)
}

/// Before a fork: all of the program's memory is brought back, because a child would find what is missing to be zero.
pub extern "C" fn before_fork() {
    let Some(shared) = shared() else { return };
    loop {
        let gate = shared.gate.load(Ordering::Acquire);
        if gate & ACTIVE == 0 {
            let next = shared.gate.compare_exchange(gate, gate + 1, Ordering::AcqRel, Ordering::Relaxed);
            if next.is_ok() {
                return;
            }
        } else {
            let bell = shared.doorbell.load(Ordering::Acquire);
            if bell != 0 {
                // SAFETY: a page of the room, which is never unmapped; it is missing, and whoever touches it waits until all
                // is back.
                unsafe { (bell as *const u8).read_volatile() };
            }
        }
    }
}

/// After a fork, in the parent.
pub extern "C" fn after_fork() {
    if let Some(shared) = shared() {
        shared.gate.fetch_sub(1, Ordering::AcqRel);
    }
}

/// After a fork, in the child: a process of its own.
pub extern "C" fn in_child() {
    let at = BOARD.load(Ordering::Acquire);
    if at != 0 {
        // SAFETY: only `begin` stores addresses, of a mapping that is never unmapped and that children share.
        start(unsafe { area::at(at) });
    }
}

/// A system call that changes the program's memory: while it is kept one waits for the other, because the kernel tells us of
/// them in no certain order. The C library's own calls do not come this way; they are told apart by what we know.
pub fn change(number: u64, arguments: [u64; 5]) -> Result<u64, Errno> {
    let Some(shared) = shared().filter(|shared| shared.gate.load(Ordering::Acquire) & ACTIVE != 0) else {
        return sys::change(number, arguments);
    };
    // A handler of a signal that does the same must not wait for the thread that it has interrupted.
    let mask = sys::block_signals();
    while shared.changes.swap(1, Ordering::Acquire) != 0 {
        sys::sleep_while(&shared.changes, 1, 1_000_000);
    }
    let back = sys::change(number, arguments);
    shared.changes.store(0, Ordering::Release);
    sys::wake(&shared.changes);
    sys::restore_signals(mask);
    back
}

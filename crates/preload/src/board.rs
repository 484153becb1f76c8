//! What the keeper and the libraries in its programs know of one another: a small file that all of them map.
//!
//! The keeper writes what is asked for, every process that has the library takes a slot and says how it stands. A process
//! never waits for another one here: everything is a number that is read and written at once.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::area;
use crate::sys::{self, Errno, File};

/// Where the library finds the board: the name of a variable of the environment.
pub const VARIABLE: &str = "TIERCEL_BOARD";

/// So many processes can be kept at a time.
pub const SLOTS: usize = 256;

/// So many parts of the address space are drawn.
pub const PARTS: usize = 72;

const MAGIC: u64 = 0x7469_6572_6365_6c02;

/// How it stands with a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It has enough, and nothing is done.
    Watched,
    /// Its pages are kept.
    Kept,
    /// It is left alone, and why.
    Alone(Why, Errno),
}

/// Why a process is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// userfaultfd is refused.
    Faults,
    /// What `/proc` says of it cannot be read.
    Proc,
    /// Its file cannot be made.
    File,
    /// There is no memory for the library's own books.
    Memory,
    /// No thread can be started.
    Thread,
}

const WHYS: [Why; 5] = [Why::Faults, Why::Proc, Why::File, Why::Memory, Why::Thread];

/// What one process says of itself; bytes, since it began.
#[repr(C)]
pub struct Slot {
    /// The process, 0 where the slot is free.
    pub pid: AtomicU32,
    stage: AtomicU32,
    error: AtomicU32,
    /// What the kernel said when something could last not be written to the file.
    pub write_error: AtomicU32,
    /// Memory of its own in DRAM.
    pub resident: AtomicU64,
    /// Pages that are in the file alone.
    pub away: AtomicU64,
    /// Read back because they were wanted.
    pub came_back: AtomicU64,
    /// Taken away.
    pub went_out: AtomicU64,
    /// Read back before they were wanted.
    pub ahead: AtomicU64,
    /// Taken away behind streams.
    pub behind: AtomicU64,
    /// Given back from the waiting room, without the file.
    pub rescued: AtomicU64,
    /// Faults that were served.
    pub faults: AtomicU64,
    /// Forks that all of it was brought back for.
    pub forks: AtomicU64,
    /// Children that were forked behind the C library's back and are on their own.
    pub raw_forks: AtomicU64,
    /// Nanoseconds of processor time of the library.
    pub time: AtomicU64,
    /// Streams at the moment.
    pub streams: AtomicU64,
    /// Its watched memory in equal parts: KiB in it, away, and that came back lately.
    pub map: [[AtomicU32; 3]; PARTS],
}

impl Slot {
    /// How it stands.
    pub fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Watched,
            1 => Stage::Kept,
            n => {
                let why = WHYS.get(n as usize - 2).copied().unwrap_or(Why::Proc);
                Stage::Alone(why, Errno(self.error.load(Ordering::Relaxed) as i32))
            }
        }
    }

    /// Says how it stands.
    pub fn set_stage(&self, stage: Stage) {
        let number = match stage {
            Stage::Watched => 0,
            Stage::Kept => 1,
            Stage::Alone(why, error) => {
                self.error.store(error.0 as u32, Ordering::Relaxed);
                2 + WHYS.iter().position(|w| *w == why).unwrap_or(0) as u32
            }
        };
        self.stage.store(number, Ordering::Release);
    }

    fn clear(&self) {
        let counts = [&self.resident, &self.away, &self.came_back, &self.went_out, &self.ahead, &self.behind];
        let more = [&self.rescued, &self.faults, &self.forks, &self.raw_forks, &self.time, &self.streams];
        counts.iter().chain(&more).for_each(|count| count.store(0, Ordering::Relaxed));
        self.map.iter().flatten().for_each(|part| part.store(0, Ordering::Relaxed));
        [&self.stage, &self.error, &self.write_error].iter().for_each(|n| n.store(0, Ordering::Relaxed));
    }
}

/// The board.
#[repr(C)]
pub struct Board {
    magic: AtomicU64,
    /// How many bytes all of the processes together may have in DRAM.
    pub fast: AtomicU64,
    /// How large each process's file may become.
    pub file_bytes: AtomicU64,
    /// Whether somebody wants to see maps.
    pub wants_maps: AtomicU32,
    /// Processes that found no slot.
    pub turned_away: AtomicU32,
    /// Counts of processes that have ended: came back, went out, ahead, behind, rescued, time.
    pub ended: [AtomicU64; 6],
    /// Whether any process ever took a slot.
    pub ever: AtomicU32,
    path: [AtomicU8; 4000],
    /// The processes.
    pub slots: [Slot; SLOTS],
}

/// How many bytes the file of a board has.
pub const BYTES: u64 = (size_of::<Board>() as u64).next_multiple_of(sys::PAGE);

/// Maps a board's file, which has [`BYTES`] bytes.
pub fn map(file: File) -> Result<&'static Board, Errno> {
    let at = sys::map(file, BYTES)?;
    // SAFETY: a new mapping of a file of this size, which stays; all of it is atomics.
    Ok(unsafe { area::at(at) })
}

impl Board {
    /// Writes down what is asked for; the path is where files of processes go, to which their numbers are added.
    pub fn set_up(&self, fast: u64, file_bytes: u64, path: &[u8]) -> bool {
        if path.len() >= self.path.len() {
            return false;
        }
        self.fast.store(fast, Ordering::Relaxed);
        self.file_bytes.store(file_bytes, Ordering::Relaxed);
        self.path.iter().zip(path).for_each(|(to, byte)| to.store(*byte, Ordering::Relaxed));
        self.magic.store(MAGIC, Ordering::Release);
        true
    }

    /// Whether it is one, of this version.
    pub fn is_one(&self) -> bool {
        self.magic.load(Ordering::Acquire) == MAGIC
    }

    /// The path for a process's file, with a zero at its end.
    pub fn path_for(&self, pid: u32, to: &mut [u8; 4096]) -> usize {
        let mut length = 0;
        for byte in self.path.iter().map(|byte| byte.load(Ordering::Relaxed)).take_while(|byte| *byte != 0) {
            to[length] = byte;
            length += 1;
        }
        to[length] = b'.';
        length += 1;
        let digits = sys::digits(pid, &mut to[length..]);
        to[length + digits] = 0;
        length + digits + 1
    }

    /// A slot for a process.
    pub fn claim(&self, pid: u32) -> Option<&Slot> {
        self.ever.store(1, Ordering::Relaxed);
        // What it was before an exec, or a process of the same number that was killed.
        self.slots
            .iter()
            .filter(|slot| slot.pid.load(Ordering::Relaxed) == pid)
            .for_each(|slot| self.free(slot));
        for _ in 0..2 {
            for slot in &self.slots {
                if slot.pid.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    slot.clear();
                    return Some(slot);
                }
            }
            self.sweep(sys::is_there);
        }
        self.turned_away.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn free(&self, slot: &Slot) {
        let counts = [&slot.came_back, &slot.went_out, &slot.ahead, &slot.behind, &slot.rescued, &slot.time];
        for (sum, count) in self.ended.iter().zip(counts) {
            sum.fetch_add(count.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
        slot.resident.store(0, Ordering::Relaxed);
        slot.pid.store(0, Ordering::Release);
    }

    /// Frees the slots of processes that are gone.
    pub fn sweep(&self, is_there: impl Fn(u32) -> bool) {
        for slot in &self.slots {
            let pid = slot.pid.load(Ordering::Acquire);
            if pid != 0 && !is_there(pid) {
                self.free(slot);
            }
        }
    }

    /// Slots in use.
    pub fn used(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| slot.pid.load(Ordering::Acquire) != 0)
    }

    /// What all processes together have in DRAM.
    pub fn resident(&self) -> u64 {
        self.used().map(|slot| slot.resident.load(Ordering::Relaxed)).sum()
    }

    /// A sum over processes that run and those that have ended: 0 came back, 1 went out, 2 ahead, 3 behind, 4 rescued, 5 time.
    pub fn sum(&self, which: usize) -> u64 {
        let of = |slot: &Slot| {
            let all = [&slot.came_back, &slot.went_out, &slot.ahead, &slot.behind, &slot.rescued, &slot.time];
            all.get(which).map_or(0, |count| count.load(Ordering::Relaxed))
        };
        let ended = self.ended.get(which).map_or(0, |count| count.load(Ordering::Relaxed));
        ended + self.slots.iter().map(of).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn processes_take_slots_and_leave_what_they_counted() {
        let path = std::env::temp_dir().join(std::format!("tiercel-board-{}", std::process::id()));
        let file = std::fs::File::create_new(&path).expect("a file");
        file.set_len(BYTES).expect("its size");
        let both = std::fs::File::options().read(true).write(true).open(&path).expect("it is there");
        let board = map(File(both.as_raw_fd() as u32)).expect("it is mapped");
        assert!(!board.is_one());
        assert!(!board.set_up(1, 1, &[b'x'; 4000]), "a path that is too long");
        assert!(board.set_up(64 << 20, 1 << 30, b"/var/tmp/slow") && board.is_one());
        let mut name = [0u8; 4096];
        let length = board.path_for(40_321, &mut name);
        assert_eq!(&name[..length], b"/var/tmp/slow.40321\0");
        let own = std::process::id();
        let slot = board.claim(own).expect("a slot");
        slot.resident.store(5, Ordering::Relaxed);
        slot.went_out.store(7, Ordering::Relaxed);
        slot.set_stage(Stage::Alone(Why::File, Errno(28)));
        assert_eq!(slot.stage(), Stage::Alone(Why::File, Errno(28)));
        board.sweep(sys::is_there);
        assert_eq!((board.resident(), board.used().count()), (5, 1), "whoever lives keeps its slot");
        // The same process again, after an exec.
        let slot = board.claim(own).expect("a slot");
        assert_eq!((slot.stage(), board.resident(), board.sum(1)), (Stage::Watched, 0, 7));
        for other in 1..SLOTS as u32 {
            assert!(board.claim(u32::MAX / 2 - other).is_some());
        }
        assert!(board.claim(u32::MAX / 2).is_some(), "those that are gone make room");
        std::fs::remove_file(path).expect("it goes");
    }
}

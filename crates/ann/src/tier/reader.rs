//! Reading many pages of a file at once, past the system's cache, so that memory stays as small as it was set: with
//! io_uring where the system allows it, with a few threads elsewhere.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use io_uring::{IoUring, opcode, types};

use crate::arena::Arena;
use crate::file::PAGE;

/// How many reads the system is given at once.
const DEPTH: u32 = 128;

/// How many threads read where there is no ring.
const THREADS: usize = 8;

/// The pages of a file, or of a memory that stands for a slow one.
pub(crate) struct PageFile {
    file: File,
    start: u64,
    direct: bool,
    pub(super) memory: Option<Box<dyn PageMemory>>,
}

/// Pages in a memory of the machine.
pub(crate) trait PageMemory: Send + Sync {
    /// Copies pages from there, and takes as long as the memory does.
    fn read(&self, pages: &[u64], group: usize, into: &mut [u8]) -> io::Result<()>;
}

impl PageFile {
    /// The pages of the file at this path that begin at an offset.
    pub(crate) fn open(path: &Path, start: u64) -> io::Result<PageFile> {
        let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).and_then(|file| {
            let mut probe = Arena::zeroed(PAGE)?;
            file.read_exact_at(&mut probe, 0).map(|()| file)
        });
        match direct {
            Ok(file) => Ok(PageFile { file, start, direct: true, memory: None }),
            Err(_) => Ok(PageFile { file: File::open(path)?, start, direct: false, memory: None }),
        }
    }

    /// A copy of a stretch of a file, without a name, on the disk of a folder.
    pub(crate) fn copied(path: &Path, stretch: Range<u64>, folder: &Path) -> io::Result<PageFile> {
        if !folder.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, "there is no such folder for vectors"));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let file = options.clone().custom_flags(libc::O_TMPFILE | libc::O_EXCL).open(folder)?;
        let from = File::open(path)?;
        let mut buffer = Arena::zeroed(1 << 20)?;
        for start in stretch.clone().step_by(1 << 20) {
            let bytes = &mut buffer[..(stretch.end - start).min(1 << 20) as usize];
            from.read_exact_at(bytes, start)?;
            file.write_all_at(bytes, start - stretch.start)?;
        }
        file.sync_all()?;
        // SAFETY: flags of our own file; where direct reads are refused, the system's cache serves.
        let direct = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_DIRECT) } == 0;
        // SAFETY: advice about a file of our own.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        Ok(PageFile { file, start: 0, direct, memory: None })
    }

    /// Whether the system's cache stays out of it.
    pub(crate) fn direct(&self) -> bool {
        self.direct
    }
}

/// Some reads under way into a buffer of its own.
pub(crate) struct Batch {
    ring: Option<IoUring>,
    /// The first page of the group in each place of the buffer: those that are read, then those that were at hand.
    pages: Vec<u64>,
    /// How many are read.
    reads: usize,
    /// How many pages there are in a group.
    group: usize,
    buffer: Arena,
    begun: usize,
    ended: usize,
}

impl Batch {
    /// Nothing under way, and room for so many groups of so many pages.
    pub(crate) fn new(group: usize, room: usize) -> io::Result<Batch> {
        Ok(Batch {
            ring: IoUring::new(DEPTH).ok(),
            pages: Vec::with_capacity(room),
            reads: 0,
            group,
            buffer: Arena::zeroed(room * group * PAGE)?,
            begun: 0,
            ended: 0,
        })
    }

    /// How many groups fit.
    pub(crate) fn room(&self) -> usize {
        self.buffer.len() / (self.group * PAGE)
    }

    /// Begins to read these groups, by their first pages, and returns how many of them were at hand: `hand` copies a group
    /// that it has.
    pub(crate) fn begin(
        &mut self,
        file: &PageFile,
        pages: &[u64],
        mut hand: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> io::Result<usize> {
        assert!(pages.len() <= self.room(), "{} groups where {} fit", pages.len(), self.room());
        // What an error has left under way still writes into the buffer.
        self.settle()?;
        (self.begun, self.ended, self.reads) = (0, 0, 0);
        self.pages.clear();
        self.pages.resize(pages.len(), 0);
        let bytes = self.group * PAGE;
        let mut back = pages.len();
        for page in pages {
            let place = &mut self.buffer[(back - 1) * bytes..][..bytes];
            if hand(*page, place) {
                back -= 1;
                self.pages[back] = *page;
            } else {
                self.pages[self.reads] = *page;
                self.reads += 1;
            }
        }
        if file.memory.is_none() {
            self.push(file)?;
        }
        Ok(pages.len() - self.reads)
    }

    /// Gives the ring as many reads as it takes.
    fn push(&mut self, file: &PageFile) -> io::Result<()> {
        let bytes = self.group * PAGE;
        let Some(ring) = &mut self.ring else { return Ok(()) };
        while self.begun < self.reads && self.begun - self.ended < DEPTH as usize {
            let into = self.buffer[self.begun * bytes..][..bytes].as_mut_ptr();
            let offset = file.start + self.pages[self.begun] * PAGE as u64;
            let read = opcode::Read::new(types::Fd(file.file.as_raw_fd()), into, bytes as u32)
                .offset(offset)
                .build()
                .user_data(self.begun as u64);
            // SAFETY: the buffer is not moved, read or freed before the read has ended (`finish` and `drop` see to it),
            // and the file outlives the search that reads it.
            if unsafe { ring.submission().push(&read) }.is_err() {
                break;
            }
            self.begun += 1;
        }
        patiently(|| ring.submit()).map(|_| ())
    }

    /// Returns when the system no longer writes into the buffer.
    fn settle(&mut self) -> io::Result<()> {
        let Some(ring) = &mut self.ring else { return Ok(()) };
        while self.ended < self.begun {
            patiently(|| ring.submit_and_wait(1))?;
            self.ended += ring.completion().count();
        }
        Ok(())
    }

    /// Returns when everything that was begun has been read.
    pub(crate) fn finish(&mut self, file: &PageFile) -> io::Result<()> {
        if let Some(memory) = &file.memory {
            let bytes = self.reads * self.group * PAGE;
            return memory.read(&self.pages[..self.reads], self.group, &mut self.buffer[..bytes]);
        }
        if self.ring.is_none() {
            return self.read_all(file);
        }
        let mut failed = Vec::new();
        while self.ended < self.reads {
            if self.begun < self.reads {
                self.push(file)?;
            }
            let Some(ring) = &mut self.ring else { break };
            patiently(|| ring.submit_and_wait(self.begun - self.ended))?;
            for done in ring.completion() {
                self.ended += 1;
                if done.result() != (self.group * PAGE) as i32 {
                    failed.push(done.user_data() as usize);
                }
            }
        }
        // What the ring read in part, or not at all, is read once more in the plain way, which tells what is wrong.
        failed.into_iter().try_for_each(|at| {
            let bytes = self.group * PAGE;
            let offset = file.start + self.pages[at] * PAGE as u64;
            file.file.read_exact_at(&mut self.buffer[at * bytes..][..bytes], offset)
        })
    }

    fn read_all(&mut self, file: &PageFile) -> io::Result<()> {
        let bytes = self.group * PAGE;
        let share = self.reads.div_ceil(THREADS).max(1);
        let buffer = &mut self.buffer[..self.reads * bytes];
        let shares = self.pages[..self.reads].chunks(share).zip(buffer.chunks_mut(share * bytes));
        (self.begun, self.ended) = (0, 0);
        std::thread::scope(|scope| {
            let threads: Vec<_> = shares
                .map(|(pages, buffer)| {
                    scope.spawn(move || {
                        let mut parts = pages.iter().zip(buffer.chunks_exact_mut(bytes));
                        parts.try_for_each(|(page, into)| {
                            file.file.read_exact_at(into, file.start + page * PAGE as u64)
                        })
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| match thread.join() {
                Ok(read) => read,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }

    /// The groups that came from the file, by their first pages.
    pub(crate) fn read(&self) -> impl Iterator<Item = (u64, &[u8])> + '_ {
        self.groups().take(self.reads)
    }

    /// All groups, by their first pages.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (u64, &[u8])> + '_ {
        self.pages.iter().copied().zip(self.buffer.chunks_exact(self.group * PAGE))
    }

    /// The bytes held.
    pub(crate) fn resident(&self) -> usize {
        self.buffer.len()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.settle().is_err() {
            // Better to lose the memory than to have it written to when it is somebody else's.
            std::mem::forget(std::mem::replace(&mut self.buffer, Arena::new()));
        }
    }
}

/// Tries again what a signal interrupted.
fn patiently<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

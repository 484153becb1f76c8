//! A tier that is a file: nameless, reserved to its full size at open, read and written with direct I/O.
//!
//! The file never has a name where the file system can do without (`O_TMPFILE`), and loses it at once elsewhere,
//! so that nothing is left on disk however the process ends. Its space is reserved when it is opened: a full disk
//! is found then, and not by some copy an hour later. A write that fails all the same says where and why.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{mem, ptr};

use tiercel_core::{Bytes, CopyError};

use super::error::HostError;
use super::memory::{Mapping, PAGE};

/// A file that holds the bytes of a tier.
#[derive(Debug)]
pub(crate) struct FileStore {
    file: File,
    tier: String,
    path: PathBuf,
    len: u64,
    direct: bool,
}

impl FileStore {
    /// A new nameless file in the folder `path`, which must exist: a folder that is not there may be one that is not mounted.
    pub(crate) fn open(tier: &str, path: &str, capacity: Bytes) -> Result<FileStore, HostError> {
        let len = capacity.round_up(Bytes(PAGE as u64)).unwrap_or(capacity).0;
        let path = PathBuf::from(path);
        let file = nameless(tier, &path, Bytes(len))?;
        let direct = set_direct(&file, true).is_ok() && reads_directly(&file);
        if !direct {
            // Where the file system refuses direct I/O, its own cache does.
            let _ = set_direct(&file, false);
        }
        Ok(FileStore { file, tier: tier.to_string(), path, len, direct })
    }

    /// Whether bytes go straight between memory and device, past the system's cache.
    pub(crate) fn direct(&self) -> bool {
        self.direct
    }

    /// How many bytes the file holds: the capacity, rounded up to whole pages.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Fills memory from the file.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), CopyError> {
        let bytes = into.len() as u64;
        self.file.read_exact_at(into, offset).map_err(|e| self.failure("reading", offset, bytes, &e))
    }

    /// Writes memory to the file.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<(), CopyError> {
        let bytes = from.len() as u64;
        self.file.write_all_at(from, offset).map_err(|e| self.failure("writing", offset, bytes, &e))
    }

    fn failure(&self, what: &str, offset: u64, bytes: u64, error: &io::Error) -> CopyError {
        CopyError(format!(
            "tier `{}`: {what} {bytes} bytes at offset {offset} of the file in {}: {error}",
            self.tier,
            self.path.display()
        ))
    }
}

/// A new file without a name, of `len` bytes that the file system has set aside.
pub(crate) fn nameless(tier: &str, path: &Path, len: Bytes) -> Result<File, HostError> {
    ignore_size_signal();
    let system = |what: String| {
        let tier = tier.to_string();
        move |source| HostError::System { tier, what, source }
    };
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(HostError::Exists { tier: tier.to_string(), path: path.to_path_buf() }),
        Err(_) if fs::symlink_metadata(path).is_ok() => {
            return Err(HostError::Exists { tier: tier.to_string(), path: path.to_path_buf() });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(HostError::Folder { tier: tier.to_string(), path: path.to_path_buf() });
        }
        Err(error) => return Err(system(format!("looking at {}", path.display()))(error)),
    }
    let file = born_nameless(path)
        .or_else(|_| named_for_a_moment(path))
        .map_err(system(format!("creating a file in {}", path.display())))?;
    reserve(&file, len).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => HostError::Room {
            tier: tier.to_string(),
            path: path.to_path_buf(),
            wanted: len,
            available: available(&file),
            reason: error.to_string(),
        },
        _ => system(format!("reserving {len} in {}", path.display()))(error),
    })?;
    Ok(file)
}

fn writable() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

fn born_nameless(directory: &Path) -> io::Result<File> {
    writable().custom_flags(libc::O_TMPFILE | libc::O_EXCL).open(directory)
}

fn named_for_a_moment(directory: &Path) -> io::Result<File> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = directory.join(format!(".tiercel-{}-{count}", std::process::id()));
    let file = writable().create_new(true).open(&name)?;
    fs::remove_file(&name)?;
    Ok(file)
}

/// Sets the space aside, by asking for it where the file system understands, and by writing where not.
fn reserve(file: &File, len: Bytes) -> io::Result<()> {
    if available(file) < len {
        // Asking the file system would fill it up before it refuses.
        return Err(io::Error::from_raw_os_error(match size_limit() < len {
            true => libc::EFBIG,
            false => libc::ENOSPC,
        }));
    }
    let end = libc::off_t::try_from(len.0).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    loop {
        // SAFETY: the descriptor is open for as long as `file` is borrowed.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, end) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => break,
            _ => return Err(error),
        }
    }
    let zeros = vec![0; 1 << 20];
    for at in (0..len.0).step_by(zeros.len()) {
        file.write_all_at(&zeros[..zeros.len().min((len.0 - at) as usize)], at)?;
    }
    Ok(())
}

/// What a file could grow to: the room in its file system, or the process's own limit where that is less.
pub(crate) fn available(file: &File) -> Bytes {
    // SAFETY: all-zero is a value of this plain structure.
    let mut found: libc::statvfs = unsafe { mem::zeroed() };
    // SAFETY: the descriptor is open, and the structure is ours to write.
    let room = match unsafe { libc::fstatvfs(file.as_raw_fd(), &mut found) } {
        // A file system without any blocks does not count them.
        0 if found.f_blocks > 0 => found.f_bavail.saturating_mul(found.f_frsize),
        _ => u64::MAX,
    };
    Bytes(room).min(size_limit())
}

/// The largest file that this process may write.
fn size_limit() -> Bytes {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the structure is ours to write.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    Bytes(limit.rlim_cur)
}

/// Makes a write beyond the size limit fail instead of ending the process, unless the program handles it itself.
fn ignore_size_signal() {
    // SAFETY: `signal` only swaps the disposition, and a handler that the program installed is put back.
    unsafe {
        let before = libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        if before != libc::SIG_DFL && before != libc::SIG_IGN && before != libc::SIG_ERR {
            libc::signal(libc::SIGXFSZ, before);
        }
    }
}

fn set_direct(file: &File, on: bool) -> io::Result<()> {
    // SAFETY: plain flag queries on a descriptor that is open for as long as `file` is borrowed.
    let result = unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        let flags = if on { flags | libc::O_DIRECT } else { flags & !libc::O_DIRECT };
        libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags)
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether direct reads of single pages work: some file systems take the flag and refuse the read.
fn reads_directly(file: &File) -> bool {
    let mut page = Buffer::default();
    page.get(PAGE).is_ok_and(|page| file.read_exact_at(page, 0).is_ok())
}

/// Page-aligned memory of one's own, made when first asked for and kept.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Option<Mapping>);

impl Buffer {
    /// At least so many bytes, with whatever was in them.
    pub(crate) fn get(&mut self, bytes: usize) -> io::Result<&mut [u8]> {
        if self.0.as_ref().is_none_or(|m| m.len() < bytes as u64) {
            self.0 = Some(Mapping::plain(bytes)?);
        }
        let base = self.0.as_ref().map_or(ptr::null_mut(), |m| m.address(0, bytes as u64));
        // SAFETY: the mapping is ours alone, holds at least `bytes`, and stays for as long as `self` is borrowed.
        Ok(unsafe { std::slice::from_raw_parts_mut(base, bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tiercel-file-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn bytes_come_back_and_no_name_is_ever_seen() {
        let directory = directory("back");
        let store = FileStore::open("disk", directory.to_str().unwrap(), Bytes(10_000)).unwrap();
        assert_eq!(store.len(), 12288);
        let mut buffer = Buffer::default();
        buffer.get(8192).unwrap().fill(7);
        store.write(4096, buffer.get(8192).unwrap()).unwrap();
        buffer.get(8192).unwrap().fill(0);
        store.read(0, buffer.get(8192).unwrap()).unwrap();
        let read = buffer.get(8192).unwrap();
        assert!(read[..4096].iter().all(|b| *b == 0) && read[4096..].iter().all(|b| *b == 7));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        fs::remove_dir(directory).unwrap();
    }

    #[test]
    fn a_name_for_a_moment_works_where_there_is_no_other_way() {
        let directory = directory("moment");
        let file = named_for_a_moment(&directory).unwrap();
        reserve(&file, Bytes(4096)).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4096);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        fs::remove_dir(directory).unwrap();
    }

    #[test]
    fn reading_past_the_end_says_where() {
        let directory = directory("past");
        let store = FileStore::open("disk", directory.to_str().unwrap(), Bytes(4096)).unwrap();
        let error = store.read(8192, Buffer::default().get(4096).unwrap()).unwrap_err().0;
        assert!(error.contains("tier `disk`: reading 4096 bytes at offset 8192"), "{error}");
        assert!(error.contains(directory.to_str().unwrap()), "{error}");
        fs::remove_dir(directory).unwrap();
    }
}

//! A swap file of our own: made, turned on, turned off and removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{KeepError, calls};

const PAGE: u64 = 4096;

/// How much of a disk is left alone.
const LEFT: u64 = 1 << 30;

/// A file that the kernel swaps to.
#[derive(Debug)]
pub struct SwapFile {
    /// Where it is.
    pub path: PathBuf,
    /// How large it is.
    pub bytes: u64,
}

/// The first page of a swap area, as `mkswap` writes it.
fn header(pages: u64) -> Vec<u8> {
    let mut page = vec![0u8; PAGE as usize];
    page[1024..1028].copy_from_slice(&1u32.to_le_bytes());
    page[1028..1032].copy_from_slice(&((pages - 1) as u32).to_le_bytes());
    page[1040..1056].copy_from_slice(b"tiercel-keep\0\0\0\0");
    page[PAGE as usize - 10..].copy_from_slice(b"SWAPSPACE2");
    page
}

impl SwapFile {
    /// Makes a file of so many bytes; it must not be there yet, and is not turned on.
    pub fn make(path: &Path, bytes: u64) -> Result<SwapFile, KeepError> {
        let bad = |error: io::Error| KeepError::SwapFile { path: path.to_path_buf(), error };
        let bytes = bytes / PAGE * PAGE;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let free = calls::disk_free(folder).map_err(bad)?;
        if free < bytes + LEFT {
            return Err(KeepError::DiskFull { path: path.to_path_buf(), wanted: bytes, free, left: LEFT });
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(bad)?;
        let mut made = || -> io::Result<()> {
            calls::reserve(&file, bytes)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&header(bytes / PAGE))?;
            file.sync_all()
        };
        if let Err(error) = made() {
            let _ = fs::remove_file(path);
            return Err(bad(error));
        }
        Ok(SwapFile { path: path.to_path_buf(), bytes })
    }

    /// Turns it on.
    pub fn on(&self) -> Result<(), KeepError> {
        calls::swap_on(&self.path).map_err(|error| {
            let _ = fs::remove_file(&self.path);
            match error.kind() {
                io::ErrorKind::PermissionDenied => KeepError::MaySwap,
                _ => KeepError::SwapFile { path: self.path.clone(), error },
            }
        })
    }
}

/// Turns a swap file off and removes it.
pub fn remove(path: &Path) -> io::Result<()> {
    if areas().iter().any(|area| area.path == path) {
        calls::swap_off(path)?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A swap area that is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its file or device.
    pub path: PathBuf,
    /// How large it is.
    pub bytes: u64,
    /// How much of it is in use.
    pub used: u64,
}

/// All swap areas that are on.
pub fn areas() -> Vec<Area> {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let area = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let kib = |at: usize| words.get(at)?.parse::<u64>().ok().map(|kib| kib << 10);
        Some(Area {
            path: PathBuf::from(words.first()?.replace("\\040", " ")),
            bytes: kib(2)?,
            used: kib(3)?,
        })
    };
    text.lines().skip(1).filter_map(area).collect()
}

/// Whether a file looks like a swap area.
pub fn is_swap(path: &Path) -> bool {
    use std::os::unix::fs::FileExt;
    let mut end = [0u8; 10];
    File::open(path)
        .is_ok_and(|file| file.read_exact_at(&mut end, PAGE - 10).is_ok() && &end == b"SWAPSPACE2")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_file_is_made_whole_or_not_at_all() {
        let path = std::env::temp_dir().join(format!("tiercel-swap-{}", std::process::id()));
        let file = match SwapFile::make(&path, (4 << 20) + 5) {
            Ok(file) => file,
            Err(error @ KeepError::DiskFull { .. }) => {
                eprintln!("skipped: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!((file.bytes, fs::metadata(&path).expect("a file").len()), (4 << 20, 4 << 20));
        assert!(is_swap(&path));
        // Nothing of somebody else's is overwritten.
        assert!(matches!(SwapFile::make(&path, 4 << 20), Err(KeepError::SwapFile { .. })));
        remove(&path).expect("it goes");
        assert!(!path.exists());
        remove(&path).expect("gone is gone");
        let huge = SwapFile::make(&path, 1 << 60).expect_err("no disk is so large");
        assert!(huge.to_string().contains("free"), "{huge}");
        assert!(!path.exists());
        assert!(SwapFile::make(Path::new("/no/such/folder/file"), 4096).is_err());
    }
}

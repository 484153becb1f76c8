//! Files that are there as a whole or not at all: plans, reports, machines, profiles, checkpoints.
//!
//! A file is written under another name beside its place, synced, and renamed. Whoever ends the program early calls
//! [`discard`], so that nothing half-written is left; what is about to be written then waits for the end.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files that are half-written right now.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what is half-written, for a program that is about to end: from now on no file is begun any more.
pub fn discard() {
    let mut all = unfinished();
    for path in all.drain(..) {
        let _ = fs::remove_file(path);
    }
    // Whoever is about to write waits for the lock until the program has ended.
    std::mem::forget(all);
}

/// Begins a file that is to be renamed when it is whole; [`finished`] must hear of it then, or when it was removed.
pub fn begin(place: &Path) -> io::Result<File> {
    let mut all = unfinished();
    let file = File::create(place)?;
    all.push(place.to_path_buf());
    Ok(file)
}

/// Says that a file that was begun has its name now, or is gone.
pub fn finished(place: &Path) {
    unfinished().retain(|other| other != place);
}

/// Whether a file could be written to `path`, by writing an empty one beside it.
pub fn try_place(path: &Path) -> io::Result<()> {
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if path.exists() && !path.is_file() {
        return Ok(());
    }
    let place = unfinished_path(path);
    let tried = begin(&place).and_then(|_| fs::remove_file(&place));
    finished(&place);
    tried
}

/// Writes `contents` to `path`. Whoever reads the file meanwhile, or after a crash, finds what was there before or all of
/// `contents`; what is no file, such as a pipe, is written to as it is.
pub fn replace(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let contents = contents.as_ref();
    // Through a link, so that the link stays.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if path.exists() && !path.is_file() {
        return fs::write(path, contents);
    }
    let place = unfinished_path(path);
    let written = begin(&place).and_then(|mut file| {
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&place, path)
    });
    if written.is_err() {
        // It may not have come to be.
        let _ = fs::remove_file(&place);
    }
    finished(&place);
    written
}

/// The name under which a file is written, one for each process.
fn unfinished_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

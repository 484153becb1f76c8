//! Files that are either whole or not there: written beside their place and then moved to it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Files that are being written and are not whole yet.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Writes a file, or leaves what was there before if that fails.
pub fn write(path: &Path, contents: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    // A device or a pipe is nothing to put another file in the place of.
    if path.exists() && !path.is_file() {
        let mut out = BufWriter::new(File::options().write(true).open(path)?);
        contents(&mut out)?;
        return out.flush();
    }
    let aside = aside(path)?;
    let unfinished = || UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    unfinished().push(aside.clone());
    let written = fill(&aside, contents).and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        let _ = fs::remove_file(&aside);
    }
    unfinished().retain(|other| *other != aside);
    written
}

fn fill(path: &Path, contents: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    contents(&mut out)?;
    out.flush()
}

/// Where a file is written before it is whole.
fn aside(path: &Path) -> io::Result<PathBuf> {
    let name =
        path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it names no file"))?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.part", std::process::id()));
    Ok(path.with_file_name(hidden))
}

/// Removes whatever is not whole, for a program that is about to end.
pub fn abandon() {
    for path in UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_what_was_there() {
        let folder = std::env::temp_dir().join(format!("tiercel-report-file-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        let path = folder.join("report.html");
        write(&path, |out| out.write_all(b"first")).expect("writes");
        let failed = write(&path, |out| {
            out.write_all(b"second")?;
            Err(io::Error::other("as told"))
        });
        assert_eq!(failed.map_err(|e| e.to_string()), Err("as told".to_string()));
        assert_eq!(fs::read(&path).expect("still there"), b"first");
        assert_eq!(fs::read_dir(&folder).expect("lists").count(), 1, "nothing is left beside it");
        assert!(write(&folder.join("none/report.html"), |_| Ok(())).is_err());
        fs::remove_dir_all(&folder).expect("removes");
    }
}

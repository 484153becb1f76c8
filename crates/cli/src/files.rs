//! Files that are there as a whole or not at all, also when somebody interrupts.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Files that are half-written right now.
static ASIDE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    ASIDE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the program when somebody interrupts it, with nothing left behind. For verbs that have nothing to save.
pub fn end_when_interrupted() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Without a handler the program ends too, and at worst leaves a file aside.
        let _ = ctrlc::set_handler(|| {
            for path in unfinished().drain(..) {
                let _ = fs::remove_file(path);
            }
            std::process::exit(130);
        });
    });
}

/// Writes `contents` to `path`. Whoever reads the file meanwhile, or after a crash, finds what was there before or all of
/// `contents`; what is no file, such as a pipe, is written to as it is.
pub fn replace(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), String> {
    let contents = contents.as_ref();
    let wrong = |error| format!("cannot write `{}`: {error}", path.display());
    // Through a link, so that the link stays.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if path.exists() && !path.is_file() {
        return fs::write(path, contents).map_err(wrong);
    }
    let aside = aside(path);
    unfinished().push(aside.clone());
    let written = File::create(&aside).and_then(|mut file| {
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&aside, path)
    });
    if written.is_err() {
        // It may not have come to be.
        let _ = fs::remove_file(&aside);
    }
    unfinished().retain(|other| *other != aside);
    written.map_err(wrong)
}

/// Whether `path` can be written to as far as its folder tells, to be asked before long work.
pub fn check(path: &Path) -> Result<(), String> {
    if path.is_dir() {
        return Err(format!("cannot write `{}`: it is a folder", path.display()));
    }
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) if !folder.is_dir() => {
            Err(format!("cannot write `{}`: there is no folder `{}`", path.display(), folder.display()))
        }
        _ => Ok(()),
    }
}

/// The name under which a file is written, one for each process.
fn aside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

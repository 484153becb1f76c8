//! Files that are there whole or not at all, also when somebody interrupts.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Files that are half-written right now.
static ASIDE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn aside() -> MutexGuard<'static, Vec<PathBuf>> {
    ASIDE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the program when somebody interrupts it, with nothing left behind. For verbs that have nothing to save.
pub fn end_when_interrupted() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Without a handler the program ends too, and at worst leaves a file aside.
        let _ = ctrlc::set_handler(|| {
            for path in aside().drain(..) {
                let _ = fs::remove_file(path);
            }
            std::process::exit(130);
        });
    });
}

/// Writes a file aside and puts it in place when it is whole.
pub fn save(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("cannot write `{}`: {error}", path.display());
    let name =
        path.file_name().ok_or_else(|| format!("cannot write `{}`: it names no file", path.display()))?;
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        // A pipe or a device is written as it is.
        return fs::write(path, bytes).map_err(wrong);
    }
    let mut beside = name.to_os_string();
    beside.push(format!(".{}.part", std::process::id()));
    let beside = path.with_file_name(beside);
    aside().push(beside.clone());
    let written = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    aside().retain(|other| *other != beside);
    written.map_err(wrong)
}

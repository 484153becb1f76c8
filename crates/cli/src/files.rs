//! Files that are there as a whole or not at all, also when somebody interrupts.

use std::path::Path;
use std::sync::Once;

use tiercel_run::files;

/// Ends the program when somebody interrupts it, with nothing left behind. For verbs that have nothing to save.
pub fn end_when_interrupted() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Without a handler the program ends too, and at worst leaves a file aside.
        let _ = ctrlc::set_handler(|| {
            files::discard();
            std::process::exit(130);
        });
    });
}

/// All of a file.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    tiercel_workload::open::read(path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))
}

/// Writes `contents` to `path`, whole or not at all.
pub fn replace(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), String> {
    files::replace(path, contents).map_err(|error| format!("cannot write `{}`: {error}", path.display()))
}

/// Whether `path` can be written to, to be asked before long work.
pub fn check(path: &Path) -> Result<(), String> {
    if path.is_dir() {
        return Err(format!("cannot write `{}`: it is a folder", path.display()));
    }
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) if !folder.is_dir() => {
            Err(format!("cannot write `{}`: there is no folder `{}`", path.display(), folder.display()))
        }
        _ => files::try_place(path).map_err(|error| format!("cannot write `{}`: {error}", path.display())),
    }
}

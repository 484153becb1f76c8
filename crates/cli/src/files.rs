//! Files that are there as a whole or not at all, also when somebody interrupts.

use std::path::Path;
use std::sync::Once;

use anyhow::{Context, bail};
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

/// Writes `contents` to `path`, whole or not at all.
pub fn replace(path: &Path, contents: impl AsRef<[u8]>) -> anyhow::Result<()> {
    files::replace(path, contents).with_context(|| format!("cannot write `{}`", path.display()))
}

/// Whether all of these can be written, by the options that name them, and are different files.
pub fn check_all(outputs: &[(&str, &Path)]) -> anyhow::Result<()> {
    for (at, (option, path)) in outputs.iter().enumerate() {
        if let Some((other, _)) = outputs[..at].iter().find(|(_, other)| same(other, path)) {
            bail!("{other} and {option} name the same file `{}`", path.display());
        }
        check(path)?;
    }
    Ok(())
}

/// Whether two paths lead to the same file.
pub fn same(a: &Path, b: &Path) -> bool {
    a == b || a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b && a.is_file()))
}

/// Whether `path` can be written to, to be asked before long work.
pub fn check(path: &Path) -> anyhow::Result<()> {
    if path.is_dir() {
        bail!("cannot write `{}`: it is a folder", path.display());
    }
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) if !folder.is_dir() => {
            bail!("cannot write `{}`: there is no folder `{}`", path.display(), folder.display())
        }
        _ => files::try_place(path).with_context(|| format!("cannot write `{}`", path.display())),
    }
}

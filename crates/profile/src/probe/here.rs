//! This machine as it was measured: kept in the user's cache folder, measured when it is first asked for.

use std::path::{Path, PathBuf};

use tiercel_core::{Backing, Machine};

use super::{Found, ProbeError, Settings, folder_of, probe};

/// Where the measured machine is kept: one file for each machine, because homes may be shared.
pub fn path() -> PathBuf {
    folder().join(format!("here-{}.toml", host()))
}

/// Tiercel's part of the user's cache folder.
pub fn folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("tiercel")
}

/// This machine's name, in characters that a file name may have.
pub(crate) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let name: String = name.trim().chars().take(64).map(plain).collect();
    if name.is_empty() { "machine".to_string() } else { name }
}

/// This machine as far as it is known.
#[derive(Debug)]
pub struct Known {
    /// The machine.
    pub machine: Machine,
    /// Why what was measured now could not be kept for the next time.
    pub unkept: Option<ProbeError>,
}

/// This machine, from the file where it has been measured before.
pub fn machine(note: impl FnMut(&str)) -> Result<Known, ProbeError> {
    machine_at(&path(), || Backing::File(spare().display().to_string()), note)
}

/// A folder for the file behind the slowest tier: where the machine is kept, or where anybody may write.
fn spare() -> PathBuf {
    let folder = folder();
    let probe = folder.join("here");
    match std::fs::create_dir_all(&folder).and_then(|()| tiercel_run::files::try_place(&probe)) {
        Ok(()) => folder,
        Err(_) => std::env::temp_dir(),
    }
}

/// Where this machine is kept with another slow memory behind its own.
pub fn path_with(slow: &Backing) -> PathBuf {
    let key = tiercel_run::kernels::random::name(&slow.to_string());
    folder().join(format!("here-{}-{key:016x}.toml", host()))
}

/// This machine with another slow memory behind its own: a file in a folder, or memory that is slowed down.
pub fn machine_with(slow: &Backing, note: impl FnMut(&str)) -> Result<Known, ProbeError> {
    let slow = match slow {
        Backing::File(path) => Backing::File(folder_of(Path::new(path))?.0.display().to_string()),
        other => other.clone(),
    };
    machine_at(&path_with(&slow), || slow.clone(), note)
}

fn machine_at(
    path: &Path,
    slow: impl FnOnce() -> Backing,
    note: impl FnMut(&str),
) -> Result<Known, ProbeError> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let machine = Machine::parse(&text).map_err(|error| ProbeError::Kept {
                what: "what was measured of this machine cannot be read; remove",
                path: path.to_path_buf(),
                error: error.to_string(),
            })?;
            Ok(Known { machine, unkept: None })
        }
        Err(_) => {
            let found = probe(&Settings { slow: Some(slow()) }, note)?;
            let unkept = keep_at(path, &found).err();
            Ok(Known { machine: found.machine, unkept })
        }
    }
}

/// Keeps what was found for the next time that somebody asks for this machine, and returns where.
pub fn keep(found: &Found) -> Result<PathBuf, ProbeError> {
    let path = path();
    keep_at(&path, found)?;
    Ok(path)
}

fn keep_at(path: &Path, found: &Found) -> Result<(), ProbeError> {
    let kept = |error: std::io::Error| ProbeError::Kept {
        what: "cannot write",
        path: path.to_path_buf(),
        error: error.to_string(),
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(kept)?;
    }
    tiercel_run::files::replace(path, found.machine.to_toml()).map_err(kept)
}

//! This machine as it was measured: kept in the user's cache folder, measured when it is first asked for.

use std::path::{Path, PathBuf};

use tiercel_core::Machine;

use super::{Found, ProbeError, Settings, probe};

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
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let name: String = name.trim().chars().take(64).map(plain).collect();
    if name.is_empty() { "machine".to_string() } else { name }
}

/// This machine, from the file where it has been measured before.
pub fn machine(note: impl FnMut(&str)) -> Result<Machine, ProbeError> {
    machine_at(&path(), note)
}

fn machine_at(path: &Path, note: impl FnMut(&str)) -> Result<Machine, ProbeError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Machine::parse(&text).map_err(|error| ProbeError::Kept {
            what: "what was measured of this machine cannot be read; remove",
            path: path.to_path_buf(),
            error: error.to_string(),
        }),
        Err(_) => {
            let folder = path.parent().map(Path::to_path_buf);
            let kept = |error: std::io::Error| ProbeError::Kept {
                what: "cannot make the folder of",
                path: path.to_path_buf(),
                error: error.to_string(),
            };
            if let Some(folder) = &folder {
                std::fs::create_dir_all(folder).map_err(kept)?;
            }
            let found = probe(&Settings { file: folder }, note)?;
            keep_at(path, &found)?;
            Ok(found.machine)
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
    // Whole or not at all: somebody else may be reading.
    let aside = path.with_extension(format!("{}.part", std::process::id()));
    let written =
        std::fs::write(&aside, found.machine.to_toml()).and_then(|()| std::fs::rename(&aside, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&aside);
    }
    written.map_err(kept)
}

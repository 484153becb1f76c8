//! This machine as it was measured: kept in the user's cache folder, measured when it is first asked for.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tiercel_core::{Backing, Machine};

use super::{Found, ProbeError, Settings, folder_of, probe};
use crate::quiet;

/// A machine that other programs were in the way of is measured again, but not before so long: they may stay.
const PAUSE: Duration = Duration::from_secs(600);

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
pub struct ThisMachine {
    /// The machine.
    pub machine: Machine,
    /// Why what was measured now could not be kept for the next time.
    pub unkept: Option<ProbeError>,
}

/// This machine, from the file where it has been measured before.
pub fn machine(note: impl FnMut(&str)) -> Result<ThisMachine, ProbeError> {
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
    let key = tiercel_kernels::random::name(&slow.to_string());
    folder().join(format!("here-{}-{key:016x}.toml", host()))
}

/// This machine with another slow memory behind its own: a file in a folder, or memory that is slowed down.
pub fn machine_with(slow: &Backing, note: impl FnMut(&str)) -> Result<ThisMachine, ProbeError> {
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
) -> Result<ThisMachine, ProbeError> {
    let kept = match std::fs::read_to_string(path) {
        Ok(text) => Some(Machine::parse(&text).map_err(|error| ProbeError::Kept {
            what: "what was measured of this machine cannot be read; remove",
            path: path.to_path_buf(),
            error: error.to_string(),
        })?),
        Err(_) => None,
    };
    if let Some(machine) = kept.clone()
        && !worth_another(&machine, age(path), || quiet::wait(Duration::ZERO))
    {
        return Ok(ThisMachine { machine, unkept: None });
    }
    let found = probe(&Settings { slow: Some(slow()) }, note)?;
    // What was found beside more of others than before is no better; it is kept as the latest try all the same.
    let share = |machine: &Machine| machine.compute.others.unwrap_or_default();
    let machine = match kept {
        Some(kept) if share(&kept) < share(&found.machine) => kept,
        _ => found.machine,
    };
    let unkept = keep_at(path, &machine).err();
    Ok(ThisMachine { machine, unkept })
}

/// How long ago a file was written.
fn age(path: &Path) -> Duration {
    let written = std::fs::metadata(path).and_then(|found| found.modified());
    written.ok().and_then(|written| written.elapsed().ok()).unwrap_or_default()
}

/// Whether a machine that was measured so long ago is worth another measurement: one that other programs were in the way of,
/// once these may have ended and the processors are quiet.
fn worth_another(machine: &Machine, age: Duration, quiet: impl FnOnce() -> bool) -> bool {
    machine.compute.others.is_some() && age >= PAUSE && quiet()
}

/// Keeps what was found for the next time that somebody asks for this machine, and returns where.
pub fn keep(found: &Found) -> Result<PathBuf, ProbeError> {
    let path = path();
    keep_at(&path, &found.machine)?;
    Ok(path)
}

fn keep_at(path: &Path, machine: &Machine) -> Result<(), ProbeError> {
    let kept = |error: std::io::Error| ProbeError::Kept {
        what: "cannot write",
        path: path.to_path_buf(),
        error: error.to_string(),
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(kept)?;
    }
    tiercel_run::files::replace(path, machine.to_toml()).map_err(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_were_in_the_way_of_is_measured_again_once_they_have_left() {
        let mut machine = crate::machines::named("optane-autotm").expect("it ships");
        let (late, early) = (PAUSE * 2, PAUSE / 2);
        assert!(!worth_another(&machine, late, || true), "nobody was in the way");
        machine.compute.others = Some(0.4);
        let reread = Machine::parse(&machine.to_toml()).expect("as it was written");
        assert_eq!(reread.compute.others, Some(0.4), "the mark is kept");
        assert!(worth_another(&reread, late, || true));
        assert!(!worth_another(&reread, late, || false), "they are still there");
        assert!(!worth_another(&reread, early, || true), "it has just been tried");
    }
}

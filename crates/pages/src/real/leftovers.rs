//! What a keeper has set up, written down before it is set up, so that the next one can clean up after one that was killed.
//!
//! A note is a small file in `/run/tiercel` (or the folder for temporary files), named by the keeper's process. Notes of
//! keepers that live are left alone; where the keeper is gone but its program still runs, so is what the program needs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::group::Group;
use super::{preload, process, swapfile};

/// What one keeper has set up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// The keeper, and when it began.
    pub keeper: u32,
    /// When it began, so that another process with its number is not taken for it.
    pub began: u64,
    /// The swap file that it made.
    pub swap: Option<PathBuf>,
    /// The memory cgroup that it made.
    pub group: Option<PathBuf>,
    /// The folder with the library that it gave to its program.
    pub folder: Option<PathBuf>,
    /// A group of somebody else whose limit it changed, and what that was.
    pub limit: Option<(PathBuf, String)>,
}

/// What became of a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Its keeper lives.
    Alive(u32),
    /// Its keeper is gone and its program still runs: left alone.
    InUse(u32, Vec<u32>),
    /// Cleaned up.
    Cleaned(u32),
    /// It could not be cleaned up, and why.
    Stuck(u32, String),
}

/// Where notes are: for all of the machine, or for those who may not write there.
pub fn folder() -> PathBuf {
    let run = Path::new("/run/tiercel");
    let trial = run.join(format!(".try-{}", std::process::id()));
    if fs::create_dir_all(run)
        .and_then(|()| fs::write(&trial, ""))
        .and_then(|()| fs::remove_file(&trial))
        .is_ok()
    {
        run.to_path_buf()
    } else {
        std::env::temp_dir().join("tiercel-keep")
    }
}

impl Note {
    /// The note of this process.
    pub fn own() -> Note {
        let keeper = std::process::id();
        Note { keeper, began: process::began(keeper).unwrap_or(0), ..Note::default() }
    }

    fn text(&self) -> String {
        let mut text = format!("keeper {} {}\n", self.keeper, self.began);
        if let Some(path) = &self.swap {
            text += &format!("swap {}\n", path.display());
        }
        if let Some(path) = &self.group {
            text += &format!("group {}\n", path.display());
        }
        if let Some(path) = &self.folder {
            text += &format!("folder {}\n", path.display());
        }
        if let Some((path, limit)) = &self.limit {
            text += &format!("limit {limit} {}\n", path.display());
        }
        text
    }

    fn parse(text: &str) -> Option<Note> {
        let mut note = Note::default();
        for line in text.lines() {
            let (word, rest) = line.split_once(' ')?;
            match word {
                "keeper" => {
                    let (pid, began) = rest.split_once(' ')?;
                    (note.keeper, note.began) = (pid.parse().ok()?, began.parse().ok()?);
                }
                "swap" => note.swap = Some(PathBuf::from(rest)),
                "folder" => note.folder = Some(PathBuf::from(rest)),
                "group" => note.group = Some(PathBuf::from(rest)),
                "limit" => {
                    let (limit, path) = rest.split_once(' ')?;
                    note.limit = Some((PathBuf::from(path), limit.to_string()));
                }
                _ => return None,
            }
        }
        (note.keeper != 0).then_some(note)
    }

    /// Writes it down in a folder, whole or not at all.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let aside = folder.join(format!(".keep-{}", self.keeper));
        fs::write(&aside, self.text())?;
        fs::rename(aside, self.path(folder))
    }

    fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("keep-{}", self.keeper))
    }

    /// Undoes all of it and removes the note; what could not be undone stays noted.
    pub fn undo(&self, folder: &Path) -> Result<(), String> {
        let mut left = self.clone();
        let mut wrong = Vec::new();
        if let Some((path, limit)) = &self.limit {
            let restored = Group::at(path).map_or(Ok(()), |group| group.restore_limit(limit));
            match restored {
                Ok(()) => left.limit = None,
                Err(error) => wrong.push(format!("the limit of {}: {error}", path.display())),
            }
        }
        if let Some(path) = &self.group {
            let removed = Group::at(path).map_or(Ok(()), |group| group.remove());
            match removed {
                Ok(()) => left.group = None,
                Err(error) => wrong.push(format!("the group {}: {error}", path.display())),
            }
        }
        if let Some(path) = &self.swap {
            match swapfile::remove(path) {
                Ok(()) => left.swap = None,
                Err(error) => wrong.push(format!("the swap file {}: {error}", path.display())),
            }
        }
        if let Some(path) = &self.folder {
            match preload::remove(path) {
                Ok(()) => left.folder = None,
                Err(error) => wrong.push(format!("the folder {}: {error}", path.display())),
            }
        }
        if wrong.is_empty() {
            match fs::remove_file(self.path(folder)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.to_string()),
                _ => Ok(()),
            }
        } else {
            let _ = left.write(folder);
            Err(wrong.join("; "))
        }
    }
}

/// Looks at all notes and cleans up after keepers that are gone.
pub fn clean(folder: &Path) -> Vec<Found> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("keep-") {
            continue;
        }
        let Some(note) = fs::read_to_string(entry.path()).ok().and_then(|text| Note::parse(&text)) else {
            continue;
        };
        let pid = note.keeper;
        if note.began != 0 && process::began(pid) == Some(note.began) && process::runs(pid) {
            found.push(Found::Alive(pid));
            continue;
        }
        let group = note.group.as_deref().and_then(|path| Group::at(path).ok());
        let mut programs = group.map_or(Vec::new(), |group| group.processes());
        programs.extend(note.folder.as_deref().map_or(Vec::new(), preload::users));
        match programs {
            programs if !programs.is_empty() => found.push(Found::InUse(pid, programs)),
            _ => found.push(match note.undo(folder) {
                Ok(()) => Found::Cleaned(pid),
                Err(why) => Found::Stuck(pid, why),
            }),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_outlive_their_keeper_and_are_cleaned_up_after() {
        let folder = std::env::temp_dir().join(format!("tiercel-notes-{}", std::process::id()));
        let file = folder.join("a file with blanks");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(&file, "x").expect("a file");
        let dead = Note { keeper: u32::MAX >> 1, began: 5, swap: Some(file.clone()), ..Note::default() };
        assert_eq!(Note::parse(&dead.text()).as_ref(), Some(&dead));
        dead.write(&folder).expect("written");
        Note::own().write(&folder).expect("written");
        // A number that was given to another process since is no longer the keeper.
        let reused = Note { began: 1, ..Note::own() };
        assert_ne!(reused.began, Note::own().began);
        let mut found = clean(&folder);
        found.sort_by_key(|f| matches!(f, Found::Alive(_)));
        assert_eq!(found, [Found::Cleaned(dead.keeper), Found::Alive(std::process::id())]);
        assert!(!file.exists());
        Note::own().undo(&folder).expect("nothing to undo");
        assert_eq!(clean(&folder), []);
        for bad in ["", "keeper", "keeper x y", "swap /x", "what else"] {
            assert_eq!(Note::parse(bad), None, "{bad}");
        }
        fs::remove_dir_all(folder).expect("it goes");
    }
}

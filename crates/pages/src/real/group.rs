//! A memory cgroup of our own: the limit on how much of a program is in DRAM. Both versions of the interface.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::KeepError;
use super::process;

/// A memory cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its folder.
    pub folder: PathBuf,
    /// 1 or 2.
    pub version: u8,
}

impl Group {
    /// A group below the one that this process is in.
    pub fn create(name: &str) -> Result<Group, KeepError> {
        let (parent, version) = process::memory_group(std::process::id()).ok_or(KeepError::NoGroups)?;
        let refused = |error: io::Error| KeepError::Group { folder: parent.clone(), error };
        // Version 2 allows no processes beside groups with limits: a group goes beside ours.
        let parents = match version {
            2 => vec![parent.parent().unwrap_or(&parent).to_path_buf(), parent.clone()],
            _ => vec![parent.clone()],
        };
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for parent in parents {
            if version == 2 {
                // Fails where it is on already, and where it may not be; the limit below tells.
                let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory");
            }
            let folder = parent.join(name);
            match fs::create_dir(&folder) {
                Ok(()) => {
                    let group = Group { folder, version };
                    if group.limit_file().exists() {
                        return Ok(group);
                    }
                    let _ = fs::remove_dir(&group.folder);
                    last = io::Error::from(io::ErrorKind::Unsupported);
                }
                Err(error) => last = error,
            }
        }
        Err(refused(last))
    }

    /// A group that is there already.
    pub fn at(folder: &Path) -> Result<Group, KeepError> {
        let found = [("memory.limit_in_bytes", 1), ("memory.max", 2)];
        let version = found.into_iter().find(|(file, _)| folder.join(file).exists());
        match version {
            Some((_, version)) => Ok(Group { folder: folder.to_path_buf(), version }),
            None => Err(KeepError::NotAGroup(folder.to_path_buf())),
        }
    }

    /// The file that has the limit.
    pub fn limit_file(&self) -> PathBuf {
        self.folder.join(if self.version == 1 { "memory.limit_in_bytes" } else { "memory.max" })
    }

    /// Sets the limit; what is above it is written out before this returns.
    pub fn limit(&self, bytes: u64) -> io::Result<()> {
        fs::write(self.limit_file(), bytes.to_string())
    }

    /// Takes the limit away.
    pub fn unlimit(&self) -> io::Result<()> {
        fs::write(self.limit_file(), if self.version == 1 { "-1" } else { "max" })
    }

    /// What the limit is, as the kernel writes it.
    pub fn limit_text(&self) -> io::Result<String> {
        Ok(fs::read_to_string(self.limit_file())?.trim().to_string())
    }

    /// Sets the limit to what [`Group::limit_text`] gave.
    pub fn restore_limit(&self, text: &str) -> io::Result<()> {
        fs::write(self.limit_file(), text)
    }

    /// Anonymous memory is as good to swap out as files are to drop.
    pub fn swap_freely(&self) {
        if self.version == 1 {
            // Where it cannot be set, the default is not far.
            let _ = fs::write(self.folder.join("memory.swappiness"), "100");
        }
    }

    /// How much memory it uses.
    pub fn usage(&self) -> io::Result<u64> {
        let file = if self.version == 1 { "memory.usage_in_bytes" } else { "memory.current" };
        let text = fs::read_to_string(self.folder.join(file))?;
        text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Whether whoever wants more than the limit waits, where the kernel would end it; version 1 alone can do that.
    pub fn wait_when_full(&self, wait: bool) -> io::Result<()> {
        if self.version != 1 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        fs::write(self.oom_control(), if wait { "1" } else { "0" })
    }

    /// Whether somebody waits for memory, see [`Group::wait_when_full`].
    pub fn waits(&self) -> bool {
        let text = fs::read_to_string(self.oom_control()).unwrap_or_default();
        text.lines().any(|line| line == "under_oom 1")
    }

    /// The file that says what happens to whoever wants more than the limit.
    pub fn oom_control(&self) -> PathBuf {
        self.folder.join("memory.oom_control")
    }

    /// How many of its processes the kernel has ended because the group was out of memory.
    pub fn ended_for_memory(&self) -> u64 {
        let file = if self.version == 1 { "memory.oom_control" } else { "memory.events" };
        let text = fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    /// Writes out what nobody used for longest, so many bytes, by the kernel's own order and in our time.
    pub fn reclaim(&self, bytes: u64, limit: u64) -> io::Result<()> {
        if self.version == 2 {
            return fs::write(self.folder.join("memory.reclaim"), bytes.to_string());
        }
        // Version 1 writes out whoever lowers a limit.
        let usage = self.usage()?;
        let lowered = self.limit(usage.saturating_sub(bytes).min(limit));
        let restored = self.limit(limit);
        lowered.and(restored)
    }

    /// Its processes.
    pub fn processes(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Takes a process in.
    pub fn take(&self, pid: u32) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string())
    }

    /// The file into which a process writes itself.
    pub fn entrance(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// Removes it; its processes, if any, go up to its parent, without a limit.
    pub fn remove(&self) -> io::Result<()> {
        let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        if !self.folder.exists() {
            return Ok(());
        }
        let _ = self.unlimit();
        if let Some(parent) = self.folder.parent() {
            for pid in self.processes() {
                let _ = fs::write(parent.join("cgroup.procs"), pid.to_string());
            }
        }
        // Processes that have just ended may count for a moment.
        for _ in 0..50 {
            match fs::remove_dir(&self.folder) {
                Ok(()) => return Ok(()),
                Err(error) if gone(&error) => return Ok(()),
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(20)),
            }
        }
        fs::remove_dir(&self.folder)
    }
}

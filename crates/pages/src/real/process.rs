//! What `/proc` says of a program: its mappings, its children, where its memory is, how long it has computed.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses.
    pub range: Range<u64>,
    /// What it may be used for, as in `rw-p`.
    pub rights: String,
    /// The file behind it, or a name such as `[heap]`, or nothing.
    pub name: String,
}

impl Mapping {
    /// Whether it is private memory of the program with no file behind it.
    pub fn is_anonymous(&self) -> bool {
        let bare = self.name.is_empty() || self.name == "[heap]" || self.name.starts_with("[anon:");
        bare && self.rights.starts_with("rw") && self.rights.ends_with('p')
    }

    /// How many bytes of address space.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// Reads one line of `/proc/PID/maps`.
fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let range = number(start)?..number(end)?;
    let rights = words.next()?.to_string();
    let name = words.skip(3).collect::<Vec<_>>().join(" ");
    Some(Mapping { range, rights, name })
}

/// All mappings of a process.
pub fn mappings(pid: u32) -> io::Result<Vec<Mapping>> {
    Ok(fs::read_to_string(format!("/proc/{pid}/maps"))?.lines().filter_map(mapping).collect())
}

/// Whether a process is there and has not ended.
pub fn runs(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat"));
    status.is_ok_and(|text| !matches!(field(&text, 0), Some("Z" | "X") | None))
}

/// A field of `/proc/PID/stat` after the name, which may hold anything.
fn field(stat: &str, at: usize) -> Option<&str> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(at)
}

/// When a process began, in ticks since boot: with its number, a name that no other process ever has.
pub fn began(pid: u32) -> Option<u64> {
    field(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, 19)?.parse().ok()
}

/// A process and all that it started, as far as it is known.
pub fn family(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut at = 0;
    while at < found.len() {
        let tasks = fs::read_dir(format!("/proc/{}/task", found[at]));
        for task in tasks.into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        at += 1;
    }
    found
}

/// Bytes of a process in memory and swapped out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// In memory, and its own.
    pub resident: u64,
    /// Swapped out.
    pub swapped: u64,
}

/// How much memory a process has, and where.
pub fn memory(pid: u32) -> io::Result<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
    };
    Ok(Memory { resident: bytes("RssAnon:"), swapped: bytes("VmSwap:") })
}

/// The memory cgroup of a process, as a folder, with the version of its interface.
pub fn memory_group(pid: u32) -> Option<(PathBuf, u8)> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = |kind: &str, option: &str| {
        mounts.lines().find_map(|line| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let fits = words.get(2) == Some(&kind)
                && (option.is_empty() || words.get(3).is_some_and(|all| all.split(',').any(|o| o == option)));
            fits.then(|| PathBuf::from(words[1]))
        })
    };
    let group = |wanted: &dyn Fn(&str) -> bool| {
        text.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (list, path) = (parts.next()?, parts.next()?);
            wanted(list).then(|| path.trim_start_matches('/').to_string())
        })
    };
    let first = group(&|list| list.split(',').any(|name| name == "memory"))
        .and_then(|path| Some((mount("cgroup", "memory")?.join(path), 1)));
    first.or_else(|| group(&str::is_empty).and_then(|path| Some((mount("cgroup2", "")?.join(path), 2))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_as_the_kernel_writes_them() {
        let heap = mapping("55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0                          [heap]");
        let heap = heap.expect("a mapping");
        assert_eq!((heap.range.start, heap.bytes()), (0x55d0_c0a0_0000, 0x21000));
        assert!(heap.is_anonymous());
        let text =
            mapping("7f00-8f00 r-xp 00001000 fe:00 42  /usr/lib/a file.so (deleted)").expect("a mapping");
        assert_eq!(text.name, "/usr/lib/a file.so (deleted)");
        assert!(!text.is_anonymous());
        assert!(mapping("7f00-8f00 rw-p 00000000 00:00 0 ").is_some_and(|bare| bare.is_anonymous()));
        assert!(!mapping("7f00-8f00 rw-s 00000000 00:05 7 /memfd:x").is_some_and(|m| m.is_anonymous()));
        for bad in ["", "x", "7f00 rw-p", "zz-yy rw-p 0 0 0"] {
            assert_eq!(mapping(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_process_knows_itself() {
        let own = std::process::id();
        assert!(runs(own) && began(own).is_some());
        assert!(!runs(u32::MAX >> 1) && began(u32::MAX >> 1).is_none());
        assert!(memory(own).expect("our own status").resident > 0);
        assert!(mappings(own).expect("our own mappings").iter().any(Mapping::is_anonymous));
        assert_eq!(family(own)[0], own);
        let mut child = std::process::Command::new("sleep").arg("5").spawn().expect("a child");
        assert!(family(own).contains(&child.id()));
        child.kill().expect("it ends");
        child.wait().expect("it ended");
        assert!(!runs(child.id()));
    }
}

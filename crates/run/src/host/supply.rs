//! How much memory could be had right now, so that a tier that is too large is an error and not the end of the
//! process.
//!
//! Linux hands out addresses freely and kills when it runs out of pages; so the question is asked before the
//! pages are touched. Three things can run out: the machine, the control group that the process lives in, and
//! the NUMA node that a tier is bound to.

use std::fs;
use std::path::{Path, PathBuf};

use tiercel_core::Bytes;

use super::file::available;

/// Kept back for the rest of the process.
const RESERVE: Bytes = Bytes::mib(64);

/// Memory that this process could still take.
pub fn memory() -> Bytes {
    let machine = field("/proc/meminfo", "MemAvailable:").unwrap_or(Bytes(u64::MAX));
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| control_group(&text));
    machine.min(group.unwrap_or(machine)).saturating_sub(RESERVE)
}

/// Memory that this process could still take on one NUMA node; `None` where there is no such node.
pub fn node(node: u32) -> Option<Bytes> {
    let file = format!("/sys/devices/system/node/node{node}/meminfo");
    let free = field(&file, "MemFree:")?;
    Some((free + field(&file, "Inactive(file):").unwrap_or_default()).saturating_sub(RESERVE))
}

/// The NUMA nodes of this machine as people write them, such as `0-3`.
pub fn nodes() -> String {
    let online = fs::read_to_string("/sys/devices/system/node/online").unwrap_or_default();
    match online.trim() {
        "" => "none".to_string(),
        nodes => nodes.to_string(),
    }
}

/// The numbers of the NUMA nodes that have memory.
pub fn node_numbers() -> Vec<u32> {
    let has_memory = |node: &u32| {
        let file = format!("/sys/devices/system/node/node{node}/meminfo");
        field(&file, "MemTotal:").is_some_and(|total| total > Bytes::ZERO)
    };
    numbers(&nodes()).into_iter().filter(has_memory).collect()
}

/// The cores of a NUMA node.
pub fn cores(node: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"));
    numbers(list.unwrap_or_default().trim())
}

/// The numbers in a list as the system writes it, such as `0-3,8`; what cannot be read is left out.
fn numbers(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        // No machine has more; a file that says so is not to be believed.
        (last < 65_536).then_some(first..=last)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// Room for files in a folder; `None` where there is no such folder.
pub fn disk(folder: &Path) -> Option<Bytes> {
    let opened = fs::File::open(folder).ok()?;
    opened.metadata().ok()?.is_dir().then(|| available(&opened))
}

/// The size of the largest cache of the first core at a level, as the system tells it.
pub fn cache(level: u32) -> Option<Bytes> {
    let read = |index: u32, what: &str| {
        fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}")).ok()
    };
    (0..8)
        .filter(|i| read(*i, "level").is_some_and(|l| l.trim() == level.to_string()))
        .filter(|i| read(*i, "type").is_some_and(|t| t.trim() != "Instruction"))
        .filter_map(|i| read(i, "size")?.trim().parse().ok())
        .max()
}

/// The figure behind a name in a file of lines such as `Node 0 MemFree: 123 kB`.
fn field(file: &str, name: &str) -> Option<Bytes> {
    let text = fs::read_to_string(file).ok()?;
    let mut words = text.lines().find(|line| line.contains(name))?.split_whitespace();
    words.find(|word| *word == name)?;
    words.next()?.parse().ok().map(Bytes::kib)
}

/// What the process's control groups leave it, by the text of `/proc/self/cgroup`.
fn control_group(text: &str) -> Option<Bytes> {
    let mut least = None;
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (root, limit, usage, cached) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
            c if c.split(',').any(|c| c == "memory") => (
                "/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            ),
            _ => continue,
        };
        let root = Path::new(root);
        let mut group: PathBuf = root.join(path.trim_start_matches('/'));
        while group.starts_with(root) {
            let figure = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
            if let (Some(limit), Some(usage)) = (figure(limit), figure(usage)) {
                let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
                let cached = stat.lines().find_map(|l| l.strip_prefix(cached)?.trim().parse().ok());
                let left = limit.saturating_sub(usage.saturating_sub(cached.unwrap_or(0u64)));
                least = Some(least.map_or(left, |other: u64| other.min(left)));
            }
            group.pop();
        }
    }
    least.map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory_and_says_so() {
        let total = field("/proc/meminfo", "MemTotal:").expect("Linux tells its memory");
        assert!(memory() > Bytes::ZERO && memory() < total);
        assert_eq!(field("/proc/meminfo", "NoSuchThing:"), None);
    }

    #[test]
    fn lists_of_numbers_read() {
        assert_eq!(numbers("0-3,8,10-11"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(numbers("0"), [0]);
        for nothing in ["", "none", "3-", "-1", "5-2", "0-99999999999", "0-4000000000"] {
            assert_eq!(numbers(nothing), [] as [u32; 0], "{nothing}");
        }
    }

    #[test]
    fn disks_have_room_and_what_is_no_folder_has_none() {
        assert!(disk(&std::env::temp_dir()).is_some_and(|room| room > Bytes::ZERO));
        assert_eq!(disk(Path::new("/no/such/folder")), None);
        assert_eq!(disk(Path::new("/proc/meminfo")), None);
    }

    #[test]
    fn a_node_that_is_not_there_has_no_memory() {
        assert_eq!(node(4000), None);
    }
}

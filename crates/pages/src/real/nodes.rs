//! NUMA nodes as tiers: from the kernel's memory tiers, or in the order in which the user names them.

use std::fs;
use std::path::Path;

use super::KeepError;
use crate::tiers::{PAGE, Tier, Tiers};

/// A node with memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// How much memory it has.
    pub bytes: u64,
    /// The kernel's memory tier: smaller is faster.
    pub rank: u32,
    /// How far it is from the nodes with processors.
    pub distance: u32,
}

/// Reads a list such as `0-2,5`.
fn list(text: &str) -> Vec<u32> {
    let part = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.trim().split(',').filter_map(part).flatten().collect()
}

fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains(name))?;
    line.split_ascii_whitespace().rev().nth(1)?.parse().ok()
}

/// All nodes with memory, the fastest first.
pub fn read() -> Vec<Node> {
    read_below(Path::new("/sys/devices/system/node"), Path::new("/sys/devices/virtual/memory_tiering"))
}

fn read_below(nodes: &Path, tiers: &Path) -> Vec<Node> {
    let mut ranks: Vec<(u32, Vec<u32>)> = Vec::new();
    for entry in fs::read_dir(tiers).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(rank) = name.strip_prefix("memory_tier").and_then(|rank| rank.parse().ok()) {
            let members = fs::read_to_string(entry.path().join("nodelist")).unwrap_or_default();
            ranks.push((rank, list(&members)));
        }
    }
    let with_cpus = list(&fs::read_to_string(nodes.join("has_cpu")).unwrap_or_default());
    let mut found = Vec::new();
    for id in list(&fs::read_to_string(nodes.join("has_memory")).unwrap_or_default()) {
        let folder = nodes.join(format!("node{id}"));
        let text = fs::read_to_string(folder.join("meminfo")).unwrap_or_default();
        let distances = fs::read_to_string(folder.join("distance")).unwrap_or_default();
        let distances: Vec<u32> = distances.split_ascii_whitespace().filter_map(|d| d.parse().ok()).collect();
        let nearest = with_cpus.iter().filter_map(|cpu| distances.get(*cpu as usize)).min();
        let rank = ranks.iter().find(|(_, members)| members.contains(&id)).map(|(rank, _)| *rank);
        found.push(Node {
            id,
            bytes: kib(&text, "MemTotal:").unwrap_or(0) << 10,
            rank: rank.unwrap_or(0),
            distance: nearest.copied().unwrap_or(10),
        });
    }
    found.sort_by_key(|node| (node.rank, node.distance, node.id));
    found
}

/// How many bytes a node has free.
pub fn free(id: u32) -> u64 {
    let text = fs::read_to_string(format!("/sys/devices/system/node/node{id}/meminfo")).unwrap_or_default();
    kib(&text, "MemFree:").unwrap_or(0) << 10
}

/// The nodes of this machine in the order that the user gave, or the kernel's.
pub fn ordered(wanted: Option<&[u32]>) -> Result<Vec<Node>, KeepError> {
    let nodes = read();
    let chosen = match wanted {
        None => nodes,
        Some(wanted) => {
            let mut chosen = Vec::new();
            for id in wanted {
                let node = nodes.iter().find(|node| node.id == *id).ok_or_else(|| KeepError::NoNode {
                    wanted: *id,
                    there: nodes.iter().map(|node| node.id.to_string()).collect::<Vec<_>>().join(", "),
                })?;
                chosen.push(node.clone());
            }
            chosen
        }
    };
    if chosen.len() < 2 {
        return Err(KeepError::OneTier { node: chosen.first().map_or(0, |node| node.id) });
    }
    Ok(chosen)
}

/// These nodes as tiers for decisions. The kernel's tier number grows with the latency relative to DRAM; where it says
/// nothing, the distance does.
pub fn tiers(nodes: &[Node], granule: u64, fast: Option<u64>) -> Tiers {
    let nearest = nodes.iter().map(|node| node.distance).min().unwrap_or(10).max(1);
    let list: Vec<Tier> = nodes
        .iter()
        .enumerate()
        .map(|(at, node)| {
            let bytes = if at == 0 { fast.unwrap_or(node.bytes).min(node.bytes) } else { node.bytes };
            let far = f64::from(node.distance) / f64::from(nearest);
            let slower = 1.0 + 0.5 * at as f64;
            Tier {
                name: format!("node{}", node.id),
                pages: (bytes / granule) as usize,
                latency_ns: 100.0 * far.max(slower),
                read: 10.0,
                write: 10.0,
                socket: 0,
                kind: at,
            }
        })
        .collect();
    // Until moves have been timed: what a core copies, and a granule is not a page.
    let copy = 4.0 * PAGE as f64 / granule as f64;
    Tiers { copy: vec![vec![copy; list.len()]; list.len()], list }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_ordered_as_the_kernel_or_the_user_says() {
        assert_eq!(list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(list(""), Vec::<u32>::new());
        let folder = std::env::temp_dir().join(format!("tiercel-nodes-{}", std::process::id()));
        let (nodes, tiers) = (folder.join("node"), folder.join("tiers"));
        let write = |path: std::path::PathBuf, text: &str| {
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        write(nodes.join("has_cpu"), "0\n");
        write(nodes.join("has_memory"), "0-2\n");
        for (id, total, distance) in [(0, 1024, "10 31 21"), (1, 4096, "31 10 40"), (2, 2048, "21 40 10")] {
            let text = format!("Node {id} MemTotal:  {total} kB\nNode {id} MemFree: 512 kB\n");
            write(nodes.join(format!("node{id}/meminfo")), &text);
            write(nodes.join(format!("node{id}/distance")), distance);
        }
        write(tiers.join("memory_tier4/nodelist"), "0\n");
        write(tiers.join("memory_tier37/nodelist"), "1-2\n");
        let found = read_below(&nodes, &tiers);
        let short: Vec<_> = found.iter().map(|n| (n.id, n.bytes >> 10, n.rank)).collect();
        assert_eq!(short, [(0, 1024, 4), (2, 2048, 37), (1, 4096, 37)], "nearer first within a tier");
        let made = super::tiers(&found, 4096, Some(512 << 10));
        assert_eq!(made.list.iter().map(|tier| tier.pages).collect::<Vec<_>>(), [128, 512, 1024]);
        assert!(made.list.windows(2).all(|pair| pair[0].latency_ns < pair[1].latency_ns));
        fs::remove_dir_all(folder).expect("it goes");
    }
}

//! Measures this very machine: its tiers and links, as a machine file.
//!
//! Tiers are plain memory, the memory of every other NUMA node, and a file in a folder. Reading, writing and a pointer
//! chase are measured where kernels would work, on slices of a tier; copies by the copy engine itself, for several
//! numbers of threads, because that is what will move the bytes (AutoTM section 2.2 shows how bandwidths depend on
//! threads). Every figure is the median of several passes over more than the caches hold. What other programs had of the
//! processors meanwhile is noted, and marks the machine where it is more than little. The whole takes some seconds;
//! all of it is memory of this process and a nameless file, so nothing is left behind however it ends.

mod compute;
mod copies;
pub mod here;
mod memory;
mod pin;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tiercel_core::{
    Backing, Bandwidth, Bytes, Compute, Error, Link, Machine, MachineError, Nanos, Tier, TierId,
};
use tiercel_run::host::supply;
use tiercel_run::{HostError, MemoryError};
use tiercel_train::room;

use crate::quiet::{self, Others};

/// What can be chosen of a probe.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// What is behind the slowest tier; the memories that the machine has where absent. A file lies in the
    /// folder that is named. With any other slow memory, distant nodes are left out: it stands in for them.
    pub slow: Option<Backing>,
}

/// What one tier can do, by the number of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// The tier's name.
    pub tier: String,
    /// Reading.
    pub read: Vec<(u32, Bandwidth)>,
    /// Writing.
    pub write: Vec<(u32, Bandwidth)>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The machine.
    pub machine: Machine,
    /// What its tiers do with fewer threads than all, where kernels can work on them.
    pub rates: Vec<Rates>,
    /// Whether the file's bytes went through the system's cache.
    pub buffered: bool,
    /// How long it took.
    pub took: Duration,
}

/// Why a machine cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The memories could not be opened.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A measurement failed.
    #[error(transparent)]
    Run(#[from] Error),
    /// What was measured makes no sense.
    #[error("what was measured makes no sense: {0}")]
    Figure(#[from] MachineError),
    /// A kernel of the probe could not run.
    #[error(transparent)]
    Kernel(#[from] MemoryError),
    /// There is too little memory to measure any.
    #[error("{available} of memory are free; probing takes {wanted}")]
    Memory {
        /// What there is.
        available: Bytes,
        /// What would be taken.
        wanted: Bytes,
    },
    /// There is no folder for the file.
    #[error("there is no folder `{0}`")]
    Folder(PathBuf),
    /// What was measured before cannot be read or written.
    #[error("{what} `{path}`: {error}")]
    Kept {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What went wrong.
        error: String,
    },
}

/// Measures this machine; `note` hears what is being measured.
pub fn probe(settings: &Settings, mut note: impl FnMut(&str)) -> Result<Found, ProbeError> {
    let (started, others) = (Instant::now(), Others::since_now());
    let size = buffer_size()?;
    let file = match &settings.slow {
        Some(Backing::File(path)) => Some(folder_of(Path::new(path))?),
        _ => None,
    };
    let nodes = supply::node_numbers();
    // Threads stay on one node, so that near memory is near for all of them.
    let pinned = pin::Pinned::to_node(&nodes);
    let cores = pinned.cores();
    let mut tiers = Vec::new();
    let mut rates = Vec::new();
    for (name, backing, capacity) in memories(&nodes, pinned.node()) {
        note(&format!("measuring {name}"));
        let measured = memory::measure(&name, &backing, size.min(capacity), &counts(cores))?;
        tiers.push(measured.tier(&name, backing, capacity));
        rates.push(Rates { tier: name, read: measured.read, write: measured.write });
    }
    // The node at hand first, the others by how far away they are.
    tiers[1..].sort_by_key(|tier| tier.latency);
    match &settings.slow {
        None | Some(Backing::File(_)) => {
            let tier = |(path, room): (PathBuf, Bytes)| {
                slow_tier("file", Backing::File(path.display().to_string()), room)
            };
            tiers.extend(file.map(tier));
        }
        Some(Backing::Throttled) => {
            tiers.truncate(1);
            let (read, write) = room::THROTTLED;
            let tier = slow_tier("slow", Backing::Throttled, supply::memory());
            tiers.push(Tier { read, write, computable: true, ..tier });
        }
        Some(backing) => {
            tiers.truncate(1);
            note(&format!("measuring {backing}"));
            let measured = memory::measure("slow", backing, size, &counts(cores))?;
            let capacity = slow_tier("slow", backing.clone(), supply::memory()).capacity;
            tiers.push(measured.tier("slow", backing.clone(), capacity));
            rates.push(Rates { tier: "slow".to_string(), read: measured.read, write: measured.write });
        }
    }
    let mut links = Vec::new();
    let mut buffered = false;
    for pair in 0..tiers.len().saturating_sub(1) {
        note(&format!("copying between {} and {}", tiers[pair].name, tiers[pair + 1].name));
        let (both, through_cache) = link(&mut tiers, pair, size, &counts(cores))?;
        links.extend(both);
        buffered |= through_cache;
    }
    note("multiplying matrices");
    let (gflops, beside) = compute::undisturbed(cores as usize);
    let others = Some(others.share().max(beside)).filter(|share| *share > quiet::LITTLE);
    let machine = Machine {
        name: "here".to_string(),
        source: format!("Measured on this machine by `tiercel probe`: {}.", processor()),
        contention: 1.0,
        buses: Vec::new(),
        compute: Compute { others, ..Compute::new(cores, gflops) },
        detached: None,
        tiers,
        links,
        kernels: None,
    };
    // Distant tiers get their links as from a file.
    let machine = Machine::parse(&machine.to_toml())?;
    Ok(Found { machine, rates, buffered, took: started.elapsed() })
}

/// The same machine with its files measured once more: a disk that others use, too, changes within minutes.
pub fn again(machine: &Machine) -> Result<Machine, ProbeError> {
    let (size, mut machine) = (buffer_size()?, machine.clone());
    let file = |pair: &usize| matches!(machine.tiers[pair + 1].backing, Backing::File(_));
    let pairs: Vec<usize> = (0..machine.tiers.len().saturating_sub(1)).filter(file).collect();
    for pair in pairs {
        let (both, _) = link(&mut machine.tiers, pair, size, &counts(machine.compute.threads))?;
        for new in both {
            let old = machine.links.iter_mut().find(|old| (old.from, old.to) == (new.from, new.to));
            *old.expect("neighbours are linked") = new;
        }
    }
    Ok(machine)
}

/// Both directions between a tier and the next, and whether the system's cache was in the way; what is behind a file is
/// known from its copies alone.
fn link(
    tiers: &mut [Tier],
    pair: usize,
    size: Bytes,
    counts: &[u32],
) -> Result<([Link; 2], bool), ProbeError> {
    let found = copies::measure([&tiers[pair], &tiers[pair + 1]], size, counts)?;
    let link = |from: usize, to: usize, direction: &copies::Direction| Link {
        from: TierId(from as u8),
        to: TierId(to as u8),
        latency: direction.latency,
        spacing: direction.spacing,
        threads: direction.threads(),
        curve: direction.curve.clone(),
        via: None,
        bus: None,
        busy: direction.busy(),
    };
    let both = [link(pair, pair + 1, &found.down), link(pair + 1, pair, &found.up)];
    let slow = &mut tiers[pair + 1];
    if matches!(slow.backing, Backing::File(_)) {
        let best = |d: &copies::Direction| d.curve.iter().map(|c| c.1).fold(Bandwidth(1.0), faster);
        (slow.write, slow.read) = (best(&found.down), best(&found.up));
        (slow.latency, slow.duplex) = (found.up.latency, Some(found.duplex));
    }
    Ok((both, found.buffered))
}

fn faster(a: Bandwidth, b: Bandwidth) -> Bandwidth {
    if a.0 > b.0 { a } else { b }
}

/// The tiers that are memory: a name, what is behind it, and how much there is.
fn memories(nodes: &[u32], at_hand: Option<u32>) -> Vec<(String, Backing, Bytes)> {
    let whole = |bytes: Bytes| Bytes(bytes.0 >> 28 << 28).max(Bytes::mib(64));
    match at_hand.filter(|_| nodes.len() > 1) {
        None => vec![("dram".to_string(), Backing::Dram, whole(supply::memory()))],
        Some(first) => {
            let others = nodes.iter().copied().filter(|node| *node != first);
            let tier = |node: u32| {
                let there = supply::node(node).unwrap_or_default().min(supply::memory());
                (format!("node{node}"), Backing::Numa(node), whole(there))
            };
            std::iter::once(first).chain(others).map(tier).collect()
        }
    }
}

/// A slow tier with so much room, as far as it is known before it is measured.
fn slow_tier(name: &str, backing: Backing, room: Bytes) -> Tier {
    Tier {
        name: name.to_string(),
        // Half of what is free is left to others.
        capacity: Bytes((room.0 / 2) >> 28 << 28).max(Bytes::mib(64)),
        read: Bandwidth(1.0),
        write: Bandwidth(1.0),
        combined: None,
        duplex: None,
        latency: Nanos::ZERO,
        computable: false,
        caches: false,
        rows: false,
        backing,
        price_per_gb: None,
    }
}

/// A folder by its full name, and the room in it.
fn folder_of(path: &Path) -> Result<(PathBuf, Bytes), ProbeError> {
    let missing = || ProbeError::Folder(path.to_path_buf());
    let folder = path.canonicalize().ok().filter(|folder| folder.is_dir()).ok_or_else(missing)?;
    let room = supply::disk(&folder).ok_or_else(missing)?;
    Ok((folder, room))
}

/// How much memory each buffer has: several times what the caches hold.
fn buffer_size() -> Result<Bytes, ProbeError> {
    let cache = supply::cache(3).or_else(|| supply::cache(2)).unwrap_or(Bytes::mib(32));
    let available = supply::memory();
    // Two buffers of two tiers, and a quarter of the memory stays free.
    let most = Bytes(available.0 / 4);
    let wanted = Bytes((cache.0 * 4).next_power_of_two()).clamp(Bytes::mib(128), Bytes::gib(4));
    let size = wanted.min(Bytes(most.0 >> 21 << 21));
    if size < Bytes::mib(16) {
        return Err(ProbeError::Memory { available, wanted: Bytes::mib(64) });
    }
    Ok(size)
}

/// The numbers of threads that are tried.
fn counts(cores: u32) -> Vec<u32> {
    let mut counts: Vec<u32> = (0..).map(|i| 1 << i).take_while(|n| *n < cores).collect();
    counts.push(cores);
    counts
}

/// The processor's name, where the system tells.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let name = name.map_or("a processor without a name", |(_, name)| name.trim());
    name.to_string()
}

/// The median of what `pass` takes for so many bytes: at least three times, and for a while.
fn median(
    bytes: Bytes,
    mut pass: impl FnMut() -> Result<Duration, ProbeError>,
) -> Result<Bandwidth, ProbeError> {
    let started = Instant::now();
    let mut times = Vec::new();
    while times.len() < 3 || (times.len() < 9 && started.elapsed() < Duration::from_millis(150)) {
        times.push(pass()?.max(Duration::from_nanos(1)));
    }
    times.sort_unstable();
    Ok(Bandwidth(bytes.0 as f64 / times[times.len() / 2].as_secs_f64()))
}

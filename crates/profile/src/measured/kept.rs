//! Measured times kept on disk, so that a kernel is measured once on a machine.
//!
//! One file for a processor, a number of threads and a version of the kernels: any of these changes all times. Within it
//! a time is found by the kernel's signature and by the memory under each operand, so that what was measured on plain
//! memory serves whatever the slow tier is. The file is written aside and renamed, at intervals, and whoever writes first
//! takes in what others have written meanwhile, under a lock: nobody's work is lost, and an interrupted profile goes on
//! where it stopped. Beside each time stands how busy other programs were, so that it can be measured again when they are
//! not. A file that makes no sense is replaced, with a word, by what is measured again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tiercel_core::{Backing, Machine, Nanos, Tier, TierId};
use tiercel_run::files;

use crate::probe::{here, processor};
use crate::quiet;

/// The kernels' version: the crate's, and a number that is raised when kernels become faster or slower.
pub const IMPLEMENTATION: &str = concat!(env!("CARGO_PKG_VERSION"), "+14");

/// The file's own version.
const FORMAT: u32 = 2;

/// What is written at least, where it takes long.
const INTERVAL: Duration = Duration::from_secs(2);

/// One time: nanoseconds, and the share of the processors that other programs had meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Entry(u64, f64);

impl Entry {
    fn disturbed(self) -> bool {
        self.1 > quiet::LITTLE
    }

    /// The one to go by: a time without disturbance, or else the shorter, since others only ever make it longer.
    fn better(self, other: Entry) -> Entry {
        match (self.disturbed(), other.disturbed()) {
            (true, true) if other.0 < self.0 => other,
            (true, false) => other,
            _ => self,
        }
    }
}

/// Times by signature, then by the memories of the operands.
type Kernels = BTreeMap<String, BTreeMap<String, Entry>>;

/// The file as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    format: u32,
    processor: String,
    threads: usize,
    implementation: String,
    kernels: Kernels,
}

/// The times that are known.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    contents: Contents,
    /// What was wrong with the file that was there.
    complaint: Option<String>,
    changed: bool,
    written: Instant,
}

impl Kept {
    /// What is known of this processor with so many threads, from the user's cache folder.
    pub fn open(threads: usize) -> Kept {
        Kept::open_in(&here::folder(), threads)
    }

    /// The same from another folder.
    pub fn open_in(folder: &Path, threads: usize) -> Kept {
        let processor = processor();
        let key = tiercel_kernels::random::name(&format!("{FORMAT}/{processor}/{threads}/{IMPLEMENTATION}"));
        let path = folder.join(format!("kernels-{}-{threads}-{key:016x}.json", here::host()));
        let implementation = IMPLEMENTATION.to_string();
        let contents =
            Contents { format: FORMAT, processor, threads, implementation, kernels: Kernels::new() };
        let mut kept = Kept { path, contents, complaint: None, changed: false, written: Instant::now() };
        match kept.read() {
            Ok(kernels) => kept.contents.kernels = kernels,
            Err(why) => {
                let path = kept.path.display();
                kept.complaint = Some(format!("`{path}` {why}; its kernels are measured again"));
            }
        }
        kept
    }

    /// Where it is kept.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was wrong with the file that was there.
    pub fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }

    /// How many times are known.
    pub fn len(&self) -> usize {
        self.contents.kernels.values().map(BTreeMap::len).sum()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.contents.kernels.is_empty()
    }

    /// The time of a kernel with its operands on these tiers.
    pub fn get(&self, signature: &str, machine: &Machine, tiers: &[TierId]) -> Option<Nanos> {
        self.entry(signature, machine, tiers).map(|entry| Nanos(entry.0))
    }

    /// Whether other programs were busy when that was measured.
    pub fn disturbed(&self, signature: &str, machine: &Machine, tiers: &[TierId]) -> bool {
        self.entry(signature, machine, tiers).is_some_and(Entry::disturbed)
    }

    fn entry(&self, signature: &str, machine: &Machine, tiers: &[TierId]) -> Option<Entry> {
        self.contents.kernels.get(signature)?.get(&memories(machine, tiers)).copied()
    }

    /// Learns a time that was measured while others had this share of the processors, and writes what is known when that
    /// was long ago.
    pub fn put(
        &mut self,
        signature: &str,
        machine: &Machine,
        tiers: &[TierId],
        (time, others): (Nanos, f64),
    ) -> io::Result<()> {
        let known = self.contents.kernels.entry(signature.to_string()).or_default();
        let new = Entry(time.0, (others * 1000.0).round() / 1000.0);
        known.entry(memories(machine, tiers)).and_modify(|old| *old = new.better(*old)).or_insert(new);
        self.changed = true;
        if self.written.elapsed() >= INTERVAL { self.save() } else { Ok(()) }
    }

    /// Writes what is known, together with what others have written since.
    pub fn save(&mut self) -> io::Result<()> {
        if !self.changed {
            return Ok(());
        }
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let lock = File::create(self.path.with_extension("lock"))?;
        lock.lock()?;
        for (signature, times) in self.read().unwrap_or_default() {
            let known = self.contents.kernels.entry(signature).or_default();
            for (memories, other) in times {
                known.entry(memories).and_modify(|own| *own = own.better(other)).or_insert(other);
            }
        }
        let text = serde_json::to_string_pretty(&self.contents).map_err(io::Error::other)?;
        files::replace(&self.path, text + "\n")?;
        (self.changed, self.written) = (false, Instant::now());
        Ok(())
    }

    /// What the file says; nothing where there is none.
    fn read(&self) -> Result<Kernels, String> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kernels::new()),
            Err(error) => return Err(format!("cannot be read: {error}")),
        };
        let found: Contents =
            serde_json::from_slice(&text).map_err(|error| format!("is no profile: {error}"))?;
        let key = |c: &Contents| (c.format, c.processor.clone(), c.threads, c.implementation.clone());
        if key(&found) != key(&self.contents) {
            return Err("is the profile of another processor".to_string());
        }
        Ok(found.kernels)
    }
}

/// The memory under every operand.
fn memories(machine: &Machine, tiers: &[TierId]) -> String {
    let all: Vec<String> = tiers.iter().map(|id| memory(machine.tier(*id))).collect();
    all.join(" ")
}

/// What a tier is made of. An emulated one is as fast as it says; any other is as fast as it is, whatever was measured.
fn memory(tier: &Tier) -> String {
    match &tier.backing {
        Backing::Throttled => {
            let both = tier.combined.map_or(String::new(), |both| format!(":{}", both.0));
            let turns = tier.duplex.map_or(String::new(), |share| format!(":duplex {share}"));
            format!("throttled:{}:{}{both}{turns}", tier.read.0, tier.write.0)
        }
        other => other.to_string(),
    }
}

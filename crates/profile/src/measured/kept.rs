//! Measured times kept on disk, so that a kernel is measured once on a machine.
//!
//! One file for a processor, a number of threads and a version of the kernels: any of these changes all times. Within it
//! a time is found by the kernel's signature and by the memory under each operand, so that what was measured on plain
//! memory serves whatever the slow tier is. The file is written aside and renamed, at intervals, and whoever writes first
//! takes in what others have written meanwhile, under a lock: nobody's work is lost, and an interrupted profile goes on
//! where it stopped. A file that makes no sense is put aside with a word, and measured again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tiercel_core::{Backing, Machine, Nanos, Tier, TierId};
use tiercel_run::files;

use crate::probe::{here, processor};

/// The kernels' version: the crate's, and a number that is raised when kernels become faster or slower.
pub const IMPLEMENTATION: &str = concat!(env!("CARGO_PKG_VERSION"), "+1");

/// The file's own version.
const FORMAT: u32 = 1;

/// What is written at least, where it takes long.
const INTERVAL: Duration = Duration::from_secs(2);

/// Times by signature, then by the memories of the operands.
type Kernels = BTreeMap<String, BTreeMap<String, u64>>;

/// The file as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    format: u32,
    processor: String,
    threads: usize,
    implementation: String,
    /// Nanoseconds.
    kernels: Kernels,
}

/// The times that are known.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    contents: Contents,
    /// What must not be lost when a file is found that makes no sense.
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
        let key = tiercel_run::kernels::random::name(&format!("{processor}/{threads}/{IMPLEMENTATION}"));
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
        self.contents.kernels.get(signature)?.get(&memories(machine, tiers)).copied().map(Nanos)
    }

    /// Learns a time, and writes what is known when that was long ago.
    pub fn put(
        &mut self,
        signature: &str,
        machine: &Machine,
        tiers: &[TierId],
        time: Nanos,
    ) -> io::Result<()> {
        let known = self.contents.kernels.entry(signature.to_string()).or_default();
        known.insert(memories(machine, tiers), time.0);
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
            for (memories, time) in times {
                known.entry(memories).or_insert(time);
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
            format!("throttled:{}:{}{both}", tier.read.0, tier.write.0)
        }
        other => other.to_string(),
    }
}

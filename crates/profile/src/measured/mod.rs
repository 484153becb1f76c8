//! Kernel times measured on this machine, for plans and predictions (AutoTM section 4.1).
//!
//! A [`Survey`] times every kernel of a program with its operands in each combination of the machine's tiers: kernels of one
//! [`signature`] once, in the [`placements`] that tell the others, by the `stopwatch`, and only what is not [`kept`] on disk
//! already. [`Measured::of_run`] takes the times from a run instead, in which only some placements were seen. Either way
//! kernels are known by their names, which are unique in a network, and their work, which tells networks apart.

pub mod kept;
pub mod placements;
pub mod signature;
mod stopwatch;

use std::collections::HashMap;

use tiercel_core::{Backing, Bandwidth, Bytes, Error, Machine, Nanos, Step, TierId, Traffic};
use tiercel_kernels::KernelError;
use tiercel_run::host::supply;
use tiercel_run::{HostError, Profile};
use tiercel_sim::{KernelTime, Roofline};
use tiercel_workload::parts::fused;
use tiercel_workload::{Kernel, Program, Trace};

pub use kept::Kept;
use placements::Sampling;
use signature::{Signature, signatures};
use stopwatch::Stopwatch;

/// So many kernels tell the processor's pace.
const HEAVY: usize = 8;

/// Why kernels cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The memories could not be opened.
    #[error(transparent)]
    Host(#[from] HostError),
    /// There is no kernel for some operation.
    #[error(transparent)]
    Library(#[from] KernelError),
    /// A kernel failed.
    #[error(transparent)]
    Run(#[from] Error),
    /// What was measured cannot be written.
    #[error("cannot write `{path}`: {error}")]
    Keep {
        /// The file.
        path: std::path::PathBuf,
        /// What went wrong.
        error: std::io::Error,
    },
}

/// What is to be measured, and what there is to do.
pub struct Survey<'a> {
    program: &'a Program,
    machine: &'a Machine,
    threads: usize,
    cache: Bytes,
    kernels: Vec<Signature>,
    /// The first kernel of every signature, with the placements that are measured.
    distinct: Vec<(Step, Vec<Vec<TierId>>)>,
    /// Whether what was measured while other programs were busy counts as unknown.
    again: bool,
}

impl<'a> Survey<'a> {
    /// A program that was prepared for so many threads, on the tiers of a machine that is this very one.
    pub fn new(program: &'a Program, machine: &'a Machine, threads: usize) -> Survey<'a> {
        // All that one core can reach; a level that several share is shared with others, too.
        let cache = supply::cache(3).or_else(|| supply::cache(2)).unwrap_or(Bytes::mib(32));
        let kernels = signatures(program, cache);
        let mut seen = HashMap::new();
        let mut distinct = Vec::new();
        for (at, signature) in kernels.iter().enumerate() {
            if seen.insert(signature.text.as_str(), at).is_none() {
                distinct.push((Step(at as u32), signature.placements(machine, Sampling::Coarse)));
            }
        }
        Survey { program, machine, threads, cache, kernels, distinct, again: false }
    }

    /// Measures as many placements as are worth their time, not just those that tell of all others.
    pub fn thorough(mut self) -> Survey<'a> {
        for (step, placements) in &mut self.distinct {
            *placements = self.kernels[step.0 as usize].placements(self.machine, Sampling::Thorough);
        }
        self
    }

    /// Measures what was measured while other programs were busy once more.
    pub fn again(mut self, yes: bool) -> Survey<'a> {
        self.again = yes;
        self
    }

    /// How many times were measured while other programs were busy.
    pub fn disturbed(&self, kept: &Kept) -> usize {
        let of = |(step, placements): &(Step, Vec<Vec<TierId>>)| {
            let text = &self.kernels[step.0 as usize].text;
            placements.iter().filter(|places| kept.disturbed(text, self.machine, places)).count()
        };
        self.distinct.iter().map(of).sum()
    }

    /// The signature of every kernel, in the order of the trace.
    pub fn kernels(&self) -> &[Signature] {
        &self.kernels
    }

    /// How many times there are to know: distinct kernels times placements.
    pub fn len(&self) -> usize {
        self.distinct.iter().map(|(_, placements)| placements.len()).sum()
    }

    /// Whether there is no kernel at all.
    pub fn is_empty(&self) -> bool {
        self.distinct.is_empty()
    }

    /// How many of them are known already.
    pub fn known(&self, kept: &Kept) -> usize {
        self.distinct
            .iter()
            .map(|(step, placements)| placements.len() - self.missing(kept, *step, placements).len())
            .sum()
    }

    fn missing(&self, kept: &Kept, step: Step, placements: &[Vec<TierId>]) -> Vec<Vec<TierId>> {
        let text = &self.kernels[step.0 as usize].text;
        let missing = placements.iter().filter(|places| {
            let disturbed = self.again && kept.disturbed(text, self.machine, places);
            disturbed || kept.get(text, self.machine, places).is_none()
        });
        missing.cloned().collect()
    }

    /// Measures what is not known, in the order of the trace. `tick` hears of every time and says whether to go on; what is
    /// known by then is kept in any case. Returns whether all of it is known. Where it cannot be written, all of it is measured
    /// before that is told.
    pub fn measure(&self, kept: &mut Kept, mut tick: impl FnMut() -> bool) -> Result<bool, ProfileError> {
        let missing: Vec<(Step, Vec<Vec<TierId>>)> =
            self.distinct.iter().map(|(step, all)| (*step, self.missing(kept, *step, all))).collect();
        let wanted = missing.iter().filter(|(_, placements)| !placements.is_empty());
        let signatures: Vec<&Signature> =
            wanted.clone().map(|(step, _)| &self.kernels[step.0 as usize]).collect();
        if signatures.is_empty() {
            return Ok(true);
        }
        let mut watch = Stopwatch::new(self.program, self.machine, self.threads, self.cache, &signatures)?;
        let mut going = true;
        for (step, placements) in wanted {
            let signature = &self.kernels[step.0 as usize];
            watch.time(*step, signature, placements, |tiers, time| {
                // It is written once more in the end, and what goes wrong then is told.
                let _ = kept.put(&signature.text, self.machine, tiers, time);
                going = tick();
                going
            })?;
            if !going {
                break;
            }
        }
        kept.save().map_err(|error| failed(kept, error))?;
        Ok(going)
    }

    /// How long the kernels that take most of an iteration take now, as a share of what is kept: a processor that others
    /// use, too, is not as fast in one second as it was in another. One where nothing is known of them.
    pub fn pace(&self, kept: &Kept) -> Result<f64, ProfileError> {
        let fast = |step: &Step| vec![TierId(0); self.kernels[step.0 as usize].operands.len()];
        let mut count: HashMap<&str, u64> = HashMap::new();
        self.kernels.iter().for_each(|signature| *count.entry(&signature.text).or_default() += 1);
        let weighed = self.distinct.iter().filter_map(|(step, _)| {
            let text = self.kernels[step.0 as usize].text.as_str();
            let time = kept.get(text, self.machine, &fast(step))?;
            Some((*step, count[text], time))
        });
        let mut heavy: Vec<(Step, u64, Nanos)> = weighed.collect();
        heavy.sort_by_key(|(_, count, time)| std::cmp::Reverse(count * time.0));
        heavy.truncate(HEAVY);
        let signatures: Vec<&Signature> =
            heavy.iter().map(|(step, ..)| &self.kernels[step.0 as usize]).collect();
        let watch = Stopwatch::new(self.program, self.machine, self.threads, self.cache, &signatures)?;
        let mut watch = watch.with_others();
        let before: u64 = heavy.iter().map(|(_, count, kept)| count * kept.0).sum();
        let mut least = u64::MAX;
        // Once more, so that what somebody did in a moment is not taken for what they do.
        for _ in 0..2 {
            let mut now = 0;
            for ((step, count, _), signature) in heavy.iter().zip(&signatures) {
                watch.time(*step, signature, &[fast(step)], |_, (time, _)| {
                    now += count * time.0;
                    true
                })?;
            }
            least = least.min(now);
        }
        Ok(if before == 0 { 1.0 } else { least as f64 / before as f64 })
    }

    /// The times of all kernels, as far as they are known.
    pub fn times(&self, kept: &Kept) -> Measured {
        let mut measured = Measured::default();
        // A thorough survey may have been made before.
        let first: HashMap<&str, Vec<Vec<TierId>>> = self
            .distinct
            .iter()
            .map(|(step, placements)| {
                let signature = &self.kernels[step.0 as usize];
                let mut all = placements.clone();
                for place in signature.placements(self.machine, Sampling::Thorough) {
                    if !all.contains(&place) {
                        all.push(place);
                    }
                }
                (signature.text.as_str(), all)
            })
            .collect();
        for (kernel, signature) in self.program.trace.kernels.iter().zip(&self.kernels) {
            let spread = |places: &Vec<TierId>| -> Vec<TierId> {
                signature.slots.iter().map(|slot| places[*slot]).collect()
            };
            let known = first[signature.text.as_str()].iter().filter_map(|places| {
                Some((spread(places), kept.get(&signature.text, self.machine, places)?))
            });
            *measured.entry(kernel) = known.collect();
        }
        measured
    }
}

fn failed(kept: &Kept, error: std::io::Error) -> ProfileError {
    ProfileError::Keep { path: kept.path().to_path_buf(), error }
}

/// Times of a program's kernels as they were measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// By the kernel's name in the program as it was written; networks may have kernels of one name.
    kernels: HashMap<String, Vec<Entry>>,
}

/// What was measured of one kernel.
#[derive(Clone, Debug, Default)]
struct Entry {
    flops: u64,
    /// The bytes that it reads and writes.
    bytes: u64,
    placed: Vec<Placed>,
}

/// Where a kernel's reads, then its writes, lay, and how long it took.
pub type Placed = (Vec<TierId>, Nanos);

/// The bytes that a kernel reads and writes.
fn bytes(kernel: &Kernel) -> u64 {
    kernel.reads.iter().chain(&kernel.writes).map(|u| u.bytes.0).sum()
}

impl Measured {
    /// What a run's profile says: the mean time of every kernel and placement seen.
    pub fn of_run(trace: &Trace, profile: &Profile) -> Measured {
        let mut measured = Measured::default();
        for line in profile.iter() {
            measured.entry(trace.kernel(line.step)).push((line.tiers.clone(), line.mean()));
        }
        measured
    }

    /// The same kernels on a processor that takes `pace` times as long. What an emulated tier charges stays the same.
    pub fn paced(mut self, machine: &Machine, pace: f64) -> Measured {
        let paced = |time: Nanos| Nanos((time.0 as f64 * pace) as u64);
        let emulated = |tier: &TierId| machine.tier(*tier).backing == Backing::Throttled;
        for Entry { placed: known, .. } in self.kernels.values_mut().flatten() {
            let plain = known.iter().find(|(tiers, _)| !tiers.iter().any(emulated)).map(|(_, time)| *time);
            for (tiers, time) in known {
                let charged = plain.filter(|plain| tiers.iter().any(emulated) && *time > *plain);
                *time = charged.map_or(paced(*time), |plain| paced(plain).max(*time));
            }
        }
        self
    }

    /// Adds what is known of another program's kernels.
    pub fn join(&mut self, other: Measured) {
        for (name, entries) in other.kernels {
            let known = self.kernels.entry(name).or_default();
            known.retain(|old| entries.iter().all(|new| new.flops != old.flops));
            known.extend(entries);
        }
    }

    /// The placements of a kernel that were measured, its reads, then its writes, and their times.
    pub fn of(&self, kernel: &Kernel) -> &[Placed] {
        let known = self.kernels.get(kernel.first_name()).into_iter().flatten();
        let mut same = known.filter(|entry| entry.flops == kernel.flops);
        same.next().map_or(&[], |entry| &entry.placed)
    }

    /// What is known of a kernel, or of the one that it does a part of the work of, and how large the part is. One that runs
    /// again takes what it took the first time.
    fn find(&self, kernel: &Kernel) -> Option<(&[Placed], f64)> {
        let known = self.kernels.get(kernel.first_name())?;
        let (flops, bytes) = (kernel.flops, bytes(kernel));
        let whole = known.iter().filter(|entry| entry.flops >= flops).min_by_key(|entry| entry.flops)?;
        let share = |part: u64, whole: u64| part.min(whole) as f64 / whole.max(1) as f64;
        let part = match kernel.derived.part {
            true if flops > 0 => share(flops, whole.flops),
            true => share(bytes, whole.bytes),
            false if whole.flops == flops => 1.0,
            false => return None,
        };
        Some((&whole.placed, part))
    }

    /// How long one takes that stands for several which were measured: what they do together in as much time, and slower
    /// tiers as bandwidths have it. What it saves by doing all at once is not known before it is measured itself.
    fn together(&self, machine: &Machine, kernel: &Kernel, tiers: &[TierId]) -> Option<Nanos> {
        let fastest = |tiers: &[TierId]| tiers.iter().all(|tier| *tier == TierId(0));
        let (mut flops, mut time) = (0, 0.0);
        for name in fused::stands_for(&kernel.op, kernel.first_name())? {
            // As many operations at least, but for those of an update, which are far fewer.
            let known = self.kernels.get(&name).into_iter().flatten();
            let entry = known.filter(|entry| entry.flops >= kernel.flops / 4).min_by_key(|entry| entry.flops);
            let Some(entry) = entry else { continue };
            flops += entry.flops;
            time += entry.placed.iter().find(|(places, _)| fastest(places))?.1.0 as f64;
        }
        let each = |tiers: &[TierId]| Roofline.time(machine, kernel, tiers).0.max(1) as f64;
        let slower = each(tiers) / each(&vec![TierId(0); tiers.len()]);
        (flops > 0).then(|| Nanos((time * kernel.flops as f64 / flops as f64 * slower) as u64))
    }

    fn entry(&mut self, kernel: &Kernel) -> &mut Vec<Placed> {
        let known = self.kernels.entry(kernel.first_name().to_string()).or_default();
        let at = known.iter().position(|entry| entry.flops == kernel.flops).unwrap_or_else(|| {
            known.push(Entry { flops: kernel.flops, bytes: bytes(kernel), placed: Vec::new() });
            known.len() - 1
        });
        &mut known[at].placed
    }
}

/// A machine as plans and predictions see it whose kernel times were measured: what copies and kernels have of fast memory
/// is in these times, and counts no second time.
pub fn beside_measured_times(machine: &Machine) -> Machine {
    let mut machine = machine.clone();
    let fast = &mut machine.tiers[0];
    (fast.read, fast.write) = (Bandwidth::gb(100.0), Bandwidth::gb(100.0));
    machine
}

impl KernelTime for Measured {
    fn time(&self, machine: &Machine, kernel: &Kernel, tiers: &[TierId]) -> Nanos {
        let Some((known, part)) = self.find(kernel) else {
            let together = self.together(machine, kernel, tiers);
            return together.unwrap_or_else(|| Roofline.time(machine, kernel, tiers));
        };
        if let Some((_, time)) = known.iter().find(|(places, _)| part == 1.0 && places == tiers) {
            return *time;
        }
        let derived = placements::derive(machine, kernel, (known, part), tiers);
        derived.unwrap_or_else(|| Roofline.time(machine, kernel, tiers))
    }

    fn cached(&self, machine: &Machine, kernel: &Kernel, traffic: &[Traffic]) -> Nanos {
        let fast = self.time(machine, kernel, &vec![TierId(0); kernel.reads.len() + kernel.writes.len()]);
        placements::beside_cache(machine, fast, traffic)
    }
}

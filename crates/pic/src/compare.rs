//! Systems compared on one deck for real, side by side, with what is possible.
//!
//! All of them are open at once and take turns, some iterations each, so that whatever else the machine does meets all of them.
//! Each works on memory of its own with the same amount of fast memory, but all-fast, which has enough. The best round of a
//! system is what it can do; the median says how far others disturbed it.

use std::time::Instant;

use tiercel_core::{Bandwidth, Bytes};

use crate::batch::NUMBERS;
use crate::deck::{Deck, Precision};
use crate::error::PicError;
use crate::roofline::{self, Roofline, Slow};
use crate::run::Options;
use crate::scene::Scene;
use crate::simd::Real;
use crate::simulation::{PHASES, bytes_of};
use crate::system::System;
use crate::team::Team;

/// How systems are compared.
#[derive(Clone, Debug)]
pub struct Contest {
    /// What all of them get, but for the system; throttled memory as said there.
    pub options: Options,
    /// Whether throttled memory is to this machine's memory as Optane is to DRAM, whatever the options say.
    pub optane: bool,
    /// Who takes part; all-fast does in any case.
    pub systems: Vec<System>,
    /// How often each has its turn.
    pub rounds: u32,
    /// How many iterations a turn has.
    pub steps: u32,
}

/// What a system did.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The system.
    pub system: System,
    /// Seconds an iteration took in each round.
    pub seconds: Vec<f64>,
    /// Bytes that were copied to fast memory in an iteration.
    pub fetched: Bytes,
    /// Bytes that were copied back.
    pub evicted: Bytes,
    /// Bytes that kernels moved on slow memory themselves.
    pub behind: Bytes,
    /// The share of time in which kernels waited for copies.
    pub stalled: f64,
    /// How many threads copied, by phase.
    pub copiers: [u32; PHASES.len()],
    /// A fingerprint of its fields and particles at the end.
    pub hash: u64,
}

impl Entry {
    /// Its best round, in seconds an iteration.
    pub fn best(&self) -> f64 {
        self.seconds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Its median.
    pub fn median(&self) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::INFINITY)
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Each system with what it did, or why it could not.
    pub entries: Vec<(System, Result<Entry, String>)>,
    /// What is possible, with the best and with the median of all-fast.
    pub roofline: Roofline,
    /// How much fast memory the others had.
    pub fast: Bytes,
    /// How much a run needs.
    pub needed: Bytes,
    /// Its particles.
    pub particles: u64,
    /// The bytes of those particles.
    pub particle_bytes: Bytes,
    /// What throttled memory was throttled to.
    pub throttled: (Bandwidth, Bandwidth),
    /// Whether slow memory is plain memory slowed down.
    pub emulated: bool,
    /// How many processors there are.
    pub cores: usize,
}

impl Comparison {
    /// What a system did.
    pub fn of(&self, system: System) -> Option<&Entry> {
        self.entries.iter().find(|(of, _)| *of == system).and_then(|(_, entry)| entry.as_ref().ok())
    }

    /// Whether all that ran came to the same bits.
    pub fn agree(&self) -> bool {
        let mut hashes = self.entries.iter().filter_map(|(_, entry)| entry.as_ref().ok()).map(|e| e.hash);
        hashes.next().is_none_or(|first| hashes.all(|hash| hash == first))
    }
}

/// Compares systems. `watch` hears of every turn, as a part of all, and says whether to go on.
pub fn compare(
    deck: &Deck,
    contest: &Contest,
    watch: &mut dyn FnMut(f64) -> bool,
) -> Result<Comparison, PicError> {
    match deck.precision {
        Precision::F32 => compare_in::<f32>(deck, contest, watch),
        Precision::F64 => compare_in::<f64>(deck, contest, watch),
    }
}

/// A system that takes part.
struct Racer<R: Real> {
    scene: Scene<R>,
    entry: Entry,
}

impl<R: Real> Racer<R> {
    /// Opened, and two iterations on: the second is what the model of copy threads goes by.
    fn open(deck: &Deck, options: &Options) -> Result<Racer<R>, PicError> {
        let mut scene = Scene::<R>::open(deck, options, Team::alone())?;
        for iteration in 0..2 {
            scene.simulation.iterate(false)?;
            scene.staff.after(&mut scene.simulation, iteration);
        }
        let entry = Entry {
            system: options.system,
            seconds: Vec::new(),
            fetched: Bytes::ZERO,
            evicted: Bytes::ZERO,
            behind: Bytes::ZERO,
            stalled: 0.0,
            copiers: scene.staff.copiers,
            hash: 0,
        };
        Ok(Racer { scene, entry })
    }

    /// Some iterations.
    fn turn(&mut self, steps: u32) -> Result<(), PicError> {
        let clock = Instant::now();
        for _ in 0..steps {
            self.scene.simulation.iterate(false)?;
        }
        self.entry.seconds.push(clock.elapsed().as_secs_f64() / f64::from(steps.max(1)));
        Ok(())
    }

    /// What it did since it began: `before` is what it had moved and waited then.
    fn finish(mut self, before: [u64; 4], steps: u32) -> Result<Entry, PicError> {
        let now = self.moved();
        let each = |at: usize| Bytes((now[at] - before[at]) / u64::from(steps.max(1)));
        let (fetched, evicted, behind) = (each(0), each(1), each(2));
        let all: f64 = self.entry.seconds.iter().sum::<f64>() * f64::from(steps);
        let turns = self.entry.seconds.len().max(1) as f64;
        let stalled = (now[3] - before[3]) as f64 / 1e9 / (all / turns).max(1e-9);
        let hash = self.scene.simulation.hash()?;
        Ok(Entry { fetched, evicted, behind, stalled, hash, ..self.entry })
    }

    fn moved(&mut self) -> [u64; 4] {
        let store = self.scene.simulation.store();
        let (fetched, evicted, stall) = store.totals_moved();
        [fetched.0, evicted.0, store.behind().0, stall.0]
    }
}

fn compare_in<R: Real>(
    deck: &Deck,
    contest: &Contest,
    watch: &mut dyn FnMut(f64) -> bool,
) -> Result<Comparison, PicError> {
    let mut options = contest.options.clone();
    options.steps = Some(u64::from(contest.rounds.max(1) * contest.steps.max(1) + 2));
    if contest.optane {
        options.throttled = roofline::optane(options.threads);
    }
    let mut systems = vec![System::AllFast];
    systems.extend(contest.systems.iter().copied().filter(|system| *system != System::AllFast));
    systems.dedup();
    let (rounds, steps) = (contest.rounds.max(1), contest.steps.max(1));
    let mut racers = Vec::new();
    for system in &systems {
        let racer = Racer::<R>::open(deck, &Options { system: *system, ..options.clone() });
        racers.push((*system, racer));
    }
    let mut before: Vec<[u64; 4]> = Vec::new();
    for (_, racer) in &mut racers {
        before.push(racer.as_mut().map_or([0; 4], Racer::moved));
    }
    let (turns, mut done) = (rounds as usize * racers.len(), 0);
    let mut taken = 0;
    'rounds: for _ in 0..rounds {
        for (_, racer) in &mut racers {
            if let Ok(running) = racer
                && let Err(error) = running.turn(steps)
            {
                *racer = Err(error);
            }
            done += 1;
            if !watch(done as f64 / turns as f64) && done >= systems.len() {
                break 'rounds;
            }
        }
        taken += 1;
    }
    conclude(contest, &options, racers, &before, taken.max(1) * steps)
}

/// The entries, and what was possible.
fn conclude<R: Real>(
    contest: &Contest,
    options: &Options,
    racers: Vec<(System, Result<Racer<R>, PicError>)>,
    before: &[[u64; 4]],
    steps: u32,
) -> Result<Comparison, PicError> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let mut found = None;
    let mut entries = Vec::new();
    for ((system, racer), before) in racers.into_iter().zip(before) {
        let mut racer = match racer {
            Ok(racer) => racer,
            // Without all-fast there is nothing to compare with.
            Err(error) if system == System::AllFast => return Err(error),
            Err(error) => {
                entries.push((system, Err(error.to_string())));
                continue;
            }
        };
        if system != System::AllFast && found.is_none() {
            let slow = Slow::measured(&racer.scene.machine, options.copiers.unwrap_or(1))?;
            let emulated = racer.scene.simulation.store().emulated();
            found = Some((
                slow,
                racer.scene.needs,
                racer.scene.fast,
                racer.scene.simulation.particles(),
                emulated,
            ));
        }
        entries.push((system, Ok(racer.finish(*before, steps)?)));
    }
    let Some((slow, needs, fast, particles, emulated)) = found else {
        let why = entries.iter().find_map(|(_, entry)| entry.as_ref().err().cloned());
        return Err(PicError::Nothing {
            why: why.unwrap_or_else(|| "there is none but all-fast".to_string()),
        });
    };
    let used = bytes_of::<R>(NUMBERS * particles as usize);
    let best = entries.iter().find_map(|(_, entry)| entry.as_ref().ok()).map_or(0.0, Entry::best);
    let roofline = slow.roofline((&needs, used), fast, (best, contest.options.threads, cores));
    Ok(Comparison {
        entries,
        roofline,
        fast,
        needed: needs.all(),
        particles,
        particle_bytes: used,
        throttled: options.throttled,
        emulated,
        cores,
    })
}

//! A deck from beginning to end, on some amount of fast memory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tiercel_core::{Backing, Bandwidth, Bytes};

use crate::deck::{Deck, Precision};
use crate::error::PicError;
use crate::page::Moment;
use crate::picture::Picture;
use crate::scene::{Amount, Scene};
use crate::simd::Real;
use crate::simulation::{Measured, PHASES, Simulation, Times};
use crate::system::{House, Needs, System};
use crate::team::Team;
use crate::{checkpoint, openpmd, picture};

/// How a deck is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much fast memory there is; enough for everything if nobody says.
    pub fast: Option<Amount>,
    /// What is behind the slow tier.
    pub slow: Backing,
    /// What throttled memory reads and writes at.
    pub throttled: (Bandwidth, Bandwidth),
    /// Who decides where things live.
    pub system: System,
    /// Who makes the policies that are not particles' own.
    pub house: House,
    /// How many threads compute.
    pub threads: usize,
    /// How many threads copy in each direction; none for as many as the model finds best after the second iteration.
    pub copiers: Option<u32>,
    /// How many iterations, other than the deck says.
    pub steps: Option<u64>,
    /// Where checkpoints go.
    pub checkpoint: Option<PathBuf>,
    /// Where a checkpoint goes when the run is ended early and `checkpoint` says nothing.
    pub refuge: Option<PathBuf>,
    /// After how many iterations a checkpoint is written, beside the one at the end.
    pub every: Option<u64>,
    /// Whether to go on from the checkpoint if it is there.
    pub resume: bool,
    /// Where openPMD files go.
    pub folder: Option<PathBuf>,
    /// Whether pictures are made at the end.
    pub pictures: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            fast: None,
            slow: Backing::Throttled,
            throttled: (Bandwidth(2e9), Bandwidth(1e9)),
            system: System::AllFast,
            house: |_| None,
            threads: 1,
            copiers: None,
            steps: None,
            checkpoint: None,
            refuge: None,
            every: None,
            resume: false,
            folder: None,
            pictures: false,
        }
    }
}

/// What a run has come to.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Iterations that are done, those before a restart included.
    pub steps: u64,
    /// Iterations that were done this time.
    pub done: u64,
    /// Whether somebody ended it early.
    pub interrupted: bool,
    /// The iteration that it went on from.
    pub resumed: Option<u64>,
    /// The checkpoint at the end, if one was written.
    pub checkpoint: Option<PathBuf>,
    /// Files that could not be written, and why: the run went on without them.
    pub lost: Vec<String>,
    /// Particles at the end.
    pub particles: u64,
    /// Particle updates a second, of all iterations of this time but the first.
    pub updates_per_second: f64,
    /// How much of the first energy the last one differs by.
    pub energy_drift: f64,
    /// A fingerprint of all fields and particles at the end.
    pub output_hash: u64,
    /// Energy, momentum and charge: first and last.
    pub first: Measured,
    /// The last.
    pub last: Measured,
    /// The names of species, in the order of what was measured.
    pub species: Vec<String>,
    /// How long parts of iterations took.
    pub times: Times,
    /// All the time that iterations took.
    pub wall: Duration,
    /// What the run needs of memory.
    pub needs: Needs,
    /// How much fast memory there was.
    pub fast: Bytes,
    /// Bytes copied to fast memory and back.
    pub moved: (Bytes, Bytes),
    /// How long kernels waited for copies.
    pub stalled: Duration,
    /// How many threads copied in each direction, by phase ([`PHASES`]), and whether the model chose them.
    pub copiers: ([u32; PHASES.len()], bool),
    /// Whether the slow tier is memory slowed down.
    pub emulated: bool,
    /// What each iteration took.
    pub history: Vec<Moment>,
    /// What there is at the end, if that was wanted.
    pub pictures: Vec<Picture>,
}

/// Where a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Iterations that are done.
    pub done: u64,
    /// Iterations altogether.
    pub steps: u64,
    /// Particle updates a second so far.
    pub updates_per_second: f64,
    /// Files that could not be written so far, and why.
    pub lost: &'a [String],
}

/// Runs a deck. `watch` hears of every iteration, and says whether to go on.
pub fn run(
    deck: &Deck,
    options: &Options,
    watch: &mut dyn FnMut(Progress<'_>) -> bool,
) -> Result<Summary, PicError> {
    run_with(deck, options, Team::alone(), watch)
}

/// Runs a deck, or the part of it that is this rank's: all ranks end together if one of them is to. What the summary says of all
/// particles and of results is right on the rank that leads; times and memory are each rank's own.
pub fn run_with(
    deck: &Deck,
    options: &Options,
    team: Team,
    watch: &mut dyn FnMut(Progress<'_>) -> bool,
) -> Result<Summary, PicError> {
    match deck.precision {
        Precision::F32 => run_in::<f32>(deck, options, team, watch),
        Precision::F64 => run_in::<f64>(deck, options, team, watch),
    }
}

fn run_in<R: Real>(
    deck: &Deck,
    options: &Options,
    team: Team,
    watch: &mut dyn FnMut(Progress<'_>) -> bool,
) -> Result<Summary, PicError> {
    let steps = options.steps.unwrap_or(deck.steps);
    let Scene { mut simulation, needs, fast, mut staff, resumed, .. } =
        Scene::<R>::open(deck, options, team)?;
    let mut measured: Vec<Measured> = Vec::new();
    let (mut wall, mut timed) = (Duration::ZERO, (0, Duration::ZERO));
    let (begun, before) = (simulation.iteration(), simulation.store().totals_moved());
    let (mut go_on, mut history, mut so_far) = (true, Vec::new(), before);
    let mut lost = Vec::new();
    while simulation.iteration() < steps && go_on {
        let iteration = simulation.iteration();
        if let (Some(every), Some(folder)) = (deck.output.every, &options.folder)
            && iteration.is_multiple_of(every)
        {
            keep_going(write(&mut simulation, deck, folder), &mut lost)?;
        }
        let wanted =
            iteration.is_multiple_of(deck.output.measure) || iteration == begun || iteration + 1 == steps;
        let (clock, updates) = (Instant::now(), simulation.updates());
        let found = simulation.iterate(wanted)?;
        let took = clock.elapsed();
        wall += took;
        if iteration > begun {
            timed = (timed.0 + simulation.updates() - updates, timed.1 + took);
        }
        let totals = simulation.store().totals_moved();
        staff.after(&mut simulation, iteration - begun);
        history.push(Moment {
            iteration,
            took: took.as_secs_f64(),
            stalled: totals.2.saturating_sub(so_far.2).0 as f64 / 1e9,
            fetched: totals.0.saturating_sub(so_far.0).0,
            evicted: totals.1.saturating_sub(so_far.1).0,
            energies: found.as_ref().map(|m| [m.fields[0], m.fields[1], m.kinetic.iter().sum()]),
        });
        so_far = totals;
        if let Some(found) = found {
            if !found.energy().is_finite() {
                return Err(PicError::NotFinite { iteration });
            }
            measured.push(found);
        }
        let done = simulation.iteration();
        if let (Some(every), Some(path)) = (options.every, &options.checkpoint)
            && done.is_multiple_of(every)
            && done < steps
        {
            keep_going(checkpoint::save(&mut simulation, path), &mut lost)?;
        }
        let rate = simulation.updates() as f64 / wall.as_secs_f64().max(1e-9);
        go_on = watch(Progress { done, steps, updates_per_second: rate, lost: &lost });
        if simulation.team().size() > 1 {
            go_on = simulation.team().agree(go_on)?;
        }
    }
    if let (Some(_), Some(folder)) = (deck.output.every, &options.folder) {
        keep_going(write(&mut simulation, deck, folder), &mut lost)?;
    }
    let interrupted = simulation.iteration() < steps;
    let place = options.checkpoint.as_ref().or(options.refuge.as_ref().filter(|_| interrupted));
    let mut left = None;
    if let Some(path) = place
        && keep_going(checkpoint::save(&mut simulation, path), &mut lost)?
    {
        left = Some(path.clone());
    }
    let totals = simulation.store().totals_moved();
    let rate = if timed.0 > 0 { timed } else { (simulation.updates(), wall) };
    let (first, last) =
        (measured.first().cloned().unwrap_or_default(), measured.last().cloned().unwrap_or_default());
    let rate = rate.0 as f64 / rate.1.as_secs_f64().max(1e-9);
    let particles = simulation.particles() as f64;
    let sums = match simulation.team().size() {
        1 => vec![particles, rate],
        _ => simulation.team().sum(&[particles, rate])?,
    };
    let pictures = if options.pictures { picture::pictures(&mut simulation)? } else { Vec::new() };
    let emulated = simulation.store().emulated();
    Ok(Summary {
        steps: simulation.iteration(),
        done: simulation.iteration() - begun,
        interrupted,
        resumed,
        checkpoint: left,
        lost,
        particles: sums[0] as u64,
        updates_per_second: sums[1],
        energy_drift: if first.energy() > 0.0 { last.energy() / first.energy() - 1.0 } else { 0.0 },
        output_hash: simulation.hash()?,
        first,
        last,
        species: deck.setup.species.iter().map(|species| species.name.clone()).collect(),
        times: simulation.times(),
        wall,
        needs,
        fast,
        moved: (totals.0.saturating_sub(before.0), totals.1.saturating_sub(before.1)),
        stalled: Duration::from_nanos(totals.2.saturating_sub(before.2).0),
        emulated: emulated && options.system != System::AllFast,
        copiers: (staff.copiers, staff.chosen),
        history,
        pictures,
    })
}

/// Whether a file was written. One that could not be, on a full disk for one, is noted, and what was there before is there still:
/// the run loses no more than that file.
fn keep_going(written: Result<(), PicError>, lost: &mut Vec<String>) -> Result<bool, PicError> {
    match written {
        Err(error @ PicError::File { .. }) => {
            lost.push(error.to_string());
            Ok(false)
        }
        other => other.map(|()| true),
    }
}

fn write<R: Real>(simulation: &mut Simulation<R>, deck: &Deck, folder: &Path) -> Result<(), PicError> {
    let format = deck.output.format;
    let path = folder.join(format!("iteration_{:08}.{}", simulation.iteration(), format.ending()));
    openpmd::write(simulation, deck.density, (format, deck.output.particles), &path)
}

//! A deck from beginning to end, on some amount of fast memory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tiercel_core::{Backing, Bandwidth, Bytes};

use crate::batch::NUMBERS;
use crate::cell::Around;
use crate::copiers::{Hardware, Interval, SPARE};
use crate::deck::{Deck, Precision};
use crate::error::PicError;
use crate::page::Moment;
use crate::picture::Picture;
use crate::simd::Real;
use crate::simulation::{Measured, Simulation, Times, Ways, bytes_of, room_for};
use crate::system::{Needs, System, machine};
use crate::yee::{CURRENTS, FIELDS};
use crate::{absorb, checkpoint, openpmd, picture, rates};

/// An amount of fast memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// A share of all that a run needs.
    Share(f64),
    /// So many bytes.
    Bytes(Bytes),
}

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
    /// How many threads compute.
    pub threads: usize,
    /// How many threads copy in each direction; none for as many as the model finds best after the second iteration.
    pub copiers: Option<u32>,
    /// How many iterations, other than the deck says.
    pub steps: Option<u64>,
    /// Where checkpoints go.
    pub checkpoint: Option<PathBuf>,
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
            threads: 1,
            copiers: None,
            steps: None,
            checkpoint: None,
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
    /// How many threads copied in each direction, and whether the model chose them.
    pub copiers: (u32, bool),
    /// Whether the slow tier is memory slowed down.
    pub emulated: bool,
    /// What each iteration took.
    pub history: Vec<Moment>,
    /// What there is at the end, if that was wanted.
    pub pictures: Vec<Picture>,
}

/// Where a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Iterations that are done.
    pub done: u64,
    /// Iterations altogether.
    pub steps: u64,
    /// Particle updates a second so far.
    pub updates_per_second: f64,
}

/// Runs a deck. `watch` hears of every iteration, and says whether to go on.
pub fn run(
    deck: &Deck,
    options: &Options,
    watch: &mut dyn FnMut(Progress) -> bool,
) -> Result<Summary, PicError> {
    match deck.precision {
        Precision::F32 => run_in::<f32>(deck, options, watch),
        Precision::F64 => run_in::<f64>(deck, options, watch),
    }
}

/// What a deck needs of memory: as it begins, or where a window comes to in so many steps, as far as what is loaded tells.
pub fn needs<R: Real>(deck: &Deck, threads: usize, steps: u64) -> Needs {
    let (setup, grid) = (&deck.setup, &deck.setup.grid);
    let mut needs = Needs::default();
    let (each, layers) = (grid.per_layer(), grid.layers());
    let mut room = |tile: usize, shift: i64| {
        let mut all = Bytes::ZERO;
        for species in 0..setup.species.len() {
            let (singles, _) = setup.load::<R>(species, tile, shift);
            all += bytes_of::<R>(NUMBERS * room_for(singles.len())).round_up(Bytes(4096)).unwrap_or_default();
        }
        needs.tile = needs.tile.max(all);
        all
    };
    let sum = |tiles: &mut dyn Iterator<Item = Bytes>| tiles.fold(Bytes::ZERO, |sum, one| sum + one);
    let mut held: Vec<Bytes> = (0..layers)
        .map(|layer| sum(&mut (layer * each..(layer + 1) * each).map(|tile| room(tile, 0))))
        .collect();
    let mut most = sum(&mut held.iter().copied());
    if setup.window.is_some() {
        // Layers come in at one end and go at the other.
        let live = setup.live(2);
        let (first, last) = (live.start / grid.tile[2], live.end / grid.tile[2] - 1);
        for moved in 1..=setup.moved(steps) as i64 {
            held.rotate_left(1);
            held[..first].fill(Bytes::ZERO);
            let shift = moved * grid.tile[2] as i64;
            held[last] = sum(&mut (last * each..(last + 1) * each).map(|tile| room(tile, shift)));
            most = most.max(sum(&mut held.iter().copied()));
        }
    }
    needs.particles = most;
    for tile in 0..grid.tiles().iter().product() {
        let cells = grid.extent(tile).1;
        needs.metadata +=
            Bytes((cells.iter().product::<usize>() * 4 + 1024) as u64) * setup.species.len() as u64;
        needs.temporaries += bytes_of::<R>(CURRENTS * Around::new(cells, setup.order).len());
    }
    // Room for those who cross.
    needs.temporaries += Bytes(most.0 / 16);
    needs.temporaries += bytes_of::<R>(threads * FIELDS * Around::new(grid.tile, setup.order).len());
    for layer in 0..grid.layers() {
        for bytes in absorb::objects::<R>(grid, layer).map(|bytes| Bytes(bytes as u64)) {
            needs.fields += bytes.round_up(Bytes(4096)).unwrap_or(bytes);
        }
    }
    needs
}

/// The fast memory with which everything fits.
fn ample(needs: &Needs) -> Bytes {
    Bytes(needs.all().0 * 3 / 2 + (8 << 20))
}

fn run_in<R: Real>(
    deck: &Deck,
    options: &Options,
    watch: &mut dyn FnMut(Progress) -> bool,
) -> Result<Summary, PicError> {
    let steps = options.steps.unwrap_or(deck.steps);
    let needs = needs::<R>(deck, options.threads, steps);
    let fast = match (options.system, options.fast) {
        (System::AllFast, _) | (_, None) => ample(&needs),
        (_, Some(Amount::Share(share))) => Bytes((needs.all().0 as f64 * share) as u64),
        (_, Some(Amount::Bytes(bytes))) => bytes,
    };
    // Threads that copy beside those that compute: the model may choose as many as there are to spare.
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get()).max(options.threads);
    let spare = cores.saturating_sub(1).clamp(1, SPARE) as u32;
    let moves = matches!(options.system, System::WarpxPm | System::Tiercel);
    let asks = options.copiers.is_none() && moves && spare > 1 && !matches!(options.slow, Backing::File(_));
    let mut copiers = (options.copiers.unwrap_or(1), options.copiers.is_none() && moves);
    let opened = if asks { spare } else { copiers.0 };
    let machine = machine(&needs, fast, options.slow.clone(), options.throttled, opened);
    let curves = asks.then(|| rates::measure(&machine, spare)).transpose()?;
    let wired = options.system.wire(&needs, &machine)?;
    let ways = Ways { threads: options.threads, passes: wired.passes, batch: wired.batch, ..Ways::default() };
    let mut resumed = None;
    let mut simulation = match &options.checkpoint {
        Some(path) if options.resume && path.exists() => {
            let simulation =
                checkpoint::resume::<R>(path, deck.setup.clone(), ways, &machine, wired.placement)?;
            resumed = Some(simulation.iteration());
            simulation
        }
        _ => Simulation::<R>::new(deck.setup.clone(), ways, &machine, wired.placement)?,
    };
    let mut measured: Vec<Measured> = Vec::new();
    let (mut wall, mut timed) = (Duration::ZERO, (0, Duration::ZERO));
    let (begun, before) = (simulation.iteration(), simulation.store().totals_moved());
    if asks {
        simulation.store().copy_with(1);
    }
    let (mut go_on, mut history, mut so_far) = (true, Vec::new(), before);
    while simulation.iteration() < steps && go_on {
        let iteration = simulation.iteration();
        if let (Some(every), Some(folder)) = (deck.output.every, &options.folder)
            && iteration.is_multiple_of(every)
        {
            write(&mut simulation, deck, folder)?;
        }
        let wanted =
            iteration.is_multiple_of(deck.output.measure) || iteration == begun || iteration + 1 == steps;
        let (clock, updates) = (Instant::now(), simulation.updates());
        let before = [simulation.store().busy().0, simulation.store().behind().0];
        let found = simulation.iterate(wanted)?;
        let took = clock.elapsed();
        wall += took;
        if iteration > begun {
            timed = (timed.0 + simulation.updates() - updates, timed.1 + took);
        }
        let totals = simulation.store().totals_moved();
        if let (Some([inward, outward]), 1) = (&curves, iteration - begun) {
            // The second iteration is what the model goes by.
            let compute = (simulation.store().busy().0 - before[0]) as f64 / 1e9;
            let behind = (simulation.store().behind().0 - before[1]) as f64;
            let interval = Interval {
                bytes_in: totals.0.saturating_sub(so_far.0).0 as f64,
                bytes_out: totals.1.saturating_sub(so_far.1).0 as f64,
                compute,
                compute_bandwidth: behind / compute.max(1e-9),
            };
            let (bandwidth_in, bandwidth_out) = (inward.clone(), outward.clone());
            let hardware = Hardware { bandwidth_in, bandwidth_out, threads: cores, ranks: 1 };
            if let Ok(chosen) = hardware.choose(&interval) {
                copiers.0 = chosen.threads as u32;
                simulation.store().copy_with(copiers.0);
            }
        }
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
            checkpoint::save(&mut simulation, path)?;
        }
        let rate = simulation.updates() as f64 / wall.as_secs_f64().max(1e-9);
        go_on = watch(Progress { done, steps, updates_per_second: rate });
    }
    if let (Some(_), Some(folder)) = (deck.output.every, &options.folder) {
        write(&mut simulation, deck, folder)?;
    }
    if let Some(path) = &options.checkpoint {
        checkpoint::save(&mut simulation, path)?;
    }
    let totals = simulation.store().totals_moved();
    let rate = if timed.0 > 0 { timed } else { (simulation.updates(), wall) };
    let (first, last) =
        (measured.first().cloned().unwrap_or_default(), measured.last().cloned().unwrap_or_default());
    let pictures = if options.pictures { picture::pictures(&mut simulation)? } else { Vec::new() };
    let emulated = simulation.store().emulated();
    Ok(Summary {
        steps: simulation.iteration(),
        done: simulation.iteration() - begun,
        interrupted: simulation.iteration() < steps,
        resumed,
        particles: simulation.particles(),
        updates_per_second: rate.0 as f64 / rate.1.as_secs_f64().max(1e-9),
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
        copiers,
        history,
        pictures,
    })
}

fn write<R: Real>(simulation: &mut Simulation<R>, deck: &Deck, folder: &Path) -> Result<(), PicError> {
    std::fs::create_dir_all(folder).map_err(|error| PicError::File { path: folder.to_path_buf(), error })?;
    let path = folder.join(format!("iteration_{:08}.json", simulation.iteration()));
    openpmd::write(simulation, deck.density, deck.output.particles, &path)
}

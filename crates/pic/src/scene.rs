//! A deck on some amount of memory, ready to be iterated: what a run and a comparison begin with.

use tiercel_core::copiers::SPARE;
use tiercel_core::{Backing, Bytes, Machine};

use crate::batch::NUMBERS;
use crate::cell::Around;
use crate::deck::Deck;
use crate::error::PicError;
use crate::run::Options;
use crate::simd::Real;
use crate::simulation::{PHASES, Simulation, Ways, bytes_of, room_for};
use crate::system::{Needs, System, machine};
use crate::team::Team;
use crate::yee::{CURRENTS, FIELDS};
use crate::{absorb, checkpoint, halo, rates};

/// An amount of fast memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// A share of all that a run needs.
    Share(f64),
    /// So many bytes.
    Bytes(Bytes),
}

/// How much memory this machine has for a deck.
struct Limits {
    /// For what is in memory in any case.
    memory: Bytes,
    /// For fields and particles, whatever they are in.
    all: Bytes,
    /// What else would help.
    more: &'static str,
}

impl Limits {
    fn of(slow: &Backing) -> Limits {
        let memory = tiercel_run::host::supply::memory();
        match slow {
            // How much room a disk has is seen when the file is made.
            Backing::File(_) => Limits { memory, all: Bytes(u64::MAX), more: "" },
            _ => Limits { memory, all: memory, more: ", or `--slow file:FOLDER` with `--fast`" },
        }
    }

    fn check(&self, what: &'static str, wanted: f64, there: Bytes) -> Result<(), PicError> {
        let wanted_bytes = Bytes(wanted.min(1e19) as u64);
        if wanted <= there.0 as f64 {
            return Ok(());
        }
        Err(PicError::TooLarge { what, wanted: wanted_bytes, there, more: self.more })
    }

    /// Whether what does not depend on particles could be had, before anything of it is made.
    fn grid<R: Real>(&self, deck: &Deck, team: &Team) -> Result<(), PicError> {
        let (setup, grid) = (&deck.setup, &deck.setup.grid);
        let product = |of: [usize; 3]| of.iter().map(|n| *n as f64).product::<f64>();
        let ranks = team.size() as f64;
        let around = CURRENTS as f64 * Around::new(grid.tile, setup.order).len() as f64;
        let each = around * size_of::<R>() as f64 + 1024.0;
        self.check("the currents of all tiles", product(grid.tiles()) * each / ranks, self.memory)?;
        let numbers = (FIELDS + CURRENTS) as f64 * product(grid.cells) / ranks;
        self.check("fields and currents", numbers * size_of::<R>() as f64, self.all)
    }
}

/// What this rank needs of memory for a deck: as it begins, or where a window comes to in so many steps, as far as what is loaded tells.
fn needs<R: Real>(deck: &Deck, options: &Options, team: &Team) -> Result<Needs, PicError> {
    let (threads, steps) = (options.threads, options.steps.unwrap_or(deck.steps));
    let limits = Limits::of(&options.slow);
    limits.grid::<R>(deck, team)?;
    let (setup, grid) = (&deck.setup, &deck.setup.grid);
    let mut needs = Needs::default();
    let (each, layers) = (grid.per_layer(), grid.layers());
    let own = team.own(layers);
    let mut room = |tile: usize, shift: i64| -> Result<Bytes, PicError> {
        let mut all = Bytes::ZERO;
        for species in 0..setup.species.len() {
            let count = setup.count(species, tile, shift);
            let bytes = count as f64 * (NUMBERS * size_of::<R>()) as f64;
            limits.check("the particles of a tile", bytes, limits.memory)?;
            all +=
                bytes_of::<R>(NUMBERS * room_for(count as usize)).round_up(Bytes(4096)).unwrap_or_default();
        }
        needs.tile = needs.tile.max(all);
        Ok(all)
    };
    // Counting ends as soon as it is too much.
    let mut layer_of = |layer: usize, shift: i64, before: Bytes| -> Result<Bytes, PicError> {
        let mut sum = Bytes::ZERO;
        for tile in layer * each..(layer + 1) * each {
            sum += room(tile, shift)?;
            if own.contains(&layer) {
                limits.check("the particles", (before + sum).0 as f64, limits.all)?;
            }
        }
        Ok(sum)
    };
    let sum = |layers: &[Bytes]| layers.iter().fold(Bytes::ZERO, |sum, one| sum + *one);
    let mut held = Vec::with_capacity(layers);
    let mut most = Bytes::ZERO;
    for layer in 0..layers {
        let one = layer_of(layer, 0, most)?;
        held.push(one);
        most += if own.contains(&layer) { one } else { Bytes::ZERO };
    }
    if setup.window.is_some() {
        // Layers come in at one end and go at the other.
        let live = setup.live(2);
        let (first, last) = (live.start / grid.tile[2], live.end / grid.tile[2] - 1);
        for moved in 1..=setup.moved(steps) as i64 {
            held.rotate_left(1);
            held[..first].fill(Bytes::ZERO);
            let shift = moved * grid.tile[2] as i64;
            held[last] = layer_of(last, shift, sum(&held[own.clone()]))?;
            most = most.max(sum(&held[own.clone()]));
        }
    }
    needs.particles = most;
    for tile in own.start * each..own.end * each {
        let cells = grid.extent(tile).1;
        needs.metadata +=
            Bytes((cells.iter().product::<usize>() * 4 + 1024) as u64) * setup.species.len() as u64;
        needs.temporaries += bytes_of::<R>(CURRENTS * Around::new(cells, setup.order).len());
    }
    // Room for those who cross.
    needs.temporaries += Bytes(most.0 / 16);
    needs.temporaries += bytes_of::<R>(threads * FIELDS * Around::new(grid.tile, setup.order).len());
    let halo = halo::fields(setup, team);
    for layer in (0..layers).filter(|layer| own.contains(layer) || halo.needs(team.rank(), *layer)) {
        let mut all = Bytes::ZERO;
        for bytes in absorb::objects::<R>(grid, layer).map(|bytes| Bytes(bytes as u64)) {
            all += bytes.round_up(Bytes(4096)).unwrap_or(bytes);
        }
        needs.fields += all;
        needs.layer = needs.layer.max(all);
    }
    Ok(needs)
}

/// The fast memory with which everything fits.
fn ample(needs: &Needs) -> Bytes {
    Bytes(needs.all().0 * 3 / 2 + (8 << 20))
}

/// The threads that copy.
pub struct Staff {
    /// How many copy in each direction, by phase ([`PHASES`]).
    pub copiers: [u32; PHASES.len()],
    /// Whether the model chooses them.
    pub chosen: bool,
    /// How fast copies are by threads, where there is a choice.
    known: Option<Machine>,
    /// Threads for computing and copying.
    threads: usize,
}

impl Staff {
    /// What nobody said is up to the model: as many threads as there are to spare may copy beside those that compute.
    fn new(options: &Options) -> (Staff, u32) {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let threads = cores.max(options.threads);
        let spare = threads.saturating_sub(1).clamp(1, SPARE) as u32;
        let moves = matches!(options.system, System::WarpxPm | System::Tiercel);
        let chosen = options.copiers.is_none() && moves;
        // On a file there is nothing to choose: its requests are queued, whoever makes them.
        let asks = chosen && spare > 1 && !matches!(options.slow, Backing::File(_));
        let first = options.copiers.unwrap_or(1);
        let staff = Staff { copiers: [first; PHASES.len()], chosen, known: None, threads };
        (staff, if asks { spare } else { first })
    }

    /// Asks the model after the second iteration, once.
    pub fn after<R: Real>(&mut self, simulation: &mut Simulation<R>, iteration: u64) {
        if let (Some(known), 1) = (&self.known, iteration) {
            self.copiers = rates::choose(known, self.threads, &simulation.works());
            simulation.copy_with(self.copiers);
        }
    }
}

/// A deck on some amount of memory.
pub struct Scene<R: Real> {
    /// What is iterated.
    pub simulation: Simulation<R>,
    /// What it needs of memory.
    pub needs: Needs,
    /// How much fast memory there is.
    pub fast: Bytes,
    /// The tiers.
    pub machine: Machine,
    /// Who copies.
    pub staff: Staff,
    /// The iteration that it goes on from.
    pub resumed: Option<u64>,
}

impl<R: Real> Scene<R> {
    /// Opens a deck as it begins, or as its checkpoint has it.
    pub fn open(deck: &Deck, options: &Options, team: Team) -> Result<Scene<R>, PicError> {
        let needs = needs::<R>(deck, options, &team)?;
        let fast = match (options.system, options.fast) {
            (System::AllFast, _) | (_, None) => ample(&needs),
            (_, Some(Amount::Share(share))) => Bytes((needs.all().0 as f64 * share) as u64),
            (_, Some(Amount::Bytes(bytes))) => bytes,
        };
        let (mut staff, opened) = Staff::new(options);
        let machine = machine(&needs, fast, options.slow.clone(), options.throttled, opened);
        if opened > staff.copiers[0] {
            staff.known = Some(rates::measured(&machine, opened)?);
        }
        let wired = options.system.wire_with(&needs, &machine, options.house)?;
        let ways = Ways {
            threads: options.threads,
            passes: wired.passes,
            batch: wired.batch,
            ahead: wired.ahead,
            ..Ways::default()
        };
        let (placement, setup) = (wired.placement, deck.setup.clone());
        let (mut simulation, resumed) = match &options.checkpoint {
            Some(path) if options.resume && path.exists() => {
                let simulation = checkpoint::resume::<R>(path, setup, ways, &machine, placement, team)?;
                let resumed = simulation.iteration();
                (simulation, Some(resumed))
            }
            _ => (Simulation::<R>::with_team(setup, ways, &machine, placement, team)?, None),
        };
        if staff.known.is_some() {
            simulation.copy_with(staff.copiers);
        }
        Ok(Scene { simulation, needs, fast, machine, staff, resumed })
    }
}

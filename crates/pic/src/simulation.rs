//! A simulation: its fields and particles on the tiers of a machine, and what an iteration does with them.
//!
//! Fields are at whole time steps when an iteration begins, momenta half a step behind. All particles tile by tile,
//! half the magnetic step, the currents of tiles added up in the order of tiles, the electric step, and the other half of the
//! magnetic one: particles feel both fields of the same time. Particles may be pushed and deposited in one pass over memory, or in two as WarpX does; and tiles may be
//! worked on by any number of threads, from any memory: all give the same bits.

use tiercel_core::{Bytes, Machine, ObjectId};

use crate::absorb::{self, Absorber};
use crate::batch::{NUMBERS, Single};
use crate::cell::Around;
use crate::error::PicError;
use crate::halo;
use crate::hash::Hash;
use crate::parcel::{self, Arrivals, Outbox, Parcel, Pass, Tally};
use crate::setup::Setup;
use crate::simd::{Level, Real, level};
use crate::store::{Kind, Placement, Store, Use};
use crate::team::{Halo, Team};
use crate::yee::{CURRENTS, FIELDS};

/// How often particles cross memory in an iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passes {
    /// Once: push and deposit are one.
    #[default]
    One,
    /// Twice: pushed, and then deposited, as in WarpX.
    Two,
}

/// How it is worked on: what changes time, and no result.
#[derive(Clone, Debug)]
pub struct Ways {
    /// How many threads work.
    pub threads: usize,
    /// How often particles cross memory.
    pub passes: Passes,
    /// How many bytes of particles a kernel works on at most, unless a tile alone has more; none for a layer at a time.
    pub batch: Option<Bytes>,
    /// How many batches are asked for ahead of their turn.
    pub ahead: usize,
    /// Which vectors are used.
    pub level: Level,
}

impl Default for Ways {
    fn default() -> Ways {
        Ways { threads: 1, passes: Passes::One, batch: None, ahead: 1, level: level() }
    }
}

/// Everything of a tile that is not in managed memory.
#[derive(Debug)]
pub(crate) struct Tile<R> {
    /// By species.
    pub parcels: Vec<Parcel>,
    pub objects: Vec<ObjectId>,
    /// For how many particles each object has room.
    pub rooms: Vec<usize>,
    pub arrivals: Vec<Arrivals<R>>,
    pub outboxes: Vec<Outbox<R>>,
    pub tallies: Vec<Tally>,
    /// The currents around it in this iteration.
    pub currents: Vec<R>,
}

/// What a simulation has of energy, momentum and charge, in the units of [`crate::grid`]: `m c² n (c/ωp)³` and so on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The energies of the electric and of the magnetic field.
    pub fields: [f64; 2],
    /// The kinetic energy of each species.
    pub kinetic: Vec<f64>,
    /// The momentum of each species.
    pub momentum: Vec<[f64; 3]>,
    /// The charge of each species.
    pub charge: Vec<f64>,
}

impl Measured {
    /// All energy.
    pub fn energy(&self) -> f64 {
        self.fields.iter().sum::<f64>() + self.kinetic.iter().sum::<f64>()
    }
}

/// How long parts of iterations took, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// Push and deposit, or push alone.
    pub push: f64,
    /// Deposit alone.
    pub deposit: f64,
    /// Fields, and adding up currents.
    pub fields: f64,
    /// Particles that change tiles.
    pub exchange: f64,
}

/// What a part of an iteration computed and copied.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// How long its kernels took, but for what they waited, in seconds.
    pub compute: f64,
    /// Bytes that came to fast memory meanwhile.
    pub bytes_in: f64,
    /// Bytes that left it.
    pub bytes_out: f64,
    /// Bytes that kernels moved on slow memory themselves.
    pub behind: f64,
}

/// The parts of an iteration, each with its own number of copy threads: push, deposit, fields.
pub const PHASES: [&str; 3] = ["push", "deposit", "fields"];

/// A simulation.
pub struct Simulation<R: Real> {
    /// Who works on it, and what ranks need of each other: fields, and tiles.
    pub(crate) team: Team,
    pub(crate) halos: [Halo; 2],
    pub(crate) setup: Setup,
    pub(crate) ways: Ways,
    pub(crate) store: Store,
    pub(crate) fields: Vec<ObjectId>,
    pub(crate) currents: Vec<ObjectId>,
    /// The memories of what absorbs, by layer: at the sides, and at the ends along z.
    pub(crate) memories: Vec<[Option<ObjectId>; 2]>,
    pub(crate) absorber: Absorber<R>,
    pub(crate) tiles: Vec<Tile<R>>,
    pub(crate) scratch: Vec<Vec<R>>,
    /// Iterations that are done.
    pub(crate) iteration: u64,
    /// How many layers the window has moved on.
    pub(crate) moved: u64,
    pub(crate) times: Times,
    /// What each part of the last iteration did.
    works: [Work; PHASES.len()],
    /// How many threads copy in each part, if somebody said.
    copiers: Option<[u32; PHASES.len()]>,
    /// The most bytes that were short-lived at once.
    pub(crate) temporaries: Bytes,
    /// Particle updates so far.
    updates: u64,
}

/// Room for so many particles, and a few more.
pub(crate) fn room_for(count: usize) -> usize {
    (count + count / 16 + 64).next_multiple_of(16)
}

impl<R: Real> Simulation<R> {
    /// Everything as it begins, on these memories.
    pub fn new(
        setup: Setup,
        ways: Ways,
        machine: &Machine,
        placement: Box<dyn Placement>,
    ) -> Result<Simulation<R>, PicError> {
        Simulation::with_team(setup, ways, machine, placement, Team::alone())
    }

    /// The same, or the part of it that is this rank's.
    pub fn with_team(
        setup: Setup,
        ways: Ways,
        machine: &Machine,
        placement: Box<dyn Placement>,
        team: Team,
    ) -> Result<Simulation<R>, PicError> {
        let store = Store::open(machine, placement)?;
        let mut simulation = Simulation::empty(setup, ways, store, team)?;
        for tile in simulation.own_tiles() {
            for species in 0..simulation.setup.species.len() {
                let (singles, counts) = simulation.setup.load(species, tile, 0);
                simulation.settle(tile, species, &singles, counts, false)?;
            }
        }
        simulation.make_fields()?;
        Ok(simulation)
    }

    /// Tiles without particles, and no fields yet.
    pub(crate) fn empty(
        setup: Setup,
        ways: Ways,
        store: Store,
        team: Team,
    ) -> Result<Simulation<R>, PicError> {
        let (kinds, layers) = (setup.species.len(), setup.grid.layers());
        if team.size() > layers {
            let why = format!(
                "{} of them cannot share {layers} layers of tiles along z: `tile` in [grid]",
                team.size()
            );
            return Err(PicError::Team { why });
        }
        let halos = [halo::fields(&setup, &team), halo::tiles(&setup, &team)];
        let (own, each) = (team.own(layers), setup.grid.per_layer());
        let tile = |number: usize| {
            let cells = setup.grid.extent(number).1;
            let around = Around::new(cells, setup.order).len();
            let parcel = Parcel { cells, counts: vec![0; cells.iter().product()], ..Parcel::default() };
            Tile {
                parcels: vec![parcel; kinds],
                objects: Vec::new(),
                rooms: Vec::new(),
                arrivals: (0..kinds).map(|_| Arrivals::default()).collect(),
                outboxes: (0..kinds).map(|_| std::array::from_fn(|_| Vec::new())).collect(),
                tallies: vec![Tally::default(); kinds],
                currents: vec![R::ZERO; if own.contains(&(number / each)) { CURRENTS * around } else { 0 }],
            }
        };
        let tiles = (0..setup.grid.tiles().iter().product()).map(tile).collect();
        let largest = FIELDS * Around::new(setup.grid.tile, setup.order).len();
        let scratch = (0..ways.threads.max(1)).map(|_| vec![R::ZERO; largest]).collect();
        let absorber = Absorber::new(&setup.grid);
        Ok(Simulation {
            team,
            halos,
            setup,
            ways,
            store,
            fields: Vec::new(),
            currents: Vec::new(),
            memories: Vec::new(),
            absorber,
            tiles,
            scratch,
            iteration: 0,
            moved: 0,
            times: Times::default(),
            works: [Work::default(); PHASES.len()],
            copiers: None,
            temporaries: Bytes::ZERO,
            updates: 0,
        })
    }

    /// Fields and currents of all layers, zero. Of what is not here there is one number, to have a name.
    pub(crate) fn make_fields(&mut self) -> Result<(), PicError> {
        let (own, rank) = (self.own(), self.team.rank());
        for layer in 0..self.setup.grid.layers() {
            let here = own.contains(&layer) || self.halos[0].needs(rank, layer);
            let numbers = if here { FIELDS * self.setup.grid.layer_places(layer) } else { 1 };
            self.fields.push(self.store.create::<R>(&format!("fields.{layer}"), Kind::Fields, numbers)?);
        }
        for layer in 0..self.setup.grid.layers() {
            let places = if own.contains(&layer) { self.setup.grid.layer_places(layer) } else { 1 };
            let name = format!("currents.{layer}");
            self.currents.push(self.store.create::<R>(&name, Kind::Fields, CURRENTS * places)?);
        }
        for layer in 0..self.setup.grid.layers() {
            let [_, _, sides, ends] = absorb::objects::<R>(&self.setup.grid, layer);
            let mut memory = |which: &str, bytes: usize| {
                let name = format!("absorber.{which}.{layer}");
                let made = || self.store.create::<R>(&name, Kind::Fields, bytes / size_of::<R>());
                (bytes > 0 && own.contains(&layer)).then(made).transpose()
            };
            let one = [memory("sides", sides)?, memory("ends", ends)?];
            self.memories.push(one);
        }
        Ok(())
    }

    /// Gives the next species of a tile its particles.
    pub(crate) fn settle(
        &mut self,
        tile: usize,
        species: usize,
        singles: &[Single<R>],
        counts: Vec<u32>,
        high: bool,
    ) -> Result<(), PicError> {
        let room = room_for(singles.len());
        let name = format!("particles.{}.{tile}", self.setup.species[species].name);
        let object = self.store.create::<R>(&name, Kind::Particles, NUMBERS * room)?;
        let parcel = &mut self.tiles[tile].parcels[species];
        parcel.high = high;
        let all = Use { object, writes: true, touched: bytes_of::<R>(NUMBERS * singles.len()) };
        self.store.run::<R, ()>(&[all], |views| {
            for view in views {
                parcel::fill(parcel, view.write(), singles, counts.clone());
            }
        })?;
        self.store.passed(object)?;
        self.tiles[tile].objects.push(object);
        self.tiles[tile].rooms.push(room);
        Ok(())
    }

    /// Advances everything by a step, and measures what there is at its beginning, if that is wanted.
    pub fn iterate(&mut self, measure: bool) -> Result<Option<Measured>, PicError> {
        let clock = std::time::Instant::now();
        while self.moved < self.setup.moved(self.iteration) {
            self.move_on()?;
        }
        let energies = if measure { Some(self.field_energies()?) } else { None };
        let begun = clock.elapsed().as_secs_f64();
        self.updates += self.particles();
        let two = self.ways.passes == Passes::Two;
        let first = if two { Pass::Push } else { Pass::Both };
        self.times.push += self.phase(0, |simulation| simulation.pass(first, measure))?;
        if two {
            self.times.deposit += self.phase(1, |simulation| simulation.pass(Pass::Deposit, false))?;
        }
        let clock = std::time::Instant::now();
        self.exchange()?;
        self.times.exchange += clock.elapsed().as_secs_f64();
        let fields = self.phase(2, |simulation| {
            simulation.advance_magnetic(false)?;
            simulation.share_fields()?;
            simulation.advance_electric()?;
            simulation.share_fields()?;
            simulation.advance_magnetic(true)?;
            simulation.share_fields()
        })?;
        self.times.fields += begun + fields;
        self.iteration += 1;
        self.store.iteration_ended(self.temporaries)?;
        energies.map(|fields| self.measured(fields)).transpose()
    }

    /// Does a part of an iteration with its number of copy threads; how long it took, in seconds.
    fn phase(
        &mut self,
        phase: usize,
        part: impl FnOnce(&mut Simulation<R>) -> Result<(), PicError>,
    ) -> Result<f64, PicError> {
        if let Some(copiers) = self.copiers {
            self.store.copy_with(copiers[phase]);
        }
        let state = |store: &Store| {
            let (fetched, evicted, _) = store.totals_moved();
            [store.busy().0 as f64 / 1e9, fetched.0 as f64, evicted.0 as f64, store.behind().0 as f64]
        };
        let (clock, before) = (std::time::Instant::now(), state(&self.store));
        part(self)?;
        let after = state(&self.store);
        let [compute, bytes_in, bytes_out, behind] = std::array::from_fn(|at| after[at] - before[at]);
        self.works[phase] = Work { compute, bytes_in, bytes_out, behind };
        Ok(clock.elapsed().as_secs_f64())
    }

    /// What each part of the last iteration computed and copied ([`PHASES`]).
    pub fn works(&self) -> [Work; PHASES.len()] {
        self.works
    }

    /// From now on so many threads copy in each part of an iteration, in each direction.
    pub fn copy_with(&mut self, copiers: [u32; PHASES.len()]) {
        self.copiers = Some(copiers);
    }

    /// Iterations that are done.
    pub fn iteration(&self) -> u64 {
        self.iteration
    }

    /// How many cells the window has moved on along z.
    pub fn shift(&self) -> usize {
        self.moved as usize * self.setup.grid.tile[2]
    }

    /// What is simulated.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The memory that everything is in.
    pub fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// How long parts of iterations took so far.
    pub fn times(&self) -> Times {
        self.times
    }

    /// Particle updates so far.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// The most bytes that were short-lived at once: currents around tiles, particles between tiles.
    pub fn temporaries(&self) -> Bytes {
        self.temporaries
    }

    /// How many particles there are.
    pub fn particles(&self) -> u64 {
        let of = |tile: &Tile<R>| -> usize {
            let held = tile.parcels.iter().map(|parcel| parcel.held - parcel.left as usize).sum::<usize>();
            held + tile.arrivals.iter().map(Arrivals::len).sum::<usize>()
        };
        self.tiles.iter().map(|tile| of(tile) as u64).sum()
    }

    /// What was measured, from the energies of fields and the tallies of tiles in their order, over all ranks.
    fn measured(&mut self, fields: [f64; 2]) -> Result<Measured, PicError> {
        let mut all = vec![Tally::default(); self.setup.species.len()];
        for tile in &self.tiles {
            all.iter_mut().zip(&tile.tallies).for_each(|(sum, tally)| sum.add(tally));
        }
        let mut numbers = fields.to_vec();
        for tally in &all {
            numbers.extend([tally.weight, tally.kinetic[0], tally.kinetic[1]]);
            numbers.extend(tally.momentum);
        }
        let sums = if self.team.size() > 1 { self.team.sum(&numbers)? } else { numbers };
        let (fields, each) = sums.split_at(2);
        let tally = |sums: &[f64]| Tally {
            weight: sums[0],
            kinetic: [sums[1], sums[2]],
            momentum: [sums[3], sums[4], sums[5]],
        };
        let all: Vec<Tally> = each.chunks_exact(6).map(tally).collect();
        let zip = all.iter().zip(&self.setup.species);
        Ok(Measured {
            fields: [fields[0], fields[1]],
            kinetic: zip.clone().map(|(t, s)| s.mass * 0.5 * (t.kinetic[0] + t.kinetic[1])).collect(),
            momentum: zip.clone().map(|(t, s)| t.momentum.map(|p| s.mass * p)).collect(),
            charge: zip.map(|(t, s)| s.charge * t.weight).collect(),
        })
    }

    /// Calls `visit` with every particle of a species: its cell in the grid, and its numbers. Of several ranks the one that leads
    /// sees those of all, and all must call it.
    pub fn visit(
        &mut self,
        species: usize,
        mut visit: impl FnMut([usize; 3], &Single<R>),
    ) -> Result<(), PicError> {
        for number in 0..self.tiles.len() {
            let (first, cells) = self.setup.grid.extent(number);
            self.visit_tile(number, species, |cell, single| {
                let at = [cell % cells[0], cell / cells[0] % cells[1], cell / (cells[0] * cells[1])];
                visit([first[0] + at[0], first[1] + at[1], first[2] + at[2]], single);
            })?;
        }
        Ok(())
    }

    /// The same for a tile, with the number of the cell in it; which end of its memory it uses.
    pub(crate) fn visit_tile(
        &mut self,
        number: usize,
        species: usize,
        mut visit: impl FnMut(usize, &Single<R>),
    ) -> Result<bool, PicError> {
        if self.team.size() == 1 {
            self.visit_here(number, species, visit)?;
            return Ok(self.tiles[number].parcels[species].high);
        }
        let layer = number / self.setup.grid.per_layer();
        let said = self.tell(layer, |simulation| simulation.pack_particles(number, species))?;
        let Some(bytes) = said else { return Ok(false) };
        let (high, counts, singles) = self.unpack_particles(number, &mut halo::Reader::new(&bytes))?;
        let cells = counts.iter().enumerate().flat_map(|(cell, count)| (0..*count).map(move |_| cell));
        cells.zip(&singles).for_each(|(cell, single)| visit(cell, single));
        Ok(high)
    }

    /// The same for a tile of this rank.
    pub(crate) fn visit_here(
        &mut self,
        number: usize,
        species: usize,
        mut visit: impl FnMut(usize, &Single<R>),
    ) -> Result<(), PicError> {
        let tile = &self.tiles[number];
        let (parcel, arrivals, object) =
            (&tile.parcels[species], &tile.arrivals[species], tile.objects[species]);
        let touched = bytes_of::<R>(NUMBERS * parcel.held);
        self.store.soon(object)?;
        self.store.run::<R, ()>(&[Use { object, writes: false, touched }], |views| {
            views.into_iter().for_each(|view| parcel::visit(parcel, view.read(), arrivals, &mut visit));
        })?;
        self.store.passed(object)?;
        Ok(())
    }

    /// A fingerprint of all fields and particles: equal for equal bits. Of several ranks the one that leads has it.
    pub fn hash(&mut self) -> Result<u64, PicError> {
        let mut hash = Hash::new();
        self.layers(false, |_, all| hash.bytes(bytemuck::cast_slice(all)))?;
        self.each_memory(|all| hash.bytes(bytemuck::cast_slice(all)))?;
        for tile in 0..self.tiles.len() {
            for species in 0..self.setup.species.len() {
                self.visit_tile(tile, species, |cell, single| {
                    hash.word(cell as u64);
                    hash.bytes(bytemuck::cast_slice(single));
                })?;
            }
        }
        Ok(hash.value())
    }

    /// Calls `visit` with the fields of every layer, or its currents: all places of a component after those of another. Of several
    /// ranks the one that leads sees those of all, and all must call it.
    pub fn layers(&mut self, currents: bool, mut visit: impl FnMut(usize, &[R])) -> Result<(), PicError> {
        for layer in 0..self.fields.len() {
            let mut one = self.field_use(layer, false);
            if currents {
                one.object = self.currents[layer];
                one.touched = bytes_of::<R>(CURRENTS * self.setup.grid.layer_places(layer));
            }
            if self.team.size() > 1 {
                let said = self.tell(layer, |simulation| simulation.numbers_of(one))?;
                if let Some(bytes) = said {
                    visit(layer, &halo::collected::<R>(&bytes));
                }
                continue;
            }
            self.store
                .run::<R, ()>(&[one], |views| views.into_iter().for_each(|view| visit(layer, view.read())))?;
            self.store.passed(one.object)?;
        }
        Ok(())
    }

    /// Calls `visit` with what the absorbing ends remember, layer by layer: at the sides, and at the ends along z. Of several ranks
    /// the one that leads sees those of all.
    pub(crate) fn each_memory(&mut self, mut visit: impl FnMut(&[R])) -> Result<(), PicError> {
        for layer in 0..self.memories.len() {
            let said = self.tell(layer, |simulation| {
                let mut bytes = Vec::new();
                for object in simulation.memories[layer].into_iter().flatten() {
                    let touched = simulation.store.manager().size(object)?;
                    bytes.extend_from_slice(&simulation.numbers_of(Use {
                        object,
                        writes: false,
                        touched,
                    })?);
                }
                Ok(bytes)
            })?;
            if let Some(bytes) = said.filter(|bytes| !bytes.is_empty()) {
                visit(&halo::collected::<R>(&bytes));
            }
        }
        Ok(())
    }

    /// Lets `change` change what the absorbing ends of this rank's layers remember: the sides of a layer, then its ends.
    pub(crate) fn change_memories(
        &mut self,
        mut change: impl FnMut(usize, &mut [R]),
    ) -> Result<(), PicError> {
        for layer in self.own() {
            for object in self.memories[layer].into_iter().flatten() {
                let touched = self.store.manager().size(object)?;
                self.store.run::<R, ()>(&[Use { object, writes: true, touched }], |views| {
                    views.into_iter().for_each(|view| change(layer, view.write()));
                })?;
                self.store.passed(object)?;
            }
        }
        Ok(())
    }

    /// Lets `change` change the fields of every layer of this rank.
    pub fn change_fields(&mut self, mut change: impl FnMut(usize, &mut [R])) -> Result<(), PicError> {
        for layer in self.own() {
            let one = self.field_use(layer, true);
            self.store.run::<R, ()>(&[one], |views| {
                views.into_iter().for_each(|view| change(layer, view.write()))
            })?;
            self.store.passed(one.object)?;
        }
        self.share_fields()
    }
}

/// The bytes of so many numbers.
pub(crate) fn bytes_of<R>(numbers: usize) -> Bytes {
    Bytes(numbers as u64 * size_of::<R>() as u64)
}

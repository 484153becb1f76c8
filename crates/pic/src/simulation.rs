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
use crate::hash::Hash;
use crate::parcel::{self, Arrivals, Outbox, Parcel, Pass, Tally};
use crate::setup::Setup;
use crate::simd::{Level, Real, level};
use crate::store::{Kind, Placement, Store, Use};
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
    /// Which vectors are used.
    pub level: Level,
}

impl Default for Ways {
    fn default() -> Ways {
        Ways { threads: 1, passes: Passes::One, batch: None, level: level() }
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

/// A simulation.
pub struct Simulation<R: Real> {
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
        let store = Store::open(machine, placement)?;
        let mut simulation = Simulation::empty(setup, ways, store);
        for tile in 0..simulation.tiles.len() {
            for species in 0..simulation.setup.species.len() {
                let (singles, counts) = simulation.setup.load(species, tile, 0);
                simulation.settle(tile, species, &singles, counts, false)?;
            }
        }
        simulation.make_fields()?;
        Ok(simulation)
    }

    /// Tiles without particles, and no fields yet.
    pub(crate) fn empty(setup: Setup, ways: Ways, store: Store) -> Simulation<R> {
        let kinds = setup.species.len();
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
                currents: vec![R::ZERO; CURRENTS * around],
            }
        };
        let tiles = (0..setup.grid.tiles().iter().product()).map(tile).collect();
        let largest = FIELDS * Around::new(setup.grid.tile, setup.order).len();
        let scratch = (0..ways.threads.max(1)).map(|_| vec![R::ZERO; largest]).collect();
        let absorber = Absorber::new(&setup.grid);
        Simulation {
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
            temporaries: Bytes::ZERO,
            updates: 0,
        }
    }

    /// Fields and currents of all layers, zero.
    pub(crate) fn make_fields(&mut self) -> Result<(), PicError> {
        for layer in 0..self.setup.grid.layers() {
            let places = self.setup.grid.layer_places(layer);
            self.fields.push(self.store.create::<R>(
                &format!("fields.{layer}"),
                Kind::Fields,
                FIELDS * places,
            )?);
        }
        for layer in 0..self.setup.grid.layers() {
            let places = self.setup.grid.layer_places(layer);
            let name = format!("currents.{layer}");
            self.currents.push(self.store.create::<R>(&name, Kind::Fields, CURRENTS * places)?);
        }
        for layer in 0..self.setup.grid.layers() {
            let [_, _, sides, ends] = absorb::objects::<R>(&self.setup.grid, layer);
            let mut memory = |which: &str, bytes: usize| {
                let name = format!("absorber.{which}.{layer}");
                let made = || self.store.create::<R>(&name, Kind::Fields, bytes / size_of::<R>());
                (bytes > 0).then(made).transpose()
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
        let clock = std::time::Instant::now();
        self.updates += self.particles();
        match self.ways.passes {
            Passes::One => self.pass(Pass::Both, measure)?,
            Passes::Two => self.pass(Pass::Push, measure)?,
        }
        let push = clock.elapsed().as_secs_f64();
        let clock = std::time::Instant::now();
        if self.ways.passes == Passes::Two {
            self.pass(Pass::Deposit, false)?;
        }
        let deposit = clock.elapsed().as_secs_f64();
        let clock = std::time::Instant::now();
        self.exchange()?;
        let exchange = clock.elapsed().as_secs_f64();
        let clock = std::time::Instant::now();
        self.advance_magnetic(false)?;
        self.advance_electric()?;
        self.advance_magnetic(true)?;
        self.iteration += 1;
        self.store.iteration_ended(self.temporaries)?;
        self.times.fields += begun + clock.elapsed().as_secs_f64();
        self.times.push += push;
        self.times.deposit += deposit;
        self.times.exchange += exchange;
        Ok(energies.map(|fields| self.measured(fields)))
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

    /// What was measured, from the energies of fields and the tallies of tiles in their order.
    fn measured(&self, fields: [f64; 2]) -> Measured {
        let mut all = vec![Tally::default(); self.setup.species.len()];
        for tile in &self.tiles {
            all.iter_mut().zip(&tile.tallies).for_each(|(sum, tally)| sum.add(tally));
        }
        let zip = all.iter().zip(&self.setup.species);
        Measured {
            fields,
            kinetic: zip.clone().map(|(t, s)| s.mass * 0.5 * (t.kinetic[0] + t.kinetic[1])).collect(),
            momentum: zip.clone().map(|(t, s)| t.momentum.map(|p| s.mass * p)).collect(),
            charge: zip.map(|(t, s)| s.charge * t.weight).collect(),
        }
    }

    /// Calls `visit` with every particle of a species: its cell in the grid, and its numbers.
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

    /// The same for a tile, with the number of the cell in it.
    pub(crate) fn visit_tile(
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

    /// A fingerprint of all fields and particles: equal for equal bits.
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

    /// Calls `visit` with the fields of every layer, or its currents: all places of a component after those of another.
    pub fn layers(&mut self, currents: bool, mut visit: impl FnMut(usize, &[R])) -> Result<(), PicError> {
        for layer in 0..self.fields.len() {
            let mut one = self.field_use(layer, false);
            if currents {
                one.object = self.currents[layer];
            }
            self.store
                .run::<R, ()>(&[one], |views| views.into_iter().for_each(|view| visit(layer, view.read())))?;
            self.store.passed(one.object)?;
        }
        Ok(())
    }

    /// Calls `visit` with what the absorbing ends remember, layer by layer.
    pub(crate) fn each_memory(&mut self, mut visit: impl FnMut(&mut [R])) -> Result<(), PicError> {
        for object in self.memories.clone().into_iter().flatten().flatten() {
            let touched = self.store.manager().size(object)?;
            self.store.run::<R, ()>(&[Use { object, writes: true, touched }], |views| {
                views.into_iter().for_each(|view| visit(view.write()));
            })?;
            self.store.passed(object)?;
        }
        Ok(())
    }

    /// Lets `change` change the fields of every layer.
    pub fn change_fields(&mut self, mut change: impl FnMut(usize, &mut [R])) -> Result<(), PicError> {
        for layer in 0..self.fields.len() {
            let one = self.field_use(layer, true);
            self.store.run::<R, ()>(&[one], |views| {
                views.into_iter().for_each(|view| change(layer, view.write()))
            })?;
            self.store.passed(one.object)?;
        }
        Ok(())
    }
}

/// The bytes of so many numbers.
pub(crate) fn bytes_of<R>(numbers: usize) -> Bytes {
    Bytes(numbers as u64 * size_of::<R>() as u64)
}

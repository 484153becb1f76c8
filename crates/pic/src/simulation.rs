//! A simulation: its fields and particles on the tiers of a machine, and what an iteration does with them.
//!
//! Fields are at whole time steps when an iteration begins, momenta half a step behind. Half the magnetic step, all
//! particles tile by tile, the currents of tiles added up in the order of tiles, the electric step, and the other half of
//! the magnetic one. Particles may be pushed and deposited in one pass over memory, or in two as WarpX does; and tiles may be
//! worked on by any number of threads, from any memory: all give the same bits.

use tiercel_core::{Bytes, Machine, ObjectId};

use crate::around::{gather_currents, look_around};
use crate::batch::{NUMBERS, Single};
use crate::cell::{Around, Motion};
use crate::error::PicError;
use crate::grid::{DIRECTIONS, towards};
use crate::hash::Hash;
use crate::parcel::{self, Arrivals, Memory, Outbox, Parcel, Pass, Sweep, Tally, With};
use crate::push::{Boris, HigueraCary, Vay};
use crate::setup::{Push, Setup};
use crate::shape::{Cubic, Linear, Quadratic};
use crate::simd::{Level, Real, dispatch, level};
use crate::split;
use crate::store::{Kind, Placement, Store, Use};
use crate::yee::{self, CURRENTS, FIELDS, Rates};

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
    pub(crate) tiles: Vec<Tile<R>>,
    scratch: Vec<Vec<R>>,
    /// Iterations that are done.
    pub(crate) iteration: u64,
    pub(crate) times: Times,
    /// The most bytes that were short-lived at once.
    temporaries: Bytes,
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
        Simulation {
            setup,
            ways,
            store,
            fields: Vec::new(),
            currents: Vec::new(),
            tiles,
            scratch,
            iteration: 0,
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
        let started = std::time::Instant::now();
        let energies = if measure { Some(self.field_energies()?) } else { None };
        self.advance_magnetic()?;
        let fields = started.elapsed().as_secs_f64();
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
        self.advance_electric()?;
        self.advance_magnetic()?;
        self.iteration += 1;
        self.store.iteration_ended(self.temporaries)?;
        self.times.fields += fields + clock.elapsed().as_secs_f64();
        self.times.push += push;
        self.times.deposit += deposit;
        self.times.exchange += exchange;
        Ok(energies.map(|fields| self.measured(fields)))
    }

    /// Iterations that are done.
    pub fn iteration(&self) -> u64 {
        self.iteration
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

    /// The energies of the electric and the magnetic field.
    pub fn field_energies(&mut self) -> Result<[f64; 2], PicError> {
        let mut energies = [0.0; 2];
        for layer in 0..self.fields.len() {
            let reads = [self.field_use(layer, false)];
            let of = self.store.run::<R, [f64; 2]>(&reads, |views| {
                let mut of = [0.0; 2];
                for view in views {
                    let all = view.read();
                    let (electric, magnetic) = all.split_at(all.len() / 2);
                    of = [yee::energy(electric), yee::energy(magnetic)];
                }
                of
            })?;
            energies = [energies[0] + of[0], energies[1] + of[1]];
        }
        Ok(energies.map(|energy| energy * self.setup.grid.cell_volume()))
    }

    fn field_use(&self, layer: usize, writes: bool) -> Use {
        let touched = bytes_of::<R>(FIELDS * self.setup.grid.layer_places(layer));
        Use { object: self.fields[layer], writes, touched }
    }

    fn extents(&self, layer: usize) -> [usize; 3] {
        let [x, y, _] = self.setup.grid.cells;
        [x, y, self.setup.grid.planes(layer).1]
    }

    /// Half a step of the magnetic field.
    fn advance_magnetic(&mut self) -> Result<(), PicError> {
        let rates = Rates::new(&self.setup.grid, self.setup.grid.step / 2.0);
        let layers = self.fields.len();
        for layer in 0..layers {
            let (extents, next) = (self.extents(layer), (layer + 1) % layers);
            let planes = self.extents(next)[2];
            let mut uses = vec![self.field_use(layer, true)];
            if next != layer {
                // Of the other layer, one plane of two components.
                let plane = bytes_of::<R>(2 * extents[0] * extents[1]);
                uses.push(Use { touched: plane, ..self.field_use(next, false) });
            }
            self.store.run::<R, ()>(&uses, |views| {
                let mut views = views.into_iter();
                let Some(here) = views.next().map(|view| view.write()) else { return };
                let next = views.next().map(|view| (view.read(), planes));
                let half = here.len() / 2;
                let (electric, magnetic) = here.split_at_mut(half);
                yee::magnetic(extents, (electric, magnetic), next, &rates);
            })?;
            self.store.passed(self.fields[layer])?;
        }
        Ok(())
    }

    /// Adds up the currents around tiles, and a step of the electric field.
    fn advance_electric(&mut self) -> Result<(), PicError> {
        let rates = Rates::new(&self.setup.grid, self.setup.grid.step);
        let layers = self.fields.len();
        for layer in 0..layers {
            let (extents, under) = (self.extents(layer), (layer + layers - 1) % layers);
            let planes = self.extents(under)[2];
            let places = self.setup.grid.layer_places(layer);
            let currents =
                Use { object: self.currents[layer], writes: true, touched: bytes_of::<R>(CURRENTS * places) };
            let mut uses = vec![currents, self.field_use(layer, true)];
            if under != layer {
                let plane = bytes_of::<R>(2 * extents[0] * extents[1]);
                uses.push(Use { touched: plane, ..self.field_use(under, false) });
            }
            let Simulation { store, setup, tiles, .. } = self;
            store.run::<R, ()>(&uses, |views| {
                let mut views = views.into_iter();
                let Some(currents) = views.next().map(|view| view.write()) else { return };
                let Some(here) = views.next().map(|view| view.write()) else { return };
                // Of the layer below, the magnetic half.
                let under = views.next().map(|view| view.read()).map(|all| (&all[all.len() / 2..], planes));
                currents.fill(R::ZERO);
                gather_currents(setup, tiles, layer, currents);
                let half = here.len() / 2;
                let (electric, magnetic) = here.split_at_mut(half);
                yee::electric(extents, (electric, magnetic, currents), under, &rates);
            })?;
            self.store.passed(self.currents[layer])?;
            self.store.passed(self.fields[layer])?;
        }
        Ok(())
    }

    /// The layers that the particles of a layer see.
    fn seen_from(&self, layer: usize) -> Vec<usize> {
        let grid = &self.setup.grid;
        let (first, planes) = grid.planes(layer);
        let start = first as isize + self.setup.first() - 1;
        let wide = (planes + self.setup.order + 2) as isize;
        let plane = |z: isize| z.rem_euclid(grid.cells[2] as isize) as usize / grid.tile[2];
        let mut layers: Vec<usize> = (start..start + wide).map(plane).collect();
        layers.sort_unstable();
        layers.dedup();
        layers
    }

    /// Tiles of a layer that are worked on at once: as many as the batch allows, one at least.
    fn groups(&self, layer: usize) -> Vec<std::ops::Range<usize>> {
        let each = self.setup.grid.per_layer();
        let mut groups = Vec::new();
        let (mut start, mut bytes) = (layer * each, 0);
        for tile in layer * each..(layer + 1) * each {
            let size = self.tiles[tile].rooms.iter().map(|room| bytes_of::<R>(NUMBERS * room).0).sum::<u64>();
            if tile > start && self.ways.batch.is_some_and(|most| bytes + size > most.0) {
                groups.push(start..tile);
                (start, bytes) = (tile, 0);
            }
            bytes += size;
        }
        groups.push(start..(layer + 1) * each);
        groups
    }

    /// One pass over all particles.
    fn pass(&mut self, pass: Pass, measure: bool) -> Result<(), PicError> {
        let layers = self.setup.grid.layers();
        let groups: Vec<_> =
            (0..layers).flat_map(|layer| self.groups(layer).into_iter().map(move |g| (layer, g))).collect();
        for (at, (layer, group)) in groups.iter().enumerate() {
            if at == 0 {
                self.expect(group.clone())?;
            }
            if let Some((_, next)) = groups.get(at + 1) {
                self.expect(next.clone())?;
            }
            self.work(pass, measure, *layer, group.clone())?;
            for tile in group.clone() {
                for object in self.tiles[tile].objects.clone() {
                    self.store.passed(object)?;
                }
            }
        }
        Ok(())
    }

    /// Says that the particles of some tiles are wanted soon.
    fn expect(&mut self, group: std::ops::Range<usize>) -> Result<(), PicError> {
        for tile in group {
            for (species, object) in self.tiles[tile].objects.iter().enumerate() {
                if self.tiles[tile].parcels[species].held + self.tiles[tile].arrivals[species].len() > 0 {
                    self.store.soon(*object)?;
                }
            }
        }
        Ok(())
    }

    /// A pass over the particles of some tiles of a layer.
    fn work(
        &mut self,
        pass: Pass,
        measure: bool,
        layer: usize,
        group: std::ops::Range<usize>,
    ) -> Result<(), PicError> {
        let seen = self.seen_from(layer);
        let mut uses = Vec::new();
        for tile in group.clone() {
            let tile = &self.tiles[tile];
            for (species, object) in tile.objects.iter().enumerate() {
                let touched = bytes_of::<R>(NUMBERS * tile.parcels[species].held);
                uses.push(Use { object: *object, writes: pass != Pass::Deposit, touched });
            }
        }
        if pass != Pass::Deposit {
            uses.extend(seen.iter().map(|layer| self.field_use(*layer, false)));
        }
        let Simulation { store, setup, ways, tiles, scratch, .. } = self;
        let motions: Vec<Motion<R>> = (0..setup.species.len()).map(|species| setup.motion(species)).collect();
        store.run::<R, ()>(&uses, |views| {
            let mut views = views.into_iter();
            let mut jobs: Vec<_> = tiles[group.clone()]
                .iter_mut()
                .zip(group.clone())
                .map(|(tile, number)| {
                    let views: Vec<_> = (0..tile.objects.len()).filter_map(|_| views.next()).collect();
                    (tile, number, views)
                })
                .collect();
            let mut planes: Vec<&[R]> = vec![&[]; setup.grid.layers()];
            seen.iter().zip(views).for_each(|(layer, view)| planes[*layer] = view.read());
            split::each(scratch, &mut jobs, |scratch, (tile, number, views)| {
                let around = Around::new(setup.grid.extent(*number).1, setup.order);
                let fields = &mut scratch[..FIELDS * around.len()];
                if pass != Pass::Deposit {
                    look_around(setup, *number, around, &planes, fields);
                    tile.tallies.fill(Tally::default());
                }
                if pass != Pass::Push {
                    tile.currents.fill(R::ZERO);
                }
                for (species, view) in std::mem::take(views).into_iter().enumerate() {
                    let memory = match view {
                        crate::store::View::Read(all) => Memory::Read(all),
                        crate::store::View::Write(all) => Memory::Write(all),
                    };
                    let sweep = Sweep {
                        pass,
                        parcel: &mut tile.parcels[species],
                        memory,
                        arrivals: &mut tile.arrivals[species],
                        outbox: &mut tile.outboxes[species],
                        around,
                        fields,
                        currents: &mut tile.currents,
                        motion: motions[species],
                        tally: measure.then_some(&mut tile.tallies[species]),
                    };
                    sweep_with(setup.order, setup.push, ways.level, sweep);
                }
            });
        })?;
        Ok(())
    }

    /// Hands the particles that have left a tile to the tiles that they enter, and makes room for them.
    fn exchange(&mut self) -> Result<(), PicError> {
        let mut arrivals: Vec<(usize, Vec<Arrivals<R>>)> =
            self.tiles.iter_mut().map(|tile| std::mem::take(&mut tile.arrivals)).enumerate().collect();
        let (tiles, grid) = (&self.tiles, &self.setup.grid);
        let mut threads = vec![(); self.ways.threads.max(1)];
        split::each(&mut threads, &mut arrivals, |(), (number, arrivals)| {
            for (species, arrivals) in arrivals.iter_mut().enumerate() {
                let incoming = (0..DIRECTIONS).filter_map(|way| {
                    let towards = towards(way);
                    let from = grid.beside(*number, towards.map(|step| -step))?;
                    Some((towards, &tiles[from].outboxes[species][way][..]))
                });
                arrivals.collect(grid.extent(*number).1, incoming);
            }
        });
        let mut temporary = 0;
        for (number, arrivals) in arrivals {
            let tile = &mut self.tiles[number];
            temporary +=
                tile.currents.len() * size_of::<R>() + arrivals.iter().map(Arrivals::bytes).sum::<usize>();
            tile.arrivals = arrivals;
        }
        for tile in &mut self.tiles {
            for (species, outbox) in tile.outboxes.iter_mut().enumerate() {
                let left: usize = outbox.iter().map(Vec::len).sum();
                tile.parcels[species].left = if tile.parcels[species].raw { left as u32 } else { 0 };
                temporary += outbox
                    .iter()
                    .map(|some| some.capacity() * size_of::<parcel::Traveller<R>>())
                    .sum::<usize>();
                outbox.iter_mut().for_each(Vec::clear);
            }
        }
        temporary += self.scratch.iter().map(|scratch| scratch.len() * size_of::<R>()).sum::<usize>();
        self.temporaries = self.temporaries.max(Bytes(temporary as u64));
        for number in 0..self.tiles.len() {
            for species in 0..self.setup.species.len() {
                let tile = &self.tiles[number];
                let wanted = tile.parcels[species].held + tile.arrivals[species].len();
                let room = tile.rooms[species];
                if wanted > room || room > 2 * room_for(wanted) + 1024 {
                    self.resize(number, species, room_for(wanted))?;
                }
            }
        }
        Ok(())
    }

    /// Gives the particles of a species in a tile another amount of memory.
    fn resize(&mut self, number: usize, species: usize, room: usize) -> Result<(), PicError> {
        let tile = &mut self.tiles[number];
        let (parcel, old) = (&tile.parcels[species], tile.objects[species]);
        let name = format!("particles.{}.{number}", self.setup.species[species].name);
        let new = self.store.create::<R>(&name, Kind::Particles, NUMBERS * room)?;
        let touched = bytes_of::<R>(NUMBERS * parcel.held);
        let uses = [Use { object: old, writes: false, touched }, Use { object: new, writes: true, touched }];
        self.store.soon(old)?;
        self.store.soon(new)?;
        self.store.run::<R, ()>(&uses, |views| {
            let mut views = views.into_iter();
            if let (Some(from), Some(to)) = (views.next(), views.next()) {
                parcel::regrow(parcel, from.read(), to.write());
            }
        })?;
        self.store.retire(old)?;
        self.store.passed(new)?;
        (tile.objects[species], tile.rooms[species]) = (new, room);
        Ok(())
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

/// Does a sweep with the shape and the pusher that are wanted.
fn sweep_with<R: Real>(order: usize, push: Push, level: Level, sweep: Sweep<'_, R>) {
    macro_rules! with {
        ($shape:ident, $push:ident) => {
            dispatch(level, With::<R, $shape, $push> { sweep, kind: std::marker::PhantomData })
        };
    }
    match (order, push) {
        (1, Push::Boris) => with!(Linear, Boris),
        (1, Push::Vay) => with!(Linear, Vay),
        (1, Push::HigueraCary) => with!(Linear, HigueraCary),
        (2, Push::Boris) => with!(Quadratic, Boris),
        (2, Push::Vay) => with!(Quadratic, Vay),
        (2, Push::HigueraCary) => with!(Quadratic, HigueraCary),
        (_, Push::Boris) => with!(Cubic, Boris),
        (_, Push::Vay) => with!(Cubic, Vay),
        (_, Push::HigueraCary) => with!(Cubic, HigueraCary),
    }
}

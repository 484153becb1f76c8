//! The part of an iteration that is Maxwell's: fields advance layer by layer, currents of tiles are added up in the order of
//! tiles, a laser's antenna adds its own, and the outermost cells absorb what comes to them.

use crate::absorb::Part;
use crate::around::gather_currents;
use crate::error::PicError;
use crate::setup::Setup;
use crate::simd::Real;
use crate::simulation::{Simulation, bytes_of};
use crate::store::{Use, View};
use crate::yee::{self, CURRENTS, FIELDS, Rates};

impl<R: Real> Simulation<R> {
    /// The energies of the electric and the magnetic field.
    pub fn field_energies(&mut self) -> Result<[f64; 2], PicError> {
        let mut energies = [0.0; 2];
        for layer in self.own() {
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

    pub(crate) fn field_use(&self, layer: usize, writes: bool) -> Use {
        let touched = bytes_of::<R>(FIELDS * self.setup.grid.layer_places(layer));
        Use { object: self.fields[layer], writes, touched }
    }

    fn extents(&self, layer: usize) -> [usize; 3] {
        let [x, y, _] = self.setup.grid.cells;
        [x, y, self.setup.grid.planes(layer).1]
    }

    /// What a layer's memories of what absorbs are used as: both, as far as there are any.
    fn memory_uses(&self, layer: usize) -> Vec<Use> {
        let numbers = self.absorber.numbers(self.part(layer));
        let pairs = self.memories[layer].iter().zip(numbers.map(bytes_of::<R>));
        pairs
            .filter_map(|(object, touched)| Some(Use { object: (*object)?, writes: true, touched }))
            .collect()
    }

    /// Where a layer is.
    fn part(&self, layer: usize) -> Part {
        Part { extents: self.extents(layer), first: self.setup.grid.planes(layer).0 }
    }

    /// Says that a layer is not wanted until the next pass over fields.
    fn passed(&mut self, layer: usize, currents: bool) -> Result<(), PicError> {
        if currents {
            self.store.passed(self.currents[layer])?;
        }
        self.store.passed(self.fields[layer])?;
        for object in self.memories[layer].into_iter().flatten() {
            self.store.passed(object)?;
        }
        Ok(())
    }

    /// Half a step of the magnetic field: the half that opens a step, or that which closes it.
    pub(crate) fn advance_magnetic(&mut self, closes: bool) -> Result<(), PicError> {
        let rates = Rates::new(&self.setup.grid, self.setup.grid.step / 2.0);
        let layers = self.fields.len();
        for layer in self.own() {
            let (extents, next) = (self.extents(layer), (layer + 1) % layers);
            let planes = self.extents(next)[2];
            let mut uses = vec![self.field_use(layer, true)];
            if next != layer {
                // Of the other layer, one plane of two components.
                let plane = bytes_of::<R>(2 * extents[0] * extents[1]);
                uses.push(Use { touched: plane, ..self.field_use(next, false) });
            }
            uses.extend(self.memory_uses(layer));
            let (part, has) = (self.part(layer), self.memories[layer].map(|object| object.is_some()));
            let Simulation { store, absorber, .. } = self;
            store.run::<R, ()>(&uses, |views| {
                let mut views = views.into_iter();
                let Some(here) = views.next().map(|view| view.write()) else { return };
                let beside = if next != layer { views.next() } else { None };
                let beside = beside.map(|view| (view.read(), planes));
                let half = here.len() / 2;
                let (electric, magnetic) = here.split_at_mut(half);
                yee::magnetic(extents, (electric, magnetic), beside, &rates);
                if !absorber.is_empty() {
                    let memories = has.map(|has| written(has, &mut views));
                    absorber.magnetic(part, (electric, magnetic), beside, memories, closes);
                }
            })?;
            self.passed(layer, false)?;
        }
        Ok(())
    }

    /// Adds up the currents around tiles, and a step of the electric field.
    pub(crate) fn advance_electric(&mut self) -> Result<(), PicError> {
        let rates = Rates::new(&self.setup.grid, self.setup.grid.step);
        let layers = self.fields.len();
        for layer in self.own() {
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
            uses.extend(self.memory_uses(layer));
            let (part, has) = (self.part(layer), self.memories[layer].map(|object| object.is_some()));
            let (time, shift) = ((self.iteration as f64 + 0.5) * self.setup.grid.step, self.shift());
            let Simulation { store, setup, tiles, absorber, .. } = self;
            store.run::<R, ()>(&uses, |views| {
                let mut views = views.into_iter();
                let Some(currents) = views.next().map(|view| view.write()) else { return };
                let Some(here) = views.next().map(|view| view.write()) else { return };
                // Of the layer below, the magnetic half.
                let beside = if under != layer { views.next() } else { None };
                let beside = beside.map(|view| view.read()).map(|all| (&all[all.len() / 2..], planes));
                currents.fill(R::ZERO);
                gather_currents(setup, tiles, layer, currents);
                shine(setup, part, (time, shift), currents);
                let half = here.len() / 2;
                let (electric, magnetic) = here.split_at_mut(half);
                yee::electric(extents, (electric, magnetic, currents), beside, &rates);
                if !absorber.is_empty() {
                    let memories = has.map(|has| written(has, &mut views));
                    absorber.electric(part, (electric, magnetic), beside, memories);
                }
            })?;
            self.passed(layer, true)?;
        }
        Ok(())
    }
}

/// The next operand of a kernel, or nothing where there is none.
fn written<'a, R: Real>(has: bool, views: &mut impl Iterator<Item = View<'a, R>>) -> &'a mut [R] {
    let view = if has { views.next() } else { None };
    view.map_or(&mut [], View::write)
}

/// Adds the currents of antennas to those of a layer, at a time, when a window has moved on by so many cells.
fn shine<R: Real>(setup: &Setup, part: Part, (time, shift): (f64, usize), currents: &mut [R]) {
    let grid = &setup.grid;
    let [nx, ny, nz] = part.extents;
    for laser in &setup.lasers {
        let plane = laser.plane(grid) - shift as i64;
        let live = setup.live(2);
        if plane < live.start as i64 || plane >= live.end as i64 {
            continue;
        }
        let Some(z) = (plane as usize).checked_sub(part.first).filter(|z| *z < nz) else { continue };
        let current = laser.current(grid);
        let half = [0, 1].map(|axis| if laser.axis == axis { 0.5 } else { 0.0 });
        for y in setup.live(1) {
            for x in setup.live(0) {
                let place = [(x as f64 + half[0]) * grid.spacing[0], (y as f64 + half[1]) * grid.spacing[1]];
                let at = ((laser.axis * nz + z) * ny + y) * nx + x;
                currents[at] += R::of(current * laser.field(grid, place, time));
            }
        }
    }
}

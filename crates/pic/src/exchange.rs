//! Between iterations: particles that have left a tile enter the next, tiles get the room that they need, and a window moves on.

use tiercel_core::{Bytes, ObjectId};

use crate::batch::NUMBERS;
use crate::error::PicError;
use crate::grid::{DIRECTIONS, towards};
use crate::parcel::{self, Arrivals};
use crate::simd::Real;
use crate::simulation::{Simulation, bytes_of, room_for};
use crate::split;
use crate::store::{Kind, Use};

impl<R: Real> Simulation<R> {
    /// Hands the particles that have left a tile to the tiles that they enter, and makes room for them.
    pub(crate) fn exchange(&mut self) -> Result<(), PicError> {
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

    /// Moves the window on by a layer: the first is dropped, a new one begins at the end, and the particles of those that
    /// come within are put in. Only layers that begin anew are written.
    pub(crate) fn move_on(&mut self) -> Result<(), PicError> {
        let (each, layers) = (self.setup.grid.per_layer(), self.setup.grid.layers());
        self.tiles.rotate_left(each);
        self.fields.rotate_left(1);
        self.currents.rotate_left(1);
        // What the ends along z remember stays with the ends, and begins anew; the sides go with their layers.
        let ends: Vec<_> = self.memories.iter().map(|of| of[1]).collect();
        self.memories.rotate_left(1);
        self.memories.iter_mut().zip(&ends).for_each(|(of, ends)| of[1] = *ends);
        self.moved += 1;
        let last = layers - 1;
        let new = [Some(self.fields[last]), Some(self.currents[last]), self.memories[last][0]];
        for object in new.into_iter().flatten().chain(ends.into_iter().flatten()) {
            self.clear(object)?;
        }
        let live = self.setup.live(2);
        let (first, end) = (live.start / self.setup.grid.tile[2], live.end / self.setup.grid.tile[2]);
        let shift = self.shift() as i64;
        for layer in [first - 1, end - 1] {
            for tile in layer * each..(layer + 1) * each {
                for object in std::mem::take(&mut self.tiles[tile].objects) {
                    self.store.retire(object)?;
                }
                self.tiles[tile].rooms.clear();
                for species in 0..self.setup.species.len() {
                    self.tiles[tile].arrivals[species].clear();
                    let parcel = &mut self.tiles[tile].parcels[species];
                    (parcel.raw, parcel.left) = (false, 0);
                    let (singles, counts) = self.setup.load(species, tile, shift);
                    self.settle(tile, species, &singles, counts, false)?;
                }
            }
        }
        Ok(())
    }

    /// Sets all numbers of an object to zero.
    fn clear(&mut self, object: ObjectId) -> Result<(), PicError> {
        let touched = self.store.manager().size(object)?;
        self.store.run::<R, ()>(&[Use { object, writes: true, touched }], |views| {
            views.into_iter().for_each(|view| view.write().fill(R::ZERO));
        })?;
        self.store.passed(object)?;
        Ok(())
    }
}

//! Between iterations: particles that have left a tile enter the next, and tiles get the room that they need.

use tiercel_core::Bytes;

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
        self.share_tiles()?;
        let own = self.own_tiles();
        let mut arrivals: Vec<(usize, Vec<Arrivals<R>>)> =
            own.clone().map(|number| (number, std::mem::take(&mut self.tiles[number].arrivals))).collect();
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
        for number in own {
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
}

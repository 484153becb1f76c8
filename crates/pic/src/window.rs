//! A window that moves on: the first layer is dropped, a new one begins at the end, and nothing else is copied.
//!
//! Layers are only counted anew. Of several ranks each has the same places as before, so its first layer goes to the rank below
//! and one comes from the rank above.

use tiercel_core::ObjectId;

use crate::batch::{NUMBERS, Single};
use crate::error::PicError;
use crate::halo::Reader;
use crate::simd::Real;
use crate::simulation::Simulation;
use crate::store::Use;

/// Which end of their memory particles use, how many each cell has, and their numbers.
pub(crate) type Unpacked<R> = (bool, Vec<u32>, Vec<Single<R>>);

impl<R: Real> Simulation<R> {
    /// Moves the window on by a layer: the first is dropped, a new one begins at the end, and the particles of those that
    /// come within are put in. Only layers that begin anew are written.
    pub(crate) fn move_on(&mut self) -> Result<(), PicError> {
        let (each, layers, own) = (self.setup.grid.per_layer(), self.setup.grid.layers(), self.own());
        let passed = self.pass_down()?;
        self.tiles.rotate_left(each);
        self.fields.rotate_left(1);
        self.currents.rotate_left(1);
        // What the ends along z remember stays with the ends, and begins anew; the sides go with their layers.
        let ends: Vec<_> = self.memories.iter().map(|of| of[1]).collect();
        self.memories.rotate_left(1);
        self.memories.iter_mut().zip(&ends).for_each(|(of, ends)| of[1] = *ends);
        self.moved += 1;
        if let Some(bytes) = passed {
            self.take_over(&bytes)?;
        }
        let last = layers - 1;
        if own.contains(&last) {
            let new = [Some(self.fields[last]), Some(self.currents[last]), self.memories[last][0]];
            new.into_iter().flatten().try_for_each(|object| self.clear(object))?;
        }
        ends.into_iter().flatten().try_for_each(|object| self.clear(object))?;
        let live = self.setup.live(2);
        let (first, end) = (live.start / self.setup.grid.tile[2], live.end / self.setup.grid.tile[2]);
        let shift = self.shift() as i64;
        for layer in [first - 1, end - 1].into_iter().filter(|layer| own.contains(layer)) {
            for tile in layer * each..(layer + 1) * each {
                self.vacate(tile)?;
                for species in 0..self.setup.species.len() {
                    let (singles, counts) = self.setup.load(species, tile, shift);
                    self.settle(tile, species, &singles, counts, false)?;
                }
            }
        }
        self.share_fields()
    }

    /// Gives up what a tile has of particles.
    fn vacate(&mut self, tile: usize) -> Result<(), PicError> {
        for object in std::mem::take(&mut self.tiles[tile].objects) {
            self.store.retire(object)?;
        }
        self.tiles[tile].rooms.clear();
        for species in 0..self.setup.species.len() {
            self.tiles[tile].arrivals[species].clear();
            let parcel = &mut self.tiles[tile].parcels[species];
            (parcel.raw, parcel.left) = (false, 0);
        }
        Ok(())
    }

    /// Sends the particles of this rank's first layer, and what its sides remember, to the rank below; what comes from the rank
    /// above. Nothing if there is one rank.
    fn pass_down(&mut self) -> Result<Option<Vec<u8>>, PicError> {
        if self.team.size() == 1 {
            return Ok(None);
        }
        let (each, layers, own) = (self.setup.grid.per_layer(), self.setup.grid.layers(), self.own());
        let mut bytes = Vec::new();
        for tile in own.start * each..(own.start + 1) * each {
            for species in 0..self.setup.species.len() {
                bytes.extend_from_slice(&self.pack_particles(tile, species)?);
            }
        }
        if let Some(object) = self.memories[own.start][0] {
            let touched = self.store.manager().size(object)?;
            bytes.extend_from_slice(&self.numbers_of(Use { object, writes: false, touched })?);
        }
        let to = self.team.owner((own.start + layers - 1) % layers, layers);
        let from = self.team.owner(own.end % layers, layers);
        Ok(Some(self.team.swap(Some((to, &bytes)), Some(from))?))
    }

    /// The particles of a species in a tile as the next iteration finds them: which end of memory they use, how many each cell has,
    /// and their numbers.
    pub(crate) fn pack_particles(&mut self, tile: usize, species: usize) -> Result<Vec<u8>, PicError> {
        let parcel = &self.tiles[tile].parcels[species];
        let mut counts = vec![0u32; parcel.counts.len()];
        let mut bytes = (parcel.high as u64).to_le_bytes().to_vec();
        let mut numbers: Vec<u8> = Vec::new();
        self.visit_here(tile, species, |cell, single: &Single<R>| {
            counts[cell] += 1;
            numbers.extend_from_slice(bytemuck::cast_slice(single));
        })?;
        counts.iter().for_each(|count| bytes.extend_from_slice(&u64::from(*count).to_le_bytes()));
        bytes.extend_from_slice(&numbers);
        Ok(bytes)
    }

    /// The same, read.
    pub(crate) fn unpack_particles(
        &self,
        tile: usize,
        reader: &mut Reader<'_>,
    ) -> Result<Unpacked<R>, PicError> {
        let cells = self.setup.grid.extent(tile).1.iter().product();
        let high = reader.count()? != 0;
        let counts: Result<Vec<u32>, PicError> =
            (0..cells).map(|_| reader.count().map(|count| count as u32)).collect();
        let counts = counts?;
        let held = counts.iter().map(|count| *count as usize).sum::<usize>();
        let numbers = reader.numbers::<R>(NUMBERS * held)?;
        let singles = numbers.chunks_exact(NUMBERS).map(|all| std::array::from_fn(|at| all[at])).collect();
        Ok((high, counts, singles))
    }

    /// Puts what came from the rank above in this rank's last layer. Layers have been counted anew, and so the memory of the layer that
    /// has gone is at the one below this rank's first.
    fn take_over(&mut self, bytes: &[u8]) -> Result<(), PicError> {
        let (each, layers, own) = (self.setup.grid.per_layer(), self.setup.grid.layers(), self.own());
        let (gone, new) = ((own.start + layers - 1) % layers, own.end - 1);
        self.currents.swap(gone, new);
        let sides = self.memories[gone][0].take();
        self.memories[new][0] = sides;
        // Fields that nobody here needs any more make room for those that are needed now.
        let rank = self.team.rank();
        let needed = |layer: usize| own.contains(&layer) || self.halos[0].needs(rank, layer);
        for layer in 0..layers {
            // Before layers were counted anew, what is here was one further.
            let full = |layer: usize| needed((layer + 1) % layers);
            if needed(layer)
                && !full(layer)
                && let Some(spare) = (0..layers).find(|at| full(*at) && !needed(*at))
            {
                self.fields.swap(layer, spare);
                break;
            }
        }
        let mut reader = Reader::new(bytes);
        for at in 0..each {
            let (old, tile) = (gone * each + at, new * each + at);
            self.vacate(old)?;
            self.tiles[old].parcels.iter_mut().for_each(|parcel| {
                parcel.counts.fill(0);
                parcel.held = 0;
            });
            self.tiles[tile].currents = std::mem::take(&mut self.tiles[old].currents);
            for species in 0..self.setup.species.len() {
                let (high, counts, singles) = self.unpack_particles(tile, &mut reader)?;
                self.settle(tile, species, &singles, counts, high)?;
            }
        }
        if let Some(object) = sides {
            let touched = self.store.manager().size(object)?;
            let numbers = reader.numbers::<R>(touched.0 as usize / size_of::<R>())?;
            self.store.run::<R, ()>(&[Use { object, writes: true, touched }], |views| {
                views.into_iter().for_each(|view| view.write().copy_from_slice(&numbers));
            })?;
            self.store.passed(object)?;
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

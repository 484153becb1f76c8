//! Passes over particles: tiles in the order of memory, so many at a time as fast memory has room for, with the next ones
//! on their way.

use crate::around::look_around;
use crate::batch::NUMBERS;
use crate::cell::{Around, Motion};
use crate::error::PicError;
use crate::halo::seen_from;
use crate::parcel::{Memory, Pass, Sweep, Tally, With};
use crate::push::{Boris, HigueraCary, Vay};
use crate::setup::Push;
use crate::shape::{Cubic, Linear, Quadratic};
use crate::simd::{Level, Real, dispatch};
use crate::simulation::{Simulation, bytes_of};
use crate::split;
use crate::store::Use;
use crate::yee::FIELDS;

impl<R: Real> Simulation<R> {
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
    pub(crate) fn pass(&mut self, pass: Pass, measure: bool) -> Result<(), PicError> {
        let groups: Vec<_> =
            self.own().flat_map(|layer| self.groups(layer).into_iter().map(move |g| (layer, g))).collect();
        for (at, (layer, group)) in groups.iter().enumerate() {
            if at == 0 {
                self.expect(group.clone())?;
            }
            // After the last come the first again, in the next pass: they arrive beside the fields. What found no room is asked for again.
            for later in at + 1..=at + self.ways.ahead.min(groups.len() - 1) {
                self.expect(groups[later % groups.len()].1.clone())?;
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
        let seen = seen_from(&self.setup, layer);
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
                let parcels = tile.parcels.iter().zip(&tile.arrivals);
                let empty = parcels.into_iter().all(|(parcel, new)| parcel.held == 0 && new.is_empty());
                if pass != Pass::Deposit {
                    tile.tallies.fill(Tally::default());
                }
                if pass != Pass::Push {
                    tile.currents.fill(R::ZERO);
                }
                if empty {
                    tile.parcels.iter_mut().for_each(|parcel| parcel.skip(pass));
                    return;
                }
                if pass != Pass::Deposit {
                    look_around(setup, *number, around, &planes, fields);
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
                        bounds: setup.bounds(*number),
                        tally: measure.then_some(&mut tile.tallies[species]),
                    };
                    sweep_with(setup.order, setup.push, ways.level, sweep);
                }
            });
        })?;
        Ok(())
    }
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

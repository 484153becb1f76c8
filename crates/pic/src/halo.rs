//! What ranks tell each other between the parts of an iteration: fields at the edges of their layers, the currents that tiles
//! leave beyond them, and the particles that go there; and what the rank that leads hears of all when results are read.

use std::ops::Range;

use bytemuck::{Pod, cast_slice, pod_read_unaligned};

use crate::batch::{NUMBERS, Single};
use crate::error::PicError;
use crate::grid::{DIRECTIONS, towards};
use crate::parcel::Traveller;
use crate::setup::Setup;
use crate::simd::Real;
use crate::simulation::{Simulation, Tile};
use crate::store::Use;
use crate::team::{Halo, Team};
use crate::yee::FIELDS;

/// The layers that the particles of a layer see, and deposit into.
pub(crate) fn seen_from(setup: &Setup, layer: usize) -> Vec<usize> {
    let grid = &setup.grid;
    let (first, planes) = grid.planes(layer);
    let start = first as isize + setup.first() - 1;
    let wide = (planes + setup.order + 2) as isize;
    let plane = |z: isize| z.rem_euclid(grid.cells[2] as isize) as usize / grid.tile[2];
    let mut layers: Vec<usize> = (start..start + wide).map(plane).collect();
    layers.sort_unstable();
    layers.dedup();
    layers
}

/// The layers above and below some.
fn beside(own: &Range<usize>, layers: usize) -> impl Iterator<Item = usize> + use<> {
    own.clone().flat_map(move |layer| [(layer + 1) % layers, (layer + layers - 1) % layers])
}

/// The fields that each rank needs of others.
pub(crate) fn fields(setup: &Setup, team: &Team) -> Halo {
    let layers = setup.grid.layers();
    Halo::new(team, layers, |own| {
        own.clone().flat_map(|layer| seen_from(setup, layer)).chain(beside(&own, layers)).collect()
    })
}

/// The tiles that each rank needs of others.
pub(crate) fn tiles(setup: &Setup, team: &Team) -> Halo {
    let layers = setup.grid.layers();
    Halo::new(team, layers, |own| {
        let deposits = |layer: &usize| seen_from(setup, *layer).iter().any(|seen| own.contains(seen));
        (0..layers).filter(deposits).chain(beside(&own, layers)).collect()
    })
}

/// Bytes that are read one after the other.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], PicError> {
        let short = || PicError::Team { why: "a message is shorter than it should be".to_string() };
        let (some, rest) = self.0.split_at_checked(count).ok_or_else(short)?;
        self.0 = rest;
        Ok(some)
    }

    pub(crate) fn count(&mut self) -> Result<usize, PicError> {
        let bytes = self.bytes(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().unwrap_or_default()) as usize)
    }

    pub(crate) fn numbers<R: Real>(&mut self, count: usize) -> Result<Vec<R>, PicError> {
        Ok(collected(self.bytes(count * size_of::<R>())?))
    }
}

/// Bytes as the numbers that they are.
pub(crate) fn collected<T: Pod>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(pod_read_unaligned).collect()
}

fn count(bytes: &mut Vec<u8>, count: usize) {
    bytes.extend_from_slice(&(count as u64).to_le_bytes());
}

/// What a tile tells others: who leaves it along z, and the currents around it.
fn pack<R: Real>(tile: &Tile<R>, bytes: &mut Vec<u8>) {
    for outbox in &tile.outboxes {
        for way in (0..DIRECTIONS).filter(|way| towards(*way)[2] != 0) {
            count(bytes, outbox[way].len());
            for traveller in &outbox[way] {
                bytes.extend_from_slice(cast_slice(&traveller.single));
                bytes.extend_from_slice(cast_slice(&traveller.cell));
            }
        }
    }
    count(bytes, tile.currents.len());
    bytes.extend_from_slice(cast_slice(&tile.currents));
}

fn unpack<R: Real>(tile: &mut Tile<R>, from: &mut Reader<'_>) -> Result<(), PicError> {
    for outbox in &mut tile.outboxes {
        for way in (0..DIRECTIONS).filter(|way| towards(*way)[2] != 0) {
            outbox[way].clear();
            for _ in 0..from.count()? {
                let mut single: Single<R> = [R::ZERO; NUMBERS];
                single.copy_from_slice(&from.numbers::<R>(NUMBERS)?);
                let mut cell = [0i16; 3];
                cell.copy_from_slice(&collected::<i16>(from.bytes(6)?));
                outbox[way].push(Traveller { single, cell });
            }
        }
    }
    let count = from.count()?;
    tile.currents = from.numbers(count)?;
    Ok(())
}

impl<R: Real> Simulation<R> {
    /// The layers of this rank.
    pub(crate) fn own(&self) -> Range<usize> {
        self.team.own(self.setup.grid.layers())
    }

    /// The tiles of this rank.
    pub(crate) fn own_tiles(&self) -> Range<usize> {
        let (own, each) = (self.own(), self.setup.grid.per_layer());
        own.start * each..own.end * each
    }

    /// Whether this rank has the results.
    pub fn leads(&self) -> bool {
        self.team.leads()
    }

    /// The ranks that work on this.
    pub fn team(&mut self) -> &mut Team {
        &mut self.team
    }

    /// Calls `pack` for every layer that another rank needs and this one has, and `unpack` for those that it needs; the others do the
    /// same, two at a time.
    fn share(
        &mut self,
        halo: &Halo,
        pack: impl Fn(&mut Self, usize, &mut Vec<u8>) -> Result<(), PicError>,
        unpack: impl Fn(&mut Self, usize, &mut Reader<'_>) -> Result<(), PicError>,
    ) -> Result<(), PicError> {
        let (rank, size, layers) = (self.team.rank(), self.team.size(), self.setup.grid.layers());
        for step in 1..size {
            let (to, from) = ((rank + step) % size, (rank + size - step) % size);
            let mut bytes = Vec::new();
            let given = halo.between(&self.team, layers, to, rank);
            for layer in &given {
                pack(self, *layer, &mut bytes)?;
            }
            let wanted = halo.between(&self.team, layers, rank, from);
            let to = (!given.is_empty()).then_some((to, &bytes[..]));
            let received = self.team.swap(to, (!wanted.is_empty()).then_some(from))?;
            let mut reader = Reader::new(&received);
            for layer in wanted {
                unpack(self, layer, &mut reader)?;
            }
        }
        Ok(())
    }

    /// Brings the fields that this rank sees of others up to date.
    pub(crate) fn share_fields(&mut self) -> Result<(), PicError> {
        if self.team.size() == 1 {
            return Ok(());
        }
        let halo = std::mem::take(&mut self.halos[0]);
        let shared = self.share(
            &halo,
            |simulation, layer, bytes| {
                let one = simulation.field_use(layer, false);
                simulation.store.run::<R, ()>(&[one], |views| {
                    views.into_iter().for_each(|view| bytes.extend_from_slice(cast_slice(view.read())));
                })?;
                Ok(simulation.store.passed(one.object)?)
            },
            |simulation, layer, reader| {
                let numbers = reader.numbers::<R>(FIELDS * simulation.setup.grid.layer_places(layer))?;
                let one = simulation.field_use(layer, true);
                simulation.store.run::<R, ()>(&[one], |views| {
                    views.into_iter().for_each(|view| view.write().copy_from_slice(&numbers));
                })?;
                Ok(simulation.store.passed(one.object)?)
            },
        );
        self.halos[0] = halo;
        shared
    }

    /// Tells others who leaves tiles beside theirs, and which currents these leave in their layers.
    pub(crate) fn share_tiles(&mut self) -> Result<(), PicError> {
        if self.team.size() == 1 {
            return Ok(());
        }
        let halo = std::mem::take(&mut self.halos[1]);
        let tiles = |simulation: &Self, layer: usize| {
            let each = simulation.setup.grid.per_layer();
            layer * each..(layer + 1) * each
        };
        let shared = self.share(
            &halo,
            |simulation, layer, bytes| {
                tiles(simulation, layer).for_each(|tile| pack(&simulation.tiles[tile], bytes));
                Ok(())
            },
            |simulation, layer, reader| {
                tiles(simulation, layer).try_for_each(|tile| unpack(&mut simulation.tiles[tile], reader))
            },
        );
        self.halos[1] = halo;
        shared
    }

    /// The rank that leads hears what one of them has to say of a layer; the others say it when it is theirs.
    pub(crate) fn tell(
        &mut self,
        layer: usize,
        say: impl FnOnce(&mut Self) -> Result<Vec<u8>, PicError>,
    ) -> Result<Option<Vec<u8>>, PicError> {
        let owner = self.team.owner(layer, self.setup.grid.layers());
        match (self.team.rank() == owner, self.team.leads()) {
            (true, true) => Ok(Some(say(self)?)),
            (true, false) => {
                let bytes = say(self)?;
                self.team.swap(Some((0, &bytes)), None)?;
                Ok(None)
            }
            (false, true) => Ok(Some(self.team.swap(None, Some(owner))?)),
            (false, false) => Ok(None),
        }
    }

    /// The numbers of an object.
    pub(crate) fn numbers_of(&mut self, one: Use) -> Result<Vec<u8>, PicError> {
        let mut bytes = Vec::new();
        self.store.run::<R, ()>(&[one], |views| {
            views.into_iter().for_each(|view| bytes.extend_from_slice(cast_slice(view.read())));
        })?;
        self.store.passed(one.object)?;
        Ok(bytes)
    }
}

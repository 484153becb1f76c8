//! Where particles and fields live: the baselines, WarpX-PM's placement (section 7.4), and ours.
//!
//! WarpX-PM keeps fields in fast memory as far as they fit, beside what is short-lived, and brings particles tile by tile
//! into a zone of their own while the tiles before are worked on; what changed goes back behind. Ours is the same with what
//! is left over used, too: tiles stay in fast memory as long as there is room beside fields and migration.

use std::collections::{HashMap, HashSet};

use tiercel_core::{
    Bytes, Error, Manager, ObjectId, Operand, Place, RegionId, Step, TierId, Traffic, ZoneId,
};

use crate::store::{Kind, Placement};

/// Objects stay on the first tier of a list that has room for them when they are made.
pub struct Fixed {
    /// What it is called.
    pub name: &'static str,
    /// The tiers in order of preference.
    pub tiers: Vec<TierId>,
}

/// Takes memory for an object's first region from a tier, or from a zone of it.
fn settle(m: &mut Manager, object: ObjectId, tier: TierId, zone: ZoneId) -> Result<(), Error> {
    let size = m.size(object)?;
    let region = m.allocate_in(tier, zone, size).map_err(|_| m.no_room(object, tier))?;
    m.set_primary(object, region)
}

impl Placement for Fixed {
    fn name(&self) -> &str {
        self.name
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId, _: Kind) -> Result<(), Error> {
        let mut result = Ok(());
        for tier in &self.tiers {
            result = settle(m, object, *tier, ZoneId::MAIN);
            if result.is_ok() {
                break;
            }
        }
        result
    }
}

/// Fast memory as a direct-mapped cache of the slow one, in pages: what the hardware does in memory mode. The cache is an
/// emulation of its speed: bytes are on the slow tier, and kernels are charged for hits and misses.
pub struct Cached {
    /// Which page of slow memory each page of the cache holds, and whether it changed.
    pages: Vec<Option<(u64, bool)>>,
}

/// Pages in which the cache is followed: coarser than its lines, which passes over whole objects do not notice.
const PAGE: u64 = 4096;

impl Cached {
    /// An empty cache of this size.
    pub fn new(size: Bytes) -> Cached {
        Cached { pages: vec![None; (size.0 / PAGE).max(1) as usize] }
    }

    /// Bytes read from the slow tier, written to it, and found, when a stretch of slow memory is used.
    fn access(&mut self, place: Place, bytes: Bytes, writes: bool) -> [u64; 3] {
        let (mut read, mut written, mut found) = (0, 0, 0);
        let count = self.pages.len() as u64;
        for page in place.offset.0 / PAGE..(place.offset.0 + bytes.0).div_ceil(PAGE) {
            let slot = &mut self.pages[(page % count) as usize];
            match slot {
                Some((held, dirty)) if *held == page => {
                    *dirty |= writes;
                    found += PAGE;
                }
                _ => {
                    written += if matches!(slot, Some((_, true))) { PAGE } else { 0 };
                    read += PAGE;
                    *slot = Some((page, writes));
                }
            }
        }
        [read, written, found]
    }
}

impl Placement for Cached {
    fn name(&self) -> &str {
        "memory-mode"
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId, _: Kind) -> Result<(), Error> {
        let slowest = m.machine().slowest();
        settle(m, object, slowest, ZoneId::MAIN)
    }

    fn traffic(&mut self, m: &mut Manager, operands: &[Operand]) -> Option<Vec<Traffic>> {
        let (mut slow, mut fast) = ([0, 0], [0, 0]);
        for operand in operands {
            let Some(place) = m.place(operand.object) else { continue };
            let writes = operand.access.writes();
            let [read, written, found] = self.access(place, operand.bytes, writes);
            slow = [slow[0] + read, slow[1] + written];
            // Tags lie beside the lines: each access reads one, found or not. What is missed is filled in, and what goes is read.
            let touched = read + found;
            fast[0] += touched + written;
            fast[1] += read + if writes { touched } else { 0 };
        }
        m.count_cached(Bytes(slow[0]), Bytes(slow[1]));
        Some(vec![
            Traffic { tier: TierId(0), read: Bytes(fast[0]), write: Bytes(fast[1]) },
            Traffic { tier: m.machine().slowest(), read: Bytes(slow[0]), write: Bytes(slow[1]) },
        ])
    }
}

/// How fast memory is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zones {
    /// What is small, long-lived and often used: where tiles are and how many particles their cells have.
    pub metadata: Bytes,
    /// What lives within an iteration: currents around tiles, particles between tiles.
    pub temporaries: Bytes,
    /// Particles on their way: what comes, what is worked on and what goes. Nothing if particles stay where they are.
    pub migration: Bytes,
    /// Kept free for fields, which are made after the particles.
    pub fields: Bytes,
}

/// Fields in fast memory, and particles brought there tile by tile.
pub struct Ferry {
    name: &'static str,
    zones: Zones,
    /// The share of particles that stay in fast memory, as there is room beside everything else.
    stays: f64,
    /// The bytes that were to stay by now, and do not yet.
    credit: f64,
    kinds: HashMap<ObjectId, Kind>,
    /// Objects that are in the migration zone for a while.
    visiting: HashSet<ObjectId>,
    /// The zones, once they are carved.
    carved: Option<(ZoneId, Option<ZoneId>)>,
    /// By how much the short-lived has outgrown its zone, at most.
    overflow: Bytes,
}

impl Ferry {
    /// A placement of this name with these zones, under which such a share of particles stays.
    pub fn new(name: &'static str, zones: Zones, stays: f64) -> Ferry {
        let (kinds, visiting) = (HashMap::new(), HashSet::new());
        Ferry { name, zones, stays, credit: 0.0, kinds, visiting, carved: None, overflow: Bytes::ZERO }
    }

    /// Whether the next particles stay: as many as there is room for, evenly among those that cross, so that copies have all of
    /// a pass to be made beside.
    fn stay(&mut self, m: &Manager, size: Bytes) -> bool {
        self.credit += self.stays * size.0 as f64;
        let stays = self.stays > 0.0 && self.credit >= size.0 as f64 * 0.5 && self.leaves_room(m, size);
        if stays {
            self.credit -= size.0 as f64;
        }
        stays
    }

    /// The zones of fast memory, set aside when the first object is placed: the temporaries', and that of migration.
    fn carve(&mut self, m: &mut Manager) -> Result<(ZoneId, Option<ZoneId>), Error> {
        if let Some(carved) = self.carved {
            return Ok(carved);
        }
        let fast = TierId(0);
        let full = |m: &Manager, wanted: Bytes, what: &str| Error::Full {
            tier: m.machine().tier(fast).name.clone(),
            what: what.to_string(),
            wanted,
            free: m.space(fast).heap(ZoneId::MAIN).free_bytes(),
            largest: m.space(fast).heap(ZoneId::MAIN).largest_free(),
        };
        let set = |m: &mut Manager, name: &str, size: Bytes| {
            m.carve(fast, name, size).map_err(|_| full(m, size, name))
        };
        let migration = self.zones.migration;
        let migration = if migration > Bytes::ZERO { Some(set(m, "migration", migration)?) } else { None };
        if self.zones.metadata > Bytes::ZERO {
            set(m, "metadata", self.zones.metadata)?;
        }
        let temporaries = set(m, "temporaries", self.zones.temporaries.max(Bytes(64)))?;
        self.carved = Some((temporaries, migration));
        Ok((temporaries, migration))
    }

    /// Whether so many more bytes leave enough for the fields that are still to come.
    fn leaves_room(&self, m: &Manager, size: Bytes) -> bool {
        let free = m.space(TierId(0)).heap(ZoneId::MAIN).free_bytes();
        free >= size + self.zones.fields
    }

    /// Brings an object to fast memory; whether it is there now.
    fn fetch(&mut self, m: &mut Manager, object: ObjectId) -> Result<bool, Error> {
        let Some(home) = m.primary(object) else { return Ok(false) };
        if m.tier(home) == TierId(0) {
            return Ok(true);
        }
        let (_, Some(zone)) = self.carve(m)? else { return Ok(false) };
        let Ok(region) = m.allocate_in(TierId(0), zone, m.size_of(home)) else { return Ok(false) };
        self.bring(m, object, home, region)?;
        Ok(true)
    }

    /// Copies an object from its home to a region of fast memory, where it is from now on.
    fn bring(
        &mut self,
        m: &mut Manager,
        object: ObjectId,
        home: RegionId,
        region: RegionId,
    ) -> Result<(), Error> {
        if m.is_written(object) {
            m.copy(home, region)?;
        }
        m.link(home, region)?;
        m.set_primary(object, region)?;
        self.visiting.insert(object);
        Ok(())
    }

    /// Brings an object to fast memory although its zone is full, because a tile has more particles than it began with: those that
    /// wait for later kernels go back, and if that is not enough it gets what is free beside the zones.
    fn squeeze(&mut self, m: &mut Manager, object: ObjectId, operands: &[Operand]) -> Result<(), Error> {
        let mut others: Vec<ObjectId> = self.visiting.iter().copied().collect();
        others.retain(|other| operands.iter().all(|operand| operand.object != *other));
        others.sort_unstable();
        for other in others {
            self.leave(m, other)?;
        }
        if self.fetch(m, object)? {
            return Ok(());
        }
        let Some(home) = m.primary(object) else { return Ok(()) };
        let region = m.allocate_in(TierId(0), ZoneId::MAIN, m.size_of(home));
        let region = region.map_err(|_| m.no_room(object, TierId(0)))?;
        self.bring(m, object, home, region)
    }

    /// Sends an object back, its bytes only if they changed.
    fn leave(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        if !self.visiting.remove(&object) {
            return Ok(());
        }
        let Some(region) = m.primary(object) else { return Ok(()) };
        let slowest = m.machine().slowest();
        let Some(home) = m.region_on(object, slowest) else { return Ok(()) };
        if m.is_written(object) && !m.is_current(home) {
            m.copy(region, home)?;
        }
        m.set_primary(object, home)?;
        m.free(region)
    }
}

impl Placement for Ferry {
    fn name(&self) -> &str {
        self.name
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId, kind: Kind) -> Result<(), Error> {
        self.carve(m)?;
        self.kinds.insert(object, kind);
        let (size, slowest) = (m.size(object)?, m.machine().slowest());
        let fast = match kind {
            Kind::Fields => true,
            Kind::Particles => self.stay(m, size),
        };
        if kind == Kind::Fields {
            self.zones.fields = self.zones.fields.saturating_sub(size);
        }
        if fast && settle(m, object, TierId(0), ZoneId::MAIN).is_ok() {
            return Ok(());
        }
        settle(m, object, slowest, ZoneId::MAIN)
    }

    fn soon(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        if self.kinds.get(&object) == Some(&Kind::Particles) {
            self.fetch(m, object)?;
        }
        Ok(())
    }

    fn before(&mut self, m: &mut Manager, _: Step, operands: &[Operand]) -> Result<(), Error> {
        for operand in operands {
            let Some(tier) = m.home(operand.object) else { continue };
            if !m.machine().tier(tier).computable && !self.fetch(m, operand.object)? {
                self.squeeze(m, operand.object, operands)?;
            }
        }
        Ok(())
    }

    fn passed(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        self.leave(m, object)
    }

    fn retire(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        self.kinds.remove(&object);
        self.visiting.remove(&object);
        m.retire(object)
    }

    fn iteration_ended(&mut self, m: &mut Manager, temporaries: Bytes) -> Result<(), Error> {
        let (zone, _) = self.carve(m)?;
        let held = m.space(TierId(0)).heap(zone).capacity();
        if temporaries > held && !m.resize_zone(TierId(0), zone, temporaries) {
            self.overflow = self.overflow.max(temporaries.saturating_sub(held));
        }
        Ok(())
    }
}

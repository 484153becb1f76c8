//! Where Sentinel puts objects, and how it moves them: at the addresses that the schedule has for them, else in whole pages.

use tiercel_core::{Bytes, Error, Manager, ObjectId, Place, RegionId, TierId};

use super::Sentinel;
use super::flow::Profiled;
use super::schedule::Fetch;
use super::zone::{FAST, whole};
use crate::moves::{self, make_room};

impl Sentinel {
    /// Gives an object its first region, on the first of these tiers that has room.
    pub(super) fn put(&mut self, m: &mut Manager, object: ObjectId, tiers: &[TierId]) -> Result<(), Error> {
        let (size, page) = (m.size(object)?, self.page(m));
        if let Some(region) = tiers.iter().find_map(|tier| whole(m, *tier, size, page)) {
            return m.set_primary(object, region);
        }
        for tier in tiers {
            let mut region = m.allocate(*tier, size);
            if region.is_err() && make_room(m, self.pricing(), object, *tier)? {
                region = m.allocate(*tier, size);
            }
            if let Ok(region) = region {
                return m.set_primary(object, region);
            }
        }
        Err(m.no_room(object, m.machine().slowest()))
    }

    /// Puts an object that nothing is known of into slow memory: the slowest that kernels can work on.
    pub(super) fn put_unknown(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        let (mut work, mut rest): (Vec<TierId>, Vec<TierId>) =
            m.machine().tier_ids().partition(|tier| m.machine().tier(*tier).computable);
        work.reverse();
        work.append(&mut rest);
        self.put(m, object, &work)
    }

    /// Puts an object where the schedule wants it.
    pub(super) fn put_known(
        &mut self,
        m: &mut Manager,
        known: &Profiled,
        item: usize,
        object: ObjectId,
    ) -> Result<(), Error> {
        let (short, size) = (known.recording.items[item].is_short(), m.size(object)?);
        let place = known.schedule.offset(item, self.recorder.steps());
        let region = match place {
            _ if short => self.reserve.allocate(m, size),
            Some(offset) => m.allocate_at(Place { tier: FAST, offset }, size).ok(),
            None => None,
        };
        if let Some(region) = region {
            return m.set_primary(object, region);
        }
        let mut tiers: Vec<TierId> = m.machine().tier_ids().collect();
        if short || place.is_some() {
            self.deviations += 1;
        } else {
            tiers.rotate_left(1);
        }
        self.put(m, object, &tiers)
    }

    /// Sends an object to slower memory.
    pub(super) fn send(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        let Some(x) = m.primary(object).filter(|x| m.tier(*x) == FAST && !m.in_use(object)) else {
            return Ok(());
        };
        let slower: Vec<TierId> = m.machine().tier_ids().filter(|tier| *tier > FAST).collect();
        if slower.is_empty() {
            return Ok(());
        }
        if slower.iter().all(|tier| m.region_on(object, *tier).is_none()) {
            let (size, page) = (m.size_of(x), self.page(m));
            if let Some(y) = slower.iter().find_map(|tier| whole(m, *tier, size, page)) {
                m.link(x, y)?;
            }
        }
        match moves::evict(m, self.pricing(), object) {
            // Nowhere to go: it stays.
            Err(Error::Full { .. }) => {
                self.deviations += 1;
                Ok(())
            }
            result => result,
        }
    }

    /// Takes an object out of fast memory, whether its current bytes are there or not.
    pub(super) fn clear(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        match m.region_on(object, FAST) {
            Some(region) if m.primary(object) != Some(region) => m.free(region),
            _ => self.send(m, object),
        }
    }

    /// Brings one object to its place in fast memory; says whether it is there.
    pub(super) fn bring(&mut self, m: &mut Manager, object: ObjectId, offset: Bytes) -> Result<bool, Error> {
        let Some(x) = m.primary(object).filter(|x| m.tier(*x) != FAST) else { return Ok(true) };
        if m.in_use(object) {
            return Ok(false);
        }
        self.clear(m, object)?;
        let Ok(y) = m.allocate_at(Place { tier: FAST, offset }, m.size_of(x)) else { return Ok(false) };
        self.settle_in(m, object, x, y)?;
        Ok(true)
    }

    /// Moves an object from one region to a new one in fast memory; the one that it leaves stays linked.
    pub(super) fn settle_in(
        &mut self,
        m: &mut Manager,
        object: ObjectId,
        x: RegionId,
        y: RegionId,
    ) -> Result<(), Error> {
        if m.is_written(object) {
            m.copy(x, y)?;
        }
        m.link(x, y)?;
        m.set_primary(object, y)?;
        self.recency.get_mut().moved(object, FAST);
        Ok(())
    }

    /// Brings all objects of a unit; says whether they are there.
    pub(super) fn bring_unit(
        &mut self,
        m: &mut Manager,
        known: &Profiled,
        fetch: &Fetch,
    ) -> Result<bool, Error> {
        let mut all = true;
        for (item, offset) in &known.schedule.units[fetch.unit].items {
            let Some(object) = self.recorder.object(known.recording.items[*item].key) else { continue };
            all &= self.bring(m, object, fetch.offset + *offset)?;
        }
        if all {
            self.fetched.push((fetch.interval, fetch.unit));
        }
        Ok(all)
    }
}

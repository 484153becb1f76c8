//! The order in which objects were last used, tier by tier, with archived ones before all others.
//!
//! Touching, archiving, moving and removing take constant time. Every object carries the number of its last touch,
//! which gives [`Recency::price`]: what it costs to lose a region, so that the cheapest window is the one that a
//! least-recently-used order would give up.

use tiercel_core::{Bytes, ObjectId, TierId};

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    object: Option<ObjectId>,
    tier: TierId,
    archived: bool,
    stamp: u64,
    older: u32,
    newer: u32,
}

const VACANT: Entry =
    Entry { object: None, tier: TierId(0), archived: false, stamp: 0, older: NONE, newer: NONE };

/// One order from the oldest to the newest.
#[derive(Clone, Copy, Debug)]
struct Order {
    oldest: u32,
    newest: u32,
}

const EMPTY: Order = Order { oldest: NONE, newest: NONE };

/// Remembers when objects were last used.
#[derive(Clone, Debug, Default)]
pub struct Recency {
    entries: Vec<Entry>,
    /// For each tier, the objects in use and the archived ones.
    orders: Vec<[Order; 2]>,
    stamp: u64,
}

/// Added to the price of every object that is not archived, so that no number of archived ones costs more.
const LIVE: u64 = 1 << 56;

impl Recency {
    /// The object, which lives on this tier, is used now; it is no longer archived.
    #[inline]
    pub fn touch(&mut self, object: ObjectId, tier: TierId) {
        self.stamp += 1;
        let newest = self.orders.get(tier.index()).map_or(NONE, |[live, _]| live.newest);
        if newest != NONE && self.entries[newest as usize].object == Some(object) {
            self.entries[newest as usize].stamp = self.stamp;
            return;
        }
        self.set(object, tier, false);
    }

    /// The object, which lives on this tier, will not be used for a while.
    pub fn archive(&mut self, object: ObjectId, tier: TierId) {
        self.stamp += 1;
        self.set(object, tier, true);
    }

    /// The object has moved to another tier.
    pub fn moved(&mut self, object: ObjectId, tier: TierId) {
        self.stamp += 1;
        let archived = self.entry(object).is_some_and(|entry| entry.archived);
        self.set(object, tier, archived);
    }

    /// The object is gone.
    pub fn remove(&mut self, object: ObjectId) {
        if self.entry(object).is_some() {
            self.unhook(object.index() as u32);
            self.entries[object.index()] = VACANT;
        }
    }

    /// The objects of a tier: archived ones first, and the longest unused first among equals.
    pub fn coldest(&self, tier: TierId) -> impl Iterator<Item = ObjectId> + '_ {
        let walk = |order: Order| {
            let start = Some(order.oldest).filter(|o| *o != NONE);
            std::iter::successors(start, |at| Some(self.entries[*at as usize].newer).filter(|n| *n != NONE))
        };
        let [live, archived] = self.orders.get(tier.index()).copied().unwrap_or([EMPTY; 2]);
        let slots = walk(archived).chain(walk(live));
        slots.filter_map(|slot| self.entries[slot as usize].object)
    }

    /// What it costs to lose a region of an object: more the later it was used and the larger it is, and always
    /// more for one that is in use than for any that are archived.
    pub fn price(&self, object: ObjectId, size: Bytes) -> u64 {
        let Some(entry) = self.entry(object) else { return 0 };
        let order = self.orders[entry.tier.index()][usize::from(entry.archived)];
        let oldest = self.entries[order.oldest as usize].stamp;
        let age = (entry.stamp - oldest + 1).saturating_mul((size.0 >> 10) + 1).min(LIVE >> 16);
        if entry.archived { age } else { LIVE + age }
    }

    fn entry(&self, object: ObjectId) -> Option<&Entry> {
        self.entries.get(object.index()).filter(|entry| entry.object == Some(object))
    }

    fn order(&mut self, tier: TierId, archived: bool) -> &mut Order {
        if tier.index() >= self.orders.len() {
            self.orders.resize(tier.index() + 1, [EMPTY; 2]);
        }
        &mut self.orders[tier.index()][usize::from(archived)]
    }

    /// Makes the object the newest of its order.
    fn set(&mut self, object: ObjectId, tier: TierId, archived: bool) {
        let slot = object.index();
        if slot >= self.entries.len() {
            self.entries.resize(slot + 1, VACANT);
        }
        if self.entries[slot].object.is_some() {
            self.unhook(slot as u32);
        }
        let stamp = self.stamp;
        let order = self.order(tier, archived);
        let older = std::mem::replace(&mut order.newest, slot as u32);
        if older == NONE {
            order.oldest = slot as u32;
        } else {
            self.entries[older as usize].newer = slot as u32;
        }
        self.entries[slot] = Entry { object: Some(object), tier, archived, stamp, older, newer: NONE };
    }

    fn unhook(&mut self, slot: u32) {
        let Entry { older, newer, archived, tier, .. } = self.entries[slot as usize];
        match newer {
            NONE => self.order(tier, archived).newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => self.order(tier, archived).oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }
}

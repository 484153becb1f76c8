//! The order in which objects were last used, with archived ones before all others.
//!
//! Touching, archiving and removing take constant time. Every object carries the number of its last touch, which
//! gives [`Recency::price`]: what it costs to lose a region, so that the cheapest window is the one that a
//! least-recently-used order would give up.

use tiercel_core::{Bytes, ObjectId};

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    object: Option<ObjectId>,
    archived: bool,
    stamp: u64,
    older: u32,
    newer: u32,
}

const VACANT: Entry = Entry { object: None, archived: false, stamp: 0, older: NONE, newer: NONE };

/// One order from the oldest to the newest.
#[derive(Clone, Copy, Debug)]
struct Order {
    oldest: u32,
    newest: u32,
}

/// Remembers when objects were last used.
#[derive(Clone, Debug)]
pub struct Recency {
    entries: Vec<Entry>,
    live: Order,
    archived: Order,
    stamp: u64,
}

impl Default for Recency {
    fn default() -> Recency {
        let empty = Order { oldest: NONE, newest: NONE };
        Recency { entries: Vec::new(), live: empty, archived: empty, stamp: 0 }
    }
}

/// Added to the price of every object that is not archived, so that no number of archived ones costs more.
const LIVE: u64 = 1 << 56;

impl Recency {
    /// The object is used now; it is no longer archived.
    #[inline]
    pub fn touch(&mut self, object: ObjectId) {
        let newest = self.live.newest;
        self.stamp += 1;
        if newest != NONE && self.entries[newest as usize].object == Some(object) {
            self.entries[newest as usize].stamp = self.stamp;
            return;
        }
        self.set(object, false);
    }

    /// The object will not be used for a while.
    pub fn archive(&mut self, object: ObjectId) {
        self.stamp += 1;
        self.set(object, true);
    }

    /// The object is gone.
    pub fn remove(&mut self, object: ObjectId) {
        let slot = object.index();
        if self.entries.get(slot).is_some_and(|e| e.object == Some(object)) {
            self.unhook(slot as u32);
            self.entries[slot] = VACANT;
        }
    }

    /// All objects: archived ones first, and the longest unused first among equals.
    pub fn coldest(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let walk = |order: Order| {
            let start = Some(order.oldest).filter(|o| *o != NONE);
            std::iter::successors(start, |at| Some(self.entries[*at as usize].newer).filter(|n| *n != NONE))
        };
        let slots = walk(self.archived).chain(walk(self.live));
        slots.filter_map(|slot| self.entries[slot as usize].object)
    }

    /// What it costs to lose a region of an object: more the later it was used and the larger it is, and always
    /// more for one that is in use than for any that are archived.
    pub fn price(&self, object: ObjectId, size: Bytes) -> u64 {
        let Some(entry) = self.entries.get(object.index()).filter(|e| e.object == Some(object)) else {
            return 0;
        };
        let order = if entry.archived { self.archived } else { self.live };
        let oldest = self.entries[order.oldest as usize].stamp;
        let age = (entry.stamp - oldest + 1).saturating_mul((size.0 >> 10) + 1).min(LIVE >> 16);
        if entry.archived { age } else { LIVE + age }
    }

    fn set(&mut self, object: ObjectId, archived: bool) {
        let slot = object.index();
        if slot >= self.entries.len() {
            self.entries.resize(slot + 1, VACANT);
        }
        if self.entries[slot].object.is_some() {
            self.unhook(slot as u32);
        }
        let order = if archived { &mut self.archived } else { &mut self.live };
        let older = order.newest;
        self.entries[slot] = Entry { object: Some(object), archived, stamp: self.stamp, older, newer: NONE };
        match older {
            NONE => order.oldest = slot as u32,
            older => self.entries[older as usize].newer = slot as u32,
        }
        order.newest = slot as u32;
    }

    fn unhook(&mut self, slot: u32) {
        let Entry { older, newer, archived, .. } = self.entries[slot as usize];
        let order = if archived { &mut self.archived } else { &mut self.live };
        match newer {
            NONE => order.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => order.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }
}

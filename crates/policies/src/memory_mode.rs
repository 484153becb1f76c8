//! Fast memory as a hardware cache of the slow tier: direct-mapped, write-back, write-allocate.
//!
//! What the papers call memory mode or 2LM (CachedArrays section IV-A): the program sees the slow tier alone, and
//! the hardware keeps copies of its blocks in the fast tier. Every object lives on the slowest tier, so its bytes are
//! always right; what the cache holds decides how much traffic each kernel causes on either tier. On real memory
//! that is an emulation of the cache's speed, and reports say so.
//!
//! The cache is kept as ranges that behave alike, not block by block, and is still exact to the block: an access
//! costs as much as the number of ranges that it meets.

use std::collections::BTreeMap;

use tiercel_core::{Bytes, Error, Hint, Manager, ObjectId, Operand, Policy, Step, TierId, Traffic};

use crate::garbage::Garbage;

/// The size of a cache block: one line of the memory controller.
const BLOCK: u64 = 64;

/// Passes over an object that are followed through the cache; more repeat the last of them.
const PASSES: u64 = 4;

/// A stretch of the cache, from its key to `end`, that holds blocks of one stretch of the slow tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    end: u64,
    /// Which of the stretches that map to this place it holds: the address divided by the cache's size.
    turn: u64,
    dirty: bool,
}

/// What an access met, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Found in the cache.
    pub hits: u64,
    /// Not found, and nothing had to be written back for it.
    pub clean_misses: u64,
    /// Not found, and something dirty had to be written back for it.
    pub dirty_misses: u64,
}

/// A direct-mapped cache, kept as ranges.
#[derive(Clone, Debug)]
pub struct DirectMapped {
    size: u64,
    ranges: BTreeMap<u64, Range>,
}

impl DirectMapped {
    /// An empty cache of this size, rounded down to whole blocks.
    pub fn new(size: Bytes) -> DirectMapped {
        DirectMapped { size: size.0 / BLOCK * BLOCK, ranges: BTreeMap::new() }
    }

    /// Reads or writes a stretch of the slow tier through the cache.
    pub fn access(&mut self, address: u64, bytes: u64, write: bool) -> Outcome {
        let mut outcome = Outcome::default();
        let (mut at, end) = (address / BLOCK * BLOCK, (address + bytes).next_multiple_of(BLOCK));
        while at < end {
            let (turn, slot) = (at / self.size, at % self.size);
            let stretch = (end - at).min(self.size - slot);
            self.access_slots(slot, slot + stretch, turn, write, &mut outcome);
            at += stretch;
        }
        outcome
    }

    fn access_slots(&mut self, from: u64, to: u64, turn: u64, write: bool, outcome: &mut Outcome) {
        self.cut(from);
        self.cut(to);
        let met: Vec<(u64, Range)> =
            self.ranges.range(from..to).map(|(start, range)| (*start, *range)).collect();
        let mut missing = to - from;
        // What stays dirty although the access only reads.
        let mut kept_dirty = Vec::new();
        for (start, range) in met {
            let length = range.end - start;
            missing -= length;
            match (range.turn == turn, range.dirty) {
                (true, dirty) => {
                    outcome.hits += length;
                    if dirty && !write {
                        kept_dirty.push((start, range.end));
                    }
                }
                (false, true) => outcome.dirty_misses += length,
                (false, false) => outcome.clean_misses += length,
            }
            self.ranges.remove(&start);
        }
        outcome.clean_misses += missing;
        let mut at = from;
        for (start, end) in kept_dirty {
            self.put(at, start, turn, write);
            self.put(start, end, turn, true);
            at = end;
        }
        self.put(at, to, turn, write);
        self.join(from);
        self.join(to);
    }

    /// Makes sure that no range reaches over this slot.
    fn cut(&mut self, slot: u64) {
        let over = self.ranges.range_mut(..slot).next_back().filter(|(_, range)| range.end > slot);
        if let Some((_, range)) = over {
            let rest = *range;
            range.end = slot;
            self.ranges.insert(slot, rest);
        }
    }

    /// Adds a range, joined to the one before if they are alike.
    fn put(&mut self, start: u64, end: u64, turn: u64, dirty: bool) {
        if start < end {
            self.ranges.insert(start, Range { end, turn, dirty });
            self.join(start);
        }
    }

    /// Joins the range that starts at a slot with the one that ends there, if they are alike.
    fn join(&mut self, slot: u64) {
        let Some(after) = self.ranges.get(&slot).copied() else { return };
        let before = self.ranges.range_mut(..slot).next_back();
        if let Some((_, before)) = before.filter(|(_, before)| {
            before.end == slot && (before.turn, before.dirty) == (after.turn, after.dirty)
        }) {
            before.end = after.end;
            self.ranges.remove(&slot);
        }
    }
}

/// Everything on the slowest tier, with the fastest as its cache.
#[derive(Clone, Debug)]
pub struct MemoryMode {
    eager: bool,
    cache: Option<DirectMapped>,
    /// Where the next sparse access to each object begins.
    cursors: Vec<u64>,
    garbage: Garbage,
}

impl MemoryMode {
    /// The cache under a program that frees memory as soon as it can (`eager`, the paper's 2LM: M) or only between
    /// iterations (2LM: ∅).
    pub fn new(eager: bool) -> MemoryMode {
        MemoryMode { eager, cache: None, cursors: Vec::new(), garbage: Garbage::default() }
    }

    /// What an operand meets in the cache.
    fn access(&mut self, m: &Manager, operand: &Operand, write: bool) -> Outcome {
        let (Some(place), Ok(size)) = (m.place(operand.object), m.size(operand.object)) else {
            return Outcome::default();
        };
        let capacity = m.machine().tiers[0].capacity;
        let cache = self.cache.get_or_insert_with(|| DirectMapped::new(capacity));
        if operand.bytes < size {
            // Rows here and there: each time other ones.
            let slot = operand.object.index();
            if slot >= self.cursors.len() {
                self.cursors.resize(slot + 1, 0);
            }
            let start = self.cursors[slot] % size.0;
            self.cursors[slot] = start + operand.bytes.0;
            let first = operand.bytes.0.min(size.0 - start);
            let mut outcome = cache.access(place.offset.0 + start, first, write);
            outcome.add(cache.access(place.offset.0, operand.bytes.0 - first, write));
            return outcome;
        }
        let mut left = operand.bytes.0;
        let mut total = Outcome::default();
        for _ in 0..PASSES {
            let pass = left.min(size.0);
            if pass == 0 {
                return total;
            }
            total.add(cache.access(place.offset.0, pass, write));
            left -= pass;
        }
        let mut last = cache.access(place.offset.0, size.0.min(left), write);
        last.scale(left, size.0.min(left).max(1));
        total.add(last);
        total
    }
}

impl Outcome {
    fn add(&mut self, other: Outcome) {
        self.hits += other.hits;
        self.clean_misses += other.clean_misses;
        self.dirty_misses += other.dirty_misses;
    }

    fn scale(&mut self, by: u64, over: u64) {
        for bytes in [&mut self.hits, &mut self.clean_misses, &mut self.dirty_misses] {
            *bytes = (u128::from(*bytes) * u128::from(by) / u128::from(over)) as u64;
        }
    }
}

impl Policy for MemoryMode {
    fn name(&self) -> &str {
        "memory-mode"
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        let (slowest, size) = (m.machine().slowest(), m.size(object)?);
        let region = match m.allocate(slowest, size) {
            Ok(region) => region,
            Err(_) => {
                self.garbage.collect(m, |_| ())?;
                m.allocate(slowest, size).map_err(|_| m.no_room(object, slowest))?
            }
        };
        m.set_primary(object, region)
    }

    fn hint(&mut self, m: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error> {
        match hint {
            Hint::Retire if !m.contains(object) => Ok(()),
            Hint::Retire if self.eager => m.retire(object),
            Hint::Retire => {
                self.garbage.add(object);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Nothing moves: the cache is below the level of objects. A machine whose slow tier kernels cannot work on has
    /// no memory mode, and the manager says so when the kernel begins.
    fn before(&mut self, _: &mut Manager, _: Step, _: &[Operand]) -> Result<(), Error> {
        Ok(())
    }

    fn iteration_ended(&mut self, m: &mut Manager) -> Result<(), Error> {
        self.garbage.collect(m, |_| ()).map(|_| ())
    }

    /// A hit is served by the fast tier. A miss is read from the slow tier, written into the fast one and served from
    /// there; if what it replaces is dirty, that is read from the fast tier and written to the slow one.
    fn traffic(&mut self, m: &mut Manager, operands: &[Operand]) -> Option<Vec<Traffic>> {
        let mut fast = Traffic { tier: TierId(0), read: Bytes::ZERO, write: Bytes::ZERO };
        let mut slow = Traffic { tier: m.machine().slowest(), ..fast };
        let reads = operands.iter().filter(|o| o.access.reads()).map(|o| (o, false));
        let writes = operands.iter().filter(|o| o.access.writes()).map(|o| (o, true));
        for (operand, write) in reads.chain(writes) {
            let Outcome { hits, clean_misses, dirty_misses } = self.access(m, operand, write);
            let misses = clean_misses + dirty_misses;
            *(if write { &mut fast.write } else { &mut fast.read }) += Bytes(hits + misses);
            slow.read += Bytes(misses);
            fast.write += Bytes(misses);
            fast.read += Bytes(dirty_misses);
            slow.write += Bytes(dirty_misses);
        }
        m.count_cached(slow.read, slow.write);
        Some(vec![fast, slow])
    }
}

//! The memory of one tier: a heap, and named carve-outs of it with limits of their own.
//!
//! A zone is one contiguous stretch with its own heap, so that what happens outside never fragments it: the space
//! that Sentinel sets aside for short-lived objects (section IV-C), and every other piece of fast memory that a
//! system reserves.

use crate::error::Unsound;
use crate::heap::{BlockId, End, Heap, Window};
use crate::units::Bytes;

/// Names a zone of one tier; [`ZoneId::MAIN`] is the tier's memory outside all zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct ZoneId(u8);

impl ZoneId {
    /// The tier's memory outside all zones.
    pub const MAIN: ZoneId = ZoneId(0);

    /// A small number that no other zone of the same tier has.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Marks pieces of the main heap that belong to zones; no region has such a number.
const CARVED: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Zone {
    name: String,
    block: BlockId,
    base: Bytes,
    heap: Heap,
}

/// The memory of one tier.
#[derive(Clone, Debug)]
pub struct Space {
    main: Heap,
    zones: Vec<Option<Zone>>,
}

impl Space {
    /// Memory of this capacity without zones.
    pub fn new(capacity: Bytes, grain: Bytes) -> Space {
        Space { main: Heap::new(capacity, grain), zones: Vec::new() }
    }

    /// Sets `size` bytes aside under a name; `None` where no free piece of the main heap is large enough.
    pub fn carve(&mut self, name: &str, size: Bytes) -> Option<ZoneId> {
        if self.is_cut_up() {
            return None;
        }
        let block = self.main.allocate(size, CARVED)?;
        Some(self.set_aside(name, block))
    }

    /// Sets `size` bytes at a given offset aside under a name; `None` where they are not free.
    pub fn carve_at(&mut self, name: &str, offset: Bytes, size: Bytes) -> Option<ZoneId> {
        if self.is_cut_up() {
            return None;
        }
        let block = self.main.allocate_at(offset, size, CARVED)?;
        Some(self.set_aside(name, block))
    }

    /// Whether there are as many zones as there can be.
    fn is_cut_up(&self) -> bool {
        self.zones.iter().flatten().count() >= usize::from(u8::MAX)
    }

    fn set_aside(&mut self, name: &str, block: BlockId) -> ZoneId {
        let vacant = self.zones.iter().position(Option::is_none).unwrap_or(self.zones.len());
        let id = ZoneId(vacant as u8 + 1);
        self.main.pin(block);
        let (base, size) = (self.main.offset(block), self.main.size(block));
        let heap = Heap::new(size, self.main.grain());
        let zone = Some(Zone { name: name.to_string(), block, base, heap });
        match self.zones.get_mut(vacant) {
            Some(slot) => *slot = zone,
            None => self.zones.push(zone),
        }
        id
    }

    /// Gives a zone another limit; `false`, and nothing changes, where what is in it, or behind it, is in the way.
    pub fn resize(&mut self, id: ZoneId, limit: Bytes) -> bool {
        let Some(limit) = Bytes(limit.0.max(1)).round_up(self.main.grain()) else { return false };
        let Space { main, zones } = self;
        let zone = zones[usize::from(id.0) - 1].as_mut().expect("the zone exists");
        let grown = limit <= zone.heap.capacity() || main.resize_block(zone.block, limit);
        grown && zone.heap.resize(limit) && main.resize_block(zone.block, limit)
    }

    /// Gives a zone's memory back to the main heap; `false`, and nothing changes, where something is in it.
    pub fn dissolve(&mut self, id: ZoneId) -> bool {
        let slot = &mut self.zones[usize::from(id.0) - 1];
        let Some(zone) = slot.take_if(|zone| zone.heap.pieces() == 0) else { return false };
        self.main.unpin(zone.block);
        self.main.free(zone.block);
        true
    }

    /// The zone with this name.
    pub fn zone_named(&self, name: &str) -> Option<ZoneId> {
        let is = |zone: &Option<Zone>| zone.as_ref().is_some_and(|z| z.name == name);
        self.zones.iter().position(is).map(|i| ZoneId(i as u8 + 1))
    }

    /// The heap of a zone, or of the tier outside all zones. Offsets inside a zone count from its base.
    pub fn heap(&self, id: ZoneId) -> &Heap {
        match id {
            ZoneId::MAIN => &self.main,
            id => &self.zone(id).heap,
        }
    }

    /// The name of a zone; the memory outside all zones has none.
    pub fn name(&self, id: ZoneId) -> &str {
        if id == ZoneId::MAIN { "" } else { &self.zone(id).name }
    }

    /// Where a zone starts in its tier.
    pub fn base(&self, id: ZoneId) -> Bytes {
        if id == ZoneId::MAIN { Bytes::ZERO } else { self.zone(id).base }
    }

    /// Takes memory from a zone.
    pub fn allocate(&mut self, id: ZoneId, size: Bytes, tag: u32) -> Option<BlockId> {
        self.heap_mut(id).allocate(size, tag)
    }

    /// Takes whole units (pages, say) from a zone, as many as hold `size` bytes.
    pub fn allocate_whole(
        &mut self,
        id: ZoneId,
        size: Bytes,
        unit: Bytes,
        end: End,
        tag: u32,
    ) -> Option<BlockId> {
        self.heap_mut(id).allocate_whole(size, unit, end, tag)
    }

    /// Takes memory at a given offset of the tier, in whichever zone that lies.
    pub fn allocate_at(&mut self, offset: Bytes, size: Bytes, tag: u32) -> Option<(ZoneId, BlockId)> {
        let inside = |zone: &Zone| zone.base <= offset && offset < zone.base + zone.heap.capacity();
        let found = self.zones.iter().position(|zone| zone.as_ref().is_some_and(inside));
        let id = found.map_or(ZoneId::MAIN, |i| ZoneId(i as u8 + 1));
        let base = self.base(id);
        self.heap_mut(id).allocate_at(offset - base, size, tag).map(|block| (id, block))
    }

    /// Gives memory back to its zone.
    pub fn free(&mut self, id: ZoneId, block: BlockId) {
        self.heap_mut(id).free(block);
    }

    /// Keeps a piece out of every window until it is unpinned.
    pub fn pin(&mut self, id: ZoneId, block: BlockId) {
        self.heap_mut(id).pin(block);
    }

    /// Takes one pin back.
    pub fn unpin(&mut self, id: ZoneId, block: BlockId) {
        self.heap_mut(id).unpin(block);
    }

    /// Where a piece starts in the tier.
    pub fn offset(&self, id: ZoneId, block: BlockId) -> Bytes {
        self.base(id) + self.heap(id).offset(block)
    }

    /// The cheapest stretch to vacate in a zone, with its offset in the tier: around each of `seeds`, or anywhere
    /// where there are none.
    pub fn cheapest_window(
        &self,
        id: ZoneId,
        size: Bytes,
        seeds: &[BlockId],
        mut price: impl FnMut(u32) -> Option<u64>,
    ) -> Option<Window> {
        let heap = self.heap(id);
        let found = if seeds.is_empty() {
            heap.cheapest_window(size, price)
        } else {
            let around = seeds.iter().filter_map(|seed| heap.cheapest_window_around(*seed, size, &mut price));
            around.min_by_key(|window| (window.cost, window.offset))
        };
        found.map(|window| Window { offset: self.base(id) + window.offset, ..window })
    }

    /// All the memory of the tier.
    pub fn capacity(&self) -> Bytes {
        self.main.capacity()
    }

    /// Bytes that regions hold, inside and outside zones.
    pub fn used(&self) -> Bytes {
        let zones: Bytes = self.zones.iter().flatten().map(|z| z.heap.used()).sum();
        self.main.used() - self.carved() + zones
    }

    /// How many regions there are, inside and outside zones.
    pub fn pieces(&self) -> usize {
        let zones = self.zones.iter().flatten();
        self.main.pieces() + zones.map(|z| z.heap.pieces()).sum::<usize>()
            - self.zones.iter().flatten().count()
    }

    /// The tags of all regions: outside zones first, then zone by zone, in address order.
    pub fn tags(&self) -> impl Iterator<Item = u32> + '_ {
        let heaps = std::iter::once(&self.main).chain(self.zones.iter().flatten().map(|z| &z.heap));
        heaps.flat_map(|heap| heap.used_blocks().map(|b| heap.tag(b))).filter(|tag| *tag != CARVED)
    }

    /// Verifies every heap and that each zone's heap is just the stretch set aside for it.
    pub fn check(&self) -> Result<(), Unsound> {
        self.main.check()?;
        for zone in self.zones.iter().flatten() {
            zone.heap.check().map_err(|e| Unsound(format!("zone {}: {e}", zone.name)))?;
            let set_aside = (self.main.offset(zone.block), self.main.size(zone.block));
            if set_aside != (zone.base, zone.heap.capacity()) || self.main.tag(zone.block) != CARVED {
                return Err(Unsound(format!(
                    "zone {} does not fill the stretch set aside for it",
                    zone.name
                )));
            }
        }
        Ok(())
    }

    fn carved(&self) -> Bytes {
        self.zones.iter().flatten().map(|z| z.heap.capacity()).sum()
    }

    fn zone(&self, id: ZoneId) -> &Zone {
        self.zones[usize::from(id.0) - 1].as_ref().expect("the zone exists")
    }

    fn heap_mut(&mut self, id: ZoneId) -> &mut Heap {
        match id {
            ZoneId::MAIN => &mut self.main,
            id => &mut self.zones[usize::from(id.0) - 1].as_mut().expect("the zone exists").heap,
        }
    }
}

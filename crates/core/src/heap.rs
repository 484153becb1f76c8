//! The allocator over one stretch of memory: offsets only, never pointers.
//!
//! Free pieces lie in lists by size class (32 classes to each power of two) with a bitmap over the lists, and all
//! pieces form a chain in address order, so that allocating, freeing and joining neighbours take constant time.
//! Allocation succeeds whenever some free piece is large enough.
//!
//! The data manager of CachedArrays (section III-D) frees a contiguous stretch by evicting the neighbours of a
//! victim. Here the policy prices every piece and [`Heap::cheapest_window`] names the stretch that costs least.

use std::collections::VecDeque;

use crate::error::Unsound;
use crate::units::Bytes;

/// A piece that the heap has handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockId(u32);

/// Which part of the free memory to take a piece from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Wherever it fits closely, in constant time.
    Near,
    /// As far back as it fits, so that what is in front stays free; takes time in proportion to the pieces behind.
    Far,
}

/// A stretch of the heap to vacate, and what that costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Where it starts.
    pub offset: Bytes,
    /// How long it is.
    pub bytes: Bytes,
    /// The sum of the prices of the pieces to vacate.
    pub cost: u128,
    /// The tags of the pieces to vacate, in address order.
    pub tags: Vec<u32>,
}

const NONE: u32 = u32::MAX;
/// Bits of a size that tell classes of one power of two apart.
const FINE: u32 = 5;
const FINE_CLASSES: usize = 1 << FINE;
const COARSE_CLASSES: usize = 64 - FINE as usize + 1;
/// How many pieces of the size's own class are looked at before a larger class is taken.
const PROBES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In a list of free pieces.
    Free,
    /// Handed out.
    Used,
    /// Not a piece at all: a slot to use again.
    Spare,
}

#[derive(Clone, Debug)]
struct Block {
    offset: u64,
    size: u64,
    /// Neighbours in address order.
    before: u32,
    after: u32,
    /// Neighbours in the list of free pieces of this class, or in the list of spare slots.
    previous: u32,
    next: u32,
    tag: u32,
    pins: u32,
    state: State,
}

/// The allocator over one stretch of memory.
#[derive(Clone, Debug)]
pub struct Heap {
    grain: u64,
    capacity: u64,
    used: u64,
    pieces: usize,
    free_pieces: usize,
    blocks: Vec<Block>,
    spare: u32,
    last: u32,
    heads: Vec<u32>,
    coarse: u64,
    fine: [u32; COARSE_CLASSES],
}

impl Heap {
    /// A heap over `capacity` bytes (a rest that is no whole grain is left out) that hands out multiples of
    /// `grain`.
    pub fn new(capacity: Bytes, grain: Bytes) -> Heap {
        assert!(grain.0.is_power_of_two(), "a grain is a power of two, not {}", grain.0);
        let capacity = capacity.0 / grain.0 * grain.0;
        let mut heap = Heap {
            grain: grain.0,
            capacity,
            used: 0,
            pieces: 0,
            free_pieces: 0,
            blocks: Vec::new(),
            spare: NONE,
            last: NONE,
            heads: vec![NONE; COARSE_CLASSES * FINE_CLASSES],
            coarse: 0,
            fine: [0; COARSE_CLASSES],
        };
        if capacity > 0 {
            let all = heap.slot(0, capacity);
            heap.last = all;
            heap.insert(all);
        }
        heap
    }

    /// Takes `size` bytes, rounded up to the grain, from a free piece that fits closely; `tag` is the caller's own
    /// mark. `None` where no free piece is large enough.
    pub fn allocate(&mut self, size: Bytes, tag: u32) -> Option<BlockId> {
        let size = self.rounded(size)?;
        let block = self.find(size)?;
        self.remove(block);
        self.cut_tail(block, size);
        Some(self.hand_out(block, tag))
    }

    /// Takes `size` bytes at just this offset; `None` where they are not free.
    pub fn allocate_at(&mut self, offset: Bytes, size: Bytes, tag: u32) -> Option<BlockId> {
        let size = self.rounded(size)?;
        let (start, end) = (offset.0, offset.0.checked_add(size)?);
        if !start.is_multiple_of(self.grain) {
            return None;
        }
        let holds = |block: &Block| block.offset <= start && end <= block.offset + block.size;
        let found = self.free_from(size).find(|block| holds(&self.blocks[*block as usize]));
        found.map(|block| self.take(block, start, size, tag))
    }

    /// Takes whole units (pages, say): a piece that starts at a multiple of `unit`, a power of two, and fills
    /// multiples of it, so that it shares no unit with any other piece.
    pub fn allocate_whole(&mut self, size: Bytes, unit: Bytes, end: End, tag: u32) -> Option<BlockId> {
        let unit = unit.0.max(self.grain);
        let size = self.rounded(Bytes(size.0.max(1)).round_up(Bytes(unit))?)?;
        let start = |block: u32| {
            let Block { offset, size: length, .. } = self.blocks[block as usize];
            let least = offset.next_multiple_of(unit);
            let most = (offset + length).checked_sub(size)? / unit * unit;
            (least <= most).then_some(if end == End::Near { least } else { most })
        };
        let (block, start) = match end {
            // A piece that is longer by all that alignment can cost fits wherever it starts.
            End::Near => {
                let ample = size.checked_add(unit - self.grain).and_then(|ample| self.find(ample));
                let close = || self.free_from(size).find_map(|block| Some((block, start(block)?)));
                ample.and_then(|block| Some((block, start(block)?))).or_else(close)?
            }
            End::Far => {
                self.find(size)?;
                let last = Some(self.last).filter(|last| *last != NONE);
                let before = |b: &u32| Some(self.blocks[*b as usize].before).filter(|n| *n != NONE);
                let free = |b: &u32| self.blocks[*b as usize].state == State::Free;
                let pieces = std::iter::successors(last, before).filter(free);
                pieces.filter_map(|block| Some((block, start(block)?))).next()?
            }
        };
        Some(self.take(block, start, size, tag))
    }

    /// Gives a piece back and joins it with its free neighbours.
    pub fn free(&mut self, id: BlockId) {
        let mut block = id.0;
        let Block { state, pins, size, before, after, .. } = self.blocks[block as usize];
        assert!(state == State::Used, "block {block} is freed but was not handed out");
        assert!(pins == 0, "block {block} is freed while it is pinned");
        self.used -= size;
        self.pieces -= 1;
        if after != NONE && self.blocks[after as usize].state == State::Free {
            self.remove(after);
            self.join(block, after);
        }
        if before != NONE && self.blocks[before as usize].state == State::Free {
            self.remove(before);
            self.join(before, block);
            block = before;
        }
        self.insert(block);
    }

    /// Keeps a piece out of every window until it is unpinned as often as it was pinned.
    pub fn pin(&mut self, id: BlockId) {
        self.blocks[id.0 as usize].pins += 1;
    }

    /// Takes one pin back.
    pub fn unpin(&mut self, id: BlockId) {
        let pins = &mut self.blocks[id.0 as usize].pins;
        *pins = pins.checked_sub(1).expect("unpinned more often than pinned");
    }

    /// Makes a piece shorter, or longer into the free piece behind it; `false`, and nothing changes, where there
    /// is not enough.
    pub fn resize_block(&mut self, id: BlockId, size: Bytes) -> bool {
        let Some(wanted) = self.rounded(size) else { return false };
        let block = id.0;
        let Block { size, after, .. } = self.blocks[block as usize];
        let behind_is_free = after != NONE && self.blocks[after as usize].state == State::Free;
        let behind = if behind_is_free { self.blocks[after as usize].size } else { 0 };
        if wanted > size + behind {
            return false;
        }
        if behind_is_free {
            self.remove(after);
            self.join(block, after);
        }
        self.used = self.used - size + wanted;
        self.cut_tail(block, wanted);
        true
    }

    /// The unit that memory is handed out in.
    pub fn grain(&self) -> Bytes {
        Bytes(self.grain)
    }

    /// Where a piece starts.
    pub fn offset(&self, id: BlockId) -> Bytes {
        Bytes(self.blocks[id.0 as usize].offset)
    }

    /// How long a piece is, rounding included.
    pub fn size(&self, id: BlockId) -> Bytes {
        Bytes(self.blocks[id.0 as usize].size)
    }

    /// The caller's mark on a piece.
    pub fn tag(&self, id: BlockId) -> u32 {
        self.blocks[id.0 as usize].tag
    }

    /// All the memory that the heap has.
    pub fn capacity(&self) -> Bytes {
        Bytes(self.capacity)
    }

    /// Bytes handed out, rounding included.
    pub fn used(&self) -> Bytes {
        Bytes(self.used)
    }

    /// Bytes not handed out.
    pub fn free_bytes(&self) -> Bytes {
        Bytes(self.capacity - self.used)
    }

    /// How many pieces are handed out.
    pub fn pieces(&self) -> usize {
        self.pieces
    }

    /// How many pieces are free.
    pub fn free_pieces(&self) -> usize {
        self.free_pieces
    }

    /// The size of the largest free piece. Looks only at the topmost class that has any.
    pub fn largest_free(&self) -> Bytes {
        if self.coarse == 0 {
            return Bytes::ZERO;
        }
        let coarse = 63 - self.coarse.leading_zeros() as usize;
        let fine = 31 - self.fine[coarse].leading_zeros() as usize;
        let pieces = self.list(self.heads[coarse * FINE_CLASSES + fine]);
        Bytes(pieces.map(|b| self.blocks[b as usize].size).max().unwrap_or(0))
    }

    /// The share of the free bytes that lie outside the largest free piece: 0 when all lie together.
    pub fn fragmentation(&self) -> f64 {
        let free = self.free_bytes().0;
        if free == 0 { 0.0 } else { 1.0 - self.largest_free().0 as f64 / free as f64 }
    }

    /// The stretch of at least `size` bytes that costs least to vacate, where `price` says what it costs to move
    /// the piece with a given tag away, and `None` forbids it. Among equals the one at the lowest offset.
    pub fn cheapest_window(&self, size: Bytes, price: impl FnMut(u32) -> Option<u64>) -> Option<Window> {
        let size = self.rounded(size)?;
        self.cheapest_between(self.first()?, self.capacity, size, price)
    }

    /// Like [`Heap::cheapest_window`], among the stretches that touch `seed`: work in proportion to the pieces
    /// within `size` of it, however many the heap has.
    pub fn cheapest_window_around(
        &self,
        seed: BlockId,
        size: Bytes,
        price: impl FnMut(u32) -> Option<u64>,
    ) -> Option<Window> {
        let size = self.rounded(size)?;
        let Block { offset, size: length, .. } = self.blocks[seed.0 as usize];
        let (least, most) = (offset.saturating_sub(size), (offset + length).saturating_add(size));
        let mut start = seed.0;
        while self.blocks[start as usize].before != NONE && self.blocks[start as usize].offset > least {
            start = self.blocks[start as usize].before;
        }
        self.cheapest_between(start, most, size, price)
    }

    /// Makes the heap shorter or longer at its end; `false`, and nothing changes, where the end is in use.
    pub fn resize(&mut self, capacity: Bytes) -> bool {
        let capacity = capacity.0 / self.grain * self.grain;
        let tail_is_free = self.last != NONE && self.blocks[self.last as usize].state == State::Free;
        if capacity > self.capacity {
            let more = capacity - self.capacity;
            if tail_is_free {
                let last = self.last;
                self.remove(last);
                self.blocks[last as usize].size += more;
                self.insert(last);
            } else {
                let block = self.slot(self.capacity, more);
                self.blocks[block as usize].before = self.last;
                if self.last != NONE {
                    self.blocks[self.last as usize].after = block;
                }
                self.last = block;
                self.insert(block);
            }
        } else if capacity < self.capacity {
            let last = self.last;
            if !tail_is_free || self.blocks[last as usize].offset > capacity {
                return false;
            }
            self.remove(last);
            let keep = capacity - self.blocks[last as usize].offset;
            if keep > 0 {
                self.blocks[last as usize].size = keep;
                self.insert(last);
            } else {
                self.last = self.blocks[last as usize].before;
                if self.last != NONE {
                    self.blocks[self.last as usize].after = NONE;
                }
                self.retire(last);
            }
        }
        self.capacity = capacity;
        true
    }

    /// Every piece that is handed out, in address order.
    pub fn used_blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.chain().filter(|b| self.blocks[*b as usize].state == State::Used).map(BlockId)
    }

    /// Verifies the whole structure: chain, lists, bitmaps and sums.
    pub fn check(&self) -> Result<(), Unsound> {
        self.checked().map_err(Unsound)
    }

    fn checked(&self) -> Result<(), String> {
        let (mut at, mut used, mut pieces, mut free, mut before) = (0, 0, 0, 0, NONE);
        for id in self.chain() {
            let block = &self.blocks[id as usize];
            if block.offset != at || block.before != before || block.size == 0 {
                return Err(format!("block {id} at {} where the chain is at {at}", block.offset));
            }
            if !block.offset.is_multiple_of(self.grain) || !block.size.is_multiple_of(self.grain) {
                return Err(format!("block {id} at {} is not whole grains", block.offset));
            }
            match block.state {
                State::Used => (used, pieces) = (used + block.size, pieces + 1),
                State::Free if before != NONE && self.blocks[before as usize].state == State::Free => {
                    return Err(format!("free blocks {before} and {id} were not joined"));
                }
                State::Free => free += 1,
                State::Spare => return Err(format!("spare slot {id} is in the chain")),
            }
            (at, before) = (at + block.size, id);
        }
        if at != self.capacity || before != self.last {
            return Err(format!("the chain ends at {at}, the heap at {}", self.capacity));
        }
        if (used, pieces, free) != (self.used, self.pieces, self.free_pieces) {
            return Err(format!(
                "{used} bytes in {pieces} pieces are used and {free} pieces free; the sums say {}, {}, {}",
                self.used, self.pieces, self.free_pieces
            ));
        }
        let mut listed = 0;
        for (class, head) in self.heads.iter().enumerate() {
            let (coarse, fine) = (class / FINE_CLASSES, class % FINE_CLASSES);
            let marked = self.fine[coarse] >> fine & 1 == 1 && self.coarse >> coarse & 1 == 1;
            if marked != (*head != NONE) {
                return Err(format!("the bitmap is wrong about class {class}"));
            }
            for id in self.list(*head) {
                let block = &self.blocks[id as usize];
                if block.state != State::Free || self.class(block.size) != class {
                    return Err(format!(
                        "block {id} of {} bytes is in the list of class {class}",
                        block.size
                    ));
                }
                listed += 1;
            }
        }
        if listed != free { Err(format!("{listed} free blocks are listed of {free}")) } else { Ok(()) }
    }

    fn first(&self) -> Option<u32> {
        // Joining keeps the slot of the earlier piece, so the piece at offset 0 never changes its slot.
        (self.capacity > 0).then_some(0)
    }

    fn chain(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.first(), |b| Some(self.blocks[*b as usize].after).filter(|n| *n != NONE))
    }

    fn list(&self, head: u32) -> impl Iterator<Item = u32> + '_ {
        let start = Some(head).filter(|h| *h != NONE);
        std::iter::successors(start, |b| Some(self.blocks[*b as usize].next).filter(|n| *n != NONE))
    }

    /// Every free piece in the class of `size` and above.
    fn free_from(&self, size: u64) -> impl Iterator<Item = u32> + '_ {
        self.heads[self.class(size)..].iter().flat_map(|head| self.list(*head))
    }

    /// `size` in whole grains, at least one; `None` where the heap could never hold it.
    fn rounded(&self, size: Bytes) -> Option<u64> {
        let size = Bytes(size.0.max(1)).round_up(Bytes(self.grain))?.0;
        (size <= self.capacity).then_some(size)
    }

    fn class(&self, size: u64) -> usize {
        let grains = size / self.grain;
        let log = 63 - grains.leading_zeros();
        if log < FINE {
            return grains as usize;
        }
        let coarse = (log - FINE + 1) as usize;
        let fine = (grains >> (log - FINE)) as usize & (FINE_CLASSES - 1);
        coarse * FINE_CLASSES + fine
    }

    /// A free piece of at least `size` bytes: one of the own class if the first few hold one, else of the next
    /// class that has any, else whatever the own class holds.
    fn find(&self, size: u64) -> Option<u32> {
        let fits = |b: &u32| self.blocks[*b as usize].size >= size;
        let class = self.class(size);
        let own = self.heads[class];
        if let Some(found) = self.list(own).take(PROBES).find(fits) {
            return Some(found);
        }
        let (coarse, fine) = (class / FINE_CLASSES, class % FINE_CLASSES);
        let finer = self.fine[coarse] & (!1_u32).checked_shl(fine as u32).unwrap_or(0);
        if finer != 0 {
            return Some(self.heads[coarse * FINE_CLASSES + finer.trailing_zeros() as usize]);
        }
        let coarser = self.coarse & (!1_u64).checked_shl(coarse as u32).unwrap_or(0);
        if coarser != 0 {
            let coarse = coarser.trailing_zeros() as usize;
            return Some(self.heads[coarse * FINE_CLASSES + self.fine[coarse].trailing_zeros() as usize]);
        }
        self.list(own).skip(PROBES).find(fits)
    }

    /// Hands `size` bytes from `start` on out of a free piece that holds them.
    fn take(&mut self, mut block: u32, start: u64, size: u64, tag: u32) -> BlockId {
        self.remove(block);
        let lead = start - self.blocks[block as usize].offset;
        if lead > 0 {
            let rest = self.split(block, lead);
            self.insert(block);
            block = rest;
        }
        self.cut_tail(block, size);
        self.hand_out(block, tag)
    }

    fn insert(&mut self, block: u32) {
        let class = self.class(self.blocks[block as usize].size);
        let head = self.heads[class];
        let slot = &mut self.blocks[block as usize];
        (slot.state, slot.previous, slot.next) = (State::Free, NONE, head);
        if head != NONE {
            self.blocks[head as usize].previous = block;
        }
        self.heads[class] = block;
        self.fine[class / FINE_CLASSES] |= 1 << (class % FINE_CLASSES);
        self.coarse |= 1 << (class / FINE_CLASSES);
        self.free_pieces += 1;
    }

    fn remove(&mut self, block: u32) {
        let Block { previous, next, size, .. } = self.blocks[block as usize];
        if next != NONE {
            self.blocks[next as usize].previous = previous;
        }
        if previous != NONE {
            self.blocks[previous as usize].next = next;
        } else {
            let class = self.class(size);
            self.heads[class] = next;
            if next == NONE {
                self.fine[class / FINE_CLASSES] &= !(1 << (class % FINE_CLASSES));
                if self.fine[class / FINE_CLASSES] == 0 {
                    self.coarse &= !(1 << (class / FINE_CLASSES));
                }
            }
        }
        self.free_pieces -= 1;
    }

    fn hand_out(&mut self, block: u32, tag: u32) -> BlockId {
        let slot = &mut self.blocks[block as usize];
        (slot.state, slot.tag, slot.pins) = (State::Used, tag, 0);
        self.used += slot.size;
        self.pieces += 1;
        BlockId(block)
    }

    /// Leaves the first `size` bytes in `block` and lists the rest as free.
    fn cut_tail(&mut self, block: u32, size: u64) {
        if self.blocks[block as usize].size > size {
            let rest = self.split(block, size);
            self.insert(rest);
        }
    }

    /// Leaves the first `size` bytes in `block` and returns a new piece with the rest, in no list.
    fn split(&mut self, block: u32, size: u64) -> u32 {
        let Block { offset, size: whole, after, .. } = self.blocks[block as usize];
        let rest = self.slot(offset + size, whole - size);
        self.blocks[block as usize].size = size;
        self.blocks[block as usize].after = rest;
        self.blocks[rest as usize].before = block;
        self.blocks[rest as usize].after = after;
        match after {
            NONE => self.last = rest,
            after => self.blocks[after as usize].before = rest,
        }
        rest
    }

    /// Adds `second` to `first`, its neighbour before.
    fn join(&mut self, first: u32, second: u32) {
        let Block { size, after, .. } = self.blocks[second as usize];
        self.blocks[first as usize].size += size;
        self.blocks[first as usize].after = after;
        match after {
            NONE => self.last = first,
            after => self.blocks[after as usize].before = first,
        }
        self.retire(second);
    }

    fn slot(&mut self, offset: u64, size: u64) -> u32 {
        let block = Block {
            offset,
            size,
            before: NONE,
            after: NONE,
            previous: NONE,
            next: NONE,
            tag: 0,
            pins: 0,
            state: State::Free,
        };
        if self.spare == NONE {
            self.blocks.push(block);
            return self.blocks.len() as u32 - 1;
        }
        let slot = self.spare;
        self.spare = self.blocks[slot as usize].next;
        self.blocks[slot as usize] = block;
        slot
    }

    fn retire(&mut self, slot: u32) {
        self.blocks[slot as usize].state = State::Spare;
        self.blocks[slot as usize].next = self.spare;
        self.spare = slot;
    }

    /// Slides a window of at least `size` bytes over the pieces from `start` on that begin before `end`. Prices
    /// are never negative, so only windows that no piece can leave need a look.
    fn cheapest_between(
        &self,
        start: u32,
        end: u64,
        size: u64,
        mut price: impl FnMut(u32) -> Option<u64>,
    ) -> Option<Window> {
        let mut window: VecDeque<(u32, u64)> = VecDeque::new();
        let (mut span, mut cost) = (0_u64, 0_u128);
        let mut best: Option<(u128, u32, u32)> = None;
        let mut at = start;
        while at != NONE && self.blocks[at as usize].offset < end {
            let block = &self.blocks[at as usize];
            let asked = match block.state {
                State::Free => Some(0),
                _ if block.pins > 0 => None,
                _ => price(block.tag),
            };
            let Some(asked) = asked else {
                window.clear();
                (span, cost) = (0, 0);
                at = block.after;
                continue;
            };
            window.push_back((at, asked));
            (span, cost) = (span + block.size, cost + u128::from(asked));
            while let Some((head, asked)) = window.front().copied() {
                let shorter = span - self.blocks[head as usize].size;
                if shorter < size {
                    break;
                }
                window.pop_front();
                (span, cost) = (shorter, cost - u128::from(asked));
            }
            if span >= size && best.is_none_or(|(least, ..)| cost < least) {
                best = Some((cost, window.front()?.0, at));
            }
            at = block.after;
        }
        let (cost, first, last) = best?;
        let stretch =
            std::iter::successors(Some(first), |b| (*b != last).then(|| self.blocks[*b as usize].after));
        let tags = stretch.filter(|b| self.blocks[*b as usize].state == State::Used);
        let tags = tags.map(|b| self.blocks[b as usize].tag).collect();
        let (first, last) = (&self.blocks[first as usize], &self.blocks[last as usize]);
        let bytes = Bytes(last.offset + last.size - first.offset);
        Some(Window { offset: Bytes(first.offset), bytes, cost, tags })
    }
}

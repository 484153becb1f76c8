//! One stretch of a device's memory, from which everything that a program allocates is handed out: where a plan says, if it does.
//!
//! An allocator that keeps pieces of its own, as PyTorch's does, loses a part of a limit to pieces that nobody can use, and which part
//! that is changes with every iteration. Here a plan's places hold: before an operation runs, [`Arena::expect`] names the places of what it is going
//! to make, and what it allocates is recognised by its size. What nobody expected lies wherever there is room. Offsets alone are
//! kept here; whoever has the memory adds its address.

use std::collections::{HashMap, HashSet};

use tiercel_core::{BlockId, Bytes, End, Heap};

/// Every piece begins at a multiple of this, as kernels of GPUs want it.
pub const GRAIN: u64 = 512;

/// Which of the two stretches a piece lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Small,
    Large,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    part: Part,
    block: BlockId,
    bytes: u64,
    tag: u32,
    /// It lies where an operation's result was expected, and goes back to the list if it is freed before the operation ends.
    expected: bool,
}

/// No operation takes more pieces than are looked at.
const LOG: usize = 4096;

/// What an arena has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Pieces that were expected and lie at their places.
    pub placed: u64,
    /// Pieces that were expected and lie elsewhere, because something was there.
    pub displaced: u64,
    /// Times at which there was no room.
    pub refused: u64,
    /// What lay in the place of the last piece that was displaced: its offset and its size.
    pub blocked_by: (u64, u64),
    /// The most bytes that small pieces took together.
    pub small: u64,
}

/// The stretch: a small part for what no plan knows of, and the rest.
#[derive(Debug)]
pub struct Arena {
    small: Heap,
    large: Heap,
    least: u64,
    pieces: HashMap<u64, Piece>,
    /// Where pieces of the large part are, by their tags.
    tagged: HashMap<u32, u64>,
    tags: u32,
    /// What the running operation is going to make, in order.
    expected: Vec<Expected>,
    /// The memory that it needs while it runs: where it begins and ends.
    beside: (u64, u64),
    /// What was taken since the operation began.
    log: Vec<(u64, u64)>,
    /// A stretch that is being cleared: where it begins and ends, and what keeps everybody else out of it.
    window: Option<(u64, u64)>,
    guards: Vec<BlockId>,
    peak: u64,
    /// Bytes of pieces that are small, wherever they lie.
    smalls: u64,
    seen: Seen,
}

/// A result that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Its size.
    pub bytes: u64,
    /// Its place in the large part.
    pub place: u64,
    /// How many pieces of its size the operation takes before, for its own use.
    pub later: u32,
}

impl Arena {
    /// An arena of `capacity` bytes; `small` of them are for pieces of less than `least`.
    pub fn new(capacity: Bytes, small: Bytes, least: Bytes) -> Arena {
        let small = Bytes(small.0.min(capacity.0) / GRAIN * GRAIN);
        Arena {
            large: Heap::new(Bytes(capacity.0 - small.0), Bytes(GRAIN)),
            small: Heap::new(small, Bytes(GRAIN)),
            least: least.0,
            pieces: HashMap::new(),
            tagged: HashMap::new(),
            tags: 0,
            expected: Vec::new(),
            beside: (0, 0),
            log: Vec::new(),
            window: None,
            guards: Vec::new(),
            peak: 0,
            smalls: 0,
            seen: Seen::default(),
        }
    }

    /// What comes next lies at these places: results in order, and `(size, offset)` of what is needed beside them.
    pub fn expect(&mut self, results: impl DoubleEndedIterator<Item = Expected>, beside: (u64, u64)) {
        self.expected.clear();
        self.expected.extend(results.rev());
        self.beside = (beside.1, beside.1 + beside.0);
    }

    /// An operation begins of which nothing is known; [`Arena::taken`] tells what it took.
    pub fn watch(&mut self) {
        self.log.clear();
    }

    /// What was taken since then: offsets and sizes in order.
    pub fn taken(&self) -> &[(u64, u64)] {
        &self.log
    }

    /// Takes memory; `None` where there is none in one piece.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let size = Bytes(bytes.max(1));
        let rounded = |bytes: u64| bytes.next_multiple_of(GRAIN);
        let known = self.expected.iter().rposition(|wanted| rounded(wanted.bytes) == rounded(bytes));
        let mut expected = false;
        let mut found = None;
        self.tags = self.tags.wrapping_add(1);
        let tag = self.tags;
        if let Some(known) = known.filter(|at| self.expected[*at].later > 0) {
            self.expected[known].later -= 1;
        } else if let Some(known) = known {
            let place = self.expected.remove(known).place;
            found = self.large.allocate_at(Bytes(place), size, tag).map(|block| (Part::Large, block));
            expected = found.is_some();
            if expected {
                self.seen.placed += 1;
            } else {
                self.seen.displaced += 1;
                self.seen.blocked_by = self.blocks(place, bytes);
            }
        }
        if found.is_none() && bytes >= self.least {
            found = self.beside(bytes, tag).map(|block| (Part::Large, block));
        }
        let small = bytes < self.least || bytes <= self.small.free_bytes().0 / 4;
        let order = if small { [Part::Small, Part::Large] } else { [Part::Large, Part::Small] };
        // What nobody expected lies as far back as it can, out of the way of plans.
        let found = found.or_else(|| {
            order.into_iter().find_map(|part| {
                let block = match part {
                    Part::Small => self.small.allocate(size, tag),
                    Part::Large => self.large.allocate_whole(size, Bytes(GRAIN), End::Far, tag),
                };
                Some((part, block?))
            })
        });
        let Some((part, block)) = found else {
            self.seen.refused += 1;
            return None;
        };
        let offset = self.address(part, block);
        self.pieces.insert(offset, Piece { part, block, bytes, tag, expected });
        if part == Part::Large {
            self.tagged.insert(tag, offset);
        }
        if bytes < self.least {
            self.smalls += rounded(bytes);
            self.seen.small = self.seen.small.max(self.smalls);
        }
        if self.log.len() < LOG {
            self.log.push((offset, bytes));
        }
        self.peak = self.peak.max(self.used());
        Some(offset)
    }

    /// What lies in a place.
    fn blocks(&self, place: u64, bytes: u64) -> (u64, u64) {
        let start = place + self.small.capacity().0;
        let inside = |(at, piece): &(&u64, &Piece)| **at < start + bytes && start < **at + piece.bytes;
        self.pieces.iter().find(inside).map_or((0, 0), |(at, piece)| (*at, piece.bytes))
    }

    /// A place in what the running operation may use beside its results.
    fn beside(&mut self, bytes: u64, tag: u32) -> Option<BlockId> {
        let (mut at, end) = self.beside;
        while at + bytes <= end {
            if let Some(block) = self.large.allocate_at(Bytes(at), Bytes(bytes), tag) {
                return Some(block);
            }
            // Behind what lies there.
            let small = self.small.capacity().0;
            let holder = self.pieces.get(&(at + small)).map_or(GRAIN, |piece| piece.bytes);
            at += holder.next_multiple_of(GRAIN);
        }
        None
    }

    /// Gives memory back; `false` where none was taken at this offset.
    pub fn give(&mut self, offset: u64) -> bool {
        let Some(piece) = self.pieces.remove(&offset) else { return false };
        self.heap(piece.part).free(piece.block);
        if piece.bytes < self.least {
            self.smalls -= piece.bytes.next_multiple_of(GRAIN);
        }
        if piece.part == Part::Small {
            return true;
        }
        self.tagged.remove(&piece.tag);
        let place = offset - self.small.capacity().0;
        if piece.expected && (self.beside.1 > 0 || !self.expected.is_empty()) {
            // A temporary of a result's size came first: the place is the next one's.
            self.expected.push(Expected { bytes: piece.bytes, place, later: 0 });
        }
        if let Some((start, end)) = self.window {
            self.guard(place.max(start), (place + piece.bytes.next_multiple_of(GRAIN)).min(end));
        }
        true
    }

    /// Chooses a stretch of so many bytes that can be cleared by moving what lies in it, and keeps everybody else out until
    /// [`Arena::open`]; the offsets of what has to move. Only pieces in `movable` may move, and none that is larger than `most`, as it
    /// would find no other place.
    pub fn clear(&mut self, bytes: u64, most: u64, movable: &HashSet<u64>) -> Option<Vec<u64>> {
        let (tagged, pieces) = (&self.tagged, &self.pieces);
        let price = |tag| {
            let offset = tagged.get(&tag).filter(|offset| movable.contains(offset))?;
            Some(pieces.get(offset).filter(|piece| piece.bytes < most.min(bytes))?.bytes)
        };
        let window = self.large.cheapest_window(Bytes(bytes), price)?;
        let mut found: Vec<u64> = window.tags.iter().filter_map(|tag| tagged.get(tag).copied()).collect();
        found.sort_unstable();
        let (start, end) = (window.offset.0, window.offset.0 + window.bytes.0);
        self.window = Some((start, end));
        let mut at = start;
        for offset in &found {
            let place = offset - self.small.capacity().0;
            self.guard(at, place);
            at = place + self.pieces[offset].bytes.next_multiple_of(GRAIN);
        }
        self.guard(at, end);
        Some(found)
    }

    /// Keeps everybody out of a stretch that is free.
    fn guard(&mut self, start: u64, end: u64) {
        if start < end
            && let Some(block) = self.large.allocate_at(Bytes(start), Bytes(end - start), 0)
        {
            self.guards.push(block);
        }
    }

    /// The stretch that was cleared is anybody's.
    pub fn open(&mut self) {
        self.window = None;
        for block in std::mem::take(&mut self.guards) {
            self.large.free(block);
        }
    }

    /// Nothing is expected any more, and what was is where it is for good.
    pub fn settle(&mut self) {
        self.expected.clear();
        self.beside = (0, 0);
    }

    /// Makes the arena longer or shorter; `false`, and nothing changes, where its end is in use.
    pub fn resize(&mut self, capacity: Bytes) -> bool {
        capacity.0 >= self.small.capacity().0
            && self.large.resize(Bytes(capacity.0 - self.small.capacity().0))
    }

    /// Where the part begins in which plans have their places.
    pub fn base(&self) -> u64 {
        self.small.capacity().0
    }

    /// Whether a piece lies at this place of a plan.
    pub fn lies_at(&self, offset: u64, place: u64) -> bool {
        offset == place + self.base()
    }

    /// How long the part is in which plans have their places.
    pub fn plannable(&self) -> u64 {
        self.large.capacity().0
    }

    /// Bytes that are handed out.
    pub fn used(&self) -> u64 {
        self.small.used().0 + self.large.used().0
    }

    /// The longest piece that is free.
    pub fn largest_free(&self) -> u64 {
        self.large.largest_free().0.max(self.small.largest_free().0)
    }

    /// The most bytes that were handed out since this was last called with `true`.
    pub fn peak(&mut self, anew: bool) -> u64 {
        let peak = self.peak;
        if anew {
            self.peak = self.used();
        }
        peak
    }

    /// All the memory there is.
    pub fn capacity(&self) -> u64 {
        self.small.capacity().0 + self.large.capacity().0
    }

    /// What was seen so far.
    pub fn seen(&self) -> Seen {
        self.seen
    }

    fn heap(&mut self, part: Part) -> &mut Heap {
        match part {
            Part::Small => &mut self.small,
            Part::Large => &mut self.large,
        }
    }

    fn address(&self, part: Part, block: tiercel_core::BlockId) -> u64 {
        match part {
            Part::Small => self.small.offset(block).0,
            Part::Large => self.large.offset(block).0 + self.small.capacity().0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn expect(arena: &mut Arena, results: &[(u64, u64)], beside: (u64, u64)) {
        let results = results.iter().map(|&(bytes, place)| Expected { bytes, place, later: 0 });
        arena.expect(results, beside);
    }

    fn arena() -> Arena {
        Arena::new(Bytes(64 * MIB), Bytes(4 * MIB), Bytes(MIB))
    }

    #[test]
    fn what_is_expected_lies_where_the_plan_has_it() {
        let mut arena = arena();
        expect(&mut arena, &[(8 * MIB, 32 * MIB), (8 * MIB, 0)], (2 * MIB, 20 * MIB));
        let first = arena.take(8 * MIB).unwrap();
        let beside = arena.take(2 * MIB).unwrap();
        let second = arena.take(8 * MIB).unwrap();
        assert_eq!([first, second, beside].map(|at| at - arena.base()), [32 * MIB, 0, 20 * MIB]);
        assert_eq!(arena.seen(), Seen { placed: 2, ..Seen::default() });
    }

    #[test]
    fn a_temporary_of_a_results_size_leaves_the_place_to_the_result() {
        let mut arena = arena();
        expect(&mut arena, &[(8 * MIB, 32 * MIB)], (8 * MIB, 16 * MIB));
        let temporary = arena.take(8 * MIB).unwrap();
        assert!(arena.give(temporary));
        let result = arena.take(8 * MIB).unwrap();
        assert_eq!(result - arena.base(), 32 * MIB);
        assert_eq!(arena.plannable(), 60 * MIB);
        // Once the operation is over a place that is free is nobody's.
        arena.settle();
        assert!(arena.give(result));
        assert_eq!(arena.take(8 * MIB).unwrap() - arena.base(), 52 * MIB);
    }

    #[test]
    fn what_is_taken_first_for_the_operation_itself_is_told_from_the_result() {
        let mut arena = arena();
        arena.expect(
            [Expected { bytes: 8 * MIB, place: 32 * MIB, later: 1 }].into_iter(),
            (8 * MIB, 16 * MIB),
        );
        let places = [(); 2].map(|()| arena.take(8 * MIB).unwrap() - arena.base());
        assert_eq!(places, [16 * MIB, 32 * MIB]);
        assert_eq!(arena.taken().len(), 2);
    }

    #[test]
    fn a_stretch_is_cleared_by_moving_what_lies_in_it() {
        let mut arena = arena();
        let pieces: Vec<u64> = (0..60).map(|_| arena.take(MIB).unwrap()).collect();
        let mut held: HashSet<u64> = pieces.iter().copied().collect();
        for at in pieces.iter().step_by(2) {
            arena.give(*at);
            held.remove(at);
        }
        assert_eq!(arena.take(8 * MIB), None);
        let moving = arena.clear(8 * MIB, 2 * MIB, &held).unwrap();
        assert!(moving.len() <= 4, "{moving:?}");
        for at in moving {
            let new = arena.take(MIB).unwrap();
            assert!(arena.give(at));
            held.remove(&at);
            held.insert(new);
        }
        arena.open();
        let large = arena.take(8 * MIB).unwrap();
        assert!(held.iter().all(|at| at + MIB <= large || large + 8 * MIB <= *at));
        // What may not move is in the way.
        assert_eq!(arena.clear(16 * MIB, 16 * MIB, &HashSet::new()), None);
        held.into_iter().chain([large]).for_each(|at| assert!(arena.give(at)));
        assert_eq!(arena.used(), 0);
    }

    #[test]
    fn a_place_that_is_taken_is_found_elsewhere_and_counted() {
        let mut arena = arena();
        let first = arena.take(8 * MIB).unwrap();
        let place = first - arena.base();
        expect(&mut arena, &[(4 * MIB, place)], (0, 0));
        let second = arena.take(4 * MIB).unwrap();
        assert!(second + 4 * MIB <= first);
        assert_eq!((arena.seen().displaced, arena.seen().blocked_by), (1, (first, 8 * MIB)));
        assert_eq!(arena.take(100 * MIB), None);
        assert_eq!(arena.seen().refused, 1);
        assert!(arena.give(first) && !arena.give(first));
    }

    #[test]
    fn small_pieces_keep_out_of_the_way_of_plans() {
        let mut arena = arena();
        let pieces: Vec<u64> = (0..4096).map_while(|_| arena.take(1000)).collect();
        assert_eq!(pieces.len(), 4096);
        assert!(pieces.iter().all(|at| *at < arena.base()));
        assert_eq!(arena.used(), 4096 * 1024);
        // Where their part is full they go to the other.
        assert!(arena.take(1000).unwrap() >= arena.base());
        assert_eq!(arena.peak(true), 4097 * 1024);
    }

    #[test]
    fn any_order_of_taking_and_giving_keeps_the_books_right() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut arena = arena();
        let mut held: Vec<(u64, u64)> = Vec::new();
        for _ in 0..20_000 {
            if random.bool() && !held.is_empty() {
                let (at, _) = held.swap_remove(random.usize(..held.len()));
                assert!(arena.give(at));
                continue;
            }
            let bytes = random.u64(1..3 * MIB);
            if random.bool() {
                expect(&mut arena, &[(bytes, random.u64(..60) * MIB)], (bytes, random.u64(..60) * MIB));
            }
            if let Some(at) = arena.take(bytes) {
                let apart = |(other, size): &(u64, u64)| at + bytes <= *other || other + size <= at;
                assert!(held.iter().all(apart) && at + bytes <= arena.capacity());
                held.push((at, bytes));
            }
        }
        held.drain(..).for_each(|(at, _)| assert!(arena.give(at)));
        assert_eq!(arena.used(), 0);
    }
}

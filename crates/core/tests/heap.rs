//! The heap against a naive model: a map of grains with the tag that holds each.

use tiercel_core::{Bytes, End, heap::BlockId, heap::Heap};

const GRAIN: u64 = 64;

/// One entry a grain: the tag of the piece that holds it.
struct Model {
    grains: Vec<Option<u32>>,
}

impl Model {
    fn largest_free(&self) -> usize {
        self.grains.split(|g| g.is_some()).map(<[_]>::len).max().unwrap_or(0)
    }

    fn set(&mut self, offset: Bytes, size: Bytes, tag: Option<u32>) {
        for grain in &mut self.grains[(offset.0 / GRAIN) as usize..((offset.0 + size.0) / GRAIN) as usize] {
            assert_ne!(grain.is_some(), tag.is_some(), "a grain is handed out or freed twice");
            *grain = tag;
        }
    }

    /// The cheapest window by trying every start.
    fn cheapest(&self, size: usize, price: impl Fn(u32) -> Option<u64>) -> Option<u128> {
        let starts = 0..=self.grains.len().checked_sub(size)?;
        starts.filter_map(|start| self.cost(&self.grains[start..start + size], &price)).min()
    }

    fn cost(&self, grains: &[Option<u32>], price: impl Fn(u32) -> Option<u64>) -> Option<u128> {
        let mut tags: Vec<u32> = grains.iter().flatten().copied().collect();
        tags.dedup();
        tags.into_iter().map(|tag| price(tag).map(u128::from)).sum()
    }
}

struct Fuzz {
    heap: Heap,
    model: Model,
    live: Vec<(BlockId, u32, bool)>,
    random: fastrand::Rng,
    tags: u32,
}

impl Fuzz {
    fn new(seed: u64) -> Fuzz {
        let mut random = fastrand::Rng::with_seed(seed);
        let grains = random.usize(1..200);
        let heap = Heap::new(Bytes(grains as u64 * GRAIN), Bytes(GRAIN));
        Fuzz { heap, model: Model { grains: vec![None; grains] }, live: Vec::new(), random, tags: 0 }
    }

    fn grains(bytes: u64) -> usize {
        bytes.max(1).div_ceil(GRAIN) as usize
    }

    fn act(&mut self) {
        let size = Bytes(self.random.u64(0..=GRAIN * self.random.clone().u64(1..40)));
        match self.random.u32(0..100) {
            0..40 => self.allocate(size),
            40..75 => self.free(),
            75..80 => self.allocate_at(size),
            80..83 => self.allocate_whole(size),
            83..91 => self.window(size),
            91..95 => self.toggle_pin(),
            95..98 => self.resize_block(size),
            _ => self.resize(),
        }
        self.heap.check().expect("the heap is sound");
        assert_eq!(self.heap.largest_free(), Bytes(self.model.largest_free() as u64 * GRAIN));
        let used = self.model.grains.iter().filter(|g| g.is_some()).count() as u64;
        assert_eq!(self.heap.used(), Bytes(used * GRAIN));
    }

    fn keep(&mut self, block: BlockId) {
        self.model.set(self.heap.offset(block), self.heap.size(block), Some(self.tags));
        self.live.push((block, self.tags, false));
        self.tags += 1;
    }

    fn allocate(&mut self, size: Bytes) {
        let fits = Self::grains(size.0) <= self.model.largest_free();
        let block = self.heap.allocate(size, self.tags);
        assert_eq!(block.is_some(), fits, "allocation succeeds whenever a piece is large enough");
        if let Some(block) = block {
            assert!(self.heap.size(block) >= size);
            self.keep(block);
        }
    }

    fn allocate_at(&mut self, size: Bytes) {
        let start = self.random.usize(0..self.model.grains.len());
        let wanted = self.model.grains.get(start..start + Self::grains(size.0));
        let fits = wanted.is_some_and(|grains| grains.iter().all(Option::is_none));
        let offset = Bytes(start as u64 * GRAIN);
        let block = self.heap.allocate_at(offset, size, self.tags);
        assert_eq!(block.is_some(), fits);
        if let Some(block) = block {
            assert_eq!(self.heap.offset(block), offset);
            self.keep(block);
        }
    }

    fn allocate_whole(&mut self, size: Bytes) {
        let unit = 1 << self.random.usize(0..4);
        let length = Self::grains(size.0).next_multiple_of(unit);
        let free = |start: &usize| {
            let stretch = self.model.grains.get(*start..start + length);
            stretch.is_some_and(|grains| grains.iter().all(Option::is_none))
        };
        let starts: Vec<usize> = (0..self.model.grains.len()).step_by(unit).filter(free).collect();
        let end = if self.random.bool() { End::Near } else { End::Far };
        let block = self.heap.allocate_whole(size, Bytes(unit as u64 * GRAIN), end, self.tags);
        assert_eq!(block.is_some(), !starts.is_empty());
        if let Some(block) = block {
            let start = (self.heap.offset(block).0 / GRAIN) as usize;
            assert!(starts.contains(&start) && self.heap.size(block) == Bytes(length as u64 * GRAIN));
            assert!(end == End::Near || Some(&start) == starts.last());
            self.keep(block);
        }
    }

    fn free(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let (block, tag, pinned) = self.live.swap_remove(self.random.usize(0..self.live.len()));
        assert_eq!(self.heap.tag(block), tag);
        self.model.set(self.heap.offset(block), self.heap.size(block), None);
        if pinned {
            self.heap.unpin(block);
        }
        self.heap.free(block);
    }

    fn toggle_pin(&mut self) {
        if let Some(at) = (!self.live.is_empty()).then(|| self.random.usize(0..self.live.len())) {
            let (block, _, pinned) = &mut self.live[at];
            if *pinned {
                self.heap.unpin(*block)
            } else {
                self.heap.pin(*block)
            }
            *pinned = !*pinned;
        }
    }

    fn window(&mut self, size: Bytes) {
        let salt = self.random.u64(..);
        let price = |tag: u32| {
            let hash = (u64::from(tag) ^ salt).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 59;
            hash.checked_sub(1)
        };
        let pinned: Vec<u32> = self.live.iter().filter(|(.., pinned)| *pinned).map(|(_, t, _)| *t).collect();
        let allowed = |tag: u32| if pinned.contains(&tag) { None } else { price(tag) };
        let best = self.model.cheapest(Self::grains(size.0), allowed);
        let found = self.heap.cheapest_window(size, price);
        assert_eq!(found.as_ref().map(|w| w.cost), best, "the window is the cheapest there is");
        if let Some(window) = found {
            let (start, end) = (window.offset.0 / GRAIN, (window.offset.0 + window.bytes.0) / GRAIN);
            assert!(end - start >= Self::grains(size.0) as u64);
            let stretch = &self.model.grains[start as usize..end as usize];
            assert_eq!(self.model.cost(stretch, allowed), Some(window.cost));
            let mut tags: Vec<u32> = stretch.iter().flatten().copied().collect();
            tags.dedup();
            assert_eq!(tags, window.tags);
        }
        if let Some((seed, ..)) = self.live.first() {
            let near = self.heap.cheapest_window_around(*seed, size, price);
            assert!(near.is_none_or(|w| Some(w.cost) >= best && w.bytes >= size));
        }
    }

    fn resize_block(&mut self, size: Bytes) {
        let Some((block, tag, _)) = self.live.first().copied() else { return };
        let (offset, before) = (self.heap.offset(block), self.heap.size(block));
        let end = ((offset.0 + before.0) / GRAIN) as usize;
        let behind = self.model.grains[end..].iter().take_while(|g| g.is_none()).count();
        let fits = Self::grains(size.0) <= (before.0 / GRAIN) as usize + behind;
        assert_eq!(self.heap.resize_block(block, size), fits);
        self.model.set(offset, before, None);
        self.model.set(offset, self.heap.size(block), Some(tag));
    }

    fn resize(&mut self) {
        let now = self.model.grains.len();
        let next = self.random.usize(1..200);
        let possible = next >= now || self.model.grains[next..].iter().all(Option::is_none);
        assert_eq!(self.heap.resize(Bytes(next as u64 * GRAIN)), possible);
        if possible {
            self.model.grains.resize(next, None);
        }
    }
}

#[test]
fn behaves_like_a_map_of_grains() {
    tiercel_testbed::for_seeds(400, |seed| {
        let mut fuzz = Fuzz::new(seed);
        for _ in 0..500 {
            fuzz.act();
        }
    });
}

#[test]
fn a_window_is_named_without_being_cleared() {
    let mut heap = Heap::new(Bytes(5 * GRAIN), Bytes(GRAIN));
    let blocks: Vec<BlockId> = (0..5).map(|tag| heap.allocate(Bytes(GRAIN), tag).unwrap()).collect();
    heap.free(blocks[1]);
    let prices = [9, 0, 9, 1, 1];
    let window = heap.cheapest_window(Bytes(2 * GRAIN), |tag| Some(prices[tag as usize])).unwrap();
    assert_eq!((window.tags, window.cost, window.offset), (vec![3, 4], 2, Bytes(3 * GRAIN)));
    heap.pin(blocks[3]);
    let window = heap.cheapest_window(Bytes(2 * GRAIN), |tag| Some(prices[tag as usize])).unwrap();
    assert_eq!((window.tags, window.cost), (vec![0], 9));
}

#[test]
#[should_panic(expected = "was not handed out")]
fn a_second_free_is_a_bug() {
    let mut heap = Heap::new(Bytes::kib(1), Bytes(GRAIN));
    let block = heap.allocate(Bytes(1), 0).unwrap();
    heap.free(block);
    heap.free(block);
}

//! Allocate and free against a naive free list and against the system's allocator, with 10³ to 10⁶ live pieces.
//!
//! `cargo bench -p tiercel-core --bench heap`
//!
//! Every heap is filled with pieces of 64 bytes to 64 KiB, a third of them freed again at random so that it is
//! fragmented; then one random piece is freed and another allocated, over and over. The system's allocator also
//! touches the memory that it keeps its books in; ours keeps none there.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use tiercel_core::Bytes;
use tiercel_core::heap::{BlockId, Heap};

trait Allocator {
    type Piece;
    fn take(&mut self, size: u64) -> Self::Piece;
    fn give(&mut self, piece: Self::Piece);
}

impl Allocator for Heap {
    type Piece = BlockId;

    fn take(&mut self, size: u64) -> BlockId {
        self.allocate(Bytes(size), 0).expect("there is room")
    }

    fn give(&mut self, piece: BlockId) {
        self.free(piece);
    }
}

/// First fit over free pieces in address order.
struct FirstFit {
    free: BTreeMap<u64, u64>,
}

impl Allocator for FirstFit {
    type Piece = (u64, u64);

    fn take(&mut self, size: u64) -> (u64, u64) {
        let size = size.next_multiple_of(64);
        let (&offset, &length) =
            self.free.iter().find(|(_, length)| **length >= size).expect("there is room");
        self.free.remove(&offset);
        if length > size {
            self.free.insert(offset + size, length - size);
        }
        (offset, size)
    }

    fn give(&mut self, (mut offset, mut size): (u64, u64)) {
        if let Some(length) = self.free.remove(&(offset + size)) {
            size += length;
        }
        let before = self.free.range(..offset).next_back().map(|(before, length)| (*before, *length));
        if let Some((before, length)) = before.filter(|(before, length)| before + length == offset) {
            self.free.remove(&before);
            (offset, size) = (before, size + length);
        }
        self.free.insert(offset, size);
    }
}

/// What `malloc` does, aligned as our pieces are.
struct System;

impl Allocator for System {
    type Piece = (*mut u8, Layout);

    fn take(&mut self, size: u64) -> (*mut u8, Layout) {
        let layout = Layout::from_size_align(size as usize, 64).expect("a sound layout");
        // SAFETY: the layout has a size above zero.
        (unsafe { alloc(layout) }, layout)
    }

    fn give(&mut self, (pointer, layout): (*mut u8, Layout)) {
        // SAFETY: it came from `alloc` with this layout and is given back once.
        unsafe { dealloc(pointer, layout) }
    }
}

fn size(random: &mut fastrand::Rng) -> u64 {
    64 << random.u32(0..=10) | random.u64(0..64)
}

fn churn<A: Allocator>(c: &mut Criterion, name: &str, live: usize, mut allocator: A) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut pieces: Vec<A::Piece> = (0..live * 3 / 2).map(|_| allocator.take(size(&mut random))).collect();
    while pieces.len() > live {
        let piece = pieces.swap_remove(random.usize(0..pieces.len()));
        allocator.give(piece);
    }
    let mut group = c.benchmark_group("allocate and free");
    group.sample_size(20);
    group.bench_function(BenchmarkId::new(name, live), |b| {
        b.iter(|| {
            let at = random.usize(0..pieces.len());
            let piece = allocator.take(size(&mut random));
            allocator.give(std::mem::replace(&mut pieces[at], black_box(piece)));
        });
    });
    group.finish();
    for piece in pieces {
        allocator.give(piece);
    }
}

fn heaps(c: &mut Criterion) {
    let capacity = 1 << 40;
    for live in [1_000, 100_000, 1_000_000] {
        churn(c, "heap", live, Heap::new(Bytes(capacity), Bytes(64)));
        churn(c, "system", live, System);
        // A million live pieces would take it an hour.
        if live < 1_000_000 {
            churn(c, "first fit", live, FirstFit { free: BTreeMap::from([(0, capacity)]) });
        }
    }
}

fn windows(c: &mut Criterion) {
    let mut random = fastrand::Rng::with_seed(2);
    let mut heap = Heap::new(Bytes::gib(1), Bytes(64));
    let mut blocks = Vec::new();
    for tag in 0..4096 {
        blocks.extend(heap.allocate(Bytes(size(&mut random)), tag));
    }
    c.bench_function("cheapest window of 1 MiB among 4096 pieces", |b| {
        b.iter(|| heap.cheapest_window(Bytes::mib(1), |tag| Some(u64::from(tag % 97))));
    });
    c.bench_function("cheapest window of 1 MiB around one piece", |b| {
        b.iter(|| heap.cheapest_window_around(blocks[2048], Bytes::mib(1), |tag| Some(u64::from(tag % 97))));
    });
}

criterion_group!(benches, heaps, windows);
criterion_main!(benches);

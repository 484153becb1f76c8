//! Algorithms 2 and 3: greedily down to level 2, with a beam on level 1, and from all of its candidates on level 0.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use crate::beam::{Beam, Visited, entry, key_of, row_of};
use crate::element::Matrix;
use crate::error::AnnError;
use crate::hm::memory::promoted_bytes;
use crate::hm::placement::{Recent, Variant};
use crate::hm::promote::{Order, Upper, allowed, fits, promote};
use crate::index::{Index, Neighbours};
use crate::rows::Query;
use crate::search::{Scratch, View};

/// What a distance takes in fast memory on the paper's machine (section 3.4.3).
pub(crate) const DISTANCE: Duration = Duration::from_nanos(183);

/// What a distance takes longer in slow memory: 421 ns against 183 ns (section 3.4.3).
pub(crate) const SLOWER: Duration = Duration::from_nanos(421 - 183);

/// What the copies into the migration space take for each vector: eight of them on their way at a time.
const COPY: Duration = Duration::from_nanos(421 / 8);

/// The share of fast memory that stays for the migration space and what searches keep.
const SPARE: f64 = 0.1;

/// Searches of level 0 at once.
pub(crate) const THREADS: usize = 4;

/// The widths of both beams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    /// On level 1: `efSearchL1`. On level 0 where level 1 is not built anew.
    pub l1: usize,
    /// On level 0, for each entry: `efSearchL0`.
    pub l0: usize,
}

/// What searches touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Distances to vectors in fast memory.
    pub fast: u64,
    /// Distances to vectors in slow memory.
    pub slow: u64,
    /// Lists of links read from slow memory.
    pub lists: u64,
    /// Vectors and lists fetched ahead and used.
    pub fetched: u64,
    /// Vectors and lists fetched ahead in vain.
    pub vain: u64,
    /// Times that a search waited for slow memory; at most the touches, fewer where several were waited for at once.
    pub waits: u64,
    /// What all that would take on the paper's machine, in nanoseconds: 183 a distance, 238 more for what is slow, searches of
    /// level 0 at once where they are parallel.
    pub nanos: u64,
}

/// A variant over an index in memory.
pub struct Hm<'a> {
    index: &'a Index,
    variant: Variant,
    upper: Option<Upper>,
    /// The first so many vectors are fast.
    first: u32,
    recent: Recent,
    /// Vectors and lists in the migration space.
    space: Recent,
    emulate: bool,
    /// How many vectors the copies beside the search of level 1 could bring.
    copies: u64,
    work: Work,
}

#[derive(Default)]
struct Work {
    scratch: Scratch,
    visited: Visited,
    beams: Vec<Beam>,
    heaps: Vec<BinaryHeap<Reverse<u64>>>,
    fresh: Vec<u32>,
    keys: Vec<u32>,
    touched: Touched,
}

impl<'a> Hm<'a> {
    /// Places an index by a variant, with so many bytes of fast memory. Where `emulate` is not set nothing waits, and only
    /// touches are counted.
    pub fn new(
        index: &'a Index,
        variant: Variant,
        fast: u64,
        threads: usize,
        emulate: bool,
    ) -> Result<Hm<'a>, AnnError> {
        if index.is_empty() {
            return Err(AnnError::Empty);
        }
        let order = if variant == Variant::RandomPromotion { Order::Random } else { Order::Degree };
        // All that promote do so with as many nodes.
        let space = if variant.promotes() { (fast as f64 * SPARE) as u64 } else { 0 };
        let record = (index.rows.kept() + 2 * index.spec.m * 4) as u64;
        let upper = match variant.promotes() {
            true => Some(promote(index, allowed(index, fast - space), order, threads)?),
            false => None,
        };
        Ok(Hm {
            index,
            variant,
            upper,
            first: (fast / record) as u32,
            recent: Recent::new((fast / record) as usize),
            space: Recent::new((space / record) as usize),
            emulate,
            copies: 0,
            work: Work::default(),
        })
    }

    /// The bytes of fast memory that have such a share of an index's nodes promoted.
    pub fn bytes_for(index: &Index, promoted: f64) -> u64 {
        (index.len() as f64 * promoted * promoted_bytes(&index.spec) / (1.0 - SPARE)).ceil() as u64
    }

    /// Whether searches wait for slow memory, rather than to count what they touch alone.
    pub(crate) fn emulates(&self) -> bool {
        self.emulate
    }

    /// How many nodes are on level 1, as a share of all.
    pub fn promoted(&self) -> f64 {
        self.upper.as_ref().map_or(0.0, |upper| upper.nodes.len() as f64 / self.index.len() as f64)
    }

    /// Whether the vector with this label is on level 1, and so in fast memory.
    pub fn promotes(&self, label: u64) -> bool {
        let node = self.index.slots.get(&label);
        self.upper.as_ref().zip(node).is_some_and(|(upper, node)| upper.place[*node as usize] != u32::MAX)
    }

    /// The `k` nearest of each query, what was touched, and the seconds of each.
    pub fn search(
        &mut self,
        queries: &Matrix<'_>,
        k: usize,
        widths: Widths,
    ) -> Result<(Neighbours, Touched, Vec<f64>), AnnError> {
        fits(self.index, queries)?;
        let (mut parts, mut times) = (Vec::new(), Vec::new());
        self.work.touched = Touched::default();
        for at in 0..queries.len() {
            let begun = Instant::now();
            let query = Query::new(self.index.rows.intake(), queries, at)?;
            let mut best = self.one(query.get(), widths);
            best.sort_unstable();
            best.dedup();
            best.truncate(k);
            let distance = self.index.rows.distance();
            let spell = |e: &u64| (self.index.labels[row_of(*e) as usize], distance.value(key_of(*e)));
            parts.push(best.iter().map(spell).collect());
            times.push(begun.elapsed().as_secs_f64());
        }
        let touched = self.work.touched;
        Ok((Neighbours::gather(k, parts, touched.fast + touched.slow), touched, times))
    }

    fn one(&mut self, query: (&[u8], f32), widths: Widths) -> Vec<u64> {
        let entries = match &self.upper {
            Some(upper) => {
                let Work { scratch, touched, .. } = &mut self.work;
                let view = View { rows: &upper.rows, graph: &upper.graph };
                let Some(first) = upper.graph.entry() else { return Vec::new() };
                let top = upper.graph.level(first);
                scratch.distances = 0;
                let begun = Instant::now();
                let start = view.descend(query, first, (top, 1), scratch);
                view.beam(query, &[start], (0, widths.l1), scratch);
                // Where nothing waits, no clock is asked: counts are the same whatever else the machine does.
                let searched = match self.emulate {
                    true => begun.elapsed(),
                    false => DISTANCE * scratch.distances as u32,
                };
                self.copies = (searched.as_nanos() / COPY.as_nanos()) as u64;
                touched.fast += scratch.distances;
                touched.nanos += took(scratch.distances, 0);
                scratch.beam.found().map(|(key, at)| (key, upper.nodes[at as usize])).collect::<Vec<_>>()
            }
            None => {
                let Work { scratch, touched, .. } = &mut self.work;
                let view = View { rows: &self.index.rows, graph: &self.index.graph };
                let Some(first) = self.index.graph.entry() else { return Vec::new() };
                scratch.distances = 0;
                let start = view.descend(query, first, (self.index.graph.level(first), 1), scratch);
                let mut entries = vec![start];
                if self.variant == Variant::HnswParallel && self.index.graph.level(first) > 0 {
                    view.beam(query, &[start], (1, THREADS), scratch);
                    entries = scratch.beam.found().collect();
                }
                match self.variant {
                    Variant::AllSlow => {
                        touched.slow += scratch.distances;
                        touched.waits += scratch.distances;
                        touched.nanos += took(scratch.distances, scratch.distances);
                        wait(self.emulate, scratch.distances);
                    }
                    _ => {
                        touched.fast += scratch.distances;
                        touched.nanos += took(scratch.distances, 0);
                    }
                }
                entries
            }
        };
        self.ground(query, &entries, widths)
    }

    /// Searches level 0 from all entries.
    fn ground(&mut self, query: (&[u8], f32), entries: &[(u32, u32)], widths: Widths) -> Vec<u64> {
        let threads = if self.variant.parallel() { THREADS.min(entries.len()) } else { 1 };
        if self.variant.prefetches() {
            self.fetch_ahead(entries);
        }
        let rows = &self.index.rows;
        let upper = self.upper.is_some();
        self.work.visited.start(self.index.graph.nodes());
        entries.iter().for_each(|(_, node)| {
            self.work.visited.insert(*node);
        });
        self.work.beams.resize_with(threads, Beam::default);
        self.work.heaps.resize_with(threads, BinaryHeap::new);
        let share = entries.len().div_ceil(threads);
        let width = if upper { widths.l0.max(1) * share } else { widths.l1 };
        for t in 0..threads {
            self.work.beams[t].start(width.max(1));
            self.work.heaps[t].clear();
        }
        for (at, (key, node)) in entries.iter().enumerate() {
            self.work.beams[at % threads].offer(*key, *node);
            self.work.heaps[at % threads].push(Reverse(entry(*key, *node)));
        }
        let mut left = threads;
        while left > 0 {
            left = 0;
            let (mut longest, mut last) = (0, 0);
            for t in 0..threads {
                let Some(Reverse(nearest)) = self.work.heaps[t].pop() else { continue };
                let beam = &self.work.beams[t];
                if beam.full() && beam.worst().is_some_and(|worst| key_of(nearest) > worst) {
                    self.work.heaps[t].clear();
                    continue;
                }
                left += 1;
                let node = row_of(nearest);
                let mut waits = u64::from(self.slow_list(node));
                let Work { visited, fresh, scratch, .. } = &mut self.work;
                // What level 1 has seen is either an entry or farther than all of them.
                let seen = |link: u32| {
                    let place = self.upper.as_ref().map(|upper| upper.place[link as usize]);
                    place.is_some_and(|place| place != u32::MAX && scratch.visited.holds(place))
                };
                fresh.clear();
                let links = self.index.graph.links(node, 0).iter().copied();
                fresh.extend(links.filter(|link| visited.insert(*link) && !seen(*link)));
                for at in 0..self.work.fresh.len() {
                    let link = self.work.fresh[at];
                    waits += u64::from(self.slow_vector(link));
                }
                longest = longest.max(waits);
                last = last.max(took(self.work.fresh.len() as u64, waits));
                let Work { beams, heaps, fresh, keys, .. } = &mut self.work;
                keys.resize(fresh.len(), 0);
                rows.distance().many(query, rows, fresh, keys);
                for (key, link) in keys.iter().zip(fresh.iter()) {
                    if beams[t].offer(*key, *link) {
                        heaps[t].push(Reverse(entry(*key, *link)));
                    }
                }
            }
            self.work.touched.waits += longest;
            self.work.touched.nanos += last;
            wait(self.emulate, longest);
        }
        let found = self.work.beams.iter().flat_map(|beam| beam.found().map(|(key, node)| entry(key, node)));
        found.chain(entries.iter().map(|(key, node)| entry(*key, *node))).collect()
    }

    /// Notes what copies beside the search of level 1 have brought into the migration space: the vectors that lists of its
    /// candidates lead to, the nearest candidates' first, as many as there was time for.
    fn fetch_ahead(&mut self, entries: &[(u32, u32)]) {
        let Some(upper) = &self.upper else { return };
        for (_, node) in entries {
            for link in self.index.graph.links(*node, 0) {
                if upper.place[*link as usize] == u32::MAX && !self.space.touch(*link) {
                    self.work.touched.vain += 1;
                    self.copies = self.copies.saturating_sub(1);
                    if self.copies == 0 {
                        return;
                    }
                }
            }
        }
    }

    /// Touches a vector, and tells whether that is to be waited for.
    fn slow_vector(&mut self, node: u32) -> bool {
        let touched = &mut self.work.touched;
        let slow = match self.variant {
            Variant::AllFast => false,
            Variant::AllSlow | Variant::HnswParallel => true,
            Variant::FirstTouch => node >= self.first,
            Variant::MemoryMode => !self.recent.touch(node),
            _ => match &self.upper {
                Some(upper) if upper.place[node as usize] != u32::MAX => false,
                _ if self.variant.prefetches() && self.space.holds(node) => {
                    touched.fetched += 1;
                    touched.vain = touched.vain.saturating_sub(1);
                    false
                }
                _ => true,
            },
        };
        if slow {
            touched.slow += 1
        } else {
            touched.fast += 1
        }
        slow
    }

    /// Touches the links of a node, and tells whether that is to be waited for.
    fn slow_list(&mut self, node: u32) -> bool {
        let slow = match self.variant {
            Variant::AllFast => false,
            Variant::FirstTouch => node >= self.first,
            // A list is beside its vector, and was brought with it.
            Variant::MemoryMode => !self.recent.touch(node),
            _ if self.variant.prefetches() => !self.fetched_list(node),
            _ => true,
        };
        self.work.touched.lists += u64::from(slow);
        slow
    }

    /// Whether a list was fetched: those of level 1's candidates are, with the vectors that they lead to.
    fn fetched_list(&self, node: u32) -> bool {
        self.upper.as_ref().is_some_and(|upper| upper.place[node as usize] != u32::MAX)
            || self.space.holds(node)
    }
}

/// What so many distances and so many touches of slow memory take on the paper's machine, in nanoseconds.
fn took(distances: u64, slow: u64) -> u64 {
    distances * DISTANCE.as_nanos() as u64 + slow * SLOWER.as_nanos() as u64
}

/// Takes as long as so many touches of slow memory take longer than of fast memory.
fn wait(emulate: bool, touches: u64) {
    if emulate && touches > 0 {
        let (begun, time) = (Instant::now(), SLOWER * touches as u32);
        while begun.elapsed() < time {
            std::hint::spin_loop();
        }
    }
}

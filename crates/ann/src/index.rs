//! The index as programs use it: vectors with labels in, the nearest out.
//!
//! The verbs are those of hnswlib: `add_items`, `knn_query`, `set_ef`, `save`, `load`. An index is the same for the same
//! calls and the same seed, however many threads work (on processors with the same instructions).

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Mutex, PoisonError};

use tiercel_core::Bytes;

use crate::beam::Beam;
use crate::element::{Dtype, Intake, Matrix, Metric};
use crate::error::{AnnError, MAX_DIM};
use crate::filter::{Filter, Way, way};
use crate::graph::{Graph, MOST};
use crate::insert;
use crate::parallel;
use crate::remove;
use crate::rows::{Query, Rows};
use crate::search::{Scratch, View};
use crate::sketch::Sketch;
use crate::tier::settings::with_margin;

/// The label of a neighbour that there is none of.
pub const NOBODY: u64 = u64::MAX;

/// When this part of all nodes is new, it is looked whether a way leads to every one: so it costs little for each.
const CHECKED: usize = 8;

/// What an index is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// How many numbers a vector has.
    pub dim: usize,
    /// What near means.
    pub metric: Metric,
    /// What numbers are kept as.
    pub dtype: Dtype,
    /// Links a node, twice as many on level 0.
    pub m: usize,
    /// The width of the beam that finds a new node's links.
    pub ef_construction: usize,
    /// Where chance starts.
    pub seed: u64,
}

impl Spec {
    /// The usual parameters for vectors of this kind.
    pub fn new(dim: usize, metric: Metric, dtype: Dtype) -> Spec {
        Spec { dim, metric, dtype, m: 16, ef_construction: 200, seed: 0 }
    }

    pub(crate) fn check(&self) -> Result<(), AnnError> {
        if self.dim == 0 || self.dim > MAX_DIM {
            return Err(AnnError::NoSuchDimension(self.dim));
        }
        within("m", self.m, 2, 1024)?;
        within("ef_construction", self.ef_construction, 1, 1 << 20)
    }

    pub(crate) fn intake(&self) -> Intake {
        Intake { dtype: self.dtype, metric: self.metric, dim: self.dim }
    }
}

pub(crate) fn within(what: &'static str, found: usize, low: usize, high: usize) -> Result<(), AnnError> {
    if (low..=high).contains(&found) {
        return Ok(());
    }
    Err(AnnError::Parameter { what, found: found as u64, low: low as u64, high: high as u64 })
}

/// How to search.
#[derive(Clone, Copy, Default)]
pub struct Ask<'a> {
    /// The width of the beam; the index's own where absent.
    pub ef: Option<usize>,
    /// How many threads share the queries: one where 0.
    pub threads: usize,
    /// Which vectors count.
    pub filter: Option<Filter<'a>>,
}

/// Labels and distances of one query's neighbours, nearest first.
pub(crate) type Answer = Vec<(u64, f32)>;

/// The neighbours of some queries.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbours {
    /// How many there are of each query.
    pub k: usize,
    /// Their labels, nearest first, `k` a query; [`NOBODY`] where the index holds fewer.
    pub labels: Vec<u64>,
    /// Their distances: squared for L2, one less the product or cosine; infinite for nobody.
    pub distances: Vec<f32>,
    /// Distances that were computed for all of them.
    pub computed: u64,
}

impl Neighbours {
    pub(crate) fn gather(k: usize, parts: Vec<Answer>, computed: u64) -> Neighbours {
        let mut found =
            Neighbours { k, labels: Vec::with_capacity(parts.len() * k), distances: Vec::new(), computed };
        for part in parts {
            for at in 0..k {
                let (label, distance) = part.get(at).copied().unwrap_or((NOBODY, f32::INFINITY));
                found.labels.push(label);
                found.distances.push(distance);
            }
        }
        found
    }

    /// The labels of one query's neighbours, nearest first.
    pub fn of(&self, query: usize) -> &[u64] {
        &self.labels[query * self.k..(query + 1) * self.k]
    }

    /// How much of the true neighbours was found: `truth` has at least `k` labels a query, nearest first.
    pub fn recall(&self, truth: &[u64], width: usize) -> f64 {
        let queries = self.labels.len() / self.k.max(1);
        let k = self.k.min(width);
        let hits = |query: usize| {
            let truth = &truth[query * width..][..k];
            self.of(query).iter().filter(|label| truth.contains(label)).count()
        };
        (0..queries).map(hits).sum::<usize>() as f64 / (queries * k).max(1) as f64
    }
}

/// An index in memory.
pub struct Index {
    pub(crate) spec: Spec,
    pub(crate) rows: Rows,
    pub(crate) graph: Graph,
    pub(crate) labels: Vec<u64>,
    pub(crate) slots: HashMap<u64, u32>,
    /// Whether a row's vector was removed while its node is still in the graph.
    pub(crate) dead: Vec<bool>,
    pub(crate) fallen: Vec<u32>,
    /// Rows without a node.
    pub(crate) vacant: Vec<u32>,
    /// Vectors that ever arrived: where the next one's chance starts.
    pub(crate) arrivals: u64,
    pub(crate) ef: usize,
    /// Nodes that came since it was last seen to that a way leads to every one.
    unchecked: usize,
    /// Short copies of the vectors, and how many there were when their steps were learnt or found not to do.
    pub(crate) sketch: Option<Sketch>,
    pub(crate) sketched: usize,
    spare: Mutex<Vec<Scratch>>,
}

impl Index {
    /// An empty index.
    pub fn new(spec: Spec) -> Result<Index, AnnError> {
        spec.check()?;
        Ok(Index {
            spec,
            rows: Rows::new(spec.intake()),
            graph: Graph::new(spec.m),
            labels: Vec::new(),
            slots: HashMap::new(),
            dead: Vec::new(),
            fallen: Vec::new(),
            vacant: Vec::new(),
            arrivals: 0,
            ef: 64,
            unchecked: 0,
            sketch: None,
            sketched: 0,
            spare: Mutex::default(),
        })
    }

    /// An index that only looks at every vector: with [`Index::exact`], to know the true neighbours.
    pub fn without_links(spec: Spec, vectors: &Matrix<'_>) -> Result<Index, AnnError> {
        let mut index = Index::new(spec)?;
        index.rows.resize(vectors.len()).map_err(no_memory(vectors.len() * index.rows.stride()))?;
        for at in 0..vectors.len() {
            index.rows.set(at as u32, vectors, at)?;
            index.labels.push(at as u64);
        }
        Ok(index)
    }

    /// The width of a beam that reaches a recall of the `k` nearest, by some of the index's own vectors as queries.
    pub fn ef_for(&self, recall: f64, k: usize, threads: usize) -> usize {
        let rows: Vec<u32> =
            (0..self.rows.len() as u32).filter(|row| self.labels[*row as usize] != NOBODY).collect();
        let asked: Vec<u32> = rows.iter().copied().step_by((rows.len() / 200).max(1)).collect();
        let truth = self.nearest_rows(&asked, k + 1, threads);
        let wanted = with_margin(recall);
        let mut ef = k;
        let mut scratches = self.scratches(threads);
        while ef < rows.len() {
            let hits = parallel::each(&mut scratches, asked.len(), |scratch, at| {
                let found = self.nearest(self.rows.get(asked[at]), (k + 1, ef.max(k + 1)), None, scratch);
                let near = truth[at].iter().filter(|row| **row != asked[at]).take(k);
                let labels = near.map(|row| self.labels[*row as usize]);
                labels.filter(|label| found.iter().any(|(other, _)| other == label)).count()
            });
            if hits.iter().sum::<usize>() as f64 >= wanted * (asked.len() * k) as f64 {
                break;
            }
            ef = (ef * 5 / 4).max(ef + 1);
        }
        self.put_back(scratches);
        ef
    }

    /// What it was made for.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Links a node on level 0, on average.
    pub fn mean_links(&self) -> f64 {
        let nodes = self.graph.nodes();
        let links: usize = (0..nodes as u32).map(|node| self.graph.links(node, 0).len()).sum();
        links as f64 / nodes.max(1) as f64
    }

    /// How many vectors it holds.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether it holds a vector with this label.
    pub fn contains(&self, label: u64) -> bool {
        self.slots.contains_key(&label)
    }

    /// The labels that it holds, in no order.
    pub fn labels(&self) -> impl Iterator<Item = u64> + '_ {
        self.slots.keys().copied()
    }

    /// The vector with this label as it is kept: of length one where angles count.
    pub fn vector(&self, label: u64) -> Option<Vec<f32>> {
        let row = self.rows.get(*self.slots.get(&label)?).0;
        let mut numbers = vec![0.0; self.spec.dim];
        crate::element::widen(self.spec.dtype, &row[..self.rows.kept()], &mut numbers);
        Some(numbers)
    }

    /// How wide beams are that say nothing of it.
    pub fn ef(&self) -> usize {
        self.ef
    }

    /// Has beams be so wide that say nothing of it.
    pub fn set_ef(&mut self, ef: usize) {
        self.ef = ef.max(1);
    }

    /// The bytes that it holds in memory.
    pub fn resident(&self) -> Bytes {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let visited: usize = spare.iter().map(|scratch| scratch.visited.resident()).sum();
        let labels = self.labels.len() * 9 + self.slots.capacity() * 17;
        let copies = self.sketch.as_ref().map_or(0, Sketch::resident);
        Bytes((self.rows.resident() + copies + self.graph.resident() + visited + labels) as u64)
    }

    /// Adds vectors, over so many threads; those with a label that is there already take its place. Without labels they are
    /// numbered on from the highest there is. Where one of them cannot be kept, none is added.
    pub fn add_items(
        &mut self,
        vectors: &Matrix<'_>,
        labels: Option<&[u64]>,
        threads: usize,
    ) -> Result<(), AnnError> {
        self.add_watched(vectors, labels, threads, &mut |_| {})
    }

    /// The same, telling now and then how many are done.
    pub fn add_watched(
        &mut self,
        vectors: &Matrix<'_>,
        labels: Option<&[u64]>,
        threads: usize,
        tick: &mut dyn FnMut(usize),
    ) -> Result<(), AnnError> {
        let count = vectors.len();
        if vectors.dim() != self.spec.dim {
            return Err(AnnError::Dimension { wanted: self.spec.dim, found: vectors.dim() });
        }
        let numbered: Vec<u64>;
        let labels = match labels {
            Some(labels) if labels.len() != count => {
                return Err(AnnError::Labels { labels: labels.len(), vectors: count });
            }
            Some(labels) => labels,
            None => {
                let next = self.slots.keys().max().map_or(0, |label| label + 1);
                let last = next.checked_add(count as u64).ok_or(AnnError::Numbers(next))?;
                numbered = (next..last).collect();
                &numbered
            }
        };
        let mut seen = HashSet::with_capacity(count);
        if let Some(twice) = labels.iter().find(|label| **label == NOBODY || !seen.insert(**label)) {
            return Err(AnnError::Twice(*twice));
        }
        drop(seen);
        let before = self.rows.len();
        let reused = self.vacant.len().min(count);
        let total = before + count - reused;
        if total > MOST {
            return Err(AnnError::TooMany { wanted: total, most: MOST });
        }
        let taken: Vec<u32> = self.vacant[self.vacant.len() - reused..].iter().rev().copied().collect();
        let slots: Vec<u32> = taken.into_iter().chain(before as u32..total as u32).collect();
        self.rows.resize(total).map_err(no_memory(total * self.rows.stride()))?;
        for (at, slot) in slots.iter().enumerate() {
            if let Err(error) = self.rows.set(*slot, vectors, at) {
                // Rows that are vacant may hold anything.
                let _ = self.rows.resize(before);
                return Err(error);
            }
        }
        self.graph.resize(total).map_err(no_memory(total * self.graph.cap(0) * 4))?;
        self.vacant.truncate(self.vacant.len() - reused);
        self.labels.resize(total, NOBODY);
        self.dead.resize(total, false);
        for (slot, label) in slots.iter().zip(labels) {
            if let Some(old) = self.slots.insert(*label, *slot) {
                self.bury(old);
            }
            self.labels[*slot as usize] = *label;
        }
        let mut nodes: Vec<(u32, usize)> = Vec::with_capacity(count);
        for slot in &slots {
            nodes.push((*slot, insert::level(self.spec.seed, self.arrivals, self.spec.m)));
            self.arrivals += 1;
        }
        self.shuffle(&mut nodes);
        self.insert(&nodes, threads, tick);
        self.sketch_rows(slots.into_iter());
        self.clear_if_many(threads);
        Ok(())
    }

    /// Data often comes in an order, and nodes of one batch do not see each other.
    fn shuffle(&self, nodes: &mut [(u32, usize)]) {
        for at in (1..nodes.len()).rev() {
            let other =
                insert::mix(self.spec.seed ^ 0x5bd1, self.arrivals ^ (at as u64) << 20) % (at as u64 + 1);
            nodes.swap(at, other as usize);
        }
    }

    fn insert(&mut self, nodes: &[(u32, usize)], threads: usize, tick: &mut dyn FnMut(usize)) {
        let mut scratches = self.scratches(threads);
        let dead = &self.dead;
        let unwanted = |node: u32| dead[node as usize];
        let width = self.spec.ef_construction.max(self.spec.m);
        // Many at once are looked after when all are there.
        let few = nodes.len() * CHECKED < self.slots.len();
        let mut notes = insert::Notes { tick, dropped: few.then(Vec::new) };
        insert::insert(&self.rows, &mut self.graph, nodes, width, &unwanted, &mut scratches, &mut notes);
        if let Some(dropped) = notes.dropped {
            // Whoever was chosen may have better links than the one back, by inner product above all.
            let mut lost: Vec<u32> = nodes.iter().map(|(node, _)| *node).chain(dropped).collect();
            lost.sort_unstable();
            lost.dedup();
            let there = |node: u32| !unwanted(node);
            lost.retain(|node| there(*node) && !remove::led(&self.graph, *node, *node));
            remove::lead_to(&self.rows, &mut self.graph, &lost, width, &there, &mut scratches[0]);
        }
        self.put_back(scratches);
        self.unchecked += nodes.len();
        if self.unchecked * CHECKED >= self.slots.len() {
            self.connect();
        }
    }

    /// Has a way lead to every node: what nothing leads to is never found, however wide the beam.
    fn connect(&mut self) {
        self.unchecked = 0;
        let mut scratches = self.scratches(1);
        let width = self.spec.ef_construction.max(self.spec.m);
        let labels = &self.labels;
        let there = |node: u32| labels[node as usize] != NOBODY;
        for round in 0..4 {
            let lost = remove::unreached(&self.graph, &there);
            match round {
                _ if lost.is_empty() => break,
                // A link instead of another one may cut somebody else off, and so at last none is given up.
                3 => remove::lead_from_some(&self.rows, &mut self.graph, &lost, &there),
                _ => remove::lead_to(&self.rows, &mut self.graph, &lost, width, &there, &mut scratches[0]),
            }
        }
        self.put_back(scratches);
    }

    /// Removes a vector: it is found no more, and its memory will be used for others.
    pub fn remove(&mut self, label: u64) -> Result<(), AnnError> {
        let slot = self.slots.remove(&label).ok_or(AnnError::NoSuchLabel(label))?;
        self.bury(slot);
        self.clear_if_many(1);
        Ok(())
    }

    /// Removes vectors, over so many threads. Where one of them is not there, none is removed.
    pub fn remove_items(&mut self, labels: &[u64], threads: usize) -> Result<(), AnnError> {
        let mut seen = HashSet::with_capacity(labels.len());
        if let Some(missing) = labels.iter().find(|label| !self.contains(**label) || !seen.insert(**label)) {
            return Err(AnnError::NoSuchLabel(*missing));
        }
        for label in labels {
            if let Some(slot) = self.slots.remove(label) {
                self.bury(slot);
            }
        }
        self.clear_if_many(threads);
        Ok(())
    }

    /// Gives a label another vector.
    pub fn update(&mut self, label: u64, vector: &Matrix<'_>) -> Result<(), AnnError> {
        if !self.contains(label) {
            return Err(AnnError::NoSuchLabel(label));
        }
        self.add_items(vector, Some(&[label]), 1)
    }

    fn bury(&mut self, slot: u32) {
        self.dead[slot as usize] = true;
        self.labels[slot as usize] = NOBODY;
        self.fallen.push(slot);
    }

    fn clear_if_many(&mut self, threads: usize) {
        if self.fallen.len() * 10 > self.slots.len() {
            self.compact(threads);
        }
    }

    /// Takes the nodes of all removed vectors out of the graph now, rather than when a tenth are.
    pub fn compact(&mut self, threads: usize) {
        if self.fallen.is_empty() {
            return;
        }
        let fallen = std::mem::take(&mut self.fallen);
        if self.slots.is_empty() {
            let (spec, ef, arrivals) = (self.spec, self.ef, self.arrivals);
            if let Ok(empty) = Index::new(spec) {
                *self = Index { ef, arrivals, ..empty };
                return;
            }
        }
        let mut scratches = self.scratches(threads);
        let labels = &self.labels;
        let there = |node: u32| labels[node as usize] != NOBODY;
        let lost = remove::remove(&self.rows, &mut self.graph, &fallen, &there, &mut scratches);
        self.put_back(scratches);
        for slot in &fallen {
            self.dead[*slot as usize] = false;
        }
        self.vacant.extend(fallen.iter().rev());
        if !lost.is_empty() {
            let again: Vec<(u32, usize)> = lost.iter().map(|node| (*node, self.graph.level(*node))).collect();
            self.insert(&again, threads, &mut |_| {});
        }
        self.connect();
    }

    /// The `k` nearest vectors of each query.
    pub fn knn_query(&self, queries: &Matrix<'_>, k: usize, ask: &Ask<'_>) -> Result<Neighbours, AnnError> {
        within("k", k, 1, MOST)?;
        let intake = *self.rows.intake();
        let width = ask.ef.unwrap_or(self.ef).max(k).min(self.slots.len().max(1));
        let way =
            ask.filter.as_ref().map(|filter| way(self.rows.len(), width, |row| self.wanted(filter, row)));
        let taken: Result<Vec<Query>, AnnError> =
            (0..queries.len()).map(|at| Query::new(&intake, queries, at)).collect();
        let taken = taken?;
        let mut scratches = self.scratches(ask.threads);
        let parts = parallel::each(&mut scratches, taken.len(), |scratch, at| {
            self.nearest(taken[at].get(), (k, width), ask.filter.as_ref().zip(way.as_ref()), scratch)
        });
        let computed = scratches.iter_mut().map(|scratch| std::mem::take(&mut scratch.distances)).sum();
        self.put_back(scratches);
        Ok(Neighbours::gather(k, parts, computed))
    }

    fn wanted(&self, filter: &Filter<'_>, row: u32) -> bool {
        let label = self.labels[row as usize];
        label != NOBODY && filter.wants(label)
    }

    fn nearest(
        &self,
        query: (&[u8], f32),
        (k, width): (usize, usize),
        filter: Option<(&Filter<'_>, &Way)>,
        scratch: &mut Scratch,
    ) -> Answer {
        let Some(entry) = self.graph.entry() else { return Vec::new() };
        let view = View { rows: &self.rows, graph: &self.graph };
        // A way leads to every node from the entry, but not from everywhere.
        let start = |scratch: &mut Scratch| {
            let first = view.descend(query, entry, (self.graph.level(entry), 1), scratch);
            [first, (self.rows.distance().one(query, self.rows.get(entry)), entry)]
        };
        match filter {
            Some((_, Way::All(rows))) => self.scan(query, rows, k, scratch),
            Some((filter, Way::Graph)) => {
                let entries = start(scratch);
                view.filtered(query, &entries, width, &|row| self.wanted(filter, row), scratch);
                if scratch.beam.found().len() < k {
                    let all: Vec<u32> =
                        (0..self.rows.len() as u32).filter(|row| self.wanted(filter, *row)).collect();
                    self.scan(query, &all, k, scratch);
                }
            }
            None if self.fallen.is_empty() => match &self.sketch {
                Some(sketch) => return self.by_sketch(sketch, query, (k, width), entry, scratch),
                None => {
                    let entries = start(scratch);
                    view.beam(query, &entries, (0, width), scratch);
                }
            },
            None => {
                let entries = start(scratch);
                view.filtered(query, &entries, width, &|row| self.labels[row as usize] != NOBODY, scratch);
            }
        }
        let distance = self.rows.distance();
        let best = scratch.beam.found().take(k);
        best.map(|(key, row)| (self.labels[row as usize], distance.value(key))).collect()
    }

    fn scan(&self, query: (&[u8], f32), rows: &[u32], k: usize, scratch: &mut Scratch) {
        let beam: &mut Beam = &mut scratch.beam;
        beam.start(k);
        let mut keys = [0; 256];
        for rows in rows.chunks(keys.len()) {
            self.rows.distance().many(query, &self.rows, rows, &mut keys[..rows.len()]);
            for (key, row) in keys.iter().zip(rows) {
                beam.offer(*key, *row);
            }
        }
        scratch.distances += rows.len() as u64;
    }

    /// The exact `k` nearest of each query, by looking at every vector.
    pub fn exact(&self, queries: &Matrix<'_>, k: usize, threads: usize) -> Result<Neighbours, AnnError> {
        let intake = *self.rows.intake();
        let taken: Result<Vec<Query>, AnnError> =
            (0..queries.len()).map(|at| Query::new(&intake, queries, at)).collect();
        let (taken, mut scratches) = (taken?, self.scratches(threads));
        let all: Vec<u32> =
            (0..self.rows.len() as u32).filter(|row| self.labels[*row as usize] != NOBODY).collect();
        let parts = parallel::each(&mut scratches, taken.len(), |scratch, at| {
            self.scan(taken[at].get(), &all, k, scratch);
            let distance = self.rows.distance();
            let best = scratch.beam.found();
            best.map(|(key, row)| (self.labels[row as usize], distance.value(key))).collect()
        });
        let computed = scratches.iter_mut().map(|scratch| std::mem::take(&mut scratch.distances)).sum();
        self.put_back(scratches);
        Ok(Neighbours::gather(k, parts, computed))
    }

    /// The exact nearest rows of some rows, themselves among them.
    pub(crate) fn nearest_rows(&self, asked: &[u32], k: usize, threads: usize) -> Vec<Vec<u32>> {
        let mut scratches = self.scratches(threads);
        let all: Vec<u32> =
            (0..self.rows.len() as u32).filter(|row| self.labels[*row as usize] != NOBODY).collect();
        let found = parallel::each(&mut scratches, asked.len(), |scratch, at| {
            self.scan(self.rows.get(asked[at]), &all, k, scratch);
            scratch.beam.found().map(|(_, row)| row).collect()
        });
        self.put_back(scratches);
        found
    }

    pub(crate) fn scratches(&self, threads: usize) -> Vec<Scratch> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let threads = threads.max(1);
        let from = spare.len().saturating_sub(threads);
        let mut scratches = spare.split_off(from);
        scratches.resize_with(threads, Scratch::default);
        scratches
    }

    pub(crate) fn put_back(&self, scratches: Vec<Scratch>) {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).extend(scratches);
    }
}

fn no_memory(wanted: usize) -> impl FnOnce(io::Error) -> AnnError {
    move |_| AnnError::FastMemory {
        what: "vectors and links",
        wanted: Bytes(wanted as u64),
        there: tiercel_core::Bytes::ZERO,
    }
}

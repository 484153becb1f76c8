//! Searching an index that stays in its file: codes and links in fast memory, vectors on slow pages.
//!
//! A walk over codes reads nothing slow. Then the pages of the nearest by estimate are read, all at once, and every vector
//! on them gets its true distance: an order in which neighbours lie together makes a page bring several. Pages that fast
//! memory has room for stay. While the pages of some queries are on their way, the next ones walk.

mod cache;
pub(crate) mod fast;
#[cfg(feature = "tiers")]
mod memory;
mod reader;
pub(crate) mod settings;
mod slow;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tiercel_core::Bytes;

use crate::beam::Beam;
use crate::element::Matrix;
use crate::error::AnnError;
use crate::file::{Opened, PAGE, Shape, check};
use crate::filter::Filter;
use crate::graph::MOST;
use crate::index::{Index, NOBODY, Neighbours, Spec, within};
use crate::parallel;
use crate::rows::{Query, Rows};

use cache::Cache;
use fast::{Fast, Walk};
use reader::{Batch, PageFile};
pub use settings::Setting;
use settings::Settings;
pub use slow::Slow;

/// How many queries read their pages together, where there are many.
const GROUP: usize = 8;

/// The fewest pages that a thread may have under way, twice.
const LEAST: usize = 32;

/// The fewest links a node is left with where memory is short.
const FEWEST: usize = 6;

/// How much fast memory there may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FastMemory {
    /// So many bytes.
    Bytes(Bytes),
    /// A share of what the index takes with everything in memory: vectors, links and labels.
    Share(f64),
}

/// How to search an index in its file.
#[derive(Clone, Copy, Default)]
pub struct TierAsk<'a> {
    /// The recall to reach: settings measured when the index was saved are chosen by it.
    pub recall: Option<f64>,
    /// The width of the beam over codes, instead.
    pub ef: Option<usize>,
    /// How many of the nearest by estimate are read.
    pub rerank: Option<usize>,
    /// How many threads share the queries: one where 0.
    pub threads: usize,
    /// Which vectors count.
    pub filter: Option<Filter<'a>>,
}

/// What searches moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Reads of the slow tier.
    pub reads: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Groups of pages that were in fast memory already.
    pub kept: u64,
    /// Distances estimated from codes.
    pub estimates: u64,
    /// True distances computed.
    pub distances: u64,
}

/// An index that stays in its file, searched with as much memory as it is given.
pub struct Tiered {
    spec: Spec,
    nodes: usize,
    fast: Fast,
    settings: Settings,
    shape: Shape,
    file: PageFile,
    cache: Mutex<Cache>,
    tools: Mutex<Vec<Worker>>,
    limit: Bytes,
    /// What the pages may take that one thread has under way.
    flights: usize,
    opened: Opened,
    reads: AtomicU64,
    kept: AtomicU64,
}

/// What a thread works with.
struct Worker {
    walk: Walk,
    flights: [Flight; 2],
    distances: u64,
}

/// The number of a query, and labels and distances of its neighbours.
type Answer = (usize, Vec<(u64, f32)>);

/// Queries whose pages are on their way.
struct Flight {
    batch: Batch,
    under_way: bool,
    queries: Vec<(usize, Query, Vec<u32>)>,
    /// Groups of pages that were here already.
    here: Vec<(u64, Vec<u8>)>,
    rows: Rows,
    results: Beam,
}

/// What the index would take with everything in memory.
pub(crate) fn whole(spec: &Spec, vectors: u64) -> u64 {
    let each = spec.dim * spec.dtype.size() + 2 * spec.m * 4 + 8;
    vectors * each as u64
}

impl FastMemory {
    /// How many bytes it is for an index.
    pub(crate) fn of(self, spec: &Spec, vectors: u64) -> Bytes {
        match self {
            FastMemory::Bytes(bytes) => bytes,
            FastMemory::Share(share) => Bytes((whole(spec, vectors) as f64 * share) as u64),
        }
    }
}

impl Index {
    /// The most bits a number that codes may have for searches with so much fast memory; 1 where even that is too much, and
    /// lists of links will be cut short.
    pub fn code_bits_for(&self, memory: FastMemory, threads: usize) -> u32 {
        let (nodes, spec) = (self.len(), self.spec());
        let limit = memory.of(spec, nodes as u64).0 as usize;
        let links: u64 =
            (0..self.graph.nodes() as u32).map(|node| self.graph.links(node, 0).len() as u64).sum();
        // One node in m has a tower, of some m links.
        let towers = nodes / spec.m * (spec.m * 4 + 100);
        let shared = crate::codes::shared(spec.dim, nodes);
        let rest = crate::links::packed(nodes, links) + towers + shared + threads * (nodes + (64 << 12));
        let fits = |bits: &u32| rest + nodes * crate::codes::stride(spec.dim, *bits) <= limit;
        crate::codes::WIDTHS.into_iter().find(fits).unwrap_or(1)
    }
}

impl Tiered {
    /// Opens an index file with so much fast memory; the vectors stay where they are. Where codes and all links do not fit,
    /// lists of links are cut short; where not even short ones do, it says what would.
    pub fn open(path: &Path, memory: FastMemory, threads: usize) -> Result<Tiered, AnnError> {
        Tiered::open_on(path, memory, threads, &Slow::Index)
    }

    /// The same with vectors somewhere else: they are copied there first.
    pub fn open_on(path: &Path, memory: FastMemory, threads: usize, slow: &Slow) -> Result<Tiered, AnnError> {
        let opened = Opened::open(path)?;
        let limit = memory.of(&opened.head.spec, opened.head.nodes);
        let nodes = opened.nodes();
        let mut fast = opened.fast()?.ok_or(AnnError::Unsupported(
            "the index has no codes, and can be searched in memory alone: save it with codes",
        ))?;
        let shape = opened.head.shape();
        // Every thread notes which nodes it has seen, and has pages under way.
        let threads = threads.max(1);
        let flights = (limit.0 as usize / 20 / threads).max(2 * LEAST * shape.pages * PAGE);
        let under_way = threads * (nodes + flights);
        let room = (limit.0 as usize).saturating_sub(under_way);
        let links = |most: usize| crate::links::packed(nodes, fast.links.total(most));
        let rest = fast.resident() - fast.links.resident();
        if rest + links(usize::MAX) > room {
            let most = (FEWEST..2 * opened.head.spec.m).rev().find(|most| rest + links(*most) <= room);
            let Some(most) = most else {
                let wanted = Bytes((rest + links(FEWEST) + under_way) as u64);
                return Err(AnnError::FastMemory { what: "codes and links", wanted, there: limit });
            };
            fast.links = fast.links.cut(most).map_err(AnnError::file(path))?;
        }
        let cache = Cache::new(room - fast.resident().min(room), shape.pages);
        let pages = opened.pages()?;
        let file = match (slow, slow.folder()) {
            (Slow::Index, _) => PageFile::open(path, pages.start).map_err(AnnError::file(path))?,
            (_, Some(folder)) => PageFile::copied(path, pages.start..pages.start + pages.len, &folder)
                .map_err(AnnError::file(&folder))?,
            #[cfg(feature = "tiers")]
            (Slow::Tier(backing), None) => memory::open(backing, &opened)?,
            #[cfg(not(feature = "tiers"))]
            (Slow::Tier(_), None) => {
                return Err(AnnError::Unsupported("memories as slow tiers are left out of this build"));
            }
        };
        Ok(Tiered {
            spec: opened.head.spec,
            nodes,
            fast,
            settings: opened.settings()?,
            shape,
            file,
            cache: Mutex::new(cache),
            tools: Mutex::default(),
            limit,
            flights,
            opened,
            reads: AtomicU64::new(0),
            kept: AtomicU64::new(0),
        })
    }

    /// What the index was made for.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// How many vectors it has.
    pub fn len(&self) -> usize {
        self.nodes
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.nodes == 0
    }

    /// How much fast memory it may take.
    pub fn limit(&self) -> Bytes {
        self.limit
    }

    /// The bytes of the file.
    pub fn file_bytes(&self) -> Bytes {
        Bytes(self.opened.len)
    }

    /// Bits a number of its codes.
    pub fn code_bits(&self) -> u32 {
        self.fast.codes.bits()
    }

    /// Whether pages are read past the system's cache.
    pub fn direct(&self) -> bool {
        self.file.direct()
    }

    /// What the settings tried when it was saved reach.
    pub fn settings(&self) -> &[Setting] {
        &self.settings.0
    }

    /// The bytes that it holds in memory: codes, links, pages, and what searches keep.
    pub fn resident(&self) -> Bytes {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner).resident();
        let tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        let flights =
            |worker: &Worker| worker.flights.iter().map(|flight| flight.batch.resident()).sum::<usize>();
        let tools: usize = tools.iter().map(|worker| worker.walk.resident() + flights(worker)).sum();
        Bytes((self.fast.resident() + cache + tools) as u64)
    }

    /// The widths that a search has: of the beam, and of what is read.
    fn widths(&self, k: usize, ask: &TierAsk<'_>) -> (usize, usize) {
        let chosen = self.settings.choose(ask.recall.unwrap_or(0.95));
        let scale = |width: u32| (width as usize * k.div_ceil(10)).max(k);
        let (ef, rerank) = chosen.map_or((8 * k, 4 * k), |s| (scale(s.ef), scale(s.rerank)));
        let rerank =
            ask.rerank.unwrap_or(if ask.ef.is_some() { ask.ef.unwrap_or(ef) / 2 } else { rerank }).max(k);
        (ask.ef.unwrap_or(ef).max(rerank), rerank)
    }

    /// The `k` nearest vectors of each query, and what it took.
    pub fn knn_query(
        &self,
        queries: &Matrix<'_>,
        k: usize,
        ask: &TierAsk<'_>,
    ) -> Result<(Neighbours, Moved), AnnError> {
        within("k", k, 1, MOST)?;
        let widths = self.widths(k, ask);
        let before = [&self.reads, &self.kept].map(|count| count.load(Ordering::Relaxed));
        let among = ask.filter.as_ref().map(|filter| self.wanted(filter)).transpose()?;
        let intake = self.spec.intake();
        let mut workers = self.workers(ask.threads.max(1));
        let each = 2 * widths.1 * self.shape.pages * PAGE;
        let group = if queries.len() < GROUP { 1 } else { (self.flights / each).clamp(1, GROUP) };
        type Part = Result<Vec<Answer>, AnnError>;
        let parts: Vec<Part> = parallel::each(&mut workers, queries.len().div_ceil(group), |worker, at| {
            let range = at * group..((at + 1) * group).min(queries.len());
            let mut asked = Vec::new();
            for query in range {
                asked.push((query, Query::new(&intake, queries, query)?));
            }
            self.begin(worker, asked, widths, among.as_deref())?;
            worker.flights.swap(0, 1);
            self.finish(worker, 0, k, among.as_deref())
        });
        let mut all: Vec<Vec<(u64, f32)>> = vec![Vec::new(); queries.len()];
        let last: Vec<Part> =
            workers.iter_mut().map(|worker| self.finish(worker, 1, k, among.as_deref())).collect();
        for part in parts.into_iter().chain(last) {
            part?.into_iter().for_each(|(query, found)| all[query] = found);
        }
        let mut moved = Moved::default();
        for worker in &mut workers {
            moved.estimates += std::mem::take(&mut worker.walk.estimates);
            moved.distances += std::mem::take(&mut worker.distances);
        }
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).extend(workers);
        moved.reads = self.reads.load(Ordering::Relaxed) - before[0];
        moved.kept = self.kept.load(Ordering::Relaxed) - before[1];
        moved.bytes = moved.reads * (self.shape.pages * PAGE) as u64;
        Ok((Neighbours::gather(k, all, moved.distances), moved))
    }

    /// The same one query after the other on one thread, with the time that each takes.
    pub fn timed(
        &self,
        queries: &Matrix<'_>,
        k: usize,
        ask: &TierAsk<'_>,
    ) -> Result<(Neighbours, Moved, Vec<f64>), AnnError> {
        let (mut times, mut parts, mut moved) = (Vec::new(), Vec::new(), Moved::default());
        let ask = TierAsk { threads: 1, ..*ask };
        for at in 0..queries.len() {
            let start = Instant::now();
            let (found, more) = self.knn_query(&queries.slice(at..at + 1), k, &ask)?;
            times.push(start.elapsed().as_secs_f64());
            parts.push(found.labels.into_iter().zip(found.distances).collect());
            moved.reads += more.reads;
            moved.bytes += more.bytes;
            moved.kept += more.kept;
            moved.estimates += more.estimates;
            moved.distances += more.distances;
        }
        Ok((Neighbours::gather(k, parts, moved.distances), moved, times))
    }

    fn workers(&self, threads: usize) -> Vec<Worker> {
        let mut tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        let from = tools.len().saturating_sub(threads);
        let mut workers = tools.split_off(from);
        let flight = || Flight {
            batch: Batch::new(self.shape.pages),
            under_way: false,
            queries: Vec::new(),
            here: Vec::new(),
            rows: Rows::new(self.spec.intake()),
            results: Beam::default(),
        };
        workers.resize_with(threads, || Worker {
            walk: Walk::default(),
            flights: [flight(), flight()],
            distances: 0,
        });
        workers
    }

    /// Which nodes a filter wants, by reading all labels once.
    fn wanted(&self, filter: &Filter<'_>) -> Result<Vec<bool>, AnnError> {
        let mut wanted = vec![false; self.nodes];
        self.opened.each(|node, _, label| wanted[node as usize] = filter.wants(label))?;
        Ok(wanted)
    }

    /// Walks for some queries and begins to read their pages, in the worker's first flight.
    fn begin(
        &self,
        worker: &mut Worker,
        asked: Vec<(usize, Query)>,
        (ef, rerank): (usize, usize),
        among: Option<&[bool]>,
    ) -> Result<(), AnnError> {
        let Worker { walk, flights: [flight, _], .. } = worker;
        let mut pages = Vec::new();
        flight.queries.clear();
        for (at, query) in asked {
            let mut near = Vec::new();
            if self.nodes > 0 {
                self.fast.codes.coder().ask(query.get().0, &mut walk.query);
                match among {
                    None => self.fast.walk(self.nodes, ef.min(self.nodes), walk),
                    Some(wanted) => {
                        let all: Vec<u32> =
                            (0..self.nodes as u32).filter(|node| wanted[*node as usize]).collect();
                        self.fast.scan(&all, rerank, walk);
                    }
                }
                near.extend(walk.beam.found().take(rerank).map(|(_, node)| node));
            }
            pages.extend(near.iter().map(|node| self.shape.page(*node)));
            flight.queries.push((at, query, near));
        }
        pages.sort_unstable();
        pages.dedup();
        flight.here.clear();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        pages.retain(|page| match cache.get(*page) {
            Some(group) => {
                flight.here.push((*page, group.to_vec()));
                false
            }
            None => true,
        });
        drop(cache);
        self.reads.fetch_add(pages.len() as u64, Ordering::Relaxed);
        self.kept.fetch_add(flight.here.len() as u64, Ordering::Relaxed);
        flight.batch.begin(&self.file, &pages).map_err(AnnError::file(&self.opened.path))?;
        flight.under_way = true;
        Ok(())
    }

    /// Waits for the pages of a flight and answers its queries by true distances.
    fn finish(
        &self,
        worker: &mut Worker,
        flight: usize,
        k: usize,
        among: Option<&[bool]>,
    ) -> Result<Vec<Answer>, AnnError> {
        let Worker { flights, distances, .. } = worker;
        let flight = &mut flights[flight];
        if !std::mem::replace(&mut flight.under_way, false) {
            return Ok(Vec::new());
        }
        flight.batch.finish(&self.file).map_err(AnnError::file(&self.opened.path))?;
        let mut groups: Vec<(u64, &[u8])> =
            flight.here.iter().map(|(page, group)| (*page, &group[..])).collect();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        for (page, group) in flight.batch.groups() {
            check(page, group)?;
            cache.put(page, group);
            groups.push((page, group));
        }
        drop(cache);
        groups.sort_unstable_by_key(|(page, _)| *page);
        // Every vector on these pages, as rows in the order of groups.
        let each = self.shape.each;
        let rows = &mut flight.rows;
        rows.resize(groups.len() * each).map_err(AnnError::file(&self.opened.path))?;
        let mut labels = vec![NOBODY; groups.len() * each];
        let mut vector = vec![0; self.shape.vector];
        for (at, (page, group)) in groups.iter().enumerate() {
            let first = page / self.shape.pages as u64 * each as u64;
            for place in 0..each.min(self.nodes - first as usize) {
                let node = first as u32 + place as u32;
                if among.is_none_or(|wanted| wanted[node as usize]) {
                    labels[at * each + place] = self.shape.take(node, group, &mut vector);
                    rows.set_kept((at * each + place) as u32, &vector);
                }
            }
        }
        let distance = *rows.distance();
        let mut answers = Vec::new();
        let mut keys = Vec::new();
        for (query, asked, near) in flight.queries.drain(..) {
            let mut mine: Vec<u64> = near.iter().map(|node| self.shape.page(*node)).collect();
            mine.sort_unstable();
            mine.dedup();
            let mut ids: Vec<u32> = Vec::with_capacity(mine.len() * each);
            for page in mine {
                if let Ok(at) = groups.binary_search_by_key(&page, |(page, _)| *page) {
                    let all = at * each..(at + 1) * each;
                    ids.extend(all.filter(|row| labels[*row] != NOBODY).map(|row| row as u32));
                }
            }
            keys.resize(ids.len(), 0);
            distance.many(asked.get(), rows, &ids, &mut keys);
            *distances += ids.len() as u64;
            flight.results.start(k);
            keys.iter().zip(&ids).for_each(|(key, row)| {
                flight.results.offer(*key, *row);
            });
            let best = flight.results.found();
            answers
                .push((query, best.map(|(key, row)| (labels[row as usize], distance.value(key))).collect()));
        }
        Ok(answers)
    }
}

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
mod worker;

use std::collections::HashMap;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tiercel_core::Bytes;

use crate::element::{Matrix, widen};
use crate::error::AnnError;
use crate::file::{Opened, PAGE, Shape};
use crate::filter::Filter;
use crate::index::{Answer, Index, Neighbours, Spec, within};
use crate::parallel;
use crate::rows::Query;

use cache::Cache;
use fast::Fast;
use reader::PageFile;
pub use settings::Setting;
use settings::Settings;
pub use slow::Slow;
use worker::{Pages, Pool, Room, Wanted, Worker};

/// How many queries read their pages together, where there are many.
const GROUP: usize = 8;

/// How many times as many vectors are read where a filter chooses among them.
const FILTERED: usize = 4;

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
    pool: Pool,
    room: Room,
    limit: Bytes,
    opened: Opened,
}

/// What a limit of memory leaves for codes and links beside what searches on so many threads take.
pub(crate) fn left(spec: &Spec, nodes: usize, limit: Bytes, threads: usize) -> usize {
    let threads = threads.max(1);
    let worker = Room::of(limit.0 as usize, threads, nodes, &spec.intake(), Shape::of(spec));
    (limit.0 as usize).saturating_sub(threads * worker.bytes)
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

impl FromStr for FastMemory {
    type Err = String;

    /// `20%`, `0.2`, or an amount such as `2GiB`.
    fn from_str(text: &str) -> Result<FastMemory, String> {
        let bad = || format!("`{text}` is no share such as 20% and no amount such as 2GiB");
        let text = text.trim();
        let share = match text.strip_suffix('%') {
            Some(number) => Some(number.trim().parse::<f64>().map_err(|_| bad())? / 100.0),
            None => text.parse::<f64>().ok().filter(|share| *share <= 1.0),
        };
        match share {
            Some(share) if (0.0..=100.0).contains(&share) => Ok(FastMemory::Share(share)),
            Some(_) => Err(bad()),
            None => text.parse().map(FastMemory::Bytes).map_err(|_| bad()),
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
        let worker = Room::of(limit, threads.max(1), nodes, &spec.intake(), Shape::of(spec)).bytes;
        let rest = crate::links::packed(nodes, links) + towers + shared + threads.max(1) * worker;
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
        let threads = threads.max(1);
        let worker = Room::of(limit.0 as usize, threads, nodes, &opened.head.spec.intake(), shape);
        let under_way = threads * worker.bytes;
        let room = (limit.0 as usize).saturating_sub(under_way);
        fast.shorten(room).map_err(AnnError::file(path))?.map_err(|wanted| AnnError::FastMemory {
            what: "codes and links",
            wanted: Bytes((wanted + under_way) as u64),
            there: limit,
        })?;
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
            pool: Pool::new(threads),
            room: worker,
            limit,
            opened,
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
        Bytes((self.fast.resident() + cache + self.pool.resident()) as u64)
    }

    /// The widths that a search has: of the beam, and of what is read.
    fn widths(&self, k: usize, ask: &TierAsk<'_>) -> Result<(usize, usize), AnnError> {
        let most = self.room.widest;
        for (what, width) in [("k", k), ("ef", ask.ef.unwrap_or(1)), ("rerank", ask.rerank.unwrap_or(1))] {
            within(what, width, 1, most)?;
        }
        let chosen = self.settings.choose(ask.recall.unwrap_or(0.95));
        // Among few vectors the nearest are farther away, and codes tell them apart less well.
        let more = if ask.filter.is_some() { FILTERED } else { 1 };
        let scale = |width: u32| (width as usize * k.div_ceil(10)).max(k);
        let (ef, rerank) = chosen.map_or((8 * k, 4 * k), |s| (scale(s.ef), scale(s.rerank)));
        let rerank = ask.rerank.unwrap_or(ask.ef.map_or(rerank, |ef| ef / 2) * more).max(k).min(most);
        Ok((ask.ef.unwrap_or(ef).max(rerank).min(most), rerank))
    }

    /// The `k` nearest vectors of each query, and what it took.
    pub fn knn_query(
        &self,
        queries: &Matrix<'_>,
        k: usize,
        ask: &TierAsk<'_>,
    ) -> Result<(Neighbours, Moved), AnnError> {
        let widths = self.widths(k, ask)?;
        let make = || Worker::new(self.spec.intake(), self.shape, &self.room).map_err(self.failed());
        let mut lent = self.pool.take(ask.threads.max(1), make)?;
        let all = self.answer(queries, k, (widths, ask), &mut lent.workers);
        let mut moved = Moved::default();
        for worker in &mut lent.workers {
            moved.estimates += std::mem::take(&mut worker.walk.estimates);
            moved.distances += std::mem::take(&mut worker.desk.distances);
            for flight in &mut worker.flights {
                moved.reads += std::mem::take(&mut flight.reads);
                moved.kept += std::mem::take(&mut flight.kept);
            }
        }
        drop(lent);
        moved.bytes = moved.reads * (self.shape.pages * PAGE) as u64;
        Ok((Neighbours::gather(k, all?, moved.distances), moved))
    }

    fn failed(&self) -> impl Fn(std::io::Error) -> AnnError + '_ {
        |error| AnnError::file(&self.opened.path)(error)
    }

    /// Neighbours of all queries, which some workers share.
    fn answer(
        &self,
        queries: &Matrix<'_>,
        k: usize,
        (widths, ask): ((usize, usize), &TierAsk<'_>),
        workers: &mut [Worker],
    ) -> Result<Vec<Answer>, AnnError> {
        let wanted = ask.filter.as_ref().map(|filter| self.wanted(filter)).transpose()?;
        let wanted = wanted.as_ref();
        let intake = self.spec.intake();
        let group = if queries.len() < GROUP { 1 } else { (self.room.groups / widths.1).clamp(1, GROUP) };
        let pages = Pages { file: &self.file, cache: &self.cache, shape: self.shape, nodes: self.nodes };
        // What an error left behind is no part of this.
        workers.iter_mut().flat_map(|worker| &mut worker.flights).for_each(|flight| flight.clear());
        let parts = parallel::each(workers, queries.len().div_ceil(group), |worker, at| {
            let Worker { walk, flights: [now, before], desk } = worker;
            now.clear();
            for at in at * group..((at + 1) * group).min(queries.len()) {
                let query = Query::new(&intake, queries, at)?;
                if self.nodes > 0 {
                    self.fast.codes.coder().ask(query.get().0, &mut walk.query);
                    match wanted {
                        None => self.fast.walk(self.nodes, widths.0.min(self.nodes), walk),
                        Some(wanted) => self.fast.scan(wanted.each(), widths.1, walk),
                    }
                    let near = walk.beam.found().take(widths.1);
                    now.ask(at, query, near.map(|(_, node)| self.shape.page(node)), k);
                } else {
                    now.ask(at, query, std::iter::empty(), k);
                }
            }
            now.begin(&pages).map_err(self.failed())?;
            let done = before.finish(&pages, desk, wanted, self.failed());
            worker.flights.swap(0, 1);
            done
        });
        let mut all = vec![Answer::new(); queries.len()];
        let last =
            |worker: &mut Worker| worker.flights[1].finish(&pages, &mut worker.desk, wanted, self.failed());
        let last: Vec<_> = workers.iter_mut().map(last).collect();
        for part in parts.into_iter().chain(last) {
            part?.into_iter().for_each(|(query, found)| all[query] = found);
        }
        Ok(all)
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

    /// All of the index in memory, where it can be changed; also where the file's name has gone to another since.
    pub fn load(&self) -> Result<Index, AnnError> {
        self.opened.load()
    }

    /// All labels, in no order.
    pub fn labels(&self) -> Result<Vec<u64>, AnnError> {
        let mut labels = Vec::with_capacity(self.nodes);
        self.opened.each_label(|_, label| labels.push(label))?;
        Ok(labels)
    }

    /// The vectors with these labels as they are kept, where they are there.
    pub fn vectors(&self, labels: &[u64]) -> Result<Vec<Option<Vec<f32>>>, AnnError> {
        let mut nodes: HashMap<u64, Option<u32>> = labels.iter().map(|label| (*label, None)).collect();
        self.opened.each_label(|node, label| {
            if let Some(place) = nodes.get_mut(&label) {
                *place = Some(node);
            }
        })?;
        let mut kept = vec![0; self.shape.vector];
        let mut one = |label: &u64| -> Result<Option<Vec<f32>>, AnnError> {
            let Some(node) = nodes[label] else { return Ok(None) };
            let found = self.opened.one(node, &mut kept)?;
            if found != *label {
                return Err(AnnError::damaged(&self.opened.path, "its Labels are not those of its vectors"));
            }
            let mut numbers = vec![0.0; self.spec.dim];
            widen(self.spec.dtype, &kept, &mut numbers);
            Ok(Some(numbers))
        };
        labels.iter().map(&mut one).collect()
    }

    /// Which nodes a filter wants, by reading all labels once.
    fn wanted(&self, filter: &Filter<'_>) -> Result<Wanted, AnnError> {
        let mut wanted = Wanted::none(self.nodes);
        self.opened.each_label(|node, label| {
            if filter.wants(label) {
                wanted.set(node);
            }
        })?;
        Ok(wanted)
    }
}

//! What one thread of a search works with, and how many there may be: every byte of it is set aside when the index is opened.
//!
//! A worker's buffers have room for so many groups of pages and no more. A search that wants more of them reads, scores
//! and forgets them in turns, so that memory does not grow with the number of queries or of vectors read.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::beam::Beam;
use crate::element::Intake;
use crate::error::AnnError;
use crate::file::{PAGE, Shape, check};
use crate::index::{Answer, NOBODY};
use crate::rows::{Query, Rows, padded};
use crate::tier::cache::Cache;
use crate::tier::fast::Walk;
use crate::tier::reader::{Batch, PageFile};

/// The fewest groups of pages that a buffer holds.
const LEAST: usize = 16;

/// The bytes of lists for each node that a beam holds, its pages and its results among them.
const LISTED: usize = 48;

/// The narrowest beam that there is always room for.
const WIDEST: usize = 2048;

/// What each worker may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Groups of pages in a buffer, of which a worker has two.
    pub(super) groups: usize,
    /// The widest beam.
    pub(super) widest: usize,
    /// All that a worker takes.
    pub(super) bytes: usize,
}

impl Room {
    /// Of a limit of memory, for each of so many threads.
    pub(super) fn of(limit: usize, threads: usize, nodes: usize, intake: &Intake, shape: Shape) -> Room {
        let share = limit / 20 / threads;
        let group = shape.pages * PAGE;
        let groups = (share / (2 * group)).clamp(LEAST, 1 << 16);
        let widest = (share / 4 / LISTED).max(WIDEST);
        // A page of slack for each list, because lists grow by doubling from a page or less.
        let rows = (padded(intake) + 16) * shape.each + 4 * PAGE;
        // Nodes seen, nodes that a filter wants, the two buffers, lists, one group's vectors, and the query with its tables.
        let query = intake.dim * 32 + (64 << 10);
        let bytes = nodes + nodes / 8 + 2 * groups * group + widest * LISTED + rows + query;
        Room { groups, widest, bytes }
    }
}

/// Workers that are free, and how many more may be made.
pub(super) struct Pool {
    free: Mutex<(Vec<Worker>, usize)>,
    came_back: Condvar,
}

impl Pool {
    /// So many at most.
    pub(super) fn new(most: usize) -> Pool {
        Pool { free: Mutex::new((Vec::new(), most)), came_back: Condvar::new() }
    }

    /// At least one and at most so many, as soon as there is one; they are free again when what it returns is dropped.
    pub(super) fn take(
        &self,
        most: usize,
        make: impl Fn() -> Result<Worker, AnnError>,
    ) -> Result<Lent<'_>, AnnError> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while free.0.is_empty() && free.1 == 0 {
            free = self.came_back.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        let from = free.0.len().saturating_sub(most);
        let mut taken = free.0.split_off(from);
        while taken.len() < most && free.1 > 0 {
            match make() {
                Ok(worker) => taken.push(worker),
                Err(error) => {
                    free.0.append(&mut taken);
                    return Err(error);
                }
            }
            free.1 -= 1;
        }
        drop(free);
        Ok(Lent { pool: self, workers: taken })
    }

    /// The bytes that the free ones hold.
    pub(super) fn resident(&self) -> usize {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.0.iter().map(Worker::resident).sum()
    }
}

/// Workers that somebody has for a while.
pub(super) struct Lent<'a> {
    pool: &'a Pool,
    pub(super) workers: Vec<Worker>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let workers = std::mem::take(&mut self.workers);
        self.pool.free.lock().unwrap_or_else(PoisonError::into_inner).0.extend(workers);
        self.pool.came_back.notify_all();
    }
}

/// What a thread works with.
pub(super) struct Worker {
    pub(super) walk: Walk,
    pub(super) flights: [Flight; 2],
    /// The vectors of one group of pages.
    pub(super) desk: Desk,
}

/// One group's vectors and labels.
pub(super) struct Desk {
    rows: Rows,
    labels: Vec<u64>,
    vector: Vec<u8>,
    ids: Vec<u32>,
    keys: Vec<u32>,
    /// True distances computed since this was last set to zero.
    pub(super) distances: u64,
}

impl Worker {
    pub(super) fn new(intake: Intake, shape: Shape, room: &Room) -> std::io::Result<Worker> {
        let mut rows = Rows::new(intake);
        rows.resize(shape.each)?;
        let flight = || Flight::new(shape.pages, room.groups);
        Ok(Worker {
            walk: Walk::default(),
            flights: [flight()?, flight()?],
            desk: Desk {
                rows,
                labels: vec![NOBODY; shape.each],
                vector: vec![0; shape.vector],
                ids: Vec::with_capacity(shape.each),
                keys: Vec::with_capacity(shape.each),
                distances: 0,
            },
        })
    }

    fn resident(&self) -> usize {
        let flights: usize = self.flights.iter().map(|flight| flight.batch.resident()).sum();
        self.walk.resident() + flights + self.desk.rows.resident()
    }
}

/// A query, the groups of pages that it wants, in order, and the nearest so far.
pub(super) struct Asked {
    at: usize,
    query: Query,
    groups: Vec<u64>,
    best: Beam,
    /// Labels of nodes that were among the best once.
    labels: Vec<(u32, u64)>,
}

/// Queries whose pages are on their way.
pub(super) struct Flight {
    batch: Batch,
    under_way: bool,
    queries: Vec<Asked>,
    /// Every group that these want, in order, and how many of them were begun.
    groups: Vec<u64>,
    begun: usize,
    /// Groups read, and groups that were here already, since these were last set to zero.
    pub(super) reads: u64,
    pub(super) kept: u64,
}

/// What pages are read from, and which of them are kept.
pub(super) struct Pages<'a> {
    pub(super) file: &'a PageFile,
    pub(super) cache: &'a Mutex<Cache>,
    pub(super) shape: Shape,
    pub(super) nodes: usize,
}

impl Flight {
    fn new(group: usize, room: usize) -> std::io::Result<Flight> {
        let batch = Batch::new(group, room)?;
        Ok(Flight {
            batch,
            under_way: false,
            queries: Vec::new(),
            groups: Vec::new(),
            begun: 0,
            reads: 0,
            kept: 0,
        })
    }

    /// Forgets what it had.
    pub(super) fn clear(&mut self) {
        self.under_way = false;
        self.queries.clear();
        self.groups.clear();
        self.begun = 0;
    }

    /// A query, for which these nodes are to be read.
    pub(super) fn ask(&mut self, at: usize, query: Query, near: impl Iterator<Item = u64>, k: usize) {
        let mut groups: Vec<u64> = near.collect();
        groups.sort_unstable();
        groups.dedup();
        let mut best = Beam::default();
        best.start(k);
        self.groups.extend(&groups);
        self.queries.push(Asked { at, query, groups, best, labels: Vec::new() });
    }

    /// Begins to read what its queries want, as much as fits.
    pub(super) fn begin(&mut self, pages: &Pages<'_>) -> std::io::Result<()> {
        self.groups.sort_unstable();
        self.groups.dedup();
        self.under_way = true;
        self.more(pages)
    }

    fn more(&mut self, pages: &Pages<'_>) -> std::io::Result<()> {
        let end = self.groups.len().min(self.begun + self.batch.room());
        let some = &self.groups[self.begun..end];
        let mut cache = pages.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = self.batch.begin(pages.file, some, |group, into| match cache.get(group) {
            Some(bytes) => {
                into.copy_from_slice(bytes);
                true
            }
            None => false,
        })?;
        drop(cache);
        self.reads += (some.len() - kept) as u64;
        self.kept += kept as u64;
        self.begun = end;
        Ok(())
    }

    /// Waits for its pages and answers its queries by true distances, among nodes that are wanted.
    pub(super) fn finish(
        &mut self,
        pages: &Pages<'_>,
        desk: &mut Desk,
        wanted: Option<&Wanted>,
        failed: impl Fn(std::io::Error) -> AnnError,
    ) -> Result<Vec<(usize, Answer)>, AnnError> {
        if !std::mem::replace(&mut self.under_way, false) {
            return Ok(Vec::new());
        }
        loop {
            self.batch.finish(pages.file).map_err(&failed)?;
            for (page, group) in self.batch.read() {
                check(page, group)?;
            }
            let mut cache = pages.cache.lock().unwrap_or_else(PoisonError::into_inner);
            self.batch.read().for_each(|(page, group)| cache.put(page, group));
            drop(cache);
            let Flight { batch, queries, .. } = &mut *self;
            for (page, group) in batch.groups() {
                desk.score(page, group, pages, wanted, queries);
            }
            if self.begun == self.groups.len() {
                break;
            }
            self.more(pages).map_err(&failed)?;
        }
        let distance = *desk.rows.distance();
        let answer = |mut asked: Asked| {
            asked.labels.sort_unstable();
            let label = |node| {
                asked.labels.binary_search_by_key(&node, |(node, _)| *node).map(|at| asked.labels[at].1)
            };
            let best = asked.best.found();
            let answer =
                best.map(|(key, node)| (label(node).unwrap_or(NOBODY), distance.value(key))).collect();
            (asked.at, answer)
        };
        Ok(self.queries.drain(..).map(answer).collect())
    }
}

impl Desk {
    /// Gives every vector of a group its true distance to the queries that want the group.
    fn score(
        &mut self,
        page: u64,
        group: &[u8],
        pages: &Pages<'_>,
        wanted: Option<&Wanted>,
        queries: &mut [Asked],
    ) {
        let Desk { rows, labels, vector, ids, keys, distances } = self;
        let shape = pages.shape;
        let first = (page / shape.pages as u64) as u32 * shape.each as u32;
        ids.clear();
        for place in 0..shape.each.min(pages.nodes - first as usize) as u32 {
            if wanted.is_none_or(|wanted| wanted.has(first + place)) {
                labels[place as usize] = shape.take(first + place, group, vector);
                rows.set_kept(place, vector);
                ids.push(place);
            }
        }
        keys.resize(ids.len(), 0);
        for asked in queries.iter_mut().filter(|asked| asked.groups.binary_search(&page).is_ok()) {
            rows.distance().many(asked.query.get(), rows, ids, keys);
            *distances += ids.len() as u64;
            for (key, place) in keys.iter().zip(ids.iter()) {
                if asked.best.offer(*key, first + place) {
                    asked.labels.push((first + place, labels[*place as usize]));
                }
            }
        }
    }
}

/// Which nodes a filter wants, a bit each.
pub(super) struct Wanted(Vec<u64>);

impl Wanted {
    /// None of so many.
    pub(super) fn none(nodes: usize) -> Wanted {
        Wanted(vec![0; nodes.div_ceil(64)])
    }

    /// Wants a node.
    pub(super) fn set(&mut self, node: u32) {
        self.0[node as usize / 64] |= 1 << (node % 64);
    }

    /// Whether a node is wanted.
    #[inline(always)]
    pub(super) fn has(&self, node: u32) -> bool {
        self.0[node as usize / 64] >> (node % 64) & 1 == 1
    }

    /// Those that are, in order.
    pub(super) fn each(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut word = *word;
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some(at as u32 * 64 + bit)
            })
        })
    }
}

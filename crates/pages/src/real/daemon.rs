//! The daemon for NUMA nodes and CXL memory: the same decisions as in simulation, on real pages.
//!
//! The program's large anonymous mappings are numbered in granules; a profiler and a strategy see these as pages and know
//! nothing of addresses. A tracker says what was accessed, `move_pages` moves in batches, no faster than asked, one worker
//! for each pair of nodes. User space cannot copy better than `move_pages` does in another process: copies beside the
//! program belong to programs that use the arena.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::calls::{self, kinds};
use super::nodes::{self, Node};
use super::trackers::{self, Seen, Tracker};
use super::{KeepError, process};
use crate::placement::{NOWHERE, Placement};
use crate::profilers::segments::mark_hot;
use crate::systems;
use crate::tiers::Tiers;
use crate::watch::{Costs, Heat, Keeper, Last, Move, Setting, Sight, Watch, Why};

const PAGE: u64 = 4096;

/// How many granules there may be: where a program has more memory, granules are larger.
const MOST: u64 = 1 << 19;

/// The size of a huge page.
const HUGE: u64 = 2 << 20;

/// How many pages a call moves.
const BATCH: usize = 512;

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The process.
    pub pid: u32,
    /// The nodes from the fastest on; the kernel's order where nothing is said.
    pub nodes: Option<Vec<u32>>,
    /// How much of the fastest node it may have.
    pub fast: Option<u64>,
    /// The policy's name.
    pub policy: String,
    /// The tracker's name; the best where nothing is said.
    pub tracker: Option<String>,
    /// An interval between two decisions.
    pub interval: Duration,
    /// Which share of a processor's time may be taken.
    pub overhead: f64,
    /// Bytes a second that may be moved.
    pub rate: u64,
}

/// What an interval brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// Since the beginning.
    pub seconds: f64,
    /// Pages that moved up, and down, and that the kernel would not move.
    pub promoted: u64,
    /// Pages that moved down.
    pub demoted: u64,
    /// Pages that the kernel would not move.
    pub refused: u64,
    /// Bytes of the program on each node, as far as granules say.
    pub on: Vec<u64>,
    /// Bytes that the profiler calls hot, and how many of them lie on the fastest node.
    pub hot: u64,
    /// Hot bytes on the fastest node.
    pub hot_fast: u64,
    /// Spans of the profiler.
    pub spans: usize,
    /// Processor time as a share of the time that passed.
    pub overhead: f64,
    /// What moved and why: addresses, node, reason.
    pub moves: Vec<(Range<u64>, u32, Why)>,
    /// The address space in [`PARTS`] equal parts: bytes in it, bytes that are not on the fastest node, bytes that are hot.
    pub map: Vec<[u64; 3]>,
}

/// How many parts of the address space [`Interval::map`] has.
pub const PARTS: usize = 72;

/// Which granule is where in the address space.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Map {
    granule: u64,
    /// First granule of each run of addresses, and the run.
    runs: Vec<(u32, Range<u64>)>,
    count: u32,
}

impl Map {
    /// The large anonymous mappings of a process, in granules of so many bytes.
    fn new(ranges: &[Range<u64>], granule: u64) -> Map {
        let mut map = Map { granule, ..Map::default() };
        for range in ranges {
            let range = range.start / granule * granule..range.end.next_multiple_of(granule);
            let first = map.count;
            map.count += ((range.end - range.start) / granule) as u32;
            map.runs.push((first, range));
        }
        map
    }

    /// The addresses of a granule.
    fn addresses(&self, granule: u32) -> Range<u64> {
        let at = self.runs.partition_point(|(first, _)| *first <= granule) - 1;
        let (first, range) = &self.runs[at];
        let start = range.start + u64::from(granule - first) * self.granule;
        start..start + self.granule
    }

    /// The granules that a range of addresses touches.
    fn granules(&self, addresses: &Range<u64>) -> Vec<Range<u32>> {
        let mut found = Vec::new();
        for (first, run) in &self.runs {
            let (start, end) = (addresses.start.max(run.start), addresses.end.min(run.end));
            if start < end {
                let at = |address: u64| first + ((address - run.start) / self.granule) as u32;
                found.push(at(start)..at(end - 1) + 1);
            }
        }
        found
    }
}

/// Large anonymous mappings of a process.
fn ranges(pid: u32) -> Result<Vec<Range<u64>>, KeepError> {
    let error = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => KeepError::NoProcess(pid),
        _ => KeepError::NotOurs { pid, error },
    };
    let mappings = process::mappings(pid).map_err(error)?;
    Ok(mappings.into_iter().filter(|m| m.is_anonymous() && m.bytes() >= 1 << 20).map(|m| m.range).collect())
}

/// The daemon.
pub struct Daemon {
    options: Options,
    nodes: Vec<Node>,
    tiers: Tiers,
    map: Map,
    ranges: Vec<Range<u64>>,
    keeper: Keeper,
    setting: Setting,
    placement: Placement,
    tracker: Box<dyn Tracker>,
    /// When the process began: another that gets its number is not taken for it.
    began: Option<u64>,
    started: Instant,
    cpu: Duration,
    /// What a page's move took, smoothed.
    stall_ns: f64,
}

impl Daemon {
    /// Attaches to a process.
    pub fn open(options: Options) -> Result<Daemon, KeepError> {
        if !process::runs(options.pid) {
            return Err(KeepError::NoProcess(options.pid));
        }
        let nodes = nodes::ordered(options.nodes.as_deref())?;
        let pid = options.pid;
        calls::move_pages(pid, &[], None).map_err(|error| KeepError::NotOurs { pid, error })?;
        let found = ranges(pid)?;
        if let Some(first) = found.first() {
            calls::move_pages(pid, &[first.start], None)
                .map_err(|error| KeepError::NotOurs { pid, error })?;
        }
        let tracker = trackers::open(pid, options.tracker.as_deref())?;
        let mut daemon = Daemon {
            tiers: nodes::tiers(&nodes, PAGE, options.fast),
            map: Map::default(),
            ranges: Vec::new(),
            keeper: wire(
                &options.policy,
                setting(&options, 1, PAGE),
                &nodes::tiers(&nodes, PAGE, options.fast),
            ),
            setting: setting(&options, 1, PAGE),
            placement: Placement::new(0, &nodes::tiers(&nodes, PAGE, options.fast)),
            tracker,
            began: process::began(pid),
            started: Instant::now(),
            cpu: calls::own_cpu(),
            stall_ns: 0.0,
            nodes,
            options,
        };
        daemon.lay_out(found);
        Ok(daemon)
    }

    /// The tracker that is used.
    pub fn tracker(&self) -> &'static str {
        self.tracker.name()
    }

    /// The nodes from the fastest on.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Numbers the granules anew: the program has other mappings than before.
    fn lay_out(&mut self, ranges: Vec<Range<u64>>) {
        let all: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let mut granule = PAGE;
        while all / granule > MOST {
            granule *= 2;
        }
        self.map = Map::new(&ranges, granule);
        self.ranges = ranges;
        self.tiers = nodes::tiers(&self.nodes, granule, self.options.fast);
        self.setting = setting(&self.options, self.map.count.max(1), granule);
        self.keeper = wire(&self.options.policy, self.setting, &self.tiers);
        self.placement = Placement::new(self.map.count as usize, &self.tiers);
    }

    /// Asks the kernel where all granules are; a granule is where its first page is.
    fn locate(&mut self) -> io::Result<()> {
        let mut at = 0;
        while at < self.map.count {
            let end = (at + 4096).min(self.map.count);
            let pages: Vec<u64> = (at..end).map(|granule| self.map.addresses(granule).start).collect();
            let status = calls::move_pages(self.options.pid, &pages, None)?;
            for (granule, node) in (at..end).zip(status) {
                let tier = self.nodes.iter().position(|known| i32::try_from(known.id) == Ok(node));
                self.placement.note(granule, tier.map_or(NOWHERE, |tier| tier as u8));
            }
            at = end;
        }
        Ok(())
    }

    /// Looks for as long as an interval takes; how hot granules are.
    fn watch(&mut self) -> io::Result<Vec<Heat>> {
        if self.tracker.begin()? {
            std::thread::sleep(self.options.interval);
            return Ok(heats_of(&self.tracker.regions()?, &self.map));
        }
        let scans = self.keeper.profiler.scans();
        for _ in 0..scans {
            let Watch::Bits(asked) = self.keeper.profiler.watch(&self.placement) else {
                return Err(io::Error::other("this policy looks at more than accessed bits"));
            };
            let pages: Vec<u64> = asked.iter().map(|granule| self.map.addresses(*granule).start).collect();
            self.tracker.clear(&pages)?;
            std::thread::sleep(self.options.interval / scans as u32);
            let bits = self.tracker.accessed(&pages)?;
            let sight =
                |(page, seen): (&u32, &bool)| Sight { page: *page, seen: u32::from(*seen), stored: 0 };
            let sights: Vec<Sight> = asked.iter().zip(&bits).map(sight).collect();
            self.keeper.profiler.seen(&sights);
        }
        Ok(self.keeper.profiler.close(&self.placement))
    }

    /// One interval: watches, decides, moves. `None` when the process has ended.
    pub fn step(&mut self) -> Result<Option<Interval>, KeepError> {
        let pid = self.options.pid;
        let system = |what: &str| {
            let what = format!("{what} of process {pid}");
            move |error| KeepError::System { what, error }
        };
        let ended = |daemon: &Daemon| !process::runs(pid) || process::began(pid) != daemon.began;
        if ended(self) {
            return Ok(None);
        }
        match ranges(pid) {
            Ok(ranges) if ranges != self.ranges => self.lay_out(ranges),
            Ok(_) => {}
            Err(_) if ended(self) => return Ok(None),
            Err(error) => return Err(error),
        }
        let heats = match self.watch() {
            Ok(heats) => heats,
            Err(_) if ended(self) => return Ok(None),
            Err(error) => return Err(system("watching")(error)),
        };
        match self.locate() {
            Err(_) if ended(self) => return Ok(None),
            other => other.map_err(system("locating pages"))?,
        }
        let last = Last {
            ns: self.options.interval.as_nanos() as f64,
            busy: vec![0.0; self.tiers.len()],
            stall_ns: self.stall_ns,
            accesses: 0.0,
            stores: 0.0,
            threads: 1.0,
            horizon: self.keeper.profiler.horizon(),
        };
        let moves = self.keeper.strategy.decide(&heats, &self.placement, &self.tiers, &last);
        let mut interval = self.carry_out(&moves).map_err(system("moving pages"))?;
        self.keeper.profiler.told(moves.iter().map(|order| order.pages as usize).sum());
        interval.seconds = self.started.elapsed().as_secs_f64();
        interval.overhead = (calls::own_cpu() - self.cpu).as_secs_f64() / interval.seconds;
        interval.spans = heats.len();
        interval.on = (0..self.tiers.len())
            .map(|tier| self.placement.used(tier as u8) as u64 * self.map.granule)
            .collect();
        interval.map = vec![[0; 3]; PARTS];
        for heat in &heats {
            for granule in heat.range() {
                let (bytes, tier) = (self.map.granule, self.placement.tier(granule));
                let part = &mut interval.map[granule as usize * PARTS / self.map.count.max(1) as usize];
                part[0] += u64::from(tier != NOWHERE) * bytes;
                part[1] += u64::from(tier != NOWHERE && tier != 0) * bytes;
                if heat.hot {
                    part[2] += u64::from(tier != NOWHERE) * bytes;
                    interval.hot += bytes;
                    interval.hot_fast += u64::from(tier == 0) * bytes;
                }
            }
        }
        Ok(Some(interval))
    }

    /// Where the program has huge pages, as far as the kernel tells.
    fn huge(&self) -> Vec<Range<u64>> {
        let Ok(pagemap) = File::open(format!("/proc/{}/pagemap", self.options.pid)) else {
            return Vec::new();
        };
        let scan = |range: &Range<u64>| calls::scan(&pagemap, range.clone(), kinds::HUGE).unwrap_or_default();
        self.ranges.iter().flat_map(scan).collect()
    }

    /// Moves what was decided, what makes room first, each pair of nodes in a worker of its own, within the rate.
    fn carry_out(&mut self, moves: &[Move]) -> io::Result<Interval> {
        let mut interval = Interval::default();
        let budget = (self.options.rate as f64 * self.options.interval.as_secs_f64()) as u64;
        let mut left = budget;
        let huge = self.huge();
        for why in [Why::Room, Why::Hot] {
            // For each pair of nodes the granules that go from the one to the other.
            let mut pairs: BTreeMap<(u8, u8), Vec<u32>> = BTreeMap::new();
            for order in moves.iter().filter(|order| order.why == why) {
                let start = self.map.addresses(order.first).start;
                let end = self.map.addresses(order.first + order.pages - 1).end;
                let mut taken = false;
                for granule in order.first..order.first + order.pages {
                    let from = self.placement.tier(granule);
                    if from == NOWHERE || from == order.to || left < self.map.granule {
                        continue;
                    }
                    left -= self.map.granule;
                    taken = true;
                    pairs.entry((from, order.to)).or_default().push(granule);
                }
                if taken {
                    interval.moves.push((start..end, self.nodes[order.to as usize].id, why));
                }
            }
            pairs.values_mut().for_each(|list| *list = whole(list, &self.map, &huge));
            let began = Instant::now();
            let pid = self.options.pid;
            let (map, nodes, rate) = (&self.map, &self.nodes, self.options.rate);
            let workers = pairs.len().max(1) as u64;
            let results: Vec<(u8, Vec<(u32, i32)>)> = std::thread::scope(|scope| {
                let run = |(pair, granules): (&(u8, u8), &Vec<u32>)| {
                    let (to, granules) = (pair.1, granules.clone());
                    let node = nodes[to as usize].id as i32;
                    scope.spawn(move || (to, carry(pid, map, &granules, node, rate / workers)))
                };
                let handles: Vec<_> = pairs.iter().map(run).collect();
                handles.into_iter().filter_map(|handle| handle.join().ok()).collect()
            });
            let mut moved = 0;
            for (to, list) in results {
                for (granule, status) in list {
                    if status >= 0 {
                        self.placement.note(granule, to);
                        moved += 1;
                        let pages = self.map.granule / PAGE;
                        match why {
                            Why::Hot => interval.promoted += pages,
                            Why::Room => interval.demoted += pages,
                        }
                    } else {
                        interval.refused += self.map.granule / PAGE;
                    }
                }
            }
            if moved > 0 {
                // Whoever wants a page waits while it is moved: at most what its move took.
                let each = began.elapsed().as_nanos() as f64 / f64::from(moved);
                self.stall_ns = if self.stall_ns > 0.0 { 0.7 * self.stall_ns + 0.3 * each } else { each };
            }
        }
        Ok(interval)
    }
}

/// Moves granules to a node in batches; where each ended up, or why not.
fn carry(pid: u32, map: &Map, granules: &[u32], node: i32, rate: u64) -> Vec<(u32, i32)> {
    let began = Instant::now();
    let mut sent = 0;
    let mut done = Vec::with_capacity(granules.len());
    let per_granule = (map.granule / PAGE) as usize;
    for batch in granules.chunks((BATCH / per_granule).max(1)) {
        let pages: Vec<u64> =
            batch.iter().flat_map(|granule| map.addresses(*granule).step_by(PAGE as usize)).collect();
        let status = calls::move_pages(pid, &pages, Some(&vec![node; pages.len()]));
        for (at, granule) in batch.iter().enumerate() {
            let code = match &status {
                // A granule of which any page has arrived has moved: the others have no memory, or will be asked again.
                Ok(list) => {
                    let mine = &list[at * per_granule..(at + 1) * per_granule];
                    mine.iter().copied().max().unwrap_or(-1)
                }
                Err(error) => -error.raw_os_error().unwrap_or(1),
            };
            done.push((*granule, code));
        }
        sent += pages.len() as u64 * PAGE;
        let due = Duration::from_secs_f64(sent as f64 / rate.max(1) as f64);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    done
}

/// Regions of a tracker that samples by itself as heats over all granules, in order and without gaps.
fn heats_of(seen: &[Seen], map: &Map) -> Vec<Heat> {
    let mut heats: Vec<Heat> = Vec::new();
    let mut next = 0;
    let cold = |first: u32, pages: u32| Heat {
        first,
        pages,
        now: 0.0,
        mean: 0.0,
        error: 0.0,
        hot: false,
        lines: 0.0,
    };
    for region in seen {
        for granules in map.granules(&region.range) {
            let start = granules.start.max(next);
            if start >= granules.end {
                continue;
            }
            if start > next {
                heats.push(cold(next, start - next));
            }
            // Shares of samples that found it accessed, as accesses an interval: what is below this is noise.
            let rate = region.share * 1000.0;
            let pages = granules.end - start;
            heats.push(Heat {
                first: start,
                pages,
                now: rate,
                mean: rate,
                error: 20.0,
                hot: false,
                lines: 0.0,
            });
            next = granules.end;
        }
    }
    if next < map.count {
        heats.push(cold(next, map.count - next));
    }
    mark_hot(&mut heats);
    heats
}

/// The kernel moves a huge page as a whole, whichever page of it is named. Where half of it or more is to move, all of it
/// does, and is counted; where less, none, because most of what would move was not asked for.
fn whole(granules: &[u32], map: &Map, huge: &[Range<u64>]) -> Vec<u32> {
    let each = (HUGE / map.granule) as usize;
    if each < 2 || huge.is_empty() {
        return granules.to_vec();
    }
    let block = |granule: u32| {
        let start = map.addresses(granule).start / HUGE * HUGE;
        let at = huge.partition_point(|range| range.end <= start);
        huge.get(at).is_some_and(|range| range.start <= start && start + HUGE <= range.end).then_some(start)
    };
    let mut blocks: BTreeMap<u64, usize> = BTreeMap::new();
    let mut done = Vec::new();
    for granule in granules {
        match block(*granule) {
            Some(start) => *blocks.entry(start).or_default() += 1,
            None => done.push(*granule),
        }
    }
    let large = blocks.into_iter().filter(|(_, count)| count * 2 >= each);
    done.extend(large.flat_map(|(start, _)| map.granules(&(start..start + HUGE))).flatten());
    done
}

fn setting(options: &Options, granules: u32, granule: u64) -> Setting {
    Setting {
        pages: granules,
        span: ((2 << 20) / granule).max(1) as u32,
        interval_ns: options.interval.as_nanos() as f64,
        overhead: options.overhead,
        // As measured where this was written; the limit is on processor time, which is read anyway.
        costs: Costs { bit_ns: 1500.0, fault_ns: 3500.0, trap_ns: 12_000.0, sample_ns: 500.0 },
        promoted: ((200 << 20) / granule).max(1) as u32,
        window: ((256 << 20) / granule).max(1) as u32,
        seed: 0,
    }
}

/// The policy; ours looks at bits here.
fn wire(policy: &str, setting: Setting, tiers: &Tiers) -> Keeper {
    let name = if policy == "tiercel" { "tiercel-bits" } else { policy };
    let system = systems::named(name).or_else(|| systems::named("tiercel-bits"));
    system.expect("ours is in the list").keeper(setting, tiers)
}

#[cfg(test)]
// Lists of ranges, of which some have one.
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    #[test]
    fn granules_and_addresses_lead_to_each_other() {
        let map = Map::new(&[0x1000..0x5000, 0x10000..0x12000], 0x1000);
        assert_eq!(map.count, 6);
        assert_eq!(map.addresses(0), 0x1000..0x2000);
        assert_eq!(map.addresses(3), 0x4000..0x5000);
        assert_eq!(map.addresses(4), 0x10000..0x11000);
        assert_eq!(map.granules(&(0x3800..0x10800)), [2..4, 4..5]);
        for granule in 0..map.count {
            assert_eq!(map.granules(&map.addresses(granule)), [granule..granule + 1]);
        }
    }

    #[test]
    fn huge_pages_move_whole_or_not_at_all() {
        let map = Map::new(&[0x1000..0x10_0000, 0x40_0000..0x100_0000], 0x1000);
        let first = map.granules(&(0x40_0000..0x40_1000))[0].start;
        let huge = [0x60_0000..0xa0_0000];
        // Two pages beside any huge one, most of one huge page, a little of the other.
        let at = |address: u64| first + ((address - 0x40_0000) >> 12) as u32;
        let mut asked = vec![0, at(0x50_0000)];
        asked.extend(at(0x60_0000)..at(0x75_0000));
        asked.extend(at(0x80_0000)..at(0x81_0000));
        let mut expected = vec![0, at(0x50_0000)];
        expected.extend(at(0x60_0000)..at(0x80_0000));
        assert_eq!(whole(&asked, &map, &huge), expected);
        assert_eq!(whole(&asked, &map, &[]), asked);
    }

    #[test]
    fn regions_become_heats_without_gaps() {
        let map = Map::new(std::slice::from_ref(&(0..0x10000)), 0x1000);
        let seen = |range: Range<u64>, share| Seen { range, share };
        let heats = heats_of(
            &[seen(0x2000..0x4000, 0.5), seen(0x4000..0x5000, 0.0), seen(0x9000..0x20000, 1.0)],
            &map,
        );
        let short: Vec<_> = heats.iter().map(|heat| (heat.first, heat.pages, heat.mean)).collect();
        assert_eq!(short, [(0, 2, 0.0), (2, 2, 500.0), (4, 1, 0.0), (5, 4, 0.0), (9, 7, 1000.0)]);
        assert_eq!(heats_of(&[], &map).len(), 1);
    }

    #[test]
    fn one_node_or_no_process_is_refused() {
        let options = |pid, nodes: Option<Vec<u32>>| Options {
            pid,
            nodes,
            fast: None,
            policy: "tiercel".to_string(),
            tracker: None,
            interval: Duration::from_millis(10),
            overhead: 0.05,
            rate: 1 << 30,
        };
        assert!(matches!(Daemon::open(options(u32::MAX >> 1, None)), Err(KeepError::NoProcess(_))));
        let own = std::process::id();
        assert!(matches!(Daemon::open(options(own, Some(vec![0, 4000]))), Err(KeepError::NoNode { .. })));
        if nodes::read().len() == 1 {
            assert!(matches!(Daemon::open(options(own, None)), Err(KeepError::OneTier { .. })));
        }
    }
}

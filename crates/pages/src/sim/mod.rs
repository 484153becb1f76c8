//! Plays a recorded program on a machine under a policy, with a clock of its own.
//!
//! A window of work takes as long as its lines are waited for, over all threads, or as the busiest tier needs for its bytes,
//! whichever is longer; copies draw on the same bandwidth. On top come what profiling takes, and what moving pages keeps the
//! program waiting, both in full, as the paper counts them (Section 8.8.2, "performance breakdown"). Copies go one after
//! another at the speed of their link; what is not done when the next decision falls is forgotten.
//!
//! A simulated page stands for 32 pages side by side that are equally hot, so that a small program has as many spans for
//! every sample as a large one. Looks that concern one page of these 32 (a bit, a sample, a trap) cost a 32nd.

mod cache;

use std::ops::Range;

use crate::placement::{NOWHERE, Placement};
use crate::programs::{Recording, Touch};
use crate::tiers::{PAGE, Tiers};
use crate::watch::{Costs, Heat, Keeper, Last, Mechanism, Move, Setting, Sight, Watch, Why};

pub use cache::memory_mode;

/// How many pages a simulated one stands for.
const TOGETHER: f64 = 32.0;

/// What looking costs: reading 1.5 TB of entries takes about a second (Section 8.4), a trap 2.5 times a look
/// (Section 8.8.3); a hint fault and a picked access as measured elsewhere.
pub const COSTS: Costs = Costs {
    bit_ns: 1270.0 / TOGETHER,
    fault_ns: 1200.0,
    trap_ns: 2.5 * 1270.0 / TOGETHER,
    sample_ns: 500.0 / TOGETHER,
};

/// What unmapping, mapping and the rest take of a page with `move_pages`, beside its copy (Section 8.6.1).
const REMAP_NS: f64 = 1500.0;

/// How many times less hm-keeper's call takes without the copy (Section 8.6.2).
const BATCHED: f64 = 4.37;

/// How much faster several threads copy in Nimble.
const PARALLEL: f64 = 3.0;

/// What one line of a program that reads in order takes of a thread.
const STREAM_NS: f64 = 8.0;

/// A line.
const LINE: f64 = 64.0;

/// The setting of the paper: 10 s, 5 %, 200 MB and 256 MB, scaled.
pub fn setting(pages: u32, scale: u64, overhead: f64, seed: u64) -> Setting {
    Setting {
        pages,
        span: (2 << 20) / (PAGE as u32 * TOGETHER as u32),
        interval_ns: 10e9 / scale as f64,
        overhead,
        costs: COSTS,
        promoted: (200_000_000 / scale / PAGE).max(1) as u32,
        window: ((256 << 20) / scale / PAGE).max(1) as u32,
        seed,
    }
}

/// A moment in a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// When.
    pub ns: f64,
    /// Which share of the hot pages was found.
    pub recall: f64,
    /// Which share of what was found is hot.
    pub precision: f64,
    /// Which share of the hot pages lies on the fastest tier.
    pub placed: f64,
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// All of it.
    pub ns: f64,
    /// What profiling took of it.
    pub profile_ns: f64,
    /// What moving pages took of it.
    pub stall_ns: f64,
    /// The program's lines by tier.
    pub accesses: Vec<f64>,
    /// Bytes promoted and demoted, and copied in vain.
    pub promoted: u64,
    /// Bytes demoted.
    pub demoted: u64,
    /// Bytes that were copied again because they were written meanwhile.
    pub again: u64,
    /// Recall, precision and placement over time, for programs whose hot pages are known.
    pub points: Vec<Point>,
    /// Intervals that passed.
    pub intervals: usize,
    /// How many spans the profiler kept on average.
    pub spans: f64,
}

/// Plays `recording` on `tiers` under `keeper` with so many threads.
pub fn simulate(
    recording: &Recording,
    tiers: &Tiers,
    keeper: Keeper,
    setting: Setting,
    threads: f64,
) -> Outcome {
    let mut world = World::new(recording, tiers, keeper, setting, threads);
    for (at, window) in recording.windows.iter().enumerate() {
        world.play(at, window);
    }
    world.out.spans /= world.out.intervals.max(1) as f64;
    world.out
}

struct World<'a> {
    recording: &'a Recording,
    tiers: &'a Tiers,
    keeper: Keeper,
    setting: Setting,
    threads: f64,
    placement: Placement,
    births: Vec<u8>,
    out: Outcome,
    queue: std::collections::VecDeque<Move>,
    watch: Watch,
    /// Lines of every page since the last scan, and which pages these are.
    since: Vec<u32>,
    /// Those of them that the program waited for: what is fetched ahead is never picked as a slow access.
    waited: Vec<u32>,
    touched: Vec<u32>,
    /// Pages that fault when they are next accessed.
    armed: Vec<bool>,
    faulted: Vec<u32>,
    /// Bytes that copies want of every tier in the next window: read, written.
    copies: Vec<(f64, f64)>,
    /// Lines that were written in order, likewise.
    stored: Vec<u32>,
    /// For how long every tier was busy in this interval, accesses and stores in it, and when it began.
    busy: Vec<f64>,
    lines: f64,
    stores: f64,
    began: f64,
    next_scan: f64,
    scan: usize,
    moved_pages: u64,
    /// Copy time that was left over because a page takes longer than a window.
    credit: f64,
    random: fastrand::Rng,
}

impl<'a> World<'a> {
    fn new(
        recording: &'a Recording,
        tiers: &'a Tiers,
        keeper: Keeper,
        setting: Setting,
        threads: f64,
    ) -> World<'a> {
        let mut placement = Placement::new(recording.pages as usize, tiers);
        let births =
            if keeper.births.is_empty() { (0..tiers.len() as u8).collect() } else { keeper.births.clone() };
        for page in &recording.loaded {
            placement.first_touch(*page, &births);
        }
        let pages = recording.pages as usize;
        let mut world = World {
            next_scan: setting.interval_ns / keeper.profiler.scans() as f64,
            recording,
            tiers,
            keeper,
            setting,
            threads,
            placement,
            births,
            out: Outcome { accesses: vec![0.0; tiers.len()], ..Outcome::default() },
            queue: Default::default(),
            watch: Watch::Nothing,
            since: vec![0; pages],
            waited: vec![0; pages],
            stored: vec![0; pages],
            touched: Vec::new(),
            armed: vec![false; pages],
            faulted: Vec::new(),
            copies: vec![(0.0, 0.0); tiers.len()],
            busy: vec![0.0; tiers.len()],
            lines: 0.0,
            stores: 0.0,
            began: 0.0,
            scan: 0,
            moved_pages: 0,
            credit: 0.0,
            random: fastrand::Rng::with_seed(setting.seed ^ 0x73_69_6d),
        };
        world.arm();
        world
    }

    /// Asks the profiler where to look, and pays for it.
    fn arm(&mut self) {
        self.watch = self.keeper.profiler.watch(&self.placement);
        let costs = self.setting.costs;
        let mut looks = 0;
        match &self.watch {
            Watch::Nothing | Watch::Samples(_) => {}
            Watch::Bits(pages) => looks = pages.len(),
            Watch::Faults(pages) | Watch::Traps(pages) => {
                for page in pages {
                    self.armed[*page as usize] = true;
                }
            }
        }
        self.profile(looks as f64 * costs.bit_ns);
        for page in self.touched.drain(..) {
            self.since[page as usize] = 0;
            self.waited[page as usize] = 0;
            self.stored[page as usize] = 0;
        }
        self.faulted.clear();
    }

    fn profile(&mut self, ns: f64) {
        self.out.profile_ns += ns;
        self.out.ns += ns;
    }

    fn play(&mut self, at: usize, window: &[Touch]) {
        let tiers = self.tiers;
        let mut waited = 0.0;
        let mut bytes = std::mem::replace(&mut self.copies, vec![(0.0, 0.0); tiers.len()]);
        let mut faults = 0;
        for touch in window {
            let mut tier = self.placement.tier(touch.page);
            if tier == NOWHERE {
                // A program that has more memory than the machine ends before it gets here.
                tier = self.placement.first_touch(touch.page, &self.births).unwrap_or(tiers.len() as u8 - 1);
            }
            let (random, stream) = (f64::from(touch.random), f64::from(touch.stream));
            let latency = tiers.list[tier as usize].latency_ns;
            waited += random * (latency + self.recording.compute_ns) + stream * STREAM_NS;
            let lines = random + stream;
            self.out.accesses[tier as usize] += lines;
            // What is written at random is waited for already, when its line is fetched.
            let stored = touch.written.min(touch.stream);
            self.lines += random;
            self.stores += f64::from(stored);
            self.stored[touch.page as usize] += u32::from(stored);
            bytes[tier as usize].0 += lines * LINE;
            bytes[tier as usize].1 += f64::from(touch.written) * LINE;
            let since = &mut self.since[touch.page as usize];
            if *since == 0 {
                self.touched.push(touch.page);
            }
            *since += u32::from(touch.random) + u32::from(touch.stream);
            self.waited[touch.page as usize] += u32::from(touch.random);
            if std::mem::take(&mut self.armed[touch.page as usize]) {
                self.faulted.push(touch.page);
                faults += 1;
            }
        }
        let mut busiest = 0.0f64;
        for (at, ((read, written), tier)) in bytes.iter().zip(&tiers.list).enumerate() {
            let busy = read / tier.read + written / tier.write;
            self.busy[at] += busy;
            busiest = busiest.max(busy);
        }
        let ns = (waited / self.threads).max(busiest);
        self.out.ns += ns;
        if faults > 0 {
            let each = match self.watch {
                Watch::Traps(_) => self.setting.costs.trap_ns,
                _ => self.setting.costs.fault_ns,
            };
            self.profile(f64::from(faults) * each);
        }
        self.carry(ns, window);
        if self.out.ns >= self.next_scan {
            self.look(at);
        }
    }

    /// Moves what is queued, for as long as the window took.
    fn carry(&mut self, ns: f64, window: &[Touch]) {
        let mut left = ns + self.credit;
        while left > 0.0 {
            let Some(order) = self.queue.pop_front() else {
                self.credit = 0.0;
                return;
            };
            let writes = |page: u32| {
                let found = window.binary_search_by_key(&page, |touch| touch.page);
                found.map_or(0.0, |at| f64::from(window[at].written)) / ns
            };
            // Pages of a span go together; a copy's duration is that of the span.
            let span = order.pages.min(self.setting.span);
            let pages = order.first..order.first + span;
            if order.pages > span {
                self.queue.push_front(Move { first: order.first + span, pages: order.pages - span, ..order });
            }
            let copied = self.copy(pages, &order, &writes);
            left -= copied;
        }
        self.credit = left.min(0.0);
    }

    /// Copies some pages; how long the link was busy.
    fn copy(&mut self, pages: Range<u32>, order: &Move, writes: &dyn Fn(u32) -> f64) -> f64 {
        let mut busy = 0.0;
        let mut stall = 0.0;
        let rate: f64 = pages.clone().map(writes).sum();
        let count = f64::from(pages.len() as u32);
        let one = |from: u8| self.tiers.copy_ns(from, order.to);
        let written =
            |random: &mut fastrand::Rng, rate: f64, ns: f64| random.f64() < 1.0 - (-rate * ns).exp();
        let first = pages
            .clone()
            .map(|page| self.placement.tier(page))
            .find(|tier| *tier != NOWHERE && *tier != order.to);
        let Some(first) = first else { return 0.0 };
        let given_up = self.keeper.mechanism == Mechanism::Adaptive
            && written(&mut self.random, rate, count * one(first));
        for page in pages {
            let from = self.placement.tier(page);
            if from == NOWHERE || from == order.to {
                continue;
            }
            let copy = self.tiers.copy_ns(from, order.to);
            if !self.placement.put(page, order.to) {
                continue;
            }
            let mut copies = 1.0;
            match self.keeper.mechanism {
                Mechanism::MovePages => stall += REMAP_NS + copy,
                Mechanism::Nimble => stall += REMAP_NS + copy / PARALLEL,
                Mechanism::Adaptive if given_up => {
                    // What was copied beside the program so far was in vain: half of it, on average.
                    copies = 1.5;
                    stall += REMAP_NS / BATCHED + copy;
                }
                Mechanism::Adaptive => stall += REMAP_NS / BATCHED,
                Mechanism::Rounds(rounds) => {
                    stall += REMAP_NS / BATCHED;
                    let mut during = copy * count;
                    let mut round = 0;
                    while written(&mut self.random, writes(page), during) {
                        copies += 1.0;
                        if round == rounds {
                            stall += copy;
                            break;
                        }
                        round += 1;
                        // A round copies only what was written in the last.
                        during = copy;
                    }
                }
            }
            busy += copy * copies;
            self.copies[from as usize].0 += PAGE as f64 * copies;
            self.copies[order.to as usize].1 += PAGE as f64 * copies;
            let bytes = if order.why == Why::Hot { &mut self.out.promoted } else { &mut self.out.demoted };
            *bytes += PAGE;
            self.out.again += ((copies - 1.0) * PAGE as f64) as u64;
            self.moved_pages += 1;
        }
        self.out.stall_ns += stall;
        self.out.ns += stall;
        busy
    }

    /// A scan is due: tells the profiler what there was to see and, at the end of an interval, decides.
    fn look(&mut self, at: usize) {
        let sights = self.sights();
        self.keeper.profiler.seen(&sights);
        self.scan += 1;
        let step = self.setting.interval_ns / self.keeper.profiler.scans() as f64;
        self.next_scan = (self.next_scan + step).max(self.out.ns);
        if self.scan == self.keeper.profiler.scans() {
            self.scan = 0;
            self.decide(at);
        }
        self.arm();
    }

    fn sights(&mut self) -> Vec<Sight> {
        match &self.watch {
            Watch::Nothing => Vec::new(),
            Watch::Bits(pages) => pages
                .iter()
                .map(|page| Sight { page: *page, seen: u32::from(self.since[*page as usize] > 0), stored: 0 })
                .collect(),
            Watch::Faults(pages) | Watch::Traps(pages) => {
                for page in pages {
                    self.armed[*page as usize] = false;
                }
                self.faulted.sort_unstable();
                let seen = |page: &u32| u32::from(self.faulted.binary_search(page).is_ok());
                pages.iter().map(|page| Sight { page: *page, seen: seen(page), stored: 0 }).collect()
            }
            Watch::Samples(count) => {
                let events = |page: &u32| {
                    let at = *page as usize;
                    (f64::from(self.waited[at]), f64::from(self.stored[at]))
                };
                let all: f64 = self.touched.iter().map(events).map(|(waited, stored)| waited + stored).sum();
                let count = (*count as f64).min(all);
                if count < 1.0 {
                    return Vec::new();
                }
                let step = all / count;
                let mut next = self.random.f64() * step;
                let mut passed = 0.0;
                let mut sights = Vec::new();
                for page in &self.touched {
                    let (waited, stored) = events(page);
                    let mut picked = |more: f64| {
                        passed += more;
                        let mut picks = 0;
                        while next < passed {
                            picks += 1;
                            next += step;
                        }
                        picks
                    };
                    let (seen, stored) = (picked(waited), picked(stored));
                    if seen + stored > 0 {
                        sights.push(Sight { page: *page, seen, stored });
                    }
                }
                self.profile(count * self.setting.costs.sample_ns);
                sights
            }
        }
    }

    fn decide(&mut self, at: usize) {
        let heats = self.keeper.profiler.close(&self.placement);
        self.note(at, &heats);
        let ns = self.out.ns - self.began;
        let last = Last {
            ns,
            busy: self.busy.iter_mut().map(|busy| std::mem::take(busy) / ns.max(1.0)).collect(),
            stall_ns: if self.moved_pages > 0 { self.out.stall_ns / self.moved_pages as f64 } else { 0.0 },
            accesses: std::mem::take(&mut self.lines),
            stores: std::mem::take(&mut self.stores),
            threads: self.threads,
            horizon: self.keeper.profiler.horizon(),
        };
        self.began = self.out.ns;
        let moves = self.keeper.strategy.decide(&heats, &self.placement, self.tiers, &last);
        let pages: u32 = moves.iter().map(|order| order.pages).sum();
        self.keeper.profiler.told(pages as usize);
        self.queue = moves.into();
        self.out.intervals += 1;
        self.out.spans += self.keeper.profiler.spans() as f64;
    }

    fn note(&mut self, at: usize, heats: &[Heat]) {
        let Some(hot) = self.recording.hot_at(at) else { return };
        let is_hot = |page: u32| hot.iter().any(|range| range.contains(&page));
        let all: usize = hot.iter().map(|range| range.len()).sum();
        let (mut right, mut found) = (0, 0);
        for heat in heats.iter().filter(|heat| heat.hot) {
            found += heat.pages as usize;
            right += heat.range().filter(|page| is_hot(*page)).count();
        }
        let placed =
            hot.iter().flat_map(|range| range.clone()).filter(|page| self.placement.tier(*page) == 0).count();
        let share = |part: usize, whole: usize| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        self.out.points.push(Point {
            ns: self.out.ns,
            recall: share(right, all),
            precision: share(right, found),
            placed: share(placed, all),
        });
    }
}

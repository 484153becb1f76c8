//! What a policy is made of: a profiler that says where to look and how hot spans are, and a strategy that says what moves.
//!
//! Neither calls the system, reads a clock or starts a thread. Whoever drives them looks where they ask, moves what they
//! say and tells them what that took: a simulator, or the daemon on real pages.

use crate::placement::Placement;
use crate::tiers::Tiers;

/// What to look at until the next scan.
#[derive(Clone, Debug, PartialEq)]
pub enum Watch {
    /// Nothing.
    Nothing,
    /// The accessed bits of these pages, cleared now and read at the next scan.
    Bits(Vec<u32>),
    /// Faults on these pages: they are made inaccessible now, and the first access to each is told and lets it go.
    Faults(Vec<u32>),
    /// The same, with each page protected and watched on its own, which costs more (Thermostat).
    Traps(Vec<u32>),
    /// So many accesses, picked evenly by the processor: loads that were waited for, and stores. What is read in order is
    /// fetched ahead, and so never picked.
    Samples(usize),
}

/// A page that was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sight {
    /// The page.
    pub page: u32,
    /// How often it was seen accessed; for bits 0 or 1, in the order in which they were asked for.
    pub seen: u32,
    /// How many of the stores that the processor picked wrote it in order, where it picks accesses.
    pub stored: u32,
}

/// How hot a run of pages is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heat {
    /// The first page.
    pub first: u32,
    /// How many pages.
    pub pages: u32,
    /// How hot in this interval, in the profiler's own unit.
    pub now: f64,
    /// How hot over time, in the profiler's own unit.
    pub mean: f64,
    /// How far `mean` may be off, as a standard deviation.
    pub error: f64,
    /// Whether the profiler would call these pages hot.
    pub hot: bool,
    /// Lines a page that are written in order, in the unit of `mean`, where they are seen: nobody waits for them, but where
    /// bandwidth is short they take it.
    pub lines: f64,
}

impl Heat {
    /// Its pages.
    pub fn range(&self) -> std::ops::Range<u32> {
        self.first..self.first + self.pages
    }
}

/// What one look costs on a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Reading and clearing the accessed bit of one page.
    pub bit_ns: f64,
    /// Making a page inaccessible, and the fault that follows when it is accessed.
    pub fault_ns: f64,
    /// The same for one page alone, with its own protection and handler.
    pub trap_ns: f64,
    /// An access that the processor picks.
    pub sample_ns: f64,
}

/// What profilers and strategies are told when they begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// How many pages there are.
    pub pages: u32,
    /// How many pages a span has at first: 2 MiB of them.
    pub span: u32,
    /// An interval between two decisions.
    pub interval_ns: f64,
    /// Which share of the time profiling may cost.
    pub overhead: f64,
    /// What looking costs.
    pub costs: Costs,
    /// How many pages hm-keeper and its like promote an interval: 200 MB.
    pub promoted: u32,
    /// How many pages a scan of NUMA balancing covers: 256 MB.
    pub window: u32,
    /// Where chance starts.
    pub seed: u64,
}

/// Finds out how hot spans are.
pub trait Profiler: Send {
    /// How many scans an interval has.
    fn scans(&self) -> usize {
        3
    }
    /// What to look at until the next scan.
    fn watch(&mut self, placement: &Placement) -> Watch;
    /// What was seen.
    fn seen(&mut self, sights: &[Sight]);
    /// An interval is over: how hot all spans are, in order of their pages.
    fn close(&mut self, placement: &Placement) -> Vec<Heat>;
    /// How much the last decision was worth doing: whether anything is to be moved.
    fn told(&mut self, _moved: usize) {}
    /// For how many more intervals what is hot now may be expected to stay hot.
    fn horizon(&self) -> f64 {
        10.0
    }
    /// How many spans it keeps at the moment.
    fn spans(&self) -> usize {
        0
    }
}

/// A run of pages that should lie elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// The first page.
    pub first: u32,
    /// How many.
    pub pages: u32,
    /// Where to.
    pub to: u8,
    /// Why, for whoever watches.
    pub why: Why,
}

/// Why something moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is hot.
    Hot,
    /// It makes room.
    Room,
}

/// What strategies are told of the interval that ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Last {
    /// How long it took.
    pub ns: f64,
    /// For which share of the time every tier was busy with what the program and copies read and wrote, where something
    /// counts that.
    pub busy: Vec<f64>,
    /// What a page's move cost the program, on average over what was moved so far; 0 before anything was.
    pub stall_ns: f64,
    /// How many accesses there were, where something counts them; 0 where nothing does.
    pub accesses: f64,
    /// How many lines were written in order, where something counts them.
    pub stores: f64,
    /// How many accesses are under way at a time.
    pub threads: f64,
    /// For how many more intervals what is hot may be expected to stay hot, as the profiler says.
    pub horizon: f64,
}

/// Says what moves.
pub trait Strategy: Send {
    /// What to move now, in this order.
    fn decide(&mut self, heats: &[Heat], placement: &Placement, tiers: &Tiers, last: &Last) -> Vec<Move>;
}

/// How pages are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// `move_pages` of Linux: allocate, unmap, copy, map, a page at a time, and whoever wants the page waits.
    MovePages,
    /// Nimble: the same with several threads that copy, in both directions at once.
    Nimble,
    /// hm-keeper (Section 8.6.2): copied beside the program; as soon as a page of the span is written, all of it at once.
    Adaptive,
    /// Copied beside the program; pages that were written are copied again, one by one, for so many rounds.
    Rounds(u32),
}

/// A policy: what profiles, what decides, what copies.
pub struct Keeper {
    /// The profiler.
    pub profiler: Box<dyn Profiler>,
    /// The strategy.
    pub strategy: Box<dyn Strategy>,
    /// The mechanism.
    pub mechanism: Mechanism,
    /// The tiers on which pages get their first memory, in this order; all of them where empty.
    pub births: Vec<u8>,
}

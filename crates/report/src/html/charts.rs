//! The data of the charts that the script draws: a timeline, and a map of addresses over time for each tier.
//!
//! Numbers go into flat lists and names into one table, because a long run has tens of thousands of marks. Times count
//! from the start of the window that is shown.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;
use tiercel_core::{Cause, Nanos, Span, Step};
use tiercel_workload::summary::ROLES;

use crate::merged_marks::{self, Bar, Rect};
use crate::perfetto::{lanes, rows};
use crate::run::Run;

/// How many marks all runs of a page may have together.
pub(super) const BUDGET: usize = 60_000;

/// How many rows a direction has for copies that overlap; more are drawn over one another.
const ROWS: usize = 4;

/// What the script gets of one run.
#[derive(Debug, Serialize)]
pub(super) struct Charts {
    /// The stretch of time that the data covers, in nanoseconds since the start of the run.
    pub(super) window: (u64, u64),
    /// The part of it that is shown at first, from the window's start.
    pub(super) view: (u64, u64),
    /// Number, beginning and end of each iteration in the window.
    iterations: Vec<(u32, u64, u64)>,
    /// The names that marks refer to.
    names: Vec<String>,
    pub(super) lanes: Vec<Lane>,
    pub(super) maps: Vec<Map>,
    /// What the colours of the timeline mean, as far as they are used.
    #[serde(skip)]
    pub(super) kinds: Vec<Kind>,
    /// The same for the maps.
    #[serde(skip)]
    pub(super) roles: Vec<Kind>,
}

/// What marks are called, and the name of their colour.
pub(super) type Kind = (&'static str, &'static str);

/// A row of the timeline, or a few where marks overlap.
#[derive(Debug, Serialize)]
pub(super) struct Lane {
    /// What is written beside it.
    pub(super) title: String,
    /// What hovering says of it.
    what: String,
    rows: usize,
    /// What the kinds of its marks are called, and the names of their colours.
    kinds: Vec<Kind>,
    /// Seven numbers a mark: beginning, length, row, kind, name, how many it stands for, bytes.
    bars: Vec<u64>,
}

/// The addresses of a tier over time.
#[derive(Debug, Serialize)]
pub(super) struct Map {
    /// The tier's name.
    pub(super) tier: String,
    pub(super) capacity: u64,
    /// The highest address in use.
    pub(super) top: u64,
    /// Seven numbers a mark: beginning, length, offset, bytes, role, name, how many it stands for.
    rects: Vec<u64>,
    /// Five numbers a zone: beginning, length, offset, bytes, name.
    zones: Vec<u64>,
    /// The numbers of the roles that are used.
    #[serde(skip)]
    used: BTreeSet<u32>,
}

/// How many marks a chart has, and what was merged to get there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) marks: usize,
    /// Those that meet the part that is shown at first.
    pub(super) shown: usize,
    /// Things that share a mark with others.
    pub(super) merged: usize,
}

/// The colours of roles; the last is for objects of which nobody said.
const ROLE_COLOURS: [Kind; 7] = [
    ("weight", "--weight"),
    ("gradient", "--gradient"),
    ("state", "--state"),
    ("input", "--input"),
    ("activation", "--activation"),
    ("workspace", "--workspace"),
    ("other", "--other"),
];

const PHASES: [Kind; 5] = [
    ("forward", "--forward"),
    ("backward", "--backward"),
    ("update", "--update"),
    ("loading", "--load"),
    ("computed again", "--again"),
];

pub(super) const CAUSES: [Kind; 3] = [
    ("waits: bytes not there yet", "--stall"),
    ("waits: still being copied away", "--stall-leaving"),
    ("waits: memory not free yet", "--stall-space"),
];

const COPIES: [Kind; 3] = [("fetch", "--fetch"), ("evict", "--evict"), ("shift", "--other")];

/// The names in use, each once.
#[derive(Default)]
struct Names {
    list: Vec<String>,
    known: HashMap<String, usize>,
}

impl Names {
    fn of(&mut self, name: &str) -> usize {
        if let Some(at) = self.known.get(name) {
            return *at;
        }
        self.list.push(name.to_string());
        self.known.insert(name.to_string(), self.list.len() - 1);
        self.list.len() - 1
    }
}

/// Whether a span that took any time has a part in a stretch of time.
fn meets(span: Span, (from, to): (u64, u64)) -> bool {
    span.began.0 < to && from < span.ended.0 && span.began < span.ended
}

/// Cuts a span to the window, counted from the window's start.
fn within(span: Span, (from, to): (u64, u64)) -> Span {
    let inside = |at: Nanos| Nanos(at.0.clamp(from, to) - from);
    Span { began: inside(span.began), ended: inside(span.ended) }
}

impl Charts {
    /// The data of a run with about `budget` marks, and how many marks each chart has: the timeline first.
    pub(super) fn new(run: &Run, budget: usize) -> (Charts, Vec<Count>) {
        let window = window(run, budget);
        let view = view(run, window);
        let mut names = Names::default();
        let (mut counts, mut timeline) = (Vec::new(), Count::default());
        let (lanes, kinds) = timeline_lanes(run, window, view, budget / 2, &mut names, &mut timeline);
        counts.push(timeline);
        let mut maps = Vec::new();
        for tier in 0..run.header.tiers.len() {
            let (map, count) = map(run, tier, window, view, budget / 2 / run.header.tiers.len(), &mut names);
            if count.marks > 0 || !map.zones.is_empty() {
                counts.push(count);
                maps.push(map);
            }
        }
        let iterations = run.iterations.iter().filter(|i| i.began.0 >= window.0 && i.ended.0 <= window.1);
        let iterations = iterations.map(|i| (i.number, i.began.0 - window.0, i.ended.0 - window.0)).collect();
        let used: BTreeSet<u32> = maps.iter().flat_map(|map| map.used.iter().copied()).collect();
        let roles = used.into_iter().filter_map(|role| ROLE_COLOURS.get(role as usize).copied()).collect();
        (Charts { window, view, iterations, names: names.list, lanes, maps, kinds, roles }, counts)
    }
}

/// The stretch that is shown: the whole run, or its last iterations if it has more marks than fit; at least one.
fn window(run: &Run, budget: usize) -> (u64, u64) {
    let end = run.end.0.max(1);
    let all = run.kernels.len() + run.copies.len() + run.stalls.len() + run.regions.len();
    if all <= budget || run.iterations.len() < 2 {
        return (0, end);
    }
    let spans = || {
        let kernels = run.kernels.iter().map(|k| k.span);
        let copies = run.copies.iter().map(|c| c.span);
        let stalls = run.stalls.iter().map(|s| s.span);
        kernels.chain(copies).chain(stalls).chain(run.regions.iter().map(|r| r.span))
    };
    let mut start = end;
    for iteration in run.iterations.iter().rev() {
        let from = iteration.began.0.min(start);
        let marks = spans().filter(|span| meets(*span, (from, end))).count();
        if marks > budget && start < end {
            break;
        }
        start = from;
        if marks > budget {
            break;
        }
    }
    (start.min(end - 1), end)
}

/// What is shown at first: the last iteration, because the first ones are seldom like the rest.
fn view(run: &Run, window: (u64, u64)) -> (u64, u64) {
    let last = run.iterations.last().filter(|i| i.began.0 >= window.0 && i.ended.0 > i.began.0);
    last.map_or((0, window.1 - window.0), |i| (i.began.0 - window.0, (i.ended.0 - window.0)))
}

/// Adds a lane of the timeline from what falls into the window.
struct Lanes<'a> {
    window: (u64, u64),
    view: (u64, u64),
    budget: usize,
    lanes: Vec<Lane>,
    kinds: Vec<Kind>,
    count: &'a mut Count,
}

impl Lanes<'_> {
    fn add(&mut self, title: String, what: String, kinds: &[Kind], bars: Vec<Bar>) {
        if bars.is_empty() {
            return;
        }
        let things = bars.len();
        let few = merged_marks::bars(bars, self.window.1 - self.window.0, self.budget);
        for (number, kind) in kinds.iter().enumerate() {
            if !self.kinds.contains(kind) && few.iter().any(|bar| bar.kind == number as u32) {
                self.kinds.push(*kind);
            }
        }
        let rows = few.iter().map(|bar| bar.row as usize + 1).max().unwrap_or(1);
        self.count.marks += few.len();
        self.count.shown += few.iter().filter(|bar| meets(bar.span, self.view)).count();
        let merged = few.iter().filter(|bar| bar.count > 1).map(|bar| bar.count as usize).sum::<usize>();
        self.count.merged += merged.min(things);
        let bars = few.iter().flat_map(|bar| {
            let length = bar.span.ended.0 - bar.span.began.0;
            let (row, kind, label) = (u64::from(bar.row), u64::from(bar.kind), bar.label as u64);
            [bar.span.began.0, length, row, kind, label, u64::from(bar.count), bar.bytes]
        });
        self.lanes.push(Lane { title, what, rows, kinds: kinds.to_vec(), bars: bars.collect() });
    }
}

fn timeline_lanes(
    run: &Run,
    window: (u64, u64),
    view: (u64, u64),
    budget: usize,
    names: &mut Names,
    count: &mut Count,
) -> (Vec<Lane>, Vec<Kind>) {
    let copies = lanes(run);
    let budget = budget / (3 + copies.len());
    let mut all = Lanes { window, view, budget, lanes: Vec::new(), kinds: Vec::new(), count };
    let bar = |span, kind, label| Bar { span: within(span, window), row: 0, kind, label, bytes: 0, count: 1 };

    let mut kernels = |detached: bool| -> Vec<Bar> {
        let shown = run.kernels.iter().filter(|k| k.detached == detached && meets(k.span, window));
        shown
            .map(|k| {
                let phase = run.kernel(k.step).map(|kernel| kernel.phase.as_str());
                let kind = match phase.and_then(|phase| PHASES.iter().position(|(name, _)| *name == phase)) {
                    _ if k.again => 4,
                    _ if k.step == Step::LOAD => 3,
                    Some(kind) => kind as u32,
                    None => 0,
                };
                bar(k.span, kind, names.of(&run.kernel_name(k.step)))
            })
            .collect()
    };
    all.add("compute".to_string(), "kernel".to_string(), &PHASES, kernels(false));
    all.add("beside".to_string(), "kernel beside others".to_string(), &PHASES, kernels(true));

    let stalls = run.stalls.iter().filter(|s| meets(s.span, window));
    let stalls = stalls.map(|s| {
        let kind = match s.cause {
            Cause::Arrival => 0,
            Cause::Departure => 1,
            Cause::Space => 2,
        };
        let object = run.objects.get(s.object).map_or("?", |object| &object.name);
        bar(s.span, kind, names.of(&format!("{} for {object}", run.kernel_name(s.step))))
    });
    all.add("stall".to_string(), "stall".to_string(), &CAUSES, stalls.collect());

    let directions = |kind: &str| copies.iter().filter(|(_, list)| list[0].kind() == kind).count();
    for ((from, to), list) in &copies {
        let kind = list[0].kind();
        let (from, to) = (run.header.tier_name(*from), run.header.tier_name(*to));
        let title = match (directions(kind), kind) {
            (1, _) => kind.to_string(),
            (_, "fetch") => format!("{kind} {from}"),
            _ => format!("{kind} {to}"),
        };
        let rows = rows(list.iter().map(|copy| copy.span));
        let bars =
            list.iter().zip(rows).filter(|(copy, _)| meets(copy.span, window)).map(|(copy, row)| Bar {
                span: within(copy.span, window),
                row: row.min(ROWS - 1) as u32,
                kind: COPIES.iter().position(|(name, _)| *name == kind).unwrap_or(2) as u32,
                label: names.of(run.objects.get(copy.object).map_or("?", |object| &object.name)),
                bytes: copy.bytes.0,
                count: 1,
            });
        all.add(title, format!("{kind} {from} → {to}"), &COPIES, bars.collect());
    }
    (all.lanes, all.kinds)
}

/// The number of the colour of an object.
fn role(run: &Run, object: Option<usize>) -> u32 {
    let role = object.and_then(|at| run.objects.get(at)).and_then(|object| object.role);
    role.and_then(|role| ROLES.iter().position(|other| *other == role)).unwrap_or(ROLES.len()) as u32
}

fn map(
    run: &Run,
    tier: usize,
    window: (u64, u64),
    view: (u64, u64),
    budget: usize,
    names: &mut Names,
) -> (Map, Count) {
    let header = &run.header.tiers[tier];
    let here = run.regions.iter().filter(|r| r.place.tier.index() == tier && meets(r.span, window));
    let all: Vec<Rect> = here
        .map(|r| Rect {
            span: within(r.span, window),
            offset: r.place.offset.0,
            bytes: r.bytes.0,
            kind: role(run, r.object),
            label: names.of(r.object.and_then(|at| run.objects.get(at)).map_or("no object", |o| &o.name)),
            count: 1,
        })
        .collect();
    let top = all.iter().map(|rect| rect.offset.saturating_add(rect.bytes)).max().unwrap_or(0);
    let few = merged_marks::rects(all, window.1 - window.0, top, budget);
    let count = Count {
        marks: few.len(),
        shown: few.iter().filter(|rect| meets(rect.span, view)).count(),
        merged: few.iter().filter(|rect| rect.count > 1).map(|rect| rect.count as usize).sum(),
    };
    let rects = few.iter().flat_map(|rect| {
        let length = rect.span.ended.0 - rect.span.began.0;
        let (kind, label) = (u64::from(rect.kind), rect.label as u64);
        [rect.span.began.0, length, rect.offset, rect.bytes, kind, label, u64::from(rect.count)]
    });
    let rects: Vec<u64> = rects.collect();
    let zones = run.zones.iter().filter(|z| z.place.tier.index() == tier && meets(z.span, window));
    let zones = zones.flat_map(|zone| {
        let span = within(zone.span, window);
        let name = names.of(&zone.name) as u64;
        [span.began.0, span.ended.0 - span.began.0, zone.place.offset.0, zone.bytes.0, name]
    });
    let zones: Vec<u64> = zones.collect();
    let top = zones.chunks(5).map(|zone| zone[2].saturating_add(zone[3])).fold(top, u64::max);
    let used = few.iter().map(|rect| rect.kind).collect();
    (Map { tier: header.name.clone(), capacity: header.capacity.0, top, rects, zones, used }, count)
}

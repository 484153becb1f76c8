//! Slack for copies: they start earlier and may end later than they must, as far as memory is free.
//!
//! A link moves one copy at a time in the order in which they are asked for, while the search lets copies share the time
//! beside a kernel in any way, and holds memory no longer than it must. Taken at its word, its plan would have every copy
//! end just in time, and each that is late would hold up a kernel although there is room elsewhere. So, when the search
//! is over, every link's queue is played through, and copies get the memory for as long as they will really take, and
//! somewhat longer.

use crate::bound::paths::{Path, States};
use crate::model::problem::Problem;
use crate::search::headroom::Headroom;
use crate::search::primal::Primal;

/// How much longer than planned a copy may take before it is late, as a share of its own time.
const SLACK: f64 = 1.0;

/// A copy in a link's queue.
struct Entry {
    item: usize,
    visit: usize,
    lane: (u8, u8),
    time: f64,
}

/// Gives copies slack, where there are any that overlap kernels.
pub(crate) fn sequence(problem: &Problem, states: &States, primal: &mut Primal) {
    if problem.lanes.is_none() {
        return;
    }
    let mut began = vec![0.0];
    let times = primal.times(problem);
    began.extend(times.iter().scan(0.0, |sum, time| {
        *sum += time;
        Some(*sum)
    }));
    depart(problem, states, primal, &began);
    arrive(problem, states, primal, &began);
}

/// An iteration that was played.
pub(crate) struct Played {
    pub(crate) time: f64,
    /// How long each kernel waits, and at last the end for what still flies.
    pub(crate) waits: Vec<f64>,
}

/// How long an iteration takes when every link moves its copies in the order of their starts, and kernels wait for what
/// must be done before them.
///
/// A kernel and the copies beside it slow each other down alike, so the order of things is that of an iteration in which they
/// do not notice each other; what copying takes from kernels is added up apart from it.
pub(crate) fn play(problem: &Problem, states: &States, primal: &Primal) -> Played {
    let steps = problem.calls.len();
    let mut flights: Vec<(u32, u32, usize, f64)> = Vec::new();
    for side in [0, 1] {
        for entry in entries(problem, states, primal, side) {
            let path = primal.paths[entry.item].as_ref().expect("it has copies, so it has a path");
            let flight = &path.flights[entry.visit][side];
            let lane = usize::from(entry.lane.0) * problem.tiers + usize::from(entry.lane.1);
            flights.push((flight.start, flight.done, lane, entry.time));
        }
    }
    flights.sort_unstable_by(|a, b| a.partial_cmp(b).expect("times are numbers"));
    let mut coming = flights.into_iter().peekable();
    let mut ends: Vec<f64> = vec![0.0; steps + 1];
    let mut lanes = vec![0.0_f64; problem.tiers * problem.tiers];
    let mut waits = Vec::with_capacity(steps + 1);
    let (mut clock, times) = (0.0_f64, primal.times(problem));
    let mut dragged = 0.0;
    for step in 0..=steps {
        while let Some((_, done, lane, time)) = coming.next_if(|flight| flight.0 as usize <= step) {
            lanes[lane] = lanes[lane].max(clock) + time;
            let by = &mut ends[(done as usize).max(step)];
            *by = by.max(lanes[lane]);
        }
        waits.push((ends[step] - clock).max(0.0));
        clock = clock.max(ends[step]);
        let Some(&time) = times.get(step) else { break };
        if let Some(drag) = problem.lanes.as_ref().map(|lanes| lanes.drag(step)) {
            let beside = lanes.iter().map(|end| (end - clock).clamp(0.0, time));
            dragged += beside.zip(drag).map(|(beside, drag)| beside * drag).sum::<f64>();
        }
        clock += time;
    }
    let time = lanes.into_iter().fold(clock, f64::max);
    waits[steps] += time - clock;
    Played { time: time + dragged, waits }
}

/// The copies of one side of uses: those before them or those after them.
fn entries(problem: &Problem, states: &States, primal: &Primal, side: usize) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (item, path) in primal.paths.iter().enumerate() {
        let Some(path) = path else { continue };
        for (visit, flights) in path.flights.iter().enumerate() {
            if flights[side].done == 0 {
                continue;
            }
            let [before, used, after] =
                [path.rests[visit], path.uses[visit], path.rests[visit + 1]].map(usize::from);
            let (from, to) = if side == 0 { (before, used) } else { (used, after) };
            if let Ok(Some(lane)) = states.copying(from, to) {
                let (from, to) = (usize::from(lane.0), usize::from(lane.1));
                let bytes = problem.items[item].bytes as f64;
                let time = bytes * problem.copy[from][to] + problem.latency[from][to];
                entries.push(Entry { item, visit, lane, time });
            }
        }
    }
    entries
}

fn path<'a>(primal: &'a mut Primal, entry: &Entry) -> &'a mut Path {
    primal.paths[entry.item].as_mut().expect("it has copies, so it has a path")
}

/// Holds memory on a tier from one step up to another as far as it is free; tells how far that is. Backwards where the
/// second is the lower.
fn hold(left: &mut Option<Headroom>, bytes: f64, from: u32, to: u32) -> u32 {
    let Some(left) = left else { return to };
    let mut at = from;
    while at != to {
        let step = if to > from { at } else { at - 1 };
        if left.at(step as usize) < bytes {
            break;
        }
        left.add(step as usize, step as usize + 1, -bytes);
        at = if to > from { at + 1 } else { at - 1 };
    }
    at
}

/// Lets what leaves hold its memory until its turn on the link has come and gone.
fn depart(problem: &Problem, states: &States, primal: &mut Primal, began: &[f64]) {
    let mut queue = entries(problem, states, primal, 1);
    queue.sort_by_key(|e| {
        let flight = &primal.paths[e.item].as_ref().expect("a path").flights[e.visit][1];
        (flight.start, flight.done)
    });
    let mut clocks = vec![0.0_f64; problem.tiers * problem.tiers];
    for entry in queue {
        let bytes = problem.items[entry.item].bytes as f64;
        let clock = &mut clocks[usize::from(entry.lane.0) * problem.tiers + usize::from(entry.lane.1)];
        let path = path(primal, &entry);
        let flight = &path.flights[entry.visit][1];
        let next = path.flights.get(entry.visit + 1).map(|next| &next[0]).filter(|next| next.done > 0);
        let visits = &problem.items[entry.item].visits;
        let steps = problem.calls.len() as u32;
        let limit =
            next.map(|next| next.start).or(visits.get(entry.visit + 1).map(|v| v.step)).unwrap_or(steps);
        *clock = clock.max(began[flight.start as usize]) + entry.time;
        let wanted = began.partition_point(|at| *at < *clock + SLACK * entry.time) as u32;
        let (done, wanted) = (flight.done, wanted.min(limit));
        if wanted > done {
            let reached = hold(&mut primal.left[usize::from(entry.lane.0)], bytes, done, wanted);
            self::path(primal, &entry).flights[entry.visit][1].done = reached;
        }
    }
}

/// Lets what comes start early enough for its turn on the link.
fn arrive(problem: &Problem, states: &States, primal: &mut Primal, began: &[f64]) {
    let mut queue = entries(problem, states, primal, 0);
    queue.sort_by_key(|e| std::cmp::Reverse(problem.items[e.item].visits[e.visit].step));
    let mut clocks = vec![f64::INFINITY; problem.tiers * problem.tiers];
    for entry in queue {
        let item = &problem.items[entry.item];
        let (bytes, step) = (item.bytes as f64, item.visits[entry.visit].step);
        let clock = &mut clocks[usize::from(entry.lane.0) * problem.tiers + usize::from(entry.lane.1)];
        *clock = clock.min(began[step as usize]) - entry.time;
        let path = path(primal, &entry);
        let settled = match entry.visit.checked_sub(1) {
            None => 0,
            Some(last) => path.flights[last][1].done.max(item.visits[last].step + 1),
        };
        let latest = *clock - SLACK * entry.time;
        let wanted = (began.partition_point(|at| *at <= latest) as u32).saturating_sub(1).max(settled);
        let start = path.flights[entry.visit][0].start;
        if wanted < start {
            let reached = hold(&mut primal.left[usize::from(entry.lane.1)], bytes, start, wanted);
            self::path(primal, &entry).flights[entry.visit][0].start = reached;
        }
    }
}

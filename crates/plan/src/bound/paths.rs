//! The best way of one tensor through the tiers, given what everything costs: a shortest path over its uses.
//!
//! Between two uses a tensor rests in a state: on one tier, perhaps with a copy left behind on a slower one. A copy
//! that is still valid makes leaving the fast tier free, so what is written once is paid for once (AutoTM section
//! 3.6). The states are few, so the path is found by going through the uses once.

use crate::model::problem::{Formulation, Item, Problem};

/// Where a tensor rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) tier: u8,
    /// A slower tier that holds the same bytes.
    pub(crate) copy: Option<u8>,
}

/// The states of a problem and what it takes to go from one to another.
#[derive(Clone, Debug)]
pub(crate) struct States {
    pub(crate) all: Vec<State>,
    /// Bytes' worth of time, and time for any number of bytes; infinite where there is no way.
    moves: Vec<Vec<(f64, f64)>>,
}

/// A way through the tiers: a state for every use, and for every rest between, before and after.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Path {
    pub(crate) uses: Vec<u8>,
    /// The rest before use `i` is `rests[i]`; the last one follows the last use. Rests of tensors that do not exist
    /// then are the state beside them.
    pub(crate) rests: Vec<u8>,
    /// Where copies overlap kernels: the copy that ends at each use and the one that begins after it.
    pub(crate) flights: Vec<[Flight; 2]>,
}

/// A copy while kernels run; nothing where the tensor does not move.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Flight {
    /// The boundaries at which it starts and has ended.
    pub(crate) start: u32,
    pub(crate) done: u32,
    /// The time that it takes of its lane beside each kernel.
    pub(crate) beside: Vec<(u32, f64)>,
}

impl States {
    pub(crate) fn new(problem: &Problem) -> States {
        let tiers = problem.tiers as u8;
        let moving = problem.formulation != Formulation::Static;
        let mut all: Vec<State> = (0..tiers).map(|tier| State { tier, copy: None }).collect();
        if moving {
            for tier in 0..tiers {
                all.extend((tier + 1..tiers).map(|copy| State { tier, copy: Some(copy) }));
            }
        }
        let way = |a: State, b: State| {
            if a == b || (a.tier == b.tier && b.copy.is_none()) {
                return (0.0, 0.0);
            }
            let copied = (
                problem.copy[usize::from(a.tier)][usize::from(b.tier)],
                problem.latency[usize::from(a.tier)][usize::from(b.tier)],
            );
            match (a.tier.cmp(&b.tier), b.copy) {
                _ if !moving => (f64::INFINITY, 0.0),
                (std::cmp::Ordering::Less, None) if a.copy == Some(b.tier) => (0.0, 0.0),
                (_, None) => copied,
                (std::cmp::Ordering::Greater, Some(left)) if left == a.tier => copied,
                _ => (f64::INFINITY, 0.0),
            }
        };
        let moves = all.iter().map(|a| all.iter().map(|b| way(*a, *b)).collect()).collect();
        States { all, moves }
    }

    /// The copy that it takes to go from one state to another, as a pair of tiers; `None` where none is needed, and
    /// an error where there is no way.
    pub(crate) fn copying(&self, from: usize, to: usize) -> Result<Option<(u8, u8)>, ()> {
        let (each, _) = self.moves[from][to];
        match each {
            0.0 => Ok(None),
            each if each.is_finite() => Ok(Some((self.all[from].tier, self.all[to].tier))),
            _ => Err(()),
        }
    }

    /// What it takes to bring `bytes` from one state to another.
    pub(crate) fn cost(&self, from: usize, to: usize, bytes: f64) -> f64 {
        let (each, once) = self.moves[from][to];
        bytes * each + once
    }

    pub(crate) fn tier(&self, state: u8) -> usize {
        usize::from(self.all[usize::from(state)].tier)
    }

    /// Whether a tensor in a state takes room on a tier: for itself, or for a copy.
    pub(crate) fn holds(&self, state: u8, tier: usize) -> bool {
        let state = self.all[usize::from(state)];
        usize::from(state.tier) == tier || state.copy.map(usize::from) == Some(tier)
    }
}

/// What places cost.
pub(crate) trait Prices {
    /// The cost of use `visit` with the tensor on a tier.
    fn using(&self, visit: usize, tier: usize) -> f64;
    /// The cost of holding the tensor on a tier from one step up to another.
    fn holding(&self, tier: usize, from: usize, to: usize) -> f64;
    /// Whether a state is open at a slot: the rest before use `i` is slot `2 i`, the use itself slot `2 i + 1`.
    fn allows(&self, _slot: usize, _state: usize) -> bool {
        true
    }
}

/// The steps of the rest before use `i` of a tensor, or after the last use; empty where it does not exist then.
pub(crate) fn rest(item: &Item, i: usize, steps: usize) -> (usize, usize) {
    let at = |i: usize| item.visits[i].step as usize;
    match i {
        0 if item.persistent || item.fed => (0, at(0)),
        0 => (at(0), at(0)),
        i if i < item.visits.len() => (at(i - 1) + 1, at(i)),
        i if item.persistent => (at(i - 1) + 1, steps),
        i => (at(i - 1) + 1, at(i - 1) + 1),
    }
}

/// Tables that are filled anew for every tensor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    tiers: Vec<f64>,
    /// What each state costs at each rest, and at each use.
    pub(crate) resting: Vec<f64>,
    pub(crate) using: Vec<f64>,
    at_rest: Vec<f64>,
    at_use: Vec<f64>,
    from_use: Vec<u8>,
    from_rest: Vec<u8>,
}

/// Finds the cheapest path of a tensor and returns what it costs; infinite, and no path, where there is none.
pub(crate) fn cheapest(
    problem: &Problem,
    states: &States,
    item: &Item,
    prices: &impl Prices,
    scratch: &mut Scratch,
    path: &mut Path,
) -> f64 {
    let steps = problem.calls.len();
    let count = states.all.len();
    let visits = item.visits.len();
    if visits == 0 {
        return idle(states, item, steps, prices, path);
    }
    scratch.fill(states, item, steps, prices);
    let mut best = f64::INFINITY;
    // A persistent tensor begins where it ends, without a copy; others begin anywhere.
    let starts = if item.persistent { problem.tiers } else { 1 };
    for start in 0..starts {
        scratch.walk(states, item, start);
        let end = if item.persistent {
            start
        } else {
            let last = &scratch.at_rest;
            (0..count).min_by(|a, b| last[*a].total_cmp(&last[*b])).expect("there are states")
        };
        if scratch.at_rest[end] < best {
            best = scratch.at_rest[end];
            scratch.trace(count, visits, end, path);
        }
    }
    best
}

impl Scratch {
    /// What every state costs at every rest and use: that does not depend on the way.
    pub(crate) fn fill(&mut self, states: &States, item: &Item, steps: usize, prices: &impl Prices) {
        let (count, visits) = (states.all.len(), item.visits.len());
        self.resting.clear();
        self.using.clear();
        let held = |tier: u8, (from, to): (usize, usize)| {
            if from < to { prices.holding(usize::from(tier), from, to) } else { 0.0 }
        };
        for i in 0..=visits {
            let stretch = rest(item, i, steps);
            self.price(states, |tier| held(tier, stretch));
            for (s, state) in states.all.iter().enumerate() {
                let copy = state.copy.map_or(0.0, |copy| self.tiers[usize::from(copy)]);
                let cost = self.tiers[usize::from(state.tier)] + copy;
                self.resting.push(if prices.allows(2 * i, s) { cost } else { f64::INFINITY });
            }
        }
        for i in 0..visits {
            let step = item.visits[i].step as usize;
            self.price(states, |tier| prices.using(i, usize::from(tier)) + held(tier, (step, step + 1)));
            for (s, state) in states.all.iter().enumerate() {
                let stale = item.visits[i].writes && state.copy.is_some();
                let copy = state.copy.map_or(0.0, |copy| held(copy, (step, step + 1)));
                let cost = self.tiers[usize::from(state.tier)] + copy;
                let open = !stale && prices.allows(2 * i + 1, s);
                self.using.push(if open { cost } else { f64::INFINITY });
            }
        }
        self.from_use.resize((visits + 1) * count, 0);
        self.from_rest.resize(visits * count, 0);
    }

    /// Asks for each tier once.
    fn price(&mut self, states: &States, price: impl Fn(u8) -> f64) {
        self.tiers.clear();
        // States without a copy come first, in the order of their tiers.
        let plain = states.all.iter().take_while(|state| state.copy.is_none());
        self.tiers.extend(plain.map(|state| price(state.tier)));
    }

    /// The cheapest way to every state at every rest and use, from a given rest or, where that is free, from any.
    fn walk(&mut self, states: &States, item: &Item, start: usize) {
        let (count, visits, bytes) = (states.all.len(), item.visits.len(), item.bytes as f64);
        self.at_rest.clear();
        // What is there at the start has no copy yet.
        let barred = |s: usize| (item.persistent && s != start) || (item.fed && states.all[s].copy.is_some());
        let resting = &self.resting;
        self.at_rest.extend((0..count).map(|s| if barred(s) { f64::INFINITY } else { resting[s] }));
        self.at_use.resize(count, 0.0);
        let same = |from: usize, to: usize| if from == to { 0.0 } else { f64::INFINITY };
        for i in 0..visits {
            // What is born is born where it is used first, and what dies does not move before.
            let born = i == 0 && !item.persistent && !item.fed;
            let dies = i + 1 == visits && !item.persistent;
            for to in 0..count {
                let (mut least, mut chosen) = (f64::INFINITY, 0);
                if self.using[i * count + to].is_finite() {
                    for (from, before) in self.at_rest.iter().enumerate() {
                        let way = if born { same(from, to) } else { states.cost(from, to, bytes) };
                        if before + way < least {
                            (least, chosen) = (before + way, from);
                        }
                    }
                }
                self.at_use[to] = least + self.using[i * count + to];
                self.from_rest[i * count + to] = chosen as u8;
            }
            for to in 0..count {
                let (mut least, mut chosen) = (f64::INFINITY, 0);
                for (from, before) in self.at_use.iter().enumerate() {
                    let way = if dies { same(from, to) } else { states.cost(from, to, bytes) };
                    if before + way < least {
                        (least, chosen) = (before + way, from);
                    }
                }
                self.at_rest[to] = least + self.resting[(i + 1) * count + to];
                self.from_use[(i + 1) * count + to] = chosen as u8;
            }
        }
    }

    /// Reads the path to a last rest off the tables.
    fn trace(&self, count: usize, visits: usize, end: usize, path: &mut Path) {
        path.uses.resize(visits, 0);
        path.rests.resize(visits + 1, 0);
        path.rests[visits] = end as u8;
        for i in (0..visits).rev() {
            path.uses[i] = self.from_use[(i + 1) * count + usize::from(path.rests[i + 1])];
            path.rests[i] = self.from_rest[i * count + usize::from(path.uses[i])];
        }
    }
}

/// A tensor that exists but is never used rests in one place.
fn idle(states: &States, item: &Item, steps: usize, prices: &impl Prices, path: &mut Path) -> f64 {
    let cost = |tier: u8| if item.persistent { prices.holding(usize::from(tier), 0, steps) } else { 0.0 };
    let plain =
        states.all.iter().enumerate().filter(|(s, state)| state.copy.is_none() && prices.allows(0, *s));
    let best = plain.map(|(s, state)| (cost(state.tier), s as u8)).min_by(|a, b| a.0.total_cmp(&b.0));
    let Some((cost, state)) = best else { return f64::INFINITY };
    path.uses.clear();
    path.rests.clear();
    path.rests.push(state);
    cost
}

/// Takes detours out of a path: where one use follows the other at once there is no rest between them, so a state there
/// that is not one of theirs serves nothing unless it makes the way cheaper.
pub(crate) fn straighten(states: &States, item: &Item, path: &mut Path) {
    let cost = |from: u8, to: u8| states.cost(usize::from(from), usize::from(to), item.bytes as f64);
    for i in 1..path.uses.len() {
        let (before, rest, after) = (path.uses[i - 1], path.rests[i], path.uses[i]);
        let at_once = item.visits[i - 1].step + 1 == item.visits[i].step;
        if at_once && cost(before, after) <= cost(before, rest) + cost(rest, after) {
            path.rests[i] = before;
        }
    }
}

/// The moves of a path: what they cost.
pub(crate) fn moving(states: &States, item: &Item, path: &Path) -> f64 {
    let bytes = item.bytes as f64;
    let mut cost = 0.0;
    for (i, state) in path.uses.iter().enumerate() {
        if i > 0 || item.persistent || item.fed {
            cost += states.cost(usize::from(path.rests[i]), usize::from(*state), bytes);
        }
        if i + 1 < path.uses.len() || item.persistent {
            cost += states.cost(usize::from(*state), usize::from(path.rests[i + 1]), bytes);
        }
    }
    cost
}

/// Calls `each` with every stretch of steps that a path takes on a tier.
pub(crate) fn stretches(
    states: &States,
    item: &Item,
    path: &Path,
    steps: usize,
    mut each: impl FnMut(usize, usize, usize),
) {
    let mut hold = |state: u8, (from, to): (usize, usize)| {
        if from < to {
            let State { tier, copy } = states.all[usize::from(state)];
            each(usize::from(tier), from, to);
            if let Some(copy) = copy {
                each(usize::from(copy), from, to);
            }
        }
    };
    if item.visits.is_empty() {
        if item.persistent {
            hold(path.rests[0], (0, steps));
        }
        return;
    }
    for (i, state) in path.uses.iter().enumerate() {
        hold(path.rests[i], rest(item, i, steps));
        let step = item.visits[i].step as usize;
        hold(*state, (step, step + 1));
    }
    hold(path.rests[path.uses.len()], rest(item, path.uses.len(), steps));
    // A copy in flight is on both tiers.
    for (i, (state, [arrival, departure])) in path.uses.iter().zip(&path.flights).enumerate() {
        if arrival.start < arrival.done {
            each(states.tier(*state), arrival.start as usize, arrival.done as usize);
        }
        // It may have to wait for its link, but not elsewhere.
        let used = item.visits[i].step as usize;
        if used + 1 < departure.done as usize {
            each(states.tier(*state), used + 1, departure.done as usize);
        }
    }
}

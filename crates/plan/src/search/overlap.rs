//! The best way of one tensor through the tiers while kernels run: the shortest path of `paths.rs`, with copies that
//! take time on their links and hold memory on both tiers while they fly.
//!
//! A tensor leaves right after a use, as fast as its link allows, and comes back as late as it can for the next; what
//! does not fit beside the kernels between the two is waited for, and costs as much.

use crate::bound::paths::{Flight, Path, Prices, States, rest};
use crate::model::lanes::{Freight, Lanes};
use crate::model::problem::{Item, Problem};
use crate::search::headroom::Headroom;

/// What the search knows: what is free, and what things cost.
pub(crate) struct Ground<'a, P: Prices> {
    pub(crate) problem: &'a Problem,
    pub(crate) states: &'a States,
    pub(crate) lanes: &'a Lanes,
    /// For each tier, the bytes left at each step.
    pub(crate) left: &'a [Option<Headroom>],
    pub(crate) prices: &'a P,
}

/// With at most so many tensors, those that outlive the iteration may leave the fastest tier and come back to it.
const ROAMING: usize = 200;

/// The cheapest way to a state so far, and from which boundary on the tensor is at rest in it.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    cost: f64,
    settled: u32,
    from: u8,
}

const NOWHERE: Arrived = Arrived { cost: f64::INFINITY, settled: 0, from: 0 };

impl<P: Prices> Ground<'_, P> {
    /// Finds the cheapest path of a tensor; what it costs, and what of that are its moves.
    pub(crate) fn cheapest(&self, item: &Item, path: &mut Path) -> (f64, f64) {
        let starts = if item.persistent { self.problem.tiers } else { 1 };
        let mut best = (f64::INFINITY, 0.0);
        for start in 0..starts {
            let (rests, uses) = self.walk(item, start);
            let last = rests.last().expect("there is a rest after the last use");
            let end = match item.persistent {
                true => start,
                false => {
                    (0..last.len()).min_by(|a, b| last[*a].cost.total_cmp(&last[*b].cost)).expect("states")
                }
            };
            if last[end].cost < best.0 {
                best.0 = last[end].cost;
                trace(&rests, &uses, end, path);
            }
        }
        if best.0.is_finite() {
            best.1 = self.fly(item, path);
        }
        best
    }

    /// The cheapest way to every state at every rest and use.
    fn walk(&self, item: &Item, start: usize) -> (Vec<Vec<Arrived>>, Vec<Vec<Arrived>>) {
        let (count, visits, steps) = (self.states.all.len(), item.visits.len(), self.problem.calls.len());
        let (mut rests, mut uses) = (Vec::with_capacity(visits + 1), Vec::with_capacity(visits));
        let barred =
            |s: usize| (item.persistent && s != start) || (item.fed && self.states.all[s].copy.is_some());
        let first = rest(item, 0, steps);
        let begin = |s: usize| match barred(s) {
            true => NOWHERE,
            false => Arrived { cost: self.hold(s, first), settled: first.0 as u32, from: 0 },
        };
        rests.push((0..count).map(begin).collect::<Vec<_>>());
        for i in 0..visits {
            let born = i == 0 && !item.persistent && !item.fed;
            let dies = i + 1 == visits && !item.persistent;
            let before = &rests[i];
            // What outlives the iteration ends at the very place where it began. Where tensors are many, such places are hard to
            // find, so what begins on the fastest tier stays there.
            let tied = item.persistent
                && start == 0
                && self.left[start].is_some()
                && self.problem.items.len() > ROAMING;
            let strays = |s: usize| tied && usize::from(self.states.all[s].tier) != start;
            let using = |s: usize| if strays(s) { f64::INFINITY } else { self.using(item, i, s) };
            let using: Vec<f64> = (0..count).map(using).collect();
            let arrive = |to: usize| {
                let ways = before.iter().enumerate().filter(|(_, b)| b.cost.is_finite());
                let ways = ways.filter_map(|(from, b)| match born {
                    true => (from == to).then_some((b.cost, from)),
                    false => Some((b.cost + self.arrival(item, i, from, to, b.settled)?.0, from)),
                });
                settle(ways.map(|(cost, from)| (cost, 0, from)), using[to])
            };
            let at_use: Vec<Arrived> =
                (0..count).map(|to| if using[to].is_finite() { arrive(to) } else { NOWHERE }).collect();
            let stretch = rest(item, i + 1, steps);
            let leave = |to: usize| {
                let holding = if strays(to) { f64::INFINITY } else { self.hold(to, stretch) };
                if holding.is_infinite() {
                    return NOWHERE;
                }
                let ways = at_use.iter().enumerate().filter(|(_, b)| b.cost.is_finite());
                let ways = ways.filter_map(|(from, b)| match dies {
                    true => (from == to).then_some((b.cost, stretch.0 as u32, from)),
                    false => {
                        let (cost, settled) = self.departure(item, i, from, to)?;
                        Some((b.cost + cost, settled, from))
                    }
                });
                settle(ways, holding)
            };
            let at_rest = (0..count).map(leave).collect();
            uses.push(at_use);
            rests.push(at_rest);
        }
        (rests, uses)
    }

    fn using(&self, item: &Item, i: usize, state: usize) -> f64 {
        let visit = &item.visits[i];
        let here = self.states.all[state];
        if here.copy.is_some() && visit.writes {
            return f64::INFINITY;
        }
        let step = visit.step as usize;
        self.prices.using(i, usize::from(here.tier)) + self.hold(state, (step, step + 1))
    }

    fn hold(&self, state: usize, (from, to): (usize, usize)) -> f64 {
        if from >= to {
            return 0.0;
        }
        let here = self.states.all[state];
        let copy = here.copy.map_or(0.0, |copy| self.prices.holding(usize::from(copy), from, to));
        self.prices.holding(usize::from(here.tier), from, to) + copy
    }

    /// The copy that a tensor needs, which holds memory on a tier that neither end of the rest does.
    fn freight(&self, item: &Item, lane: (u8, u8), held: u8) -> Freight<'_> {
        let (from, to) = (usize::from(lane.0), usize::from(lane.1));
        let bytes = item.bytes as f64;
        Freight {
            lane,
            time: bytes * self.problem.copy[from][to] + self.problem.latency[from][to],
            bytes,
            left: self.left[usize::from(held)].as_ref(),
        }
    }

    /// What it costs to come from a rest to a use, and the boundary at which that starts.
    fn arrival(&self, item: &Item, i: usize, from: usize, to: usize, settled: u32) -> Option<(f64, u32)> {
        let step = item.visits[i].step;
        match self.states.copying(from, to).ok()? {
            None => Some((0.0, step)),
            Some(lane) => Some(self.lanes.before(&self.freight(item, lane, lane.1), step, settled)),
        }
    }

    /// What it costs to go from a use to a rest, and the boundary at which that has been done.
    fn departure(&self, item: &Item, i: usize, from: usize, to: usize) -> Option<(f64, u32)> {
        let start = item.visits[i].step + 1;
        match self.states.copying(from, to).ok()? {
            None => Some((0.0, start)),
            Some(lane) => {
                Some(self.lanes.after(&self.freight(item, lane, lane.0), start, self.until(item, i)))
            }
        }
    }

    /// The boundary before which a tensor that leaves after a use must have left.
    fn until(&self, item: &Item, i: usize) -> u32 {
        item.visits.get(i + 1).map_or(self.problem.calls.len() as u32, |next| next.step)
    }

    /// Writes down the copies of a path; returns what they cost.
    pub(crate) fn fly(&self, item: &Item, path: &mut Path) -> f64 {
        let mut cost = 0.0;
        let (exists_before, last) = (item.persistent || item.fed, path.uses.len());
        let mut settled = 0;
        path.flights.clear();
        for i in 0..path.uses.len() {
            let (rests, used) =
                ([path.rests[i], path.rests[i + 1]].map(usize::from), usize::from(path.uses[i]));
            let step = item.visits[i].step;
            let mut flights = [Flight::default(), Flight::default()];
            if (i > 0 || exists_before)
                && let Ok(Some(lane)) = self.states.copying(rests[0], used)
            {
                let freight = self.freight(item, lane, lane.1);
                cost += self.lanes.before(&freight, step, settled).0;
                flights[0] = self.lanes.flight_before(&freight, step, settled);
            }
            settled = step + 1;
            if (i + 1 < last || item.persistent)
                && let Ok(Some(lane)) = self.states.copying(used, rests[1])
            {
                let freight = self.freight(item, lane, lane.0);
                let until = self.until(item, i);
                cost += self.lanes.after(&freight, step + 1, until).0;
                flights[1] = self.lanes.flight_after(&freight, step + 1, until);
                settled = flights[1].done;
            }
            path.flights.push(flights);
        }
        cost
    }
}

/// The cheapest of some ways to a state, with what the state itself costs.
fn settle(ways: impl Iterator<Item = (f64, u32, usize)>, own: f64) -> Arrived {
    let best = ways.min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or(NOWHERE, |(cost, settled, from)| Arrived { cost: cost + own, settled, from: from as u8 })
}

/// Reads the path to a last rest off the tables.
fn trace(rests: &[Vec<Arrived>], uses: &[Vec<Arrived>], end: usize, path: &mut Path) {
    path.uses.resize(uses.len(), 0);
    path.rests.resize(rests.len(), 0);
    path.rests[uses.len()] = end as u8;
    for i in (0..uses.len()).rev() {
        path.uses[i] = rests[i + 1][usize::from(path.rests[i + 1])].from;
        path.rests[i] = uses[i][usize::from(path.uses[i])].from;
    }
}

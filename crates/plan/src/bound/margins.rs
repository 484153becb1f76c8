//! What it would cost a tensor to be in a given state at a given time: the cheapest path through it.
//!
//! Where that is so much more than the cheapest path of all that the bound would pass what is sought, the state can
//! be ruled out: the bound holds for every plan, so no plan that is good enough goes through it.

use crate::bound::paths::{Prices, Scratch, States};
use crate::model::problem::{Item, Problem};
use crate::search::scope::stretch;

/// Tables of the cheapest ways from the beginning and to the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Margins {
    scratch: Scratch,
    come: Vec<f64>,
    go: Vec<f64>,
    /// For each slot and state, the cost of the cheapest path through it.
    pub(crate) through: Vec<f64>,
}

impl Margins {
    /// Finds the cheapest path through every state of every slot; returns what the cheapest of all costs.
    pub(crate) fn find(
        &mut self,
        problem: &Problem,
        states: &States,
        item: &Item,
        prices: &impl Prices,
    ) -> f64 {
        let (count, slots) = (states.all.len(), 2 * item.visits.len() + 1);
        self.through.clear();
        self.through.resize(slots * count, f64::INFINITY);
        if item.visits.is_empty() {
            return self.idle(problem, states, item, prices);
        }
        self.scratch.fill(states, item, problem.calls.len(), prices);
        for start in 0..if item.persistent { problem.tiers } else { 1 } {
            self.forward(states, item, start);
            self.backward(states, item, start);
            for (through, (come, go)) in self.through.iter_mut().zip(self.come.iter().zip(&self.go)) {
                *through = through.min(come + go);
            }
        }
        self.through[..count].iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn idle(&mut self, problem: &Problem, states: &States, item: &Item, prices: &impl Prices) -> f64 {
        let (from, to) = stretch(item, 0, problem.calls.len());
        for (s, state) in states.all.iter().enumerate() {
            if state.copy.is_none() && prices.allows(0, s) {
                let held = if from < to { prices.holding(usize::from(state.tier), from, to) } else { 0.0 };
                self.through[s] = held;
            }
        }
        self.through.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// What a slot costs in each state.
    fn own(&self, slot: usize, count: usize) -> &[f64] {
        let row = slot / 2 * count..(slot / 2 + 1) * count;
        if slot.is_multiple_of(2) { &self.scratch.resting[row] } else { &self.scratch.using[row] }
    }

    /// The cheapest way to every state of every slot, that state included.
    fn forward(&mut self, states: &States, item: &Item, start: usize) {
        let count = states.all.len();
        let barred = |s: usize| (item.persistent && s != start) || (item.fed && states.all[s].copy.is_some());
        let mut come = std::mem::take(&mut self.come);
        come.clear();
        let first = self.own(0, count).iter().enumerate();
        come.extend(first.map(|(s, cost)| if barred(s) { f64::INFINITY } else { *cost }));
        for slot in 1..=2 * item.visits.len() {
            for (to, own) in self.own(slot, count).iter().enumerate() {
                let before = &come[(slot - 1) * count..slot * count];
                let ways = before.iter().enumerate();
                let ways = ways.map(|(from, cost)| cost + way(states, item, slot, from, to));
                come.push(ways.fold(f64::INFINITY, f64::min) + own);
            }
        }
        self.come = come;
    }

    /// The cheapest way from every state of every slot to the end, that state not included.
    fn backward(&mut self, states: &States, item: &Item, start: usize) {
        let (count, last) = (states.all.len(), 2 * item.visits.len());
        let mut go = std::mem::take(&mut self.go);
        go.clear();
        go.resize((last + 1) * count, f64::INFINITY);
        for s in 0..count {
            if !item.persistent || s == start {
                go[last * count + s] = 0.0;
            }
        }
        for slot in (1..=last).rev() {
            for from in 0..count {
                let ways = self
                    .own(slot, count)
                    .iter()
                    .enumerate()
                    .map(|(to, own)| way(states, item, slot, from, to) + own + go[slot * count + to]);
                go[(slot - 1) * count + from] = ways.fold(f64::INFINITY, f64::min);
            }
        }
        self.go = go;
    }
}

/// What it costs to go to a state of a slot from one of the slot before: what is born is born where it is used first,
/// and what dies does not move before.
fn way(states: &States, item: &Item, slot: usize, from: usize, to: usize) -> f64 {
    let born = slot == 1 && !item.persistent && !item.fed;
    let dies = slot == 2 * item.visits.len() && !item.persistent;
    match born || dies {
        true if from == to => 0.0,
        true => f64::INFINITY,
        false => states.cost(from, to, item.bytes as f64),
    }
}

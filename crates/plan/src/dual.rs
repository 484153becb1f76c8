//! A lower bound by prices: memory at every step and the agreement of tensors with kernels are paid for, so that
//! every tensor and every kernel can decide for itself.
//!
//! Tensors meet only in capacities and in kernels. With a price on each byte of memory at each step and a price on
//! each operand's place, the problem falls apart into shortest paths (`paths.rs`) and look-ups in the kernels'
//! tables; the sum of their costs, less what the capacity is worth, is no more than any plan costs. The prices rise
//! where too much is wanted and fall where there is room, along a direction that remembers the last ones, with steps
//! by Polyak's rule.

use crate::paths::{Path, Prices, Scratch, States, cheapest, stretches};
use crate::problem::{Call, Item, Problem, Visit};

/// Prices, the bound that they prove, and what everybody chose at them.
#[derive(Clone, Debug)]
pub(crate) struct Dual {
    /// What a byte costs at each step, and what each operand pays for its place.
    prices: Figures,
    /// Prices of memory, summed over the steps before.
    sums: Vec<Vec<f64>>,
    /// The best bound so far, and the prices that prove it.
    pub(crate) bound: f64,
    pub(crate) best: Figures,
    paths: Vec<Path>,
    /// For each kernel, the placement that it chose.
    placements: Vec<usize>,
    /// How far what everybody chose is from fitting together.
    misfit: Figures,
    toward: Figures,
    scale: Figures,
    pace: f64,
    stuck: usize,
    scratch: Scratch,
}

/// What a tensor pays at given prices.
struct Quote<'a> {
    dual: &'a Dual,
    problem: &'a Problem,
    item: &'a Item,
}

impl Prices for Quote<'_> {
    fn using(&self, visit: usize, tier: usize) -> f64 {
        let visit = &self.item.visits[visit];
        if let Some(alone) = self.problem.other(visit, tier) {
            return alone;
        }
        match tier {
            0 => 0.0,
            tier => {
                let at = usize::from(visit.operand) * (self.problem.tiers - 1) + tier - 1;
                self.dual.prices.places[visit.step as usize][at]
            }
        }
    }

    fn holding(&self, tier: usize, from: usize, to: usize) -> f64 {
        // What is larger than the room at a step cannot be there.
        match &self.problem.bound_room[tier] {
            None => 0.0,
            Some(_) => (self.dual.sums[tier][to] - self.dual.sums[tier][from]) * self.item.bytes as f64,
        }
    }
}

impl Dual {
    /// Prices at which memory is free and each operand pays what its place costs the kernel on its own.
    pub(crate) fn new(problem: &Problem) -> Dual {
        let steps = problem.calls.len();
        let places = problem.calls.iter().map(|call| {
            let least = call.times.iter().copied().fold(f64::INFINITY, f64::min);
            let mut prices = Vec::with_capacity(call.items.len() * (problem.tiers - 1));
            for operand in 0..call.items.len() {
                for tier in 1..problem.tiers {
                    let alone = call.times[tier * problem.tiers.pow(operand as u32)];
                    let base = if call.times[0].is_finite() { call.times[0] } else { least };
                    prices.push(if alone.is_finite() { (alone - base).max(0.0) } else { 0.0 });
                }
            }
            prices
        });
        let prices = Figures { places: places.collect(), ..Figures::zeros(problem) };
        Dual {
            best: prices.clone(),
            prices,
            sums: vec![vec![0.0; steps + 1]; problem.tiers],
            // Every kernel as fast as it can be.
            bound: problem.calls.iter().map(|call| call.times[call.fastest()]).sum(),
            paths: vec![Path::default(); problem.items.len()],
            placements: vec![0; steps],
            misfit: Figures::zeros(problem),
            toward: Figures::zeros(problem),
            scale: scale(problem),
            pace: 1.0,
            stuck: 0,
            scratch: Scratch::default(),
        }
    }

    /// Lets everybody choose at the present prices; returns the bound that these prove.
    fn evaluate(&mut self, problem: &Problem, states: &States) -> f64 {
        let mut value = 0.0;
        for (tier, prices) in self.prices.memory.iter().enumerate() {
            let mut sum = 0.0;
            for (step, price) in prices.iter().enumerate() {
                self.sums[tier][step] = sum;
                sum += price;
                if let Some(room) = &problem.bound_room[tier] {
                    value -= price * room[step];
                }
            }
            self.sums[tier][prices.len()] = sum;
        }
        for (step, call) in problem.calls.iter().enumerate() {
            let (mut least, mut chosen) = (f64::INFINITY, 0);
            for (placement, time) in call.times.iter().enumerate() {
                let mut cost = *time;
                let mut digits = placement;
                for operand in 0..call.items.len() {
                    let tier = digits % problem.tiers;
                    digits /= problem.tiers;
                    if tier > 0 {
                        cost -= self.prices.places[step][operand * (problem.tiers - 1) + tier - 1];
                    }
                }
                if cost < least {
                    (least, chosen) = (cost, placement);
                }
            }
            value += least;
            self.placements[step] = chosen;
        }
        let mut paths = std::mem::take(&mut self.paths);
        let mut scratch = std::mem::take(&mut self.scratch);
        for (item, path) in problem.items.iter().zip(&mut paths) {
            value +=
                cheapest(problem, states, item, &Quote { dual: self, problem, item }, &mut scratch, path);
        }
        (self.paths, self.scratch) = (paths, scratch);
        value
    }

    /// Works out how far what everybody chose is from fitting together: bytes too many by tier and step, places that
    /// tensors took and kernels did not by kernel and operand.
    fn misfit(&mut self, problem: &Problem, states: &States) {
        let steps = problem.calls.len();
        self.misfit.clear();
        let Figures { memory, places } = &mut self.misfit;
        for (item, path) in problem.items.iter().zip(&self.paths) {
            stretches(states, item, path, steps, |tier, from, to| {
                memory[tier][from] += item.bytes as f64;
                if to < steps {
                    memory[tier][to] -= item.bytes as f64;
                }
            });
        }
        for (tier, row) in memory.iter_mut().enumerate() {
            let mut used = 0.0;
            for (step, x) in row.iter_mut().enumerate() {
                used += *x;
                *x = match &problem.bound_room[tier] {
                    Some(room) => used - room[step],
                    None => 0.0,
                };
            }
        }
        for (step, call) in problem.calls.iter().enumerate() {
            for operand in 0..call.items.len() {
                let chosen = problem.digit(self.placements[step], operand);
                for tier in 1..problem.tiers {
                    places[step][operand * (problem.tiers - 1) + tier - 1] =
                        if chosen == tier { -1.0 } else { 0.0 };
                }
            }
        }
        for (item, path) in problem.items.iter().zip(&self.paths) {
            for (visit, state) in item.visits.iter().zip(&path.uses) {
                let tier = states.tier(*state);
                if tier > 0 && is_listed(problem, visit) {
                    let at = usize::from(visit.operand) * (problem.tiers - 1) + tier - 1;
                    places[visit.step as usize][at] += 1.0;
                }
            }
        }
    }

    /// Improves the prices for some rounds, or until `enough` says so. `upper` is what the best plan known costs.
    pub(crate) fn ascend(
        &mut self,
        problem: &Problem,
        states: &States,
        upper: f64,
        rounds: usize,
        mut enough: impl FnMut(f64) -> bool,
    ) {
        for _ in 0..rounds {
            let value = self.evaluate(problem, states);
            if value > self.bound + 1e-7 * value.abs() {
                self.bound = value;
                self.best.memory.clone_from(&self.prices.memory);
                self.best.places.clone_from(&self.prices.places);
                self.stuck = 0;
            } else {
                self.stuck += 1;
                if self.stuck >= PATIENCE {
                    (self.pace, self.stuck) = (self.pace * 0.7, 0);
                    self.prices.memory.clone_from(&self.best.memory);
                    self.prices.places.clone_from(&self.best.places);
                    self.toward.clear();
                    continue;
                }
            }
            if enough(self.bound) {
                return;
            }
            self.misfit(problem, states);
            let length = self.toward.turn(&self.prices, &self.misfit, &self.scale);
            if length <= 0.0 {
                return;
            }
            let target = if upper.is_finite() { upper.max(value + 1e-4 * value.abs()) } else { value * 1.05 };
            let step = self.pace * (target - value) / length;
            self.prices.follow(&self.toward, &self.scale, step);
        }
    }
}

/// Whether a use is in its kernel's table.
fn is_listed(problem: &Problem, visit: &Visit) -> bool {
    usize::from(visit.operand) < problem.calls[visit.step as usize].items.len()
}

/// Rounds without a better bound after which the steps get shorter.
const PATIENCE: usize = 20;

/// How much of the last direction is kept.
const MEMORY: f64 = 0.8;

/// One figure for every price.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// For each tier and step.
    pub(crate) memory: Vec<Vec<f64>>,
    /// For each kernel, by operand and tier but the fastest.
    pub(crate) places: Vec<Vec<f64>>,
}

impl Figures {
    fn clear(&mut self) {
        self.memory.iter_mut().chain(&mut self.places).for_each(|row| row.fill(0.0));
    }

    fn zeros(problem: &Problem) -> Figures {
        let rows = problem.calls.iter().map(|call| vec![0.0; call.items.len() * (problem.tiers - 1)]);
        Figures { memory: vec![vec![0.0; problem.calls.len()]; problem.tiers], places: rows.collect() }
    }

    /// Turns this direction towards a new misfit; returns the square of its length in units of the scale.
    fn turn(&mut self, prices: &Figures, misfit: &Figures, scale: &Figures) -> f64 {
        let mut length = 0.0;
        let memory = self.memory.iter_mut().zip(&misfit.memory).zip(&prices.memory).zip(&scale.memory);
        for (((old, new), prices), scale) in memory {
            for (((old, new), price), scale) in old.iter_mut().zip(new).zip(prices).zip(scale) {
                *old = MEMORY * *old + (1.0 - MEMORY) * new;
                // Prices do not fall below nothing.
                if *price <= 0.0 && *old < 0.0 {
                    *old = 0.0;
                }
                length += (*old * scale) * (*old * scale);
            }
        }
        for ((old, new), scale) in self.places.iter_mut().zip(&misfit.places).zip(&scale.places) {
            for ((old, new), scale) in old.iter_mut().zip(new).zip(scale) {
                *old = MEMORY * *old + (1.0 - MEMORY) * new;
                length += (*old * scale) * (*old * scale);
            }
        }
        length
    }

    /// Moves prices along a direction; prices of memory stay above nothing.
    fn follow(&mut self, toward: &Figures, scale: &Figures, step: f64) {
        for ((prices, d), scale) in self.memory.iter_mut().zip(&toward.memory).zip(&scale.memory) {
            for ((price, d), scale) in prices.iter_mut().zip(d).zip(scale) {
                *price = (*price + step * d * scale * scale).max(0.0);
            }
        }
        for ((prices, d), scale) in self.places.iter_mut().zip(&toward.places).zip(&scale.places) {
            for ((price, d), scale) in prices.iter_mut().zip(d).zip(scale) {
                *price += step * d * scale * scale;
            }
        }
    }
}

/// How far each price is worth moving: a kernel's by how much its time depends on places, a step's by how much the
/// kernels' times depend on them on average.
fn scale(problem: &Problem) -> Figures {
    let mut scale = Figures::zeros(problem);
    let range = |call: &Call| {
        let finite = call.times.iter().copied().filter(|t| t.is_finite());
        let (least, most) = finite.fold((f64::INFINITY, 0.0_f64), |(a, b), t| (a.min(t), b.max(t)));
        (most - least).max(0.0)
    };
    let ranges: Vec<f64> = problem.calls.iter().map(range).collect();
    let mean = (ranges.iter().sum::<f64>() / ranges.len().max(1) as f64).max(1.0);
    for (row, range) in scale.places.iter_mut().zip(&ranges) {
        row.fill(range.max(mean * 0.01));
    }
    for (row, room) in scale.memory.iter_mut().zip(&problem.bound_room) {
        if let Some(room) = room {
            for (scale, room) in row.iter_mut().zip(room) {
                *scale = mean / room.max(1.0) * SHARE;
            }
        }
    }
    scale
}

/// How far prices of memory move against those of places.
const SHARE: f64 = 20.0;

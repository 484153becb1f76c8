//! A lower bound by prices: memory at every step and the agreement of tensors with kernels are paid for, so that
//! every tensor and every kernel can decide for itself.
//!
//! Tensors meet only in capacities and in kernels. With a price on each byte of memory at each step and a price on
//! each operand's place, the problem falls apart into shortest paths (`paths.rs`) and look-ups in the kernels'
//! tables; the sum of their costs, less what the capacity is worth, is no more than any plan costs. The prices rise
//! where too much is wanted and fall where there is room, along a direction that remembers the last ones, with steps
//! by Polyak's rule.

use tiercel_workload::TensorId;

use crate::bound::margins::Margins;
use crate::bound::paths::{Path, Prices, Scratch, States, cheapest, stretches};
use crate::model::problem::{Call, Item, Problem, Visit};
use crate::model::rows::Rows;
use crate::search::scope::Scope;

/// Prices, the bound that they prove, and what everybody chose at them.
#[derive(Clone, Debug)]
pub(crate) struct Dual {
    rows: Rows,
    /// What a byte costs at each step, and what each operand pays for its place.
    prices: Figures,
    /// Prices of memory, summed over the steps before.
    sums: Vec<Vec<f64>>,
    /// The best bound so far, what the best prices prove of it, and these.
    pub(crate) bound: f64,
    reached: f64,
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
    margins: Margins,
    discounts: Vec<f64>,
    /// How often each tensor was lately on each tier at each slot, since the last restart.
    shares: Option<Vec<Vec<f64>>>,
}

/// What a tensor pays at given prices.
struct Quote<'a> {
    dual: &'a Dual,
    problem: &'a Problem,
    item: &'a Item,
    at: usize,
    /// The states that are open at each slot.
    open: &'a [u64],
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
        let rows = &self.dual.rows;
        let price = |row: &usize| {
            (self.dual.sums[*row][to] - self.dual.sums[*row][from]) * rows.all[*row].weights[self.at]
        };
        rows.of[tier].iter().map(price).sum()
    }

    fn allows(&self, slot: usize, state: usize) -> bool {
        self.open[slot] & 1 << state != 0
    }
}

impl Dual {
    /// Prices at which memory is free and each operand pays what its place costs the kernel.
    pub(crate) fn new(problem: &Problem) -> Dual {
        let steps = problem.calls.len();
        let places = problem.calls.iter().map(|call| fair(problem, call));
        let rows = Rows::new(problem);
        let zeros = Figures::zeros(problem, &rows);
        let prices = Figures { places: places.collect(), ..zeros.clone() };
        Dual {
            best: prices.clone(),
            prices,
            sums: vec![vec![0.0; steps + 1]; rows.all.len()],
            bound: problem.calls.iter().map(least).sum(),
            reached: f64::NEG_INFINITY,
            paths: vec![Path::default(); problem.items.len()],
            placements: vec![0; steps],
            misfit: zeros.clone(),
            toward: zeros.clone(),
            scale: scale(problem, &rows, zeros),
            rows,
            pace: PACE,
            stuck: 0,
            scratch: Scratch::default(),
            margins: Margins::default(),
            discounts: Vec::new(),
            shares: None,
        }
    }

    /// Begins with prices that were good for the same trace with another amount of memory, where there are any.
    pub(crate) fn warm(problem: &Problem, known: Option<(&Figures, &[Vec<TensorId>])>) -> Dual {
        let mut dual = Dual::new(problem);
        let Some((figures, operands)) = known else { return dual };
        // Limits on large tensors are others where there is more room, and so is what bytes cost beside them.
        let comparable = figures.memory.len() == problem.tiers && dual.rows.all.len() == problem.tiers;
        if !comparable || operands.len() != problem.calls.len() {
            return dual;
        }
        dual.prices.memory.clone_from(&figures.memory);
        let width = (problem.tiers - 1).max(1);
        for (step, (call, prices)) in problem.calls.iter().zip(&mut dual.prices.places).enumerate() {
            for (item, prices) in call.items.iter().zip(prices.chunks_mut(width)) {
                let tensor = problem.items[*item as usize].tensor;
                if let Some(at) = operands[step].iter().position(|operand| *operand == tensor) {
                    prices.copy_from_slice(&figures.places[step][at * width..][..width]);
                }
            }
        }
        dual.best.clone_from(&dual.prices);
        dual
    }

    /// Begins anew from given prices, for a part of all plans.
    pub(crate) fn restart(&mut self, prices: &Figures, pace: f64) {
        self.prices.clone_from(prices);
        self.best.clone_from(prices);
        self.toward.clear();
        self.shares = Some(Vec::new());
        (self.bound, self.reached, self.pace, self.stuck) = (f64::NEG_INFINITY, f64::NEG_INFINITY, pace, 0);
    }

    /// Lets everybody choose at the present prices; returns the bound that these prove.
    fn evaluate(&mut self, problem: &Problem, states: &States, scope: &Scope) -> f64 {
        let mut value = 0.0;
        for (prices, (row, sums)) in self.prices.memory.iter().zip(self.rows.all.iter().zip(&mut self.sums)) {
            let Some(room) = &scope.room[row.tier] else { continue };
            let mut sum = 0.0;
            for (step, price) in prices.iter().enumerate() {
                sums[step] = sum;
                sum += price;
                value -= price * row.most.unwrap_or(room[step]);
            }
            sums[prices.len()] = sum;
        }
        let mut discounts = std::mem::take(&mut self.discounts);
        for step in 0..problem.calls.len() {
            self.discount(problem, step, &mut discounts);
            let costs = scope.times[step].iter().zip(&discounts).map(|(time, discount)| time - discount);
            let (mut least, mut chosen) = (f64::INFINITY, 0);
            for (placement, cost) in costs.enumerate() {
                if cost < least {
                    (least, chosen) = (cost, placement);
                }
            }
            value += least;
            self.placements[step] = chosen;
        }
        self.discounts = discounts;
        let mut paths = std::mem::take(&mut self.paths);
        let mut scratch = std::mem::take(&mut self.scratch);
        for (at, (item, path)) in problem.items.iter().zip(&mut paths).enumerate() {
            let quote = Quote { dual: self, problem, item, at, open: scope.slots(at) };
            value += cheapest(problem, states, item, &quote, &mut scratch, path);
        }
        (self.paths, self.scratch) = (paths, scratch);
        value
    }

    /// Works out how far what everybody chose is from fitting together: bytes too many by tier and step, places that
    /// tensors took and kernels did not by kernel and operand.
    fn misfit(&mut self, problem: &Problem, states: &States, scope: &Scope) {
        let steps = problem.calls.len();
        self.misfit.clear();
        let Figures { memory, places } = &mut self.misfit;
        for (at, (item, path)) in problem.items.iter().zip(&self.paths).enumerate() {
            stretches(states, item, path, steps, |tier, from, to| {
                for row in &self.rows.of[tier] {
                    let weight = self.rows.all[*row].weights[at];
                    memory[*row][from] += weight;
                    if to < steps {
                        memory[*row][to] -= weight;
                    }
                }
            });
        }
        for (misfit, row) in memory.iter_mut().zip(&self.rows.all) {
            let Some(room) = &scope.room[row.tier] else { continue };
            let mut used = 0.0;
            for (step, x) in misfit.iter_mut().enumerate() {
                used += *x;
                *x = used - row.most.unwrap_or(room[step]);
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
        scope: &Scope,
        upper: f64,
        rounds: usize,
        mut enough: impl FnMut(f64) -> bool,
    ) {
        for _ in 0..rounds {
            let value = self.evaluate(problem, states, scope);
            if value.is_infinite() {
                self.bound = value;
                return;
            }
            if value > self.reached + 1e-7 * value.abs() {
                self.reached = value;
                self.bound = self.bound.max(value);
                self.best.memory.clone_from(&self.prices.memory);
                self.best.places.clone_from(&self.prices.places);
                self.stuck = 0;
            } else {
                self.stuck += 1;
                if self.stuck >= PATIENCE {
                    (self.pace, self.stuck) = (self.pace * SLOWER, 0);
                    self.prices.memory.clone_from(&self.best.memory);
                    self.prices.places.clone_from(&self.best.places);
                    self.toward.clear();
                    continue;
                }
            }
            self.note(problem, states);
            if enough(self.bound) {
                return;
            }
            self.misfit(problem, states, scope);
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

impl Dual {
    /// Rules out what the best prices prove to cost `cutoff` or more; returns whether there was anything.
    pub(crate) fn rule_out(
        &mut self,
        problem: &Problem,
        states: &States,
        scope: &mut Scope,
        cutoff: f64,
    ) -> bool {
        self.prices.clone_from(&self.best);
        let value = self.evaluate(problem, states, scope);
        if !value.is_finite() {
            return false;
        }
        let mut changed = false;
        let mut discounts = std::mem::take(&mut self.discounts);
        for step in 0..problem.calls.len() {
            self.discount(problem, step, &mut discounts);
            let chosen = self.placements[step];
            let least = scope.times[step][chosen] - discounts[chosen];
            for (time, discount) in scope.times[step].iter_mut().zip(&discounts) {
                if time.is_finite() && value + *time - discount - least >= cutoff {
                    (*time, changed) = (f64::INFINITY, true);
                }
            }
        }
        self.discounts = discounts;
        let mut margins = std::mem::take(&mut self.margins);
        for (at, item) in problem.items.iter().enumerate() {
            let quote = Quote { dual: self, problem, item, at, open: scope.slots(at) };
            let least = margins.find(problem, states, item, &quote);
            for (slot, through) in margins.through.chunks(states.all.len()).enumerate() {
                let keeps = |cost: f64| value + cost - least < cutoff;
                let keep = through.iter().enumerate().filter(|(_, cost)| keeps(**cost));
                changed |= scope.keep(at, slot, keep.fold(0, |mask, (s, _)| mask | 1 << s));
            }
        }
        self.margins = margins;
        changed
    }

    /// What the operands of a kernel pay it for each placement.
    fn discount(&self, problem: &Problem, step: usize, discounts: &mut Vec<f64>) {
        discounts.clear();
        discounts.push(0.0);
        for paid in self.prices.places[step].chunks(problem.tiers - 1) {
            // As many placements again for each tier of this operand.
            let before = discounts.len();
            for price in paid {
                discounts.extend_from_within(..before);
                let added = discounts.len() - before;
                discounts[added..].iter_mut().for_each(|discount| *discount += price);
            }
        }
    }

    /// Notes what every tensor chose.
    fn note(&mut self, problem: &Problem, states: &States) {
        let Some(all) = &mut self.shares else { return };
        let first = all.is_empty();
        all.resize(problem.items.len(), Vec::new());
        for (path, shares) in self.paths.iter().zip(all) {
            shares.resize((path.uses.len() + path.rests.len()) * problem.tiers, 0.0);
            for (slot, shares) in shares.chunks_mut(problem.tiers).enumerate() {
                let state = if slot % 2 == 0 { path.rests[slot / 2] } else { path.uses[slot / 2] };
                let keep = if first { 0.0 } else { HABIT };
                shares.iter_mut().for_each(|share| *share *= keep);
                shares[states.tier(state)] += 1.0 - keep;
            }
        }
    }

    /// How often a tensor was lately on each tier at a slot.
    pub(crate) fn share(&self, at: usize, slot: usize, tier: usize, tiers: usize) -> f64 {
        let shares = self.shares.as_ref().and_then(|all| all.get(at));
        shares.map_or(0.0, |shares| shares[slot * tiers + tier])
    }

    /// The best prices of memory, for who wants to know what room costs over time.
    pub(crate) fn guide(&self) -> Guide<'_> {
        let sums = |prices: &Vec<f64>| {
            let mut sum = 0.0;
            let mut sums = vec![0.0];
            sums.extend(prices.iter().map(|price| {
                sum += price;
                sum
            }));
            sums
        };
        Guide { sums: self.best.memory.iter().map(sums).collect(), rows: &self.rows }
    }
}

/// What room costs over time.
#[derive(Clone, Debug)]
pub(crate) struct Guide<'a> {
    rows: &'a Rows,
    /// For each limit, the prices summed over the steps before.
    sums: Vec<Vec<f64>>,
}

impl Guide<'_> {
    /// What a tensor costs on a tier from one step up to another.
    pub(crate) fn rent(&self, at: usize, tier: usize, (from, to): (usize, usize)) -> f64 {
        let price =
            |row: &usize| (self.sums[*row][to] - self.sums[*row][from]) * self.rows.all[*row].weights[at];
        self.rows.of[tier].iter().map(price).sum()
    }
}

/// How far prices move at first, of the way that would close the gap if it were straight.
const PACE: f64 = 0.5;
/// Rounds without a better bound after which the steps get shorter, and by how much.
const PATIENCE: usize = 25;
const SLOWER: f64 = 0.7;
/// How much of the last direction is kept.
const MEMORY: f64 = 0.7;
/// How far prices of bytes, and of large tensors, move against those of places.
const SHARE: f64 = 80.0;
const LARGE_SHARE: f64 = 30.0;
/// How much of what was seen before counts.
const HABIT: f64 = 0.9;

/// What each operand of a kernel pays for its place, by operand and tier but the fastest: what the place costs on its own,
/// or so much less that no placement is paid more for than it costs. (Times that do not add up are less than the sum.)
fn fair(problem: &Problem, call: &Call) -> Vec<f64> {
    let fastest = call.times[call.fastest()];
    let alone = |operand: usize, tier: usize| {
        let time = call.times[tier * problem.tiers.pow(operand as u32)];
        if time.is_finite() { (time - fastest).max(0.0) } else { 0.0 }
    };
    let operands = 0..call.items.len();
    // What all operands pay together, for placements of ever more of them.
    let mut paid = vec![0.0];
    for operand in operands.clone() {
        for tier in 1..problem.tiers {
            let more = alone(operand, tier);
            paid.extend_from_within(..problem.tiers.pow(operand as u32));
            let placements = paid.len() - problem.tiers.pow(operand as u32)..;
            paid[placements].iter_mut().for_each(|paid| *paid += more);
        }
    }
    let mut part = 1.0_f64;
    for (time, paid) in call.times.iter().zip(paid) {
        if paid > time - fastest {
            part = part.min((time - fastest) / paid);
        }
    }
    operands.flat_map(|o| (1..problem.tiers).map(move |tier| part * alone(o, tier))).collect()
}

/// The least that a kernel can take, with what its operands beyond the table may add.
fn least(call: &Call) -> f64 {
    let others = call.others.iter().map(|tiers| tiers.iter().copied().fold(f64::INFINITY, f64::min));
    call.times[call.fastest()] + others.sum::<f64>()
}

/// Whether a use is in its kernel's table.
pub(crate) fn is_listed(problem: &Problem, visit: &Visit) -> bool {
    usize::from(visit.operand) < problem.calls[visit.step as usize].items.len()
}

/// One figure for every price.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// For each limit on a tier and each step.
    pub(crate) memory: Vec<Vec<f64>>,
    /// For each kernel, by operand and tier but the fastest.
    pub(crate) places: Vec<Vec<f64>>,
}

impl Figures {
    fn clear(&mut self) {
        self.memory.iter_mut().chain(&mut self.places).for_each(|row| row.fill(0.0));
    }

    fn zeros(problem: &Problem, rows: &Rows) -> Figures {
        let places = problem.calls.iter().map(|call| vec![0.0; call.items.len() * (problem.tiers - 1)]);
        Figures { memory: vec![vec![0.0; problem.calls.len()]; rows.all.len()], places: places.collect() }
    }

    /// Turns this direction towards a new misfit; returns the square of its length in units of the scale.
    fn turn(&mut self, prices: &Figures, misfit: &Figures, scale: &Figures) -> f64 {
        let mut length = 0.0;
        let rows = self.memory.iter_mut().zip(&misfit.memory).zip(&prices.memory).zip(&scale.memory);
        for (((old, new), prices), scale) in rows {
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
fn scale(problem: &Problem, rows: &Rows, mut scale: Figures) -> Figures {
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
    for (scale, row) in scale.memory.iter_mut().zip(&rows.all) {
        let Some(room) = &problem.bound_room[row.tier] else { continue };
        let share = if row.most.is_some() { LARGE_SHARE } else { SHARE };
        for ((scale, live), room) in scale.iter_mut().zip(&row.live).zip(room) {
            *scale = mean / live.max(row.most.unwrap_or(*room)).max(1.0) * share;
        }
    }
    scale
}

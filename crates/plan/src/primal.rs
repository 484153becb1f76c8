//! Plans that fit: tensors are placed one after another, each on the cheapest path that the room left allows, and
//! then, again and again, a few of them are taken out and placed anew.
//!
//! What a place costs a tensor is what the kernels that use it would take with it there and everything else where it
//! is, so times that do not add up over operands are counted as they are.

use crate::dual::Dual;
use crate::lanes::Lanes;
use crate::overlap::Ground;
use crate::paths::{Path, Prices, Scratch, States, cheapest, moving, stretches};
use crate::problem::{Call, Item, Problem};

/// A plan under construction: a path for every tensor, and the room that is left.
#[derive(Clone, Debug)]
pub(crate) struct Primal {
    pub(crate) paths: Vec<Option<Path>>,
    /// For each kernel, its placement; tensors not placed yet count as being where the kernel would like them best.
    placements: Vec<usize>,
    /// For each tier with a limit, the bytes left at each step.
    left: Vec<Option<Vec<f64>>>,
    /// What each tensor's moves cost, and the same with what tables do not list.
    moves: Vec<f64>,
    moving: Vec<f64>,
    /// What links have left beside kernels, where copies may overlap them.
    lanes: Option<Lanes>,
    /// What kernels and moves take together.
    pub(crate) cost: f64,
    scratch: Scratch,
}

/// What places cost a tensor, everything else being where it is.
struct Quote<'a> {
    primal: &'a Primal,
    problem: &'a Problem,
    item: &'a Item,
    /// Prices that keep room for others, while not all are placed.
    guide: Option<&'a Dual>,
}

impl Prices for Quote<'_> {
    fn using(&self, visit: usize, tier: usize) -> f64 {
        let visit = &self.item.visits[visit];
        if let Some(alone) = self.problem.other(visit, tier) {
            return alone;
        }
        let (step, scale) = (visit.step as usize, self.problem.tiers.pow(u32::from(visit.operand)));
        let placement = self.primal.placements[step];
        let here = self.problem.digit(placement, usize::from(visit.operand));
        self.problem.calls[step].times[placement - here * scale + tier * scale]
    }

    fn holding(&self, tier: usize, from: usize, to: usize) -> f64 {
        let Some(left) = &self.primal.left[tier] else { return 0.0 };
        let bytes = self.item.bytes as f64;
        let least = left[from..to].iter().copied().fold(f64::INFINITY, f64::min);
        if least < bytes {
            return f64::INFINITY;
        }
        self.guide.map_or(0.0, |dual| dual.best.memory[tier][from..to].iter().sum::<f64>() * bytes)
    }
}

impl Primal {
    /// Nothing placed.
    fn empty(problem: &Problem) -> Primal {
        Primal {
            paths: vec![None; problem.items.len()],
            placements: problem.calls.iter().map(Call::fastest).collect(),
            left: problem.room.clone(),
            moves: vec![0.0; problem.items.len()],
            moving: vec![0.0; problem.items.len()],
            lanes: problem.lanes.clone(),
            cost: f64::INFINITY,
            scratch: Scratch::default(),
        }
    }

    /// Places all tensors in an order, with prices to keep room for those that come later.
    fn build(problem: &Problem, states: &States, order: &[usize], guide: Option<&Dual>) -> Option<Primal> {
        let mut primal = Primal::empty(problem);
        for &at in order {
            if !primal.insert(problem, states, at, guide) {
                return None;
            }
        }
        primal.total(problem);
        primal.cost.is_finite().then_some(primal)
    }

    /// Gives a tensor the cheapest path that fits; `false` where none does.
    fn insert(&mut self, problem: &Problem, states: &States, at: usize, guide: Option<&Dual>) -> bool {
        let item = &problem.items[at];
        let (mut path, mut scratch) = (Path::default(), std::mem::take(&mut self.scratch));
        let quote = Quote { primal: self, problem, item, guide };
        let (cost, moves) = match &self.lanes {
            Some(lanes) if !item.visits.is_empty() => {
                Ground { problem, states, lanes, left: &self.left, prices: &quote }.cheapest(item, &mut path)
            }
            _ => {
                let cost = cheapest(problem, states, item, &quote, &mut scratch, &mut path);
                (cost, if cost.is_finite() { moving(states, item, &path) } else { cost })
            }
        };
        self.scratch = scratch;
        if cost.is_finite() {
            self.put(problem, states, at, path, moves);
        }
        cost.is_finite()
    }

    /// Gives a tensor a path, the moves of which cost so much.
    fn put(&mut self, problem: &Problem, states: &States, at: usize, path: Path, moves: f64) {
        let item = &problem.items[at];
        self.occupy(problem, states, item, &path, -1.0);
        // What a table does not list counts with the moves: it depends on this tensor alone.
        let mut apart = moves;
        for (visit, state) in item.visits.iter().zip(&path.uses) {
            let tier = states.tier(*state);
            match problem.other(visit, tier) {
                Some(alone) => apart += alone,
                None => self.set(problem, visit.step as usize, usize::from(visit.operand), tier),
            }
        }
        self.book(states, &path, -1.0);
        self.moves[at] = moves;
        self.moving[at] = apart;
        self.paths[at] = Some(path);
    }

    fn take(&mut self, problem: &Problem, states: &States, at: usize) -> Option<Path> {
        let path = self.paths[at].take()?;
        let item = &problem.items[at];
        self.occupy(problem, states, item, &path, 1.0);
        self.book(states, &path, 1.0);
        self.moving[at] = 0.0;
        Some(path)
    }

    /// Takes the time of a path's copies off their links, or gives it back.
    fn book(&mut self, states: &States, path: &Path, sign: f64) {
        let Some(lanes) = &mut self.lanes else { return };
        for (i, [arrival, departure]) in path.flights.iter().enumerate() {
            let [before, used, after] = [path.rests[i], path.uses[i], path.rests[i + 1]].map(usize::from);
            for (flight, from, to) in [(arrival, before, used), (departure, used, after)] {
                if let Ok(Some(lane)) = states.copying(from, to) {
                    lanes.book(lane, flight, sign);
                }
            }
        }
    }

    fn occupy(&mut self, problem: &Problem, states: &States, item: &Item, path: &Path, sign: f64) {
        let bytes = sign * item.bytes as f64;
        stretches(states, item, path, problem.calls.len(), |tier, from, to| {
            if let Some(left) = &mut self.left[tier] {
                left[from..to].iter_mut().for_each(|x| *x += bytes);
            }
        });
    }

    fn set(&mut self, problem: &Problem, step: usize, operand: usize, tier: usize) {
        let scale = problem.tiers.pow(operand as u32);
        let here = problem.digit(self.placements[step], operand);
        self.placements[step] = self.placements[step] - here * scale + tier * scale;
    }

    /// Counts what the plan costs.
    fn total(&mut self, problem: &Problem) {
        let times =
            problem.calls.iter().zip(&self.placements).map(|(call, placement)| call.times[*placement]);
        self.cost = times.sum::<f64>() + self.moving.iter().sum::<f64>();
    }

    /// What the kernels that use these tensors and the tensors' moves take.
    fn share(&self, problem: &Problem, some: &[usize], seen: &mut [u32], mark: u32) -> f64 {
        let mut sum = 0.0;
        for &at in some {
            sum += self.moving[at];
            for visit in &problem.items[at].visits {
                let step = visit.step as usize;
                if std::mem::replace(&mut seen[step], mark) != mark {
                    sum += problem.calls[step].times[self.placements[step]];
                }
            }
        }
        sum
    }
}

/// Builds plans in several orders and keeps the best.
pub(crate) fn construct(problem: &Problem, states: &States, dual: &Dual) -> Option<Primal> {
    let weight = |at: usize| -> f64 {
        let item = &problem.items[at];
        let stake: f64 =
            item.visits.iter().map(|v| dual.best.places[v.step as usize].iter().sum::<f64>()).sum();
        stake / item.bytes as f64
    };
    let span = |at: usize| -> u32 {
        let visits = &problem.items[at].visits;
        visits.last().map_or(0, |v| v.step) - visits.first().map_or(0, |v| v.step)
    };
    let all: Vec<usize> = (0..problem.items.len()).collect();
    let mut by_worth = all.clone();
    by_worth.sort_by(|a, b| weight(*b).total_cmp(&weight(*a)));
    let mut by_span = all.clone();
    by_span.sort_by_key(|at| span(*at));
    let mut by_size = all.clone();
    by_size.sort_by_key(|at| std::cmp::Reverse(problem.items[*at].bytes));
    let orders = [all, by_worth, by_span, by_size];
    let guided = orders.iter().filter_map(|order| Primal::build(problem, states, order, Some(dual)));
    let plain = orders.iter().filter_map(|order| Primal::build(problem, states, order, None));
    let mut plans: Vec<Primal> = guided.chain(plain).collect();
    plans.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    plans.into_iter().next()
}

/// Takes a tensor that would like another place out, with some of those that are in its way, and places it first and
/// them after it, as long as `more` says. A change that costs nothing is kept too, so that the search does not stay
/// on one spot.
pub(crate) fn improve(
    problem: &Problem,
    states: &States,
    primal: &mut Primal,
    random: &mut fastrand::Rng,
    mut more: impl FnMut(&Primal) -> bool,
) {
    let alive = alive(problem);
    let mut seen = vec![0; problem.calls.len()];
    let mut mark = 0;
    let mut wishes: Vec<usize> = Vec::new();
    let mut turn = 0;
    while more(primal) {
        if turn == 0 {
            wishes = (0..problem.items.len()).filter(|at| primal.wishes(states, *at)).collect();
            turn = wishes.len().max(1);
        }
        turn -= 1;
        if wishes.is_empty() {
            break;
        }
        let lead = wishes[random.usize(0..wishes.len())];
        let some = primal.rivals(problem, states, &alive, lead, random);
        mark += 1;
        let before = primal.share(problem, &some, &mut seen, mark);
        let moves: Vec<f64> = some.iter().map(|at| primal.moves[*at]).collect();
        let old: Vec<Option<Path>> = some.iter().map(|at| primal.take(problem, states, *at)).collect();
        let mut order: Vec<usize> = some.clone();
        random.shuffle(&mut order[1..]);
        let placed = order.iter().take_while(|at| primal.insert(problem, states, **at, None)).count();
        mark += 1;
        let after =
            if placed == order.len() { primal.share(problem, &some, &mut seen, mark) } else { f64::INFINITY };
        if after <= before {
            primal.cost += after - before;
        } else {
            for at in &order[..placed] {
                primal.take(problem, states, *at);
            }
            for ((at, path), moves) in some.iter().zip(old).zip(moves) {
                if let Some(path) = path {
                    primal.put(problem, states, *at, path, moves);
                }
            }
        }
    }
    primal.total(problem);
}

impl Primal {
    /// Whether a tensor is not always on the fastest tier, or moves.
    fn wishes(&self, states: &States, at: usize) -> bool {
        let slow = |state: &u8| states.tier(*state) > 0;
        self.moving[at] > 0.0 || self.paths[at].as_ref().is_some_and(|path| path.uses.iter().any(slow))
    }

    /// A tensor, and some of those that take the room that it would need at one step of its life.
    fn rivals(
        &self,
        problem: &Problem,
        states: &States,
        alive: &[Vec<u32>],
        lead: usize,
        random: &mut fastrand::Rng,
    ) -> Vec<usize> {
        let item = &problem.items[lead];
        let mut some = vec![lead];
        let visit = item.visits[random.usize(0..item.visits.len())].step as usize;
        let next = item.visits[random.usize(0..item.visits.len())].step as usize;
        let step = random.usize(visit.min(next)..=visit.max(next));
        let Some(left) = &self.left[0] else { return some };
        let (mut free, wanted) = (left[step], item.bytes as f64);
        let start = random.usize(0..alive[step].len().max(1));
        for offset in 0..alive[step].len() {
            if free >= wanted && random.u8(0..3) > 0 || some.len() > 6 {
                break;
            }
            let at = alive[step][(start + offset) % alive[step].len()] as usize;
            if at != lead && self.is_fast(problem, states, at, step) {
                free += problem.items[at].bytes as f64;
                some.push(at);
            }
        }
        some
    }

    /// Whether a tensor takes room on the fastest tier at a step.
    fn is_fast(&self, problem: &Problem, states: &States, at: usize, step: usize) -> bool {
        let Some(path) = &self.paths[at] else { return false };
        let visits = &problem.items[at].visits;
        let next = visits.partition_point(|visit| (visit.step as usize) < step);
        let used = visits.get(next).is_some_and(|visit| visit.step as usize == step);
        let state = if used { path.uses[next] } else { path.rests[next] };
        states.tier(state) == 0
    }
}

/// The tensors alive at each step.
fn alive(problem: &Problem) -> Vec<Vec<u32>> {
    let steps = problem.calls.len();
    let mut alive: Vec<Vec<u32>> = vec![Vec::new(); steps];
    for (at, item) in problem.items.iter().enumerate() {
        let (Some(first), Some(last)) = (item.visits.first(), item.visits.last()) else { continue };
        let first = if item.persistent || item.fed { 0 } else { first.step as usize };
        let last = if item.persistent { steps - 1 } else { last.step as usize };
        for list in &mut alive[first..=last] {
            list.push(at as u32);
        }
    }
    alive
}

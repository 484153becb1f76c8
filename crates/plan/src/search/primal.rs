//! Plans that fit: tensors are placed one after another, each on the cheapest path that the room left allows, and
//! then, again and again, a few of them are taken out and placed anew.
//!
//! What a place costs a tensor is what the kernels that use it would take with it there and everything else where it
//! is, so times that do not add up over operands are counted as they are.

use crate::bound::dual::{Dual, Guide, is_listed};
use crate::bound::paths::{Path, Prices, Scratch, States, cheapest, moving, stretches};
use crate::model::lanes::Lanes;
use crate::model::problem::{Call, Item, Problem};
use crate::search::headroom::Headroom;
use crate::search::overlap::Ground;
use crate::search::scope::Scope;

/// A plan under construction: a path for every tensor, and the room that is left.
#[derive(Clone, Debug)]
pub(crate) struct Primal {
    pub(crate) paths: Vec<Option<Path>>,
    /// For each kernel, its placement, and which of its operands have no place yet, as bits.
    placements: Vec<usize>,
    unplaced: Vec<u64>,
    /// For each tier with a limit, the bytes left at each step.
    pub(crate) left: Vec<Option<Headroom>>,
    /// What each tensor's moves cost, and the same with what tables do not list.
    moves: Vec<f64>,
    moving: Vec<f64>,
    /// What links have left beside kernels, where copies may overlap them.
    lanes: Option<Lanes>,
    /// What kernels and moves take together.
    pub(crate) cost: f64,
    scratch: Scratch,
}

/// The least time of a kernel with some operands, which `placement` has on the fastest tier, in any places.
fn least(call: &Call, placement: usize, free: u64, tiers: usize) -> f64 {
    if free == 0 || call.ordered {
        return call.times[placement];
    }
    let (scale, others) = (tiers.pow(free.trailing_zeros()), free & (free - 1));
    (0..tiers).map(|tier| least(call, placement + tier * scale, others, tiers)).fold(f64::INFINITY, f64::min)
}

/// Where a plan does not fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overflow {
    pub(crate) tier: usize,
    pub(crate) step: usize,
    pub(crate) bytes: f64,
}

/// What places cost a tensor, everything else being where it is.
struct Quote<'a> {
    primal: &'a Primal,
    problem: &'a Problem,
    item: &'a Item,
    at: usize,
    /// Prices that keep room for others, while not all are placed.
    guide: Option<&'a Guide<'a>>,
    /// The states that are open at each slot, where not all are.
    open: Option<&'a [u64]>,
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
        let placement = placement - here * scale + tier * scale;
        // Tensors without a place count as being where the kernel would like them best.
        let unplaced = self.primal.unplaced[step] & !(1 << visit.operand);
        least(&self.problem.calls[step], placement, unplaced, self.problem.tiers)
    }

    fn holding(&self, tier: usize, from: usize, to: usize) -> f64 {
        let Some(left) = &self.primal.left[tier] else { return 0.0 };
        let bytes = self.item.bytes as f64;
        if !left.fits(from, to, bytes) {
            return f64::INFINITY;
        }
        self.guide.map_or(0.0, |guide| guide.rent(self.at, tier, (from, to)))
    }

    fn allows(&self, slot: usize, state: usize) -> bool {
        self.open.is_none_or(|open| open[slot] & 1 << state != 0)
    }
}

impl Primal {
    /// Nothing placed, and room kept for where tensors must be in any plan.
    fn empty(problem: &Problem) -> Primal {
        let mut primal = Primal {
            paths: vec![None; problem.items.len()],
            placements: vec![0; problem.calls.len()],
            unplaced: problem.calls.iter().map(|call| (1 << call.items.len()) - 1).collect(),
            left: problem.room.iter().map(|room| room.clone().map(Headroom::new)).collect(),
            moves: vec![0.0; problem.items.len()],
            moving: vec![0.0; problem.items.len()],
            lanes: problem.lanes.clone(),
            cost: f64::INFINITY,
            scratch: Scratch::default(),
        };
        for item in &problem.items {
            primal.reserve(item, -1.0);
        }
        primal
    }

    /// Keeps room for a tensor without a place where it must be, or gives it back.
    fn reserve(&mut self, item: &Item, sign: f64) {
        for (tier, from, to) in &item.needs {
            if let Some(left) = &mut self.left[*tier] {
                left.add(*from, *to, sign * item.bytes as f64);
            }
        }
    }

    /// Places all tensors in an order, with prices to keep room for those that come later.
    pub(crate) fn build(
        problem: &Problem,
        states: &States,
        order: &[usize],
        guide: Option<&Guide<'_>>,
        scope: Option<&Scope>,
    ) -> Option<Primal> {
        let mut primal = Primal::empty(problem);
        for &at in order {
            if !primal.insert(problem, states, at, guide, scope) {
                return None;
            }
        }
        primal.total(problem);
        primal.cost.is_finite().then_some(primal)
    }

    /// The plan with these paths, or where it does not fit.
    pub(crate) fn of(problem: &Problem, states: &States, paths: Vec<Path>) -> Result<Primal, Vec<Overflow>> {
        let mut primal = Primal::empty(problem);
        for (at, path) in paths.into_iter().enumerate() {
            let moves = moving(states, &problem.items[at], &path);
            primal.put(problem, states, at, path, moves);
        }
        primal.total(problem);
        let mut overflows = Vec::new();
        for (tier, left) in primal.left.iter().enumerate() {
            let Some(left) = left else { continue };
            for step in (0..problem.calls.len()).filter(|step| left.at(*step) < 0.0) {
                overflows.push(Overflow { tier, step, bytes: -left.at(step) });
            }
        }
        if overflows.is_empty() { Ok(primal) } else { Err(overflows) }
    }

    /// Gives a tensor the cheapest path that fits; `false` where none does.
    fn insert(
        &mut self,
        problem: &Problem,
        states: &States,
        at: usize,
        guide: Option<&Guide<'_>>,
        scope: Option<&Scope>,
    ) -> bool {
        let item = &problem.items[at];
        self.reserve(item, 1.0);
        let (mut path, mut scratch) = (Path::default(), std::mem::take(&mut self.scratch));
        let quote =
            Quote { primal: self, problem, item, at, guide, open: scope.map(|scope| scope.slots(at)) };
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
        self.reserve(item, -1.0);
        if cost.is_finite() {
            self.put(problem, states, at, path, moves);
        }
        cost.is_finite()
    }

    /// The same places with copies that go by these links, as far as they have time.
    pub(crate) fn fly_anew(&mut self, problem: &Problem, states: &States, lanes: Lanes) {
        self.lanes = Some(lanes);
        let paths = std::mem::take(&mut self.paths);
        for path in paths.iter().flatten() {
            self.book(states, path, -1.0);
        }
        self.paths = paths;
        for at in 0..self.paths.len() {
            let flies = |path: &Path| path.flights.iter().flatten().any(|flight| flight.start < flight.done);
            if !self.paths[at].as_ref().is_some_and(flies) {
                continue;
            }
            let (item, Some(mut path)) = (&problem.items[at], self.take(problem, states, at)) else {
                continue;
            };
            self.reserve(item, 1.0);
            let Some(lanes) = &self.lanes else { return };
            let quote = Quote { primal: self, problem, item, at, guide: None, open: None };
            let moves =
                Ground { problem, states, lanes, left: &self.left, prices: &quote }.fly(item, &mut path);
            self.reserve(item, -1.0);
            self.put(problem, states, at, path, moves);
        }
        self.total(problem);
    }

    /// A plan near one that does not fit: tensors go elsewhere as long as there is too little room somewhere. `None`
    /// where one has nowhere to go.
    pub(crate) fn squeezed(
        problem: &Problem,
        states: &States,
        calendar: &Calendar,
        paths: &[Path],
        random: &mut fastrand::Rng,
    ) -> Option<Primal> {
        let mut primal = Primal::empty(problem);
        for (at, path) in paths.iter().enumerate() {
            primal.put(problem, states, at, path.clone(), 0.0);
        }
        let mut homeless = Vec::new();
        let mut step = 0;
        while step < problem.calls.len() {
            let short = -primal.left[0].as_ref()?.at(step);
            if short <= 0.5 {
                step += 1;
                continue;
            }
            let there = calendar.alive(step, random).filter(|at| primal.is_fast(problem, states, *at, step));
            // The smallest that is large enough, or else the largest.
            let fitness = |at: &usize| {
                let bytes = problem.items[*at].bytes as f64;
                (bytes < short, if bytes < short { -bytes } else { bytes })
            };
            let way = there.min_by(|a, b| fitness(a).partial_cmp(&fitness(b)).expect("bytes are numbers"))?;
            primal.take(problem, states, way);
            if !primal.insert(problem, states, way, None, None) {
                homeless.push(way);
            }
        }
        let lanes = problem.lanes.clone()?;
        let housed = homeless.iter().all(|at| primal.insert(problem, states, *at, None, None));
        primal.fly_anew(problem, states, lanes);
        (housed && primal.cost.is_finite()).then_some(primal)
    }

    /// Gives a tensor a path, the moves of which cost so much.
    fn put(&mut self, problem: &Problem, states: &States, at: usize, path: Path, moves: f64) {
        let item = &problem.items[at];
        self.reserve(item, 1.0);
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
        self.reserve(item, -1.0);
        self.book(states, &path, 1.0);
        self.moving[at] = 0.0;
        for visit in item.visits.iter().filter(|visit| is_listed(problem, visit)) {
            self.set(problem, visit.step as usize, usize::from(visit.operand), 0);
            self.unplaced[visit.step as usize] |= 1 << visit.operand;
        }
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
                left.add(from, to, bytes);
            }
        });
    }

    fn set(&mut self, problem: &Problem, step: usize, operand: usize, tier: usize) {
        let scale = problem.tiers.pow(operand as u32);
        let here = problem.digit(self.placements[step], operand);
        self.placements[step] = self.placements[step] - here * scale + tier * scale;
        self.unplaced[step] &= !(1 << operand);
    }

    /// What each kernel takes.
    pub(crate) fn times(&self, problem: &Problem) -> Vec<f64> {
        let calls = problem.calls.iter().zip(&self.placements);
        calls.map(|(call, placement)| call.times[*placement]).collect()
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

/// The tensors in the order of what their places are worth to kernels, by the byte.
pub(crate) fn by_worth(problem: &Problem, dual: &Dual) -> Vec<usize> {
    let weight = |at: usize| -> f64 {
        let item = &problem.items[at];
        let stake: f64 =
            item.visits.iter().map(|v| dual.best.places[v.step as usize].iter().sum::<f64>()).sum();
        stake / item.bytes as f64
    };
    let mut order: Vec<(f64, usize)> = (0..problem.items.len()).map(|at| (weight(at), at)).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0));
    order.into_iter().map(|(_, at)| at).collect()
}

/// Builds plans in several orders and keeps the best; when time is over, the best so far.
pub(crate) fn construct(
    problem: &Problem,
    states: &States,
    dual: &Dual,
    over: &dyn Fn() -> bool,
) -> Option<Primal> {
    let span = |at: usize| -> u32 {
        let visits = &problem.items[at].visits;
        visits.last().map_or(0, |v| v.step) - visits.first().map_or(0, |v| v.step)
    };
    let all: Vec<usize> = (0..problem.items.len()).collect();
    let by_worth = by_worth(problem, dual);
    let mut by_span = all.clone();
    by_span.sort_by_key(|at| span(*at));
    let mut by_size = all.clone();
    by_size.sort_by_key(|at| std::cmp::Reverse(problem.items[*at].bytes));
    let orders = [by_worth, all, by_span, by_size];
    let mut best: Option<Primal> = None;
    let guide = dual.guide();
    // Prices hardly ever lead to worse plans than none, but they may lead nowhere.
    for guide in [Some(&guide), None] {
        if best.is_some() {
            break;
        }
        for order in &orders {
            if best.is_some() && over() {
                return best;
            }
            let plan = Primal::build(problem, states, order, guide, None);
            let better = |plan: &Primal| best.as_ref().is_none_or(|best| plan.cost < best.cost);
            if plan.as_ref().is_some_and(better) {
                best = plan;
            }
        }
    }
    best
}

/// Takes a tensor that would like another place out, with some of those that are in its way, and places it first and
/// them after it, as long as `more` says. A change that costs nothing is kept too, so that the search does not stay
/// on one spot.
pub(crate) fn improve(
    problem: &Problem,
    states: &States,
    calendar: &Calendar,
    primal: &mut Primal,
    random: &mut fastrand::Rng,
    mut more: impl FnMut(&Primal) -> bool,
) {
    let mut seen = vec![0; problem.calls.len()];
    let mut mark = 0;
    let mut wishes = Wishes::default();
    while more(primal) {
        let Some(lead) = wishes.one(problem, states, primal, random) else { break };
        let some = primal.rivals(problem, states, calendar, lead, random);
        mark += 1;
        let before = primal.share(problem, &some, &mut seen, mark);
        let swap = primal.swap(problem, states, some, random);
        mark += 1;
        let after =
            if swap.whole { primal.share(problem, &swap.some, &mut seen, mark) } else { f64::INFINITY };
        if after <= before {
            primal.cost += after - before;
        } else {
            primal.undo(problem, states, swap);
        }
    }
    primal.total(problem);
}

/// The same with a judge that looks at whole plans.
pub(crate) fn refine(
    problem: &Problem,
    states: &States,
    calendar: &Calendar,
    primal: &mut Primal,
    random: &mut fastrand::Rng,
    mut judge: impl FnMut(&mut Primal) -> f64,
    mut more: impl FnMut() -> Option<f64>,
) {
    let mut wishes = Wishes::default();
    let mut least = judge(primal);
    while let Some(lenience) = more() {
        let Some(lead) = wishes.one(problem, states, primal, random) else { break };
        let some = primal.rivals(problem, states, calendar, lead, random);
        let swap = primal.swap(problem, states, some, random);
        let time = if swap.whole { judge(primal) } else { f64::INFINITY };
        if time <= least * (1.0 + lenience) {
            least = time;
        } else {
            primal.undo(problem, states, swap);
        }
    }
    primal.total(problem);
}

/// The tensors that would like another place, looked for anew when each has had its turn, as it were.
#[derive(Default)]
struct Wishes {
    all: Vec<usize>,
    turns: usize,
}

impl Wishes {
    fn one(
        &mut self,
        problem: &Problem,
        states: &States,
        primal: &Primal,
        random: &mut fastrand::Rng,
    ) -> Option<usize> {
        if self.turns == 0 {
            self.all = (0..problem.items.len()).filter(|at| primal.wishes(states, *at)).collect();
            self.turns = self.all.len().max(1);
        }
        self.turns -= 1;
        random.choice(&self.all).copied()
    }
}

/// Tensors that were taken out and placed anew.
struct Swap {
    some: Vec<usize>,
    /// Their paths before, and what the moves of these cost.
    old: Vec<Option<Path>>,
    moves: Vec<f64>,
    /// The order in which they were placed.
    order: Vec<usize>,
    /// How many could be.
    placed: usize,
    whole: bool,
}

impl Primal {
    /// Takes tensors out and places them anew, the first one first.
    fn swap(
        &mut self,
        problem: &Problem,
        states: &States,
        some: Vec<usize>,
        random: &mut fastrand::Rng,
    ) -> Swap {
        let moves = some.iter().map(|at| self.moves[*at]).collect();
        let old = some.iter().map(|at| self.take(problem, states, *at)).collect();
        let mut order: Vec<usize> = some.clone();
        random.shuffle(&mut order[1..]);
        let placed = order.iter().take_while(|at| self.insert(problem, states, **at, None, None)).count();
        let whole = placed == order.len();
        Swap { some, old, moves, order, placed, whole }
    }

    fn undo(&mut self, problem: &Problem, states: &States, swap: Swap) {
        for at in &swap.order[..swap.placed] {
            self.take(problem, states, *at);
        }
        for ((at, path), moves) in swap.some.iter().zip(swap.old).zip(swap.moves) {
            if let Some(path) = path {
                self.put(problem, states, *at, path, moves);
            }
        }
    }

    /// Sets what a nanosecond of copying costs from now on.
    pub(crate) fn toll(&mut self, toll: f64) {
        if let Some(lanes) = &mut self.lanes {
            lanes.toll(toll);
        }
    }
}

impl Primal {
    /// Whether a tensor is not always on the fastest tier, or moves.
    fn wishes(&self, states: &States, at: usize) -> bool {
        let slow = |state: &u8| states.tier(*state) > 0;
        self.moving[at] > 0.0 || self.paths[at].as_ref().is_some_and(|path| path.uses.iter().any(slow))
    }

    /// A tensor, and some of those that take the room that it would need: at one step between two of its uses, or at
    /// all of them.
    fn rivals(
        &self,
        problem: &Problem,
        states: &States,
        calendar: &Calendar,
        lead: usize,
        random: &mut fastrand::Rng,
    ) -> Vec<usize> {
        let item = &problem.items[lead];
        let visit = item.visits[random.usize(0..item.visits.len())].step as usize;
        let next = item.visits[random.usize(0..item.visits.len())].step as usize;
        let (mut from, mut to) = (visit.min(next), visit.max(next) + 1);
        if to - from > LONGEST || random.bool() {
            from = random.usize(from..to);
            to = from + 1;
        }
        let mut some = vec![lead];
        let Some(left) = &self.left[0] else { return some };
        let (mut free, wanted) = (left.stretch(from, to), item.bytes as f64);
        while some.len() <= MOST_RIVALS {
            let tightest = free.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
            let Some((offset, room)) = tightest else { break };
            // Now and then one more than would have to go.
            if *room >= wanted && random.u8(0..3) > 0 {
                break;
            }
            let step = from + offset;
            let several = random.usize(1..=6);
            let others = calendar.alive(step, random);
            let fast = others.filter(|at| !some.contains(at) && self.is_fast(problem, states, *at, step));
            // One that gives all the room that is missing, if it is among the first.
            let missing = wanted - room;
            let gives = |at: &usize| (problem.items[*at].bytes as f64).min(missing) as u64;
            let Some(rival) = fast.take(several).max_by_key(gives) else { break };
            if let Some(path) = &self.paths[rival] {
                let (rival, steps) = (&problem.items[rival], problem.calls.len());
                stretches(states, rival, path, steps, |tier, a, b| {
                    if tier == 0 && a < to && b > from {
                        let freed = &mut free[a.max(from) - from..b.min(to) - from];
                        freed.iter_mut().for_each(|bytes| *bytes += rival.bytes as f64);
                    }
                });
            }
            some.push(rival);
        }
        self.hopefuls(problem, states, calendar, &mut some, random);
        some
    }

    /// Adds tensors that could take the room that others give up.
    fn hopefuls(
        &self,
        problem: &Problem,
        states: &States,
        calendar: &Calendar,
        some: &mut Vec<usize>,
        random: &mut fastrand::Rng,
    ) {
        for _ in 0..random.usize(0..4) {
            let rival = &problem.items[some[random.usize(0..some.len())]];
            let Some(visit) = random.choice(&rival.visits) else { return };
            let step = visit.step as usize;
            let hopeful = calendar.alive(step, random).next();
            some.extend(hopeful.filter(|at| self.wishes(states, *at) && !some.contains(at)));
        }
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

/// The most tensors that make way for one, and the longest way that is cleared.
const MOST_RIVALS: usize = 8;
const LONGEST: usize = 4096;

/// Which tensors are alive when.
pub(crate) struct Calendar {
    /// For each tensor, its first step and the one after its last.
    lives: Vec<(u32, u32)>,
    /// For each stretch of so many steps, the tensors that are alive at one of them.
    block: usize,
    lists: Vec<Vec<u32>>,
}

/// Stretches that a calendar has at the most: a list for every step would take too much of a long trace.
const STRETCHES: usize = 512;

impl Calendar {
    pub(crate) fn new(problem: &Problem) -> Calendar {
        let steps = problem.calls.len();
        let life = |item: &Item| {
            let (Some(first), Some(last)) = (item.visits.first(), item.visits.last()) else { return (0, 0) };
            let first = if item.persistent || item.fed { 0 } else { first.step };
            (first, if item.persistent { steps as u32 } else { last.step + 1 })
        };
        let lives: Vec<(u32, u32)> = problem.items.iter().map(life).collect();
        let block = steps.div_ceil(STRETCHES).max(1);
        let mut lists = vec![Vec::new(); steps.div_ceil(block)];
        for (at, (first, end)) in lives.iter().enumerate().filter(|(_, (first, end))| first < end) {
            let stretches = *first as usize / block..=(*end as usize - 1) / block;
            lists[stretches].iter_mut().for_each(|list: &mut Vec<u32>| list.push(at as u32));
        }
        Calendar { lives, block, lists }
    }

    /// The tensors alive at a step, beginning anywhere.
    fn alive(&self, step: usize, random: &mut fastrand::Rng) -> impl Iterator<Item = usize> {
        let list = &self.lists[step / self.block];
        let start = random.usize(0..list.len().max(1));
        let all = list[start..].iter().chain(&list[..start]).map(|at| *at as usize);
        all.filter(move |at| (self.lives[*at].0 as usize..self.lives[*at].1 as usize).contains(&step))
    }
}

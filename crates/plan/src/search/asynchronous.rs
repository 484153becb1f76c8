//! The search for plans whose copies overlap kernels (AutoTM section 7, without its limit of one kernel).
//!
//! Construction and local search are those of the other formulations, on paths that know the links (`overlap.rs`). The
//! bound comes from a relaxation: an iteration takes no less than its kernels with the time that copies take from them, and no
//! less than the copies on any one link, hence no less than any mean of these. With kernel times and copy times weighted so
//! that the weights add up to one, the synchronous problem is the least such mean, and its bound holds here. What copies take
//! is cores: kernels want all of them, copies some, and nobody has more than there are.

use std::time::Instant;

use crate::bound::crossing;
use crate::bound::dual::{Dual, Figures};
use crate::bound::paths::{Path, States};
use crate::model::problem::Problem;
use crate::search::primal::{Calendar, Primal, construct, refine};
use crate::search::scope::Scope;
use crate::search::sequence::{Played, play, sequence};
use crate::search::solve::{Effort, Solution, near};
use crate::search::warm::{Lesson, TIE};

/// Weights of the kernels' time with what copies take from it, of copies towards slower tiers, and of copies towards faster
/// ones. Where copies take nothing, the first set would let them cost nothing at all.
const WEIGHTS: [(f64, f64, f64); 7] = [
    (1.0, 0.0, 0.0),
    (0.9, 0.1, 0.0),
    (0.75, 0.25, 0.0),
    (0.5, 0.5, 0.0),
    (0.9, 0.0, 0.1),
    (0.6, 0.25, 0.15),
    (0.5, 0.0, 0.5),
];

/// In place of the first of these where an engine copies.
const FREE: (f64, f64, f64) = (0.96, 0.02, 0.02);

/// Rounds of better prices, for each of these.
const ROUNDS: usize = 40;
/// Rounds that may bring next to nothing before the plan is taken as it is.
const PATIENCE: usize = 4;
/// The share of its time that a plan should have lost in these rounds.
const WORTH: f64 = 5e-4;
/// Changes that a round tries, with many tensors fewer: each takes longer.
const TRIES: (usize, usize) = (300, 2000);
const EFFORT: usize = 1_000_000;
/// Rounds of a search that is taken up again.
const RESUMED: u32 = 1;
/// How much longer an iteration may take so that copies fit beside kernels.
const PACES: [f64; 7] = [1.04, 1.12, 1.3, 1.7, 2.3, 3.2, 4.5];
/// How much worse than the last a plan may be at the start of a round, as a share of its time; less and less later.
const LENIENCE: f64 = 3e-3;
/// What a nanosecond of copying may cost beside the time that it takes from kernels: any of these, at random.
const TOLLS: [f64; 5] = [0.0, 0.0, 0.2, 0.5, 1.0];
/// How often the waits of a plan are given to links and a plan made anew.
const FEEDBACK: usize = 6;

/// Searches until the gap is met, the time is over, or the plan hardly improves any more.
pub(crate) fn solve(problem: &Problem, effort: &Effort, lesson: Option<&Lesson>) -> Option<Solution> {
    let started = Instant::now();
    let states = States::new(problem);
    let over = || started.elapsed() >= effort.time;
    let (duals, prices, bound) = relax(problem, started, effort, lesson);
    let known = lesson.and_then(|lesson| again(problem, &states, lesson, effort));
    let fresh = first(problem, &states, &duals, &over).into_iter().min_by(Attempt::compare);
    // What is known was found for another amount of memory: it has to be better, not as good.
    let known =
        known.filter(|known| fresh.as_ref().is_none_or(|fresh| known.time < fresh.time * (1.0 - TIE)));
    let mut best = known.or(fresh)?;
    let done = |best: &Attempt| near(bound, best.time, effort) || over();
    if !done(&best) {
        best = pace(problem, &states, &duals[0], best, &done);
    }
    best = search(problem, &states, best, effort, &done);
    let lesson = Lesson::new(problem, prices, &best.plan);
    Some(Solution { lesson, ..best.finish(problem, &states, bound, effort, started) })
}

/// The plan that was best with another amount of memory, as far as it fits.
fn again(problem: &Problem, states: &States, lesson: &Lesson, effort: &Effort) -> Option<Attempt> {
    squeezed(problem, states, &lesson.paths(problem)?, effort)
}

/// A plan that follows these paths as far as they fit.
fn squeezed(problem: &Problem, states: &States, paths: &[Path], effort: &Effort) -> Option<Attempt> {
    let mut random = fastrand::Rng::with_seed(effort.seed);
    let plan = Primal::squeezed(problem, states, &Calendar::new(problem), paths, &mut random)?;
    Some(Attempt::new(problem, problem.clone(), states, plan))
}

/// Takes up a search where there is less memory than before: what does not fit any more goes elsewhere.
pub(crate) fn resume(problem: &Problem, old: &Solution, effort: &Effort) -> Option<Solution> {
    let started = Instant::now();
    let states = States::new(problem);
    let paths = old.hasty.as_ref().map_or(&old.paths, |(paths, _)| paths);
    let best = squeezed(problem, &states, paths, effort)?;
    let done = |best: &Attempt| near(old.bound, best.time, effort) || started.elapsed() >= effort.time;
    let effort = &Effort { rounds: effort.rounds.min(RESUMED), ..*effort };
    let best = search(problem, &states, best, effort, &done);
    Some(best.finish(problem, &states, old.bound, effort, started))
}

/// Takes tensors out and places them anew, round by round, as long as that helps.
fn search(
    problem: &Problem,
    states: &States,
    mut best: Attempt,
    effort: &Effort,
    done: &dyn Fn(&Attempt) -> bool,
) -> Attempt {
    let calendar = Calendar::new(problem);
    let mut random = fastrand::Rng::with_seed(effort.seed);
    let (mut current, mut times) = (best.clone(), vec![best.time]);
    let most = (EFFORT / problem.items.len().max(1)).clamp(TRIES.0, TRIES.1);
    while !done(&best) && times.len() as u32 <= effort.rounds {
        let mut tries = 0;
        let mut tolls = fastrand::Rng::with_seed(random.u64(..));
        let judge = |plan: &mut Primal| {
            plan.toll(*tolls.choice(TOLLS.iter()).expect("there are some"));
            play(problem, states, plan).time
        };
        let lenience = || {
            tries += 1;
            let left = most.saturating_sub(tries) as f64 / most as f64;
            (tries < most && (tries % 64 != 0 || !done(&best))).then_some(LENIENCE * left * left)
        };
        refine(&current.slower, states, &calendar, &mut current.plan, &mut random, judge, lenience);
        current = Attempt::new(problem, current.slower, states, current.plan);
        if current.time < best.time {
            best = current.clone();
        }
        current.wait(problem, states);
        times.push(best.time);
        let rounds = times.len();
        if rounds > PATIENCE && times[rounds - 1 - PATIENCE] - best.time < WORTH * best.time {
            break;
        }
    }
    best
}

/// A plan, and how an iteration goes with it.
#[derive(Clone)]
struct Attempt {
    /// What was planned for: links may have more time than beside kernels alone, and tolls.
    slower: Problem,
    plan: Primal,
    time: f64,
    /// How long each kernel waits.
    waits: Vec<f64>,
}

impl Attempt {
    fn new(problem: &Problem, slower: Problem, states: &States, plan: Primal) -> Attempt {
        let mut slack = plan.clone();
        sequence(problem, states, &mut slack);
        let Played { time, waits } = play(problem, states, &slack);
        Attempt { slower, plan, time, waits }
    }

    fn compare(a: &Attempt, b: &Attempt) -> std::cmp::Ordering {
        a.time.total_cmp(&b.time)
    }

    /// The plan as it goes to those who play it.
    fn finish(
        self,
        problem: &Problem,
        states: &States,
        bound: f64,
        effort: &Effort,
        started: Instant,
    ) -> Solution {
        let Attempt { mut plan, time, .. } = self;
        let hasty = play(problem, states, &plan).time;
        let hasty = Some((plan.paths.iter().flatten().cloned().collect(), hasty.max(bound)));
        sequence(problem, states, &mut plan);
        debug_assert!(time >= bound * (1.0 - 1e-9), "a plan of {time} beats its bound of {bound}");
        let (cost, paths) = (time.max(bound), plan.paths.into_iter().flatten().collect());
        let met = near(bound, cost, effort);
        Solution { paths, hasty, lesson: Lesson::default(), cost, bound, time: started.elapsed(), met }
    }

    /// Where kernels wait, they wait whatever else is copied meanwhile: gives that time to the links.
    fn wait(&mut self, problem: &Problem, states: &States) {
        let Some(lanes) = &problem.lanes else { return };
        let lanes = lanes.waiting(&self.waits);
        self.slower.lanes = Some(lanes.clone());
        self.plan.fly_anew(&self.slower, states, lanes);
    }
}

/// The best of plans that go by prices, one for each set of them.
fn first(problem: &Problem, states: &States, duals: &[Dual], over: &dyn Fn() -> bool) -> Option<Attempt> {
    let mut best: Option<Attempt> = None;
    for dual in duals {
        let Some(plan) = construct(problem, states, dual, over) else { continue };
        let attempt = Attempt::new(problem, problem.clone(), states, plan);
        if best.as_ref().is_none_or(|best| attempt.time < best.time) {
            best = Some(attempt);
        }
        if over() {
            break;
        }
    }
    best
}

/// Where links are the bottleneck, kernels wait whatever the plan, and what is copied meanwhile costs nothing more. So
/// plans are made for slower iterations too: first for some that are slower throughout, then for those that wait just
/// where the best so far does.
fn pace(
    problem: &Problem,
    states: &States,
    dual: &Dual,
    mut best: Attempt,
    done: &dyn Fn(&Attempt) -> bool,
) -> Attempt {
    let Some(lanes) = &problem.lanes else { return best };
    let consider = |best: &mut Attempt, lanes| {
        let slower = Problem { lanes: Some(lanes), ..problem.clone() };
        let Some(plan) = construct(&slower, states, dual, &|| done(best)) else { return false };
        let attempt = Attempt::new(problem, slower, states, plan);
        let better = attempt.time < best.time * (1.0 - WORTH);
        if attempt.time < best.time {
            *best = attempt;
        }
        better
    };
    for times in PACES {
        consider(&mut best, lanes.slowed(times));
        if done(&best) {
            return best;
        }
    }
    for _ in 0..FEEDBACK {
        let waits = best.waits.clone();
        if !consider(&mut best, lanes.waiting(&waits)) || done(&best) {
            break;
        }
    }
    best
}

/// Prices of problems without overlap, the best bound's first; those of all, as they are kept for another amount of memory;
/// and the best bound.
fn relax(
    problem: &Problem,
    started: Instant,
    effort: &Effort,
    lesson: Option<&Lesson>,
) -> (Vec<Dual>, Vec<Figures>, f64) {
    let mut duals: Vec<Dual> = Vec::new();
    let mut prices = Vec::new();
    let mut bound = crossing::bound(problem);
    for (at, (kernels, out, back)) in WEIGHTS.into_iter().enumerate() {
        let priced = match problem.takes_cores() || kernels < 1.0 {
            true => problem.weighted(kernels, out, back),
            false => problem.weighted(FREE.0, FREE.1, FREE.2),
        };
        let states = States::new(&priced);
        let scope = Scope::root(&priced, &states);
        let known = lesson.and_then(|lesson| lesson.prices(at));
        let mut dual = Dual::warm(&priced, known);
        let over = || started.elapsed().saturating_mul(5) > effort.time;
        let upper = construct(&priced, &states, &dual, &over).map_or(f64::INFINITY, |plan| plan.cost);
        let rounds = if known.is_some() { ROUNDS / 2 } else { ROUNDS };
        dual.ascend(&priced, &states, &scope, upper, rounds, |_| over());
        bound = bound.max(dual.bound);
        prices.push(dual.best.clone());
        duals.push(dual);
        if over() {
            break;
        }
    }
    duals.sort_by(|a, b| b.bound.total_cmp(&a.bound));
    duals.truncate(3);
    (duals, prices, bound)
}

//! From one amount of memory to the next: what planning a trace once has taught.
//!
//! The curve of time against fast memory asks for plans that differ in nothing but the room. Prices that were good at one
//! point are a good start at the next, so are the ways that tensors took, and a plan for less memory is a plan for more:
//! a curve that is made from its low end up does not rise, but for less than a thousandth where much less has to move.

use std::collections::HashMap;

use tiercel_core::{Bytes, Machine, TierId};
use tiercel_workload::{TensorId, Trace};

use crate::bound::dual::Figures;
use crate::bound::paths::Path;
use crate::model::problem::{Item, Problem};
use crate::plan::offsets::Arranged;
use crate::plan::verify::verify;
use crate::search::primal::Primal;

/// Plans that differ by less than this are as fast as each other, and what was found for another amount of memory has no
/// advantage.
pub(crate) const TIE: f64 = 1e-3;

/// What plans for other amounts of fast memory have taught, all of one trace on one machine.
#[derive(Clone, Debug, Default)]
pub struct WarmStart {
    points: Vec<Point>,
}

#[derive(Clone, Debug)]
struct Point {
    fast: Bytes,
    arranged: Arranged,
    lesson: Lesson,
}

/// Prices and ways that one search ended with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lesson {
    /// Of each problem that was priced on the way.
    prices: Vec<Figures>,
    /// The tensors that operands were, kernel by kernel, in the order of the prices.
    operands: Vec<Vec<TensorId>>,
    ways: HashMap<TensorId, Path>,
}

impl WarmStart {
    /// Takes note of a plan for so much fast memory, and of what was learned.
    pub(crate) fn note(&mut self, fast: Bytes, arranged: &Arranged, lesson: Lesson) {
        self.points.retain(|point| point.fast != fast);
        self.points.push(Point { fast, arranged: arranged.clone(), lesson });
    }

    /// What was learned with the amount nearest to this one.
    pub(crate) fn lesson(&self, fast: Bytes) -> Option<&Lesson> {
        let nearest = self.points.iter().min_by_key(|point| point.fast.0.abs_diff(fast.0));
        nearest.map(|point| &point.lesson)
    }

    /// The best plan for less fast memory in which every tensor has its place, if it can be played here.
    pub(crate) fn less(&self, trace: &Trace, machine: &Machine) -> Option<&Arranged> {
        let fast = machine.tier(TierId(0)).capacity;
        let fits = |point: &&Point| {
            let arranged = &point.arranged;
            arranged.packed && point.fast <= fast && arranged.plan.implementations.is_empty()
        };
        let time = |point: &Point| point.arranged.plan.iteration_ns;
        let best = self.points.iter().filter(fits).min_by(|a, b| time(a).total_cmp(&time(b)))?;
        verify(&best.arranged.plan, trace, machine).is_ok().then_some(&best.arranged)
    }
}

impl Lesson {
    /// What a search ended with.
    pub(crate) fn new(problem: &Problem, prices: Vec<Figures>, plan: &Primal) -> Lesson {
        let tensor = |item: &u32| problem.items[*item as usize].tensor;
        let operands = problem.calls.iter().map(|call| call.items.iter().map(tensor).collect()).collect();
        let ways = problem.items.iter().zip(&plan.paths);
        let ways = ways.filter_map(|(item, path)| Some((item.tensor, path.clone()?))).collect();
        Lesson { prices, operands, ways }
    }

    /// The prices of one of the problems, and whose they are.
    pub(crate) fn prices(&self, at: usize) -> Option<(&Figures, &[Vec<TensorId>])> {
        Some((self.prices.get(at)?, &self.operands))
    }

    /// The ways of a problem's tensors, where all are known.
    pub(crate) fn paths(&self, problem: &Problem) -> Option<Vec<Path>> {
        let known = |item: &Item| {
            let path = self.ways.get(&item.tensor)?;
            (path.uses.len() == item.visits.len()).then(|| path.clone())
        };
        problem.items.iter().map(known).collect()
    }
}

//! Large blocks first, with an exact search of their own; then smaller ones among them, and so on.
//!
//! In the plans of networks a few sizes that divide each other hold nearly all bytes, and hundreds of small blocks hold the
//! rest. Whether they fit is decided by the large ones: they must lie so that gaps of the right size come up at the right
//! time, which no order of placing them one by one finds. A search over them alone is short; the small ones find room in
//! what is left.

use fastrand::Rng;

use super::clock::Clock;
use super::exact::Outcome;
use super::fit::{Fit, Gap};
use super::portfolio::Portfolio;
use super::problem::Problem;
use super::solve::orders;

/// The least sizes of the levels, as parts of the goal.
const LEVELS: [f64; 3] = [0.02, 0.005, 0.0];

/// Blocks up to which the last level, which has all that is left, is searched: a node of the search takes longer the more
/// there are, and among so many small ones it finds nothing that fitting them one by one does not.
const SEARCHED: usize = 1000;

/// Packs level by level below `goal`, with a search of so many nodes for each level. `None` where large blocks could not be
/// placed; what is returned may have small ones above the goal.
pub(super) fn pack(
    problem: &Problem,
    goal: u64,
    nodes: u64,
    rng: &mut Rng,
    clock: &Clock,
) -> Option<Vec<u64>> {
    let mut places: Vec<Option<u64>> = vec![None; problem.blocks.len()];
    for level in LEVELS {
        let large = |k: &u32| {
            let k = *k as usize;
            places[k].is_none() && problem.blocks[k].size as f64 >= level * goal as f64
        };
        let some: Vec<u32> = (0..problem.blocks.len() as u32).filter(large).collect();
        let part = problem.part(&some, |k| places[k as usize]);
        let found = fitted(&part, goal).or_else(|| {
            if level == 0.0 && some.len() > SEARCHED {
                return None;
            }
            let mut search = Portfolio::new(&part, goal, 1);
            (search.run(nodes, rng, clock) == Outcome::Solved).then(|| search.offsets())
        });
        let found = match found {
            Some(found) => found,
            None if level > 0.0 => return None,
            None => Fit::new(&part).pack(&orders(&part)[1], Gap::Tightest),
        };
        some.iter().zip(found).for_each(|(k, offset)| places[*k as usize] = Some(offset));
    }
    places.into_iter().collect()
}

/// A packing below the goal that takes no search, if there is one.
fn fitted(part: &Problem, goal: u64) -> Option<Vec<u64>> {
    let mut fit = Fit::new(part);
    let orders = orders(part);
    let each = orders.iter().flat_map(|order| [(order, Gap::Lowest), (order, Gap::Tightest)]);
    each.map(|(order, gap)| fit.pack(order, gap)).find(|offsets| part.peak(offsets) <= goal)
}

//! Brings a packing down below a target: lift a few blocks out around one that reaches too high, and place them anew.
//!
//! A large neighbourhood search (Shaw 1998). The few blocks are packed by the exact search among all others, which stay
//! as obstacles; so a packing that is too large for one exact search is mended in many small ones.

use fastrand::Rng;

use super::clock::Clock;
use super::exact::Outcome;
use super::portfolio::Portfolio;
use super::problem::Problem;

/// The fewest and the most blocks that are lifted out at once.
const LIFTED: (usize, usize) = (12, 96);
const NODES: u64 = 1500;

/// Moves blocks until all end at `target` or below; gives up after `patience` attempts that changed nothing, one after
/// the other. Whether it came there.
pub(super) fn repair(
    problem: &Problem,
    offsets: &mut [u64],
    target: u64,
    patience: usize,
    rng: &mut Rng,
    clock: &Clock,
) -> bool {
    let mut failures = 0;
    loop {
        let high: Vec<u32> =
            (0..problem.blocks.len() as u32).filter(|k| problem.end(*k, offsets) > target).collect();
        if high.is_empty() {
            return true;
        }
        if failures >= patience || clock.over() {
            return false;
        }
        let worst = high[rng.usize(0..high.len())];
        let most = LIFTED.0 + (LIFTED.1 - LIFTED.0) * failures / patience.max(1);
        let lifted = lift(problem, offsets, target, worst, most, rng);
        let mut moving = vec![false; problem.blocks.len()];
        lifted.iter().for_each(|k| moving[*k as usize] = true);
        let part = problem.part(&lifted, |k| (!moving[k as usize]).then(|| offsets[k as usize]));
        let mut search = Portfolio::new(&part, target, 1);
        if search.run(NODES, rng, clock) == Outcome::Solved {
            lifted.iter().zip(search.offsets()).for_each(|(k, offset)| offsets[*k as usize] = offset);
            failures = 0;
        } else {
            failures += 1;
        }
    }
}

/// Blocks to lift out: the worst one, others that reach too high beside it, and some that are in its way: those that
/// live little longer than it does are moved most easily.
fn lift(problem: &Problem, offsets: &[u64], target: u64, worst: u32, most: usize, rng: &mut Rng) -> Vec<u32> {
    let block = &problem.blocks[worst as usize];
    let random = rng.u8(0..3) == 0;
    let mut near: Vec<(f64, u32)> = (0..problem.blocks.len() as u32)
        .filter(|k| *k != worst && problem.blocks[*k as usize].meets(block))
        .map(|k| {
            let other = &problem.blocks[k as usize];
            let before = block.from.saturating_sub(other.from);
            let after = other.to.saturating_sub(block.to);
            let too_high = problem.end(k, offsets) > target;
            let trouble = match (too_high, random) {
                (true, _) => 0.0,
                (false, true) => 1.0,
                (false, false) => f64::from(before + after + 1),
            };
            (trouble * (0.25 + rng.f64()), k)
        })
        .collect();
    if near.len() > most {
        near.select_nth_unstable_by(most, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        near.truncate(most);
    }
    near.into_iter().map(|(_, k)| k).chain([worst]).collect()
}

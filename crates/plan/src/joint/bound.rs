//! What no plan that keeps, moves and computes again takes less than.
//!
//! At any one step all that is alive has to be in fast memory, on the slow tier, or to be made again. So of what does not
//! fit, each byte either crosses the link in this iteration, of which the link carries no more than its speed allows in
//! the iteration's own time, or costs its share of the kernels that wrote it: a knapsack with fractions, at the steps where
//! most is alive.

use super::base::{Base, NONE};
use super::search::Allowed;

/// How many steps are looked at.
const STEPS: usize = 24;

/// The bound, in nanoseconds.
pub(crate) fn bound(base: &Base, allowed: Allowed) -> f64 {
    let steps = base.calls.len();
    let mut delta = vec![0_i64; steps + 1];
    for item in &base.items {
        let (Some(first), Some(last)) = (item.uses.first(), item.uses.last()) else {
            if item.persistent {
                delta[0] += item.bytes as i64;
            }
            continue;
        };
        delta[if item.given { 0 } else { *first as usize }] += item.bytes as i64;
        delta[if item.persistent { steps } else { *last as usize + 1 }] -= item.bytes as i64;
    }
    let mut now = 0;
    let mut live: Vec<(i64, usize)> = Vec::with_capacity(steps);
    for (step, change) in delta[..steps].iter().enumerate() {
        now += change;
        live.push((now, step));
    }
    live.sort_unstable_by(|a, b| b.cmp(a));
    // Steps apart from each other, those with the most alive first.
    let apart = (steps / STEPS).max(1);
    let mut looked: Vec<usize> = Vec::new();
    for (bytes, step) in live {
        if bytes <= base.limit as i64 || looked.len() == STEPS {
            break;
        }
        if looked.iter().all(|other| other.abs_diff(step) >= apart) {
            looked.push(step);
        }
    }
    looked.into_iter().map(|step| at(base, allowed, step)).fold(base.floor, f64::max)
}

/// The bound by what is alive at one step.
fn at(base: &Base, allowed: Allowed, step: usize) -> f64 {
    let (mut alive, mut offers) = (0_u64, Vec::new());
    for item in &base.items {
        let begins = if item.given { Some(0) } else { item.uses.first().copied() };
        let ends = if item.persistent { Some(base.calls.len() as u32) } else { item.uses.last().copied() };
        let (Some(begins), Some(ends)) = (begins, ends) else { continue };
        if begins as usize > step || (ends as usize) < step {
            continue;
        }
        alive += item.bytes;
        let used = item.uses.partition_point(|use_| (*use_ as usize) < step);
        if item.uses.get(used).is_some_and(|use_| *use_ as usize == step) {
            continue;
        }
        // A tensor that is too small to be a decision is made again for nothing, so that the bound holds for all.
        let gap = match used.checked_sub(1) {
            Some(before) => item.gaps[before],
            None => *item.gaps.last().unwrap_or(&NONE),
        };
        let gap = base.gaps.get(gap as usize);
        let small = gap.is_none();
        let price = if small {
            Some(0.0)
        } else if allowed.again && gap.is_some_and(|gap| gap.again) {
            let writers = item.writers.iter().take_while(|w| (**w as usize) < step);
            Some(
                writers
                    .map(|w| {
                        let call = &base.calls[*w as usize];
                        let all: u64 = call.writes.iter().map(|(t, _)| base.items[*t as usize].bytes).sum();
                        call.time * item.bytes as f64 / all.max(1) as f64
                    })
                    .sum::<f64>(),
            )
        } else {
            None
        };
        offers.push((item.bytes, price, small));
    }
    let above = alive.saturating_sub(base.limit) as f64;
    if above <= 0.0 {
        return base.floor;
    }
    let per =
        |(bytes, price, _): &(u64, Option<f64>, bool)| price.map_or(f64::INFINITY, |p| p / *bytes as f64);
    offers.sort_by(|a, b| per(a).total_cmp(&per(b)));
    let made: f64 = offers.iter().filter(|o| o.1.is_some()).map(|o| o.0 as f64).sum();
    // With so many bytes moved, the cheapest of the others are made again.
    let again = |moved: f64| -> Option<f64> {
        let mut left = above - moved;
        let mut cost = 0.0;
        for (bytes, price, _) in &offers {
            if left <= 0.0 {
                break;
            }
            let taken = left.min(*bytes as f64);
            cost += (*price)? * taken / *bytes as f64;
            left -= taken;
        }
        (left <= 1.0).then_some(cost)
    };
    let speed = if allowed.moves { 1.0 / base.link.least() } else { 0.0 };
    let (mut low, mut high) = (base.floor, base.floor + above / speed.max(1e-9) + 1.0);
    if speed == 0.0 {
        return if made >= above { base.floor + again(0.0).unwrap_or(0.0) } else { base.floor };
    }
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        let enough = again(middle * speed).is_some_and(|cost| base.floor + cost <= middle);
        if enough { high = middle } else { low = middle }
    }
    low
}

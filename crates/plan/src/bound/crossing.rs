//! A bound by what is alive in the middle: at any step, what was made before it and is used after it fills fast memory,
//! and the rest has been brought away by then and has to come back.
//!
//! Bringing away takes a copy, and all copies of the first part of the iteration together take no more than its time; or
//! the kernel that makes the tensor writes it to slow memory, and takes longer. The same holds for the way back. So the
//! two parts take at least what the cheapest mixture of both takes, and the iteration at least the sum of the parts.
//! The bound of AutoTM's problem without overlap knows no order in time and misses that.

use crate::model::problem::{Item, Problem, Visit};

/// The share of a tensor's bytes that crosses, and what a kernel that works on it in slow memory takes longer, by the byte.
struct Direct {
    bytes: f64,
    price: f64,
}

/// No plan with copies beside kernels takes less than this.
pub(crate) fn bound(problem: &Problem) -> f64 {
    let least: Vec<f64> = problem.calls.iter().map(|call| call.times[call.fastest()]).collect();
    let all: f64 = least.iter().sum();
    let Some(room) = &problem.bound_room[0] else { return all };
    let away = rate(problem, |tier| (0, tier));
    let back = rate(problem, |tier| (tier, 0));
    let mut alive = vec![0.0; least.len()];
    for item in &problem.items {
        if let Some((first, last)) = span(item) {
            alive[first..last].iter_mut().for_each(|bytes| *bytes += item.bytes as f64);
        }
    }
    let price = |visit: &Visit| slow(problem, visit, &least);
    let prices: Vec<Vec<f64>> =
        problem.items.iter().map(|item| item.visits.iter().map(price).collect()).collect();
    let mut best = all;
    let mut before = 0.0;
    for (step, time) in least.iter().enumerate() {
        before += time;
        let leaves = alive[step] - room[step];
        let hope = before.max(leaves / away) + (all - before).max(leaves / back);
        if leaves <= 0.0 || hope <= best {
            continue;
        }
        let (mut made, mut used) = (Vec::new(), Vec::new());
        for (item, prices) in problem.items.iter().zip(&prices) {
            if span(item).is_some_and(|(first, last)| (first..last).contains(&step)) {
                let bytes = item.bytes as f64;
                let (past, coming) =
                    prices.split_at(item.visits.partition_point(|v| v.step as usize <= step));
                let price = |prices: &[f64]| prices.iter().copied().fold(f64::INFINITY, f64::min) / bytes;
                made.push(Direct { bytes, price: price(past) });
                used.push(Direct { bytes, price: price(coming) });
            }
        }
        let first = part(before, leaves, away, made);
        let second = part(all - before, leaves, back, used);
        best = best.max(first + second);
    }
    best
}

/// From the step that makes a tensor to the last that uses it; none where it is there from the start.
fn span(item: &Item) -> Option<(usize, usize)> {
    let (first, last) = (item.visits.first()?, item.visits.last()?);
    (!item.persistent && !item.fed).then_some((first.step as usize, last.step as usize))
}

/// Bytes a nanosecond over all links of one direction together.
fn rate(problem: &Problem, link: impl Fn(usize) -> (usize, usize)) -> f64 {
    let speeds = (1..problem.tiers).map(|tier| {
        let (from, to) = link(tier);
        1.0 / problem.copy[from][to]
    });
    speeds.sum()
}

/// What a kernel takes longer at the least with one operand in slow memory.
fn slow(problem: &Problem, visit: &Visit, least: &[f64]) -> f64 {
    let call = &problem.calls[visit.step as usize];
    if usize::from(visit.operand) >= call.items.len() {
        return (1..problem.tiers)
            .filter_map(|tier| problem.other(visit, tier))
            .fold(f64::INFINITY, f64::min)
            .max(0.0);
    }
    let away = call.times.iter().enumerate();
    let away = away.filter(|(placement, _)| problem.digit(*placement, usize::from(visit.operand)) > 0);
    away.map(|(_, time)| *time).fold(f64::INFINITY, f64::min) - least[visit.step as usize]
}

/// The least time of a part of the iteration in which so many bytes go by links or by kernels.
fn part(kernels: f64, bytes: f64, rate: f64, mut direct: Vec<Direct>) -> f64 {
    let (mut time, mut copied) = (kernels, bytes);
    direct.sort_by(|a, b| a.price.total_cmp(&b.price));
    for Direct { bytes, price } in direct {
        let late = copied / rate - time;
        if late <= 0.0 {
            break;
        }
        // So many bytes by kernels let both end together.
        let enough = late / (price + 1.0 / rate);
        let taken = enough.min(bytes);
        if !taken.is_finite() || !price.is_finite() {
            break;
        }
        time += taken * price;
        copied -= taken;
    }
    time.max(copied / rate)
}

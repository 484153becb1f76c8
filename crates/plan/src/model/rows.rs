//! What limits a tier: its bytes, and how many large tensors can be there at once.
//!
//! Prices on bytes let parts of tensors fill a tier to the last byte. Of tensors larger than a third of it, though, two
//! fit and no more, whatever is left over: of any tensors that fit together, at most `k` parts of more than one in
//! `k + 1` of the room can be cut. A tensor weighs as many such parts as it has, a limit of `k` holds for the sum of
//! weights, and prices on these limits prove what prices on bytes cannot. (The weights are dual feasible functions, known
//! from bin packing.) Where no tensor is that large the limits say nothing and are left out.

use crate::model::problem::Problem;
use crate::search::scope::stretch;

/// One limit on what is on a tier.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) tier: usize,
    /// What each tensor counts.
    pub(crate) weights: Vec<f64>,
    /// The most that all may count at any step; none for bytes, of which there may be more at some steps than at others.
    pub(crate) most: Option<f64>,
    /// What all tensors count that are alive, at each step.
    pub(crate) live: Vec<f64>,
}

/// The limits of a problem: for each tier its bytes, then those on large tensors.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    pub(crate) all: Vec<Row>,
    /// For each tier with a limit, its rows.
    pub(crate) of: Vec<Vec<usize>>,
}

/// The finest parts that are counted.
const FINEST: usize = 4;

impl Rows {
    pub(crate) fn new(problem: &Problem) -> Rows {
        let bytes: Vec<f64> = problem.items.iter().map(|item| item.bytes as f64).collect();
        let live = living(problem, &bytes);
        let plain = |tier: usize| Row { tier, weights: bytes.clone(), most: None, live: live.clone() };
        let mut all: Vec<Row> = (0..problem.tiers).map(plain).collect();
        for (tier, room) in problem.bound_room.iter().enumerate() {
            let Some(room) = room else { continue };
            let room = room.iter().copied().fold(0.0, f64::max);
            for most in 1..=FINEST {
                let weights: Vec<f64> = bytes.iter().map(|bytes| parts(*bytes, room, most)).collect();
                if weights.iter().all(|weight| *weight == 0.0) {
                    continue;
                }
                let (live, most) = (living(problem, &weights), most as f64);
                if live.iter().any(|live| *live > most) {
                    all.push(Row { tier, weights, most: Some(most), live });
                }
            }
        }
        let limited = |tier: usize| problem.bound_room[tier].is_some();
        let of = |tier: usize| (0..all.len()).filter(|row| all[*row].tier == tier && limited(tier)).collect();
        Rows { of: (0..problem.tiers).map(of).collect(), all }
    }
}

/// How many parts of more than one in `most + 1` of the room can be cut from so many bytes.
pub(crate) fn parts(bytes: f64, room: f64, most: usize) -> f64 {
    if bytes > room {
        // It cannot be there at all.
        return most as f64 + 1.0;
    }
    let part = (most as f64 + 1.0) * bytes;
    let whole = (part / room.max(1.0)).ceil() - 1.0;
    // A division that was rounded up must not count one too many.
    if whole * room >= part { (whole - 1.0).max(0.0) } else { whole.max(0.0) }
}

/// What all tensors weigh that are alive, at each step.
fn living(problem: &Problem, weights: &[f64]) -> Vec<f64> {
    let steps = problem.calls.len();
    let mut live = vec![0.0; steps + 1];
    for (item, weight) in problem.items.iter().zip(weights) {
        let last = 2 * item.visits.len();
        let (from, to) = (stretch(item, 0, steps).0, stretch(item, last, steps).1);
        if from < to {
            live[from] += weight;
            live[to] -= weight;
        }
    }
    let mut sum = 0.0;
    live.iter_mut().for_each(|x| {
        sum += *x;
        *x = sum;
    });
    live.truncate(steps);
    live
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn what_fits_never_weighs_too_much() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            let room = random.u64(1..200);
            let mut sizes = Vec::new();
            let mut left = room;
            while left > 0 && random.u8(0..5) > 0 {
                let size = random.u64(1..=left);
                sizes.push(size as f64);
                left -= size;
            }
            for most in 1..6 {
                let weight: f64 = sizes.iter().map(|size| parts(*size, room as f64, most)).sum();
                assert!(weight <= most as f64, "{sizes:?} fit {room} and weigh {weight} of {most}");
            }
        }
        assert_eq!([1, 2, 3].map(|most| parts(51.0, 100.0, most)), [1.0, 1.0, 2.0]);
        assert_eq!([1, 2, 3].map(|most| parts(50.0, 100.0, most)), [0.0, 1.0, 1.0]);
    }
}

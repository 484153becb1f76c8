//! Instances made from a seed: perfect packings, random lifetimes, and the lifetimes of training.

#![allow(dead_code)] // each test and benchmark takes what it needs

use std::collections::BinaryHeap;

use fastrand::Rng;

/// A lifetime and a size: lower, upper, size.
pub type Row = (u64, u64, u64);

/// Cuts a rectangle of `side` moments by `side` units of memory into at least `count` pieces by cuts from edge to
/// edge, and leaves a few pieces out. What is left fits into `side` units, and few other packings do.
pub fn guillotine(seed: u64, count: usize, side: u64) -> Vec<Row> {
    let mut rng = Rng::with_seed(seed);
    let upright = 0.4 + 0.2 * rng.f64();
    let by_area = rng.bool();
    let dropped = [0.0, 0.0, 0.02, 0.05, 0.1][rng.usize(0..5)];
    let mut pieces = vec![(0, side, 0, side)];
    let wanted = (count as f64 / (1.0 - dropped)).ceil() as usize;
    while pieces.len() < wanted {
        let mut at = rng.usize(0..pieces.len());
        if by_area {
            let area = |i: usize| (pieces[i].1 - pieces[i].0) * (pieces[i].3 - pieces[i].2);
            let other = rng.usize(0..pieces.len());
            if area(other) > area(at) {
                at = other;
            }
        }
        let (t0, t1, a0, a1) = pieces[at];
        if rng.f64() < upright {
            if t1 - t0 < 2 {
                continue;
            }
            let cut = rng.u64(t0 + 1..t1);
            pieces[at].1 = cut;
            pieces.push((cut, t1, a0, a1));
        } else {
            if a1 - a0 < 2 {
                continue;
            }
            let cut = rng.u64(a0 + 1..a1);
            pieces[at].3 = cut;
            pieces.push((t0, t1, cut, a1));
        }
    }
    rng.shuffle(&mut pieces);
    pieces.truncate(count);
    pieces.into_iter().map(|(t0, t1, a0, a1)| (t0, t1, a1 - a0)).collect()
}

/// Cuts a rectangle of `side` moments by `side` units of memory, always the largest piece, by cuts from edge to edge, and
/// leaves up to an eighth of the pieces out. This is what the hard instances of the MiniMalloc benchmark look like: areas
/// vary little, forms a lot, and few packings other than the one that was cut fit into `side` units.
pub fn even_cut(seed: u64, count: usize, side: u64) -> Vec<Row> {
    let mut rng = Rng::with_seed(seed);
    let dropped = rng.f64() / 8.0;
    let wanted = (count as f64 / (1.0 - dropped)).ceil() as usize;
    let mut pieces = BinaryHeap::from([(side * side, (0, side, 0, side))]);
    while pieces.len() < wanted {
        let Some((_, (t0, t1, a0, a1))) = pieces.pop() else { break };
        let upright = if t1 - t0 < 2 { false } else { a1 - a0 < 2 || rng.bool() };
        let (one, other) = if upright {
            let cut = rng.u64(t0 + 1..t1);
            ((t0, cut, a0, a1), (cut, t1, a0, a1))
        } else {
            let cut = rng.u64(a0 + 1..a1);
            ((t0, t1, a0, cut), (t0, t1, cut, a1))
        };
        for piece in [one, other] {
            pieces.push(((piece.1 - piece.0) * (piece.3 - piece.2), piece));
        }
    }
    let mut rows: Vec<Row> =
        pieces.into_vec().into_iter().map(|(_, (t0, t1, a0, a1))| (t0, t1, a1 - a0)).collect();
    rng.shuffle(&mut rows);
    rows.truncate(count);
    rows
}

/// Lifetimes at random over as many moments as there are buffers, each up to `share` of the whole, and sizes over
/// four orders of magnitude.
pub fn random(seed: u64, count: usize, share: f64) -> Vec<Row> {
    let mut rng = Rng::with_seed(seed);
    let moments = count.max(4) as u64;
    let longest = ((moments as f64 * share) as u64).clamp(2, moments);
    let row = |_| {
        let length = rng.u64(1..longest);
        let lower = rng.u64(0..moments - length);
        (lower, lower + length, (10f64.powf(4.0 * rng.f64()) * 64.0) as u64)
    };
    (0..count).map(row).collect()
}

/// Lifetimes at random over more moments than there are buffers, each up to `share` of the whole, and sizes that are all
/// as likely up to the largest.
pub fn uniform(seed: u64, count: usize, share: f64) -> Vec<Row> {
    let mut rng = Rng::with_seed(seed);
    let moments = 2 * count.max(4) as u64;
    let longest = ((moments as f64 * share) as u64).clamp(2, moments);
    let row = |_| {
        let length = rng.u64(1..longest);
        let lower = rng.u64(0..moments - length);
        (lower, lower + length, rng.u64(1..1 << 20))
    };
    (0..count).map(row).collect()
}

/// The lifetimes of training: activations that are born going forward and die going backward in the reverse order,
/// gradients and workspaces that live for a step or two, and weights that live throughout.
pub fn training(seed: u64, count: usize) -> Vec<Row> {
    let mut rng = Rng::with_seed(seed);
    let layers = (count / 5).max(1) as u64;
    let steps = 2 * layers;
    let mut rows = Vec::new();
    for layer in 0..layers {
        let scale = 1 + 15 * (layers - layer) / layers;
        let back = steps - layer;
        let size = |rng: &mut Rng| 512 * rng.u64(1..64 * scale);
        let skip = rng.u64(0..8).min(layer);
        rows.push((layer, back, size(&mut rng)));
        rows.push((layer - skip, back - rng.u64(0..2), size(&mut rng)));
        rows.push((layer, layer + 1, size(&mut rng)));
        rows.push((back - 1, back + rng.u64(0..3), size(&mut rng)));
        rows.push((0, steps + 2, 512 * rng.u64(1..32)));
    }
    rows.truncate(count);
    rows
}

/// Requests that come at random and stay for a random while, mostly short: sizes of a few classes.
pub fn requests(seed: u64, count: usize) -> Vec<Row> {
    let mut rng = Rng::with_seed(seed);
    let mut now = 0;
    let row = |_| {
        now += rng.u64(0..4);
        let length = 1 + (-(1.0 - rng.f64()).ln() * 120.0) as u64;
        (now, now + length, 4096 << rng.u64(0..9))
    };
    (0..count).map(row).collect()
}

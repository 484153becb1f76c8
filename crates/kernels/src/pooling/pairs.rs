//! Windows of two by two that do not overlap and leave no pixel over: any number of pairs of rows, whatever plane they
//! are of. Rows that are shorter than vectors are laid one behind the other before, and taken apart afterwards.

use super::rows::{Fold, LANES, ahead, put};
use crate::simd::{Lanes, Layout, lay};

/// Numbers of short rows that are laid one behind the other.
const TOGETHER: usize = 256;

/// Both rows of some pairs, one behind the other.
type Pair = [[f32; TOGETHER]; 2];

/// How the rows of some pairs lie in turn, and one behind the other.
fn layout(width: usize, pairs: usize) -> Layout {
    Layout { counts: [1, pairs, width], from: [0, 2 * width, 1], to: [0, width] }
}

/// Takes the rows of some pairs apart.
#[inline(always)]
fn apart(width: usize, x: &[f32], to: &mut Pair) {
    let layout = layout(width, x.len() / (2 * width));
    to.iter_mut().enumerate().for_each(|(half, to)| lay(layout, &x[half * width..], 0.0, to));
}

/// Every window of some pairs of rows, combined and multiplied.
#[inline(always)]
pub(super) fn forward<L: Lanes, F: Fold>(l: L, width: usize, share: f32, x: &[f32], y: &mut [f32]) {
    if width > LANES {
        for (x, y) in x.chunks_exact(2 * width).zip(y.chunks_exact_mut(width / 2)) {
            let (x0, x1) = x.split_at(width);
            combine::<L, F>(l, share, [x0, x1], y);
        }
        return;
    }
    let together = TOGETHER / width;
    let mut from: Pair = [[0.0; TOGETHER]; 2];
    for (x, y) in x.chunks(2 * width * together).zip(y.chunks_mut(width / 2 * together)) {
        apart(width, x, &mut from);
        combine::<L, F>(l, share, [&from[0][..2 * y.len()], &from[1][..2 * y.len()]], y);
    }
}

/// Two vectors of a row from `at` on, taken apart.
#[inline(always)]
fn apart_at<L: Lanes>(l: L, x: &[f32], at: usize) -> [L::Vector; 2] {
    ahead(x, at);
    ahead(x, at + L::COUNT);
    match x.get(at..at + 2 * L::COUNT) {
        Some(x) => l.part(l.load(x, 0), l.load(x, L::COUNT)),
        None => l.part(l.load_some(x, at), l.load_some(x, at + L::COUNT)),
    }
}

#[inline(always)]
fn combine<L: Lanes, F: Fold>(l: L, share: f32, x: [&[f32]; 2], y: &mut [f32]) {
    let mut at = 0;
    while at < y.len() {
        let [[a, b], [c, d]] = [apart_at(l, x[0], 2 * at), apart_at(l, x[1], 2 * at)];
        let all = F::fold(l, F::fold(l, a, b), F::fold(l, c, d));
        ahead(y, at);
        l.store_some(l.mul(all, l.splat(share)), y, at);
        at += L::COUNT;
    }
}

/// The gradient of the maxima of some pairs of rows.
#[inline(always)]
pub(super) fn backward<L: Lanes>(l: L, width: usize, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    if width > LANES {
        let rows = x.chunks_exact(2 * width).zip(dx.chunks_exact_mut(2 * width));
        for ((x, dx), dy) in rows.zip(dy.chunks_exact(width / 2)) {
            let ((x0, x1), (dx0, dx1)) = (x.split_at(width), dx.split_at_mut(width));
            choose(l, [x0, x1], dy, [dx0, dx1]);
        }
        return;
    }
    let together = TOGETHER / width;
    let [mut from, mut to]: [Pair; 2] = [[[0.0; TOGETHER]; 2]; 2];
    let rows = x.chunks(2 * width * together).zip(dx.chunks_mut(2 * width * together));
    for ((x, dx), dy) in rows.zip(dy.chunks(width / 2 * together)) {
        let all = 2 * dy.len();
        apart(width, x, &mut from);
        let [dx0, dx1] = &mut to;
        choose(l, [&from[0][..all], &from[1][..all]], dy, [&mut dx0[..all], &mut dx1[..all]]);
        let Layout { counts, from, to: back } = layout(width, all / width);
        let layout = Layout { counts, from: [0, back[1], 1], to: [0, from[1]] };
        to.iter().enumerate().for_each(|(half, to)| lay(layout, to, 0.0, &mut dx[half * width..]));
    }
}

/// The gradient of a maximum along two rows of the image.
#[inline(always)]
fn choose<L: Lanes>(l: L, x: [&[f32]; 2], dy: &[f32], dx: [&mut [f32]; 2]) {
    let [dx0, dx1] = dx;
    let zero = l.splat(0.0);
    let mut at = 0;
    while at < dy.len() {
        let [[a, b], [c, d]] = [apart_at(l, x[0], 2 * at), apart_at(l, x[1], 2 * at)];
        ahead(dy, at);
        let dy = l.load_some(dy, at);
        let (mut best, mut chosen) = (a, zero);
        for (tap, x) in [(1.0, b), (2.0, c), (3.0, d)] {
            let better = l.better(x, best);
            best = l.pick(better, x, best);
            chosen = l.pick(better, l.splat(tap), chosen);
        }
        for (first, dx) in [(0.0, &mut *dx0), (2.0, &mut *dx1)] {
            let even = l.pick(l.equal(chosen, l.splat(first)), dy, zero);
            let odd = l.pick(l.equal(chosen, l.splat(first + 1.0)), dy, zero);
            let [low, high] = l.join(even, odd);
            ahead(dx, 2 * at);
            ahead(dx, 2 * at + L::COUNT);
            put(l, low, dx, 2 * at);
            put(l, high, dx, 2 * at + L::COUNT);
        }
        at += L::COUNT;
    }
}

/// The gradient of the means of some pairs of rows.
#[inline(always)]
pub(super) fn spread<L: Lanes>(l: L, width: usize, dy: &[f32], dx: &mut [f32]) {
    // What is written beyond the end of a row is written again with the next.
    if width > L::COUNT {
        for row in 0..dx.len() / width {
            double(l, dy, row / 2 * (width / 2), (width, row * width), dx);
        }
        return;
    }
    for pair in 0..dx.len() / (2 * width) {
        let (from, to) = (pair * (width / 2), 2 * pair * width);
        let [low, _] = shares(l, dy, from);
        ahead(dy, from);
        ahead(dx, to);
        put(l, low, dx, to);
        put(l, low, dx, to + width);
    }
}

/// What each of some gradients gives to a pixel, from number `from` on: twice, one beside the other.
#[inline(always)]
fn shares<L: Lanes>(l: L, dy: &[f32], from: usize) -> [L::Vector; 2] {
    let half = l.splat(0.5);
    let dy = if from + L::COUNT <= dy.len() { l.load(dy, from) } else { l.load_some(dy, from) };
    // Both shares one after the other and a sum, as of other windows: numbers may be tiny, and zeros have no sign.
    let share = l.add(l.mul(l.mul(dy, half), half), l.splat(0.0));
    l.join(share, share)
}

/// A row of `width` pixels from `start` on, which share gradients from `from` on.
#[inline(always)]
fn double<L: Lanes>(l: L, dy: &[f32], from: usize, (width, start): (usize, usize), dx: &mut [f32]) {
    let n = L::COUNT;
    for at in (0..width).step_by(2 * n) {
        let [low, high] = shares(l, dy, from + at / 2);
        ahead(dx, start + at);
        ahead(dx, start + at + n);
        put(l, low, dx, start + at);
        if at + n < width {
            put(l, high, dx, start + at + n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::spread_pairs;

    #[test]
    fn pairs_of_rows_share_gradients() {
        let mut random = fastrand::Rng::with_seed(19);
        for half in 1..70 {
            let (width, pairs) = (2 * half, random.usize(1..30));
            let dy: Vec<f32> = (0..pairs * half).map(|_| random.i8(-9..9) as f32).collect();
            let mut dx = vec![f32::NAN; 4 * dy.len()];
            spread_pairs(width, &dy, &mut dx);
            let expected = |at: usize| dy[at / (2 * width) * half + at % width / 2] / 4.0;
            assert!(dx.iter().enumerate().all(|(at, dx)| *dx == expected(at)), "{pairs} pairs of {width}");
        }
    }
}

//! The largest or the mean of windows that are neighbours, of three by three or five by five pixels.
//!
//! A row of the image is read once, into a ring, with what lies beside it. The rows of the ring that a row of windows covers
//! are made one vector by vector, and neighbouring lanes of these then are: in pairs that windows share where the order does
//! not matter, and one after the other where it does.
//!
//! Pixels that are no numbers are found on the way in; a maximum of such planes is not for this loop.

use super::rows::{Fold, LANES, RING, ROW, Row, Runs, put};
use super::{Shape, Shares};
use crate::simd::Lanes;

/// Whether there is a loop for it: windows of three by three or five by five, all of which see some of the image, and rows
/// that have room.
pub(super) fn applies(s: &Shape) -> bool {
    let form = &s.form;
    let inside = (0..2).all(|axis| form.padding[axis] < form.window[axis]);
    let known = form.window[0] == form.window[1] && matches!(form.window[0], 3 | 5);
    let wide = (s.from[1] + form.padding[1] as usize).max(s.to[1]).next_multiple_of(LANES) + 3 * LANES;
    form.stride == [1; 2] && known && inside && wide <= ROW
}

/// Rows of an image with what lies beside it, for one thread; aligned as [`Aligned`](super::rows::Aligned) says.
#[repr(align(64))]
pub(super) struct Around {
    ring: [Row; RING],
    /// A row above or below the image.
    beyond: Row,
}

impl Around {
    /// Nothing yet.
    pub fn new<F: Fold>() -> Around {
        Around { ring: [[F::OUTSIDE; ROW]; RING], beyond: [F::NOTHING; ROW] }
    }
}

/// Some columns of `W` rows, made one; from `end` on they are beside the image.
#[inline(always)]
fn column<L: Lanes, F: Fold, const W: usize>(l: L, rows: &[&Row; W], at: usize, end: usize) -> L::Vector {
    if at >= end {
        return l.splat(F::OUTSIDE);
    }
    let mut all = l.load(rows[0], at);
    for row in &rows[1..] {
        all = F::quick(l, all, l.load(*row, at));
    }
    all
}

/// One plane of results; returns false, and they are not right, where a pixel is not a number and `F` cares.
#[inline(always)]
pub(super) fn plane<L: Lanes, F: Fold, const W: usize>(
    l: L,
    (s, runs, shares): (&Shape, &Runs, Option<&Shares>),
    x: &[f32],
    y: &mut [f32],
    Around { ring, beyond }: &mut Around,
) -> bool {
    let [above, left] = [s.form.padding[0], s.form.padding[1]].map(|n| n as usize);
    let (width, end, n) = (runs.width, left + runs.width, L::COUNT);
    let mut strange = l.splat(0.0);
    for t in 0..=s.to[0] + W - 1 - above {
        // What was just written cannot be read at once, so a row enters before those before it are made one.
        if t < s.from[0] {
            let (from, row) = (&x[t * width..][..width], &mut ring[t % RING]);
            let mut at = 0;
            while at < width {
                // The last vector ends where the row does, where it is as long.
                if width >= n {
                    at = at.min(width - n);
                    let some = l.load(from, at);
                    strange = F::strange(l, some, strange);
                    l.store(some, row, left + at);
                } else {
                    let some = l.load_some(from, at);
                    strange = F::strange(l, some, strange);
                    l.store_some(some, &mut row[left..left + width], at);
                }
                at += n;
            }
        }
        let Some(i) = (t + above).checked_sub(W) else { continue };
        if i >= s.to[0] {
            break;
        }
        let mut rows = [&*beyond; W];
        for (a, row) in rows.iter_mut().enumerate() {
            // Rows above the image are beyond its end as well.
            let from = (i + a).wrapping_sub(above);
            if from < s.from[0] {
                *row = &ring[from % RING];
            }
        }
        let share = shares.map(|shares| (l.splat(shares.rows[i]), &shares.columns));
        let (mut now, mut next) = (column::<L, F, W>(l, &rows, 0, end), column::<L, F, W>(l, &rows, n, end));
        let mut pair = F::quick(l, now, l.slide::<1>(now, next));
        for at in (0..runs.to).step_by(n) {
            let mut all = pair;
            if F::ORDERED {
                all = F::quick(l, all, l.slide::<2>(now, next));
                if W == 5 {
                    all = F::quick(l, all, l.slide::<3>(now, next));
                    all = F::quick(l, all, l.slide::<4>(now, next));
                }
            }
            let after = column::<L, F, W>(l, &rows, at + 2 * n, end);
            let later = F::quick(l, next, l.slide::<1>(next, after));
            if !F::ORDERED {
                all = match W {
                    3 => F::quick(l, all, l.slide::<2>(now, next)),
                    _ => F::quick(l, F::quick(l, all, l.slide::<2>(pair, later)), l.slide::<4>(now, next)),
                };
            }
            if let Some((share, columns)) = share {
                all = l.mul(l.mul(all, share), l.load(columns, at));
            }
            // What is beyond the end of a row is written again with the next.
            put(l, all, y, i * runs.to + at);
            (now, next, pair) = (next, after, later);
        }
    }
    F::fine(l, strange)
}

#[cfg(test)]
mod tests {
    use super::super::back::tests::neighbours;
    use super::super::{largest, mean, plain};
    use super::*;

    /// A pixel: many are equal, and few are no numbers or less than all.
    fn pixel(random: &mut fastrand::Rng) -> f32 {
        match random.usize(..4000) {
            0 => f32::NAN,
            1..20 => f32::NEG_INFINITY,
            _ => random.i8(-3..3) as f32,
        }
    }

    fn same(a: f32, b: f32) -> bool {
        a == b || (a - b).abs() < 1e-5 || (a.is_nan() && b.is_nan())
    }

    #[test]
    fn neighbouring_windows_are_as_good_as_single_ones() {
        let (mut random, mut tried) = (fastrand::Rng::with_seed(23), 0);
        for _ in 0..300 {
            let Some(s) = neighbours([14, 90], &mut random) else { continue };
            let (from, to) = (s.from, s.to);
            let Some(runs) = Runs::new(&s).filter(|_| applies(&s)) else { continue };
            tried += 1;
            let planes = random.usize(1..4);
            let x: Vec<f32> = (0..planes * from[0] * from[1]).map(|_| pixel(&mut random)).collect();
            let [mut y, mut expected] =
                [vec![1f32; planes * to[0] * to[1]], vec![0f32; planes * to[0] * to[1]]];
            let better = |best: f32, x: f32| if x > best || x.is_nan() { x } else { best };
            largest(&s, &runs, None, &x, &mut y);
            plain(&s, &x, &mut expected, f32::NEG_INFINITY, better);
            assert!(y.iter().zip(&expected).all(|(a, b)| same(*a, *b)), "largest of {s:?}");
            let count_padding = random.bool();
            mean(&s, &runs, None, &Shares::new(&s, None, count_padding), &x, &mut y);
            plain(&s, &x, &mut expected, 0.0, |sum, x| sum + x);
            for (at, (y, sum)) in y.iter().zip(expected).enumerate() {
                let [i, j] = [at / to[1] % to[0], at % to[1]];
                let share = s.share(0, i, count_padding) * s.share(1, j, count_padding);
                assert!(same(*y, sum * share), "mean of {s:?}");
            }
        }
        assert!(tried > 100, "{tried} shapes");
    }
}

//! The softmax of a few rows of attention's scores, and its gradient.
//!
//! What rows are reduced to is computed side by side, a vector of each row in turn, because a single row would mostly wait
//! for itself. Rows of a triangle have as many vectors as their neighbours; what is beyond a row's own place is computed
//! and forgotten.

use super::loss::{dot_row, larger, softmax_row};
use super::math::exp;
use super::simd::{Lanes, PARTS, STRIP, Sums, halves, lanes};

/// Places in a vector.
const PLACES: [f32; PARTS] = [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.];

/// How many elements of every row count: those up to its own place in rows of a triangle, of which `first` is the first.
#[derive(Clone, Copy)]
struct Seen {
    first: Option<usize>,
    width: usize,
}

impl Seen {
    #[inline(always)]
    fn row(self, row: usize) -> usize {
        self.first.map_or(self.width, |first| first + row + 1)
    }

    /// The vectors of 16 that every row has, where there are as many rows as in a strip and all have the same.
    #[inline(always)]
    fn vectors(self, rows: usize) -> Option<usize> {
        let vectors = self.row(0).div_ceil(PARTS);
        let even = rows == STRIP && self.row(STRIP - 1) <= vectors * PARTS;
        (even && vectors * PARTS <= self.width).then_some(vectors)
    }
}

/// Which of the lanes from `at` on are before `seen`.
#[inline(always)]
fn before<L: Lanes>(l: L, at: usize, seen: usize) -> L::Mask {
    l.better(l.splat(seen as f32 - at as f32), l.load(&PLACES, 0))
}

/// The largest element of every row, from a vector of each.
#[inline(always)]
fn largest<L: Lanes, const LAST: bool>(
    l: L,
    rows: &[f32],
    seen: Seen,
    at: usize,
    best: &mut [[L::Vector; 2]; STRIP],
) {
    for (r, best) in best.iter_mut().enumerate() {
        for part in (0..PARTS).step_by(L::COUNT) {
            let mut x = l.load(rows, r * seen.width + at + part);
            if LAST {
                x = l.pick(before(l, at + part, seen.row(r)), x, l.splat(f32::NEG_INFINITY));
            }
            best[part / L::COUNT] = l.larger(x, best[part / L::COUNT]);
        }
    }
}

/// Replaces a vector of every row by e^(x − shift), and adds it up.
#[inline(always)]
fn exponentials<L: Lanes, const LAST: bool>(
    l: L,
    rows: &mut [f32],
    seen: Seen,
    at: usize,
    shifts: &[f32; STRIP],
    sums: &mut [Sums<L>; STRIP],
) {
    for (r, sums) in sums.iter_mut().enumerate() {
        let chunk = &mut rows[r * seen.width + at..][..PARTS];
        chunk.iter_mut().for_each(|x| *x = exp(*x - shifts[r]));
        for part in (0..PARTS).step_by(L::COUNT) {
            let mut x = l.load(chunk, part);
            if LAST {
                x = l.pick(before(l, at + part, seen.row(r)), x, l.splat(0.0));
                l.store(x, chunk, part);
            }
            sums.add(l, part, x);
        }
    }
}

/// Adds up the products of a vector of every row.
#[inline(always)]
fn products<L: Lanes, const LAST: bool>(
    l: L,
    y: &[f32],
    dy: &[f32],
    seen: Seen,
    at: usize,
    sums: &mut [Sums<L>; STRIP],
) {
    for (r, sums) in sums.iter_mut().enumerate() {
        for part in (0..PARTS).step_by(L::COUNT) {
            let place = r * seen.width + at + part;
            let mut product = l.mul(l.load(y, place), l.load(dy, place));
            if LAST {
                product = l.pick(before(l, at + part, seen.row(r)), product, l.splat(0.0));
            }
            sums.add(l, part, product);
        }
    }
}

/// Rows that all have so many vectors.
#[inline(always)]
fn softmax_even<L: Lanes>(l: L, rows: &mut [f32], seen: Seen, vectors: usize) {
    let last = (vectors - 1) * PARTS;
    let mut best = [[l.splat(f32::NEG_INFINITY); 2]; STRIP];
    for at in (0..last).step_by(PARTS) {
        largest::<L, false>(l, rows, seen, at, &mut best);
    }
    largest::<L, true>(l, rows, seen, last, &mut best);
    let mut shifts = [0f32; STRIP];
    for (shift, best) in shifts.iter_mut().zip(&best) {
        let mut parts = [0f32; PARTS];
        for part in (0..PARTS).step_by(L::COUNT) {
            l.store(best[part / L::COUNT], &mut parts, part);
        }
        *shift = halves(&parts, larger);
    }
    let mut sums = [Sums::new(l); STRIP];
    for at in (0..last).step_by(PARTS) {
        exponentials::<L, false>(l, rows, seen, at, &shifts, &mut sums);
    }
    exponentials::<L, true>(l, rows, seen, last, &shifts, &mut sums);
    let mut factors = [0f32; STRIP];
    for (factor, sums) in factors.iter_mut().zip(sums) {
        *factor = sums.total(l);
    }
    factors.iter_mut().for_each(|factor| *factor = 1.0 / *factor);
    for (row, factor) in rows.chunks_exact_mut(seen.width).zip(&factors) {
        let (row, rest) = row.split_at_mut(vectors * PARTS);
        for at in (0..row.len()).step_by(L::COUNT) {
            l.store(l.mul(l.load(row, at), l.splat(*factor)), row, at);
        }
        rest.fill(0.0);
    }
}

/// The gradient of rows that all have so many vectors.
#[inline(always)]
fn slope_even<L: Lanes>(l: L, y: &[f32], dy: &mut [f32], seen: Seen, vectors: usize) {
    let last = (vectors - 1) * PARTS;
    // Vectors in even places, and those in odd ones.
    let mut sums = [[Sums::new(l); STRIP]; 2];
    for at in (0..last).step_by(2 * PARTS) {
        products::<L, false>(l, y, dy, seen, at, &mut sums[0]);
        if at + PARTS < last {
            products::<L, false>(l, y, dy, seen, at + PARTS, &mut sums[1]);
        }
    }
    products::<L, true>(l, y, dy, seen, last, &mut sums[(vectors - 1) % 2]);
    let mut totals = [0f32; STRIP];
    let [even, odd] = sums;
    for (total, (even, odd)) in totals.iter_mut().zip(even.into_iter().zip(odd)) {
        *total = -(even.total(l) + odd.total(l));
    }
    let rows = y.chunks_exact(seen.width).zip(dy.chunks_exact_mut(seen.width));
    for (r, (y, dy)) in rows.enumerate() {
        for at in (0..vectors * PARTS).step_by(L::COUNT) {
            let slope = l.mul(l.load(y, at), l.add(l.load(dy, at), l.splat(totals[r])));
            l.store(slope, dy, at);
        }
        // What is not seen has no gradient, whatever was there.
        let end = vectors * PARTS;
        for part in (0..PARTS).step_by(L::COUNT) {
            let at = end - PARTS + part;
            let kept = l.pick(before(l, at, seen.row(r)), l.load(dy, at), l.splat(0.0));
            l.store(kept, dy, at);
        }
    }
}

lanes! {
    /// Replaces up to [`STRIP`] rows by their softmax, each of the elements up to its own place where they are rows of a
    /// triangle, of which `first` is the first, and of zeros from there on.
    pub(super) fn softmax(l; rows: &mut [f32], width: usize, first: Option<usize>) {
        let seen = Seen { first, width };
        if let Some(vectors) = seen.vectors(rows.len() / width) {
            return softmax_even(l, rows, seen, vectors);
        }
        for (r, row) in rows.chunks_exact_mut(width).enumerate() {
            let (row, rest) = row.split_at_mut(seen.row(r));
            softmax_row(l, None, row);
            rest.fill(0.0);
        }
    }
}

lanes! {
    /// Replaces the gradients of such rows, of which `y` are the softmax, by those of what they were made of: at least up
    /// to where the last row sees.
    pub(super) fn slope(l; y: &[f32], dy: &mut [f32], width: usize, first: Option<usize>) {
        let (seen, rows) = (Seen { first, width }, dy.len() / width);
        if let Some(vectors) = seen.vectors(rows) {
            return slope_even(l, y, dy, seen, vectors);
        }
        for (r, (y, dy)) in y.chunks_exact(width).zip(dy.chunks_exact_mut(width)).enumerate() {
            let (dy, rest) = dy[..seen.row(rows - 1)].split_at_mut(seen.row(r));
            let sum = dot_row(l, &y[..dy.len()], dy);
            dy.iter_mut().zip(y).for_each(|(dy, y)| *dy = y * (*dy - sum));
            rest.fill(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows that are computed side by side, and one by one: the same bits.
    #[test]
    fn strips_are_as_good_as_rows() {
        for (width, first) in
            [(16, Some(0)), (64, Some(8)), (48, Some(40)), (64, Some(32)), (80, None), (20, Some(8))]
        {
            let mut random = fastrand::Rng::with_seed(width as u64);
            let scores: Vec<f32> = (0..STRIP * width).map(|_| 8.0 * random.f32() - 4.0).collect();
            let slopes: Vec<f32> = (0..STRIP * width).map(|_| random.f32() - 0.5).collect();
            let (mut p, mut ds) = (scores.clone(), slopes.clone());
            softmax(&mut p, width, first);
            slope(&p, &mut ds, width, first);
            let end = first.map_or(width, |first| first + STRIP);
            for r in 0..STRIP {
                let (at, own) = (r * width..(r + 1) * width, first.map(|first| first + r));
                let (mut row, mut slopes) = (scores[at.clone()].to_vec(), slopes[at.clone()].to_vec());
                softmax(&mut row, width, own);
                assert_eq!(p[at.clone()], row, "row {r} of {width} from {first:?}");
                slope(&row, &mut slopes, width, own);
                let seen = own.map_or(width, |own| own + 1);
                assert_eq!(ds[at.clone()][..seen], slopes[..seen], "row {r} of {width} from {first:?}");
                assert!(ds[at][seen..end].iter().all(|ds| *ds == 0.0), "row {r} of {width} from {first:?}");
                let sum: f32 = row.iter().sum();
                assert!((sum - 1.0).abs() < 1e-5 && row[seen..].iter().all(|p| *p == 0.0), "{row:?}");
            }
        }
    }
}

//! The inner loops of convolutions of padded images (`product.rs`), where a row of the result is half a vector: two rows
//! make one, and nothing is computed that is thrown away.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use super::product::{pick_correlated, pick_shifted, put_correlated};
use super::vector::{Vector, add_products, for_each_level, pick, put};
use super::{Correlation, Level, Shifts, Tile, level};

/// Where vectors of two rows are in a stretch of numbers.
#[derive(Clone, Copy)]
pub struct Pairs<'a> {
    /// The first row of every vector.
    places: &'a [u32],
    /// The distance of the second from it.
    apart: usize,
    /// The last place.
    most: usize,
}

impl<'a> Pairs<'a> {
    /// Vectors whose first rows are at these places, and whose second ones so far from them.
    pub fn new(places: &'a [u32], apart: usize) -> Pairs<'a> {
        Pairs { places, apart, most: places.iter().copied().max().unwrap_or(0) as usize }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Some of them.
    pub fn range(&self, range: std::ops::Range<usize>) -> Pairs<'a> {
        Pairs { places: &self.places[range], ..*self }
    }

    /// One beyond the furthest number.
    fn end(&self) -> usize {
        self.most + self.apart + Tile::here().lanes / 2
    }
}

/// The same as [`shifted`](super::shifted), of as many vectors as there are pairs.
pub fn shifted_pairs(
    shifts: Shifts<'_>,
    (rows, pairs): (usize, Pairs<'_>),
    a: &[f32],
    from: &[f32],
    (out, stride): (&mut [f32], usize),
) {
    let (tile, depth, vectors) = (Tile::here(), shifts.count(), pairs.places.len());
    assert!((1..=tile.rows).contains(&rows), "a piece that fits the registers");
    assert!((1..=Shifts::vectors(rows)).contains(&vectors), "a piece that fits the registers");
    assert!(a.len() >= depth * rows && from.len() >= shifts.most() + pairs.end(), "all that is multiplied");
    assert!(out.len() >= (rows - 1) * stride + vectors * tile.lanes, "room for the piece");
    let (distances, a, out) = (shifts.distances().as_ptr(), a.as_ptr(), (out.as_mut_ptr(), stride));
    let from = (from.as_ptr(), pairs.places.as_ptr(), pairs.apart);
    pick_shifted!(sliding, rows, vectors, (depth, distances, a, from, out))
}

/// # Safety
/// `distances` are `depth`; `a`, `from` and `out` are as long as [`shifted_pairs`] says.
#[inline(always)]
unsafe fn sliding_loop<X: Vector, const R: usize, const V: usize>(
    depth: usize,
    distances: *const u32,
    a: *const f32,
    (from, places, apart): (*const f32, *const u32, usize),
    out: (*mut f32, usize),
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[X::zero(); V]; R];
        let mut starts = [from; V];
        for (v, start) in starts.iter_mut().enumerate() {
            *start = from.add(*places.add(v) as usize);
        }
        for k in 0..depth {
            let distance = *distances.add(k) as usize;
            let mut row = [X::zero(); V];
            for (row, start) in row.iter_mut().zip(&starts) {
                let first = start.add(distance);
                *row = X::load_halves(first, first.add(apart));
            }
            add_products(a.add(k * R), row, &mut sums);
        }
        put(&sums, out);
    }
}

for_each_level!(sliding: sliding_loop(
    depth: usize, distances: *const u32, a: *const f32, from: (*const f32, *const u32, usize), out: (*mut f32, usize)
));

/// The same as [`correlate`](super::correlate), over as many vectors as there are pairs.
pub fn correlate_pairs(
    shifts: Shifts<'_>,
    (a, rows, stride): (&[f32], usize, usize),
    from: &[f32],
    pairs: Pairs<'_>,
    (sums, add): (&mut [f32], bool),
) {
    let (lanes, count, vectors) = (Tile::here().lanes, shifts.count(), pairs.places.len());
    assert!(
        (1..=4).contains(&rows) && (1..=Correlation::shifts(rows)).contains(&count),
        "it fits the registers"
    );
    assert!(
        a.len() >= (rows - 1) * stride + vectors * lanes && from.len() >= shifts.most() + pairs.end(),
        "all that is multiplied"
    );
    assert!(sums.len() >= rows * count * lanes, "room for the sums");
    let (distances, a, sums) = (shifts.distances().as_ptr(), (a.as_ptr(), stride), (sums.as_mut_ptr(), add));
    let from = (from.as_ptr(), pairs.places.as_ptr(), pairs.apart);
    pick_correlated!(meeting, rows, count, (vectors, distances, a, from, sums))
}

/// # Safety
/// `distances` are `T`; `a`, `from` and `sums` are as long as [`correlate_pairs`] says.
#[inline(always)]
unsafe fn meeting_loop<X: Vector, const R: usize, const T: usize>(
    vectors: usize,
    distances: *const u32,
    (a, stride): (*const f32, usize),
    (from, places, apart): (*const f32, *const u32, usize),
    (sums, add): (*mut f32, bool),
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut from_at = [from; T];
        for (t, from_at) in from_at.iter_mut().enumerate() {
            *from_at = from.add(*distances.add(t) as usize);
        }
        let mut all = [[X::zero(); T]; R];
        for v in 0..vectors {
            let place = *places.add(v) as usize;
            let mut rows = [X::zero(); R];
            for (r, row) in rows.iter_mut().enumerate() {
                *row = X::load(a.add(r * stride + v * X::LANES));
            }
            for t in 0..T {
                let first = from_at[t].add(place);
                let x = X::load_halves(first, first.add(apart));
                for r in 0..R {
                    all[r][t] = all[r][t].plus(rows[r], x);
                }
            }
        }
        let rows = std::array::from_fn(|r| r * T * X::LANES);
        put_correlated(&all, (sums, rows, add));
    }
}

for_each_level!(meeting: meeting_loop(
    vectors: usize, distances: *const u32, a: (*const f32, usize), from: (*const f32, *const u32, usize),
    sums: (*mut f32, bool)
));

//! The inner loops of products: rows by vectors of sums that stay in registers.
//!
//! Four loops share a form. [`product`] multiplies packed panels, and [`lines`] one with rows as they lie. [`shifted`] takes its vectors from one stretch of
//! numbers, at a distance for each depth: a convolution of padded images, without packing. [`correlate`] multiplies
//! stretches of numbers with each other at several distances: the gradient of such a convolution by its weights.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use super::vector::{Vector, add_products, for_each_level, pick, put};
use super::{Level, Strip, Tile, level};

/// `out` becomes a · b, where `a` is `depth` columns of `rows` numbers, `b` is `depth` rows of `vectors` vectors and
/// `out` is `rows` rows as wide as those of `b`. Every element is summed in the order of depth.
pub fn product(depth: usize, rows: usize, vectors: usize, a: &[f32], b: &[f32], out: &mut [f32]) {
    product_ahead(depth, (rows, vectors), a, b, out, Soon::NOTHING);
}

/// What memory is asked for while products are computed: numbers that are read and numbers that are written soon, a line
/// of either with every step, as far as there are as many. So it works meanwhile; all at once they would wait for it.
#[derive(Clone, Copy)]
pub struct Soon<'a> {
    /// What will be read.
    pub read: &'a [f32],
    /// Where the first number that will be written is, and how many there are.
    pub write: (*const f32, usize),
}

impl Soon<'_> {
    /// Nothing.
    pub const NOTHING: Soon<'static> = Soon { read: &[], write: (std::ptr::null(), 0) };

    /// Where both begin, and how many lines of them so many steps ask for.
    fn lines(&self, steps: usize) -> ([*const f32; 2], [usize; 2]) {
        let lines = [self.read.len(), self.write.1].map(|numbers| numbers.div_ceil(LINE).min(steps));
        ([self.read.as_ptr(), self.write.0], lines)
    }
}

/// Numbers of a line of the cache.
const LINE: usize = 16;

/// Asks for line `k` of both, where there is one.
#[inline(always)]
fn ask((soon, lines): ([*const f32; 2], [usize; 2]), k: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which touches nothing.
    unsafe {
        if k < lines[0] {
            _mm_prefetch::<_MM_HINT_T1>(soon[0].wrapping_add(k * LINE).cast());
        }
        if k < lines[1] {
            _mm_prefetch::<_MM_HINT_ET0>(soon[1].wrapping_add(k * LINE).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (soon, lines, k);
}

/// The same, and memory is asked for what is wanted soon.
pub fn product_ahead(
    depth: usize,
    (rows, vectors): (usize, usize),
    a: &[f32],
    b: &[f32],
    out: &mut [f32],
    soon: Soon<'_>,
) {
    let tile = Tile::here();
    assert!((1..=tile.rows).contains(&rows) && (1..=2).contains(&vectors), "a piece that fits the registers");
    assert!(a.len() >= depth * rows && b.len() >= depth * vectors * tile.lanes, "packed operands");
    assert!(out.len() >= rows * vectors * tile.lanes, "room for the piece");
    let (a, b, out, soon) = (a.as_ptr(), b.as_ptr(), out.as_mut_ptr(), soon.lines(depth));
    match level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => pick!(packed::avx512, rows, vectors, (depth, a, b, out, soon):
            1: 1 2; 2: 1 2; 3: 1 2; 4: 1 2; 5: 1 2; 6: 1 2; 7: 1 2;
            8: 1 2; 9: 1 2; 10: 1 2; 11: 1 2; 12: 1 2; 13: 1 2; 14: 1 2;),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => pick!(packed::avx2, rows, vectors, (depth, a, b, out, soon):
            1: 1 2; 2: 1 2; 3: 1 2; 4: 1 2; 5: 1 2; 6: 1 2;),
        _ => {
            pick!(packed::portable, rows, vectors, (depth, a, b, out, soon): 1: 1 2; 2: 1 2; 3: 1 2; 4: 1 2;)
        }
    }
}

/// One depth of a product.
///
/// # Safety
/// The numbers of depth `k` are there.
#[inline(always)]
unsafe fn packed_step<X: Vector, const R: usize, const V: usize>(
    k: usize,
    a: *const f32,
    b: *const f32,
    sums: &mut [[X; V]; R],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut row = [X::zero(); V];
        for (v, row) in row.iter_mut().enumerate() {
            *row = X::load(b.add((k * V + v) * X::LANES));
        }
        add_products(a.add(k * R), row, sums);
    }
}

/// # Safety
/// `a`, `b` and `out` are as long as [`product`] says; there are at most as many lines to ask for as depths.
#[inline(always)]
unsafe fn packed_loop<X: Vector, const R: usize, const V: usize>(
    depth: usize,
    a: *const f32,
    b: *const f32,
    out: *mut f32,
    soon: ([*const f32; 2], [usize; 2]),
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[X::zero(); V]; R];
        let asked = soon.1[0].max(soon.1[1]);
        for k in 0..asked {
            ask(soon, k);
            packed_step(k, a, b, &mut sums);
        }
        for k in asked..depth {
            packed_step(k, a, b, &mut sums);
        }
        put(&sums, (out, V * X::LANES));
    }
}

for_each_level!(packed: packed_loop(
    depth: usize, a: *const f32, b: *const f32, out: *mut f32, soon: ([*const f32; 2], [usize; 2])
));

/// The most rows that [`lines`] takes.
pub const LINES: usize = 8;

/// The same product of one vector's width, where row r of `a` lies at `a[r · across]`, as it comes.
pub fn lines(depth: usize, rows: usize, (a, across): (&[f32], usize), b: &[f32], out: &mut [f32]) {
    let lanes = Tile::here().lanes;
    assert!(b.len() >= depth * lanes && out.len() >= rows * lanes, "a packed operand, and room for the rows");
    assert!(rows > 0 && a.len() >= (rows - 1) * across + depth, "all rows are there");
    let (a, b, out) = (a.as_ptr(), b.as_ptr(), out.as_mut_ptr());
    match level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => pick!(lying::avx512, rows, 1, (depth, a, across, b, out):
            1: 1; 2: 1; 3: 1; 4: 1; 5: 1; 6: 1; 7: 1; 8: 1;),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => pick!(lying::avx2, rows, 1, (depth, a, across, b, out):
            1: 1; 2: 1; 3: 1; 4: 1; 5: 1; 6: 1; 7: 1; 8: 1;),
        _ => pick!(lying::portable, rows, 1, (depth, a, across, b, out):
            1: 1; 2: 1; 3: 1; 4: 1; 5: 1; 6: 1; 7: 1; 8: 1;),
    }
}

/// # Safety
/// `a`, `b` and `out` are as long as [`lines`] says.
#[inline(always)]
unsafe fn lying_loop<X: Vector, const R: usize, const V: usize>(
    depth: usize,
    a: *const f32,
    across: usize,
    b: *const f32,
    out: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[X::zero(); V]; R];
        let mut rows = [a; R];
        for (r, row) in rows.iter_mut().enumerate() {
            *row = a.add(r * across);
        }
        for k in 0..depth {
            for v in 0..V {
                let b = X::load(b.add((k * V + v) * X::LANES));
                for (sums, row) in sums.iter_mut().zip(&rows) {
                    sums[v] = sums[v].plus(X::splat(*row.add(k)), b);
                }
            }
        }
        put(&sums, (out, V * X::LANES));
    }
}

for_each_level!(lying: lying_loop(depth: usize, a: *const f32, across: usize, b: *const f32, out: *mut f32));

/// Distances from a place.
#[derive(Clone, Copy)]
pub struct Shifts<'a> {
    distances: &'a [u32],
    /// The largest of them.
    most: usize,
}

impl<'a> Shifts<'a> {
    /// These distances.
    pub fn new(distances: &'a [u32]) -> Shifts<'a> {
        Shifts { distances, most: distances.iter().copied().max().unwrap_or(0) as usize }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.distances.len()
    }

    /// All of them.
    pub(super) fn distances(&self) -> &'a [u32] {
        self.distances
    }

    /// The largest of them.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Some of them.
    pub fn range(&self, range: std::ops::Range<usize>) -> Shifts<'a> {
        Shifts { distances: &self.distances[range], most: self.most }
    }

    /// The most vectors that [`shifted`] takes with this many rows: all sums, a row and one factor are in registers.
    pub fn vectors(rows: usize) -> usize {
        match (level(), rows) {
            (Level::Avx512, 1 | 2) => 8,
            (Level::Avx512, 3) => 7,
            (Level::Avx512, 4) => 6,
            (Level::Avx512, 5) => 5,
            (Level::Avx512, 6 | 7) => 4,
            (Level::Avx512, 8 | 9) => 3,
            (Level::Avx512, _) => 2,
            (_, 1) => 6,
            (_, 2) => 4,
            (_, 3) => 3,
            _ => 2,
        }
    }
}

/// Calls an inner loop for as many rows and vectors as [`Shifts::vectors`] allows.
macro_rules! pick_shifted {
    ($loops:ident, $rows:expr, $vectors:expr, $args:tt) => {
        match level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => pick!($loops::avx512, $rows, $vectors, $args:
                1: 1 2 3 4 5 6 7 8; 2: 1 2 3 4 5 6 7 8; 3: 1 2 3 4 5 6 7; 4: 1 2 3 4 5 6; 5: 1 2 3 4 5;
                6: 1 2 3 4; 7: 1 2 3 4; 8: 1 2 3; 9: 1 2 3; 10: 1 2; 11: 1 2; 12: 1 2; 13: 1 2; 14: 1 2;),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => pick!($loops::avx2, $rows, $vectors, $args:
                1: 1 2 3 4 5 6; 2: 1 2 3 4; 3: 1 2 3; 4: 1 2; 5: 1 2; 6: 1 2;),
            _ => pick!($loops::portable, $rows, $vectors, $args:
                1: 1 2 3 4 5 6; 2: 1 2 3 4; 3: 1 2 3; 4: 1 2;),
        }
    };
}

/// Row r of `out` becomes Σ a\[d · rows + r\] · (the `vectors` vectors of `from` at the distance of depth d); its rows
/// are `stride` apart. Every element is summed in the order of depth.
pub fn shifted(
    shifts: Shifts<'_>,
    (rows, vectors): (usize, usize),
    a: &[f32],
    from: &[f32],
    (out, stride): (&mut [f32], usize),
) {
    let (tile, depth) = (Tile::here(), shifts.count());
    let wide = vectors * tile.lanes;
    assert!((1..=tile.rows).contains(&rows), "a piece that fits the registers");
    assert!((1..=Shifts::vectors(rows)).contains(&vectors), "a piece that fits the registers");
    assert!(a.len() >= depth * rows && from.len() >= shifts.most + wide, "all that is multiplied");
    assert!(out.len() >= (rows - 1) * stride + wide, "room for the piece");
    let (distances, a, from, out) = (shifts.distances.as_ptr(), a.as_ptr(), from.as_ptr(), out.as_mut_ptr());
    pick_shifted!(sliding, rows, vectors, (depth, distances, a, from, out, stride))
}

/// The same for all columns of a strip, a vector at least.
pub fn shifted_along(shifts: Shifts<'_>, a: &[f32], from: &[f32], to: &mut Strip<'_>) {
    let (tile, depth) = (Tile::here(), shifts.count());
    let Strip { start, stride, rows, columns, .. } = *to;
    assert!((1..=tile.rows).contains(&rows) && columns >= tile.lanes, "rows that fit the registers");
    assert!(a.len() >= depth * rows && from.len() >= shifts.most + columns, "all that is multiplied");
    let (distances, a, most) = (shifts.distances.as_ptr(), a.as_ptr(), Shifts::vectors(rows));
    let mut done = 0;
    while done < columns {
        let vectors = ((columns - done) / tile.lanes).clamp(1, most);
        // Where they are no whole vectors, the last one sees some of them again.
        let at = done.min(columns - vectors * tile.lanes);
        let (from, out) = (from[at..].as_ptr(), start.wrapping_add(at));
        pick_shifted!(sliding, rows, vectors, (depth, distances, a, from, out, stride));
        done = at + vectors * tile.lanes;
    }
}

/// # Safety
/// `distances` are `depth`; `a`, `from` and `out` are as long as [`shifted`] says.
#[inline(always)]
unsafe fn sliding_loop<X: Vector, const R: usize, const V: usize>(
    depth: usize,
    distances: *const u32,
    a: *const f32,
    from: *const f32,
    out: *mut f32,
    stride: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[X::zero(); V]; R];
        for k in 0..depth {
            let from = from.add(*distances.add(k) as usize);
            let mut row = [X::zero(); V];
            for (v, row) in row.iter_mut().enumerate() {
                *row = X::load(from.add(v * X::LANES));
            }
            add_products(a.add(k * R), row, &mut sums);
        }
        put(&sums, (out, stride));
    }
}

for_each_level!(sliding: sliding_loop(
    depth: usize, distances: *const u32, a: *const f32, from: *const f32, out: *mut f32, stride: usize
));

/// Calls an inner loop for as many rows and shifts as [`Correlation::shifts`] allows.
macro_rules! pick_correlated {
    ($loops:ident, $rows:expr, $shifts:expr, $args:tt) => {
        match level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => pick!($loops::avx512, $rows, $shifts, $args:
                1: 1 2 3 4 5 6 7 8 9; 2: 1 2 3 4 5 6 7 8 9; 3: 1 2 3 4 5 6 7 8; 4: 1 2 3 4 5 6;),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => pick!($loops::avx2, $rows, $shifts, $args:
                1: 1 2 3 4 5 6; 2: 1 2 3 4; 3: 1 2 3; 4: 1 2;),
            _ => pick!($loops::portable, $rows, $shifts, $args:
                1: 1 2 3 4 5 6; 2: 1 2 3 4; 3: 1 2 3; 4: 1 2;),
        }
    };
}
pub(super) use {pick_correlated, pick_shifted};

/// Writes the sums of every row from its place on, or adds them to what is there.
///
/// # Safety
/// The processor has these vectors, and there is room for `T` vectors at the places of all rows.
#[inline(always)]
pub(super) unsafe fn put_correlated<X: Vector, const R: usize, const T: usize>(
    all: &[[X; T]; R],
    (sums, places, add): (*mut f32, [usize; 4], bool),
) {
    // SAFETY: the caller's promise.
    unsafe {
        let one = X::splat(1.0);
        for (all, place) in all.iter().zip(places) {
            for (t, sum) in all.iter().enumerate() {
                let to = sums.add(place + t * X::LANES);
                let sum = if add { X::load(to).plus(one, *sum) } else { *sum };
                sum.store(to);
            }
        }
    }
}

/// Sums up, for each of `rows` stretches of `a` that begin `stride` apart and for each shift, the products with `from` at
/// that distance, over `length` numbers in whole vectors: one vector of sums for each row and shift, those of a row from its
/// place on, on top of what is there where `add`. Rows are written in order.
#[inline]
pub fn correlate(
    shifts: Shifts<'_>,
    (a, rows, stride): (&[f32], usize, usize),
    from: &[f32],
    length: usize,
    (sums, places, add): (&mut [f32], [usize; 4], bool),
    soon: Soon<'_>,
) {
    let (lanes, count) = (Tile::here().lanes, shifts.count());
    assert!(length.is_multiple_of(lanes), "whole vectors");
    assert!(
        (1..=4).contains(&rows) && (1..=Correlation::shifts(rows)).contains(&count),
        "it fits the registers"
    );
    assert!(
        a.len() >= (rows - 1) * stride + length && from.len() >= shifts.most + length,
        "all that is multiplied"
    );
    let room = |place: &usize| sums.len().checked_sub(count * lanes).is_some_and(|last| *place <= last);
    assert!(places[..rows].iter().all(room), "room for the sums");
    let soon = soon.lines(length / lanes);
    let (distances, a, from, sums) =
        (shifts.distances.as_ptr(), a.as_ptr(), from.as_ptr(), (sums.as_mut_ptr(), places, add));
    pick_correlated!(meeting, rows, count, (length, distances, a, stride, from, sums, soon))
}

/// How much [`correlate`] takes at once.
pub struct Correlation;

impl Correlation {
    /// The most shifts with this many rows.
    pub fn shifts(rows: usize) -> usize {
        match (level(), rows) {
            (Level::Avx512, 1 | 2) => 9,
            (Level::Avx512, 3) => 8,
            (Level::Avx512, _) => 6,
            (_, 1) => 6,
            (_, 2) => 4,
            (_, 3) => 3,
            _ => 2,
        }
    }
}

/// One vector of every row, with all that it meets.
///
/// # Safety
/// The numbers of `at` are there.
#[inline(always)]
unsafe fn meeting_step<X: Vector, const R: usize, const T: usize>(
    at: usize,
    (a, stride): (*const f32, usize),
    from: &[*const f32; T],
    all: &mut [[X; T]; R],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut rows = [X::zero(); R];
        for (r, row) in rows.iter_mut().enumerate() {
            *row = X::load(a.add(r * stride + at));
        }
        for t in 0..T {
            let x = X::load(from[t].add(at));
            for r in 0..R {
                all[r][t] = all[r][t].plus(rows[r], x);
            }
        }
    }
}

/// # Safety
/// `distances` are `T`; `a`, `from` and `sums` are as long as [`correlate`] says; there are at most as many lines to ask for
/// as vectors.
#[inline(always)]
unsafe fn meeting_loop<X: Vector, const R: usize, const T: usize>(
    length: usize,
    distances: *const u32,
    a: *const f32,
    stride: usize,
    from: *const f32,
    sums: (*mut f32, [usize; 4], bool),
    soon: ([*const f32; 2], [usize; 2]),
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut from_at = [from; T];
        for (t, from_at) in from_at.iter_mut().enumerate() {
            *from_at = from.add(*distances.add(t) as usize);
        }
        let mut all = [[X::zero(); T]; R];
        let asked = soon.1[0].max(soon.1[1]);
        for k in 0..asked {
            ask(soon, k);
            meeting_step(k * X::LANES, (a, stride), &from_at, &mut all);
        }
        for at in (asked * X::LANES..length).step_by(X::LANES) {
            meeting_step(at, (a, stride), &from_at, &mut all);
        }
        put_correlated(&all, sums);
    }
}

for_each_level!(meeting: meeting_loop(
    length: usize, distances: *const u32, a: *const f32, stride: usize, from: *const f32,
    sums: (*mut f32, [usize; 4], bool), soon: ([*const f32; 2], [usize; 2])
));

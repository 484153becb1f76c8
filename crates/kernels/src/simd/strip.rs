//! Strips of a product whose first operand is taken as it lies: where a product is small, copying that operand takes as
//! long as multiplying it.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::vector::{Vector, for_each_level, pick, put};
use super::{Level, Tile, level};

/// The most rows of a strip.
pub const STRIP: usize = 8;

/// An operand as it lies: row r at depth k is `numbers[r · row + k · along]`.
#[derive(Clone, Copy)]
pub struct Lying<'a> {
    /// The numbers, from the first row and depth on.
    pub numbers: &'a [f32],
    /// The distance of rows.
    pub row: usize,
    /// The distance of depths.
    pub along: usize,
}

/// Panels of the second operand: each has `deep` rows of two vectors, and its first `depth` rows count.
#[derive(Clone, Copy)]
pub struct Panels<'a> {
    /// The numbers, from the first depth that counts on.
    pub numbers: &'a [f32],
    /// Rows of a panel.
    pub deep: usize,
}

/// What becomes of a strip.
#[derive(Clone, Copy)]
pub struct Finish {
    /// Sums are multiplied with it,
    pub factor: f32,
    /// and added to what is there.
    pub add: bool,
}

/// Where a strip goes: rows of a matrix.
pub struct Strip<'s> {
    pub(super) start: *mut f32,
    pub(super) stride: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    lives: PhantomData<&'s mut f32>,
}

impl<'s> Strip<'s> {
    /// Rows of so many columns that begin `stride` apart.
    pub fn new(numbers: &'s mut [f32], [rows, columns]: [usize; 2], stride: usize) -> Strip<'s> {
        assert!(rows == 0 || numbers.len() >= (rows - 1) * stride + columns, "room for the strip");
        let start = numbers.as_mut_ptr();
        Strip { start, stride, rows, columns, lives: PhantomData }
    }

    /// The same from an address on.
    ///
    /// # Safety
    /// There is room for all rows, and nobody else looks at their columns while it lives.
    pub unsafe fn at(start: *mut f32, [rows, columns]: [usize; 2], stride: usize) -> Strip<'s> {
        Strip { start, stride, rows, columns, lives: PhantomData }
    }
}

/// The rows of a strip become products over `depth`: up to [`STRIP`] rows of `a`, and the first columns of panels. Every
/// element is summed in the order of depth.
pub fn strip(depth: usize, a: Lying<'_>, b: Panels<'_>, finish: Finish, to: &mut Strip<'_>) {
    let (lanes, most) = (Tile::here().lanes, Tile::here().rows.min(STRIP));
    let Strip { start, stride, rows, columns, .. } = *to;
    if rows == 0 || columns == 0 || depth == 0 {
        return;
    }
    let panels = columns.div_ceil(2 * lanes);
    assert!(a.numbers.len() > (rows - 1) * a.row + (depth - 1) * a.along, "all rows are there");
    assert!(b.numbers.len() >= ((panels - 1) * b.deep + depth) * 2 * lanes, "all panels are there");
    for top in (0..rows).step_by(most) {
        let high = most.min(rows - top);
        for (panel, first) in (0..columns).step_by(2 * lanes).enumerate() {
            let wide = (columns - first).min(2 * lanes);
            let from = (a.numbers[top * a.row..].as_ptr(), a.row, a.along);
            let with = b.numbers[panel * b.deep * 2 * lanes..].as_ptr();
            let to = (start.wrapping_add(top * stride + first), stride, wide);
            piece(depth, (high, wide.div_ceil(lanes)), from, with, finish, to);
        }
    }
}

/// A piece of a strip, of which everything has been checked.
#[inline]
fn piece(
    depth: usize,
    (rows, vectors): (usize, usize),
    from: (*const f32, usize, usize),
    with: *const f32,
    finish: Finish,
    to: (*mut f32, usize, usize),
) {
    match (level(), from.1) {
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, 1) => pick!(beside::avx512, rows, vectors, (depth, from, with, finish, to):
            1: 1 2; 2: 1 2; 3: 1 2; 4: 1 2; 5: 1 2; 6: 1 2; 7: 1 2; 8: 1 2;),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, _) => pick!(apart::avx512, rows, vectors, (depth, from, with, finish, to):
            1: 1 2; 2: 1 2; 3: 1 2; 4: 1 2; 5: 1 2; 6: 1 2; 7: 1 2; 8: 1 2;),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, 1) => pick!(beside::avx2, rows, vectors, (depth, from, with, finish, to):
            1: 1 2; 2: 1 2; 3: 1 2; 4: 1 2; 5: 1 2; 6: 1 2;),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, _) => pick!(apart::avx2, rows, vectors, (depth, from, with, finish, to):
            1: 1 2; 2: 1 2; 3: 1 2; 4: 1 2; 5: 1 2; 6: 1 2;),
        (_, 1) => pick!(beside::portable, rows, vectors, (depth, from, with, finish, to):
            1: 1 2; 2: 1 2; 3: 1 2; 4: 1 2;),
        _ => pick!(apart::portable, rows, vectors, (depth, from, with, finish, to):
            1: 1 2; 2: 1 2; 3: 1 2; 4: 1 2;),
    }
}

/// Rows that lie side by side: one address is enough for all.
///
/// # Safety
/// As [`strip_loop`].
#[inline(always)]
unsafe fn beside_loop<X: Vector, const R: usize, const V: usize>(
    depth: usize,
    (from, _, along): (*const f32, usize, usize),
    with: *const f32,
    finish: Finish,
    to: (*mut f32, usize, usize),
) {
    // SAFETY: the caller's promise.
    unsafe { strip_loop::<X, R, V>(depth, (from, 1, along), with, finish, to) }
}

/// # Safety
/// There are `depth` numbers of each of `R` rows, as many rows of `V` of two vectors, and room for the piece, whose last
/// vector ends after as many columns as `to` says.
#[inline(always)]
unsafe fn strip_loop<X: Vector, const R: usize, const V: usize>(
    depth: usize,
    (from, row, along): (*const f32, usize, usize),
    with: *const f32,
    finish: Finish,
    (to, stride, columns): (*mut f32, usize, usize),
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[X::zero(); V]; R];
        let mut rows = [from; R];
        for (r, at) in rows.iter_mut().enumerate() {
            *at = from.add(r * row);
        }
        for k in 0..depth {
            let mut line = [X::zero(); V];
            for (v, line) in line.iter_mut().enumerate() {
                *line = X::load(with.add((2 * k + v) * X::LANES));
            }
            for (sums, at) in sums.iter_mut().zip(&rows) {
                let a = X::splat(*at.add(k * along));
                for v in 0..V {
                    sums[v] = sums[v].plus(a, line[v]);
                }
            }
        }
        let factor = X::splat(finish.factor);
        for sums in &mut sums {
            for sum in sums {
                *sum = X::zero().plus(*sum, factor);
            }
        }
        if columns < V * X::LANES {
            return some(sums, finish, (to, stride, columns));
        }
        if finish.add {
            let one = X::splat(1.0);
            for (r, sums) in sums.iter_mut().enumerate() {
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = X::load(to.add(r * stride + v * X::LANES)).plus(*sum, one);
                }
            }
        }
        put(&sums, (to, stride));
    }
}

/// Puts or adds what there is room for of a piece.
///
/// # Safety
/// There is room for so many columns of every row.
#[inline(always)]
unsafe fn some<X: Vector, const R: usize, const V: usize>(
    sums: [[X; V]; R],
    finish: Finish,
    (to, stride, columns): (*mut f32, usize, usize),
) {
    let mut piece = [0f32; STRIP * 32];
    // SAFETY: the piece has room for all rows, and the caller's promise.
    unsafe {
        put(&sums, (piece.as_mut_ptr(), V * X::LANES));
        for (r, piece) in piece.chunks_exact(V * X::LANES).take(R).enumerate() {
            let to = std::slice::from_raw_parts_mut(to.add(r * stride), columns);
            match finish.add {
                true => to.iter_mut().zip(piece).for_each(|(to, number)| *to += number),
                false => to.iter_mut().zip(piece).for_each(|(to, number)| *to = *number),
            }
        }
    }
}

for_each_level!(beside: beside_loop(
    depth: usize, from: (*const f32, usize, usize), with: *const f32, finish: Finish, to: (*mut f32, usize, usize)
));
for_each_level!(apart: strip_loop(
    depth: usize, from: (*const f32, usize, usize), with: *const f32, finish: Finish, to: (*mut f32, usize, usize)
));

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: u64) -> Vec<f32> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| random.f32() - 0.5).collect()
    }

    #[test]
    fn strips_are_what_one_computes_by_hand() {
        let wide = 2 * Tile::here().lanes;
        for (rows, columns, depth) in
            [(1usize, 1usize, 1usize), (8, 32, 9), (8, 64, 40), (5, 40, 3), (7, 17, 12), (3, 75, 20)]
        {
            let (a, deep) = (numbers(rows * depth, 1), depth + 2);
            let b = numbers(columns.div_ceil(wide) * wide * deep, 2);
            for (row, along) in [(depth, 1), (1, rows)] {
                let sum = |r: usize, c: usize| -> f32 {
                    let panel = &b[c / wide * deep * wide..];
                    (0..depth).map(|k| a[r * row + k * along] * panel[k * wide + c % wide]).sum()
                };
                for add in [false, true] {
                    let (stride, finish) = (columns + 3, Finish { factor: 0.5, add });
                    let mut out = vec![7.0; rows * stride];
                    let from = Lying { numbers: &a, row, along };
                    let mut to = Strip::new(&mut out, [rows, columns], stride);
                    strip(depth, from, Panels { numbers: &b, deep }, finish, &mut to);
                    for (r, line) in out.chunks_exact(stride).enumerate() {
                        for (c, number) in line[..columns].iter().enumerate() {
                            let expected = 0.5 * sum(r, c) + if add { 7.0 } else { 0.0 };
                            assert!((number - expected).abs() < 1e-5, "{number} for {expected} at {r}, {c}");
                        }
                        assert!(line[columns..].iter().all(|number| *number == 7.0), "nothing beside it");
                    }
                }
            }
        }
    }
}

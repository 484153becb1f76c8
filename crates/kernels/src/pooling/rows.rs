//! Rows of an image as windows see them: in one run for every remainder of the stride, so that neighbouring windows find
//! the same tap in neighbouring numbers, with room beside the image for windows that reach beyond it.

use super::Shape;
use crate::simd::{Lanes, fetch_early};

/// Columns, with padding, that fit a row; wider images take plain loops.
const WIDE: usize = 1024;

/// The most lanes of a vector.
pub(super) const LANES: usize = 16;

/// The largest stride whose windows are computed at once.
const STRIDES: usize = 3;

/// The rows of the largest window that a ring holds.
pub(super) const RING: usize = 8;

/// The numbers of a row: all its runs, with room for whole vectors.
pub(super) const ROW: usize = WIDE + STRIDES * (2 * LANES);

/// Numbers of a row, whole vectors of which may be read and written beyond its end.
pub(super) type Row = [f32; ROW];

/// Numbers that begin where a line of the cache does: of others every vector would be in two lines, which takes longer to
/// read and much longer to write and read at once.
#[repr(align(64))]
pub(super) struct Aligned<T>(pub T);

/// How many numbers further on memory is asked for.
const FAR: usize = 2048;

/// Asks for what is read or written some time after position `at` is: planes lie one behind the other.
#[inline(always)]
pub(super) fn ahead(numbers: &[f32], at: usize) {
    fetch_early(numbers.as_ptr().wrapping_add(at).wrapping_add(FAR), 1);
}

/// Asks for the numbers behind these, as many.
#[inline(always)]
pub(super) fn next(numbers: &[f32]) {
    fetch_early(numbers.as_ptr().wrapping_add(numbers.len()), numbers.len());
}

/// What becomes of two numbers.
pub(super) trait Fold {
    /// What lies beside an image.
    const OUTSIDE: f32;
    /// What changes nothing.
    const NOTHING: f32;
    /// Whether it matters in which order more than two become one.
    const ORDERED: bool;
    /// What becomes of them.
    fn fold<L: Lanes>(l: L, a: L::Vector, b: L::Vector) -> L::Vector;
    /// The same for what [`Fold::strange`] has found nothing in.
    fn quick<L: Lanes>(l: L, a: L::Vector, b: L::Vector) -> L::Vector;
    /// What was known of numbers before, and of more.
    fn strange<L: Lanes>(l: L, x: L::Vector, before: L::Vector) -> L::Vector;
    /// Whether the quick way is for all numbers of which this is known; of none zeros are.
    fn fine<L: Lanes>(l: L, known: L::Vector) -> bool;
}

/// The larger one; not-a-number stays.
pub(super) struct Larger;

impl Fold for Larger {
    const OUTSIDE: f32 = f32::NEG_INFINITY;
    const NOTHING: f32 = f32::NEG_INFINITY;
    // Of those that are equal the first stays, and of those that are no numbers the last.
    const ORDERED: bool = false;

    #[inline(always)]
    fn fold<L: Lanes>(l: L, best: L::Vector, x: L::Vector) -> L::Vector {
        // The larger one is the best where it is not a number, so only the other is looked at.
        l.pick(l.strange(x), x, l.larger(x, best))
    }

    #[inline(always)]
    fn quick<L: Lanes>(l: L, best: L::Vector, x: L::Vector) -> L::Vector {
        l.larger(x, best)
    }

    #[inline(always)]
    fn strange<L: Lanes>(l: L, x: L::Vector, before: L::Vector) -> L::Vector {
        // A sum with one that is not a number is none.
        l.add(x, before)
    }

    #[inline(always)]
    fn fine<L: Lanes>(l: L, sums: L::Vector) -> bool {
        let mut all = [0f32; LANES];
        l.store(sums, &mut all, 0);
        all.iter().fold(true, |fine, sum| fine & !sum.is_nan())
    }
}

/// Their sum; the order of numbers may matter.
pub(super) struct Sum<const ORDERED: bool>;

/// The sum of pixels.
pub(super) type Plus = Sum<true>;

/// The sum of gradients.
pub(super) type Given = Sum<false>;

impl<const ORDERED: bool> Fold for Sum<ORDERED> {
    const OUTSIDE: f32 = 0.0;
    // Where the order matters, zero and this are zero, and two of these are this.
    const NOTHING: f32 = if ORDERED { -0.0 } else { 0.0 };
    const ORDERED: bool = ORDERED;

    #[inline(always)]
    fn fold<L: Lanes>(l: L, a: L::Vector, b: L::Vector) -> L::Vector {
        l.add(a, b)
    }

    #[inline(always)]
    fn quick<L: Lanes>(l: L, a: L::Vector, b: L::Vector) -> L::Vector {
        l.add(a, b)
    }

    #[inline(always)]
    fn strange<L: Lanes>(_: L, _: L::Vector, before: L::Vector) -> L::Vector {
        before
    }

    #[inline(always)]
    fn fine<L: Lanes>(_: L, _: L::Vector) -> bool {
        true
    }
}

/// The gradients of the pixels of a row.
pub(super) trait Slopes: Copy {
    /// Those of a vector of pixels: of the tap `phase`, and of those that are multiples of the stride further, the ones
    /// that windows give to them, of which window number `at` gives its tap `phase` to the first.
    fn at<L: Lanes, const T: usize>(self, l: L, phase: usize, at: usize) -> L::Vector;
}

/// Some numbers of all rows of `x`, made one.
#[inline(always)]
fn fold_rows<L: Lanes, F: Fold>(l: L, x: &[f32], width: usize, at: usize) -> L::Vector {
    let mut all = l.load_some(&x[..width], at);
    let mut from = width;
    while from < x.len() {
        all = F::fold(l, all, l.load_some(&x[from..from + width], at));
        from += width;
    }
    all
}

/// How a row lies in runs: pixel q, counted from the first zero on the left, is number q / stride of run q % stride.
#[derive(Clone, Copy)]
pub(super) struct Runs {
    /// The numbers of a run.
    span: usize,
    pub width: usize,
    before: usize,
    /// Columns of a window, and of windows.
    window: usize,
    pub to: usize,
}

impl Runs {
    /// The runs of a shape's rows, where they fit.
    pub fn new(s: &Shape) -> Option<Runs> {
        let [stride, window] = [s.form.stride[1], s.form.window[1]].map(|n| n as usize);
        let (width, before, to) = (s.from[1], s.form.padding[1] as usize, s.to[1]);
        let windows = to.next_multiple_of(LANES) + (window - 1) / stride;
        let span = (width + before).div_ceil(stride).max(windows);
        // Every window sees some row of the image, and a ring holds it.
        let seen = (0..s.to[0]).all(|i| s.cover(0, i).0 < s.cover(0, i).1);
        let down = seen && s.to[0] <= ROW && s.form.window[0] as usize <= RING;
        let fits = down && stride <= STRIDES && stride * span + 2 * LANES <= ROW && window <= LANES;
        fits.then_some(Runs { span, width, before, window, to })
    }

    /// Where the run for pixels `r`, `r + T`, … begins.
    #[inline(always)]
    fn start<const T: usize>(&self, r: usize) -> usize {
        (self.before + r) % T * self.span + (self.before + r) / T
    }

    /// Where a column of all windows begins.
    #[inline(always)]
    pub fn tap<const T: usize>(&self, column: usize) -> usize {
        column % T * self.span + column / T
    }

    /// The columns of a window, where the compiler knows them or where it does not.
    #[inline(always)]
    pub fn columns<const W: usize>(&self) -> usize {
        if W > 0 { W } else { self.window }
    }

    /// Combines whole rows of an image, at least one, and lays the result out in runs.
    #[inline(always)]
    pub fn split<L: Lanes, F: Fold, const T: usize>(&self, l: L, x: &[f32], row: &mut Row) {
        let mut at = 0;
        while at < self.width {
            let mut all = [l.splat(0.0); 3];
            for (t, some) in all.iter_mut().enumerate().take(T) {
                *some = fold_rows::<L, F>(l, x, self.width, at + t * L::COUNT);
            }
            self.lay::<L, T>(l, all, at, row);
            at += T * L::COUNT;
        }
    }

    /// Lays out `T` vectors of a row, from pixel `at` on, which is a multiple of as many.
    #[inline(always)]
    pub fn lay<L: Lanes, const T: usize>(&self, l: L, all: [L::Vector; 3], at: usize, row: &mut Row) {
        let width = self.width;
        match T {
            1 => l.store_some(all[0], &mut row[self.before..self.before + width], at),
            2 => {
                let [even, odd] = l.part(all[0], all[1]);
                let (e, o) = (self.start::<T>(0), self.start::<T>(1));
                l.store_some(even, &mut row[e..e + width.div_ceil(2)], at / 2);
                l.store_some(odd, &mut row[o..o + width / 2], at / 2);
            }
            _ => {
                for (r, part) in l.part3(all).into_iter().enumerate() {
                    let start = self.start::<T>(r);
                    l.store_some(part, &mut row[start..start + (width + 2 - r) / 3], at / 3);
                }
            }
        }
    }

    /// Whether whole vectors of what is laid out from pixel `at` on stay in their runs.
    #[inline(always)]
    pub fn whole<L: Lanes, const T: usize>(&self, at: usize) -> bool {
        at / T + L::COUNT + self.before.div_ceil(T) <= self.span
    }

    /// The same as [`Runs::lay`], where whole vectors stay in their runs and pixels beyond the row's end are as what lies
    /// beside it.
    #[inline(always)]
    pub fn lay_whole<L: Lanes, const T: usize>(&self, l: L, all: [L::Vector; 3], at: usize, row: &mut Row) {
        match T {
            1 => l.store(all[0], row, self.start::<T>(0) + at),
            2 => {
                for (r, part) in l.part(all[0], all[1]).into_iter().enumerate() {
                    l.store(part, row, self.start::<T>(r) + at / T);
                }
            }
            _ => {
                for (r, part) in l.part3(all).into_iter().enumerate() {
                    l.store(part, row, self.start::<T>(r) + at / T);
                }
            }
        }
    }

    /// Puts row number `row` of an image together. What is written beyond its end is for the next to write over, so rows come
    /// in order.
    #[inline(always)]
    pub fn join<L: Lanes, S: Slopes, const T: usize>(&self, l: L, slopes: S, row: usize, dx: &mut [f32]) {
        // What the first pixel is of a window, known to the compiler.
        match self.before % T {
            0 => self.join_from::<L, S, T, 0>(l, slopes, row, dx),
            1 if T > 1 => self.join_from::<L, S, T, 1>(l, slopes, row, dx),
            _ => self.join_from::<L, S, T, 2>(l, slopes, row, dx),
        }
    }

    #[inline(always)]
    fn join_from<L: Lanes, S: Slopes, const T: usize, const B: usize>(
        &self,
        l: L,
        slopes: S,
        row: usize,
        dx: &mut [f32],
    ) {
        let (n, first, start) = (L::COUNT, self.before / T, row * self.width);
        for at in (0..self.width).step_by(T * n) {
            let mut all = [l.splat(0.0); 3];
            for (r, all) in all.iter_mut().enumerate().take(T) {
                // Of pixels with this remainder: which tap of which window.
                *all = slopes.at::<L, T>(l, (B + r) % T, first + (B + r) / T + at / T);
            }
            put_joined::<L, T>(l, all, (at, self.width), start, dx);
        }
    }
}

/// Writes numbers in turn from `T` vectors, those from pixel `at` on of a row of `width` that begins at `start`. What begins
/// beyond the row's end is not written.
#[inline(always)]
pub(super) fn put_joined<L: Lanes, const T: usize>(
    l: L,
    all: [L::Vector; 3],
    (at, width): (usize, usize),
    start: usize,
    dx: &mut [f32],
) {
    let all = match T {
        1 => all,
        2 => {
            let [low, high] = l.join(all[0], all[1]);
            [low, high, all[2]]
        }
        _ => l.join3(all),
    };
    for (t, some) in all.into_iter().enumerate().take(T) {
        let inside = at + t * L::COUNT;
        if inside < width {
            put(l, some, dx, start + inside);
        }
    }
}

/// Writes a vector, or what of it is before the end.
#[inline(always)]
pub(super) fn put<L: Lanes>(l: L, numbers: L::Vector, to: &mut [f32], at: usize) {
    if at + L::COUNT <= to.len() { l.store(numbers, to, at) } else { l.store_some(numbers, to, at) }
}

/// Calls a function with the stride and the columns of a shape's windows as its last parameters: those that networks have,
/// for which loops are unrolled, and 0 columns for all others.
macro_rules! by_window {
    ($shape:expr, $call:ident::<$($parameter:ty),*> $arguments:tt) => {
        match ($shape.form.stride[1], $shape.form.window[1]) {
            (1, 3) => by_window!(@ $call::<$($parameter,)* 1, 3> $arguments),
            (1, 5) => by_window!(@ $call::<$($parameter,)* 1, 5> $arguments),
            (1, _) => by_window!(@ $call::<$($parameter,)* 1, 0> $arguments),
            (2, 3) => by_window!(@ $call::<$($parameter,)* 2, 3> $arguments),
            (2, _) => by_window!(@ $call::<$($parameter,)* 2, 0> $arguments),
            (_, 5) => by_window!(@ $call::<$($parameter,)* 3, 5> $arguments),
            _ => by_window!(@ $call::<$($parameter,)* 3, 0> $arguments),
        }
    };
    (@ $call:ident::<$($parameter:ty,)* $stride:literal, $columns:literal> ($($argument:expr),*)) => {
        $call::<$($parameter,)* $stride, $columns>($($argument),*)
    };
}
pub(super) use by_window;

//! The gradient of means, row by row: what a row of pixels gets is a sum over the windows that cover it.
//!
//! Rows that are covered by the same windows get the same. So the rows of an image come in bands: the gradients of a band's
//! windows are added up column by column, these sums are handed on to the pixels of its first row, and the others are copies
//! of it.

use super::rows::{LANES, RING, ROW, Row, Runs, Slopes, put};
use super::{Shape, Shares};
use crate::simd::Lanes;

/// The gradients of windows that give to all of their taps.
#[derive(Clone, Copy)]
struct Whole<'a, const W: usize> {
    dy: &'a Row,
    runs: &'a Runs,
}

impl<const W: usize> Slopes for Whole<'_, W> {
    #[inline(always)]
    fn at<L: Lanes, const T: usize>(self, l: L, phase: usize, at: usize) -> L::Vector {
        let (mut sum, mut b) = (l.splat(0.0), phase);
        while b < self.runs.columns::<W>() {
            sum = l.add(sum, l.load(self.dy, LANES + at - b / T));
            b += T;
        }
        sum
    }
}

/// Rows of pixels that the same rows of windows cover: the first of either, and how many.
#[derive(Clone, Copy, Default)]
pub(super) struct Band {
    pub first: usize,
    pub count: usize,
    pub low: usize,
    pub windows: usize,
}

/// The bands of a plane, from above: a window ends one and begins one.
pub(super) struct Bands {
    all: [Band; 2 * ROW + 1],
    count: usize,
}

impl Bands {
    /// Those of a plane whose windows fit a row.
    pub fn new(s: &Shape) -> Bands {
        let mut bands = Bands { all: [Band::default(); 2 * ROW + 1], count: 0 };
        let [stride, before, window] =
            [s.form.stride[0], s.form.padding[0], s.form.window[0]].map(|n| n as usize);
        let mut first = 0;
        while first < s.from[0] {
            let low = (first + before + 1).saturating_sub(window).div_ceil(stride).min(s.to[0]);
            let high = ((first + before) / stride + 1).min(s.to[0]).max(low);
            // The next row that a window begins or ends with.
            let mut end = s.from[0];
            if high < s.to[0] {
                end = end.min(high * stride - before);
            }
            if low < high {
                end = end.min(low * stride + window - before);
            }
            bands.all[bands.count] = Band { first, count: end - first, low, windows: high - low };
            bands.count += 1;
            first = end;
        }
        bands
    }

    /// All of them.
    pub fn all(&self) -> &[Band] {
        &self.all[..self.count]
    }
}

impl Band {
    /// Adds up the gradients of the windows, column by column.
    #[inline(always)]
    fn add_up<L: Lanes>(&self, l: L, to: usize, shares: &Shares, dy: &[f32], sums: &mut Row) {
        for at in (0..to).step_by(L::COUNT) {
            let mut sum = l.splat(0.0);
            for r in self.low..self.low + self.windows {
                let dy = l.load_some(&dy[r * to..][..to], at);
                sum = l.add(sum, l.mul(dy, l.splat(shares.rows[r])));
            }
            l.store(l.mul(sum, l.load(&shares.columns, at)), sums, LANES + at);
        }
    }

    /// Writes the other rows, which are as the first.
    #[inline(always)]
    pub fn copy<L: Lanes>(&self, l: L, width: usize, dx: &mut [f32]) {
        for row in self.first + 1..self.first + self.count {
            // The last vector first: it goes on in this row, which begins with others soon.
            for v in (0..width.div_ceil(L::COUNT)).rev() {
                let from = (row - 1) * width + v * L::COUNT;
                let some = if from + L::COUNT <= dx.len() { l.load(dx, from) } else { l.load_some(dx, from) };
                put(l, some, dx, from + width);
            }
        }
    }
}

/// The gradient of one plane. Two rows of sums are zero beside what windows fill of them.
#[inline(always)]
pub(super) fn slopes<L: Lanes, const T: usize, const W: usize>(
    l: L,
    (runs, shares, bands): (&Runs, &Shares, &[Band]),
    dy: &[f32],
    dx: &mut [f32],
    sums: &mut [Row; RING],
) {
    for i in 0..=bands.len() {
        // What was just written cannot be read at once, so a band is put together after the sums of the next.
        if let Some(band) = bands.get(i) {
            band.add_up(l, runs.to, shares, dy, &mut sums[i % 2]);
        }
        if let Some(last) = i.checked_sub(1) {
            let (band, dy) = (&bands[last], &sums[last % 2]);
            runs.join::<L, _, T>(l, Whole::<W> { dy, runs }, band.first, dx);
            band.copy(l, runs.width, dx);
        }
    }
}

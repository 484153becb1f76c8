//! Depthwise convolutions: one filter a channel, row by row.

use super::{Geometry, Image};
use crate::kernels::pool::Pool;
use crate::kernels::simd::wide;

/// The rows and columns of windows that a tap meets inside the wide side, with the wide side's first of each.
struct Reach {
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
    row: usize,
    column: usize,
}

/// Where windows have their tap (a, b) inside the image.
#[inline(always)]
fn reach(g: &Geometry, a: usize, b: usize) -> Reach {
    let one = |axis: usize, k: usize| {
        let (inside, windows) = match axis {
            0 => (g.wide.height, g.narrow.height),
            _ => (g.wide.width, g.narrow.width),
        };
        let (stride, offset) = (g.stride[axis], k * g.dilation[axis]);
        // Windows i with 0 <= i · stride + offset - before < inside.
        let low = g.before[axis].saturating_sub(offset).div_ceil(stride).min(windows);
        let high = (inside + g.before[axis]).saturating_sub(offset).div_ceil(stride).clamp(low, windows);
        (low..high, (low * stride + offset).saturating_sub(g.before[axis]))
    };
    let ((rows, row), (columns, column)) = (one(0, a), one(1, b));
    Reach { rows, columns, row, column }
}

/// Calls `f` with the start of every row of windows on the narrow side, the start of their pixels on the wide side,
/// and how many there are.
#[inline(always)]
fn rows(g: &Geometry, a: usize, b: usize, mut f: impl FnMut(usize, usize, usize)) {
    let r = reach(g, a, b);
    if r.columns.is_empty() {
        return;
    }
    for (i, row) in r.rows.clone().enumerate() {
        let narrow = row * g.narrow.width + r.columns.start;
        let wide = (r.row + i * g.stride[0]) * g.wide.width + r.column;
        f(narrow, wide, r.columns.len());
    }
}

fn channel(image: Image, at: usize) -> std::ops::Range<usize> {
    at * image.plane()..(at + 1) * image.plane()
}

wide! {
    /// One channel of the narrow side.
    fn narrow_plane(g: &Geometry, w: &[f32], x: &[f32], y: &mut [f32]) {
        let step = g.stride[1];
        for (t, w) in w.iter().enumerate() {
            rows(g, t / g.window[1], t % g.window[1], |narrow, wide, count| {
                let (y, x) = (&mut y[narrow..narrow + count], &x[wide..]);
                if step == 1 {
                    y.iter_mut().zip(x).for_each(|(y, x)| *y += w * x);
                } else {
                    y.iter_mut().zip(x.iter().step_by(step)).for_each(|(y, x)| *y += w * x);
                }
            });
        }
    }
}

wide! {
    /// One channel of the wide side.
    fn wide_plane(g: &Geometry, w: &[f32], y: &[f32], x: &mut [f32]) {
        let step = g.stride[1];
        for (t, w) in w.iter().enumerate() {
            rows(g, t / g.window[1], t % g.window[1], |narrow, wide, count| {
                let (y, x) = (&y[narrow..narrow + count], &mut x[wide..]);
                if step == 1 {
                    x.iter_mut().zip(y).for_each(|(x, y)| *x += w * y);
                } else {
                    x.iter_mut().step_by(step).zip(y).for_each(|(x, y)| *x += w * y);
                }
            });
        }
    }
}

wide! {
    /// Adds one sample's share of one channel's gradient.
    fn weight_plane(g: &Geometry, x: &[f32], y: &[f32], dw: &mut [f32]) {
        let step = g.stride[1];
        for (t, dw) in dw.iter_mut().enumerate() {
            let mut sums = [0f32; 16];
            rows(g, t / g.window[1], t % g.window[1], |narrow, wide, count| {
                let (y, x) = (&y[narrow..narrow + count], &x[wide..]);
                if step == 1 {
                    let (cy, cx) = (y.chunks_exact(16), x[..count].chunks_exact(16));
                    let rest = cy.remainder().iter().zip(cx.remainder());
                    sums.iter_mut().zip(rest).for_each(|(sum, (y, x))| *sum += y * x);
                    for (y, x) in cy.zip(cx) {
                        sums.iter_mut().zip(y.iter().zip(x)).for_each(|(sum, (y, x))| *sum += y * x);
                    }
                } else {
                    sums[0] += y.iter().zip(x.iter().step_by(step)).map(|(y, x)| y * x).sum::<f32>();
                }
            });
            *dw += sums.iter().sum::<f32>();
        }
    }
}

/// The narrow side from the wide one.
pub fn narrow(pool: &mut Pool, g: &Geometry, w: &[f32], bias: Option<&[f32]>, x: &[f32], y: &mut [f32]) {
    let taps = g.taps();
    pool.rows(y, g.narrow.plane(), |start, y| {
        for (i, y) in y.chunks_exact_mut(g.narrow.plane()).enumerate() {
            let c = (start + i) % g.groups;
            let x = &x[channel(g.wide, start + i)];
            y.fill(bias.map_or(0.0, |bias| bias[c]));
            narrow_plane(g, &w[c * taps..(c + 1) * taps], x, y);
        }
    });
}

/// The wide side from the narrow one.
pub fn wide(pool: &mut Pool, g: &Geometry, w: &[f32], bias: Option<&[f32]>, y: &[f32], x: &mut [f32]) {
    let taps = g.taps();
    pool.rows(x, g.wide.plane(), |start, x| {
        for (i, x) in x.chunks_exact_mut(g.wide.plane()).enumerate() {
            let c = (start + i) % g.groups;
            let y = &y[channel(g.narrow, start + i)];
            x.fill(bias.map_or(0.0, |bias| bias[c]));
            wide_plane(g, &w[c * taps..(c + 1) * taps], y, x);
        }
    });
}

/// The weights' gradient from both sides.
pub fn weight(pool: &mut Pool, g: &Geometry, x: &[f32], y: &[f32], dw: &mut [f32]) {
    let taps = g.taps();
    let cost = g.narrow.batch * g.narrow.plane();
    pool.sums(cost, dw, taps, |start, dw| {
        for (i, dw) in dw.chunks_exact_mut(taps).enumerate() {
            let c = start + i;
            dw.fill(0.0);
            for n in 0..g.narrow.batch {
                let (x, y) = (&x[channel(g.wide, n * g.groups + c)], &y[channel(g.narrow, n * g.groups + c)]);
                weight_plane(g, x, y, dw);
            }
        }
    });
}

//! Depthwise convolutions: one filter a channel, row by row.

use super::{Geometry, Image};
use crate::kernels::pool::{Disjoint, Pool, part};
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

/// Elements of a row that are computed at once where the stride is 1.
const WIDE: usize = 16;

/// A plane with zeros around it, so that a convolution of stride 1 meets no edge: rows and columns, the zeros above and
/// left, and the windows' dilation.
#[derive(Clone, Copy)]
struct Padded {
    rows: usize,
    columns: usize,
    before: [usize; 2],
    window: [usize; 2],
    dilation: [usize; 2],
}

impl Padded {
    /// For windows that slide over `from` and give `to`, where the stride is 1 and `before` is what is above and left.
    fn new(g: &Geometry, to: Image, before: [usize; 2]) -> Padded {
        let reach = [0, 1].map(|axis| (g.window[axis] - 1) * g.dilation[axis]);
        let columns = to.width.next_multiple_of(WIDE) + reach[1];
        Padded { rows: to.height + reach[0], columns, before, window: g.window, dilation: g.dilation }
    }

    fn len(&self) -> usize {
        self.rows * self.columns
    }

    fn fill(&self, from: &[f32], image: Image, padded: &mut [f32]) {
        let padded = &mut padded[..self.len()];
        padded.fill(0.0);
        let across = image.width.min(self.columns - self.before[1].min(self.columns));
        for (row, from) in
            padded.chunks_exact_mut(self.columns).skip(self.before[0]).zip(from.chunks_exact(image.width))
        {
            row[self.before[1]..self.before[1] + across].copy_from_slice(&from[..across]);
        }
    }
}

wide! {
    /// One channel by one filter; `flipped` takes the filter from its end.
    fn slide(p: &Padded, x: &[f32], w: &[f32], begin: f32, width: usize, flipped: bool, y: &mut [f32]) {
        for (i, y) in y.chunks_exact_mut(width).enumerate() {
            for (block, y) in y.chunks_mut(WIDE).enumerate() {
                let mut sums = [begin; WIDE];
                for a in 0..p.window[0] {
                    for b in 0..p.window[1] {
                        let at = a * p.window[1] + b;
                        let w = w[if flipped { w.len() - 1 - at } else { at }];
                        let from = (i + a * p.dilation[0]) * p.columns + block * WIDE + b * p.dilation[1];
                        let x: &[f32; WIDE] = x[from..from + WIDE].try_into().expect("so many");
                        sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += w * x);
                    }
                }
                y.copy_from_slice(&sums[..y.len()]);
            }
        }
    }
}

wide! {
    /// Adds one sample's share of one channel's gradient.
    fn slide_weight(p: &Padded, x: &[f32], y: &[f32], width: usize, dw: &mut [f32]) {
        // Three taps at a time, whose sums stay in registers.
        for a in 0..p.window[0] {
            let dw = &mut dw[a * p.window[1]..(a + 1) * p.window[1]];
            for (third, dw) in dw.chunks_mut(3).enumerate() {
                let first = a * p.dilation[0] * p.columns + third * 3 * p.dilation[1];
                match dw.len() {
                    3 => slide_taps::<3>(p, &x[first..], y, width, dw),
                    2 => slide_taps::<2>(p, &x[first..], y, width, dw),
                    _ => slide_taps::<1>(p, &x[first..], y, width, dw),
                }
            }
        }
    }
}

/// Adds what `N` neighbouring taps of a row contribute; `x` begins at the first one's first pixel.
#[inline(always)]
fn slide_taps<const N: usize>(p: &Padded, x: &[f32], y: &[f32], width: usize, dw: &mut [f32]) {
    let mut sums = [[0f32; WIDE]; N];
    for (i, y) in y.chunks_exact(width).enumerate() {
        for (block, y) in y.chunks(WIDE).enumerate() {
            let mut whole = [0f32; WIDE];
            let y = match <&[f32; WIDE]>::try_from(y) {
                Ok(y) => y,
                Err(_) => {
                    whole[..y.len()].copy_from_slice(y);
                    &whole
                }
            };
            for (b, sums) in sums.iter_mut().enumerate() {
                let from = i * p.columns + block * WIDE + b * p.dilation[1];
                let x: &[f32; WIDE] = x[from..from + WIDE].try_into().expect("so many");
                sums.iter_mut().zip(y.iter().zip(x)).for_each(|(sum, (y, x))| *sum += y * x);
            }
        }
    }
    dw.iter_mut().zip(&sums).for_each(|(dw, sums)| *dw += sums.iter().sum::<f32>());
}

/// The padded planes of both directions, where the stride is 1 and no padding is larger than the window.
fn padded(g: &Geometry) -> Option<[Padded; 2]> {
    let reach = [0, 1].map(|axis| (g.window[axis] - 1) * g.dilation[axis]);
    if g.stride != [1; 2] || (0..2).any(|axis| g.before[axis] > reach[axis]) {
        return None;
    }
    let back = [reach[0] - g.before[0], reach[1] - g.before[1]];
    Some([Padded::new(g, g.narrow, g.before), Padded::new(g, g.wide, back)])
}

/// Scratch numbers of one thread.
pub fn scratch(g: &Geometry) -> usize {
    padded(g).map_or(0, |both| both[0].len().max(both[1].len()))
}

/// The narrow side from the wide one.
pub fn narrow(
    pool: &mut Pool,
    g: &Geometry,
    w: &[f32],
    bias: Option<&[f32]>,
    x: &[f32],
    y: &mut [f32],
    scratch: &mut [f32],
) {
    let taps = g.taps();
    let (both, each) = (padded(g), self::scratch(g));
    share(pool, y, g.narrow.plane(), scratch, each, |at, y, scratch| {
        let c = at % g.groups;
        let (x, w) = (&x[channel(g.wide, at)], &w[c * taps..(c + 1) * taps]);
        let begin = bias.map_or(0.0, |bias| bias[c]);
        match both {
            Some([p, _]) => {
                p.fill(x, g.wide, scratch);
                slide(&p, scratch, w, begin, g.narrow.width, false, y);
            }
            None => {
                y.fill(begin);
                narrow_plane(g, w, x, y);
            }
        }
    });
}

/// The wide side from the narrow one.
pub fn wide(
    pool: &mut Pool,
    g: &Geometry,
    w: &[f32],
    bias: Option<&[f32]>,
    y: &[f32],
    x: &mut [f32],
    scratch: &mut [f32],
) {
    let taps = g.taps();
    let (both, each) = (padded(g), self::scratch(g));
    share(pool, x, g.wide.plane(), scratch, each, |at, x, scratch| {
        let c = at % g.groups;
        let (y, w) = (&y[channel(g.narrow, at)], &w[c * taps..(c + 1) * taps]);
        let begin = bias.map_or(0.0, |bias| bias[c]);
        match both {
            Some([_, p]) => {
                p.fill(y, g.narrow, scratch);
                slide(&p, scratch, w, begin, g.wide.width, true, x);
            }
            None => {
                x.fill(begin);
                wide_plane(g, w, y, x);
            }
        }
    });
}

/// The weights' gradient from both sides.
pub fn weight(pool: &mut Pool, g: &Geometry, x: &[f32], y: &[f32], dw: &mut [f32], scratch: &mut [f32]) {
    let (both, each) = (padded(g), self::scratch(g));
    share(pool, dw, g.taps(), scratch, each, |c, dw, scratch| {
        dw.fill(0.0);
        for n in 0..g.narrow.batch {
            let (x, y) = (&x[channel(g.wide, n * g.groups + c)], &y[channel(g.narrow, n * g.groups + c)]);
            match both {
                Some([p, _]) => {
                    p.fill(x, g.wide, scratch);
                    slide_weight(&p, scratch, y, g.narrow.width, dw);
                }
                None => weight_plane(g, x, y, dw),
            }
        }
    });
}

/// Shares out rows of `out`, with scratch memory for each thread.
fn share(
    pool: &mut Pool,
    out: &mut [f32],
    row: usize,
    scratch: &mut [f32],
    each: usize,
    task: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) {
    let (threads, units) = (pool.threads(), out.len() / row);
    let (out, scratch) = (Disjoint::new(out), Disjoint::new(scratch));
    pool.run(&|index| {
        // SAFETY: every thread has scratch and rows of its own.
        let scratch = unsafe { scratch.range(index * each..(index + 1) * each) };
        for at in part(units, threads, index) {
            // SAFETY: as above.
            task(at, unsafe { out.range(at * row..(at + 1) * row) }, scratch);
        }
    });
}

//! Pooling: the largest or the mean of every window, of every channel, and their gradients.

use tiercel_workload::graph::{Pool as Form, PoolKind};

use super::args::{Args, Call};
use super::conv::plane_sum;
use super::simd::wide;

/// A pooling of planes.
#[derive(Clone, Copy)]
struct Shape {
    form: Form,
    /// Rows and columns before and after.
    from: [usize; 2],
    to: [usize; 2],
}

impl Shape {
    /// The rows or columns of the image that window `i` covers on an axis, and how many it covers with padding.
    #[inline]
    fn cover(&self, axis: usize, i: usize) -> (usize, usize, usize) {
        let start = i * self.form.stride[axis] as usize;
        let (before, after) = (self.form.padding[axis] as usize, self.form.padding[axis + 2] as usize);
        let end = (start + self.form.window[axis] as usize).min(self.from[axis] + before + after);
        let inside = |at: usize| at.saturating_sub(before).min(self.from[axis]);
        (inside(start), inside(end), end - start)
    }

    /// One over the number of elements that the mean of a window counts.
    fn share(&self, i: usize, j: usize, count_padding: bool) -> f32 {
        let ((a, b, rows), (c, d, columns)) = (self.cover(0, i), self.cover(1, j));
        let count = if count_padding { rows * columns } else { (b - a) * (d - c) };
        1.0 / count.max(1) as f32
    }
}

fn shape(call: &Call, form: Form) -> Shape {
    let (x, y) = match call.inputs.len() {
        // The gradient of a mean sees neither operand nor result, but their gradients.
        1 if matches!(call.op, tiercel_workload::graph::Op::PoolBackward(_)) => {
            (call.outputs[0], call.inputs[0])
        }
        2 => (call.inputs[0], call.inputs[1]),
        _ => (call.inputs[0], call.outputs[0]),
    };
    let ends = |form: super::args::Form| [form.shape.dim(2) as usize, form.shape.dim(3) as usize];
    Shape { form, from: ends(x), to: ends(y) }
}

wide! {
    /// The larger of each pair; a NaN stays.
    fn larger(best: &mut [f32], x: &[f32], step: usize) {
        let better = |best: &mut f32, x: f32| *best = if x > *best || x.is_nan() { x } else { *best };
        match step {
            1 => best.iter_mut().zip(x).for_each(|(best, x)| better(best, *x)),
            2 => best.iter_mut().zip(x.chunks(2)).for_each(|(best, x)| better(best, x[0])),
            _ => best.iter_mut().zip(x.iter().step_by(step)).for_each(|(best, x)| better(best, *x)),
        }
    }
}

wide! {
    /// Adds to each.
    fn gather(sum: &mut [f32], x: &[f32], step: usize) {
        match step {
            1 => sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += x),
            2 => sum.iter_mut().zip(x.chunks(2)).for_each(|(sum, x)| *sum += x[0]),
            _ => sum.iter_mut().zip(x.iter().step_by(step)).for_each(|(sum, x)| *sum += x),
        }
    }
}

/// Calls `f` for every tap of the windows of row `i`: with the windows that have it inside the image, and the place of
/// the first one's pixel.
fn taps(s: &Shape, i: usize, mut f: impl FnMut(std::ops::Range<usize>, usize)) {
    let (top, bottom, _) = s.cover(0, i);
    let (stride, before) = (s.form.stride[1] as usize, s.form.padding[1] as usize);
    for row in top..bottom {
        for b in 0..s.form.window[1] as usize {
            let low = before.saturating_sub(b).div_ceil(stride).min(s.to[1]);
            let high = (s.from[1] + before).saturating_sub(b).div_ceil(stride).clamp(low, s.to[1]);
            if low < high {
                f(low..high, row * s.from[1] + low * stride + b - before);
            }
        }
    }
}

pub(super) fn forward(mut args: Args<'_, '_>, form: Form) -> Result<(), String> {
    let (x, y) = (args.read(0)?, args.write(0)?);
    let s = shape(args.call, form);
    let (from, to, step) = (s.from[0] * s.from[1], s.to[0] * s.to[1], form.stride[1] as usize);
    args.pool.rows(y, to, |start, y| {
        for (p, y) in y.chunks_exact_mut(to).enumerate() {
            let x = &x[(start + p) * from..][..from];
            for (i, y) in y.chunks_exact_mut(s.to[1]).enumerate() {
                match form.kind {
                    PoolKind::Max => {
                        y.fill(f32::NEG_INFINITY);
                        taps(&s, i, |windows, at| larger(&mut y[windows], &x[at..], step));
                    }
                    PoolKind::Average { count_padding } => {
                        y.fill(0.0);
                        taps(&s, i, |windows, at| gather(&mut y[windows], &x[at..], step));
                        y.iter_mut().enumerate().for_each(|(j, y)| *y *= s.share(i, j, count_padding));
                    }
                }
            }
        }
    });
    Ok(())
}

pub(super) fn backward(mut args: Args<'_, '_>, form: Form) -> Result<(), String> {
    let s = shape(args.call, form);
    let (x, dy) = match form.kind {
        PoolKind::Max => (args.read(0)?, args.read(1)?),
        PoolKind::Average { .. } => (&[][..], args.read(0)?),
    };
    let dx = args.write(0)?;
    let (from, to, width) = (s.from[0] * s.from[1], s.to[0] * s.to[1], s.from[1]);
    args.pool.rows(dx, from, |start, dx| {
        for (p, dx) in dx.chunks_exact_mut(from).enumerate() {
            dx.fill(0.0);
            let dy = &dy[(start + p) * to..][..to];
            let x = if x.is_empty() { x } else { &x[(start + p) * from..][..from] };
            for (i, dy) in dy.chunks_exact(s.to[1]).enumerate() {
                let (top, bottom, _) = s.cover(0, i);
                for (j, dy) in dy.iter().enumerate() {
                    let (left, right, _) = s.cover(1, j);
                    if let PoolKind::Average { count_padding } = form.kind {
                        let share = dy * s.share(i, j, count_padding);
                        for row in top..bottom {
                            dx[row * width + left..row * width + right]
                                .iter_mut()
                                .for_each(|dx| *dx += share);
                        }
                        continue;
                    }
                    if top == bottom || left == right {
                        continue;
                    }
                    let mut best = top * width + left;
                    let mut value = x[best];
                    for row in top..bottom {
                        for (k, x) in x[row * width + left..row * width + right].iter().enumerate() {
                            let better = *x > value || (x.is_nan() && !value.is_nan());
                            (best, value) = if better { (row * width + left + k, *x) } else { (best, value) };
                        }
                    }
                    dx[best] += dy;
                }
            }
        }
    });
    Ok(())
}

pub(super) fn global(mut args: Args<'_, '_>) -> Result<(), String> {
    let (x, y) = (args.read(0)?, args.write(0)?);
    let plane = x.len() / y.len();
    args.pool.sums(plane, y, 1, |start, y| {
        for (i, y) in y.iter_mut().enumerate() {
            *y = plane_sum(&x[(start + i) * plane..][..plane]) / plane as f32;
        }
    });
    Ok(())
}

pub(super) fn global_backward(mut args: Args<'_, '_>) -> Result<(), String> {
    let (dy, dx) = (args.read(0)?, args.write(0)?);
    let plane = dx.len() / dy.len();
    let share = 1.0 / plane as f32;
    args.pool.rows(dx, plane, |start, dx| {
        dx.chunks_exact_mut(plane).enumerate().for_each(|(i, dx)| dx.fill(dy[start + i] * share));
    });
    Ok(())
}

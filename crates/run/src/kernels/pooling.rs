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

impl Shape {
    /// The windows of a row that lie inside the image on that axis, padding aside.
    fn inside(&self, axis: usize) -> std::ops::Range<usize> {
        let (stride, before) = (self.form.stride[axis] as usize, self.form.padding[axis] as usize);
        let low = before.div_ceil(stride).min(self.to[axis]);
        let room = (self.from[axis] + before).checked_sub(self.form.window[axis] as usize);
        low..room.map_or(low, |room| (room / stride + 1).clamp(low, self.to[axis]))
    }
}

/// Columns that fit the buffer of a row; wider images are cut.
const WIDE: usize = 2048;

wide! {
    /// Combines rows of an image, and then the columns of every window: one row of results.
    fn row[F: Fn(f32, f32) -> f32](
        s: &Shape,
        i: usize,
        x: &[f32],
        y: &mut [f32],
        begin: f32,
        buffer: &mut [f32; WIDE],
        f: F,
    ) {
        let (top, bottom, _) = s.cover(0, i);
        let (stride, before) = (s.form.stride[1] as usize, s.form.padding[1] as usize);
        let (width, window) = (s.from[1], s.form.window[1] as usize);
        let inside = s.inside(1);
        if width <= WIDE && !inside.is_empty() {
            let buffer = &mut buffer[..width];
            buffer.fill(begin);
            for x in x[top * width..bottom * width].chunks_exact(width) {
                buffer.iter_mut().zip(x).for_each(|(best, x)| *best = f(*best, *x));
            }
            let first = inside.start * stride - before;
            let out = &mut y[inside.clone()];
            out.fill(begin);
            for b in 0..window {
                let from = &buffer[first + b..];
                match stride {
                    1 => out.iter_mut().zip(from).for_each(|(y, x)| *y = f(*y, *x)),
                    2 => out.iter_mut().zip(from.chunks(2)).for_each(|(y, x)| *y = f(*y, x[0])),
                    _ => out.iter_mut().zip(from.iter().step_by(stride)).for_each(|(y, x)| *y = f(*y, *x)),
                }
            }
            for j in (0..inside.start).chain(inside.end..s.to[1]) {
                let (left, right, _) = s.cover(1, j);
                y[j] = buffer[left..right].iter().fold(begin, |y, x| f(y, *x));
            }
            return;
        }
        for (j, y) in y.iter_mut().enumerate() {
            let (left, right, _) = s.cover(1, j);
            *y = begin;
            for r in top..bottom {
                *y = x[r * width + left..r * width + right].iter().fold(*y, |y, x| f(y, *x));
            }
        }
    }
}

#[inline(always)]
fn larger(best: f32, x: f32) -> f32 {
    // A NaN stays.
    if x > best || x.is_nan() { x } else { best }
}

#[inline(always)]
fn plus(sum: f32, x: f32) -> f32 {
    sum + x
}

/// Calls `f` with every window of row `i`, and one over what its mean counts.
fn shares(s: &Shape, i: usize, count_padding: bool, mut f: impl FnMut(usize, f32)) {
    let inside = s.inside(1);
    let usual = s.share(i, inside.start, count_padding);
    for j in 0..s.to[1] {
        f(j, if inside.contains(&j) { usual } else { s.share(i, j, count_padding) });
    }
}

pub(super) fn forward(mut args: Args<'_, '_>, form: Form) -> Result<(), String> {
    let (x, y) = (args.read(0)?, args.write(0)?);
    let s = shape(args.call, form);
    let (from, to) = (s.from[0] * s.from[1], s.to[0] * s.to[1]);
    args.pool.rows(y, to, |start, y| {
        let mut buffer = [0f32; WIDE];
        for (p, y) in y.chunks_exact_mut(to).enumerate() {
            let x = &x[(start + p) * from..][..from];
            for (i, y) in y.chunks_exact_mut(s.to[1]).enumerate() {
                match form.kind {
                    PoolKind::Max => row(&s, i, x, y, f32::NEG_INFINITY, &mut buffer, larger),
                    PoolKind::Average { count_padding } => {
                        row(&s, i, x, y, 0.0, &mut buffer, plus);
                        shares(&s, i, count_padding, |j, share| y[j] *= share);
                    }
                }
            }
        }
    });
    Ok(())
}

/// Adds the gradient of a window's largest element to that element.
#[inline(always)]
fn add_to_largest(
    x: &[f32],
    dx: &mut [f32],
    width: usize,
    rows: (usize, usize),
    columns: (usize, usize),
    dy: f32,
) {
    let mut best = rows.0 * width + columns.0;
    let mut value = x[best];
    for row in rows.0..rows.1 {
        let from = row * width + columns.0;
        for (k, x) in x[from..row * width + columns.1].iter().enumerate() {
            let better = *x > value;
            best = if better { from + k } else { best };
            value = if better { *x } else { value };
        }
    }
    dx[best] += dy;
}

wide! {
    /// The gradient of one plane of a maximum.
    fn max_backward(s: &Shape, x: &[f32], dy: &[f32], dx: &mut [f32]) {
        let (stride, before) = (s.form.stride[1] as usize, s.form.padding[1] as usize);
        let (width, window) = (s.from[1], s.form.window[1] as usize);
        let inside = s.inside(1);
        for (i, dy) in dy.chunks_exact(s.to[1]).enumerate() {
            let (top, bottom, _) = s.cover(0, i);
            if top == bottom {
                continue;
            }
            for (j, dy) in dy.iter().enumerate() {
                let (left, right) = if inside.contains(&j) {
                    (j * stride - before, j * stride - before + window)
                } else {
                    let (left, right, _) = s.cover(1, j);
                    (left, right)
                };
                if left < right {
                    // Constant sides for the windows that networks have: their loops are unrolled.
                    match (bottom - top, right - left) {
                        (2, 2) => add_to_largest(x, dx, width, (top, top + 2), (left, left + 2), *dy),
                        (3, 3) => add_to_largest(x, dx, width, (top, top + 3), (left, left + 3), *dy),
                        _ => add_to_largest(x, dx, width, (top, bottom), (left, right), *dy),
                    }
                }
            }
        }
    }
}

wide! {
    /// The gradient of one plane of a mean.
    fn mean_backward(s: &Shape, dy: &[f32], dx: &mut [f32], count_padding: bool) {
        let (stride, before) = (s.form.stride[1] as usize, s.form.padding[1] as usize);
        let (width, window) = (s.from[1], s.form.window[1] as usize);
        let inside = s.inside(1);
        for (i, dy) in dy.chunks_exact(s.to[1]).enumerate() {
            let (top, bottom, _) = s.cover(0, i);
            let usual = s.share(i, inside.start, count_padding);
            for dx in dx[top * width..bottom * width].chunks_exact_mut(width) {
                if !inside.is_empty() {
                    let first = inside.start * stride - before;
                    for b in 0..window {
                        let to = dx[first + b..].iter_mut().step_by(stride);
                        to.zip(&dy[inside.clone()]).for_each(|(dx, dy)| *dx += dy * usual);
                    }
                }
                for j in (0..inside.start).chain(inside.end..s.to[1]) {
                    let (left, right, _) = s.cover(1, j);
                    let share = dy[j] * s.share(i, j, count_padding);
                    dx[left..right].iter_mut().for_each(|dx| *dx += share);
                }
            }
        }
    }
}

pub(super) fn backward(mut args: Args<'_, '_>, form: Form) -> Result<(), String> {
    let s = shape(args.call, form);
    let (x, dy) = match form.kind {
        PoolKind::Max => (args.read(0)?, args.read(1)?),
        PoolKind::Average { .. } => (&[][..], args.read(0)?),
    };
    let dx = args.write(0)?;
    let (from, to) = (s.from[0] * s.from[1], s.to[0] * s.to[1]);
    args.pool.rows(dx, from, |start, dx| {
        for (p, dx) in dx.chunks_exact_mut(from).enumerate() {
            dx.fill(0.0);
            let dy = &dy[(start + p) * to..][..to];
            match form.kind {
                PoolKind::Max => max_backward(&s, &x[(start + p) * from..][..from], dy, dx),
                PoolKind::Average { count_padding } => {
                    mean_backward(&s, dy, dx, count_padding);
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

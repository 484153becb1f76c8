//! Pooling: the largest or the mean of every window, of every channel, and their gradients.

mod back;

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
    /// Whether windows are two by two, without padding, and do not overlap.
    fn pairs(&self) -> bool {
        let Form { window, stride, padding, .. } = self.form;
        let whole = (0..2).all(|axis| 2 * self.to[axis] <= self.from[axis]);
        window == [2; 2] && stride == [2; 2] && padding == [0; 4] && whole
    }

    /// The windows of a row that lie inside the image on that axis, padding aside.
    fn inside(&self, axis: usize) -> std::ops::Range<usize> {
        let (stride, before) = (self.form.stride[axis] as usize, self.form.padding[axis] as usize);
        let low = before.div_ceil(stride).min(self.to[axis]);
        let room = (self.from[axis] + before).checked_sub(self.form.window[axis] as usize);
        low..room.map_or(low, |room| (room / stride + 1).clamp(low, self.to[axis]))
    }
}

/// Columns, with padding, that fit the buffer of a row; wider images take plain loops.
const WIDE: usize = 1024;

/// Windows that are computed at once.
const LANES: usize = 16;

/// The largest stride whose windows are computed at once.
const STRIDES: usize = 3;

/// A row of an image, or the rows of a window made one; whole vectors may be read beyond its end.
type Row = [f32; WIDE + STRIDES * LANES];

/// Combines the columns of windows that stand `S` apart, the first of which begins at `first`.
#[inline(always)]
fn columns<const S: usize>(
    row: &Row,
    first: usize,
    window: usize,
    y: &mut [f32],
    begin: f32,
    f: impl Fn(f32, f32) -> f32,
) {
    for (block, y) in y.chunks_mut(LANES).enumerate() {
        let mut out = [begin; LANES];
        for b in 0..window {
            let x = &row[first + block * LANES * S + b..][..LANES * S];
            out.iter_mut().enumerate().for_each(|(lane, out)| *out = f(*out, x[lane * S]));
        }
        y.copy_from_slice(&out[..y.len()]);
    }
}

wide! {
    /// Combines rows of an image, and then the columns of every window: one plane of results.
    fn combine[F: Fn(f32, f32) -> f32](s: &Shape, x: &[f32], y: &mut [f32], begin: f32, row: &mut Row, f: F) {
        let (stride, before) = (s.form.stride[1] as usize, s.form.padding[1] as usize);
        let (width, window, inside) = (s.from[1], s.form.window[1] as usize, s.inside(1));
        if s.pairs() && s.to[1] < LANES {
            // Rows too short for vectors of windows.
            for (x, y) in x.chunks_exact(2 * width).zip(y.chunks_exact_mut(s.to[1])) {
                let (x0, x1) = x.split_at(width);
                for ((x0, x1), y) in x0.chunks_exact(2).zip(x1.chunks_exact(2)).zip(y) {
                    *y = f(f(x0[0], x0[1]), f(x1[0], x1[1]));
                }
            }
            return;
        }
        for (i, y) in y.chunks_exact_mut(s.to[1]).enumerate() {
            let (top, bottom, _) = s.cover(0, i);
            let mut rows = x[top * width..bottom * width].chunks_exact(width);
            if width <= WIDE {
                let all = &mut row[..width];
                match (rows.next(), rows.next()) {
                    (Some(a), Some(b)) => {
                        all.iter_mut().zip(a.iter().zip(b)).for_each(|(best, (a, b))| *best = f(*a, *b));
                    }
                    (Some(a), None) => all.copy_from_slice(a),
                    _ => all.fill(begin),
                }
                for x in rows {
                    all.iter_mut().zip(x).for_each(|(best, x)| *best = f(*best, *x));
                }
                if !inside.is_empty() {
                    let (first, y) = (inside.start * stride - before, &mut y[inside.clone()]);
                    match stride {
                        1 => columns::<1>(row, first, window, y, begin, &f),
                        2 => columns::<2>(row, first, window, y, begin, &f),
                        3 => columns::<3>(row, first, window, y, begin, &f),
                        _ => y.iter_mut().enumerate().for_each(|(j, y)| {
                            *y = row[first + j * stride..][..window].iter().fold(begin, |y, x| f(y, *x));
                        }),
                    }
                }
                for j in (0..inside.start).chain(inside.end..s.to[1]) {
                    let (left, right, _) = s.cover(1, j);
                    y[j] = row[left..right].iter().fold(begin, |y, x| f(y, *x));
                }
                continue;
            }
            for (j, y) in y.iter_mut().enumerate() {
                let (left, right, _) = s.cover(1, j);
                *y = rows.clone().flat_map(|x| &x[left..right]).fold(begin, |y, x| f(y, *x));
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

wide! {
    /// Multiplies every window of row `i` by one over what its mean counts.
    fn share_out(s: &Shape, i: usize, count_padding: bool, y: &mut [f32]) {
        let inside = s.inside(1);
        if !inside.is_empty() {
            let usual = s.share(i, inside.start, count_padding);
            y[inside.clone()].iter_mut().for_each(|y| *y *= usual);
        }
        for j in (0..inside.start).chain(inside.end..s.to[1]) {
            y[j] *= s.share(i, j, count_padding);
        }
    }
}

pub(super) fn forward(mut args: Args<'_, '_>, form: Form) -> Result<(), String> {
    let (x, y) = (args.read(0)?, args.write(0)?);
    let s = shape(args.call, form);
    let (from, to) = (s.from[0] * s.from[1], s.to[0] * s.to[1]);
    args.pool.rows(y, to, |start, y| {
        let mut row = [0f32; WIDE + STRIDES * LANES];
        for (p, y) in y.chunks_exact_mut(to).enumerate() {
            let x = &x[(start + p) * from..][..from];
            match form.kind {
                PoolKind::Max => combine(&s, x, y, f32::NEG_INFINITY, &mut row, larger),
                PoolKind::Average { count_padding } => {
                    combine(&s, x, y, 0.0, &mut row, plus);
                    for (i, y) in y.chunks_exact_mut(s.to[1]).enumerate() {
                        share_out(&s, i, count_padding, y);
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
    let (from, to) = (s.from[0] * s.from[1], s.to[0] * s.to[1]);
    args.pool.rows(dx, from, |start, dx| {
        let mut rings = back::Rings::new();
        for (p, dx) in dx.chunks_exact_mut(from).enumerate() {
            let dy = &dy[(start + p) * to..][..to];
            match form.kind {
                PoolKind::Max => back::max(&s, &x[(start + p) * from..][..from], dy, dx, &mut rings),
                PoolKind::Average { count_padding } => back::mean(&s, dy, dx, count_padding, &mut rings),
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

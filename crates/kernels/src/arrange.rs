//! Kernels that only move numbers: concatenation, ranges of an axis, padding, exchange of axes.

use crate::KernelError;
use tiercel_workload::graph::Shape;

use super::args::Args;
use super::pool::Pool;
use super::simd;

/// Elements of one step on an axis and all axes behind it.
fn inner(shape: Shape, axis: usize) -> usize {
    shape.dims()[axis + 1..].iter().product::<u64>() as usize
}

/// Rows of a slice: the length of one, and the part of it that is meant.
#[derive(Clone, Copy)]
struct Part {
    row: usize,
    from: usize,
}

/// Copies `count` numbers of every row.
fn copy(pool: &mut Pool, from: (&[f32], Part), to: (&mut [f32], Part), count: usize) {
    let ((from, source), (to, target)) = (from, to);
    if to.len() == target.row {
        let from = &from[source.from..][..count];
        pool.rows(&mut to[target.from..][..count], 1, |start, to| {
            to.copy_from_slice(&from[start..][..to.len()])
        });
        return;
    }
    pool.rows(to, target.row, |start, to| {
        for (i, to) in to.chunks_exact_mut(target.row).enumerate() {
            let from = &from[(start + i) * source.row + source.from..][..count];
            to[target.from..target.from + count].copy_from_slice(from);
        }
    });
}

pub(super) fn concat(mut args: Args<'_, '_>, axis: usize) -> Result<(), KernelError> {
    let y = args.write(0)?;
    let shape = args.call.outputs[0].shape;
    let row = shape.dim(axis) as usize * inner(shape, axis);
    let mut at = 0;
    for i in 0..args.call.inputs.len() {
        let count = args.call.dim(i, axis) * inner(shape, axis);
        let x = args.read(i)?;
        copy(args.pool, (x, Part { row: count, from: 0 }), (y, Part { row, from: at }), count);
        at += count;
    }
    Ok(())
}

pub(super) fn split(mut args: Args<'_, '_>, axis: usize, start: u64) -> Result<(), KernelError> {
    let x = args.read(0)?;
    let shape = args.call.inputs[0].shape;
    let inner = inner(shape, axis);
    let row = shape.dim(axis) as usize * inner;
    let mut at = start as usize * inner;
    for i in 0..args.call.outputs.len() {
        let count = args.call.outputs[i].shape.dim(axis) as usize * inner;
        let y = args.write(i)?;
        copy(args.pool, (x, Part { row, from: at }), (y, Part { row: count, from: 0 }), count);
        at += count;
    }
    Ok(())
}

pub(super) fn pad(mut args: Args<'_, '_>, axis: usize, before: u64) -> Result<(), KernelError> {
    let (x, y) = (args.read(0)?, args.write(0)?);
    let (from, to) = (args.call.inputs[0].shape, args.call.outputs[0].shape);
    let inner = inner(to, axis);
    let (row, count) = (to.dim(axis) as usize * inner, from.dim(axis) as usize * inner);
    let at = before as usize * inner;
    args.pool.rows(y, row, |start, y| {
        for (i, y) in y.chunks_exact_mut(row).enumerate() {
            y[..at].fill(0.0);
            y[at..at + count].copy_from_slice(&x[(start + i) * count..][..count]);
            y[at + count..].fill(0.0);
        }
    });
    Ok(())
}

/// Rows that are turned into columns at a time: their pages stay at hand.
const SIDE: usize = 64;

/// Numbers that a row gives from which on it is long.
const LONG: usize = 1024;

/// How the axes of a result lie in an operand whose axes are in another order.
struct Order<'o> {
    from: Shape,
    to: Shape,
    order: &'o [usize],
}

impl Order<'_> {
    /// The distance in the operand of neighbours on an axis of the result.
    fn distance(&self, axis: usize) -> usize {
        inner(self.from, self.order[axis])
    }

    /// Where in the operand index `at` is, counted over some axes of the result.
    fn place(&self, axes: std::ops::Range<usize>, mut at: usize) -> usize {
        let mut place = 0;
        for axis in axes.rev() {
            let extent = self.to.dim(axis) as usize;
            place += at % extent * self.distance(axis);
            at /= extent;
        }
        place
    }

    /// Fills `y`, which is some of axis `side` (whose neighbours are neighbours in the operand) by all axes behind it:
    /// planes of that axis by the last one, whose rows and columns are exchanged.
    fn exchange(&self, side: usize, x: &[f32], y: &mut [f32]) {
        let last = self.to.rank() - 1;
        let (width, across) = (self.to.dim(last) as usize, self.distance(last));
        let row = inner(self.to, side);
        // Of long lines memory sees what comes next by itself.
        let turn = if y.len() / row < LONG { simd::transpose_far } else { simd::transpose };
        for between in 0..row / width {
            let place = self.place(side + 1..last, between);
            for left in (0..width).step_by(SIDE) {
                let (some, y_left) = (SIDE.min(width - left), between * width + left);
                let x = &x[place + left * across..];
                turn(x, across, some, y.len() / row, row, &mut y[y_left..]);
            }
        }
    }
}

pub(super) fn transpose(mut args: Args<'_, '_>, order: &[usize]) -> Result<(), KernelError> {
    let (x, y) = (args.read(0)?, args.write(0)?);
    let (from, to) = (args.call.inputs[0].shape, args.call.outputs[0].shape);
    let Some(last) = to.rank().checked_sub(1) else {
        y.copy_from_slice(x);
        return Ok(());
    };
    let all = Order { from, to, order };
    let side = order.iter().position(|axis| *axis == last).ok_or(KernelError::Axis)?;
    let row = if side == last { to.dim(last) as usize } else { inner(to, side) };
    let plane = row * to.dim(side) as usize;
    if side == last {
        let (down, height) = (all.distance(last.max(1) - 1), to.dim(last.max(1) - 1) as usize);
        args.pool.rows(y, row, |start, y| {
            let mut rows = y.chunks_exact_mut(row);
            let mut at = start;
            while rows.len() > 0 {
                // The rest of the rows on the axis before the last.
                let some = (height - at % height).min(rows.len());
                let place = all.place(0..last, at);
                for (r, y) in rows.by_ref().take(some).enumerate() {
                    y.copy_from_slice(&x[place + r * down..][..row]);
                }
                at += some;
            }
        });
    } else if y.len() == plane {
        // A single stack of planes is shared out by rows.
        args.pool.rows(y, row, |start, y| all.exchange(side, &x[start..], y));
    } else {
        args.pool.rows(y, plane, |start, y| {
            for (i, y) in y.chunks_exact_mut(plane).enumerate() {
                all.exchange(side, &x[all.place(0..side, start + i)..], y);
            }
        });
    }
    Ok(())
}

//! Kernels that only move numbers: concatenation, ranges of an axis, padding, exchange of axes.

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

pub(super) fn concat(mut args: Args<'_, '_>, axis: usize) -> Result<(), String> {
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

pub(super) fn split(mut args: Args<'_, '_>, axis: usize, start: u64) -> Result<(), String> {
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

pub(super) fn pad(mut args: Args<'_, '_>, axis: usize, before: u64) -> Result<(), String> {
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

pub(super) fn transpose(mut args: Args<'_, '_>, order: &[usize]) -> Result<(), String> {
    let (x, y) = (args.read(0)?, args.write(0)?);
    let (from, to) = (args.call.inputs[0].shape, args.call.outputs[0].shape);
    let rank = to.rank();
    if rank < 2 {
        y.copy_from_slice(x);
        return Ok(());
    }
    let distance = |axis: usize| inner(from, order[axis]);
    let (width, height) = (to.dim(rank - 1) as usize, to.dim(rank - 2) as usize);
    let (across, down) = (distance(rank - 1), distance(rank - 2));
    // A single plane is shared out by rows, many by planes.
    let planes = y.len() / (width * height);
    if planes == 1 && across != 1 && down == 1 {
        args.pool.rows(y, width, |start, y| {
            let height = y.len() / width;
            for left in (0..width).step_by(SIDE) {
                let some = SIDE.min(width - left);
                simd::transpose(&x[start + left * across..], across, some, height, width, &mut y[left..]);
            }
        });
        return Ok(());
    }
    args.pool.rows(y, width * height, |start, y| {
        for (i, y) in y.chunks_exact_mut(width * height).enumerate() {
            let (mut at, mut place) = (start + i, 0);
            for axis in (0..rank - 2).rev() {
                let extent = to.dim(axis) as usize;
                place += at % extent * distance(axis);
                at /= extent;
            }
            if across == 1 {
                for (r, y) in y.chunks_exact_mut(width).enumerate() {
                    y.copy_from_slice(&x[place + r * down..][..width]);
                }
            } else if down == 1 {
                for left in (0..width).step_by(SIDE) {
                    let some = SIDE.min(width - left);
                    simd::transpose(&x[place + left * across..], across, some, height, width, &mut y[left..]);
                }
            } else {
                for (r, y) in y.chunks_exact_mut(width).enumerate() {
                    let from = x[place + r * down..].iter().step_by(across);
                    y.iter_mut().zip(from).for_each(|(y, x)| *y = *x);
                }
            }
        }
    });
    Ok(())
}

//! Linear layers and plain matrix products, forward and backward.

use tiercel_workload::graph::Op;

use super::args::{Args, Call};
use super::gemm::{Bias, Extent, Matrix, Put, matrix, multiply, multiply_part};
use super::pool::Pool;
use super::shares::{Boxes, Each};
use super::simd::wide;

/// The product that a call computes, for each of its leading indices.
fn extent(call: &Call) -> Extent {
    match &call.op {
        Op::Linear => Extent::new(call.len(0) / call.last(0), call.dim(1, 0), call.last(0)),
        Op::LinearBackwardData => Extent::new(call.len(1) / call.last(1), call.dim(0, 1), call.dim(0, 0)),
        Op::LinearBackwardWeight => Extent::new(call.last(1), call.last(0), call.len(0) / call.last(0)),
        Op::MatMul { transpose_a, .. } => {
            let y = call.outputs[0].shape;
            let rank = y.rank();
            let depth = call.dim(0, if *transpose_a { rank - 2 } else { rank - 1 });
            Extent::new(y.dim(rank - 2) as usize, y.dim(rank - 1) as usize, depth)
        }
        other => unreachable!("{} is no product", other.name()),
    }
}

/// Scratch numbers that a call needs.
pub(super) fn scratch(call: &Call, threads: usize) -> usize {
    extent(call).scratch() * threads
}

pub(super) fn forward(mut args: Args<'_, '_>) -> Result<(), String> {
    let (x, w, bias) = (args.read(0)?, args.read(1)?, args.optional(2)?);
    let (e, y, scratch) = (extent(args.call), args.write(0)?, args.scratch());
    let bias = bias.map_or(Bias::None, Bias::Columns);
    let (a, b) = (Matrix::by_line(x, e.depth), Matrix::by_line(w, e.depth));
    multiply(args.pool, e, &a, &b, (matrix(y, e), &Put::new(bias)), scratch);
    Ok(())
}

pub(super) fn backward_data(mut args: Args<'_, '_>) -> Result<(), String> {
    let (w, dy) = (args.read(0)?, args.read(1)?);
    let (e, dx, scratch) = (extent(args.call), args.write(0)?, args.scratch());
    let (a, b) = (Matrix::by_line(dy, e.depth), Matrix::by_depth(w, e.columns));
    multiply(args.pool, e, &a, &b, (matrix(dx, e), &Put::new(Bias::None)), scratch);
    Ok(())
}

pub(super) fn backward_weight(mut args: Args<'_, '_>) -> Result<(), String> {
    let (x, dy) = (args.read(0)?, args.read(1)?);
    let (e, dw, db, scratch) = (extent(args.call), args.write(0)?, args.write_optional(1)?, args.scratch());
    if e.depth <= FEW {
        let columns = e.columns;
        args.pool.rows(dw, columns, |start, dw| {
            for (row, dw) in dw.chunks_exact_mut(columns).enumerate() {
                combine(dw, x, dy[start + row..].iter().step_by(e.rows).copied());
            }
        });
    } else {
        let (a, b) = (Matrix::by_depth(dy, e.rows), Matrix::by_depth(x, e.columns));
        multiply(args.pool, e, &a, &b, (matrix(dw, e), &Put::new(Bias::None)), scratch);
    }
    if let Some(db) = db {
        column_sums(args.pool, dy, db);
    }
    Ok(())
}

/// Samples up to which a row of the weights' gradient is made of them one after the other.
const FEW: usize = 4;

wide! {
    /// Σ of the rows of a matrix by as many factors.
    fn combine[I: Iterator<Item = f32>](out: &mut [f32], rows: &[f32], factors: I) {
        for (at, (row, factor)) in rows.chunks_exact(out.len()).zip(factors).enumerate() {
            match at {
                0 => out.iter_mut().zip(row).for_each(|(out, x)| *out = factor * x),
                _ => out.iter_mut().zip(row).for_each(|(out, x)| *out += factor * x),
            }
        }
    }
}

pub(super) fn product(mut args: Args<'_, '_>) -> Result<(), String> {
    let Op::MatMul { transpose_a, transpose_b } = args.call.op else { unreachable!("a matrix product") };
    let (a, b) = (args.read(0)?, args.read(1)?);
    let (e, y, scratch) = (extent(args.call), args.write(0)?, args.scratch());
    let matrices = |a, b| {
        let a = if transpose_a { Matrix::by_depth(a, e.rows) } else { Matrix::by_line(a, e.depth) };
        let b = if transpose_b { Matrix::by_line(b, e.depth) } else { Matrix::by_depth(b, e.columns) };
        (a, b)
    };
    let (size_a, size_b, size) = (e.rows * e.depth, e.depth * e.columns, e.rows * e.columns);
    let (batch, each) = (y.len() / size, e.scratch());
    if batch == 1 {
        let (a, b) = matrices(a, b);
        multiply(args.pool, e, &a, &b, (matrix(y, e), &Put::new(Bias::None)), scratch);
        return Ok(());
    }
    let shares =
        (Each::new(scratch, each), Boxes::new(y, [batch, e.rows, 1, e.columns], [1, e.rows, 1, e.columns]));
    args.pool.each(shares, |_, (scratch, mut products)| {
        for i in products.units() {
            let (a, b) = matrices(&a[i * size_a..][..size_a], &b[i * size_b..][..size_b]);
            let mut one = products.get(i);
            multiply_part(e, &a, &b, (&mut one.matrix(), &Put::new(Bias::None)), scratch);
        }
    });
    Ok(())
}

/// The sum of every column of a matrix.
pub(super) fn column_sums(pool: &mut Pool, numbers: &[f32], sums: &mut [f32]) {
    let columns = sums.len();
    let rows = numbers.len() / columns.max(1);
    pool.sums(rows, sums, 1, |start, sums| sum_rows(numbers, columns, start, sums));
}

wide! {
    /// Adds up the rows of a matrix, from column `start` on.
    fn sum_rows(numbers: &[f32], columns: usize, start: usize, sums: &mut [f32]) {
        sums.fill(0.0);
        for row in numbers.chunks_exact(columns) {
            for (sum, number) in sums.iter_mut().zip(&row[start..]) {
                *sum += number;
            }
        }
    }
}

//! Linear layers and plain matrix products, forward and backward.
//!
//! Products of few rows, or of little depth, would take longer to pack than to compute: these read the weights as they
//! lie. A call may have a part of the weights only (`tiercel_workload::parts`): then results and their gradients are some
//! columns of wider rows, which are a `pitch` apart, and how to compute is chosen as for the whole.

use crate::KernelError;
use tiercel_workload::graph::Op;
use tiercel_workload::parts::{self, weights};

use super::args::{Args, Call};
use super::gemm::{Bias, Extent, Matrix, Put, Rows, multiply, multiply_part};
use super::pool::Pool;
use super::room;
use super::shares::{self, Boxes, Each};
use super::simd::{LINES, Lying, Tile, lines, transpose, wide};
use super::{medium_batch, shallow, small_batch};

/// The product that a call computes, for each of its leading indices.
fn extent(call: &Call) -> Extent {
    match &call.op {
        Op::Linear => Extent::new(call.len(0) / call.last(0), call.dim(1, 0), call.last(0)),
        Op::LinearBackwardData => {
            Extent::new(call.len(1) / call.last(1), call.dim(0, 1), call.dim(0, 0)).deep()
        }
        Op::LinearBackwardWeight => {
            Extent::new(call.last(1), call.last(0), call.len(0) / call.last(0)).deep()
        }
        Op::MatMul { transpose_a, .. } => {
            let y = call.outputs[0].shape;
            let rank = y.rank();
            let depth = call.dim(0, if *transpose_a { rank - 2 } else { rank - 1 });
            Extent::new(y.dim(rank - 2) as usize, y.dim(rank - 1) as usize, depth)
        }
        other => unreachable!("{} is no product", other.name()),
    }
}

/// The gradients of more than a few samples, rows a pitch apart, on top of what is there already where `add`.
pub(super) fn slopes(
    pool: &mut Pool,
    e: Extent,
    w: &[f32],
    (dy, pitch): (&[f32], usize),
    (dx, add): (&mut [f32], bool),
    scratch: &mut [f32],
) {
    if is_medium(e) {
        return medium_batch::slopes(pool, e, w, (dy, pitch), (dx, add), scratch);
    }
    let (a, b) = (Matrix::by_line(dy, pitch), Matrix::by_depth(w, e.columns));
    let more = if add { Bias::Add } else { Bias::None };
    multiply(pool, e.deep(), &a, &b, &Rows::new(dx, e.columns, more), scratch);
}

/// Scratch numbers of one thread for these.
pub(super) fn slopes_scratch(e: Extent) -> usize {
    if is_medium(e) { medium_batch::scratch(e) } else { e.deep().scratch() }
}

/// Whether so few samples meet the weights as they lie.
fn is_medium(e: Extent) -> bool {
    e.rows <= SOME && medium_batch::applies(e)
}

/// Scratch numbers that a call needs: room to pack in, where it packs.
pub(super) fn scratch(call: &Call, threads: usize) -> usize {
    let e = extent(call);
    if call.op == Op::Linear && narrow(e) && !call.outputs[0].is_apart() {
        return threads * room(e.depth * Tile::here().lanes);
    }
    if call.op == Op::LinearBackwardData {
        return threads * data_scratch(e, call.inputs[1].pitch);
    }
    if call.op == Op::Linear && shallow_results(e) {
        return threads * shallow::scratch(e);
    }
    if call.op == Op::LinearBackwardWeight && e.depth <= SOME {
        return threads * shallow::scratch(e);
    }
    if call.op == Op::LinearBackwardWeight && e.rows <= HANDFUL {
        return room(e.rows * e.depth).max(threads * e.scratch());
    }
    if call.op == Op::LinearBackwardWeight && e.columns <= SHALLOW {
        return room(e.columns * e.rows) + threads * turned_extent(e).scratch();
    }
    match &call.op {
        Op::Linear if e.rows <= FEW => 0,
        _ => e.scratch() * threads,
    }
}

pub(super) fn forward(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let (x, w, bias) = (args.read(0)?, args.read(1)?, args.optional(2)?);
    let (e, to, y, scratch) = (extent(args.call), args.call.outputs[0], args.write(0)?, args.scratch());
    if e.rows <= FEW {
        small_batch::results(args.pool, e, x, w, bias, y);
        return Ok(());
    }
    if e.columns == 1 && !to.is_apart() {
        // The other way round: the samples are the weights of one sample.
        small_batch::results(args.pool, Extent::new(1, e.rows, e.depth), w, x, None, y);
        if let Some(bias) = bias {
            y.iter_mut().for_each(|y| *y += bias[0]);
        }
        return Ok(());
    }
    if narrow(e) && !to.is_apart() {
        few_results(args.pool, e, x, w, bias, y, scratch);
        return Ok(());
    }
    let bias = bias.map_or(Bias::None, Bias::Columns);
    let (a, b) = (Matrix::by_line(x, e.depth), Matrix::by_line(w, e.depth));
    if shallow_results(e) {
        let a = Lying { numbers: x, row: e.depth, along: 1 };
        shallow::multiply(args.pool, e, a, &b, (y, bias), scratch);
        return Ok(());
    }
    multiply(args.pool, e, &a, &b, &Rows::new(y, to.pitch, bias), scratch);
    Ok(())
}

pub(super) fn backward_data(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let (w, dy) = (args.read(0)?, args.read(1)?);
    let (e, pitch, dx, scratch) =
        (extent(args.call), args.call.inputs[1].pitch, args.write(0)?, args.scratch());
    let add = args.call.inputs.len() > 2;
    data(args.pool, e, w, (dy, pitch), (dx, add), scratch);
    Ok(())
}

/// The gradients of samples, rows of what they come from a pitch apart, on top of what is there already where `add`.
pub(super) fn data(
    pool: &mut Pool,
    e: Extent,
    w: &[f32],
    (dy, pitch): (&[f32], usize),
    (dx, add): (&mut [f32], bool),
    scratch: &mut [f32],
) {
    if e.depth <= SHALLOW && pitch == e.depth {
        let a = Lying { numbers: dy, row: e.depth, along: 1 };
        shallow::multiply(pool, e, a, &Matrix::by_depth(w, e.columns), (dx, Bias::None), scratch);
    } else if e.rows <= FEW {
        small_batch::slopes(pool, e, w, dy, (dx, false));
    } else {
        slopes(pool, e, w, (dy, pitch), (dx, add), scratch);
    }
}

/// Scratch numbers of one thread for these.
pub(super) fn data_scratch(e: Extent, pitch: usize) -> usize {
    if e.depth <= SHALLOW && pitch == e.depth {
        shallow::scratch(e)
    } else if e.rows <= FEW {
        0
    } else {
        slopes_scratch(e)
    }
}

pub(super) fn backward_weight(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let (x, dy) = (args.read(0)?, args.read(1)?);
    let (e, pitch, add) = (extent(args.call), args.call.inputs[1].pitch, args.call.inputs.len() > 2);
    let (dw, db, scratch) = (args.write(0)?, args.write_optional(1)?, args.scratch());
    let (a, b) = (Matrix::by_depth(dy, pitch), Matrix::by_depth(x, e.columns));
    let more = if add { Bias::Add } else { Bias::None };
    if e.depth <= SOME {
        let a = Lying { numbers: dy, row: 1, along: pitch };
        shallow::multiply(args.pool, e, a, &b, (dw, more), scratch);
    } else if e.rows <= HANDFUL && pitch == e.rows {
        // Outputs are the samples of one whose weights are what the layer reads.
        let turned = &mut scratch[..e.rows * e.depth];
        transpose(dy, e.rows, e.depth, e.rows, e.depth, turned);
        small_batch::slopes(args.pool, e, x, turned, (dw, add));
    } else if e.columns <= SHALLOW {
        // The other way round: more of a vector is used, and more of what it meets.
        let (turned, rest) = scratch.split_at_mut(room(e.rows * e.columns));
        let (turned, other) = (&mut turned[..e.rows * e.columns], turned_extent(e));
        if add {
            transpose(dw, e.columns, e.rows, e.columns, e.rows, turned);
        }
        multiply(args.pool, other, &b, &a, &Rows::new(turned, e.rows, more), rest);
        transpose(turned, e.rows, e.columns, e.rows, e.columns, dw);
    } else {
        multiply(args.pool, e, &a, &b, &Rows::new(dw, e.columns, more), scratch);
    }
    if let Some(db) = db {
        column_sums(args.pool, dy, pitch, db, add);
    }
    Ok(())
}

/// Samples up to which nothing is packed: weights are read once, as they lie, or written once.
const FEW: usize = 12;
const _: () = assert!((FEW as u64) < weights::SAMPLES, "so few samples never come in parts");

/// Samples up to which reading the weights takes about as long as multiplying them, and writing their gradients about as long
/// as computing these.
pub(super) const SOME: usize = 64;
const _: () = assert!(FEW as u64 <= parts::FEW && SOME as u64 <= parts::FEW, "parts have more samples");

/// Outputs up to which the weights' gradients are sums of what the layer reads, each times a number.
const HANDFUL: usize = 4;
const _: () = assert!(HANDFUL as u64 <= weights::OUTPUTS, "so few outputs have kernels of their own");

/// Outputs, or inputs, up to which a layer has products of little depth or of few rows.
const SHALLOW: usize = 16;
const _: () = assert!(SHALLOW as u64 <= weights::SHORT, "so short rows never come in parts");

/// Whether the results are a product of little depth.
fn shallow_results(e: Extent) -> bool {
    e.depth <= SHALLOW
}

/// The product that a turned gradient of the weights is.
fn turned_extent(e: Extent) -> Extent {
    Extent::new(e.columns, e.rows, e.depth).deep()
}

/// Whether the results of a sample fit a vector, and there are many: then only the weights are packed.
fn narrow(e: Extent) -> bool {
    e.rows > FEW && e.columns <= Tile::here().lanes
}

/// Few results for many samples: each sample's are one vector.
fn few_results(
    pool: &mut Pool,
    e: Extent,
    x: &[f32],
    w: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    scratch: &mut [f32],
) {
    let lanes = Tile::here().lanes;
    let shares = (Each::new(scratch, room(e.depth * lanes)), shares::Rows::new(y, e.columns, e.rows));
    pool.each(shares, |_, (packed, (start, y))| {
        transpose(w, e.depth, e.columns, e.depth, lanes, packed);
        let mut out = [0f32; LINES * 16];
        for (at, y) in y.chunks_mut(LINES * e.columns).enumerate() {
            let rows = y.len() / e.columns;
            let x = &x[(start + at * LINES) * e.depth..][..rows * e.depth];
            lines(e.depth, rows, (x, e.depth), packed, &mut out);
            for (y, out) in y.chunks_exact_mut(e.columns).zip(out.chunks_exact(lanes)) {
                match bias {
                    Some(bias) => y.iter_mut().zip(out).zip(bias).for_each(|((y, out), b)| *y = out + b),
                    None => y.copy_from_slice(&out[..e.columns]),
                }
            }
        }
    });
}

pub(super) fn product(mut args: Args<'_, '_>) -> Result<(), KernelError> {
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
        multiply(args.pool, e, &a, &b, &Rows::new(y, e.columns, Bias::None), scratch);
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

/// The sum of every column of a matrix whose rows are a pitch apart, on top of what is there already where `add`.
pub(super) fn column_sums(pool: &mut Pool, numbers: &[f32], pitch: usize, sums: &mut [f32], add: bool) {
    let rows = numbers.len().div_ceil(pitch.max(1));
    pool.sums(rows, sums, 1, |start, sums| {
        if !add {
            sums.fill(0.0);
        }
        sum_rows(numbers, pitch, start, sums);
    });
}

wide! {
    /// Adds up the rows of a matrix, from column `start` on.
    fn sum_rows(numbers: &[f32], pitch: usize, start: usize, sums: &mut [f32]) {
        for row in numbers.chunks(pitch.max(1)) {
            for (sum, number) in sums.iter_mut().zip(&row[start..]) {
                *sum += number;
            }
        }
    }
}

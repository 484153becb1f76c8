//! Linear layers and plain matrix products, forward and backward.
//!
//! Products of few rows, or of little depth, would take longer to pack than to compute: these read the weights as they
//! lie. A call may have a part of the weights only (`tiercel_workload::parts`): then results and their gradients are some
//! columns of wider rows, which are a `pitch` apart, and how to compute is chosen as for the whole.

use tiercel_workload::graph::Op;
use tiercel_workload::parts::{self, weights};

use super::args::{Args, Call};
use super::gemm::{Bias, Extent, Matrix, Put, Rows, multiply, multiply_part};
use super::loss::dot;
use super::pool::Pool;
use super::room;
use super::shares::{self, Boxes, Each};
use super::simd::{Finish, LINES, Lying, Panels, STRIP, Strip, Tile, expect, lines, strip, transpose, wide};

/// The product that a call computes, for each of its leading indices.
fn extent(call: &Call) -> Extent {
    match &call.op {
        Op::Linear => Extent::new(call.len(0) / call.last(0), call.dim(1, 0), call.last(0)),
        Op::LinearBackwardData => {
            let e = Extent::new(call.len(1) / call.last(1), call.dim(0, 1), call.dim(0, 0));
            if e.rows <= SOME { e.shallow() } else { e.deep() }
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

/// Scratch numbers that a call needs: room to pack in, where it packs.
pub(super) fn scratch(call: &Call, threads: usize) -> usize {
    let e = extent(call);
    if call.op == Op::Linear && narrow(e) && !call.outputs[0].is_apart() {
        return threads * room(e.depth * Tile::here().lanes);
    }
    if call.op == Op::LinearBackwardData && e.depth <= SHALLOW && !call.inputs[1].is_apart() {
        return threads * band(e);
    }
    let packs = match &call.op {
        Op::Linear => e.rows > FEW,
        Op::LinearBackwardData => e.rows > FEW,
        Op::LinearBackwardWeight => e.depth > FEW,
        _ => true,
    };
    if packs { e.scratch() * threads } else { 0 }
}

pub(super) fn forward(mut args: Args<'_, '_>) -> Result<(), String> {
    let (x, w, bias) = (args.read(0)?, args.read(1)?, args.optional(2)?);
    let (e, to, y, scratch) = (extent(args.call), args.call.outputs[0], args.write(0)?, args.scratch());
    if e.rows <= FEW {
        few_samples(args.pool, e, x, w, bias, y);
        return Ok(());
    }
    if narrow(e) && !to.is_apart() {
        few_results(args.pool, e, x, w, bias, y, scratch);
        return Ok(());
    }
    let bias = bias.map_or(Bias::None, Bias::Columns);
    let (a, b) = (Matrix::by_line(x, e.depth), Matrix::by_line(w, e.depth));
    multiply(args.pool, e, &a, &b, &Rows::new(y, to.pitch, bias), scratch);
    Ok(())
}

pub(super) fn backward_data(mut args: Args<'_, '_>) -> Result<(), String> {
    let (w, dy) = (args.read(0)?, args.read(1)?);
    let (e, from, dx, scratch) = (extent(args.call), args.call.inputs[1], args.write(0)?, args.scratch());
    if e.depth <= SHALLOW && !from.is_apart() {
        shallow_slopes(args.pool, e, w, dy, dx, scratch);
    } else if e.rows <= FEW {
        few_slopes(args.pool, e, w, dy, dx);
    } else {
        let (a, b) = (Matrix::by_line(dy, from.pitch), Matrix::by_depth(w, e.columns));
        let more = if args.call.inputs.len() > 2 { Bias::Add } else { Bias::None };
        multiply(args.pool, e, &a, &b, &Rows::new(dx, e.columns, more), scratch);
    }
    Ok(())
}

pub(super) fn backward_weight(mut args: Args<'_, '_>) -> Result<(), String> {
    let (x, dy) = (args.read(0)?, args.read(1)?);
    let (e, pitch, add) = (extent(args.call), args.call.inputs[1].pitch, args.call.inputs.len() > 2);
    let (dw, db, scratch) = (args.write(0)?, args.write_optional(1)?, args.scratch());
    if e.depth <= FEW {
        let columns = e.columns;
        args.pool.rows(dw, columns, |start, dw| {
            for (row, dw) in dw.chunks_exact_mut(columns).enumerate() {
                combine(dw, x, columns, dy[start + row..].iter().step_by(pitch).copied(), false);
            }
        });
    } else {
        let (a, b) = (Matrix::by_depth(dy, pitch), Matrix::by_depth(x, e.columns));
        let more = if add { Bias::Add } else { Bias::None };
        multiply(args.pool, e, &a, &b, &Rows::new(dw, e.columns, more), scratch);
    }
    if let Some(db) = db {
        column_sums(args.pool, dy, pitch, db, add);
    }
    Ok(())
}

/// Samples up to which nothing is packed: weights are read once, as they lie, or written once.
const FEW: usize = 4;
const _: () = assert!((FEW as u64) < weights::SAMPLES, "so few samples never come in parts");

/// Samples up to which reading the weights takes about as long as multiplying them.
const SOME: usize = 64;
const _: () = assert!(FEW as u64 <= parts::FEW && SOME as u64 <= parts::FEW, "parts have more samples");

/// Outputs up to which only the weights are packed for the gradients of samples.
const SHALLOW: usize = 16;

/// Columns of such weights that are packed at a time: they stay in the first-level cache.
const BAND: usize = 512;

/// Rows of weights that are used for one sample after the other while they are in the cache.
const BLOCK: usize = 32;

/// A matrix with a row for each of few samples, of which threads have some columns.
fn columns(numbers: &mut [f32], e: Extent, threads: usize) -> Boxes<'_, f32> {
    let some = e.columns.div_ceil(threads).next_multiple_of(16);
    Boxes::new(numbers, [e.rows, 1, 1, e.columns], [e.rows, 1, 1, some])
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

/// The results for few samples: dot products.
fn few_samples(pool: &mut Pool, e: Extent, x: &[f32], w: &[f32], bias: Option<&[f32]>, y: &mut [f32]) {
    let y = columns(y, e, pool.threads());
    pool.each_of(e.columns * e.depth, y, |_, mut some| {
        for unit in some.units() {
            let mut y = some.get(unit);
            let range = y.ranges()[3].clone();
            for (at, column) in range.enumerate() {
                let (w, bias) = (&w[column * e.depth..][..e.depth], bias.map_or(0.0, |bias| bias[column]));
                for (row, x) in x.chunks_exact(e.depth).enumerate() {
                    y.run([row, 0, 0])[at] = dot(x, w) + bias;
                }
            }
        }
    });
}

/// The gradients of few samples: sums of the rows of the weights.
fn few_slopes(pool: &mut Pool, e: Extent, w: &[f32], dy: &[f32], dx: &mut [f32]) {
    let dx = columns(dx, e, pool.threads());
    pool.each_of(e.columns * e.depth, dx, |_, mut some| {
        for unit in some.units() {
            let mut dx = some.get(unit);
            let first = dx.ranges()[3].start;
            for top in (0..e.depth).step_by(BLOCK) {
                let w = &w[top * e.columns + first..];
                for (row, dy) in dy.chunks_exact(e.depth).enumerate() {
                    let factors = dy[top..(top + BLOCK).min(e.depth)].iter().copied();
                    combine(dx.run([row, 0, 0]), w, e.columns, factors, top > 0);
                }
            }
        }
    });
}

/// Numbers of a band of packed weights.
fn band(e: Extent) -> usize {
    room(e.depth * e.columns.min(BAND).next_multiple_of(Tile::here().columns()))
}

/// The gradients of samples with few outputs: some columns of the weights at a time meet all samples, a few of which are
/// written where they belong while memory is asked for the place of the next. However few samples there are, so that a batch
/// has the same gradients in parts.
fn shallow_slopes(pool: &mut Pool, e: Extent, w: &[f32], dy: &[f32], dx: &mut [f32], scratch: &mut [f32]) {
    let Extent { rows, columns, depth, .. } = e;
    let (wide, some) = (Tile::here().columns(), STRIP.min(Tile::here().rows));
    let shares = (Each::new(scratch, band(e)), shares::Rows::new(dx, columns, rows));
    pool.each_of(rows * columns * depth, shares, |_, (packed, (start, dx))| {
        let samples = dx.len() / columns;
        for first in (0..columns).step_by(BAND) {
            let end = columns.min(first + BAND);
            let panels = packed.chunks_exact_mut(depth * wide);
            for (left, panel) in (first..end).step_by(wide).zip(panels) {
                for (w, row) in w.chunks_exact(columns).zip(panel.chunks_exact_mut(wide)) {
                    let w = &w[left..end.min(left + wide)];
                    row[..w.len()].copy_from_slice(w);
                }
            }
            let b = Panels { numbers: packed, deep: depth };
            for top in (0..samples).step_by(some) {
                let a = Lying { numbers: &dy[(start + top) * depth..], row: depth, along: 1 };
                for next in top + some..samples.min(top + 2 * some) {
                    expect(dx[next * columns + first..].as_ptr(), end - first);
                }
                let size = [some.min(samples - top), end - first];
                let mut to = Strip::new(&mut dx[top * columns + first..], size, columns);
                strip(depth, a, b, Finish { factor: 1.0, add: false }, &mut to);
            }
        }
    });
}

wide! {
    /// Σ of rows that are `stride` apart, each times its factor, or what is there and that.
    fn combine[I: Iterator<Item = f32>](out: &mut [f32], rows: &[f32], stride: usize, factors: I, add: bool) {
        let len = out.len();
        let mut rows = factors.enumerate().map(|(at, factor)| (factor, &rows[at * stride..][..len]));
        if !add {
            match rows.next() {
                Some((f, a)) => out.iter_mut().zip(a).for_each(|(out, a)| *out = f * a),
                None => out.fill(0.0),
            }
        }
        while let Some((f, a)) = rows.next() {
            match [rows.next(), rows.next(), rows.next()] {
                [Some((g, b)), Some((h, c)), Some((i, d))] => {
                    for ((((out, a), b), c), d) in out.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                        *out += (f * a + g * b) + (h * c + i * d);
                    }
                }
                rest => {
                    for (f, a) in std::iter::once((f, a)).chain(rest.into_iter().flatten()) {
                        out.iter_mut().zip(a).for_each(|(out, a)| *out += f * a);
                    }
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// One by one samples have the same bits, and they are those that one computes by hand.
    #[test]
    fn gradients_of_few_outputs_do_not_depend_on_other_samples() {
        let mut random = fastrand::Rng::with_seed(4);
        let mut numbers = |count: usize| (0..count).map(|_| random.f32() - 0.5).collect::<Vec<f32>>();
        for (rows, columns, depth) in [(1, 1, 1), (13, 40, 10), (9, 600, 16), (35, 512, 3), (21, 1030, 7)] {
            let (w, dy) = (numbers(depth * columns), numbers(rows * depth));
            let slopes = |dy: &[f32], threads: usize| {
                let e = Extent::new(dy.len() / depth, columns, depth);
                let mut scratch = vec![0f32; threads * band(e)];
                let mut dx = vec![7f32; e.rows * columns];
                shallow_slopes(&mut Pool::new(threads), e, &w, dy, &mut dx, &mut scratch);
                dx
            };
            let dx = slopes(&dy, 2);
            assert_eq!(dx, dy.chunks(depth).flat_map(|dy| slopes(dy, 1)).collect::<Vec<f32>>());
            for (i, dx) in dx.iter().enumerate() {
                let product = |k: usize| dy[i / columns * depth + k] * w[k * columns + i % columns];
                let expected: f32 = (0..depth).map(product).sum();
                assert!((dx - expected).abs() < 1e-5, "{dx} for {expected} at {i}");
            }
        }
    }
}

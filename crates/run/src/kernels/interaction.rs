//! DLRM's interaction: the dot products of all pairs of features, and their gradient.
//!
//! A sample's features lie in as many tensors; they are gathered side by side first, and then turned, so that the
//! products of one feature with all others are vectors.

use super::args::{Args, Call};
use super::pool::{Disjoint, part};
use super::room;
use super::simd::{transpose, wide};

/// Scratch numbers: the features of all samples side by side, and for each thread those of one sample, turned; where
/// gradients are wanted, the gradients likewise, and a square of pairs for each thread.
pub(super) fn scratch(call: &Call, threads: usize, backward: bool) -> usize {
    let n = call.inputs.len() - usize::from(backward);
    let stride = n.next_multiple_of(WIDE);
    let (all, one) = (room(n * call.len(0)), stride * call.dim(0, 1));
    if backward { 2 * all + threads * (2 * one + n * stride) } else { all + threads * one }
}

/// Copies all features side by side: sample by sample, then feature by feature.
fn gather(args: &mut Args<'_, '_>, n: usize, d: usize, out: &mut [f32]) -> Result<(), String> {
    for i in 0..n {
        let x = args.read(i)?;
        args.pool.rows(out, n * d, |start, out| {
            for (s, out) in out.chunks_exact_mut(n * d).enumerate() {
                out[i * d..(i + 1) * d].copy_from_slice(&x[(start + s) * d..][..d]);
            }
        });
    }
    Ok(())
}

/// Features that are computed with at once; rows of turned features are as many of these as hold all.
const WIDE: usize = 16;

/// Σ over k of factors[k] · rows[k], for the columns of one block.
#[inline(always)]
fn mix<'f>(factors: impl Iterator<Item = &'f f32>, rows: &[f32], stride: usize, block: usize) -> [f32; WIDE] {
    let mut sums = [0f32; WIDE];
    for (factor, row) in factors.zip(rows.chunks_exact(stride)) {
        let row: &[f32; WIDE] = row[block * WIDE..(block + 1) * WIDE].try_into().expect("so many");
        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += factor * x);
    }
    sums
}

wide! {
    /// The first feature and all products of one sample, whose features are turned.
    fn products(turned: &[f32], n: usize, d: usize, y: &mut [f32]) {
        let stride = n.next_multiple_of(WIDE);
        let (first, mut rest) = y.split_at_mut(d);
        first.iter_mut().zip(turned.iter().step_by(stride)).for_each(|(y, x)| *y = *x);
        for i in 1..n {
            let (out, more) = rest.split_at_mut(i);
            rest = more;
            for (block, out) in out.chunks_mut(WIDE).enumerate() {
                let sums = mix(turned[i..].iter().step_by(stride), turned, stride, block);
                out.copy_from_slice(&sums[..out.len()]);
            }
        }
    }
}

wide! {
    /// The gradients by all features of one sample, turned; `pairs` has room for the slope of every pair, in both
    /// orders.
    fn slopes(turned: &[f32], n: usize, d: usize, dy: &[f32], pairs: &mut [f32], out: &mut [f32]) {
        let stride = n.next_multiple_of(WIDE);
        let mut at = d;
        for i in 0..n {
            pairs[i * stride + i] = 0.0;
            for j in 0..i {
                pairs[i * stride + j] = dy[at];
                pairs[j * stride + i] = dy[at];
                at += 1;
            }
        }
        for (k, (out, element)) in out.chunks_exact_mut(stride).zip(turned.chunks_exact(stride)).enumerate() {
            for (block, out) in out.chunks_exact_mut(WIDE).enumerate() {
                out.copy_from_slice(&mix(element[..n].iter(), &pairs[..n * stride], stride, block));
            }
            out[0] += dy[k];
        }
    }
}

pub(super) fn forward(mut args: Args<'_, '_>) -> Result<(), String> {
    let (n, d) = (args.call.inputs.len(), args.call.dim(0, 1));
    let stride = n.next_multiple_of(WIDE);
    let (all, batch, one) = (n * args.call.len(0), args.call.dim(0, 0), stride * d);
    let (y, scratch) = (args.write(0)?, args.scratch());
    let (features, turned) = scratch.split_at_mut(room(all));
    gather(&mut args, n, d, &mut features[..all])?;
    let (row, features, threads) = (d + n * (n - 1) / 2, &*features, args.pool.threads());
    let (y, turned) = (Disjoint::new(y), Disjoint::new(turned));
    args.pool.run(&|index| {
        // SAFETY: every thread has scratch and samples of its own.
        let turned = unsafe { turned.range(index * one..(index + 1) * one) };
        for s in part(batch, threads, index) {
            transpose(&features[s * n * d..][..n * d], d, n, d, stride, turned);
            // SAFETY: as above.
            products(turned, n, d, unsafe { y.range(s * row..(s + 1) * row) });
        }
    });
    Ok(())
}

pub(super) fn backward(mut args: Args<'_, '_>) -> Result<(), String> {
    let (n, d) = (args.call.outputs.len(), args.call.dim(0, 1));
    let dy = args.read(n)?;
    let stride = n.next_multiple_of(WIDE);
    let (all, batch, one) = (n * args.call.len(0), args.call.dim(0, 0), stride * d);
    let (features, rest) = args.scratch().split_at_mut(room(all));
    let (gradients, rest) = rest.split_at_mut(room(all));
    gather(&mut args, n, d, &mut features[..all])?;
    let (row, each) = (d + n * (n - 1) / 2, 2 * one + n * stride);
    let (features, threads) = (&features[..all], args.pool.threads());
    let (out, rest) = (Disjoint::new(gradients), Disjoint::new(rest));
    args.pool.run(&|index| {
        // SAFETY: every thread has scratch and samples of its own.
        let (turned, rest) = unsafe { rest.range(index * each..(index + 1) * each) }.split_at_mut(one);
        let (slope, pairs) = rest.split_at_mut(one);
        for s in part(batch, threads, index) {
            transpose(&features[s * n * d..][..n * d], d, n, d, stride, turned);
            slopes(turned, n, d, &dy[s * row..][..row], pairs, slope);
            // SAFETY: as above.
            transpose(slope, stride, d, n, d, unsafe { out.range(s * n * d..(s + 1) * n * d) });
        }
    });
    let gradients = &*gradients;
    for i in 0..n {
        let dx = args.write(i)?;
        args.pool.rows(dx, d, |start, dx| {
            for (s, dx) in dx.chunks_exact_mut(d).enumerate() {
                dx.copy_from_slice(&gradients[((start + s) * n + i) * d..][..d]);
            }
        });
    }
    Ok(())
}

//! DLRM's interaction: the dot products of all pairs of features, and their gradient.
//!
//! A sample's features lie in as many tensors; they are gathered side by side first, element by element, so that the
//! products of one feature with all others are vectors.

use super::args::{Args, Call};
use super::simd::wide;
use super::{pool::Disjoint, room};

/// Scratch numbers: the features of all samples side by side; where gradients are wanted, these too, and a square of
/// pairs for each thread.
pub(super) fn scratch(call: &Call, threads: usize, backward: bool) -> usize {
    let n = call.inputs.len() - usize::from(backward);
    let all = room(n * call.len(0));
    if backward { 2 * all + threads * room(n * n) } else { all }
}

/// Copies all features side by side: sample by sample, element by element, then feature by feature.
fn gather(args: &mut Args<'_, '_>, n: usize, d: usize, out: &mut [f32]) -> Result<(), String> {
    for i in 0..n {
        let x = args.read(i)?;
        args.pool.rows(out, n * d, |start, out| {
            for (s, out) in out.chunks_exact_mut(n * d).enumerate() {
                let x = &x[(start + s) * d..][..d];
                out[i..].iter_mut().step_by(n).zip(x).for_each(|(out, x)| *out = *x);
            }
        });
    }
    Ok(())
}

wide! {
    /// The first feature and all products of one sample.
    fn products(features: &[f32], n: usize, d: usize, y: &mut [f32]) {
        let (first, mut rest) = y.split_at_mut(d);
        first.iter_mut().zip(features.iter().step_by(n)).for_each(|(y, x)| *y = *x);
        for i in 1..n {
            let (out, more) = rest.split_at_mut(i);
            rest = more;
            out.fill(0.0);
            for element in features.chunks_exact(n) {
                let a = element[i];
                out.iter_mut().zip(element).for_each(|(out, b)| *out += a * b);
            }
        }
    }
}

wide! {
    /// The gradients by all features of one sample; `pairs` has room for the slope of every pair, in both orders.
    fn slopes(features: &[f32], n: usize, d: usize, dy: &[f32], pairs: &mut [f32], out: &mut [f32]) {
        let mut at = d;
        for i in 0..n {
            pairs[i * n + i] = 0.0;
            for j in 0..i {
                pairs[i * n + j] = dy[at];
                pairs[j * n + i] = dy[at];
                at += 1;
            }
        }
        for (k, (out, element)) in out.chunks_exact_mut(n).zip(features.chunks_exact(n)).enumerate() {
            out.fill(0.0);
            for (a, pairs) in element.iter().zip(pairs.chunks_exact(n)) {
                out.iter_mut().zip(pairs).for_each(|(out, slope)| *out += a * slope);
            }
            out[0] += dy[k];
        }
    }
}

pub(super) fn forward(mut args: Args<'_, '_>) -> Result<(), String> {
    let (n, d) = (args.call.inputs.len(), args.call.dim(0, 1));
    let (y, scratch) = (args.write(0)?, args.scratch());
    let features = &mut scratch[..n * args.call.len(0)];
    gather(&mut args, n, d, features)?;
    let (row, features) = (d + n * (n - 1) / 2, &*features);
    args.pool.rows(y, row, |start, y| {
        for (s, y) in y.chunks_exact_mut(row).enumerate() {
            products(&features[(start + s) * n * d..][..n * d], n, d, y);
        }
    });
    Ok(())
}

pub(super) fn backward(mut args: Args<'_, '_>) -> Result<(), String> {
    let (n, d) = (args.call.outputs.len(), args.call.dim(0, 1));
    let dy = args.read(n)?;
    let (all, batch) = (n * args.call.len(0), args.call.dim(0, 0));
    let (features, rest) = args.scratch().split_at_mut(room(all));
    let (gradients, pairs) = rest.split_at_mut(room(all));
    gather(&mut args, n, d, &mut features[..all])?;
    let row = d + n * (n - 1) / 2;
    let (features, threads) = (&features[..all], args.pool.threads());
    let (out, pairs) = (Disjoint::new(gradients), Disjoint::new(pairs));
    args.pool.run(&|index| {
        // SAFETY: every thread has pairs and samples of its own.
        let pairs = unsafe { pairs.range(index * room(n * n)..(index + 1) * room(n * n)) };
        for s in super::pool::part(batch, threads, index) {
            // SAFETY: as above.
            let out = unsafe { out.range(s * n * d..(s + 1) * n * d) };
            slopes(&features[s * n * d..][..n * d], n, d, &dy[s * row..][..row], pairs, out);
        }
    });
    let gradients = &*gradients;
    for i in 0..n {
        let dx = args.write(i)?;
        args.pool.rows(dx, d, |start, dx| {
            for (s, dx) in dx.chunks_exact_mut(d).enumerate() {
                let from = gradients[(start + s) * n * d + i..].iter().step_by(n);
                dx.iter_mut().zip(from).for_each(|(dx, g)| *dx = *g);
            }
        });
    }
    Ok(())
}

//! DLRM's interaction: the dot products of all pairs of features, and their gradient.
//!
//! A sample's features lie in as many tensors; they are gathered side by side first.

use super::args::{Args, Call};
use super::loss::dot;
use super::simd::wide;

/// Scratch numbers: the features of all samples, side by side, and twice where their gradients are wanted.
pub(super) fn scratch(call: &Call, backward: bool) -> usize {
    let features = call.inputs.len() - usize::from(backward);
    features * call.len(0) * (1 + usize::from(backward))
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

wide! {
    /// The first feature and all products of one sample.
    fn products(features: &[f32], d: usize, y: &mut [f32]) {
        y[..d].copy_from_slice(&features[..d]);
        let mut at = d;
        for (i, a) in features.chunks_exact(d).enumerate() {
            for b in features.chunks_exact(d).take(i) {
                y[at] = dot(a, b);
                at += 1;
            }
        }
    }
}

wide! {
    /// The gradients by all features of one sample.
    fn slopes(features: &[f32], d: usize, dy: &[f32], out: &mut [f32]) {
        out.fill(0.0);
        out[..d].copy_from_slice(&dy[..d]);
        let mut at = d;
        for i in 0..features.len() / d {
            for j in 0..i {
                let slope = dy[at];
                at += 1;
                for k in 0..d {
                    out[i * d + k] += slope * features[j * d + k];
                    out[j * d + k] += slope * features[i * d + k];
                }
            }
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
            products(&features[(start + s) * n * d..][..n * d], d, y);
        }
    });
    Ok(())
}

pub(super) fn backward(mut args: Args<'_, '_>) -> Result<(), String> {
    let (n, d) = (args.call.outputs.len(), args.call.dim(0, 1));
    let dy = args.read(n)?;
    let (features, gradients) = args.scratch().split_at_mut(n * args.call.len(0));
    let gradients = &mut gradients[..features.len()];
    gather(&mut args, n, d, features)?;
    let (row, features) = (d + n * (n - 1) / 2, &*features);
    args.pool.rows(gradients, n * d, |start, out| {
        for (s, out) in out.chunks_exact_mut(n * d).enumerate() {
            slopes(&features[(start + s) * n * d..][..n * d], d, &dy[(start + s) * row..][..row], out);
        }
    });
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

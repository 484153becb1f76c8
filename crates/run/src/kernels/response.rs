//! Local response normalisation across channels, and its gradient.

use tiercel_workload::graph::ResponseNorm;

use super::args::Args;
use super::math::{exp, ln};
use super::simd::wide;

/// Pixels that are computed at once: a row of them for every channel of a window stays in the cache.
const PIXELS: usize = 256;

/// The channels that the norm of channel `c` sums over.
fn window(norm: ResponseNorm, c: usize, channels: usize) -> std::ops::Range<usize> {
    let size = norm.size as usize;
    c.saturating_sub(size / 2)..(c + size.div_ceil(2)).min(channels)
}

/// The channels whose norm sums over channel `c`: the mirrored window.
fn mirrored(norm: ResponseNorm, c: usize, channels: usize) -> std::ops::Range<usize> {
    let size = norm.size as usize;
    c.saturating_sub((size - 1) / 2)..(c + size / 2 + 1).min(channels)
}

wide! {
    /// bias + alpha / size · Σ x² for some pixels of a channel; `x` begins at the first of them in channel 0.
    fn denominators(norm: ResponseNorm, x: &[f32], plane: usize, window: std::ops::Range<usize>, sums: &mut [f32]) {
        let (factor, count) = (norm.alpha / norm.size as f32, sums.len());
        if window.len() == 5 {
            // The usual size: sums stay in registers.
            let channel = |at: usize| &x[(window.start + at) * plane..][..count];
            let pairs = channel(0).iter().zip(channel(1)).zip(channel(2).iter().zip(channel(3))).zip(channel(4));
            for (sum, (((a, b), (c, d)), e)) in sums.iter_mut().zip(pairs) {
                *sum = norm.bias + factor * ((a * a + b * b) + (c * c + d * d) + e * e);
            }
            return;
        }
        for (at, j) in window.enumerate() {
            let x = &x[j * plane..][..count];
            match at {
                0 => sums.iter_mut().zip(x).for_each(|(sum, x)| *sum = norm.bias + factor * x * x),
                _ => sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += factor * x * x),
            }
        }
    }
}

wide! {
    /// Raises positive numbers to a power.
    fn raise(numbers: &mut [f32], exponent: f32) {
        numbers.iter_mut().for_each(|x| *x = exp(exponent * ln(*x)));
    }
}

wide! {
    /// y = a · b.
    fn product(a: &[f32], b: &[f32], y: &mut [f32]) {
        y.iter_mut().zip(a.iter().zip(b)).for_each(|(y, (a, b))| *y = a * b);
    }
}

pub(super) fn forward(mut args: Args<'_, '_>, norm: ResponseNorm) -> Result<(), String> {
    let (x, y) = (args.read(0)?, args.write(0)?);
    let channels = args.call.dim(0, 1);
    let whole = args.call.len(0) / args.call.dim(0, 0);
    let plane = whole / channels;
    args.pool.rows(y, whole, |start, y| {
        let mut sums = [0f32; PIXELS];
        for (n, y) in y.chunks_exact_mut(whole).enumerate() {
            let x = &x[(start + n) * whole..][..whole];
            for pixel in (0..plane).step_by(PIXELS) {
                let sums = &mut sums[..PIXELS.min(plane - pixel)];
                for c in 0..channels {
                    denominators(norm, &x[pixel..], plane, window(norm, c, channels), sums);
                    raise(sums, -norm.beta);
                    let at = c * plane + pixel;
                    product(&x[at..at + sums.len()], sums, &mut y[at..at + sums.len()]);
                }
            }
        }
    });
    Ok(())
}

wide! {
    /// What a channel's pixels pull at those that they are normalised by: dy · x · sum^(−beta − 1).
    fn pulls(x: &[f32], dy: &[f32], sums: &[f32], powers: &mut [f32]) {
        for ((power, sum), (x, dy)) in powers.iter_mut().zip(sums).zip(x.iter().zip(dy)) {
            *power = *power / sum * (dy * x);
        }
    }
}

wide! {
    /// Adds numbers.
    fn add(to: &mut [f32], from: &[f32]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
    }
}

wide! {
    /// Takes factor · x · pull away.
    fn finish(dx: &mut [f32], x: &[f32], pull: &[f32], factor: f32) {
        dx.iter_mut().zip(x.iter().zip(pull)).for_each(|(dx, (x, pull))| *dx -= factor * x * pull);
    }
}

pub(super) fn backward(mut args: Args<'_, '_>, norm: ResponseNorm) -> Result<(), String> {
    let (x, dy, dx) = (args.read(0)?, args.read(1)?, args.write(0)?);
    let scratch = args.scratch();
    let channels = args.call.dim(0, 1);
    let whole = args.call.len(0) / args.call.dim(0, 0);
    let plane = whole / channels;
    let factor = 2.0 * norm.alpha * norm.beta / norm.size as f32;
    args.pool.rows2((dx, whole), (&mut scratch[..x.len()], whole), |start, dx, pull| {
        let (mut sums, mut powers) = ([0f32; PIXELS], [0f32; PIXELS]);
        for (n, (dx, pull)) in dx.chunks_exact_mut(whole).zip(pull.chunks_exact_mut(whole)).enumerate() {
            let from = (start + n) * whole;
            let (x, dy) = (&x[from..from + whole], &dy[from..from + whole]);
            for pixel in (0..plane).step_by(PIXELS) {
                let count = PIXELS.min(plane - pixel);
                let (sums, powers) = (&mut sums[..count], &mut powers[..count]);
                let at = |c: usize| c * plane + pixel..c * plane + pixel + count;
                for c in 0..channels {
                    denominators(norm, &x[pixel..], plane, window(norm, c, channels), sums);
                    powers.copy_from_slice(sums);
                    raise(powers, -norm.beta);
                    product(&dy[at(c)], powers, &mut dx[at(c)]);
                    pulls(&x[at(c)], &dy[at(c)], sums, powers);
                    pull[at(c)].copy_from_slice(powers);
                }
                for c in 0..channels {
                    sums.fill(0.0);
                    mirrored(norm, c, channels).for_each(|j| add(sums, &pull[at(j)]));
                    finish(&mut dx[at(c)], &x[at(c)], sums, factor);
                }
            }
        }
    });
    Ok(())
}

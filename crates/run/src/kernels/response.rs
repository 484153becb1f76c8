//! Local response normalisation across channels, and its gradient.

use tiercel_workload::graph::ResponseNorm;

use super::args::{Args, Call};
use super::math::{exp, ln};
use super::shares::{Each, Rows};
use super::simd::{fetch, wide};

/// Pixels that are computed at once: a row of them for every channel of a window stays in the cache.
const PIXELS: usize = 128;

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
    /// y = x · sum^exponent, of positive sums.
    fn normalise(x: &[f32], sums: &[f32], exponent: f32, y: &mut [f32]) {
        y.iter_mut().zip(x.iter().zip(sums)).for_each(|(y, (x, sum))| *y = x * exp(exponent * ln(*sum)));
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
                    let at = c * plane + pixel;
                    normalise(&x[at..at + sums.len()], sums, -norm.beta, &mut y[at..at + sums.len()]);
                    fetch_next(x, at, (c + 1) * plane);
                }
            }
        }
    });
    Ok(())
}

/// Asks for a channel's pixels that come after these.
fn fetch_next(x: &[f32], at: usize, end: usize) {
    let next = (at + PIXELS).min(end);
    fetch(&x[next..(next + PIXELS).min(end)]);
}

wide! {
    /// What becomes of a channel's own gradients, dy · sum^−beta, and what its pixels pull at those that they are
    /// normalised by: dy · x · sum^(−beta − 1).
    fn pulls(x: &[f32], dy: &[f32], sums: &[f32], beta: f32, dx: &mut [f32], pull: &mut [f32]) {
        for (((dx, pull), sum), (x, dy)) in dx.iter_mut().zip(pull).zip(sums).zip(x.iter().zip(dy)) {
            // The smaller power first: the larger one is then a product, and nothing is divided.
            let power = exp((-beta - 1.0) * ln(*sum));
            *dx = dy * (power * sum);
            *pull = power * (dy * x);
        }
    }
}

wide! {
    /// Takes factor · x · Σ pull away, of the pulls of some channels that follow one another.
    fn finish(dx: &mut [f32], x: &[f32], pulls: &[f32], factor: f32) {
        let (count, mut rows) = (dx.len(), pulls.chunks_exact(PIXELS));
        if let [a, b, c, d, e] = [rows.next(), rows.next(), rows.next(), rows.next(), rows.next()].map(|row| row.unwrap_or(&[]))
            && e.len() >= count && rows.next().is_none()
        {
            // The usual size: sums stay in registers.
            let pulls = a.iter().zip(b).zip(c.iter().zip(d)).zip(e);
            for ((dx, x), (((a, b), (c, d)), e)) in dx.iter_mut().zip(x).zip(pulls) {
                *dx -= factor * x * ((a + b) + (c + d) + e);
            }
            return;
        }
        for pulls in pulls.chunks_exact(PIXELS) {
            dx.iter_mut().zip(x.iter().zip(pulls)).for_each(|(dx, (x, pull))| *dx -= factor * x * pull);
        }
    }
}

/// Scratch numbers of the gradient: the pulls of some pixels of all channels, for every thread.
pub(super) fn scratch(call: &Call, threads: usize) -> usize {
    threads * call.dim(0, 1) * PIXELS
}

pub(super) fn backward(mut args: Args<'_, '_>, norm: ResponseNorm) -> Result<(), String> {
    let (x, dy, dx) = (args.read(0)?, args.read(1)?, args.write(0)?);
    let scratch = args.scratch();
    let (batch, channels) = (args.call.dim(0, 0), args.call.dim(0, 1));
    let whole = args.call.len(0) / batch;
    let plane = whole / channels;
    let factor = 2.0 * norm.alpha * norm.beta / norm.size as f32;
    let shares = (Each::new(scratch, channels * PIXELS), Rows::new(dx, whole, batch));
    args.pool.each(shares, |_, (pull, (start, dx))| {
        let mut sums = [0f32; PIXELS];
        for (n, dx) in dx.chunks_exact_mut(whole).enumerate() {
            let from = (start + n) * whole;
            let (x, dy) = (&x[from..from + whole], &dy[from..from + whole]);
            for pixel in (0..plane).step_by(PIXELS) {
                let count = PIXELS.min(plane - pixel);
                let sums = &mut sums[..count];
                let at = |c: usize| c * plane + pixel..c * plane + pixel + count;
                // Channels before this one are done.
                let mut done = 0;
                for c in 0..channels {
                    denominators(norm, &x[pixel..], plane, window(norm, c, channels), sums);
                    let own = &mut pull[c * PIXELS..(c + 1) * PIXELS];
                    pulls(&x[at(c)], &dy[at(c)], sums, norm.beta, &mut dx[at(c)], own);
                    fetch_next(x, at(c).start, (c + 1) * plane);
                    fetch_next(dy, at(c).start, (c + 1) * plane);
                    // Those all of whose pulls are known are finished while they are in the first-level cache.
                    while done < channels && mirrored(norm, done, channels).end <= c + 1 {
                        let some = mirrored(norm, done, channels);
                        let pulls = &pull[some.start * PIXELS..some.end * PIXELS];
                        finish(&mut dx[at(done)], &x[at(done)], pulls, factor);
                        done += 1;
                    }
                }
            }
        }
    });
    Ok(())
}

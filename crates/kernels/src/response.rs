//! Local response normalisation across channels, and its gradient.

use crate::KernelError;
use std::ops::Range;

use tiercel_workload::graph::ResponseNorm;

use super::args::{Args, Call};
use super::math::vectors::{exp, ln};
use super::shares::{Each, Rows};
use super::simd::{Lanes, expect, fetch, foresee, lanes, wide};

/// Pixels that are computed at once: a row of them for every channel of a window stays in the cache.
const PIXELS: usize = 256;

/// The channels that the norm of channel `c` sums over.
fn window(norm: ResponseNorm, c: usize, channels: usize) -> Range<usize> {
    let size = norm.size as usize;
    c.saturating_sub(size / 2)..(c + size.div_ceil(2)).min(channels)
}

/// The channels whose norm sums over channel `c`: the mirrored window.
fn mirrored(norm: ResponseNorm, c: usize, channels: usize) -> Range<usize> {
    let size = norm.size as usize;
    c.saturating_sub((size - 1) / 2)..(c + size / 2 + 1).min(channels)
}

/// Vectors of pixels that are computed at once.
const SOME: usize = 4;

/// The norm of a channel: what is summed, of which channels.
#[derive(Clone)]
struct Sum {
    norm: ResponseNorm,
    /// Pixels of a channel.
    plane: usize,
    window: Range<usize>,
}

impl Sum {
    /// bias + alpha / size · Σ x² of some vectors of pixels from `at` on; `x` begins with channel 0.
    #[inline(always)]
    fn of<L: Lanes, E: Extent, const N: usize>(
        &self,
        l: L,
        extent: E,
        x: &[f32],
        at: usize,
    ) -> [L::Vector; N] {
        let (bias, factor) = (l.splat(self.norm.bias), l.splat(self.norm.alpha / self.norm.size as f32));
        let (mut sums, first) = ([bias; N], self.window.start * self.plane);
        if self.window.len() == 5 {
            // The usual size, in another order.
            let mut channels = [&x[..0]; 5];
            for (j, channel) in channels.iter_mut().enumerate() {
                *channel = extent.of::<L, N>(&x[first + j * self.plane..], at);
            }
            for (v, sum) in sums.iter_mut().enumerate() {
                let mut squares = [bias; 5];
                for (square, x) in squares.iter_mut().zip(channels) {
                    let x = extent.load(l, x, v);
                    *square = l.mul(x, x);
                }
                let [a, b, c, d, e] = squares;
                let all = l.add(l.add(l.add(a, b), l.add(c, d)), e);
                *sum = l.add(bias, l.mul(factor, all));
            }
            return sums;
        }
        for j in self.window.clone() {
            let x = extent.of::<L, N>(&x[j * self.plane..], at);
            for (v, sum) in sums.iter_mut().enumerate() {
                let x = extent.load(l, x, v);
                *sum = l.add(*sum, l.mul(l.mul(factor, x), x));
            }
        }
        sums
    }
}

/// How far numbers are read and written: lengths are checked once, because nothing that is computed for one vector is moved
/// beyond the checks of another.
trait Extent: Copy {
    /// `N` vectors of numbers from `at` on.
    fn of<L: Lanes, const N: usize>(self, from: &[f32], at: usize) -> &[f32];
    fn of_mut<L: Lanes, const N: usize>(self, from: &mut [f32], at: usize) -> &mut [f32];
    /// Vector number `v` of them.
    fn load<L: Lanes>(self, l: L, from: &[f32], v: usize) -> L::Vector;
    fn store<L: Lanes>(self, l: L, numbers: L::Vector, to: &mut [f32], v: usize);
}

/// Whole vectors.
#[derive(Clone, Copy)]
struct Whole;

impl Extent for Whole {
    #[inline(always)]
    fn of<L: Lanes, const N: usize>(self, from: &[f32], at: usize) -> &[f32] {
        &from[at..at + N * L::COUNT]
    }

    #[inline(always)]
    fn of_mut<L: Lanes, const N: usize>(self, from: &mut [f32], at: usize) -> &mut [f32] {
        &mut from[at..at + N * L::COUNT]
    }

    #[inline(always)]
    fn load<L: Lanes>(self, l: L, from: &[f32], v: usize) -> L::Vector {
        l.load(from, v * L::COUNT)
    }

    #[inline(always)]
    fn store<L: Lanes>(self, l: L, numbers: L::Vector, to: &mut [f32], v: usize) {
        l.store(numbers, to, v * L::COUNT);
    }
}

/// What is there before this place.
#[derive(Clone, Copy)]
struct Before(usize);

impl Extent for Before {
    #[inline(always)]
    fn of<L: Lanes, const N: usize>(self, from: &[f32], at: usize) -> &[f32] {
        &from[at..self.0]
    }

    #[inline(always)]
    fn of_mut<L: Lanes, const N: usize>(self, from: &mut [f32], at: usize) -> &mut [f32] {
        &mut from[at..self.0]
    }

    #[inline(always)]
    fn load<L: Lanes>(self, l: L, from: &[f32], v: usize) -> L::Vector {
        l.load_some(from, v * L::COUNT)
    }

    #[inline(always)]
    fn store<L: Lanes>(self, l: L, numbers: L::Vector, to: &mut [f32], v: usize) {
        l.store_some(numbers, to, v * L::COUNT);
    }
}

/// sum^exponent for −0.75 and −1.75, which roots are faster for than logarithms: the usual beta is 0.75.
#[inline(always)]
fn roots<L: Lanes, const N: usize>(l: L, sums: [L::Vector; N], exponent: f32) -> [L::Vector; N] {
    let mut powers = sums;
    for (power, sum) in powers.iter_mut().zip(sums) {
        let root = l.root(sum);
        let all = l.mul(root, l.root(root));
        *power = l.div(l.splat(1.0), if exponent < -1.0 { l.mul(sum, all) } else { all });
    }
    powers
}

/// sum^exponent, of positive sums.
#[inline(always)]
fn powers<L: Lanes, const N: usize>(l: L, sums: [L::Vector; N], exponent: f32) -> [L::Vector; N] {
    if exponent == -0.75 || exponent == -1.75 {
        return roots(l, sums, exponent);
    }
    let mut logarithms = ln(l, sums);
    for number in &mut logarithms {
        *number = l.mul(l.splat(exponent), *number);
    }
    exp(l, logarithms)
}

/// y = x · sum^−beta, of some vectors.
#[inline(always)]
fn normalise_some<L: Lanes, E: Extent, const N: usize>(
    l: L,
    extent: E,
    sum: &Sum,
    [x, own]: [&[f32]; 2],
    y: &mut [f32],
    at: usize,
) {
    let (own, y) = (extent.of::<L, N>(own, at), extent.of_mut::<L, N>(y, at));
    let powers = powers::<L, N>(l, sum.of(l, extent, x, at), -sum.norm.beta);
    for (v, power) in powers.into_iter().enumerate() {
        extent.store(l, l.mul(extent.load(l, own, v), power), y, v);
    }
}

lanes! {
    /// y = x · sum^−beta; the channel's own pixels are `own`, and those of all channels begin at `x`.
    fn normalise(l; sum: &Sum, x: &[f32], own: &[f32], y: &mut [f32]) {
        let (some, mut at) = (SOME * L::COUNT, 0);
        while at + some <= y.len() {
            normalise_some::<L, _, SOME>(l, Whole, sum, [x, own], y, at);
            at += some;
        }
        while at < y.len() {
            normalise_some::<L, _, 1>(l, Before(y.len()), sum, [x, own], y, at);
            at += L::COUNT;
        }
    }
}

pub(super) fn forward(mut args: Args<'_, '_>, norm: ResponseNorm) -> Result<(), KernelError> {
    let (x, y) = (args.read(0)?, args.write(0)?);
    let channels = args.call.dim(0, 1);
    let whole = args.call.len(0) / args.call.dim(0, 0);
    let plane = whole / channels;
    args.pool.rows(y, whole, |start, y| {
        for (n, y) in y.chunks_exact_mut(whole).enumerate() {
            let x = &x[(start + n) * whole..][..whole];
            for pixel in (0..plane).step_by(PIXELS) {
                let (count, ahead) = (PIXELS.min(plane - pixel), Ahead { plane, channels, pixel });
                for c in 0..channels {
                    let (sum, at) =
                        (Sum { norm, plane, window: window(norm, c, channels) }, c * plane + pixel);
                    normalise(&sum, &x[pixel..], &x[at..at + count], &mut y[at..at + count]);
                    ahead.read(x, c, c + 1 + norm.size as usize / 2);
                    ahead.write(y, c);
                }
            }
        }
    });
    Ok(())
}

/// Asks for pixels of a channel: the first-level cache for some of the next channel, and the second-level cache for those
/// behind these of this channel.
#[derive(Clone, Copy)]
struct Ahead {
    plane: usize,
    channels: usize,
    pixel: usize,
}

impl Ahead {
    /// The pixels of a channel, where there is one.
    fn near(self, c: usize) -> Range<usize> {
        let from = (c * self.plane + self.pixel).min(self.channels * self.plane);
        from..(from + PIXELS.min(self.plane - self.pixel)).min(self.channels * self.plane)
    }

    /// Those behind them.
    fn far(self, c: usize) -> Range<usize> {
        let [from, to] = [1, 2].map(|times| (self.pixel + times * PIXELS).min(self.plane));
        c * self.plane + from..c * self.plane + to
    }

    fn read(self, x: &[f32], c: usize, next: usize) {
        fetch(&x[self.near(next)]);
        foresee(&x[self.far(c)]);
    }

    fn write(self, y: &[f32], c: usize) {
        let next = &y[self.near(c + 1)];
        expect(next.as_ptr(), next.len());
        foresee(&y[self.far(c)]);
    }
}

/// The gradients of some vectors.
#[inline(always)]
fn pulls_some<L: Lanes, E: Extent, const N: usize>(
    l: L,
    extent: E,
    sum: &Sum,
    [x, own, dy]: [&[f32]; 3],
    [dx, pull]: [&mut [f32]; 2],
    at: usize,
) {
    let [own, dy] = [own, dy].map(|from| extent.of::<L, N>(from, at));
    let [dx, pull] = [dx, pull].map(|to| extent.of_mut::<L, N>(to, at));
    let sums: [L::Vector; N] = sum.of(l, extent, x, at);
    // The smaller power first: the larger one is then a product, and nothing is divided.
    let powers = powers(l, sums, -sum.norm.beta - 1.0);
    for (v, (power, sum)) in powers.into_iter().zip(sums).enumerate() {
        let (x, dy) = (extent.load(l, own, v), extent.load(l, dy, v));
        extent.store(l, l.mul(dy, l.mul(power, sum)), dx, v);
        extent.store(l, l.mul(power, l.mul(dy, x)), pull, v);
    }
}

lanes! {
    /// What becomes of a channel's own gradients, dy · sum^−beta, and what its pixels pull at those that they are
    /// normalised by: dy · x · sum^(−beta − 1). The channel's own pixels are `own`, and those of all channels begin at `x`.
    fn pulls(l; sum: &Sum, x: &[f32], own: &[f32], dy: &[f32], dx: &mut [f32], pull: &mut [f32]) {
        let (some, mut at) = (SOME * L::COUNT, 0);
        while at + some <= dx.len() {
            pulls_some::<L, _, SOME>(l, Whole, sum, [x, own, dy], [dx, pull], at);
            at += some;
        }
        while at < dx.len() {
            pulls_some::<L, _, 1>(l, Before(dx.len()), sum, [x, own, dy], [dx, pull], at);
            at += L::COUNT;
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

pub(super) fn backward(mut args: Args<'_, '_>, norm: ResponseNorm) -> Result<(), KernelError> {
    let (x, dy, dx) = (args.read(0)?, args.read(1)?, args.write(0)?);
    let scratch = args.scratch();
    let (batch, channels) = (args.call.dim(0, 0), args.call.dim(0, 1));
    let whole = args.call.len(0) / batch;
    let plane = whole / channels;
    let factor = 2.0 * norm.alpha * norm.beta / norm.size as f32;
    let shares = (Each::new(scratch, channels * PIXELS), Rows::new(dx, whole, batch));
    args.pool.each(shares, |_, (pull, (start, dx))| {
        for (n, dx) in dx.chunks_exact_mut(whole).enumerate() {
            let from = (start + n) * whole;
            let (x, dy) = (&x[from..from + whole], &dy[from..from + whole]);
            for pixel in (0..plane).step_by(PIXELS) {
                let (count, ahead) = (PIXELS.min(plane - pixel), Ahead { plane, channels, pixel });
                let at = |c: usize| c * plane + pixel..c * plane + pixel + count;
                // Channels before this one are done.
                let mut done = 0;
                for c in 0..channels {
                    let sum = Sum { norm, plane, window: window(norm, c, channels) };
                    let own = &mut pull[c * PIXELS..(c + 1) * PIXELS];
                    pulls(&sum, &x[pixel..], &x[at(c)], &dy[at(c)], &mut dx[at(c)], own);
                    ahead.read(x, c, c + 1 + norm.size as usize / 2);
                    ahead.read(dy, c, c + 1);
                    ahead.write(dx, c);
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

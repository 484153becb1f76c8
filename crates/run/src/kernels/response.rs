//! Local response normalisation across channels, and its gradient.

use tiercel_workload::graph::ResponseNorm;

use super::args::Args;

/// The channels that the norm of channel `c` sums over.
fn window(norm: ResponseNorm, c: usize, channels: usize) -> std::ops::Range<usize> {
    let size = norm.size as usize;
    c.saturating_sub(size / 2)..(c + size.div_ceil(2)).min(channels)
}

/// bias + alpha / size · Σ x² for one pixel of a channel; `x` begins at that pixel of channel 0.
fn denominator(norm: ResponseNorm, x: &[f32], plane: usize, c: usize, channels: usize) -> f32 {
    let squares: f32 = window(norm, c, channels).map(|j| x[j * plane] * x[j * plane]).sum();
    norm.bias + norm.alpha / norm.size as f32 * squares
}

pub(super) fn forward(mut args: Args<'_, '_>, norm: ResponseNorm) -> Result<(), String> {
    let (x, y) = (args.read(0)?, args.write(0)?);
    let channels = args.call.dim(0, 1);
    let whole = args.call.len(0) / args.call.dim(0, 0);
    let plane = whole / channels;
    args.pool.rows(y, whole, |start, y| {
        for (n, y) in y.chunks_exact_mut(whole).enumerate() {
            let x = &x[(start + n) * whole..][..whole];
            for (at, y) in y.iter_mut().enumerate() {
                let (c, pixel) = (at / plane, at % plane);
                *y = x[at] * denominator(norm, &x[pixel..], plane, c, channels).powf(-norm.beta);
            }
        }
    });
    Ok(())
}

pub(super) fn backward(mut args: Args<'_, '_>, norm: ResponseNorm) -> Result<(), String> {
    let (x, dy, dx) = (args.read(0)?, args.read(1)?, args.write(0)?);
    let scratch = args.scratch();
    let channels = args.call.dim(0, 1);
    let whole = args.call.len(0) / args.call.dim(0, 0);
    let plane = whole / channels;
    let factor = 2.0 * norm.alpha * norm.beta / norm.size as f32;
    args.pool.rows2((dx, whole), (&mut scratch[..x.len()], whole), |start, dx, sums| {
        for (n, (dx, sums)) in dx.chunks_exact_mut(whole).zip(sums.chunks_exact_mut(whole)).enumerate() {
            let from = (start + n) * whole;
            let (x, dy) = (&x[from..from + whole], &dy[from..from + whole]);
            for (at, sum) in sums.iter_mut().enumerate() {
                *sum = denominator(norm, &x[at % plane..], plane, at / plane, channels);
            }
            for (at, dx) in dx.iter_mut().enumerate() {
                let (c, pixel) = (at / plane, at % plane);
                // Channel c is in the window of those channels whose window reaches it: the mirrored window.
                let size = norm.size as usize;
                let others = c.saturating_sub((size - 1) / 2)..(c + size / 2 + 1).min(channels);
                let pull: f32 = others
                    .map(|j| j * plane + pixel)
                    .map(|j| dy[j] * x[j] * sums[j].powf(-norm.beta - 1.0))
                    .sum();
                *dx = dy[at] * sums[at].powf(-norm.beta) - factor * x[at] * pull;
            }
        }
    });
    Ok(())
}

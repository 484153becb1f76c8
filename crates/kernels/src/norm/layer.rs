//! Layer norm and its gradients: every row has statistics of its own.

use super::super::args::Args;
use super::super::simd::{PARTS, Sums, lanes, wide};
use super::Moments;
use crate::KernelError;

wide! {
    /// y = (x − mean) · deviation · gamma + beta.
    fn normalise(y: &mut [f32], x: &[f32], mean: f32, deviation: f32, gamma: &[f32], beta: &[f32]) {
        y.iter_mut().zip(x).zip(gamma.iter().zip(beta)).for_each(|((y, x), (gamma, beta))| {
            *y = (x - mean) * deviation * gamma + beta;
        });
    }
}

pub(in super::super) fn layer(mut args: Args<'_, '_>, epsilon: f32) -> Result<(), KernelError> {
    let (x, gamma, beta) = (args.read(0)?, args.read(1)?, args.read(2)?);
    let (y, means, deviations) = (args.write(0)?, args.write(1)?, args.write(2)?);
    let width = args.call.last(0);
    args.pool.rows3(width, (y, width), (means, 1), (deviations, 1), |start, y, means, deviations| {
        for (i, y) in y.chunks_exact_mut(width).enumerate() {
            let x = &x[(start + i) * width..][..width];
            let mut moments = Moments::default();
            moments.add(x);
            (means[i], deviations[i]) = (moments.mean as f32, moments.deviation(epsilon));
            normalise(y, x, means[i], deviations[i], gamma, beta);
        }
    });
    Ok(())
}

wide! {
    /// Adds up what each column contributes to the gradients of scale and shift, from column `start` on.
    fn column_slopes(
        x: &[f32],
        dy: &[f32],
        width: usize,
        start: usize,
        means: &[f32],
        deviations: &[f32],
        dgamma: &mut [f32],
        dbeta: &mut [f32],
    ) {
        dgamma.fill(0.0);
        dbeta.fill(0.0);
        for (r, (mean, deviation)) in means.iter().zip(deviations).enumerate() {
            let from = r * width + start;
            let (x, dy) = (&x[from..from + dgamma.len()], &dy[from..from + dgamma.len()]);
            for (((dgamma, dbeta), x), dy) in dgamma.iter_mut().zip(dbeta.iter_mut()).zip(x).zip(dy) {
                *dgamma += dy * ((x - mean) * deviation);
                *dbeta += dy;
            }
        }
    }
}

lanes! {
    /// Σ dy · gamma and Σ dy · gamma · (x − mean).
    fn row_slopes(l; x: &[f32], dy: &[f32], gamma: &[f32], mean: f32) -> [f32; 2] {
        let ([mut plain, mut weighed], minus) = ([Sums::new(l); 2], l.splat(-mean));
        let whole = x.len() / PARTS * PARTS;
        for first in (0..whole).step_by(PARTS) {
            for part in (0..PARTS).step_by(L::COUNT) {
                let at = first + part;
                let slope = l.mul(l.load(dy, at), l.load(gamma, at));
                plain.add(l, part, slope);
                weighed.add(l, part, l.mul(slope, l.add(l.load(x, at), minus)));
            }
        }
        for part in (0..x.len() - whole).step_by(L::COUNT) {
            let at = whole + part;
            let slope = l.mul(l.load_some(dy, at), l.load_some(gamma, at));
            plain.add(l, part, slope);
            weighed.add(l, part, l.mul(slope, l.add(l.load_some(x, at), minus)));
        }
        [plain.total(l), weighed.total(l)]
    }
}

wide! {
    /// dx = deviation · gamma · dy + b · x + c, where an absent dy lies in dx.
    fn row_slope(dx: &mut [f32], dy: Option<&[f32]>, x: &[f32], gamma: &[f32], deviation: f32, b: f32, c: f32) {
        let rest = x.iter().zip(gamma);
        match dy {
            Some(dy) => dx.iter_mut().zip(dy).zip(rest).for_each(|((dx, dy), (x, gamma))| {
                *dx = deviation * gamma * dy + (b * x + c);
            }),
            None => dx.iter_mut().zip(rest).for_each(|(dx, (x, gamma))| {
                *dx = deviation * gamma * *dx + (b * x + c);
            }),
        }
    }
}

pub(in super::super) fn layer_backward(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let (x, gamma, means, deviations) = (args.read(0)?, args.read(1)?, args.read(2)?, args.read(3)?);
    let (dy, dx, dgamma, dbeta) = (args.maybe(4)?, args.write(0)?, args.write(1)?, args.write(2)?);
    let width = args.call.last(0);
    let rows = means.len();
    // First what sums over rows, because the second pass may overwrite dy.
    let whole = dy.unwrap_or(dx);
    args.pool.rows3(2 * rows, (dgamma, 1), (dbeta, 1), (&mut [0u8; 0], 0), |start, dgamma, dbeta, _| {
        column_slopes(x, whole, width, start, means, deviations, dgamma, dbeta);
    });
    args.pool.rows(dx, width, |start, dx| {
        for (i, dx) in dx.chunks_exact_mut(width).enumerate() {
            let row = start + i;
            let x = &x[row * width..][..width];
            let dy = dy.map(|dy| &dy[row * width..][..width]);
            let (mean, deviation) = (means[row], deviations[row]);
            let [plain, weighed] = row_slopes(x, dy.unwrap_or(dx), gamma, mean);
            let count = width as f32;
            let b = -deviation * deviation * deviation * weighed / count;
            let c = -deviation * plain / count - b * mean;
            row_slope(dx, dy, x, gamma, deviation, b, c);
        }
    });
    Ok(())
}

//! Batch norm and layer norm as they are trained, with their gradients.
//!
//! A batch norm takes a channel at a time: its statistics, then its results, while it is in the cache. Statistics
//! are gathered piece by piece around each piece's own mean and merged in f64 (Chan's formula), so that a large mean
//! costs no digits and the data is read once.

use super::args::{Args, Call};
use super::shares::{Boxes, OneBox, Rows};
use super::simd::wide;

/// Numbers that are read twice in a row: they fit the first-level cache.
const PIECE: usize = 4096;
const LANES: usize = 16;

/// The count, the mean and the sum of squares around it.
#[derive(Clone, Copy, Default)]
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn merge(&mut self, other: Moments) {
        let count = self.count + other.count;
        let delta = other.mean - self.mean;
        self.mean += delta * other.count / count;
        self.squares += other.squares + delta * delta * self.count * other.count / count;
        self.count = count;
    }

    fn add(&mut self, numbers: &[f32]) {
        for piece in numbers.chunks(PIECE) {
            let mean = sum(piece) / piece.len() as f32;
            let squares = squares_around(piece, mean);
            self.merge(Moments { count: piece.len() as f64, mean: mean.into(), squares: squares.into() });
        }
    }

    /// Adds planes; small ones are gathered first, so that the pieces are long.
    fn add_planes<'x>(&mut self, planes: impl Iterator<Item = &'x [f32]>) {
        let mut buffer = [0f32; PIECE];
        let mut filled = 0;
        for plane in planes {
            if plane.len() > PIECE / 4 {
                self.add(plane);
                continue;
            }
            if filled + plane.len() > PIECE {
                self.add(&buffer[..filled]);
                filled = 0;
            }
            buffer[filled..filled + plane.len()].copy_from_slice(plane);
            filled += plane.len();
        }
        self.add(&buffer[..filled]);
    }

    fn deviation(&self, epsilon: f32) -> f32 {
        (1.0 / (self.squares / self.count + f64::from(epsilon)).sqrt()) as f32
    }
}

wide! {
    /// Σ x.
    fn sum(numbers: &[f32]) -> f32 {
        let mut sums = [0f32; LANES];
        let chunks = numbers.chunks_exact(LANES);
        let rest: f32 = chunks.remainder().iter().sum();
        for chunk in chunks {
            sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += x);
        }
        sums.iter().sum::<f32>() + rest
    }
}

wide! {
    /// Σ (x − mean)².
    fn squares_around(numbers: &[f32], mean: f32) -> f32 {
        let mut sums = [0f32; LANES];
        let chunks = numbers.chunks_exact(LANES);
        let rest: f32 = chunks.remainder().iter().map(|x| (x - mean) * (x - mean)).sum();
        for chunk in chunks {
            sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += (x - mean) * (x - mean));
        }
        sums.iter().sum::<f32>() + rest
    }
}

/// Σ dy and Σ dy · (x − mean) over planes; small ones are gathered first, so that the pieces are long.
fn plane_slopes<'x>(planes: impl Iterator<Item = (&'x [f32], &'x [f32])>, mean: f32) -> [f64; 2] {
    let mut sums = [0f64; 2];
    let mut add = |x: &[f32], dy: &[f32]| {
        for (x, dy) in x.chunks(PIECE).zip(dy.chunks(PIECE)) {
            slopes(x, dy, mean).into_iter().zip(&mut sums).for_each(|(more, sum)| *sum += f64::from(more));
        }
    };
    let mut buffers = [[0f32; PIECE]; 2];
    let mut filled = 0;
    for (x, dy) in planes {
        if x.len() > PIECE / 4 {
            add(x, dy);
            continue;
        }
        if filled + x.len() > PIECE {
            add(&buffers[0][..filled], &buffers[1][..filled]);
            filled = 0;
        }
        for (buffer, plane) in buffers.iter_mut().zip([x, dy]) {
            buffer[filled..filled + plane.len()].copy_from_slice(plane);
        }
        filled += x.len();
    }
    add(&buffers[0][..filled], &buffers[1][..filled]);
    sums
}

wide! {
    /// Σ dy and Σ dy · (x − mean).
    fn slopes(x: &[f32], dy: &[f32], mean: f32) -> [f32; 2] {
        let (mut plain, mut weighed) = ([0f32; LANES], [0f32; LANES]);
        let (cx, cy) = (x.chunks_exact(LANES), dy.chunks_exact(LANES));
        let mut rest = [0f32; 2];
        for (x, dy) in cx.remainder().iter().zip(cy.remainder()) {
            rest[0] += dy;
            rest[1] += dy * (x - mean);
        }
        for (x, dy) in cx.zip(cy) {
            for lane in 0..LANES {
                plain[lane] += dy[lane];
                weighed[lane] += dy[lane] * (x[lane] - mean);
            }
        }
        [plain.iter().sum::<f32>() + rest[0], weighed.iter().sum::<f32>() + rest[1]]
    }
}

wide! {
    /// y = a · x + b for all planes of channel c.
    fn affine(y: &mut OneBox<'_, f32>, c: usize, x: &[f32], a: f32, b: f32) {
        for n in y.ranges()[0].clone() {
            let x = &x[y.place([n, c, 0])];
            y.run([n, c, 0]).iter_mut().zip(x).for_each(|(y, x)| *y = a * x + b);
        }
    }
}

wide! {
    /// dx = a · dy + b · x + c for all planes of a channel, where an absent dy lies in dx.
    fn affine_slope(dx: &mut OneBox<'_, f32>, channel: usize, dy: Option<&[f32]>, x: &[f32], factors: [f32; 3]) {
        let [a, b, c] = factors;
        for n in dx.ranges()[0].clone() {
            let at = [n, channel, 0];
            let place = dx.place(at);
            let dx = dx.run(at);
            let x = &x[place.clone()];
            match dy {
                Some(dy) => {
                    let dy = &dy[place];
                    dx.iter_mut().zip(dy).zip(x).for_each(|((dx, dy), x)| *dx = a * dy + (b * x + c));
                }
                None => dx.iter_mut().zip(x).for_each(|(dx, x)| *dx = a * *dx + (b * x + c)),
            }
        }
    }
}

/// Batch, channels and pixels of the first operand.
fn image(call: &Call) -> (usize, usize, usize) {
    let (batch, channels) = (call.dim(0, 0), call.dim(0, 1));
    (batch, channels, call.len(0) / (batch * channels))
}

pub(super) fn batch(mut args: Args<'_, '_>, epsilon: f32, momentum: f32) -> Result<(), String> {
    let (x, gamma, beta) = (args.read(0)?, args.read(1)?, args.read(2)?);
    let (batch, channels, plane) = image(args.call);
    let (y, means, deviations) = (args.write(0)?, args.write(1)?, args.write(2)?);
    let (running_mean, running_variance) = (args.write(3)?, args.write(4)?);
    let one = |numbers| Rows::new(numbers, 1, channels);
    let shares = (
        Boxes::new(y, [batch, channels, 1, plane], [batch, 1, 1, plane]),
        [means, deviations, running_mean, running_variance].map(one),
    );
    args.pool.each_of(x.len(), shares, |_, (mut y, [means, deviations, running_mean, running_variance])| {
        for (i, c) in y.units().enumerate() {
            let at = |n: usize| (n * channels + c) * plane..(n * channels + c + 1) * plane;
            let mut moments = Moments::default();
            moments.add_planes((0..batch).map(|n| &x[at(n)]));
            let (mean, deviation) = (moments.mean as f32, moments.deviation(epsilon));
            (means.1[i], deviations.1[i]) = (mean, deviation);
            let scale = gamma[c] * deviation;
            let shift = beta[c] - mean * scale;
            let mut y = y.get(c);
            affine(&mut y, c, x, scale, shift);
            let unbiased = moments.squares / (moments.count - 1.0).max(1.0);
            let (mean, variance) = (&mut running_mean.1[i], &mut running_variance.1[i]);
            *mean += momentum * (moments.mean as f32 - *mean);
            *variance += momentum * (unbiased as f32 - *variance);
        }
    });
    Ok(())
}

pub(super) fn batch_backward(mut args: Args<'_, '_>) -> Result<(), String> {
    let (x, gamma, means, deviations) = (args.read(0)?, args.read(1)?, args.read(2)?, args.read(3)?);
    let (batch, channels, plane) = image(args.call);
    let (dy, dx, dgamma, dbeta) = (args.maybe(4)?, args.write(0)?, args.write(1)?, args.write(2)?);
    let one = |numbers| Rows::new(numbers, 1, channels);
    let dx = Boxes::new(dx, [batch, channels, 1, plane], [batch, 1, 1, plane]);
    args.pool.each_of(2 * x.len(), (dx, one(dgamma), one(dbeta)), |_, (mut dx, (_, dgamma), (_, dbeta))| {
        for (i, c) in dx.units().enumerate() {
            let at = |n: usize| (n * channels + c) * plane..(n * channels + c + 1) * plane;
            let (mean, deviation) = (means[c], deviations[c]);
            let mut dx = dx.get(c);
            let [plain, weighed] = match dy {
                Some(dy) => plane_slopes((0..batch).map(|n| (&x[at(n)], &dy[at(n)])), mean),
                None => plane_slopes((0..batch).map(|n| (&x[at(n)], dx.peek([n, c, 0]))), mean),
            };
            (dbeta[i], dgamma[i]) = (plain as f32, (weighed * f64::from(deviation)) as f32);
            let count = (batch * plane) as f32;
            // dx = gamma · deviation · (dy − mean of dy − x̂ · mean of dy · x̂).
            let a = gamma[c] * deviation;
            let b = -a * deviation * dgamma[i] / count;
            let shift = -a * dbeta[i] / count - b * mean;
            affine_slope(&mut dx, c, dy, x, [a, b, shift]);
        }
    });
    Ok(())
}

wide! {
    /// y = (x − mean) · deviation · gamma + beta.
    fn normalise(y: &mut [f32], x: &[f32], mean: f32, deviation: f32, gamma: &[f32], beta: &[f32]) {
        y.iter_mut().zip(x).zip(gamma.iter().zip(beta)).for_each(|((y, x), (gamma, beta))| {
            *y = (x - mean) * deviation * gamma + beta;
        });
    }
}

pub(super) fn layer(mut args: Args<'_, '_>, epsilon: f32) -> Result<(), String> {
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

wide! {
    /// Σ dy · gamma and Σ dy · gamma · (x − mean).
    fn row_slopes(x: &[f32], dy: &[f32], gamma: &[f32], mean: f32) -> [f32; 2] {
        let (mut plain, mut weighed) = ([0f32; LANES], [0f32; LANES]);
        let (cx, cy, cg) = (x.chunks_exact(LANES), dy.chunks_exact(LANES), gamma.chunks_exact(LANES));
        let mut rest = [0f32; 2];
        for (x, (dy, gamma)) in cx.remainder().iter().zip(cy.remainder().iter().zip(cg.remainder())) {
            rest[0] += dy * gamma;
            rest[1] += dy * gamma * (x - mean);
        }
        for (x, (dy, gamma)) in cx.zip(cy.zip(cg)) {
            for lane in 0..LANES {
                let slope = dy[lane] * gamma[lane];
                plain[lane] += slope;
                weighed[lane] += slope * (x[lane] - mean);
            }
        }
        [plain.iter().sum::<f32>() + rest[0], weighed.iter().sum::<f32>() + rest[1]]
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

pub(super) fn layer_backward(mut args: Args<'_, '_>) -> Result<(), String> {
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

//! Batch norm and layer norm as they are trained, with their gradients.
//!
//! A batch norm takes a channel at a time: its statistics, then its results, while it is in the cache. Statistics
//! are gathered piece by piece around each piece's own mean and merged in f64 (Chan's formula), so that a large mean
//! costs no digits and the data is read once.

use super::args::{Args, Call};
use super::samples::{MOST, Samples};
use super::shares::{Boxes, OneBox, Rows};
use super::simd::{Lanes, Layout, PARTS, Sums, lanes, lay, wide};

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

lanes! {
    /// The moments of planes; small ones are gathered first, so that the pieces are long.
    fn plane_moments['x, I: Iterator<Item = &'x [f32]>](l; planes: I) -> Moments {
        let mut moments = Moments::default();
        let mut buffer = [0f32; PIECE];
        let mut filled = 0;
        for plane in planes {
            if plane.len() > PIECE / 4 {
                moments.add(plane);
                continue;
            }
            if filled + plane.len() > PIECE {
                moments.add(&buffer[..filled]);
                filled = 0;
            }
            copy(l, &mut buffer[filled..], plane);
            filled += plane.len();
        }
        moments.add(&buffer[..filled]);
        moments
    }
}

lanes! {
    /// Σ dy and Σ dy · (x − mean) over planes; small ones are gathered first, so that the pieces are long.
    fn plane_slopes['x, I: Iterator<Item = (&'x [f32], &'x [f32])>](l; planes: I, mean: f32) -> [f64; 2] {
        let mut sums = [0f64; 2];
        let mut buffers = [[0f32; PIECE]; 2];
        let mut filled = 0;
        for (x, dy) in planes {
            if x.len() > PIECE / 4 {
                add_slopes(x, dy, mean, &mut sums);
                continue;
            }
            if filled + x.len() > PIECE {
                add_slopes(&buffers[0][..filled], &buffers[1][..filled], mean, &mut sums);
                filled = 0;
            }
            for (buffer, plane) in buffers.iter_mut().zip([x, dy]) {
                copy(l, &mut buffer[filled..], plane);
            }
            filled += x.len();
        }
        add_slopes(&buffers[0][..filled], &buffers[1][..filled], mean, &mut sums);
        sums
    }
}

/// Adds piece by piece.
fn add_slopes(x: &[f32], dy: &[f32], mean: f32, sums: &mut [f64; 2]) {
    for (x, dy) in x.chunks(PIECE).zip(dy.chunks(PIECE)) {
        slopes(x, dy, mean).into_iter().zip(&mut *sums).for_each(|(more, sum)| *sum += f64::from(more));
    }
}

/// Copies a short plane.
#[inline(always)]
fn copy<L: Lanes>(l: L, to: &mut [f32], from: &[f32]) {
    let to = &mut to[..from.len()];
    for at in (0..from.len()).step_by(L::COUNT) {
        l.store_some(l.load_some(from, at), to, at);
    }
}

lanes! {
    /// Σ dy and Σ dy · (x − mean).
    fn slopes(l; x: &[f32], dy: &[f32], mean: f32) -> [f32; 2] {
        let ([mut plain, mut weighed], minus) = ([Sums::new(l); 2], l.splat(-mean));
        let whole = x.len() / PARTS * PARTS;
        for first in (0..whole).step_by(PARTS) {
            for part in (0..PARTS).step_by(L::COUNT) {
                let (x, dy) = (l.load(x, first + part), l.load(dy, first + part));
                plain.add(l, part, dy);
                weighed.add(l, part, l.mul(dy, l.add(x, minus)));
            }
        }
        for part in (0..x.len() - whole).step_by(L::COUNT) {
            let (x, dy) = (l.load_some(x, whole + part), l.load_some(dy, whole + part));
            plain.add(l, part, dy);
            weighed.add(l, part, l.mul(dy, l.add(x, minus)));
        }
        [plain.total(l), weighed.total(l)]
    }
}

/// The planes of a channel: numbers from the first one's first on, and how far apart they are.
#[derive(Clone, Copy)]
struct Planes<'x>(&'x [f32], usize);

lanes! {
    /// y = a · x + b for all planes of channel c. Planes are often shorter than what the compiler unrolls.
    fn affine(l; y: &mut OneBox<'_, f32>, c: usize, x: Planes<'_>, a: f32, b: f32) {
        let (a, b) = (l.splat(a), l.splat(b));
        for n in y.ranges()[0].clone() {
            let y = y.run([n, c, 0]);
            let x = &x.0[n * x.1..][..y.len()];
            for at in (0..x.len()).step_by(L::COUNT) {
                l.store_some(l.add(l.mul(a, l.load_some(x, at)), b), y, at);
            }
        }
    }
}

lanes! {
    /// dx = a · dy + b · x + c for all planes of a channel, where an absent dy lies in dx.
    fn affine_slope(l; dx: &mut OneBox<'_, f32>, channel: usize, dy: Option<Planes<'_>>, x: Planes<'_>, factors: [f32; 3]) {
        let [a, b, c] = [l.splat(factors[0]), l.splat(factors[1]), l.splat(factors[2])];
        for n in dx.ranges()[0].clone() {
            let dx = dx.run([n, channel, 0]);
            let x = &x.0[n * x.1..][..dx.len()];
            let dy = dy.map(|dy| &dy.0[n * dy.1..][..dx.len()]);
            for at in (0..x.len()).step_by(L::COUNT) {
                let slope = l.load_some(dy.unwrap_or(dx), at);
                let rest = l.add(l.mul(b, l.load_some(x, at)), c);
                l.store_some(l.add(l.mul(a, slope), rest), dx, at);
            }
        }
    }
}

lanes! {
    /// Copies all planes of a channel that is to be overwritten one behind the other.
    fn gather_own(l; dx: &OneBox<'_, f32>, channel: usize, buffer: &mut [f32]) {
        let mut filled = 0;
        for n in dx.ranges()[0].clone() {
            let plane = dx.peek([n, channel, 0]);
            copy(l, &mut buffer[filled..], plane);
            filled += plane.len();
        }
    }
}

/// Batch, channels and pixels of the first operand.
fn image(call: &Call) -> (usize, usize, usize) {
    let shape = call.whole(&call.inputs);
    let (batch, channels) = (shape.dim(0) as usize, shape.dim(1) as usize);
    (batch, channels, shape.elements() as usize / (batch * channels))
}

/// The results of a batch norm: every part in boxes of one channel.
fn results<'a>(
    args: &mut Args<'a, '_>,
    channels: usize,
    plane: usize,
) -> Result<[Option<Boxes<'a, f32>>; MOST], String> {
    let mut all = [const { None }; MOST];
    for (part, to) in all.iter_mut().enumerate().take(args.call.parts) {
        let batch = args.call.outputs[part].shape.dim(0) as usize;
        *to = Some(Boxes::new(args.write(part)?, [batch, channels, 1, plane], [batch, 1, 1, plane]));
    }
    Ok(all)
}

/// One channel of a batch.
#[derive(Clone, Copy)]
struct Channel<'x> {
    samples: Samples<'x>,
    /// Where the channel begins in a sample, and numbers of a sample.
    start: usize,
    size: usize,
    /// Numbers of the channel in a sample.
    plane: usize,
}

impl<'x> Channel<'x> {
    /// The plane of sample `n`.
    fn plane(&self, n: usize) -> &'x [f32] {
        &self.samples.from(n)[self.start..][..self.plane]
    }

    /// The planes of a part.
    fn part(&self, part: usize) -> Planes<'x> {
        Planes(&self.samples.part(part)[self.start..], self.size)
    }

    /// Copies all planes of this channel and those behind it one behind the other, where they are so few that all fit: at
    /// distances that are powers of two they would be in each other's way in the cache, so they are read only once, and
    /// those of a sample together.
    fn gather(&self, batch: usize, channels: usize, buffer: &mut [f32; PIECE]) {
        let mut at = 0;
        while at < batch {
            let count = self.samples.beside(at, batch - at);
            let (from, to) = ([self.size, self.plane, 1], [self.plane, batch * self.plane]);
            let layout = Layout { counts: [count, channels, self.plane], from, to };
            lay(layout, &self.samples.from(at)[self.start..], 0.0, &mut buffer[at * self.plane..]);
            at += count;
        }
    }

    /// This channel, which is number `at` of those that were gathered.
    fn gathered<'b>(&self, batch: usize, at: usize, buffer: &'b [f32; PIECE]) -> Gathered<'b> {
        let part = self.samples.first(1).saturating_mul(self.plane);
        let count = batch * self.plane;
        Gathered { numbers: &buffer[at * count..][..count], part, plane: self.plane }
    }
}

/// How many channels are gathered at a time; none where one is too large.
fn together(batch: usize, plane: usize) -> usize {
    PIECE / (batch * plane).max(1)
}

/// The planes of a channel, gathered.
#[derive(Clone, Copy)]
struct Gathered<'b> {
    numbers: &'b [f32],
    /// Numbers of a part.
    part: usize,
    plane: usize,
}

impl<'b> Gathered<'b> {
    /// The planes of a part.
    fn part(&self, part: usize) -> Planes<'b> {
        Planes(&self.numbers[part * self.part..], self.plane)
    }
}

pub(super) fn batch(mut args: Args<'_, '_>, epsilon: f32, momentum: f32) -> Result<(), String> {
    let parts = args.call.parts;
    let (x, gamma, beta) = (args.samples(0)?, args.read(parts)?, args.read(parts + 1)?);
    let (batch, channels, plane) = image(args.call);
    let y = results(&mut args, channels, plane)?;
    let (means, deviations) = (args.write(parts)?, args.write(parts + 1)?);
    let (running_mean, running_variance) = (args.write(parts + 2)?, args.write(parts + 3)?);
    let one = |numbers| Rows::new(numbers, 1, channels);
    let shares = (y, [means, deviations, running_mean, running_variance].map(one));
    let size = channels * plane;
    args.pool.each_of(
        batch * size,
        shares,
        |_, (mut y, [means, deviations, running_mean, running_variance])| {
            let mut buffer = [0f32; PIECE];
            let (units, some) = (y[0].as_ref().map_or(0..0, |y| y.units()), together(batch, plane));
            for (i, c) in units.clone().enumerate() {
                let from = Channel { samples: x, start: c * plane, size, plane };
                if some > 0 && i % some == 0 {
                    from.gather(batch, some.min(units.end - c), &mut buffer);
                }
                let gathered = (some > 0).then(|| from.gathered(batch, i % some, &buffer));
                let moments = match gathered {
                    Some(gathered) => {
                        let mut moments = Moments::default();
                        moments.add(gathered.numbers);
                        moments
                    }
                    None => plane_moments((0..batch).map(|n| from.plane(n))),
                };
                let (mean, deviation) = (moments.mean as f32, moments.deviation(epsilon));
                (means.1[i], deviations.1[i]) = (mean, deviation);
                let scale = gamma[c] * deviation;
                let shift = beta[c] - mean * scale;
                for (part, y) in y.iter_mut().flatten().enumerate() {
                    let from = gathered.map_or_else(|| from.part(part), |gathered| gathered.part(part));
                    affine(&mut y.get(c), c, from, scale, shift);
                }
                let unbiased = moments.squares / (moments.count - 1.0).max(1.0);
                let (mean, variance) = (&mut running_mean.1[i], &mut running_variance.1[i]);
                *mean += momentum * (moments.mean as f32 - *mean);
                *variance += momentum * (unbiased as f32 - *variance);
            }
        },
    );
    Ok(())
}

pub(super) fn batch_backward(mut args: Args<'_, '_>) -> Result<(), String> {
    let parts = args.call.parts;
    let (x, gamma) = (args.samples(0)?, args.read(parts)?);
    let (means, deviations) = (args.read(parts + 1)?, args.read(parts + 2)?);
    let (batch, channels, plane) = image(args.call);
    let dy = args.maybe_samples(parts + 3)?;
    let dx = results(&mut args, channels, plane)?;
    let (dgamma, dbeta) = (args.write(parts)?, args.write(parts + 1)?);
    let one = |numbers| Rows::new(numbers, 1, channels);
    let size = channels * plane;
    let shares = (dx, one(dgamma), one(dbeta));
    args.pool.each_of(2 * batch * size, shares, |_, (mut dx, (_, dgamma), (_, dbeta))| {
        let mut buffers = [[0f32; PIECE]; 2];
        let (units, some) = (dx[0].as_ref().map_or(0..0, |dx| dx.units()), together(batch, plane));
        for (i, c) in units.clone().enumerate() {
            let (mean, deviation) = (means[c], deviations[c]);
            let of = |samples| Channel { samples, start: c * plane, size, plane };
            let (from, slope) = (of(x), dy.map(of));
            let [first, second] = &mut buffers;
            if some > 0 && i % some == 0 {
                let channels = some.min(units.end - c);
                from.gather(batch, channels, first);
                slope.iter().for_each(|slope| slope.gather(batch, channels, second));
            }
            let gathered = (some > 0).then(|| {
                let x = from.gathered(batch, i % some, first);
                let dy = match slope {
                    Some(slope) => slope.gathered(batch, i % some, second),
                    None => {
                        for (part, dx) in dx.iter_mut().flatten().enumerate() {
                            gather_own(&dx.get(c), c, &mut second[part * x.part..]);
                        }
                        Gathered { numbers: &second[..batch * plane], ..x }
                    }
                };
                (x, dy)
            });
            let [plain, weighed] = match (gathered, slope) {
                (Some((x, dy)), _) => slopes(x.numbers, dy.numbers, mean).map(f64::from),
                (None, Some(dy)) => plane_slopes((0..batch).map(|n| (from.plane(n), dy.plane(n))), mean),
                (None, None) => {
                    let own = dx.each_mut().map(|dx| dx.as_mut().map(|dx| dx.get(c)));
                    let own = own.iter().flatten();
                    let own = own.flat_map(|dx| dx.ranges()[0].clone().map(move |n| dx.peek([n, c, 0])));
                    plane_slopes((0..batch).map(|n| from.plane(n)).zip(own), mean)
                }
            };
            (dbeta[i], dgamma[i]) = (plain as f32, (weighed * f64::from(deviation)) as f32);
            let count = (batch * plane) as f32;
            // dx = gamma · deviation · (dy − mean of dy − x̂ · mean of dy · x̂).
            let a = gamma[c] * deviation;
            let b = -a * deviation * dgamma[i] / count;
            let shift = -a * dbeta[i] / count - b * mean;
            for (part, dx) in dx.iter_mut().flatten().enumerate() {
                let (slope, from) = match gathered {
                    Some((x, dy)) => (Some(dy.part(part)), x.part(part)),
                    None => (slope.map(|slope| slope.part(part)), from.part(part)),
                };
                affine_slope(&mut dx.get(c), c, slope, from, [a, b, shift]);
            }
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

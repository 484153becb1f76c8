//! Batch norm and its gradients: every channel has statistics of its own, over all samples.
//!
//! A channel's planes lie far apart, one in each sample, but those of neighbouring channels lie side by side. So channels are
//! taken many at a time, as far as the cache has room for them: their statistics, then their results. Memory is then read
//! and written in long stretches, whatever the size of a plane. Of small planes, sums are kept for every place over all
//! samples, and each channel adds up its own at the end; of large ones, each is added up by itself.

use std::ops::Range;

use super::super::args::{Args, Call};
use super::super::samples::{MOST, Samples};
use super::super::shares::{Boxes, OneBox, SomeBoxes};
use super::super::simd::{PARTS, Sums, lanes, wide};
use super::{Moments, PIECE, sum};

/// The most numbers of a sample that are taken at a time, where planes are small.
const ROW: usize = 1024;

/// The largest small planes.
const SMALL: usize = 64;

/// Numbers of all samples that are taken at a time, where planes are large: half of a second-level cache.
const TOGETHER: usize = 128 << 10;

/// Samples whose sums are kept in f32; those are added in f64.
const SAMPLES: usize = 32;

/// A number for every place of a row.
type Row = [f32; ROW];

wide! {
    /// Adds x.
    fn add(sums: &mut [f32], x: &[f32]) {
        sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += x);
    }
}

wide! {
    /// Adds (x − mean)².
    fn add_squares(sums: &mut [f32], x: &[f32], means: &[f32]) {
        sums.iter_mut().zip(x).zip(means).for_each(|((sum, x), mean)| *sum += (x - mean) * (x - mean));
    }
}

wide! {
    /// Adds dy, and dy · (x − mean).
    fn add_slopes(alone: &mut [f32], weighed: &mut [f32], x: &[f32], dy: &[f32], means: &[f32]) {
        let sums = alone.iter_mut().zip(weighed);
        sums.zip(x.iter().zip(dy)).zip(means).for_each(|(((alone, weighed), (x, dy)), mean)| {
            *alone += dy;
            *weighed += dy * (x - mean);
        });
    }
}

wide! {
    /// y = a · x + b, with factors for every place.
    fn affine(y: &mut [f32], x: &[f32], a: &[f32], b: &[f32]) {
        y.iter_mut().zip(x).zip(a.iter().zip(b)).for_each(|((y, x), (a, b))| *y = a * x + b);
    }
}

wide! {
    /// y = a · x + b.
    fn affine_plane(y: &mut [f32], x: &[f32], a: f32, b: f32) {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = a * x + b);
    }
}

wide! {
    /// dx = a · dy + (b · x + c), with factors for every place, where an absent dy lies in dx.
    fn slope(dx: &mut [f32], dy: Option<&[f32]>, x: &[f32], a: &[f32], b: &[f32], c: &[f32]) {
        let factors = a.iter().zip(b).zip(c);
        match dy {
            Some(dy) => {
                dx.iter_mut().zip(dy).zip(x).zip(factors).for_each(|(((dx, dy), x), ((a, b), c))| {
                    *dx = a * dy + (b * x + c);
                });
            }
            None => dx.iter_mut().zip(x).zip(factors).for_each(|((dx, x), ((a, b), c))| {
                *dx = a * *dx + (b * x + c);
            }),
        }
    }
}

wide! {
    /// dx = a · dy + (b · x + c), where an absent dy lies in dx.
    fn slope_plane(dx: &mut [f32], dy: Option<&[f32]>, x: &[f32], factors: [f32; 3]) {
        let [a, b, c] = factors;
        match dy {
            Some(dy) => dx.iter_mut().zip(dy).zip(x).for_each(|((dx, dy), x)| *dx = a * dy + (b * x + c)),
            None => dx.iter_mut().zip(x).for_each(|(dx, x)| *dx = a * *dx + (b * x + c)),
        }
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

/// Puts a factor at every place of its channel.
fn spread(row: &mut [f32], plane: usize, factors: impl Iterator<Item = f32>) {
    row.chunks_exact_mut(plane).zip(factors).for_each(|(places, factor)| places.fill(factor));
}

/// A batch norm's extents.
#[derive(Clone, Copy)]
struct Norm {
    batch: usize,
    channels: usize,
    plane: usize,
    /// How many channels are taken at a time.
    group: usize,
}

/// The most channels of a group.
const GROUP: usize = 256;

impl Norm {
    fn new(call: &Call) -> Norm {
        let shape = call.whole(&call.inputs);
        let (batch, channels) = (shape.dim(0) as usize, shape.dim(1) as usize);
        let plane = shape.elements() as usize / (batch * channels);
        let most = if plane <= SMALL { ROW / plane.max(1) } else { TOGETHER / (batch * plane).max(1) };
        // There are some groups for every thread.
        let group = most.min(channels / 16).clamp(1, GROUP);
        Norm { batch, channels, plane, group }
    }

    /// Whether planes are so small that channels are taken together.
    fn is_small(&self) -> bool {
        self.plane <= SMALL
    }

    /// Results: every part in boxes of a group of channels.
    fn results<'a>(&self, args: &mut Args<'a, '_>) -> Result<[Option<Boxes<'a, f32>>; MOST], String> {
        let Norm { channels, plane, group, .. } = *self;
        let mut all = [const { None }; MOST];
        for (part, to) in all.iter_mut().enumerate().take(args.call.parts) {
            let batch = args.call.outputs[part].shape.dim(0) as usize;
            *to = Some(Boxes::new(args.write(part)?, [batch, channels, 1, plane], [batch, group, 1, plane]));
        }
        Ok(all)
    }

    /// One number for every channel, in the same groups.
    fn each<'a>(&self, numbers: &'a mut [f32]) -> Boxes<'a, f32> {
        Boxes::new(numbers, [1, self.channels, 1, 1], [1, self.group, 1, 1])
    }

    /// The channels of a group.
    fn group(&self, unit: usize) -> Range<usize> {
        unit * self.group..((unit + 1) * self.group).min(self.channels)
    }

    /// The planes of some channels in a sample.
    fn row<'x>(&self, samples: &Samples<'x>, n: usize, group: &Range<usize>) -> &'x [f32] {
        &samples.from(n)[group.start * self.plane..group.end * self.plane]
    }

    /// The moments of some channels.
    fn moments(&self, x: &Samples<'_>, group: &Range<usize>, moments: &mut [Moments]) {
        moments.fill(Moments::default());
        if !self.is_small() {
            for n in 0..self.batch {
                let planes = self.row(x, n, group).chunks_exact(self.plane);
                planes.zip(&mut *moments).for_each(|(plane, moments)| moments.add(plane));
            }
            return;
        }
        let (mut sums, mut squares): (Row, Row) = ([0.0; ROW], [0.0; ROW]);
        let [sums, squares] = [&mut sums, &mut squares].map(|row| &mut row[..group.len() * self.plane]);
        for first in (0..self.batch).step_by(SAMPLES) {
            let samples = first..(first + SAMPLES).min(self.batch);
            let count = samples.len() * self.plane;
            sums.fill(0.0);
            samples.clone().for_each(|n| add(sums, self.row(x, n, group)));
            // Every place gets the mean of its channel.
            for places in sums.chunks_exact_mut(self.plane) {
                places.fill(sum(places) / count as f32);
            }
            squares.fill(0.0);
            samples.clone().for_each(|n| add_squares(squares, self.row(x, n, group), sums));
            let places = sums.chunks_exact(self.plane).zip(squares.chunks_exact(self.plane));
            for ((means, squares), moments) in places.zip(&mut *moments) {
                let (mean, squares) = (means[0].into(), sum(squares).into());
                moments.merge(Moments { count: count as f64, mean, squares });
            }
        }
    }

    /// Σ dy and Σ dy · (x − mean) of some channels, from what they have in every sample.
    fn slopes<'x>(
        &self,
        rows: impl Iterator<Item = (&'x [f32], &'x [f32])>,
        means: &[f32],
        all: &mut [[f64; 2]],
    ) {
        all.fill([0.0; 2]);
        let mut more = |at: usize, [plain, weighed]: [f32; 2]| {
            all[at][0] += f64::from(plain);
            all[at][1] += f64::from(weighed);
        };
        if !self.is_small() {
            for (x, dy) in rows {
                let planes = x.chunks_exact(self.plane).zip(dy.chunks_exact(self.plane));
                for (at, (x, dy)) in planes.enumerate() {
                    let pieces = x.chunks(PIECE).zip(dy.chunks(PIECE));
                    pieces.for_each(|(x, dy)| more(at, slopes(x, dy, means[at])));
                }
            }
            return;
        }
        let (mut plain, mut weighed, mut spread_out): (Row, Row, Row) = ([0.0; ROW], [0.0; ROW], [0.0; ROW]);
        let places = means.len() * self.plane;
        let [plain, weighed, spread_out] =
            [&mut plain, &mut weighed, &mut spread_out].map(|row| &mut row[..places]);
        spread(spread_out, self.plane, means.iter().copied());
        let mut add_up = |plain: &mut [f32], weighed: &mut [f32]| {
            let channels = plain.chunks_exact_mut(self.plane).zip(weighed.chunks_exact_mut(self.plane));
            for (at, (plain, weighed)) in channels.enumerate() {
                more(at, [sum(plain), sum(weighed)]);
                plain.fill(0.0);
                weighed.fill(0.0);
            }
        };
        for (n, (x, dy)) in rows.enumerate() {
            add_slopes(plain, weighed, x, dy, spread_out);
            if (n + 1).is_multiple_of(SAMPLES) {
                add_up(plain, weighed);
            }
        }
        if !self.batch.is_multiple_of(SAMPLES) {
            add_up(plain, weighed);
        }
    }
}

pub(in super::super) fn batch(mut args: Args<'_, '_>, epsilon: f32, momentum: f32) -> Result<(), String> {
    let parts = args.call.parts;
    let (x, gamma, beta) = (args.samples(0)?, args.read(parts)?, args.read(parts + 1)?);
    let norm = Norm::new(args.call);
    let Norm { batch, channels, plane, .. } = norm;
    let y = norm.results(&mut args)?;
    let (means, deviations) = (args.write(parts)?, args.write(parts + 1)?);
    let (running_mean, running_variance) = (args.write(parts + 2)?, args.write(parts + 3)?);
    let statistics = [means, deviations, running_mean, running_variance].map(|numbers| norm.each(numbers));
    args.pool.each_of(batch * channels * plane, (y, statistics), |_, (mut y, mut statistics)| {
        let mut moments = [Moments::default(); GROUP];
        let [mut scales, mut shifts]: [Row; 2] = [[0.0; ROW]; 2];
        for unit in statistics[0].units() {
            let group = norm.group(unit);
            let moments = &mut moments[..group.len()];
            norm.moments(&x, &group, moments);
            let mut boxes = statistics.each_mut().map(|numbers| numbers.get(unit));
            let [means, deviations, running_mean, running_variance] =
                boxes.each_mut().map(|numbers| numbers.whole());
            for (i, moments) in moments.iter().enumerate() {
                (means[i], deviations[i]) = (moments.mean as f32, moments.deviation(epsilon));
                let unbiased = moments.squares / (moments.count - 1.0).max(1.0);
                running_mean[i] += momentum * (means[i] - running_mean[i]);
                running_variance[i] += momentum * (unbiased as f32 - running_variance[i]);
            }
            let scale = |i: usize| gamma[group.start + i] * deviations[i];
            let shift = |i: usize| beta[group.start + i] - means[i] * scale(i);
            if norm.is_small() {
                spread(&mut scales, plane, (0..group.len()).map(scale));
                spread(&mut shifts, plane, (0..group.len()).map(shift));
            }
            each_sample(&mut y, unit, |n, y| {
                let x = norm.row(&x, n, &group);
                if norm.is_small() {
                    return affine(y, x, &scales, &shifts);
                }
                for (i, (y, x)) in y.chunks_exact_mut(plane).zip(x.chunks_exact(plane)).enumerate() {
                    affine_plane(y, x, scale(i), shift(i));
                }
            });
        }
    });
    Ok(())
}

/// Calls `task` with every sample's number and what is of it in a box, part by part.
fn each_sample(
    parts: &mut [Option<SomeBoxes<'_, f32>>; MOST],
    unit: usize,
    mut task: impl FnMut(usize, &mut [f32]),
) {
    let mut first = 0;
    for part in parts.iter_mut().flatten() {
        let mut one: OneBox<'_, f32> = part.get(unit);
        let samples = one.ranges()[0].clone();
        samples.clone().for_each(|n| task(first + n, one.slab(n)));
        first += samples.len();
    }
}

pub(in super::super) fn batch_backward(mut args: Args<'_, '_>) -> Result<(), String> {
    let parts = args.call.parts;
    let (x, gamma) = (args.samples(0)?, args.read(parts)?);
    let (means, deviations) = (args.read(parts + 1)?, args.read(parts + 2)?);
    let norm = Norm::new(args.call);
    let Norm { batch, channels, plane, .. } = norm;
    let dy = args.maybe_samples(parts + 3)?;
    let dx = norm.results(&mut args)?;
    let (dgamma, dbeta) = (args.write(parts)?, args.write(parts + 1)?);
    let sums = [dgamma, dbeta].map(|numbers| norm.each(numbers));
    args.pool.each_of(2 * batch * channels * plane, (dx, sums), |_, (mut dx, mut sums)| {
        let mut all = [[0f64; 2]; GROUP];
        let mut factors: [Row; 3] = [[0.0; ROW]; 3];
        for unit in sums[0].units() {
            let group = norm.group(unit);
            let (means, deviations) = (&means[group.clone()], &deviations[group.clone()]);
            let all = &mut all[..group.len()];
            let rows = (0..batch).map(|n| norm.row(&x, n, &group));
            match &dy {
                Some(dy) => norm.slopes(rows.zip((0..batch).map(|n| norm.row(dy, n, &group))), means, all),
                None => {
                    let own = dx.each_mut().map(|dx| dx.as_mut().map(|dx| dx.get(unit)));
                    let own = own.iter().flatten();
                    let own = own.flat_map(|dx| dx.ranges()[0].clone().map(move |n| dx.peek_slab(n)));
                    norm.slopes(rows.zip(own), means, all);
                }
            }
            let mut boxes = sums.each_mut().map(|numbers| numbers.get(unit));
            let [dgamma, dbeta] = boxes.each_mut().map(|numbers| numbers.whole());
            for (i, [plain, weighed]) in all.iter().enumerate() {
                (dbeta[i], dgamma[i]) = (*plain as f32, (weighed * f64::from(deviations[i])) as f32);
            }
            // dx = gamma · deviation · (dy − mean of dy − x̂ · mean of dy · x̂).
            let count = (batch * plane) as f32;
            let a = |i: usize| gamma[group.start + i] * deviations[i];
            let b = |i: usize| -a(i) * deviations[i] * dgamma[i] / count;
            let c = |i: usize| -a(i) * dbeta[i] / count - b(i) * means[i];
            let [by_slope, by_number, shifts] = &mut factors;
            if norm.is_small() {
                spread(by_slope, plane, (0..group.len()).map(a));
                spread(by_number, plane, (0..group.len()).map(b));
                spread(shifts, plane, (0..group.len()).map(c));
            }
            each_sample(&mut dx, unit, |n, dx| {
                let (x, dy) = (norm.row(&x, n, &group), dy.as_ref().map(|dy| norm.row(dy, n, &group)));
                if norm.is_small() {
                    return slope(dx, dy, x, by_slope, by_number, shifts);
                }
                for (i, (dx, x)) in dx.chunks_exact_mut(plane).zip(x.chunks_exact(plane)).enumerate() {
                    let dy = dy.map(|dy| &dy[i * plane..][..plane]);
                    slope_plane(dx, dy, x, [a(i), b(i), c(i)]);
                }
            });
        }
    });
    Ok(())
}

//! Batch norm and its gradients: every channel has statistics of its own, over all samples.
//!
//! A channel's planes lie far apart, one in each sample, but those of neighbouring channels lie side by side. So channels are
//! taken many at a time, as far as the cache has room for them: their statistics, then their results. Memory is then read
//! and written in long stretches, whatever the size of a plane. Of small planes, every channel has sums in as many parts as
//! a vector has numbers, or one for every pixel of less, and these are added up after many samples; of large ones, each is
//! added up by itself. What is left to do for a channel is little, but so are its numbers: that too is done for many
//! channels at a time, in vectors.

use crate::KernelError;
use std::ops::Range;

use super::super::args::{Args, Call};
use super::super::samples::{MOST, Samples};
use super::super::shares::{Boxes, OneBox, SomeBoxes};
use super::super::simd::{Lanes, PARTS, Sums, add_neighbours, lanes, wide};
use super::{Moments, PIECE};

/// The largest planes whose sums are kept over all samples.
const SMALL: usize = 256;

/// Numbers of all samples that are taken at a time: half of a second-level cache.
const TOGETHER: usize = 128 << 10;

/// The most samples whose sums are kept in f32; those are added in f64.
const SAMPLES: usize = 32;

/// The most channels that are taken at a time.
const GROUP: usize = 128;

/// A number for every channel that is taken.
type Each<T> = [T; GROUP];

/// Some numbers for every channel that is taken, and room for a vector that begins at the last.
type Row = [f32; GROUP * PARTS + PARTS];

/// Adds a plane's x, or (x − mean)², to the parts of a sum.
#[inline(always)]
fn add_plane<L: Lanes, const SQUARED: bool>(l: L, parts: &mut [f32], x: &[f32], mean: f32) {
    let (mut sums, whole) = (Sums::load(l, parts), x.len() / PARTS * PARTS);
    let minus = l.splat(-mean);
    for first in (0..whole).step_by(PARTS) {
        for part in (0..PARTS).step_by(L::COUNT) {
            let x = l.load(x, first + part);
            let off = l.add(x, minus);
            sums.add(l, part, if SQUARED { l.mul(off, off) } else { x });
        }
    }
    let there = (1u16 << (x.len() - whole)) - 1;
    for part in (0..x.len() - whole).step_by(L::COUNT) {
        let x = l.load_some(x, whole + part);
        let off = l.pick(l.these(there >> part), l.add(x, minus), x);
        sums.add(l, part, if SQUARED { l.mul(off, off) } else { x });
    }
    sums.store(l, parts);
}

lanes! {
    /// Adds x to the parts of every channel.
    fn add(l; sums: &mut [f32], x: &[f32], plane: usize) {
        if plane <= PARTS {
            sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += x);
            return;
        }
        for (parts, x) in sums.chunks_exact_mut(PARTS).zip(x.chunks_exact(plane)) {
            add_plane::<L, false>(l, parts, x, 0.0);
        }
    }
}

lanes! {
    /// Adds (x − mean)² to the parts of every channel.
    fn add_squares(l; sums: &mut [f32], x: &[f32], plane: usize, means: &Factor) {
        if plane <= PARTS {
            let all = sums.iter_mut().zip(x).zip(&means.row);
            all.for_each(|((sum, x), mean)| *sum += (x - mean) * (x - mean));
            return;
        }
        for ((parts, x), mean) in sums.chunks_exact_mut(PARTS).zip(x.chunks_exact(plane)).zip(&means.each) {
            add_plane::<L, true>(l, parts, x, *mean);
        }
    }
}

lanes! {
    /// Adds dy, and dy · (x − mean), to the parts of every channel.
    fn add_slopes(l; alone: &mut [f32], weighed: &mut [f32], x: &[f32], dy: &[f32], plane: usize, means: &Factor) {
        let sums = alone.iter_mut().zip(&mut *weighed);
        if plane <= PARTS {
            sums.zip(x.iter().zip(dy)).zip(&means.row).for_each(|(((alone, weighed), (x, dy)), mean)| {
                *alone += dy;
                *weighed += dy * (x - mean);
            });
            return;
        }
        let sums = alone.chunks_exact_mut(PARTS).zip(weighed.chunks_exact_mut(PARTS));
        let planes = x.chunks_exact(plane).zip(dy.chunks_exact(plane));
        for (((alone, weighed), (x, dy)), mean) in sums.zip(planes).zip(&means.each) {
            let mut sums = [Sums::load(l, alone), Sums::load(l, weighed)];
            add_plane_slopes(l, &mut sums, x, dy, *mean);
            sums[0].store(l, alone);
            sums[1].store(l, weighed);
        }
    }
}

/// Adds a plane's dy, and dy · (x − mean).
#[inline(always)]
fn add_plane_slopes<L: Lanes>(l: L, [alone, weighed]: &mut [Sums<L>; 2], x: &[f32], dy: &[f32], mean: f32) {
    let (minus, whole) = (l.splat(-mean), x.len() / PARTS * PARTS);
    for first in (0..whole).step_by(PARTS) {
        for part in (0..PARTS).step_by(L::COUNT) {
            let (x, dy) = (l.load(x, first + part), l.load(dy, first + part));
            alone.add(l, part, dy);
            weighed.add(l, part, l.mul(dy, l.add(x, minus)));
        }
    }
    for part in (0..x.len() - whole).step_by(L::COUNT) {
        let (x, dy) = (l.load_some(x, whole + part), l.load_some(dy, whole + part));
        alone.add(l, part, dy);
        weighed.add(l, part, l.mul(dy, l.add(x, minus)));
    }
}

lanes! {
    /// Σ dy and Σ dy · (x − mean).
    fn slopes(l; x: &[f32], dy: &[f32], mean: f32) -> [f32; 2] {
        let mut sums = [Sums::new(l); 2];
        add_plane_slopes(l, &mut sums, x, dy, mean);
        [sums[0].total(l), sums[1].total(l)]
    }
}

lanes! {
    /// y = a · x + b.
    fn affine(l; y: &mut [f32], x: &[f32], plane: usize, a: &Factor, b: &Factor) {
        if plane <= PARTS {
            y.iter_mut().zip(x).zip(a.row.iter().zip(&b.row)).for_each(|((y, x), (a, b))| *y = a * x + b);
            return;
        }
        let planes = y.chunks_exact_mut(plane).zip(x.chunks_exact(plane));
        for ((y, x), (a, b)) in planes.zip(a.each.iter().zip(&b.each)) {
            let (a, b, whole) = (l.splat(*a), l.splat(*b), plane / L::COUNT * L::COUNT);
            for at in (0..whole).step_by(L::COUNT) {
                l.store(l.add(l.mul(a, l.load(x, at)), b), y, at);
            }
            if whole < plane {
                l.store_some(l.add(l.mul(a, l.load_some(x, whole)), b), y, whole);
            }
        }
    }
}

lanes! {
    /// dx = a · dy + (b · x + c), where an absent dy lies in dx.
    fn slope(l; dx: &mut [f32], dy: Option<&[f32]>, x: &[f32], plane: usize, factors: &[Factor; 3]) {
        let [a, b, c] = factors;
        if plane <= PARTS {
            let factors = a.row.iter().zip(&b.row).zip(&c.row);
            match dy {
                Some(dy) => {
                    for (((dx, dy), x), ((a, b), c)) in dx.iter_mut().zip(dy).zip(x).zip(factors) {
                        *dx = a * dy + (b * x + c);
                    }
                }
                None => {
                    for ((dx, x), ((a, b), c)) in dx.iter_mut().zip(x).zip(factors) {
                        *dx = a * *dx + (b * x + c);
                    }
                }
            }
            return;
        }
        let factors = a.each.iter().zip(&b.each).zip(&c.each);
        let planes = dx.chunks_exact_mut(plane).zip(x.chunks_exact(plane));
        for (channel, ((dx, x), ((a, b), c))) in planes.zip(factors).enumerate() {
            let (a, b, c) = (l.splat(*a), l.splat(*b), l.splat(*c));
            let (dy, whole) = (dy.map(|dy| &dy[channel * plane..][..plane]), plane / L::COUNT * L::COUNT);
            for at in (0..whole).step_by(L::COUNT) {
                let dy = l.load(dy.unwrap_or(dx), at);
                l.store(l.add(l.mul(a, dy), l.add(l.mul(b, l.load(x, at)), c)), dx, at);
            }
            if whole < plane {
                let dy = l.load_some(dy.unwrap_or(dx), whole);
                let rest = l.add(l.mul(b, l.load_some(x, whole)), c);
                l.store_some(l.add(l.mul(a, dy), rest), dx, whole);
            }
        }
    }
}

lanes! {
    /// Puts a number at every place of its channel, and at some places behind the last.
    fn spread(l; row: &mut Row, plane: usize, numbers: &[f32]) {
        for (channel, number) in numbers.iter().enumerate() {
            let all = l.splat(*number);
            for at in (0..plane).step_by(L::COUNT) {
                l.store(all, row, channel * plane + at);
            }
        }
    }
}

/// A number for every channel, and for every place where a plane has no more than a sum has parts.
struct Factor {
    each: Each<f32>,
    row: Row,
}

impl Factor {
    fn new() -> Factor {
        Factor { each: [0.0; GROUP], row: [0.0; GROUP * PARTS + PARTS] }
    }

    /// Says that the numbers of so many channels have been written.
    fn ready(&mut self, channels: usize, plane: usize) {
        if plane <= PARTS {
            spread(&mut self.row, plane, &self.each[..channels]);
        }
    }
}

/// Adds up the parts of every channel.
fn add_up(totals: &mut [f32], sums: &mut [f32], parts: usize) {
    if parts == PARTS {
        add_neighbours(sums, PARTS);
        return totals.copy_from_slice(&sums[..totals.len()]);
    }
    for (total, parts) in totals.iter_mut().zip(sums.chunks_exact(parts)) {
        *total = parts.iter().sum();
    }
}

wide! {
    /// Adds a number to that of every channel.
    fn gather(all: &mut [f64], more: &[f32]) {
        all.iter_mut().zip(more).for_each(|(all, more)| *all += f64::from(*more));
    }
}

wide! {
    /// Merges the moments of more numbers, as many of every channel: they are this share of all, and the square of the
    /// distance between the means has this weight.
    fn merge(means: &mut [f64], squares: &mut [f64], more_means: &[f32], more_squares: &[f32], share: f64, weight: f64) {
        let more = more_means.iter().zip(more_squares);
        means.iter_mut().zip(squares).zip(more).for_each(|((mean, squares), (more_mean, more_squares))| {
            let delta = f64::from(*more_mean) - *mean;
            *mean += delta * share;
            *squares += f64::from(*more_squares) + delta * delta * weight;
        });
    }
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

impl Norm {
    fn new(call: &Call) -> Norm {
        let shape = call.whole(&call.inputs);
        let (batch, channels) = (shape.dim(0) as usize, shape.dim(1) as usize);
        let plane = shape.elements() as usize / (batch * channels);
        let most = TOGETHER / (batch * plane).max(1);
        // There are some groups for every thread.
        let group = most.min(channels / 16).clamp(1, GROUP);
        Norm { batch, channels, plane, group }
    }

    /// Whether planes are so small that channels are taken together.
    fn is_small(&self) -> bool {
        self.plane <= SMALL
    }

    /// Results: every part in boxes of a group of channels.
    fn results<'a>(&self, args: &mut Args<'a, '_>) -> Result<[Option<Boxes<'a, f32>>; MOST], KernelError> {
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

    /// The samples whose sums are kept in f32.
    fn samples(&self) -> usize {
        (PIECE / self.plane).clamp(1, SAMPLES)
    }

    /// How many parts a channel's sums have.
    fn parts(&self) -> usize {
        self.plane.min(PARTS)
    }

    /// The means of some channels, and the sums of squares around them.
    fn moments(&self, x: &Samples<'_>, group: &Range<usize>, all: [&mut [f64]; 2], room: &mut Scratch) {
        let [means, squares] = all;
        means.fill(0.0);
        squares.fill(0.0);
        if !self.is_small() {
            for n in 0..self.batch {
                let planes = self.row(x, n, group).chunks_exact(self.plane);
                for ((plane, mean), squares) in planes.zip(&mut *means).zip(&mut *squares) {
                    let count = (n * self.plane) as f64;
                    let mut moments = Moments { count, mean: *mean, squares: *squares };
                    moments.add(plane);
                    (*mean, *squares) = (moments.mean, moments.squares);
                }
            }
            return;
        }
        let [sums, around] = room.sums.each_mut().map(|sums| &mut sums[..group.len() * self.parts()]);
        for first in (0..self.batch).step_by(self.samples()) {
            let samples = first..(first + self.samples()).min(self.batch);
            let [before, count, all] =
                [first, samples.len(), samples.end].map(|samples| (samples * self.plane) as f64);
            sums.fill(0.0);
            samples.clone().for_each(|n| add(sums, self.row(x, n, group), self.plane));
            let some = &mut room.means.each[..group.len()];
            add_up(some, sums, self.parts());
            some.iter_mut().for_each(|mean| *mean /= count as f32);
            room.means.ready(group.len(), self.plane);
            around.fill(0.0);
            samples.for_each(|n| add_squares(around, self.row(x, n, group), self.plane, &room.means));
            add_up(&mut sums[..group.len()], around, self.parts());
            merge(means, squares, &room.means.each, sums, count / all, before * count / all);
        }
    }

    /// Σ dy and Σ dy · (x − mean) of some channels, from what they have in every sample.
    fn slopes<'x>(
        &self,
        rows: impl Iterator<Item = (&'x [f32], &'x [f32])>,
        means: &[f32],
        all: [&mut [f64]; 2],
        room: &mut Scratch,
    ) {
        let [alone, weighed] = all;
        alone.fill(0.0);
        weighed.fill(0.0);
        if !self.is_small() {
            for (x, dy) in rows {
                let planes = x.chunks_exact(self.plane).zip(dy.chunks_exact(self.plane));
                for (at, (x, dy)) in planes.enumerate() {
                    for (x, dy) in x.chunks(PIECE).zip(dy.chunks(PIECE)) {
                        let [some_alone, some_weighed] = slopes(x, dy, means[at]);
                        alone[at] += f64::from(some_alone);
                        weighed[at] += f64::from(some_weighed);
                    }
                }
            }
            return;
        }
        room.means.each[..means.len()].copy_from_slice(means);
        room.means.ready(means.len(), self.plane);
        let [some_alone, some_weighed] =
            room.sums.each_mut().map(|sums| &mut sums[..means.len() * self.parts()]);
        some_alone.fill(0.0);
        some_weighed.fill(0.0);
        for (n, (x, dy)) in rows.enumerate() {
            add_slopes(some_alone, some_weighed, x, dy, self.plane, &room.means);
            if (n + 1).is_multiple_of(self.samples()) || n + 1 == self.batch {
                for (all, some) in [(&mut *alone, &mut *some_alone), (&mut *weighed, &mut *some_weighed)] {
                    let totals = &mut room.totals[..means.len()];
                    add_up(totals, some, self.parts());
                    gather(all, totals);
                    some.fill(0.0);
                }
            }
        }
    }
}

/// What a thread keeps of the channels that it has taken, where planes are small.
struct Scratch {
    sums: [Row; 2],
    totals: Each<f32>,
    means: Factor,
}

impl Scratch {
    fn new() -> Scratch {
        Scratch { sums: [[0.0; GROUP * PARTS + PARTS]; 2], totals: [0.0; GROUP], means: Factor::new() }
    }
}

wide! {
    /// The results of some channels: means and deviations from their moments, those that are kept running, and the factors
    /// of y = scale · x + shift.
    fn conclude(
        moments: [&[f64]; 2], count: f64, epsilon: f32, momentum: f32, gamma: &[f32], beta: &[f32],
        means: &mut [f32], deviations: &mut [f32], running_means: &mut [f32], running_variances: &mut [f32],
        scales: &mut [f32], shifts: &mut [f32],
    ) {
        let all = means.iter_mut().zip(deviations).zip(moments[0].iter().zip(moments[1]));
        let running = running_means.iter_mut().zip(running_variances);
        let factors = scales.iter_mut().zip(shifts).zip(gamma.iter().zip(beta));
        for ((((to_mean, deviation), (mean, squares)), running), ((scale, shift), (gamma, beta))) in
            all.zip(running).zip(factors)
        {
            (*to_mean, *deviation) = (*mean as f32, (1.0 / (squares / count + f64::from(epsilon)).sqrt()) as f32);
            let unbiased = (squares / (count - 1.0).max(1.0)) as f32;
            *running.0 += momentum * (*to_mean - *running.0);
            *running.1 += momentum * (unbiased - *running.1);
            *scale = gamma * *deviation;
            *shift = beta - *to_mean * *scale;
        }
    }
}

wide! {
    /// The gradients of some channels' factors from their sums, and the factors of dx = a · dy + (b · x + c), which is
    /// gamma · deviation · (dy − mean of dy − x̂ · mean of dy · x̂).
    fn conclude_backward(
        alone: &[f64], weighed: &[f64], count: f32, gamma: &[f32], means: &[f32], deviations: &[f32],
        dgamma: &mut [f32], dbeta: &mut [f32], a: &mut [f32], b: &mut [f32], c: &mut [f32],
    ) {
        let known = alone.iter().zip(weighed).zip(gamma).zip(means.iter().zip(deviations));
        let results = dgamma.iter_mut().zip(dbeta).zip(a.iter_mut().zip(b).zip(c));
        for ((((alone, weighed), gamma), (mean, deviation)), ((dgamma, dbeta), ((a, b), c))) in known.zip(results) {
            (*dbeta, *dgamma) = (*alone as f32, (weighed * f64::from(*deviation)) as f32);
            *a = gamma * deviation;
            *b = -*a * deviation * *dgamma / count;
            *c = -*a * *dbeta / count - *b * mean;
        }
    }
}

pub(in super::super) fn batch(
    mut args: Args<'_, '_>,
    epsilon: f32,
    momentum: f32,
) -> Result<(), KernelError> {
    let parts = args.call.parts;
    let (x, gamma, beta) = (args.samples(0)?, args.read(parts)?, args.read(parts + 1)?);
    let norm = Norm::new(args.call);
    let Norm { batch, channels, plane, .. } = norm;
    let y = norm.results(&mut args)?;
    let (means, deviations) = (args.write(parts)?, args.write(parts + 1)?);
    let (running_mean, running_variance) = (args.write(parts + 2)?, args.write(parts + 3)?);
    let statistics = [means, deviations, running_mean, running_variance].map(|numbers| norm.each(numbers));
    args.pool.each_of(batch * channels * plane, (y, statistics), |_, (mut y, mut statistics)| {
        let mut moments: [Each<f64>; 2] = [[0.0; GROUP]; 2];
        let (mut room, mut factors) = (Scratch::new(), [Factor::new(), Factor::new()]);
        for unit in statistics[0].units() {
            let group = norm.group(unit);
            let [all_means, squares] = moments.each_mut().map(|all| &mut all[..group.len()]);
            norm.moments(&x, &group, [&mut *all_means, &mut *squares], &mut room);
            let mut boxes = statistics.each_mut().map(|numbers| numbers.get(unit));
            let [means, deviations, running_means, running_variances] =
                boxes.each_mut().map(|numbers| numbers.whole());
            let [scales, shifts] = factors.each_mut().map(|factor| &mut factor.each[..group.len()]);
            conclude(
                [all_means, squares],
                (batch * plane) as f64,
                epsilon,
                momentum,
                &gamma[group.clone()],
                &beta[group.clone()],
                means,
                deviations,
                running_means,
                running_variances,
                scales,
                shifts,
            );
            factors.iter_mut().for_each(|factor| factor.ready(group.len(), plane));
            each_sample(&mut y, unit, |n, y| {
                affine(y, norm.row(&x, n, &group), plane, &factors[0], &factors[1]);
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

pub(in super::super) fn batch_backward(mut args: Args<'_, '_>) -> Result<(), KernelError> {
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
        let mut all: [Each<f64>; 2] = [[0.0; GROUP]; 2];
        let (mut room, mut factors) = (Scratch::new(), [Factor::new(), Factor::new(), Factor::new()]);
        for unit in sums[0].units() {
            let group = norm.group(unit);
            let (means, deviations) = (&means[group.clone()], &deviations[group.clone()]);
            let [alone, weighed] = all.each_mut().map(|all| &mut all[..group.len()]);
            let rows = (0..batch).map(|n| norm.row(&x, n, &group));
            match &dy {
                Some(dy) => {
                    let slopes = (0..batch).map(|n| norm.row(dy, n, &group));
                    norm.slopes(rows.zip(slopes), means, [&mut *alone, &mut *weighed], &mut room)
                }
                None => {
                    let own = dx.each_mut().map(|dx| dx.as_mut().map(|dx| dx.get(unit)));
                    let own = own.iter().flatten();
                    let own = own.flat_map(|dx| dx.ranges()[0].clone().map(move |n| dx.peek_slab(n)));
                    norm.slopes(rows.zip(own), means, [&mut *alone, &mut *weighed], &mut room);
                }
            }
            let mut boxes = sums.each_mut().map(|numbers| numbers.get(unit));
            let [dgamma, dbeta] = boxes.each_mut().map(|numbers| numbers.whole());
            let [a, b, c] = factors.each_mut().map(|factor| &mut factor.each[..group.len()]);
            let (count, gamma) = ((batch * plane) as f32, &gamma[group.clone()]);
            conclude_backward(alone, weighed, count, gamma, means, deviations, dgamma, dbeta, a, b, c);
            factors.iter_mut().for_each(|factor| factor.ready(group.len(), plane));
            each_sample(&mut dx, unit, |n, dx| {
                let dy = dy.as_ref().map(|dy| norm.row(dy, n, &group));
                slope(dx, dy, norm.row(&x, n, &group), plane, &factors);
            });
        }
    });
    Ok(())
}

//! DLRM's interaction: the dot products of all pairs of features, and their gradient.
//!
//! Many samples are computed at once, one in each lane: their features are turned so that the same element of all of
//! them is one vector, and turned back afterwards. Both directions are then sums of products of vectors, of several rows
//! by several others at a time (`simd::correlate`): features by features over elements, and gradients of pairs by
//! elements over features. Memory brings the next samples, and room for gradients, while products are computed.

use std::ops::Range;

use super::args::{Args, Call, Inputs};
use super::room;
use super::shares::{Each, Rows};
use super::simd::{Correlation, Shifts, Soon, Tile, correlate, fetch, transpose};

/// Features whose sums are kept at a time.
const TILE: usize = 4;

/// Elements of a feature below which memory is asked for the next samples while these are turned: products take too few
/// steps.
const SHORT: usize = 32;

/// Numbers of a line of the cache.
const LINE: usize = 16;

/// Gradients of features that are written in one pass over the samples.
const PASS: usize = 64;

/// The extents of an interaction.
#[derive(Clone, Copy)]
struct Extents {
    /// Features of a sample, and elements of a feature.
    n: usize,
    d: usize,
    batch: usize,
    /// Samples that are computed at once.
    lanes: usize,
}

impl Extents {
    fn new(call: &Call, n: usize) -> Extents {
        Extents { n, d: call.dim(0, 1), batch: call.dim(0, 0), lanes: Tile::here().lanes }
    }

    /// Elements of a result of one sample: the first feature, and all pairs.
    fn row(&self) -> usize {
        self.d + self.n * (self.n - 1) / 2
    }

    /// Where in a result the products of feature i with those before it are.
    fn pairs(&self, i: usize) -> usize {
        self.d + i * (i.max(1) - 1) / 2
    }

    /// The distance of features that are rows of elements: one vector more than they have, because the cache dislikes
    /// powers of two.
    fn apart(&self) -> usize {
        (self.d + 1) * self.lanes
    }

    /// Samples from the first on, as many at a time as are computed at once.
    fn units(&self, first: usize, count: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (lanes, end) = (self.lanes, first + count);
        (first..end).step_by(lanes).map(move |at| at..(at + lanes).min(end))
    }

    /// Numbers of scratch memory for features, results, gradients of all pairs in both orders, those of a tile of
    /// features, and distances.
    fn parts(&self) -> [usize; 5] {
        let Extents { n, d, lanes, .. } = *self;
        [n * self.apart(), self.row() * lanes, n * n * lanes, TILE * d * lanes, room(n.max(d))]
    }

    /// Scratch numbers of one thread.
    fn scratch(&self) -> usize {
        self.parts().iter().sum()
    }

    /// The scratch memory of one thread.
    fn split<'s>(&self, scratch: &'s mut [f32]) -> ([&'s mut [f32]; 4], &'s mut [u32]) {
        let [a, b, c, d, _] = self.parts();
        let (features, rest) = scratch.split_at_mut(a);
        let (results, rest) = rest.split_at_mut(b);
        let (pairs, rest) = rest.split_at_mut(c);
        let (slopes, distances) = rest.split_at_mut(d);
        ([features, results, pairs, slopes], bytemuck::cast_slice_mut(distances))
    }
}

/// Scratch numbers.
pub(super) fn scratch(call: &Call, threads: usize, backward: bool) -> usize {
    let n = call.inputs.len() - usize::from(backward);
    threads * Extents::new(call, n).scratch()
}

/// What of the next unit memory has not been asked for: its samples, feature by feature and then the gradients of
/// results, and where some gradients of features go.
struct Ahead<'a, 'v> {
    e: Extents,
    inputs: Inputs<'a, 'v>,
    /// The first sample.
    sample: usize,
    /// The operand that is next, and how much of it has been asked for.
    operand: usize,
    asked: usize,
    /// Places of gradients, with how many there are.
    writes: [(*const f32, usize); TILE],
}

impl<'a, 'v> Ahead<'a, 'v> {
    /// All of the unit that begins with a sample, but for short features.
    fn new(e: Extents, inputs: Inputs<'a, 'v>, sample: usize) -> Ahead<'a, 'v> {
        let operand = if e.d < SHORT { e.n } else { 0 };
        Ahead { e, inputs, sample, operand, asked: 0, writes: [(std::ptr::null(), 0); TILE] }
    }

    /// The next numbers that will be read, up to so many; none where all have been asked for.
    fn read(&mut self, most: usize) -> &'a [f32] {
        while self.operand < self.inputs.call.inputs.len() {
            let width = if self.operand < self.e.n { self.e.d } else { self.e.row() };
            let all = self.inputs.read(self.operand).expect("it was checked");
            let end = ((self.sample + self.e.lanes) * width).min(all.len());
            let start = self.sample * width + self.asked;
            if start < end {
                let count = most.min(end - start);
                self.asked += count;
                return &all[start..start + count];
            }
            (self.operand, self.asked) = (self.operand + 1, 0);
        }
        &[]
    }

    /// What is asked for in so many steps.
    fn next(&mut self, steps: usize) -> Soon<'a> {
        let (read, most) = (self.read(steps * LINE), steps * LINE);
        let Some((at, left)) = self.writes.iter_mut().find(|(_, left)| *left > 0) else {
            return Soon { read, ..Soon::NOTHING };
        };
        let write = (*at, most.min(*left));
        (*at, *left) = (at.wrapping_add(write.1), *left - write.1);
        Soon { read, write }
    }

    /// Asks for what is left to read.
    fn rest(&mut self) {
        loop {
            let some = self.read(usize::MAX);
            if some.is_empty() {
                return;
            }
            fetch(some);
        }
    }
}

/// Adds up the products of some rows of `a` with those of `b`; the sums of a row with all of them begin at its place of
/// `out`. Rows are `length` vectors long; those of `a` are `stride` numbers apart.
fn meet(
    lanes: usize,
    (a, rows, stride): (&[f32], usize, usize),
    (b, shifts): (&[f32], Shifts<'_>),
    length: usize,
    ahead: &mut Ahead<'_, '_>,
    (out, places): (&mut [f32], [usize; TILE]),
) {
    // As many at a time as there are registers, or a little less, so that the last are not few.
    let count = shifts.count();
    let most = count.div_ceil(count.div_ceil(Correlation::shifts(rows)));
    // The first ones last: they are right where others wrote what nobody asked for.
    for first in (0..count).step_by(most).rev() {
        let some = first..(first + most).min(count);
        let places = places.map(|place| place + first * lanes);
        let soon = ahead.next(length);
        correlate(shifts.range(some), (a, rows, stride), b, length * lanes, (out, places, false), soon);
    }
}

/// The first feature and all products: features are rows of elements.
fn products(e: Extents, x: &[f32], distances: &[u32], ahead: &mut Ahead<'_, '_>, y: &mut [f32]) {
    let Extents { n, d, lanes, .. } = e;
    for top in (0..n).step_by(TILE) {
        let rows = TILE.min(n - top);
        let earlier = Shifts::new(&distances[..top + rows - 1]);
        if earlier.count() == 0 {
            break;
        }
        let tile = (&x[top * e.apart()..], rows, e.apart());
        // A feature meets some that are not before it: what they give is where the first ones of the next feature are, which
        // are written later.
        let places = std::array::from_fn(|i| e.pairs(top + i) * lanes);
        meet(lanes, tile, (x, earlier), d, ahead, (y, places));
    }
    y[..d * lanes].copy_from_slice(&x[..d * lanes]);
}

/// The gradients by some features: of all their products, and for the first its own. Elements are rows of features.
fn slopes(
    e: Extents,
    top: usize,
    [x, pairs, dy]: [&[f32]; 3],
    distances: &[u32],
    ahead: &mut Ahead<'_, '_>,
    out: &mut [f32],
) {
    let Extents { n, d, lanes, .. } = e;
    let rows = TILE.min(n - top);
    let elements = Shifts::new(&distances[..d]);
    let tile = (&pairs[top * n * lanes..], rows, n * lanes);
    meet(lanes, tile, (x, elements), n, ahead, (out, std::array::from_fn(|i| i * d * lanes)));
    if top == 0 {
        out.iter_mut().zip(&dy[..d * lanes]).for_each(|(out, dy)| *out += dy);
    }
}

/// The gradients of all pairs in both orders.
fn mirror<const LANES: usize>(e: Extents, dy: &[f32], pairs: &mut [f32]) {
    let ((dy, _), (pairs, _)) = (dy.as_chunks::<LANES>(), pairs.as_chunks_mut::<LANES>());
    for i in 0..e.n {
        let lower = &dy[e.pairs(i)..][..i];
        pairs[i * e.n..][..i].copy_from_slice(lower);
        pairs[i * e.n + i] = [0.0; LANES];
        for (j, slope) in lower.iter().enumerate() {
            pairs[j * e.n + i] = *slope;
        }
    }
}

/// Turns the features of a unit's samples, so that neighbouring elements and neighbouring features are so far apart.
fn turn(
    e: Extents,
    samples: &Range<usize>,
    inputs: Inputs<'_, '_>,
    [element, feature]: [usize; 2],
    x: &mut [f32],
) {
    for at in 0..e.n {
        let all = inputs.read(at).expect("it was checked");
        let from = &all[samples.start * e.d..samples.end * e.d];
        if e.d < SHORT {
            fetch(&all[samples.end * e.d..((samples.end + e.lanes) * e.d).min(all.len())]);
        }
        // The second-level cache has the samples of the next feature; the first is asked for them where neighbouring elements
        // go to places that it does not have.
        if e.d >= SHORT && element > feature && at + 1 < e.n {
            let next = inputs.read(at + 1).expect("it was checked");
            fetch(&next[samples.start * e.d..samples.end * e.d]);
        }
        transpose(from, e.d, samples.len(), e.d, element, &mut x[at * feature..]);
    }
}

pub(super) fn forward(mut args: Args<'_, '_>) -> Result<(), String> {
    let e = Extents::new(args.call, args.call.inputs.len());
    (0..e.n).try_for_each(|i| args.read(i).map(drop))?;
    let (y, scratch) = (args.write(0)?, args.scratch());
    let (row, inputs) = (e.row(), Inputs { call: args.call, places: args.places, views: args.views });
    let shares = (Each::new(scratch, e.scratch()), Rows::new(y, row, e.batch));
    args.pool.each(shares, |_, (scratch, (first, y))| {
        let ([x, results, _, _], distances) = e.split(scratch);
        distances.iter_mut().enumerate().for_each(|(j, distance)| *distance = (j * e.apart()) as u32);
        for (samples, y) in e.units(first, y.len() / row).zip(y.chunks_mut(e.lanes * row)) {
            turn(e, &samples, inputs, [e.lanes, e.apart()], x);
            let mut ahead = Ahead::new(e, inputs, samples.end);
            products(e, x, distances, &mut ahead, results);
            ahead.rest();
            transpose(results, e.lanes, row, samples.len(), row, y);
        }
    });
    Ok(())
}

pub(super) fn backward(mut args: Args<'_, '_>) -> Result<(), String> {
    let e = Extents::new(args.call, args.call.outputs.len());
    (0..e.n).try_for_each(|i| args.read(i).map(drop))?;
    let (row, dy, scratch) = (e.row(), args.read(e.n)?, args.scratch());
    for pass in (0..e.n).step_by(PASS) {
        let mut outputs = [const { None }; PASS];
        for (i, output) in (pass..e.n).zip(&mut outputs) {
            *output = Some(Rows::new(args.write(i)?, e.d, e.batch));
        }
        let inputs = Inputs { call: args.call, places: args.places, views: args.views };
        let shares = (Each::new(scratch, e.scratch()), outputs);
        args.pool.each(shares, |_, (scratch, mut outputs)| {
            let ([x, turned, pairs, out], distances) = e.split(scratch);
            distances.iter_mut().enumerate().for_each(|(k, distance)| *distance = (k * e.n * e.lanes) as u32);
            let (first, count) = outputs[0].as_ref().map_or((0, 0), |(first, dx)| (*first, dx.len() / e.d));
            for samples in e.units(first, count) {
                let own = (samples.start - first) * e.d..(samples.end - first) * e.d;
                turn(e, &samples, inputs, [e.n * e.lanes, e.lanes], x);
                let from = &dy[samples.start * row..samples.end * row];
                transpose(from, row, samples.len(), row, e.lanes, turned);
                match e.lanes {
                    16 => mirror::<16>(e, turned, pairs),
                    _ => mirror::<8>(e, turned, pairs),
                }
                let mut ahead = Ahead::new(e, inputs, samples.end);
                for some in (0..PASS).step_by(TILE).map(|first| first..first + TILE) {
                    if outputs[some.start].is_none() {
                        break;
                    }
                    // The places of the next gradients: of these samples, or of the next the first ones.
                    let last = outputs.get(some.end).is_none_or(|output| output.is_none());
                    let (next, skip) = if last { (0, own.end) } else { (some.end, own.start) };
                    for (write, output) in ahead.writes.iter_mut().zip(&outputs[next..next + TILE]) {
                        let dx = output.as_ref().map_or(&[][..], |(_, dx)| dx.get(skip..).unwrap_or(&[]));
                        *write = (dx.as_ptr(), dx.len().min(own.len()));
                    }
                    slopes(e, pass + some.start, [x, pairs, turned], distances, &mut ahead, out);
                    let outputs = &mut outputs[some];
                    let results = outputs.iter_mut().flatten();
                    for (slopes, (_, dx)) in out.chunks_exact(e.d * e.lanes).zip(results) {
                        transpose(slopes, e.lanes, e.d, samples.len(), e.d, &mut dx[own.clone()]);
                    }
                }
                ahead.rest();
            }
        });
    }
    Ok(())
}

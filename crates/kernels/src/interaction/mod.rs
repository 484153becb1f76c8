//! DLRM's interaction: the dot products of all pairs of features, and in `back.rs` their gradient.
//!
//! Many samples are computed at once, one in each lane: their features are turned so that the same element of all of
//! them is one vector, and results are turned back afterwards. Results are then sums of products of vectors, of several
//! features by several others at a time (`simd::correlate`). Memory brings the next samples, and room for results, while
//! products are computed.

mod back;

use crate::KernelError;
use std::ops::Range;

use super::args::{Args, Call, Inputs};
use super::room;
use super::shares::{Each, Rows};
use super::simd::{Correlation, Shifts, Soon, Tile, correlate, fetch, foresee, lanes, transpose};

pub(super) use back::{backward, scratch as scratch_backward};

/// Features whose sums are kept at a time.
const TILE: usize = 4;

/// Elements of a feature below which memory is asked for the next samples while these are turned: products take too few
/// steps.
const SHORT: usize = 32;

/// Numbers of a line of the cache.
const LINE: usize = 16;

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
    #[inline(always)]
    fn row(&self) -> usize {
        self.d + self.n * (self.n - 1) / 2
    }

    /// Where in a result the products of feature i with those before it are.
    #[inline(always)]
    fn pairs(&self, i: usize) -> usize {
        self.d + i * (i.max(1) - 1) / 2
    }

    /// The distance of turned features: one vector more than they have, because the cache dislikes powers of two.
    fn apart(&self) -> usize {
        (self.d + 1) * self.lanes
    }

    /// Samples from the first on, as many at a time as are computed at once.
    fn units(&self, first: usize, count: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (lanes, end) = (self.lanes, first + count);
        (first..end).step_by(lanes).map(move |at| at..(at + lanes).min(end))
    }

    /// Numbers of scratch memory for features, results and distances.
    fn parts(&self) -> [usize; 3] {
        [self.n * self.apart(), self.row() * self.lanes, room(self.n)]
    }

    /// Scratch numbers of one thread.
    fn scratch(&self) -> usize {
        self.parts().iter().sum()
    }

    /// The scratch memory of one thread.
    fn split<'s>(&self, scratch: &'s mut [f32]) -> ([&'s mut [f32]; 2], &'s mut [u32]) {
        let [a, b, _] = self.parts();
        let (features, rest) = scratch.split_at_mut(a);
        let (results, distances) = rest.split_at_mut(b);
        ([features, results], bytemuck::cast_slice_mut(distances))
    }
}

/// Scratch numbers.
pub(super) fn scratch(call: &Call, threads: usize) -> usize {
    threads * Extents::new(call, call.inputs.len()).scratch()
}

/// Features of which it is known where they are; others are looked up, which takes longer.
const KNOWN: usize = 64;

/// All features of a batch.
#[derive(Clone, Copy)]
struct Features<'a, 'v> {
    inputs: Inputs<'a, 'v>,
    known: [&'a [f32]; KNOWN],
}

impl<'a, 'v> Features<'a, 'v> {
    /// The first so many operands, all of which can be read.
    fn new(inputs: Inputs<'a, 'v>, n: usize) -> Features<'a, 'v> {
        let mut known = [&[][..]; KNOWN];
        for (j, known) in known.iter_mut().enumerate().take(n) {
            *known = inputs.read(j).expect("it was checked");
        }
        Features { inputs, known }
    }

    /// Feature j of all samples.
    #[inline(always)]
    fn get(&self, j: usize) -> &'a [f32] {
        if j < KNOWN { self.known[j] } else { self.inputs.read(j).expect("it was checked") }
    }
}

lanes! {
    /// Copies rows of `width` numbers to where rows begin so far apart.
    fn copy(l; from: &[f32], width: usize, to: &mut [f32], apart: usize) {
        for (to, from) in to.chunks_mut(apart).zip(from.chunks_exact(width)) {
            let to = &mut to[..width];
            if width == L::COUNT {
                l.store(l.load(from, 0), to, 0);
                continue;
            }
            for at in (0..width).step_by(L::COUNT) {
                l.store_some(l.load_some(from, at), to, at);
            }
        }
    }
}

/// Copies the features of some samples: those of a sample lie `stride` apart, in so many rows.
fn gather(
    e: Extents,
    features: &Features<'_, '_>,
    samples: &Range<usize>,
    (stride, rows): (usize, usize),
    x: &mut [f32],
) {
    for j in 0..e.n {
        let all = features.get(j);
        copy(&all[samples.start * e.d..samples.end * e.d], e.d, &mut x[j * stride..], rows * stride);
    }
}

/// What memory has not been asked for: the samples of the next unit, feature by feature, and the place of this unit's
/// results.
struct Ahead<'f, 'a, 'v> {
    e: Extents,
    features: &'f Features<'a, 'v>,
    /// The first sample.
    sample: usize,
    /// The feature that is next, and how much of it has been asked for.
    feature: usize,
    asked: usize,
    /// The first place, and how many there are.
    write: (*const f32, usize),
}

impl<'f, 'a, 'v> Ahead<'f, 'a, 'v> {
    /// All of the unit that begins with a sample, but for short features.
    fn new(e: Extents, features: &'f Features<'a, 'v>, sample: usize, y: &[f32]) -> Ahead<'f, 'a, 'v> {
        let feature = if e.d < SHORT { e.n } else { 0 };
        Ahead { e, features, sample, feature, asked: 0, write: (y.as_ptr(), y.len()) }
    }

    /// The next numbers that will be read, up to so many; none where all have been asked for.
    fn read(&mut self, most: usize) -> &'a [f32] {
        while self.feature < self.e.n {
            let all = self.features.get(self.feature);
            let end = ((self.sample + self.e.lanes) * self.e.d).min(all.len());
            let start = self.sample * self.e.d + self.asked;
            if start < end {
                let count = most.min(end - start);
                self.asked += count;
                return &all[start..start + count];
            }
            (self.feature, self.asked) = (self.feature + 1, 0);
        }
        &[]
    }

    /// What is asked for in so many steps.
    fn next(&mut self, steps: usize) -> Soon<'a> {
        let (read, (at, left)) = (self.read(steps * LINE), self.write);
        let write = (at, left.min(steps * LINE));
        self.write = (at.wrapping_add(write.1), left - write.1);
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

/// Adds up the products of some features of `a` with those of `x` at some distances; the sums of a feature with all of them
/// begin at its place of `out`.
fn meet(
    e: Extents,
    (a, rows): (&[f32], usize),
    (x, shifts): (&[f32], Shifts<'_>),
    ahead: &mut Ahead<'_, '_, '_>,
    (out, places): (&mut [f32], [usize; TILE]),
) {
    // As many at a time as there are registers, or a little less, so that the last are not few.
    let count = shifts.count();
    let most = count.div_ceil(count.div_ceil(Correlation::shifts(rows)));
    // The first ones last: they are right where others wrote what nobody asked for.
    for first in (0..count).step_by(most).rev() {
        let some = first..(first + most).min(count);
        let places = places.map(|place| place + first * e.lanes);
        let soon = ahead.next(e.d);
        correlate(shifts.range(some), (a, rows, e.apart()), x, e.d * e.lanes, (out, places, false), soon);
    }
}

/// All products of a unit's samples. Whenever some are there, they are turned back: they are in the cache then.
fn products(
    e: Extents,
    (x, features): (&[f32], Shifts<'_>),
    ahead: &mut Ahead<'_, '_, '_>,
    results: &mut [f32],
    (samples, y): (usize, &mut [f32]),
) {
    let Extents { n, d, lanes, .. } = e;
    // So many elements of the results have been turned back.
    let mut done = d;
    for top in (0..n).step_by(TILE) {
        let rows = TILE.min(n - top);
        let earlier = features.range(0..top + rows - 1);
        if earlier.count() == 0 {
            break;
        }
        // A feature meets some that are not before it: what they give is where the first ones of the next feature are, which
        // are written later.
        let places = std::array::from_fn(|i| e.pairs(top + i) * lanes);
        meet(e, (&x[top * e.apart()..], rows), (x, earlier), ahead, (results, places));
        let there = e.pairs(top + rows);
        let count = if there < e.row() { (there - done) / LINE * LINE } else { there - done };
        transpose(&results[done * lanes..], lanes, count, samples, e.row(), &mut y[done..]);
        done += count;
    }
}

/// Turns the features of a unit's samples.
fn turn(e: Extents, samples: &Range<usize>, features: &Features<'_, '_>, x: &mut [f32]) {
    for at in 0..e.n {
        let all = features.get(at);
        let from = &all[samples.start * e.d..samples.end * e.d];
        if e.d < SHORT {
            foresee(&all[samples.end * e.d..((samples.end + e.lanes) * e.d).min(all.len())]);
        }
        transpose(from, e.d, samples.len(), e.d, e.lanes, &mut x[at * e.apart()..]);
    }
}

pub(super) fn forward(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let e = Extents::new(args.call, args.call.inputs.len());
    (0..e.n).try_for_each(|i| args.read(i).map(drop))?;
    let (y, scratch) = (args.write(0)?, args.scratch());
    let inputs = Inputs { call: args.call, places: args.places, views: args.views };
    let (row, features) = (e.row(), &Features::new(inputs, e.n));
    let shares = (Each::new(scratch, e.scratch()), Rows::new(y, row, e.batch));
    args.pool.each(shares, |_, (scratch, (first, y))| {
        let ([x, results], distances) = e.split(scratch);
        distances.iter_mut().enumerate().for_each(|(j, distance)| *distance = (j * e.apart()) as u32);
        let distances = Shifts::new(&distances[..e.n]);
        for (samples, y) in e.units(first, y.len() / row).zip(y.chunks_mut(e.lanes * row)) {
            turn(e, &samples, features, x);
            let mut ahead = Ahead::new(e, features, samples.end, y);
            copy(&features.get(0)[samples.start * e.d..samples.end * e.d], e.d, y, row);
            products(e, (x, distances), &mut ahead, results, (samples.len(), y));
            ahead.rest();
        }
    });
    Ok(())
}

//! The gradient of the interaction: that of a feature is the sum of all others, each times the gradient of the product of
//! the two.
//!
//! It is computed sample by sample. A few features at a time are sums in registers, over vectors of others' elements as they
//! lie. The numbers that these are multiplied with are those of a triangle, as they lie: with the features before it a feature
//! has a row of them, and with those behind it one number of each of their rows. Every sum is in the order of features.

use super::{Call, Each, Extents, Features, Inputs, Rows, gather, room};
use crate::KernelError;
use crate::args::Args;
use crate::simd::{Lanes, expect, fetch_early, lanes};

/// Gradients of features that are written in one pass over the samples.
const PASS: usize = 64;

/// Numbers of features that are copied at a time: they stay in the first-level cache.
const TOGETHER: usize = 4096;

/// How many samples ahead memory is asked for the places of gradients.
const SOON: usize = 2;

/// The most features of a piece, of one vector each.
const MOST: usize = 7;

/// The gradients of some features, from one sample on.
type Outputs<'a> = [Option<(usize, &'a mut [f32])>; PASS];

/// Some of them.
type Part<'s, 'a> = &'s mut [Option<(usize, &'a mut [f32])>];

/// The first feature and the first element of a piece, and which sample of the outputs it is of.
type Place = (usize, usize, usize);

/// What memory is asked for while a sample is computed: for every feature of a pass where elements that will be copied are,
/// and where gradients will be written, while the first sample is.
type Wanted = [[*const f32; 2]; PASS];

/// Numbers of a line of the cache.
const LINE: usize = 16;

/// Samples whose features are copied side by side.
fn together(e: Extents) -> usize {
    (TOGETHER / (e.n * room(e.d))).clamp(1, 16)
}

/// Scratch numbers of one thread: for features.
fn copies(e: Extents) -> usize {
    together(e) * e.n * room(e.d)
}

/// Scratch numbers.
pub(crate) fn scratch(call: &Call, threads: usize) -> usize {
    threads * copies(Extents::new(call, call.outputs.len()))
}

/// One sample: its features, which lie `stride` apart with zeros in between, and the gradient of its result.
#[derive(Clone, Copy)]
struct Sample<'s> {
    e: Extents,
    x: &'s [f32],
    stride: usize,
    dy: &'s [f32],
}

impl<'s> Sample<'s> {
    /// The gradients of the products of feature i with those before it.
    #[inline(always)]
    fn before(&self, i: usize) -> &'s [f32] {
        &self.dy[self.e.pairs(i)..][..i]
    }

    /// `V` vectors of feature j, from element `at` on.
    #[inline(always)]
    fn elements<L: Lanes, const V: usize>(&self, l: L, j: usize, at: usize) -> [L::Vector; V] {
        let x = &self.x[j * self.stride + at..][..V * L::COUNT];
        let mut all = [l.splat(0.0); V];
        for (v, some) in all.iter_mut().enumerate() {
            *some = l.load(x, v * L::COUNT);
        }
        all
    }

    /// The gradients of `V` vectors of elements of `R` neighbouring features. Meanwhile memory is asked for as much, a line
    /// with every step: all at once they would wait for it.
    #[inline(always)]
    fn sums<L: Lanes, const R: usize, const V: usize>(
        &self,
        l: L,
        (top, at): (usize, usize),
        wanted: (&[[*const f32; 2]], usize),
    ) -> [[L::Vector; V]; R] {
        let mut sums = [[l.splat(0.0); V]; R];
        let mut rows = [self.dy; R];
        for (r, row) in rows.iter_mut().enumerate() {
            *row = &self.before(top + r)[..top];
        }
        for j in 0..top {
            ask::<L, R, V>(wanted, j);
            let x = self.elements::<L, V>(l, j, at);
            for (sums, row) in sums.iter_mut().zip(&rows) {
                add(l, row[j], x, sums);
            }
        }
        // Those of these features with each other, and none with themselves.
        let mut own = [[0f32; R]; R];
        for (r, row) in (0..R).map(|r| (r, self.before(top + r))) {
            for s in 0..r {
                (own[r][s], own[s][r]) = (row[top + s], row[top + s]);
            }
        }
        for (s, factors) in own.iter().enumerate() {
            ask::<L, R, V>(wanted, top + s);
            let x = self.elements::<L, V>(l, top + s, at);
            for (sums, factor) in sums.iter_mut().zip(factors) {
                add(l, *factor, x, sums);
            }
        }
        for j in top + R..self.e.n {
            ask::<L, R, V>(wanted, j);
            let (x, factors) = (self.elements::<L, V>(l, j, at), &self.before(j)[top..top + R]);
            for (sums, factor) in sums.iter_mut().zip(factors) {
                add(l, *factor, x, sums);
            }
        }
        if top == 0 {
            for (v, sum) in sums[0].iter_mut().enumerate() {
                *sum = l.add(*sum, l.load_some(&self.dy[..self.e.d], at + v * L::COUNT));
            }
        }
        sums
    }

    /// Writes the gradients of some elements of `R` neighbouring features.
    #[inline(always)]
    fn put<L: Lanes, const R: usize, const V: usize>(
        &self,
        l: L,
        (top, at, own): Place,
        outputs: Part<'_, '_>,
        wanted: &[[*const f32; 2]],
    ) {
        let d = self.e.d;
        let sums = self.sums::<L, R, V>(l, (top, at), (wanted, own * d + at));
        for (sums, output) in sums.iter().zip(outputs) {
            let Some((_, dx)) = output else { return };
            let dx = &mut dx[own * d..][..d];
            for (v, sum) in sums.iter().enumerate() {
                l.store_some(*sum, dx, at + v * L::COUNT);
            }
        }
    }
}

/// Asks for one of the lines of `V` vectors of `R` features, which are so far from what is wanted with the first sample.
#[inline(always)]
fn ask<L: Lanes, const R: usize, const V: usize>((wanted, at): (&[[*const f32; 2]], usize), step: usize) {
    let lines = (V * L::COUNT).div_ceil(LINE);
    if step < R * lines {
        let (line, [read, write]) = (at + step % lines * LINE, wanted[step / lines]);
        fetch_early(read.wrapping_add(line), 1);
        expect(write.wrapping_add(line), 1);
    }
}

/// Adds vectors times a number to sums.
#[inline(always)]
fn add<L: Lanes, const V: usize>(l: L, factor: f32, x: [L::Vector; V], sums: &mut [L::Vector; V]) {
    let factor = l.splat(factor);
    for v in 0..V {
        sums[v] = l.fma(factor, x[v], sums[v]);
    }
}

/// Calls a function for a number of features and vectors that are only known now, where they are among those that are listed.
macro_rules! by_size {
    ($size:expr, $sample:ident.$call:ident $args:tt: $($r:literal $v:literal),+) => {
        match $size {
            $(($r, $v) => by_size!(@ $sample.$call::<_, $r, $v> $args),)+
            other => unreachable!("a piece of {other:?}"),
        }
    };
    (@ $sample:ident.$call:ident::<_, $r:literal, $v:literal> ($($arg:expr),*)) => {
        $sample.$call::<_, $r, $v>($($arg),*)
    };
}

lanes! {
    /// Writes so many vectors of the gradients of as many features. It stands alone, because all sizes in one loop would
    /// share registers.
    fn piece(l; sample: Sample<'_>, size: (usize, usize), place: Place, outputs: Part<'_, '_>, wanted: &[[*const f32; 2]]) {
        by_size!(size, sample.put(l, place, outputs, wanted):
            1 1, 2 1, 3 1, 4 1, 5 1, 6 1, 7 1, 1 2, 2 2, 3 2, 4 2, 5 2, 6 2, 1 4, 2 4, 3 4, 4 4, 5 4, 6 4);
    }
}

/// Writes the gradients of one sample, which is number `own` of the outputs, by the features from `pass` on.
fn all(sample: Sample<'_>, pass: usize, own: usize, outputs: &mut Outputs<'_>, wanted: &Wanted) {
    let (e, count) = (sample.e, PASS.min(sample.e.n - pass));
    // Of pieces that are as large as leaves registers for what is multiplied, about equal ones.
    let most = if e.d <= e.lanes { MOST } else { 6 };
    let rows = count.div_ceil(count.div_ceil(most));
    for first in (0..count).step_by(rows) {
        let (outputs, wanted, mut at) = (&mut outputs[first..], &wanted[first..], 0);
        while at < e.d {
            let vectors = match (e.d - at).div_ceil(e.lanes) {
                4.. if e.lanes == 16 => 4,
                left => left.min(2),
            };
            let size = (rows.min(count - first), vectors);
            piece(sample, size, (pass + first, at, own), outputs, wanted);
            at += vectors * e.lanes;
        }
    }
}

pub(crate) fn backward(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let e = Extents::new(args.call, args.call.outputs.len());
    (0..e.n).try_for_each(|i| args.read(i).map(drop))?;
    let (row, dy, scratch) = (e.row(), args.read(e.n)?, args.scratch());
    let (stride, most) = (room(e.d), together(e));
    for pass in (0..e.n).step_by(PASS) {
        let mut outputs = [const { None }; PASS];
        for (i, output) in (pass..e.n).zip(&mut outputs) {
            *output = Some(Rows::new(args.write(i)?, e.d, e.batch));
        }
        let inputs = Inputs { call: args.call, places: args.places, views: args.views };
        let features = &Features::new(inputs, e.n);
        let shares = (Each::new(scratch, copies(e)), outputs);
        args.pool.each(shares, |_, (x, mut outputs): (&mut [f32], Outputs<'_>)| {
            let (first, count) = outputs[0].as_ref().map_or((0, 0), |(first, dx)| (*first, dx.len() / e.d));
            x.fill(0.0);
            let mut wanted: Wanted = [[std::ptr::null(); 2]; PASS];
            for (i, (wanted, output)) in wanted.iter_mut().zip(outputs.iter().flatten()).enumerate() {
                let x = features.get(pass + i).as_ptr();
                let ahead = [(first + most) * e.d, SOON * e.d];
                *wanted = [x.wrapping_add(ahead[0]), output.1.as_ptr().wrapping_add(ahead[1])];
            }
            for group in (first..first + count).step_by(most) {
                let some = most.min(first + count - group);
                gather(e, features, &(group..group + some), (stride, e.n), x);
                for (sample, x) in (group..group + some).zip(x.chunks_exact(e.n * stride)) {
                    let (dy, own) = (&dy[sample * row..][..row], sample - first);
                    all(Sample { e, x, stride, dy }, pass, own, &mut outputs, &wanted);
                }
            }
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Tile;

    #[test]
    fn gradients_are_what_one_computes_by_hand() {
        let mut random = fastrand::Rng::with_seed(3);
        for (n, d) in [(1, 5), (2, 1), (7, 16), (9, 17), (13, 40), (27, 64), (30, 100), (70, 24)] {
            let (e, stride) = (Extents { n, d, batch: 1, lanes: Tile::here().lanes }, room(d));
            let mut x = vec![0f32; n * stride];
            x.chunks_exact_mut(stride).for_each(|x| x[..d].fill_with(|| random.f32() - 0.5));
            let dy: Vec<f32> = (0..e.row()).map(|_| random.f32() - 0.5).collect();
            let mut dx = vec![vec![7f32; d]; n];
            for pass in (0..n).step_by(PASS) {
                let mut outputs: Outputs<'_> = [const { None }; PASS];
                for (output, dx) in outputs.iter_mut().zip(&mut dx[pass..]) {
                    *output = Some((0, &mut dx[..]));
                }
                let sample = Sample { e, x: &x, stride, dy: &dy };
                all(sample, pass, 0, &mut outputs, &[[std::ptr::null(); 2]; PASS]);
            }
            for (i, k) in (0..n).flat_map(|i| (0..d).map(move |k| (i, k))) {
                let product = |j: usize| dy[e.pairs(i.max(j)) + i.min(j)] * x[j * stride + k];
                let own = if i == 0 { dy[k] } else { 0.0 };
                let expected: f32 = own + (0..n).filter(|j| *j != i).map(product).sum::<f32>();
                assert!((dx[i][k] - expected).abs() < 1e-5, "{} for {expected} at {i}, {k}", dx[i][k]);
            }
        }
    }
}

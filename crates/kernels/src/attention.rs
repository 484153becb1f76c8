//! Attention of several heads, and its gradient. Heads of different samples are independent and are shared out over
//! the threads. A few positions at a time go all the way from scores to what is mixed, so that theirs stay in the
//! first-level cache; on the way back some more at a time, so that theirs stay in the second. Where a position sees only
//! those before it, half of every square is zero, and products leave it out.

use crate::KernelError;
use std::ops::Range;

use tiercel_workload::graph::Attention;

use super::args::{Args, Call};
use super::elementwise::{chance, drop_part};
use super::gemm::{Extent, Matrix, Pack};
use super::scores::{slope, softmax};
use super::shares::{Boxes, Each};
use super::simd::{Finish, Layout, Lying, Panels, STRIP, Strip, Tile, foresee, lay, strip};
use super::{random, room};

/// Positions whose gradients are kept at a time, where there are more than so many.
const SOME: usize = 64;
const NEAR: usize = 256;

/// Numbers of a line of a cache.
const LINE: usize = 16;

/// The extents of one attention.
#[derive(Clone, Copy)]
struct Heads {
    batch: usize,
    heads: usize,
    positions: usize,
    width: usize,
    /// Features of one head.
    head: usize,
    /// Whether a position sees only itself and those before it.
    causal: bool,
}

impl Heads {
    fn new(call: &Call, attention: Attention) -> Heads {
        let (batch, positions, width) = (call.dim(0, 0), call.dim(0, 1), call.dim(0, 2));
        let heads = attention.heads as usize;
        Heads { batch, heads, positions, width, head: width / heads, causal: attention.causal }
    }

    /// How many positions are seen by those before `end`.
    fn seen(&self, end: usize) -> usize {
        if self.causal { end } else { self.positions }
    }

    /// The first position that sees this one.
    fn seen_from(&self, position: usize) -> usize {
        if self.causal { position } else { 0 }
    }

    /// Positions whose gradients are kept at a time.
    fn some(&self) -> usize {
        if self.positions <= NEAR { self.positions } else { SOME }
    }

    fn square(&self) -> usize {
        self.positions * self.positions
    }

    /// Numbers of all panels of a product of this depth with so many columns.
    fn panels(&self, depth: usize, columns: usize) -> usize {
        // Packing whole vectors may write a little beyond the last line.
        room(columns.next_multiple_of(Tile::here().columns()) * depth + 64)
    }

    /// Numbers of panels whose columns are positions, and of those whose columns are features.
    fn sizes(&self) -> [usize; 2] {
        [self.panels(self.head, self.positions), self.panels(self.positions, self.head)]
    }

    /// Scratch numbers of one thread that goes forward.
    fn forward(&self) -> usize {
        let [positions, features] = self.sizes();
        positions + features + room(STRIP * self.positions)
    }

    /// Scratch numbers of one thread that goes back.
    fn backward(&self) -> usize {
        let [positions, features] = self.sizes();
        positions + 3 * features + 2 * room(self.some() * self.positions) + room(SOME * LINE)
    }

    /// A tensor of batch, positions and width, of which every head of a sample is a box.
    fn boxes<'a>(&self, numbers: &'a mut [f32]) -> Boxes<'a, f32> {
        let extents = [self.batch, self.positions, self.heads, self.head];
        Boxes::new(numbers, extents, [1, self.positions, 1, self.head])
    }

    /// Asks for some positions of the head after this one.
    fn fetch_next(&self, at: usize, rows: &Range<usize>, all: &[&[f32]]) {
        if at + 1 == self.batch * self.heads {
            return;
        }
        let next = self.place(at + 1);
        for numbers in all {
            for row in rows.clone() {
                let row = &numbers[next + row * self.width..][..self.head];
                foresee(row);
            }
        }
    }

    /// Where a head begins in a tensor of batch, positions and width.
    fn place(&self, at: usize) -> usize {
        at / self.heads * self.positions * self.width + at % self.heads * self.head
    }
}

/// Scratch numbers of a forward call.
pub(super) fn scratch(call: &Call, attention: Attention, threads: usize) -> usize {
    Heads::new(call, attention).forward() * threads
}

/// Scratch numbers of a backward call.
pub(super) fn scratch_backward(call: &Call, attention: Attention, threads: usize) -> usize {
    Heads::new(call, attention).backward() * threads
}

/// Copies a matrix into panels, and returns them.
fn pack<'s>(matrix: Matrix<'_>, depth: usize, columns: usize, to: &'s mut [f32]) -> Panels<'s> {
    let wide = Tile::here().columns();
    for (panel, first) in (0..columns).step_by(wide).enumerate() {
        let lines = first..(first + wide).min(columns);
        matrix.pack(0..depth, lines, wide, &mut to[panel * depth * wide..]);
    }
    Panels { numbers: to, deep: depth }
}

/// A strip becomes a multiple of a product over some depths, of which `a` has the first first, in the blocks that other
/// products are summed in; or that is added to it.
fn product(depths: Range<usize>, a: Lying<'_>, b: Panels<'_>, (factor, add): (f32, bool), mut to: Strip<'_>) {
    let block = Extent::new(1, 1, b.deep).block;
    let mut start = depths.start;
    while start < depths.end {
        let end = (start / block * block + block).min(depths.end);
        let a = Lying { numbers: &a.numbers[(start - depths.start) * a.along..], ..a };
        let b = Panels { numbers: &b.numbers[start * Tile::here().columns()..], ..b };
        let finish = Finish { factor, add: add || start > depths.start };
        strip(end - start, a, b, finish, &mut to);
        start = end;
    }
}

/// Some rows in pieces of so many.
fn pieces(rows: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    rows.clone().step_by(most).map(move |top| top..(top + most).min(rows.end))
}

/// How the probabilities of a head are dropped.
#[derive(Clone, Copy)]
struct Drop {
    key: u64,
    below: u32,
    scale: f32,
}

impl Drop {
    fn new(attention: Attention, moment: super::args::Moment) -> Option<Drop> {
        let (below, scale) = chance(attention.dropout);
        let key = random::key(&[moment.seed, moment.iteration, attention.seed]);
        (attention.dropout > 0.0).then_some(Drop { key, below, scale })
    }

    /// `out` becomes what is left of the first `seen` probabilities of some rows of a head, of which `start` is the
    /// first; so do gradients.
    fn apply(
        self,
        start: usize,
        seen: usize,
        width: usize,
        p: &[f32],
        out: &mut [f32],
        dp: Option<&mut [f32]>,
    ) {
        let mut dp = dp.map(|dp| dp.chunks_exact_mut(width));
        for (i, (p, out)) in p.chunks_exact(width).zip(out.chunks_exact_mut(width)).enumerate() {
            let start = (start + i * width) as u64;
            drop_part(&mut out[..seen], Some(&p[..seen]), start, self.key, self.below, self.scale);
            if let Some(dp) = dp.as_mut().and_then(|dp| dp.next()) {
                drop_part(&mut dp[..seen], None, start, self.key, self.below, self.scale);
            }
        }
    }
}

pub(super) fn forward(mut args: Args<'_, '_>, attention: Attention) -> Result<(), KernelError> {
    let (q, k, v) = (args.read(0)?, args.read(1)?, args.read(2)?);
    let (y, p, scratch) = (args.write(0)?, args.write(1)?, args.scratch());
    let h = Heads::new(args.call, attention);
    let drop = Drop::new(attention, args.moment);
    let [positions, features] = h.sizes();
    let (width, head) = (h.positions, h.head);
    let probabilities = [h.batch * h.heads, width, 1, width];
    let shares =
        (Each::new(scratch, h.forward()), Boxes::new(p, probabilities, [1, width, 1, width]), h.boxes(y));
    let factor = 1.0 / (head as f32).sqrt();
    args.pool.each(shares, |_, (scratch, mut p, mut y)| {
        let (k_panels, rest) = scratch.split_at_mut(positions);
        let (v_panels, dropped) = rest.split_at_mut(features);
        for at in p.units() {
            let (place, mut p, mut y) = (h.place(at), p.get(at), y.get(at));
            let (p, mut y) = (p.whole(), y.matrix());
            let k_panels = pack(Matrix::strided(&k[place..], 1, h.width), head, width, k_panels);
            let v_panels = pack(Matrix::strided(&v[place..], h.width, 1), width, head, v_panels);
            for rows in pieces(0..width, STRIP) {
                let (high, seen) = (rows.len(), h.seen(rows.end));
                h.fetch_next(at, &rows, &[k, v]);
                let whole = seen.next_multiple_of(Tile::here().lanes).min(width);
                let p = &mut p[rows.start * width..rows.end * width];
                let a = Lying { numbers: &q[place + rows.start * h.width..], row: h.width, along: 1 };
                product(0..head, a, k_panels, (factor, false), Strip::new(p, [high, whole], width));
                softmax(p, width, h.causal.then_some(rows.start));
                let mut used = &*p;
                if let Some(drop) = drop {
                    drop.apply(at * h.square() + rows.start * width, seen, width, p, dropped, None);
                    used = dropped;
                }
                let a = Lying { numbers: used, row: width, along: 1 };
                product(0..seen, a, v_panels, (1.0, false), y.strip(rows));
            }
        }
    });
    Ok(())
}

pub(super) fn backward(mut args: Args<'_, '_>, attention: Attention) -> Result<(), KernelError> {
    let (q, k, v) = (args.read(0)?, args.read(1)?, args.read(2)?);
    let (p, dy) = (args.read(3)?, args.read(4)?);
    let (dq, dk, dv, scratch) = (args.write(0)?, args.write(1)?, args.write(2)?, args.scratch());
    let h = Heads::new(args.call, attention);
    let drop = Drop::new(attention, args.moment);
    let [positions, features] = h.sizes();
    let (width, head, square) = (h.positions, h.head, h.square());
    let shares = (Each::new(scratch, h.backward()), h.boxes(dq), h.boxes(dk), h.boxes(dv));
    let factor = 1.0 / (head as f32).sqrt();
    args.pool.each(shares, |_, (scratch, mut dq, mut dk, mut dv)| {
        let (v_panels, rest) = scratch.split_at_mut(positions);
        let (k_panels, rest) = rest.split_at_mut(features);
        let (q_panels, rest) = rest.split_at_mut(features);
        let (dy_panels, rest) = rest.split_at_mut(features);
        let (ds, rest) = rest.split_at_mut(room(h.some() * width));
        let (dropped, turned) = rest.split_at_mut(room(h.some() * width));
        for at in dq.units() {
            let (place, mut dq, mut dk, mut dv) = (h.place(at), dq.get(at), dk.get(at), dv.get(at));
            let (mut dq, mut dk, mut dv) = (dq.matrix(), dk.matrix(), dv.matrix());
            let p = &p[at * square..(at + 1) * square];
            let columns = |numbers| Matrix::strided(numbers, h.width, 1);
            let v_panels = pack(Matrix::strided(&v[place..], 1, h.width), head, width, v_panels);
            let k_panels = pack(columns(&k[place..]), width, head, k_panels);
            let q_panels = pack(columns(&q[place..]), width, head, q_panels);
            let dy_panels = pack(columns(&dy[place..]), width, head, dy_panels);
            for some in pieces(0..width, h.some()) {
                for rows in pieces(some.clone(), STRIP) {
                    // dp = dy · vᵀ; dq = ds · k.
                    let (high, seen) = (rows.len(), h.seen(rows.end));
                    h.fetch_next(at, &rows, &[q, k, v, dy]);
                    let whole = seen.next_multiple_of(Tile::here().lanes).min(width);
                    let (p, start) =
                        (&p[rows.start * width..rows.end * width], at * square + rows.start * width);
                    let here = (rows.start - some.start) * width..(rows.end - some.start) * width;
                    let (ds, dropped) = (&mut ds[here.clone()], &mut dropped[here]);
                    let a = Lying { numbers: &dy[place + rows.start * h.width..], row: h.width, along: 1 };
                    product(0..head, a, v_panels, (1.0, false), Strip::new(ds, [high, whole], width));
                    if let Some(drop) = drop {
                        drop.apply(start, seen, width, p, dropped, Some(ds));
                    }
                    slope(p, ds, width, h.causal.then_some(rows.start));
                    let a = Lying { numbers: ds, row: width, along: 1 };
                    product(0..seen, a, k_panels, (factor, false), dq.strip(rows));
                }
                // dv = pᵀ · dy; dk = dsᵀ · q: a line of a cache of every position at a time.
                let used = if drop.is_some() { &*dropped } else { &p[some.start * width..some.end * width] };
                for line in pieces(0..h.seen(some.end), LINE) {
                    let from = some.start.max(h.seen_from(line.start));
                    let sums = [(used, dy_panels, 1.0, &mut dv), (&*ds, q_panels, factor, &mut dk)];
                    for (numbers, panels, factor, to) in sums {
                        let numbers = &numbers[(from - some.start) * width + line.start..];
                        // Rows that are far apart get in each other's way.
                        let (numbers, along) = if width <= NEAR {
                            (numbers, width)
                        } else {
                            let counts = [1, some.end - from, line.len()];
                            let layout = Layout { counts, from: [0, width, 1], to: [0, LINE] };
                            lay(layout, numbers, 0.0, turned);
                            (&*turned, LINE)
                        };
                        for rows in pieces(line.clone(), STRIP) {
                            let first = h.seen_from(rows.start);
                            let depths = some.start.max(first)..some.end;
                            let place = (depths.start - from) * along + rows.start - line.start;
                            let a = Lying { numbers: &numbers[place..], row: 1, along };
                            product(depths, a, panels, (factor, some.start > first), to.strip(rows));
                        }
                    }
                }
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Depths that begin and end within the blocks that they are summed in.
    #[test]
    fn depths_of_several_blocks_are_summed_once_each() {
        let (deep, wide) = (600, Tile::here().columns());
        let mut random = fastrand::Rng::with_seed(1);
        let a: Vec<f32> = (0..deep * STRIP).map(|_| random.f32() - 0.5).collect();
        let b: Vec<f32> = (0..deep * wide).map(|_| random.f32() - 0.5).collect();
        for depths in [0..600, 0..10, 150..600, 200..201, 250..590, 400..600] {
            let mut out = vec![7.0; STRIP * wide];
            let a_lying = Lying { numbers: &a[depths.start * STRIP..], row: 1, along: STRIP };
            let to = Strip::new(&mut out, [STRIP, wide], wide);
            product(depths.clone(), a_lying, Panels { numbers: &b, deep }, (2.0, false), to);
            for (at, number) in out.iter().enumerate() {
                let products = depths.clone().map(|k| a[k * STRIP + at / wide] * b[k * wide + at % wide]);
                let expected = 2.0 * products.sum::<f32>();
                assert!((number - expected).abs() < 1e-4, "{number} for {expected} of {depths:?}");
            }
        }
    }
}

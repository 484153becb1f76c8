//! Attention of several heads, and its gradient. Heads of different samples are independent and are shared out over
//! the threads. Where a position sees only those before it, half of every square is zero, and products leave it out.

use tiercel_workload::graph::Attention;

use super::args::{Args, Call};
use super::elementwise::{chance, drop_part};
use super::gemm::{Bias, Extent, Matrix, Part, Put, multiply_part};
use super::loss::{dot, softmax_slope, softmax_square};
use super::shares::{Boxes, Each, Lattice, Sheet};
use super::{random, room};

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

    /// Positions by positions.
    fn scores(&self) -> Extent {
        Extent::new(self.positions, self.positions, self.head).only(self.part(Part::Lower))
    }

    /// Positions by features, of a square by rows.
    fn mixed(&self) -> Extent {
        Extent::new(self.positions, self.head, self.positions).only(self.part(Part::Before))
    }

    /// The same of a square by columns.
    fn mixed_back(&self) -> Extent {
        self.mixed().only(self.part(Part::After))
    }

    /// What there is to do of a product, where positions do not see all others.
    fn part(&self, part: Part) -> Part {
        if self.causal { part } else { Part::Whole }
    }

    /// How many positions one of them sees.
    fn seen(&self, position: usize) -> usize {
        if self.causal { position + 1 } else { self.positions }
    }

    fn square(&self) -> usize {
        self.positions * self.positions
    }

    /// Scratch numbers of one thread: for products, and so many squares.
    fn scratch(&self, squares: usize) -> usize {
        room(self.scores().scratch().max(self.mixed().scratch())) + squares * room(self.square())
    }

    /// A tensor of batch, positions and width, of which every head of a sample is a box.
    fn boxes<'a>(&self, numbers: &'a mut [f32]) -> Boxes<'a, f32> {
        let extents = [self.batch, self.positions, self.heads, self.head];
        Boxes::new(numbers, extents, [1, self.positions, 1, self.head])
    }

    /// Where a head begins in a tensor of batch, positions and width.
    fn place(&self, at: usize) -> usize {
        at / self.heads * self.positions * self.width + at % self.heads * self.head
    }
}

/// Scratch numbers of a forward or a backward call.
pub(super) fn scratch(call: &Call, attention: Attention, threads: usize, backward: bool) -> usize {
    Heads::new(call, attention).scratch(if backward { 2 } else { 1 }) * threads
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

    fn apply(self, out: &mut [f32], from: Option<&[f32]>, head: usize) {
        drop_part(out, from, (head * out.len()) as u64, self.key, self.below, self.scale);
    }
}

pub(super) fn forward(mut args: Args<'_, '_>, attention: Attention) -> Result<(), String> {
    let (q, k, v) = (args.read(0)?, args.read(1)?, args.read(2)?);
    let (y, p, scratch) = (args.write(0)?, args.write(1)?, args.scratch());
    let h = Heads::new(args.call, attention);
    let drop = Drop::new(attention, args.moment);
    let (products, square) = (h.scratch(0), h.square());
    let probabilities = [h.batch * h.heads, h.positions, 1, h.positions];
    let shares = (
        Each::new(scratch, h.scratch(1)),
        Boxes::new(p, probabilities, [1, h.positions, 1, h.positions]),
        h.boxes(y),
    );
    let factor = 1.0 / (h.head as f32).sqrt();
    args.pool.each(shares, |_, (scratch, mut p, mut y)| {
        let (products, dropped) = scratch.split_at_mut(products);
        for at in p.units() {
            let place = h.place(at);
            let (a, b) = (Matrix::strided(&q[place..], 1, h.width), Matrix::strided(&k[place..], 1, h.width));
            let mut p = p.get(at);
            let how = Put::new(Bias::None).scaled(factor);
            multiply_part(h.scores(), &a, &b, (&mut p.matrix(), &how), products);
            let p = p.whole();
            softmax_square(p, h.positions, h.causal);
            let used = match drop {
                None => &*p,
                Some(drop) => {
                    drop.apply(&mut dropped[..square], Some(p), at);
                    &dropped[..square]
                }
            };
            let (a, b) = (Matrix::by_line(used, h.positions), Matrix::strided(&v[place..], h.width, 1));
            let mut y = y.get(at);
            multiply_part(h.mixed(), &a, &b, (&mut y.matrix(), &Put::new(Bias::None)), products);
        }
    });
    Ok(())
}

pub(super) fn backward(mut args: Args<'_, '_>, attention: Attention) -> Result<(), String> {
    let (q, k, v) = (args.read(0)?, args.read(1)?, args.read(2)?);
    let (p, dy) = (args.read(3)?, args.read(4)?);
    let (dq, dk, dv, scratch) = (args.write(0)?, args.write(1)?, args.write(2)?, args.scratch());
    let h = Heads::new(args.call, attention);
    let drop = Drop::new(attention, args.moment);
    let (products, square) = (h.scratch(0), h.square());
    let shares = (Each::new(scratch, h.scratch(2)), h.boxes(dq), h.boxes(dk), h.boxes(dv));
    let factor = 1.0 / (h.head as f32).sqrt();
    args.pool.each(shares, |_, (scratch, mut dq, mut dk, mut dv)| {
        let (products, squares) = scratch.split_at_mut(products);
        let (dp, dropped) = squares.split_at_mut(room(square));
        let (dp, dropped) = (&mut dp[..square], &mut dropped[..square]);
        for at in dq.units() {
            let place = h.place(at);
            let p = &p[at * square..(at + 1) * square];
            let used = match drop {
                None => p,
                Some(drop) => {
                    drop.apply(dropped, Some(p), at);
                    &*dropped
                }
            };
            let rows = |numbers| Matrix::strided(numbers, 1, h.width);
            let columns = |numbers| Matrix::strided(numbers, h.width, 1);
            let (plain, scaled) = (Put::new(Bias::None), Put::new(Bias::None).scaled(factor));
            // dv = pᵀ · dy; dp = dy · vᵀ.
            let (transposed, mut dv) = (Matrix::by_depth(used, h.positions), dv.get(at));
            let to = (&mut dv.matrix(), &plain);
            multiply_part(h.mixed_back(), &transposed, &columns(&dy[place..]), to, products);
            let mut scores = Sheet::new(dp, Lattice::matrix(h.positions, h.positions, h.positions));
            let to = (&mut scores.all(), &plain);
            multiply_part(h.scores(), &rows(&dy[place..]), &rows(&v[place..]), to, products);
            if let Some(drop) = drop {
                drop.apply(dp, None, at);
            }
            let rows = p.chunks_exact(h.positions).zip(dp.chunks_exact_mut(h.positions));
            for (i, (p, dp)) in rows.enumerate() {
                let (dp, rest) = dp.split_at_mut(h.seen(i));
                let p = &p[..dp.len()];
                softmax_slope(p, None, dot(p, dp), dp);
                rest.fill(0.0);
            }
            // dq = ds · k; dk = dsᵀ · q.
            let (ds, transposed) = (Matrix::by_line(dp, h.positions), Matrix::by_depth(dp, h.positions));
            let (mut dq, mut dk) = (dq.get(at), dk.get(at));
            let to = (&mut dq.matrix(), &scaled);
            multiply_part(h.mixed(), &ds, &columns(&k[place..]), to, products);
            let to = (&mut dk.matrix(), &scaled);
            multiply_part(h.mixed_back(), &transposed, &columns(&q[place..]), to, products);
        }
    });
    Ok(())
}

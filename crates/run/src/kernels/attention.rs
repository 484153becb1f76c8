//! Attention of several heads, and its gradient. Heads of different samples are independent and are shared out over
//! the threads.

use tiercel_workload::graph::Attention;

use super::args::{Args, Call};
use super::elementwise::{chance, drop_part};
use super::gemm::{Bias, Extent, Matrix, Rows, multiply_part};
use super::loss::{dot, softmax_row, softmax_slope};
use super::pool::{Disjoint, part};
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
}

impl Heads {
    fn new(call: &Call, attention: Attention) -> Heads {
        let (batch, positions, width) = (call.dim(0, 0), call.dim(0, 1), call.dim(0, 2));
        let heads = attention.heads as usize;
        Heads { batch, heads, positions, width, head: width / heads }
    }

    /// Positions by positions.
    fn scores(&self) -> Extent {
        Extent::new(self.positions, self.positions, self.head)
    }

    /// Positions by features.
    fn mixed(&self) -> Extent {
        Extent::new(self.positions, self.head, self.positions)
    }

    fn square(&self) -> usize {
        self.positions * self.positions
    }

    /// Scratch numbers of one thread: for products, and so many squares.
    fn scratch(&self, squares: usize) -> usize {
        room(self.scores().scratch().max(self.mixed().scratch())) + squares * room(self.square())
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
    let (threads, each, products) = (args.pool.threads(), h.scratch(1), h.scratch(0));
    let (y, p, scratch) = (Disjoint::new(y), Disjoint::new(p), Disjoint::new(scratch));
    let factor = 1.0 / (h.head as f32).sqrt();
    args.pool.run(&|index| {
        // SAFETY: every thread has scratch and heads of its own.
        let (products, square) =
            unsafe { scratch.range(index * each..(index + 1) * each) }.split_at_mut(products);
        for at in part(h.batch * h.heads, threads, index) {
            let place = h.place(at);
            // SAFETY: as above.
            let p = unsafe { p.range(at * h.square()..(at + 1) * h.square()) };
            let (a, b) = (Matrix::strided(&q[place..], 1, h.width), Matrix::strided(&k[place..], 1, h.width));
            let out = Rows::new(p, h.positions, Bias::None).scaled(factor);
            multiply_part(h.scores(), 0..h.positions, 0..h.positions, &a, &b, &out, products);
            for (i, row) in p.chunks_exact_mut(h.positions).enumerate() {
                let seen = if attention.causal { i + 1 } else { h.positions };
                softmax_row(&mut row[..seen]);
                row[seen..].fill(0.0);
            }
            let used = match drop {
                None => &*p,
                Some(drop) => {
                    drop.apply(&mut square[..h.square()], Some(p), at);
                    &square[..h.square()]
                }
            };
            let (a, b) = (Matrix::by_line(used, h.positions), Matrix::strided(&v[place..], h.width, 1));
            // SAFETY: heads interleave in y, but no two threads have the same features of the same sample.
            let out = unsafe { Rows::shared(y, place, h.width) };
            multiply_part(h.mixed(), 0..h.positions, 0..h.head, &a, &b, &out, products);
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
    let (threads, each, products) = (args.pool.threads(), h.scratch(2), h.scratch(0));
    let (dq, dk, dv) = (Disjoint::new(dq), Disjoint::new(dk), Disjoint::new(dv));
    let scratch = Disjoint::new(scratch);
    let factor = 1.0 / (h.head as f32).sqrt();
    args.pool.run(&|index| {
        // SAFETY: every thread has scratch and heads of its own.
        let (products, squares) =
            unsafe { scratch.range(index * each..(index + 1) * each) }.split_at_mut(products);
        let (dp, dropped) = squares.split_at_mut(room(h.square()));
        let (dp, dropped) = (&mut dp[..h.square()], &mut dropped[..h.square()]);
        for at in part(h.batch * h.heads, threads, index) {
            let place = h.place(at);
            let p = &p[at * h.square()..(at + 1) * h.square()];
            let used = match drop {
                None => p,
                Some(drop) => {
                    drop.apply(dropped, Some(p), at);
                    &*dropped
                }
            };
            let rows = |numbers| Matrix::strided(numbers, 1, h.width);
            let columns = |numbers| Matrix::strided(numbers, h.width, 1);
            // SAFETY: no two threads have the same features of the same sample.
            let [dq, dk, dv] = [dq, dk, dv].map(|d| unsafe { Rows::shared(d, place, h.width) });
            let (all, features) = (0..h.positions, 0..h.head);
            // dv = pᵀ · dy; dp = dy · vᵀ.
            let transposed = Matrix::by_depth(used, h.positions);
            multiply_part(
                h.mixed(),
                all.clone(),
                features.clone(),
                &transposed,
                &columns(&dy[place..]),
                &dv,
                products,
            );
            let out = Rows::new(dp, h.positions, Bias::None);
            multiply_part(
                h.scores(),
                all.clone(),
                all.clone(),
                &rows(&dy[place..]),
                &rows(&v[place..]),
                &out,
                products,
            );
            if let Some(drop) = drop {
                drop.apply(dp, None, at);
            }
            for (p, dp) in p.chunks_exact(h.positions).zip(dp.chunks_exact_mut(h.positions)) {
                let sum = dot(p, dp);
                softmax_slope(p, None, sum, dp);
            }
            // dq = ds · k; dk = dsᵀ · q.
            let (ds, transposed) = (Matrix::by_line(dp, h.positions), Matrix::by_depth(dp, h.positions));
            let (dq, dk) = (dq.scaled(factor), dk.scaled(factor));
            multiply_part(
                h.mixed(),
                all.clone(),
                features.clone(),
                &ds,
                &columns(&k[place..]),
                &dq,
                products,
            );
            multiply_part(
                h.mixed(),
                all.clone(),
                features.clone(),
                &transposed,
                &columns(&q[place..]),
                &dk,
                products,
            );
        }
    });
    Ok(())
}

//! Convolutions whose window is the whole image, and transposed ones that make an image of one pixel: linear layers, as at
//! both ends of DCGAN.

use std::ops::Range;

use super::super::gemm::{Bias, Extent, Matrix, Pack, Rows, multiply};
use super::super::linear::SOME;
use super::super::loss::dot;
use super::super::pool::Pool;
use super::super::samples::Samples;
use super::super::shallow;
use super::super::simd::{self, Layout, Lying};
use super::{Geometry, Task};

/// Outputs up to which results are dot products: there is little to pack for.
const FEW: usize = 4;

/// Depth up to which nothing but the weights is packed.
const SHALLOW: usize = 16;

/// Such a convolution. How it is computed does not depend on the batch, so that parts of one have the same bits.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    batch: usize,
    /// Numbers of a sample on the wide side, and on the narrow one.
    wide: usize,
    narrow: usize,
    /// Pixels of a channel on the wide side.
    plane: usize,
}

impl Whole {
    /// The convolution, if it is one.
    pub fn new(g: &Geometry) -> Option<Whole> {
        let image = [g.wide.height, g.wide.width];
        let dense = (0..2).all(|axis| g.dilation[axis] == 1 || g.window[axis] == 1);
        let all = g.groups == 1 && g.narrow.plane() == 1 && g.window == image && g.before == [0, 0];
        (all && dense).then_some(Whole {
            batch: g.narrow.batch,
            wide: g.wide.size(),
            narrow: g.narrow.channels,
            plane: g.wide.plane(),
        })
    }

    /// The product of a task.
    fn extent(&self, task: Task) -> Extent {
        match task {
            Task::Narrow => Extent::new(self.batch, self.narrow, self.wide),
            Task::Wide => Extent::new(self.batch, self.wide, self.narrow),
            Task::Weight => Extent::new(self.narrow, self.wide, self.batch),
        }
    }

    /// Scratch numbers of one thread.
    pub fn scratch(&self, task: Task) -> usize {
        let e = self.extent(task);
        match task {
            Task::Narrow if self.narrow <= FEW => 0,
            Task::Wide if self.narrow <= SHALLOW => shallow::scratch(e),
            Task::Weight if self.batch <= SOME => e.scratch().max(shallow::scratch(e)),
            _ => e.scratch(),
        }
    }

    /// Computes one side from the other.
    pub fn run(
        &self,
        pool: &mut Pool,
        task: Task,
        (w, bias): (&[f32], Option<&[f32]>),
        from: &[f32],
        to: &mut [f32],
        scratch: &mut [f32],
    ) {
        let (e, few) = (self.extent(task), self.narrow <= FEW);
        if task == Task::Narrow && few {
            pool.rows(to, self.narrow, |start, to| {
                for (i, to) in to.chunks_exact_mut(self.narrow).enumerate() {
                    let x = &from[(start + i) * self.wide..][..self.wide];
                    for (channel, (to, w)) in to.iter_mut().zip(w.chunks_exact(self.wide)).enumerate() {
                        *to = dot(x, w) + bias.map_or(0.0, |bias| bias[channel]);
                    }
                }
            });
            return;
        }
        let a = Matrix::by_line(from, e.depth);
        if task == Task::Narrow {
            let (b, bias) = (Matrix::by_line(w, e.depth), bias.map_or(Bias::None, Bias::Columns));
            return multiply(pool, e, &a, &b, &Rows::new(to, e.columns, bias), scratch);
        }
        if let Some(bias) = bias {
            pool.rows(to, self.plane, |start, to| {
                for (i, to) in to.chunks_exact_mut(self.plane).enumerate() {
                    to.fill(bias[(start + i) % bias.len()]);
                }
            });
        }
        let (w, more) = (Matrix::by_depth(w, self.wide), if bias.is_some() { Bias::Add } else { Bias::None });
        if self.narrow <= SHALLOW {
            let a = Lying { numbers: from, row: e.depth, along: 1 };
            return shallow::multiply(pool, e, a, &w, (to, more), scratch);
        }
        multiply(pool, e, &a, &w, &Rows::new(to, e.columns, more), scratch);
    }

    /// The gradient of the weights.
    pub fn slope(
        &self,
        pool: &mut Pool,
        [wide, narrow]: [Samples<'_>; 2],
        dw: &mut [f32],
        scratch: &mut [f32],
    ) {
        let e = self.extent(Task::Weight);
        let (a, b) = (Flat { numbers: narrow, size: self.narrow }, Flat { numbers: wide, size: self.wide });
        if self.batch <= SOME && narrow.beside(0, self.batch) == self.batch {
            // The sums of so few samples have the same order.
            let a = Lying { numbers: narrow.from(0), row: 1, along: self.narrow };
            return shallow::multiply(pool, e, a, &b, (dw, Bias::None), scratch);
        }
        multiply(pool, e, &a, &b, &Rows::new(dw, e.columns, Bias::None), scratch);
    }
}

/// Samples as an operand: a depth is a sample, and a line is one of its numbers.
struct Flat<'a> {
    numbers: Samples<'a>,
    size: usize,
}

impl Pack for Flat<'_> {
    fn pack(&self, depth: Range<usize>, lines: Range<usize>, stride: usize, out: &mut [f32]) {
        let mut sample = depth.start;
        while sample < depth.end {
            let count = self.numbers.beside(sample, depth.end - sample);
            let layout = Layout { counts: [1, count, lines.len()], from: [0, self.size, 1], to: [0, stride] };
            let from = &self.numbers.from(sample)[lines.start..];
            simd::lay(layout, from, 0.0, &mut out[(sample - depth.start) * stride..]);
            sample += count;
        }
    }
}

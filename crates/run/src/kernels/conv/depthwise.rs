//! Depthwise convolutions of stride 1 and 2 and their gradients, plane by plane, without a copy of either side.

use super::{Geometry, Task};
use crate::kernels::pool::Pool;
use crate::kernels::samples::Samples;
use crate::kernels::simd::{Depthwise, Weights};

/// A convolution of every channel with a window of its own.
pub(super) struct Planes {
    task: Task,
    shape: Depthwise,
    batch: usize,
    channels: usize,
    /// Channels that are computed at once.
    together: usize,
    /// Weights of a channel.
    taps: usize,
}

impl Planes {
    /// The same computed this way, where it can be.
    pub fn new(g: &Geometry, task: Task) -> Option<Planes> {
        let (window, stride, channels) = (g.window[0], g.stride[0], g.wide.channels);
        let plain = g.window == [window; 2] && g.stride == [stride; 2] && g.dilation == [1; 2];
        let single = g.groups == channels && g.groups == g.narrow.channels;
        let sides = [g.wide, g.narrow].map(|side| [side.height, side.width]);
        let shape = match task {
            // A pixel of the wide side is met by the same window, turned around.
            Task::Wide if stride == 1 => {
                let before = [0, 1].map(|axis| (window - 1).checked_sub(g.before[axis]));
                let [Some(above), Some(left)] = before else { return None };
                Depthwise {
                    from: sides[1],
                    to: sides[0],
                    before: [above, left],
                    window,
                    stride,
                    rises: false,
                }
            }
            Task::Wide => {
                Depthwise { from: sides[1], to: sides[0], before: g.before, window, stride, rises: true }
            }
            _ => Depthwise { from: sides[0], to: sides[1], before: g.before, window, stride, rises: false },
        };
        (plain && single && shape.here()).then(|| Planes {
            task,
            shape,
            batch: g.wide.batch,
            channels,
            together: shape.together(channels),
            taps: g.taps(),
        })
    }

    /// Computes one side from the other.
    pub fn run(&self, pool: &mut Pool, w: &[f32], bias: Option<&[f32]>, from: &[f32], to: &mut [f32]) {
        let (some, taps) = (self.together, self.taps);
        let [read, written] = [self.shape.from, self.shape.to].map(|[rows, columns]| some * rows * columns);
        pool.rows(to, written, |start, to| {
            for (unit, to) in (start..).zip(to.chunks_exact_mut(written)) {
                let first = unit * some % self.channels;
                let weights = Weights {
                    taps: &w[first * taps..][..some * taps],
                    turned: self.task == Task::Wide && !self.shape.rises,
                    begin: bias.map(|bias| &bias[first..first + some]),
                };
                self.shape.slide(some, weights, &from[unit * read..][..read], to);
            }
        });
    }

    /// Computes the gradient by the weights, summed over images in order.
    pub fn slope(&self, pool: &mut Pool, wide: Samples<'_>, narrow: Samples<'_>, dw: &mut [f32]) {
        let (some, taps) = (self.together, self.taps);
        let sizes = [self.shape.from, self.shape.to].map(|[rows, columns]| rows * columns);
        pool.sums(self.batch * sizes[0] * some, dw, some * taps, |start, dw| {
            for (unit, dw) in (start..).zip(dw.chunks_exact_mut(some * taps)) {
                let mut sums = [[0f32; 16]; 25];
                for n in 0..self.batch {
                    let [wide, narrow] = [(wide, sizes[0]), (narrow, sizes[1])]
                        .map(|(side, size)| &side.from(n)[unit * some * size..]);
                    self.shape.meet(some, wide, narrow, sizes.map(|size| size * self.channels), &mut sums);
                }
                for (at, dw) in dw.iter_mut().enumerate() {
                    let lanes = sums[at % taps].chunks_exact(16 / some).nth(at / taps);
                    *dw = lanes.map_or(0.0, |lanes| lanes.iter().sum());
                }
            }
        });
    }
}

//! Depthwise convolutions of stride 1 and 2 and their gradients, plane by plane, without a copy of either side; of stride 1
//! also with several windows for every channel.

use super::{Geometry, Task};
use crate::pool::Pool;
use crate::samples::Samples;
use crate::simd::{Depthwise, Weights, add_neighbours};

/// Windows of a channel, at most, where there are several.
const WINDOWS: usize = 4;

/// A convolution of every channel with a window of its own, or with several.
pub(super) struct Planes {
    task: Task,
    shape: Depthwise,
    batch: usize,
    /// Channels of the wide side, and how many of the narrow side each of them has.
    channels: usize,
    times: usize,
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
        let (single, times) = (g.groups == channels, g.narrow.channels / channels);
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
        let together = if times == 1 { shape.together(channels) } else { 1 };
        // A few windows of a channel are taken one by one: not of planes that share a vector, nor of those that rise.
        let simple = times == 1 || (times <= WINDOWS && !shape.rises && shape.together(4) == 1);
        let batch = g.wide.batch;
        (plain && single && simple && shape.applies()).then(|| Planes {
            task,
            shape,
            batch,
            channels,
            times,
            together,
            taps: g.taps(),
        })
    }

    /// Computes one side from the other.
    pub fn run(&self, pool: &mut Pool, w: &[f32], bias: Option<&[f32]>, from: &[f32], to: &mut [f32]) {
        let (some, taps, rises) = (self.together, self.taps, self.shape.rises);
        let [read, written] = [self.shape.from, self.shape.to].map(|[rows, columns]| some * rows * columns);
        let wide = self.task == Task::Wide;
        // How many planes that are written have the same to read, and how many that are read have the same to write.
        let (shared, summed) = if wide { (1, self.times) } else { (self.times, 1) };
        let channels = self.channels * shared;
        pool.rows(to, written, |start, to| {
            for (unit, to) in (start..).zip(to.chunks_exact_mut(written)) {
                let first = unit * some % channels;
                let mut begin = bias.map(|bias| &bias[first..first + some]);
                for part in 0..summed {
                    let taps = &w[(first * summed + part) * taps..][..some * taps];
                    let begin = begin.take();
                    let weights = Weights { taps, turned: wide && !rises, begin, add: part > 0 };
                    let plane = if shared > 1 { unit / shared } else { unit * summed + part };
                    self.shape.slide(some, weights, &from[plane * read..][..read], to);
                }
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
                let planes = [unit * some / self.times, unit * some];
                let next = [sizes[0] * self.channels, sizes[1] * self.channels * self.times];
                let mut done = 0;
                while done < self.batch {
                    let images = wide.beside(done, self.batch - done);
                    let [wide, narrow] =
                        [(wide, 0), (narrow, 1)].map(|(side, at)| &side.from(done)[planes[at] * sizes[at]..]);
                    self.shape.meet(some, images, wide, narrow, next, &mut sums);
                    done += images;
                }
                // Of every tap's vector each plane has its lanes.
                let sums = &mut sums.as_flattened_mut()[..taps * 16];
                add_neighbours(sums, 16 / some);
                for (plane, dw) in dw.chunks_exact_mut(taps).enumerate() {
                    let own = sums.iter().skip(plane).step_by(some);
                    dw.iter_mut().zip(own).for_each(|(dw, sum)| *dw = *sum);
                }
            }
        });
    }
}

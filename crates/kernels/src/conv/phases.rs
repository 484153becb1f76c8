//! The wide side from the narrow one as products: the gradient by a convolution's input, and transposed convolutions.
//!
//! With a stride the pixels of the wide side fall into phases, by the remainders of their row and column. Those of a phase see
//! the same taps, so that each is a plain convolution of stride 1. Where every other column belongs to the same phase, the
//! two phases of a row become matrices of their own, for a few images at a time, and are then put into the image in turn:
//! a product adds to its result many times, and that is no work for every second number.

use std::ops::Range;

use super::window::{Filter, Planes, Taps, Window, lattice, turn};
use super::{Geometry, Task};
use crate::gemm::{Bias, Rows, multiply, multiply_into};
use crate::pool::Pool;
use crate::room;
use crate::samples::Samples;
use crate::shares::Sheet;
use crate::simd::lay_pairs;

/// Numbers of the two phases of some images, at most, of one if there has to be one.
const SOME: usize = 1 << 20;
const ONE: usize = 2 << 20;

/// What is computed this way.
pub(super) struct Phases<'g> {
    g: &'g Geometry,
    /// The images whose phases are computed before they are put where they belong, at most; none where they are put there
    /// at once.
    images: usize,
}

/// What a phase has become: where it begins, and how far apart its channels, images and rows are.
#[derive(Clone, Copy)]
struct Phase<'a> {
    numbers: &'a [f32],
    channel: usize,
    image: usize,
    row: usize,
}

impl<'g> Phases<'g> {
    /// The wide side of a convolution.
    pub fn new(g: &'g Geometry) -> Phases<'g> {
        let each = 2 * Phases::half(g);
        let images = if g.stride[1] == 2 && each <= ONE { (SOME / each.max(1)).max(1) } else { 0 };
        Phases { g, images: images.min(g.wide.batch) }
    }

    /// Numbers of a phase of an image, at most.
    fn half(g: &Geometry) -> usize {
        g.group().0 * g.wide.height.div_ceil(g.stride[0]) * g.wide.width.div_ceil(g.stride[1])
    }

    /// Numbers of a group's filters, where phases take some taps of them each: they are turned, once for all.
    fn turned(&self) -> usize {
        let (wide, narrow) = self.g.group();
        if self.g.stride == [1, 1] || self.g.taps() == 1 { 0 } else { room(wide * narrow * self.g.taps()) }
    }

    /// Scratch numbers of all threads.
    pub fn scratch(&self, threads: usize) -> usize {
        // Phases have fewer taps, whose blocks may be longer than those of all taps.
        let g = self.g;
        let ((wide, narrow), columns) = (g.group(), g.wide.batch * g.wide.plane());
        let most = |taps| g.blocked(wide, columns, narrow, taps).scratch();
        let products = (1..=g.taps()).map(most).max().unwrap_or(0);
        self.turned() + 2 * room(self.images * Phases::half(g)) + products * threads
    }

    /// Every phase.
    fn each(&self) -> impl Iterator<Item = [usize; 2]> {
        let [down, across] = self.g.stride;
        (0..down).flat_map(move |a| (0..across).map(move |b| [a, b]))
    }

    /// Rows and columns of a phase.
    fn grid(&self, phase: [usize; 2]) -> [usize; 2] {
        let sides = [self.g.wide.height, self.g.wide.width];
        [0, 1].map(|axis| sides[axis].saturating_sub(phase[axis]).div_ceil(self.g.stride[axis]))
    }

    /// Computes the wide side.
    pub fn run(
        &self,
        pool: &mut Pool,
        (w, bias): (&[f32], Option<&[f32]>),
        from: &[f32],
        to: &mut [f32],
        scratch: &mut [f32],
    ) {
        let g = self.g;
        let size = w.len() / g.groups;
        if self.images == 0 && self.each().any(|phase| Taps::phase(g, phase).len() == 0) {
            // Pixels that no tap meets.
            let plane = g.wide.plane();
            pool.rows(to, plane, |start, to| {
                for (at, to) in to.chunks_exact_mut(plane).enumerate() {
                    to.fill(bias.map_or(0.0, |bias| bias[(start + at) % g.wide.channels]));
                }
            });
        }
        let (turned, scratch) = scratch.split_at_mut(self.turned());
        let (pair, scratch) = scratch.split_at_mut(2 * room(self.images * Phases::half(g)));
        for (group, w) in w.chunks_exact(size).enumerate() {
            let filters = if turned.is_empty() {
                (w, false)
            } else {
                turn(pool, w, [g.group().0, g.taps()], &mut turned[..size]);
                (&turned[..size], true)
            };
            if self.images == 0 {
                for phase in self.each() {
                    self.put(pool, group, phase, filters, from, (bias, to), scratch);
                }
                continue;
            }
            // As many at a time, or nearly so.
            let some = g.wide.batch.div_ceil(g.wide.batch.div_ceil(self.images));
            for first in (0..g.wide.batch).step_by(some) {
                let images = first..(first + some).min(g.wide.batch);
                for down in 0..g.stride[0] {
                    let (left, right) = pair.split_at_mut(pair.len() / 2);
                    let left = self.compute(pool, group, [down, 0], filters, (from, &images), left, scratch);
                    let right =
                        self.compute(pool, group, [down, 1], filters, (from, &images), right, scratch);
                    self.spread(pool, group, (down, [left, right]), images.clone(), (bias, to));
                }
            }
        }
    }

    /// The narrow side of some images as a phase sees it.
    fn window<'a>(&self, group: usize, grid: [usize; 2], taps: &'a Taps<'a>, from: &'a [f32]) -> Window<'a> {
        let image = self.g.read(Task::Wide);
        Window {
            numbers: Samples::one(from, image.size()),
            image,
            first: group * self.g.group().1,
            grid,
            stride: [1, 1],
            taps,
        }
    }

    /// Filters, turned or not, as a phase sees them.
    fn filter<'a>(&self, (numbers, turned): (&'a [f32], bool), taps: &'a Taps<'a>) -> Filter<'a> {
        let (wide, all) = (self.g.group().0, self.g.taps());
        let (line, tap) = if turned { (1, wide) } else { (all, 1) };
        Filter { numbers, line, tap, channel: wide * all, taps }
    }

    /// Computes a phase of a group and puts it where it belongs.
    #[allow(clippy::too_many_arguments)]
    fn put(
        &self,
        pool: &mut Pool,
        group: usize,
        phase: [usize; 2],
        filters: (&[f32], bool),
        from: &[f32],
        (bias, to): (Option<&[f32]>, &mut [f32]),
        scratch: &mut [f32],
    ) {
        let (g, taps, grid) = (self.g, Taps::phase(self.g, phase), self.grid(phase));
        let ((wide, narrow), columns) = (g.group(), g.wide.batch * grid[0] * grid[1]);
        if columns == 0 || taps.len() == 0 {
            return;
        }
        let extent = g.blocked(wide, columns, narrow, taps.len());
        let lattice = lattice(g.wide, group * wide..(group + 1) * wide, grid, g.stride, phase);
        let (filter, window) = (self.filter(filters, &taps), self.window(group, grid, &taps, from));
        let planes = Planes { first: group * wide, bias };
        multiply_into(pool, extent, &filter, &window, (Sheet::new(to, lattice), &planes), scratch);
    }

    /// Computes a phase of some images of a group.
    #[allow(clippy::too_many_arguments)]
    fn compute<'a>(
        &self,
        pool: &mut Pool,
        group: usize,
        phase: [usize; 2],
        filters: (&[f32], bool),
        (from, images): (&[f32], &Range<usize>),
        to: &'a mut [f32],
        scratch: &mut [f32],
    ) -> Phase<'a> {
        let (g, taps, grid) = (self.g, Taps::phase(self.g, phase), self.grid(phase));
        let ((wide, narrow), pixels) = (g.group(), grid[0] * grid[1]);
        let columns = images.len() * pixels;
        if columns == 0 || taps.len() == 0 {
            // One row of zeros is enough.
            to[..grid[1]].fill(0.0);
            return Phase { numbers: to, channel: 0, image: 0, row: 0 };
        }
        let extent = g.blocked(wide, columns, narrow, taps.len());
        let from = &from[images.start * g.narrow.size()..];
        let (filter, window) = (self.filter(filters, &taps), self.window(group, grid, &taps, from));
        multiply(pool, extent, &filter, &window, &Rows::new(to, columns, Bias::None), scratch);
        Phase { numbers: to, channel: columns, image: pixels, row: grid[1] }
    }

    /// Puts two phases of some images, which have every row from `down` on, into the image, column by column in turn.
    fn spread(
        &self,
        pool: &mut Pool,
        group: usize,
        (down, phases): (usize, [Phase<'_>; 2]),
        images: Range<usize>,
        (bias, to): (Option<&[f32]>, &mut [f32]),
    ) {
        let (g, wide, rows) = (self.g, self.g.group().0, self.grid([down, 0])[0]);
        let (width, plane, size) = (g.wide.width, g.wide.plane(), g.wide.size());
        if rows == 0 {
            return;
        }
        let put = |start: usize, planes: &mut [f32]| {
            for (at, to) in planes.chunks_exact_mut(plane).enumerate() {
                let (image, channel) = ((start + at) / wide, (start + at) % wide);
                let begin = bias.map_or(0.0, |bias| bias[group * wide + channel]);
                let pair = phases.map(|phase| {
                    (&phase.numbers[channel * phase.channel + image * phase.image..], phase.row)
                });
                lay_pairs(pair, (rows, width), begin, (&mut to[down * width..], g.stride[0] * width));
            }
        };
        if g.groups == 1 {
            return pool.rows(&mut to[images.start * size..images.end * size], plane, put);
        }
        for (image, to) in to[images.start * size..images.end * size].chunks_exact_mut(size).enumerate() {
            let planes = &mut to[group * wide * plane..][..wide * plane];
            pool.rows(planes, plane, |start, planes| put(image * wide + start, planes));
        }
    }
}

//! Convolutions without packing: the side that is read is copied once into planes with zeros around them, and then
//! every tap of every channel is the same stretch of numbers at another distance (`simd::shifted`).
//!
//! That is for convolutions in which a number is met too few times to be worth a place in a panel: first and last
//! layers, groups, and depthwise convolutions, whose products have few rows or little depth. The pixels of one phase of
//! the result are computed row after row as one run, and the columns between rows are thrown away; where a row is half a
//! vector, two rows make one, and there is nothing between them.

use super::frame::{Ahead, Frame, side};
use super::window::Taps;
use super::{Geometry, Image, Task};
use crate::pool::Pool;
use crate::room;
use crate::samples::Samples;
use crate::shares::{Boxes, Each, OneBox};
use crate::simd::{Layout, Pairs, Shifts, Tile, foresee, lay, lay_pairs, shifted, shifted_pairs};

/// Numbers of a group's filters, at most, where panels would do as well.
const FILTERS: usize = 160 << 10;

/// How many times the pixels that are wanted may be computed, where panels would do as well.
const WASTE: f64 = 1.15;

/// A convolution of one side to the other that is computed this way.
pub(super) struct Direct<'g> {
    g: &'g Geometry,
    task: Task,
    frame: Frame,
    written: Image,
    /// Channels of a group on the side that is written, in tiles of this many.
    rows: usize,
    tile: usize,
    /// The strides of the written side's phases.
    phases: [usize; 2],
    /// Numbers of a run in whole vectors.
    run: usize,
    /// Taps of all channels, of all phases.
    depth: usize,
}

impl<'g> Direct<'g> {
    /// The same computed this way, where it can be and pays.
    pub fn new(g: &'g Geometry, task: Task, threads: usize) -> Option<Direct<'g>> {
        let (wide, narrow) = g.group();
        let (rows, channels, written, phases) = match task {
            Task::Narrow => (narrow, wide, g.narrow, [1, 1]),
            Task::Wide => (wide, narrow, g.wide, g.stride),
            Task::Weight => return None,
        };
        let frame = Frame::new(g, task)?.dealt(g.groups, threads);
        let (small, large) = (rows <= 16 || channels * g.taps() <= 160, rows * channels * g.taps() > FILTERS);
        let worth = if g.taps() == 1 { rows <= 8 } else { small || (!large && frame.waste() <= WASTE) };
        if !worth {
            return None;
        }
        let tiles = rows.div_ceil(Tile::here().rows);
        let run = frame.run().next_multiple_of(Tile::here().lanes);
        let (tile, depth) = (rows.div_ceil(tiles), channels * g.taps());
        Some(Direct { g, task, frame, written, rows, tile, phases, run, depth })
    }

    /// Scratch numbers of one thread: planes, runs of a tile for every phase of a row, filters, distances,
    /// places of pairs.
    pub fn scratch(&self) -> usize {
        // A part of a batch may stack more images than the batch, and has to do with the same.
        let (frame, lanes) = (self.frame.full(), Tile::here().lanes);
        let run = frame.run().next_multiple_of(lanes);
        room(frame.len())
            + room(self.phases[1] * self.tile * run)
            + room(self.rows * self.depth)
            + room(self.depth)
            + room(run / lanes)
    }

    fn taps(&self, phase: [usize; 2]) -> Taps<'g> {
        match self.task {
            Task::Wide => Taps::phase(self.g, phase),
            _ => Taps::all(self.g),
        }
    }

    /// Every phase of the written side, row by row.
    fn each_phase(&self) -> impl Iterator<Item = [usize; 2]> {
        let [down, across] = self.phases;
        (0..down).flat_map(move |a| (0..across).map(move |b| [a, b]))
    }

    /// Works out how far the taps of every phase are.
    fn measure(&self, distances: &mut [u32]) {
        let mut to = distances.iter_mut();
        for phase in self.each_phase() {
            let taps = self.taps(phase);
            for c in 0..self.frame.channels {
                for t in 0..taps.len() {
                    if let Some(to) = to.next() {
                        *to = self.frame.distance(c, taps.get(t));
                    }
                }
            }
        }
    }

    /// Packs a group's filters: tile by tile, phase by phase.
    fn pack(&self, w: &[f32], filters: &mut [f32]) {
        let (all, channels) = (self.g.taps(), self.frame.channels);
        // The distances of rows and of depth's channels in the weights.
        let (row, channel) = match self.task {
            Task::Wide => (all, self.rows * all),
            _ => (channels * all, all),
        };
        let mut to = filters.iter_mut();
        for first in (0..self.rows).step_by(self.tile) {
            let rows = first..(first + self.tile).min(self.rows);
            for phase in self.each_phase() {
                let taps = self.taps(phase);
                for c in 0..channels {
                    for t in 0..taps.len() {
                        let from = c * channel + taps.get(t).weight;
                        let numbers = rows.clone().map(|r| w[r * row + from]);
                        numbers.zip(&mut to).for_each(|(number, to)| *to = number);
                    }
                }
            }
        }
    }

    /// Computes one phase of a tile of a block, and does something after every piece.
    fn compute(
        &self,
        planes: &[f32],
        rows: usize,
        filters: &[f32],
        (distances, pairs): (&[u32], Pairs<'_>),
        runs: &mut [f32],
        mut meanwhile: impl FnMut(),
    ) {
        if distances.is_empty() {
            return runs.fill(0.0);
        }
        let (lanes, most, shifts) = (Tile::here().lanes, Shifts::vectors(rows), Shifts::new(distances));
        let mut at = 0;
        while at < self.run {
            let vectors = ((self.run - at) / lanes).min(most);
            let to = (&mut runs[at..], self.run);
            if pairs.is_empty() {
                shifted(shifts, (rows, vectors), filters, &planes[at..], to);
            } else {
                let some = pairs.range(at / lanes..at / lanes + vectors);
                shifted_pairs(shifts, (rows, some), filters, planes, to);
            }
            at += vectors * lanes;
            meanwhile();
        }
    }

    /// Puts the runs of one channel of an image, for the phases of row `phase`, where they belong in the rows of a
    /// block, of which `first` is the first of the grid.
    fn put(&self, phase: usize, first: usize, runs: &[f32], begin: f32, block: &mut [f32]) {
        let ([down, across], [height, width]) = (self.phases, side(self.written));
        let rows = height.saturating_sub(phase).div_ceil(down).saturating_sub(first).min(self.frame.band);
        if rows == 0 {
            return;
        }
        let (to, each, pitch) = (&mut block[phase * width..], self.tile * self.run, self.frame.steps()[0]);
        match across {
            1 => {
                // Rows that lie side by side on both sides are one.
                let whole = down == 1 && pitch == width;
                let counts = if whole { [1, 1, rows * width] } else { [1, rows, width] };
                lay(Layout { counts, from: [0, pitch, 1], to: [0, down * width] }, runs, begin, to);
            }
            2 => lay_pairs([(runs, pitch), (&runs[each..], pitch)], (rows, width), begin, (to, down * width)),
            _ => {
                for (row, to) in to.chunks_mut(down * width).take(rows).enumerate() {
                    for (column, to) in to[..width].iter_mut().enumerate() {
                        *to = begin + runs[column % across * each + row * pitch + column / across];
                    }
                }
            }
        }
    }

    /// Computes the written side.
    pub fn run(
        &self,
        pool: &mut Pool,
        w: &[f32],
        bias: Option<&[f32]>,
        from: &[f32],
        to: &mut [f32],
        scratch: &mut [f32],
    ) {
        let samples = Samples::one(from, self.g.read(self.task).size());
        let shares = (Each::new(scratch, self.scratch()), self.boxes(to));
        pool.each(shares, |_, (scratch, mut boxes)| {
            let (planes, rest) = scratch.split_at_mut(room(self.frame.len()));
            let (runs, rest) = rest.split_at_mut(room(self.phases[1] * self.tile * self.run));
            let (filters, rest) = rest.split_at_mut(room(self.rows * self.depth));
            let (distances, places) = rest.split_at_mut(room(self.depth));
            let pairs = self.frame.pair(bytemuck::cast_slice_mut(places));
            let distances: &mut [u32] = bytemuck::cast_slice_mut(&mut distances[..self.depth]);
            planes.fill(0.0);
            self.measure(distances);
            let (mut packed, units) = (None, boxes.units());
            for unit in units.clone() {
                let (group, block) = self.unit(unit);
                if packed.replace(group) != Some(group) {
                    let size = self.rows * self.depth;
                    self.pack(&w[group * size..][..size], filters);
                }
                self.frame.fill(block, group * self.frame.channels, samples, planes);
                let ahead = if unit + 1 < units.end {
                    let (group, block) = self.unit(unit + 1);
                    [self.frame.ahead(block, group * self.frame.channels), self.written(group, block)]
                } else {
                    [Ahead::nothing(), Ahead::nothing()]
                };
                let to = (block, boxes.get(unit));
                self.block(group, bias, planes, filters, (distances, pairs), runs, (from, ahead), to);
            }
        });
    }

    /// Whether filters are so small that packing them anew costs nothing, and memory is gone through in order; else
    /// they are packed once for all blocks of a group.
    fn in_order(&self) -> bool {
        self.rows * self.depth < 256
    }

    /// The written side in boxes: the rows of a block, of a group's channels.
    fn boxes<'a>(&self, to: &'a mut [f32]) -> Boxes<'a, f32> {
        let Image { batch, channels, width, .. } = self.written;
        let rows = self.frame.band * self.phases[0];
        let boxes = Boxes::new(
            to,
            [batch, channels, 1, self.written.plane()],
            [self.frame.stack, self.rows, 1, rows * width],
        );
        boxes.ordered(if self.in_order() { [0, 3, 2, 1] } else { [1, 0, 2, 3] })
    }

    /// The group and the block of a box.
    fn unit(&self, at: usize) -> (usize, usize) {
        match self.in_order() {
            true => (at % self.g.groups, at / self.g.groups),
            false => (at / self.frame.blocks(), at % self.frame.blocks()),
        }
    }

    /// Where a block of a group's channels is written.
    fn written(&self, group: usize, block: usize) -> Ahead {
        let (image, images, row) = self.frame.block(block);
        let (Image { channels, width, .. }, plane) = (self.written, self.written.plane());
        let start = (image * channels + group * self.rows) * plane;
        let rows = self.frame.band * self.phases[0] * width;
        if rows >= plane {
            return Ahead::new(start, channels * plane, self.rows * plane, images);
        }
        let first = row * self.phases[0] * width;
        Ahead::new(start + first, plane, rows.min(plane - first), self.rows)
    }

    /// Computes all tiles of a block.
    #[allow(clippy::too_many_arguments)]
    fn block(
        &self,
        group: usize,
        bias: Option<&[f32]>,
        planes: &[f32],
        filters: &[f32],
        (distances, pairs): (&[u32], Pairs<'_>),
        runs: &mut [f32],
        (from, [mut ahead, mut written]): (&[f32], [Ahead; 2]),
        (block, mut to): (usize, OneBox<'_, f32>),
    ) {
        // How much to ask for after each piece of a run.
        let pieces = self.run.div_ceil(Shifts::vectors(self.tile) * Tile::here().lanes);
        let pieces = pieces * self.rows.div_ceil(self.tile) * self.phases[0] * self.phases[1];
        let (image, images, first) = self.frame.block(block);
        let each = [&ahead, &written].map(|ahead| ahead.each(pieces));
        let height = self.frame.steps()[1];
        for top in (0..self.rows).step_by(self.tile) {
            let rows = self.tile.min(self.rows - top);
            let mut done = 0;
            for phase in 0..self.phases[0] {
                for (across, runs) in
                    runs.chunks_exact_mut(self.tile * self.run).enumerate().take(self.phases[1])
                {
                    let depth = self.frame.channels * self.taps([phase, across]).len();
                    let filters = &filters[top * self.depth + done * rows..];
                    let distances = (&distances[done..done + depth], pairs);
                    self.compute(planes, rows, filters, distances, runs, || {
                        ahead.take(each[0], |numbers| foresee(&from[numbers]));
                        written.take(each[1], |numbers| to.expect_early(numbers));
                    });
                    done += depth;
                }
                for (m, row) in (0..images).flat_map(|m| (0..rows).map(move |row| (m, row))) {
                    let channel = group * self.rows + top + row;
                    let begin = bias.map_or(0.0, |bias| bias[channel]);
                    let plane = to.run([image + m, channel, 0]);
                    self.put(phase, first, &runs[row * self.run + m * height..], begin, plane);
                }
            }
        }
    }
}

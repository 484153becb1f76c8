//! Convolutions whose windows are single pixels: every image is a matrix already, of a row for each channel.
//!
//! Images are read as they lie, results are summed up in registers and written once, where they belong, some pixels of all
//! channels at a time. Memory is asked for the next ones meanwhile. Only filters are packed, so there are few.

use super::frame::Ahead;
use super::{Geometry, Task};
use crate::gemm::{Matrix, Pack};
use crate::pool::Pool;
use crate::room;
use crate::shares::{Boxes, Each};
use crate::simd::{Shifts, Tile, foresee, shifted_along};

/// Numbers of all filters, at most: they stay in a second-level cache.
const FILTERS: usize = 160 << 10;

/// Numbers that are read at a time, where there are few channels: they stay in a first-level cache.
const READ: usize = 8 << 10;

/// Pixels of a plane, at least.
const LEAST: usize = 64;

/// Numbers of a line of a cache.
const LINE: usize = 16;

/// Such a convolution of one side to the other.
pub(super) struct Pointwise<'g> {
    g: &'g Geometry,
    task: Task,
    /// Channels of the side that is written, in tiles of this many, and of the one that is read.
    rows: usize,
    tile: usize,
    depth: usize,
    /// Pixels that are computed at a time.
    band: usize,
}

impl<'g> Pointwise<'g> {
    /// The same computed this way, where it can be and pays.
    pub fn new(g: &'g Geometry, task: Task) -> Option<Pointwise<'g>> {
        let (rows, depth) = match task {
            Task::Narrow => (g.narrow.channels, g.wide.channels),
            Task::Wide => (g.wide.channels, g.narrow.channels),
            Task::Weight => return None,
        };
        let plane = g.wide.plane();
        let worth = plane >= LEAST && rows * depth <= FILTERS && depth * plane <= u32::MAX as usize;
        if !(g.is_pointwise() && g.groups == 1 && worth) {
            return None;
        }
        // The last pixels are a vector at least.
        let most = (READ / depth / LINE * LINE).max(4 * LINE);
        let last = |band: usize| plane - (plane.div_ceil(band) - 1) * band;
        let fewer = (2 * LINE..=most).rev().step_by(LINE);
        let mut bands = fewer.chain((most..plane + LINE).step_by(LINE));
        let band = bands.find(|band| last(*band) >= Tile::here().lanes)?;
        let tile = rows.div_ceil(rows.div_ceil(Tile::here().rows));
        Some(Pointwise { g, task, rows, tile, depth, band })
    }

    /// Scratch numbers of one thread: filters, distances.
    pub fn scratch(&self) -> usize {
        room(self.rows * self.depth) + room(self.depth)
    }

    /// Computes the written side.
    pub fn run(
        &self,
        pool: &mut Pool,
        (w, bias): (&[f32], Option<&[f32]>),
        from: &[f32],
        to: &mut [f32],
        scratch: &mut [f32],
    ) {
        let (batch, plane) = (self.g.wide.batch, self.g.wide.plane());
        let boxes = Boxes::new(to, [batch, self.rows, 1, plane], [1, self.rows, 1, self.band]);
        let filters = match self.task {
            Task::Wide => Matrix::by_depth(w, self.rows),
            _ => Matrix::by_line(w, self.depth),
        };
        pool.each((Each::new(scratch, self.scratch()), boxes), |_, (scratch, mut boxes)| {
            let (packed, distances) = scratch.split_at_mut(room(self.rows * self.depth));
            for top in (0..self.rows).step_by(self.tile) {
                let lines = top..(top + self.tile).min(self.rows);
                filters.pack(0..self.depth, lines.clone(), lines.len(), &mut packed[top * self.depth..]);
            }
            let distances: &mut [u32] = bytemuck::cast_slice_mut(&mut distances[..self.depth]);
            distances.iter_mut().enumerate().for_each(|(k, distance)| *distance = (k * plane) as u32);
            let (shifts, units) = (Shifts::new(distances), boxes.units());
            for unit in units.clone() {
                let next = if unit + 1 < units.end {
                    let [image, _, _, pixels] = boxes.get(unit + 1).ranges().clone();
                    let stretches = |channels: usize| {
                        let start = image.start * channels * plane + pixels.start;
                        Ahead::new(start, plane, pixels.len(), channels)
                    };
                    [stretches(self.depth), stretches(self.rows)]
                } else {
                    [Ahead::nothing(), Ahead::nothing()]
                };
                let tiles = self.rows.div_ceil(self.tile);
                let (mut one, [mut read, mut written]) = (boxes.get(unit), next);
                let each = [&read, &written].map(|ahead| ahead.each(tiles));
                let [image, _, _, pixels] = one.ranges().clone();
                let here = &from[image.start * self.depth * plane + pixels.start..];
                for top in (0..self.rows).step_by(self.tile) {
                    read.take(each[0], |numbers| foresee(&from[numbers]));
                    written.take(each[1], |numbers| one.expect_early(numbers));
                    let rows = top..(top + self.tile).min(self.rows);
                    let filters = &packed[top * self.depth..];
                    shifted_along(shifts, filters, here, &mut one.matrix().strip(rows.clone()));
                    for (row, bias) in bias.into_iter().flat_map(|bias| rows.clone().zip(&bias[rows.clone()]))
                    {
                        one.run([image.start, row, 0]).iter_mut().for_each(|number| *number += bias);
                    }
                }
            }
        });
    }
}

//! The weights' gradient without packing: both sides are copied once into planes of the same form (`frame.rs`), and
//! the gradient of a tap is the product of two stretches of numbers at a distance (`simd::correlate`), summed over all
//! blocks of pixels in order. Where windows are single pixels nothing has to be copied.

use std::ops::Range;

use super::frame::{Ahead, Frame};
use super::window::Taps;
use super::{Geometry, Task, plane_sum};
use crate::pool::Pool;
use crate::room;
use crate::samples::Samples;
use crate::shares::{Boxes, Each, OneBox};
use crate::simd::{
    Correlation, Layout, Pairs, Shifts, Soon, Tile, add_neighbours, correlate, correlate_pairs, foresee, lay,
};

/// Vectors of sums that are kept, at most: they stay in a second-level cache.
const SUMS: usize = 4096;

/// Pixels of a run from which on it takes little to begin one.
const LONG: usize = 512;

/// Pixels of a run that are taken at a time, about, where there are few planes or they are taken as they lie: these and those of
/// a few channels of the other side stay near.
const PIECE: usize = 1024;
const PLANES: usize = 12;

/// Weights of a channel, and channels of the narrow side, up to which panels do no better.
const DEPTH: usize = 832;
const NARROW: usize = 96;

/// Pixels of planes that are better laid out than turned, where windows are single pixels.
const LARGE: usize = 3000;

/// How many times the pixels that are wanted may be computed, where panels would do as well.
const WASTE: f64 = 1.2;

/// Channels whose sums are in registers at a time, at most.
const TILE: usize = 4;

/// A gradient that is computed this way: of some channels of either side at a time.
pub(super) struct Slope<'g> {
    g: &'g Geometry,
    /// The planes of some channels of the wide side.
    frame: Frame,
    /// Channels of a group on either side, and how many of the narrow one are computed together.
    wide: usize,
    narrow: usize,
    together: usize,
    /// Channels in the frame times taps.
    depth: usize,
    /// Numbers of a run in whole vectors.
    run: usize,
    /// Whether both sides are taken as they lie: windows are single pixels, and planes whole vectors.
    lying: bool,
}

impl<'g> Slope<'g> {
    /// The gradient computed this way, where it can be and pays.
    pub fn new(g: &'g Geometry, threads: usize) -> Option<Slope<'g>> {
        let (wide, narrow) = g.group();
        let (all, taps) = (wide * g.taps(), g.taps());
        // Every channel is laid out as often as the other side has parts: so many of either that they cost about as much,
        // and of the wide side so few that there is room for long runs.
        let planes = Frame::of_channels(g, Task::Narrow, 1)?.planes();
        let [many, most] = [1.0 / planes as f64, planes as f64].map(|by| ((SUMS / taps) as f64 * by).sqrt());
        let [many, most] = [many, most].map(|channels| (channels as usize).max(2 * TILE));
        let frames = (wide.div_ceil(many)..=wide)
            .filter_map(|parts| Frame::of_channels(g, Task::Narrow, wide.div_ceil(parts)));
        let fits = |frame: &Frame| frame.is_whole() || frame.run() >= LONG;
        let frame = frames.clone().find(fits).or_else(|| frames.clone().next_back())?;
        let (small, fair) = (narrow <= 16 || all <= 160, all <= DEPTH || narrow <= NARROW);
        let worth = match taps {
            1 => narrow <= 8 || (narrow.min(wide) <= NARROW && g.narrow.plane() >= LARGE),
            _ => small || (fair && frame.waste() <= WASTE),
        };
        if !worth {
            return None;
        }
        let depth = frame.channels * taps;
        // As many of the narrow side as their sums stay near, but so that all threads have as much to do.
        let most = most.min(narrow);
        let even = |parts: usize| (parts * g.groups * wide.div_ceil(frame.channels)).is_multiple_of(threads);
        let least = narrow.div_ceil(most);
        let parts = (least..(least + threads).min(narrow.div_ceil(TILE) + 1)).find(|parts| even(*parts));
        let together = narrow.div_ceil(parts.unwrap_or(least));
        let run = frame.run().next_multiple_of(Tile::here().lanes);
        let lying = g.is_pointwise() && g.wide.plane().is_multiple_of(Tile::here().lanes);
        Some(Slope { g, frame, wide, narrow, together, depth, run, lying })
    }

    /// Scratch numbers of one thread: planes of both sides, sums, distances, places of pairs.
    pub fn scratch(&self) -> usize {
        let sums = self.together * self.depth * Tile::here().lanes;
        room(self.frame.len())
            + room(self.together * self.run)
            + room(sums)
            + room(self.depth)
            + room(self.run / Tile::here().lanes)
    }

    /// Whether every channel of the narrow side is laid out once, so that it can be summed on the way.
    pub fn sums_narrow(&self) -> bool {
        self.frame.channels == self.wide && !self.lying
    }

    /// Computes the gradient, and where asked for the sums of the narrow side's channels.
    pub fn run(
        &self,
        pool: &mut Pool,
        [wide, narrow]: [Samples<'_>; 2],
        (dw, totals): (&mut [f32], Option<&mut [f32]>),
        scratch: &mut [f32],
    ) {
        assert!(totals.is_none() || self.sums_narrow(), "channels that are laid out once");
        let all = self.wide * self.g.taps();
        let (extents, sizes) = ([self.g.groups, self.narrow, 1, all], [1, self.together, 1, self.depth]);
        let totals = totals
            .map(|totals| Boxes::new(totals, [self.g.groups, self.narrow, 1, 1], [1, self.together, 1, 1]));
        let shares = (Each::new(scratch, self.scratch()), Boxes::new(dw, extents, sizes), totals);
        pool.each(shares, |_, (scratch, mut boxes, mut totals)| {
            scratch.fill(0.0);
            let (distances, rest) = scratch.split_at_mut(room(self.depth));
            let (places, scratch) = rest.split_at_mut(room(self.run / Tile::here().lanes));
            let distances: &mut [u32] = bytemuck::cast_slice_mut(&mut distances[..self.depth]);
            let taps = Taps::all(self.g);
            for (at, distance) in distances.iter_mut().enumerate() {
                *distance = match self.lying {
                    true => (at * self.g.wide.plane()) as u32,
                    false => self.frame.distance(at / taps.len(), taps.get(at % taps.len())),
                };
            }
            let steps = (&*distances, self.frame.pair(bytemuck::cast_slice_mut(places)));
            let units = boxes.units();
            for unit in units.clone() {
                let next = (unit + 1 < units.end).then(|| self.channels_of(boxes.get(unit + 1).ranges()));
                let mut totals = totals.as_mut().map(|totals| totals.get(unit));
                let totals = totals.as_mut().map(|totals| totals.whole());
                self.channels([wide, narrow], steps, (boxes.get(unit), totals), next, scratch);
            }
        });
    }

    /// The channels of either side, all groups counted, whose gradient is some weights.
    fn channels_of(&self, [group, some, _, weights]: &[Range<usize>; 4]) -> [Range<usize>; 2] {
        let (group, taps) = (group.start, self.g.taps());
        let wide = [weights.start, weights.end].map(|at| group * self.wide + at / taps);
        let narrow = [some.start, some.end].map(|at| group * self.narrow + at);
        [wide, narrow].map(|[start, end]| start..end)
    }

    /// The gradient of some weights, and the sums of the narrow side's channels, after which come those of the channels that
    /// are `next`.
    fn channels(
        &self,
        [wide, narrow]: [Samples<'_>; 2],
        (distances, pairs): (&[u32], Pairs<'_>),
        (mut dw, totals): (OneBox<'_, f32>, Option<&mut [f32]>),
        next: Option<[Range<usize>; 2]>,
        scratch: &mut [f32],
    ) {
        let own = self.channels_of(dw.ranges());
        let [group, first] = [dw.ranges()[0].start, dw.ranges()[1].start];
        let (depth, channels) = (own[0].len() * self.g.taps(), own[1].len());
        let (planes, rest) = scratch.split_at_mut(room(self.frame.len()));
        let (lines, rest) = rest.split_at_mut(room(self.together * self.run));
        let lanes = Tile::here().lanes;
        let sums = &mut rest[..self.together * self.depth * lanes];
        let mut tiles = 0;
        self.tiles(channels, depth, |_, _, _, _| tiles += 1);
        match self.lying {
            true => self.images([wide, narrow], &own, (distances, tiles), sums),
            false => {
                let to = (planes, lines, &mut *sums);
                self.blocks([wide, narrow], &own, next, (distances, pairs, tiles), to, totals);
            }
        }
        add_neighbours(&mut sums[..channels * depth * lanes], lanes);
        self.tiles(channels, depth, |top, rows, shifts, place| {
            for (row, sums) in sums[place / lanes..].chunks_exact(shifts.len()).take(rows).enumerate() {
                dw.run([group, first + top + row, 0])[shifts.clone()].copy_from_slice(sums);
            }
        });
    }

    /// Sums up the products of some channels' pixels, which are laid out block by block, and those channels of the narrow side.
    fn blocks(
        &self,
        [wide, narrow]: [Samples<'_>; 2],
        own: &[Range<usize>; 2],
        next: Option<[Range<usize>; 2]>,
        (distances, pairs, tiles): (&[u32], Pairs<'_>, usize),
        (planes, lines, sums): (&mut [f32], &mut [f32], &mut [f32]),
        mut totals: Option<&mut [f32]>,
    ) {
        // The last channels of the wide side may be fewer.
        let (frame, lanes) = (self.frame.with(own[0].len()), Tile::here().lanes);
        let (depth, channels) = (own[0].len() * self.g.taps(), own[1].len());
        for block in 0..frame.blocks() {
            frame.fill(block, own[0].start, wide, planes);
            self.lines(block, own[1].start, channels, narrow, lines);
            if let Some(totals) = &mut totals {
                for (total, line) in totals.iter_mut().zip(lines.chunks_exact(self.run)) {
                    let sum = plane_sum(line);
                    *total = if block > 0 { *total + sum } else { sum };
                }
            }
            let next = match block + 1 < frame.blocks() {
                true => Some((block + 1, own.clone())),
                false => next.clone().map(|channels| (0, channels)),
            };
            let [mut ahead, mut other] = next.map_or([Ahead::nothing(), Ahead::nothing()], |next| {
                let (block, [wide, narrow]) = next;
                let frame = self.frame.with(wide.len());
                [frame.ahead(block, wide.start), self.next_lines(block, narrow.start, narrow.len())]
            });
            let few = frame.channels * frame.planes() <= PLANES;
            let pieces = if few { self.run.div_ceil(PIECE) } else { 1 };
            let each = [&ahead, &other].map(|ahead| ahead.each(tiles * pieces));
            let piece = (self.run / lanes).div_ceil(pieces) * lanes;
            for first in (0..self.run).step_by(piece) {
                let some = piece.min(self.run - first);
                self.tiles(channels, depth, |top, rows, shifts, place| {
                    ahead.take(each[0], |numbers| foresee(wide.numbers(numbers)));
                    other.take(each[1], |numbers| foresee(narrow.numbers(numbers)));
                    let lines = (&lines[top * self.run + first..], rows, self.run);
                    let row = shifts.len() * lanes;
                    let (shifts, sums) = (Shifts::new(&distances[shifts]), &mut sums[place..]);
                    let add = block > 0 || first > 0;
                    if pairs.is_empty() {
                        let sums = (sums, [0, row, 2 * row, 3 * row], add);
                        correlate(shifts, lines, &planes[first..], some, sums, Soon::NOTHING);
                    } else {
                        let some = pairs.range(first / lanes..(first + some) / lanes);
                        correlate_pairs(shifts, lines, planes, some, (sums, add));
                    }
                });
            }
        }
    }

    /// Sums up the products of some channels' pixels, image by image.
    fn images(
        &self,
        [wide, narrow]: [Samples<'_>; 2],
        own: &[Range<usize>; 2],
        (distances, tiles): (&[u32], usize),
        sums: &mut [f32],
    ) {
        let (lanes, plane, batch) = (Tile::here().lanes, self.g.wide.plane(), self.g.wide.batch);
        let sides = [(wide, self.g.wide.size()), (narrow, self.g.narrow.size())];
        let pieces = plane.div_ceil(PIECE);
        let piece = (plane / lanes).div_ceil(pieces) * lanes;
        for (image, first) in
            (0..batch).flat_map(|image| (0..plane).step_by(piece).map(move |at| (image, at)))
        {
            let some = piece.min(plane - first);
            let next = if first + piece < plane { (image, first + piece) } else { (image + 1, 0) };
            let mut ahead = [0, 1].map(|side| {
                let start = next.0 * sides[side].1 + own[side].start * plane + next.1;
                let count = if next.0 < batch { own[side].len() } else { 0 };
                Ahead::new(start, plane, piece.min(plane - next.1), count)
            });
            let each = [0, 1].map(|side| ahead[side].each(tiles));
            let [x, dy] = [0, 1].map(|side| &sides[side].0.from(image)[own[side].start * plane + first..]);
            self.tiles(own[1].len(), own[0].len(), |top, rows, shifts, place| {
                for side in 0..2 {
                    ahead[side].take(each[side], |numbers| foresee(sides[side].0.numbers(numbers)));
                }
                let row = shifts.len() * lanes;
                let (lines, shifts) = ((&dy[top * plane..], rows, plane), Shifts::new(&distances[shifts]));
                let sums = (&mut sums[place..], [0, row, 2 * row, 3 * row], image > 0 || first > 0);
                correlate(shifts, lines, x, some, sums, Soon::NOTHING);
            });
        }
    }

    /// Calls `f` for every tile: its first channel, its channels, its taps, and where its sums are.
    fn tiles(&self, channels: usize, depth: usize, mut f: impl FnMut(usize, usize, Range<usize>, usize)) {
        let mut place = 0;
        for top in (0..channels).step_by(TILE) {
            let rows = TILE.min(channels - top);
            let most = Correlation::shifts(rows);
            // Tiles of about the same size.
            let each = depth.div_ceil(depth.div_ceil(most));
            for first in (0..depth).step_by(each) {
                let shifts = first..(first + each).min(depth);
                let size = rows * shifts.len() * Tile::here().lanes;
                f(top, rows, shifts, place);
                place += size;
            }
        }
    }

    /// What a block of the narrow side's channels will be laid out from.
    fn next_lines(&self, block: usize, first: usize, channels: usize) -> Ahead {
        let (image, images, row) = self.frame.block(block);
        let side = self.g.narrow;
        let start = (image * side.channels + first) * side.plane() + row * side.width;
        if self.frame.band < side.height {
            let rows = self.frame.band.min(side.height - row);
            return Ahead::new(start, side.plane(), rows * side.width, channels);
        }
        Ahead::new(start, side.channels * side.plane(), channels * side.plane(), images)
    }

    /// Lays a block of the narrow side's channels out as runs, with zeros between rows.
    fn lines(&self, block: usize, first: usize, channels: usize, narrow: Samples<'_>, lines: &mut [f32]) {
        let (image, images, row) = self.frame.block(block);
        let ([pitch, height], side) = (self.frame.steps(), self.g.narrow);
        let rows = self.frame.band.min(side.height - row);
        let whole = self.frame.band * pitch;
        for (c, line) in lines.chunks_exact_mut(self.run).take(channels).enumerate() {
            for m in 0..self.frame.stack {
                let line = &mut line[m * height..];
                if m < images {
                    let from = &narrow.from(image + m)[(first + c) * side.plane() + row * side.width..];
                    let counts =
                        if pitch == side.width { [1, 1, rows * pitch] } else { [1, rows, side.width] };
                    let layout = Layout { counts, from: [0, side.width, 1], to: [0, pitch] };
                    lay(layout, from, 0.0, line);
                }
                // What an earlier block has left where this one has nothing.
                let left = if m < images { rows * pitch } else { 0 };
                let end = whole.min(line.len());
                line[left.min(end)..end].fill(0.0);
            }
        }
    }
}

//! Convolutions without packing: the side that is read is copied once into planes with zeros around them, and then
//! every tap of every channel is the same stretch of numbers at another distance (`simd::shifted`).
//!
//! That is for convolutions in which a number is met too few times to be worth a place in a panel: first and last
//! layers, groups, and depthwise convolutions, whose products have few rows or little depth. There is a plane for every
//! remainder of the stride; the pixels of one phase of the result are computed row after row as one run, and the
//! columns between rows are thrown away; small images are laid one below the other.

use super::window::{Tap, Taps};
use super::{Geometry, Image, Task};
use crate::kernels::pool::Pool;
use crate::kernels::room;
use crate::kernels::shares::{Boxes, Each, OneBox};
use crate::kernels::simd::{Layout, Shifts, Tile, fetch, lay, lay_pairs, lay_parted, shifted};

/// The most planes of a channel along one axis.
const PLANES: usize = 4;

/// Numbers of all planes of a block, at most: they stay in a second-level cache, beside the filters.
const BLOCK: usize = 64 << 10;

/// Numbers of a group's filters, at most, where panels would do as well.
const FILTERS: usize = 160 << 10;

/// How many times the pixels that are wanted may be computed, where panels would do as well.
const WASTE: f64 = 1.15;

/// Pixels of a small image: as many are laid one below the other as make this many.
const SMALL: usize = 1 << 10;

/// How the read side lies in planes along one axis: pixel i of the plane of a remainder is pixel
/// i · step + remainder − before of the image.
#[derive(Clone, Copy, Debug)]
struct Axis {
    step: usize,
    before: isize,
    /// The remainders that have a plane.
    remainders: [usize; PLANES],
    planes: usize,
    /// How many pixels further than the first a tap may be.
    reach: usize,
    /// Zeros after the image that may be those before the next row, or image.
    shared: usize,
    /// Pixels of the image, and of one phase of the result.
    image: usize,
    grid: usize,
}

impl Axis {
    /// The axis that windows slide along with their stride.
    fn narrow(g: &Geometry, axis: usize) -> Option<Axis> {
        let (step, image, grid) = (g.stride[axis], side(g.wide)[axis], side(g.narrow)[axis]);
        let (mut remainders, mut planes) = ([0; PLANES], 0);
        for remainder in 0..step {
            if (0..g.window[axis]).any(|k| k * g.dilation[axis] % step == remainder) {
                *remainders.get_mut(planes)? = remainder;
                planes += 1;
            }
        }
        let reach = (g.window[axis] - 1) * g.dilation[axis] / step;
        let before = g.before[axis] as isize;
        let shared = if step == 1 { shared(before, image, grid + reach) } else { 0 };
        Some(Axis { step, before, remainders, planes, reach, shared, image, grid })
    }

    /// The axis along which every phase of the wide side sees its taps of the narrow one.
    fn wide(g: &Geometry, axis: usize) -> Option<Axis> {
        let step = g.stride[axis] as isize;
        let offsets = || {
            let all = (0..g.stride[axis]).flat_map(|p| (0..g.window[axis]).map(move |k| (p, k)));
            all.map(|(p, k)| (p + g.before[axis]) as isize - (k * g.dilation[axis]) as isize)
                .filter(|offset| offset % step == 0)
                .map(|offset| offset / step)
        };
        let (least, most) = (offsets().min()?, offsets().max()?);
        let grid = side(g.wide)[axis].div_ceil(g.stride[axis]);
        let (image, reach) = (side(g.narrow)[axis], (most - least) as usize);
        let shared = shared(-least, image, grid + reach);
        Some(Axis { step: 1, before: -least, remainders: [0; PLANES], planes: 1, reach, shared, image, grid })
    }

    /// The plane in which a tap finds its pixels, and how far from the first.
    fn find(&self, offset: isize) -> (usize, usize) {
        let place = (offset + self.before) as usize;
        let plane = self.remainders[..self.planes].iter().position(|r| *r == place % self.step);
        (plane.expect("every tap has a plane"), place / self.step)
    }

    /// The pixels of a plane of `length`, from pixel `first` of the grid on, that are in the image, and where there the
    /// first of them is.
    fn inside(&self, first: usize, length: usize, plane: usize) -> (std::ops::Range<usize>, usize) {
        let origin = (first * self.step + self.remainders[plane]) as isize - self.before;
        let low = ((-origin).max(0) as usize).div_ceil(self.step).min(length);
        let high = ((self.image as isize - origin).max(0) as usize).div_ceil(self.step).clamp(low, length);
        (low..high, (origin + (low * self.step) as isize).max(0) as usize)
    }
}

/// The zeros on either side of an image of which there are as many on the other, where windows see `all` pixels.
fn shared(before: isize, image: usize, all: usize) -> usize {
    let after = all as isize - before - image as isize;
    before.min(after).max(0) as usize
}

/// The size of pieces, of which none is larger than `most` and all are about as large.
fn evenly(all: usize, most: usize) -> usize {
    all.div_ceil(all.div_ceil(most).max(1))
}

fn side(image: Image) -> [usize; 2] {
    [image.height, image.width]
}

/// How the read side of one group lies in planes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    axes: [Axis; 2],
    read: Image,
    /// Channels of a group on the side that is read.
    channels: usize,
    /// Rows of the grid in a block, and images.
    pub band: usize,
    pub stack: usize,
    /// The distance of rows in a plane, and that of images in rows.
    pub pitch: usize,
    apart: usize,
    /// Numbers of a plane.
    plane: usize,
}

impl Frame {
    /// The frame of a task; the weights' gradient reads the wide side like the narrow task.
    pub fn new(g: &Geometry, task: Task) -> Option<Frame> {
        let (wide, narrow) = g.group();
        let (axes, read, channels) = match task {
            Task::Wide => ([Axis::wide(g, 0)?, Axis::wide(g, 1)?], g.narrow, narrow),
            _ => ([Axis::narrow(g, 0)?, Axis::narrow(g, 1)?], g.wide, wide),
        };
        // What is right of a row are the zeros left of the next, and what is below an image those above the next.
        let (height, pitch) = (axes[0].grid, axes[1].grid + axes[1].reach - axes[1].shared);
        let planes = channels * axes[0].planes * axes[1].planes;
        let rows = BLOCK / (planes * pitch);
        let whole = height + axes[0].reach - axes[0].shared;
        let (band, stack) = if rows >= whole {
            let stack = SMALL.div_ceil(whole * pitch).min(rows / whole).max(1);
            (height, evenly(read.batch, stack))
        } else {
            (evenly(height, rows.checked_sub(axes[0].reach).filter(|band| *band >= 2)?), 1)
        };
        let apart = if band < height { band + axes[0].reach } else { whole };
        Some(Frame { axes, read, channels, band, stack, pitch, apart, plane: stack * apart * pitch })
    }

    /// Rows of an image, or of a band of it, in a plane.
    pub fn height(&self) -> usize {
        self.apart
    }

    /// The pixels of one phase of the result in a block, as one run.
    pub fn run(&self) -> usize {
        ((self.stack - 1) * self.height() + self.band - 1) * self.pitch + self.axes[1].grid
    }

    /// How many times the pixels that are wanted are computed.
    pub fn waste(&self) -> f64 {
        let [down, across] = self.axes;
        let wanted = self.read.batch * down.grid * across.grid;
        (self.blocks() * self.run().next_multiple_of(16)) as f64 / wanted as f64
    }

    /// Numbers of all planes, with the zeros after the last and room for a vector at the end.
    pub fn len(&self) -> usize {
        let shared = self.axes[0].shared * self.pitch + self.axes[1].shared;
        self.channels * self.axes[0].planes * self.axes[1].planes * self.plane + shared + 16
    }

    /// The blocks of the grid: images, by as many as are stacked, and bands of rows.
    pub fn blocks(&self) -> usize {
        self.read.batch.div_ceil(self.stack) * self.axes[0].grid.div_ceil(self.band)
    }

    /// The first image of a block, how many there are, and the first row.
    pub fn block(&self, at: usize) -> (usize, usize, usize) {
        let bands = self.axes[0].grid.div_ceil(self.band);
        let image = at / bands * self.stack;
        (image, self.stack.min(self.read.batch - image), at % bands * self.band)
    }

    /// How far from a run's first number a tap of a channel is.
    pub fn distance(&self, channel: usize, tap: Tap) -> u32 {
        let ((a, down), (b, across)) = (self.axes[0].find(tap.row), self.axes[1].find(tap.column));
        let plane = (channel * self.axes[0].planes + a) * self.axes[1].planes + b;
        (plane * self.plane + down * self.pitch + across) as u32
    }

    /// What a block of a group's channels will be laid out from.
    pub fn ahead(&self, block: usize, first_channel: usize) -> Ahead {
        let (image, images, row) = self.block(block);
        let (size, whole) = (self.read.plane(), self.read.channels * self.read.plane());
        let start = image * whole + first_channel * size;
        if self.band == self.axes[0].grid {
            let length = self.channels * size;
            return Ahead { start, apart: whole, length, left: images, done: 0 };
        }
        let (rows, top) = self.axes[0].inside(row, self.height(), 0);
        let length = (rows.len() * self.axes[0].step).min(self.read.height - top) * self.read.width;
        Ahead { start: start + top * self.read.width, apart: size, length, left: self.channels, done: 0 }
    }

    /// Lays a block of a group's channels out, in planes that were zero before the first block.
    pub fn fill(&self, block: usize, first_channel: usize, from: &[f32], planes: &mut [f32]) {
        let (image, images, row) = self.block(block);
        let [down, across] = self.axes;
        let (height, width) = (self.height(), self.read.width);
        let banded = self.band < down.grid;
        for plane in 0..self.channels * down.planes {
            let (c, a) = (plane / down.planes, plane % down.planes);
            let (rows, top) = down.inside(row, height, a);
            let first = plane * across.planes * self.plane;
            let planes = &mut planes[first..first + across.planes * self.plane];
            if banded {
                for plane in planes.chunks_exact_mut(self.plane) {
                    plane[..rows.start * self.pitch].fill(0.0);
                    plane[rows.end * self.pitch..].fill(0.0);
                }
            }
            if rows.is_empty() {
                continue;
            }
            let channel = image * self.read.channels + first_channel + c;
            let from = &from[channel * self.read.plane() + top * width..];
            let layout = Layout {
                counts: [images, rows.len(), 0],
                from: [self.read.channels * self.read.plane(), down.step * width, across.step],
                to: [height * self.pitch, self.pitch],
            };
            self.lay_columns(layout, from, rows.start, planes);
        }
    }

    /// Lays the columns of some rows out, in the planes of all remainders, from row `first` of theirs on.
    fn lay_columns(&self, mut layout: Layout, from: &[f32], first: usize, planes: &mut [f32]) {
        let across = self.axes[1];
        let place = |plane: usize| {
            let (columns, left) = across.inside(0, self.pitch, plane);
            (plane * self.plane + first * self.pitch + columns.start, columns.len(), left)
        };
        if across.step == 2 && across.planes == 2 {
            let (mut even, mut odd) = (place(0), place(1));
            if even.2 > odd.2 {
                (even, odd) = (odd, even);
            }
            // Pixels in turn: they are read once for both planes.
            if odd.2 == even.2 + 1 && (even.1 == odd.1 || even.1 == odd.1 + 1) && odd.1 > 0 {
                layout.counts[2] = even.1 + odd.1;
                let (low, high) = planes.split_at_mut(self.plane);
                let (to_even, to_odd) = if even.0 < self.plane {
                    (&mut low[even.0..], &mut high[odd.0 - self.plane..])
                } else {
                    (&mut high[even.0 - self.plane..], &mut low[odd.0..])
                };
                return lay_parted(layout, &from[even.2..], [to_even, to_odd]);
            }
        }
        for plane in 0..across.planes {
            let (to, count, left) = place(plane);
            if count > 0 {
                layout.counts[2] = count;
                lay(layout, &from[left..], 0.0, &mut planes[to..]);
            }
        }
    }
}

/// Numbers that memory is asked for while others are computed.
pub(super) struct Ahead {
    /// Stretches of numbers: the first, the distance of the next, their length, and how many.
    start: usize,
    apart: usize,
    length: usize,
    left: usize,
    /// How much of the first has been asked for.
    done: usize,
}

impl Ahead {
    /// Nothing comes.
    pub fn nothing() -> Ahead {
        Ahead { start: 0, apart: 0, length: 0, left: 0, done: 0 }
    }

    /// So many stretches of numbers that begin `apart`.
    pub fn new(start: usize, apart: usize, length: usize, count: usize) -> Ahead {
        Ahead { start, apart, length, left: if length > 0 { count } else { 0 }, done: 0 }
    }

    /// How many numbers to ask for with each of so many pieces of work.
    pub fn each(&self, pieces: usize) -> usize {
        (self.length * self.left).div_ceil(pieces.max(1)).next_multiple_of(16)
    }

    /// Asks for about so many numbers.
    pub fn take(&mut self, mut count: usize, ask: impl Fn(std::ops::Range<usize>)) {
        while count > 0 && self.left > 0 {
            let some = count.min(self.length - self.done);
            let at = self.start + self.done;
            ask(at..at + some);
            (count, self.done) = (count - some, self.done + some);
            if self.done == self.length {
                (self.start, self.left, self.done) = (self.start + self.apart, self.left - 1, 0);
            }
        }
    }
}

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
    pub fn new(g: &'g Geometry, task: Task) -> Option<Direct<'g>> {
        let (wide, narrow) = g.group();
        let (rows, channels, written, phases) = match task {
            Task::Narrow => (narrow, wide, g.narrow, [1, 1]),
            Task::Wide => (wide, narrow, g.wide, g.stride),
            Task::Weight => return None,
        };
        let frame = Frame::new(g, task)?;
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

    /// Scratch numbers of one thread: planes, runs of a tile for every phase of a row, filters, distances.
    pub fn scratch(&self) -> usize {
        let runs = self.phases[1] * self.tile * self.run;
        room(self.frame.len()) + room(runs) + room(self.rows * self.depth) + room(self.depth)
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
        distances: &[u32],
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
            shifted(shifts, (rows, vectors), filters, &planes[at..], (&mut runs[at..], self.run));
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
        let (to, each, pitch) = (&mut block[phase * width..], self.tile * self.run, self.frame.pitch);
        match across {
            1 => {
                let counts = [1, rows, width];
                lay(Layout { counts, from: [0, pitch, 1], to: [0, down * width] }, runs, begin, to);
            }
            2 => lay_pairs(([runs, &runs[each..]], pitch), (rows, width), begin, (to, down * width)),
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
        let shares = (Each::new(scratch, self.scratch()), self.boxes(to));
        pool.each(shares, |_, (scratch, mut boxes)| {
            let (planes, rest) = scratch.split_at_mut(room(self.frame.len()));
            let (runs, rest) = rest.split_at_mut(room(self.phases[1] * self.tile * self.run));
            let (filters, distances) = rest.split_at_mut(room(self.rows * self.depth));
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
                self.frame.fill(block, group * self.frame.channels, from, planes);
                let ahead = if unit + 1 < units.end {
                    let (group, block) = self.unit(unit + 1);
                    self.frame.ahead(block, group * self.frame.channels)
                } else {
                    Ahead::nothing()
                };
                self.block(
                    group,
                    bias,
                    planes,
                    filters,
                    distances,
                    runs,
                    (from, ahead),
                    (block, boxes.get(unit)),
                );
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

    /// Computes all tiles of a block.
    #[allow(clippy::too_many_arguments)]
    fn block(
        &self,
        group: usize,
        bias: Option<&[f32]>,
        planes: &[f32],
        filters: &[f32],
        distances: &[u32],
        runs: &mut [f32],
        (from, mut ahead): (&[f32], Ahead),
        (block, mut to): (usize, OneBox<'_, f32>),
    ) {
        // How much to ask for after each piece of a run.
        let pieces = self.run.div_ceil(Shifts::vectors(self.tile) * Tile::here().lanes);
        let pieces = pieces * self.rows.div_ceil(self.tile) * self.phases[0] * self.phases[1];
        let (image, images, first) = self.frame.block(block);
        let each = ahead.each(pieces);
        let height = self.frame.height() * self.frame.pitch;
        for top in (0..self.rows).step_by(self.tile) {
            let rows = self.tile.min(self.rows - top);
            let mut done = 0;
            for phase in 0..self.phases[0] {
                for (across, runs) in
                    runs.chunks_exact_mut(self.tile * self.run).enumerate().take(self.phases[1])
                {
                    let depth = self.frame.channels * self.taps([phase, across]).len();
                    let filters = &filters[top * self.depth + done * rows..];
                    self.compute(planes, rows, filters, &distances[done..done + depth], runs, || {
                        ahead.take(each, |numbers| fetch(&from[numbers]));
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

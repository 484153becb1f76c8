//! Planes with zeros around them, into which convolutions without packing copy the side that they read (`direct.rs`,
//! `slope.rs`).
//!
//! There is a plane for every remainder of the stride. What is right of a row are the zeros left of the next, and what is
//! below an image those above the next; small images are laid one below the other.

use super::window::Tap;
use super::{Geometry, Image, Task};
use crate::samples::Samples;
use crate::simd::{Layout, Pairs, Tile, lay, lay_parted};

/// The most planes of a channel along one axis.
const PLANES: usize = 4;

/// Numbers of all planes of a block, at most: they stay in a second-level cache, beside the filters.
const BLOCK: usize = 64 << 10;

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

pub(super) fn side(image: Image) -> [usize; 2] {
    [image.height, image.width]
}

/// How the read side of one group lies in planes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    axes: [Axis; 2],
    read: Image,
    /// Channels of a group on the side that is read.
    pub channels: usize,
    /// Rows of the grid in a block, and images.
    pub band: usize,
    pub stack: usize,
    /// How many images there would be in a block if there were many.
    most: usize,
    /// The distance of rows in a plane, and that of images in rows.
    pub pitch: usize,
    apart: usize,
    /// Numbers of a plane.
    plane: usize,
}

impl Frame {
    /// The frame of a task, for all channels of a group; the weights' gradient reads the wide side like the narrow task.
    pub fn new(g: &Geometry, task: Task) -> Option<Frame> {
        let (wide, narrow) = g.group();
        Frame::of_channels(g, task, if task == Task::Wide { narrow } else { wide })
    }

    /// The same for so many channels at a time.
    pub fn of_channels(g: &Geometry, task: Task, channels: usize) -> Option<Frame> {
        let (axes, read) = match task {
            Task::Wide => ([Axis::wide(g, 0)?, Axis::wide(g, 1)?], g.narrow),
            _ => ([Axis::narrow(g, 0)?, Axis::narrow(g, 1)?], g.wide),
        };
        // What is right of a row are the zeros left of the next, and what is below an image those above the next.
        let (height, pitch) = (axes[0].grid, axes[1].grid + axes[1].reach - axes[1].shared);
        let planes = channels * axes[0].planes * axes[1].planes;
        let rows = BLOCK / (planes * pitch);
        let whole = height + axes[0].reach - axes[0].shared;
        let (band, most) = if rows >= whole {
            (height, SMALL.div_ceil(whole * pitch).min(rows / whole).max(1))
        } else {
            (evenly(height, rows.checked_sub(axes[0].reach).filter(|band| *band >= 2)?), 1)
        };
        let apart = if band < height { band + axes[0].reach } else { whole };
        let frame = Frame { axes, read, channels, band, stack: most, most, pitch, apart, plane: 0 };
        Some(frame.of(evenly(read.batch, most)))
    }

    /// The same with so many images in a block.
    fn of(self, stack: usize) -> Frame {
        Frame { stack, plane: stack * self.apart * self.pitch, ..self }
    }

    /// The same with fewer images in a block, where the thread that has most to do would have less by a tenth.
    pub fn dealt(self, groups: usize, threads: usize) -> Frame {
        let most = |frame: &Frame| (frame.blocks() * groups).div_ceil(threads) * frame.stack;
        let fewer = (1..self.stack).rev().map(|stack| self.of(stack)).min_by_key(most);
        fewer.filter(|fewer| threads > 1 && 10 * most(fewer) <= 9 * most(&self)).unwrap_or(self)
    }

    /// The same as it is for large batches: what depends on it does not depend on the batch.
    pub fn full(&self) -> Frame {
        self.of(self.most)
    }

    /// The same with no more than so many channels of those that there is room for.
    pub fn with(self, channels: usize) -> Frame {
        Frame { channels: channels.min(self.channels), ..self }
    }

    /// Rows of an image, or of a band of it, in a plane.
    pub fn height(&self) -> usize {
        self.apart
    }

    /// The planes of a channel.
    pub fn planes(&self) -> usize {
        self.axes[0].planes * self.axes[1].planes
    }

    /// Whether a block has whole images.
    pub fn is_whole(&self) -> bool {
        self.band == self.axes[0].grid
    }

    /// Whether a row of the grid is half a vector, so that two rows make one.
    pub fn paired(&self) -> bool {
        let [down, across] = self.axes;
        across.grid == Tile::here().lanes / 2 && self.band == down.grid && self.band.is_multiple_of(2)
    }

    /// Works out where the first rows of pairs are, and returns those of all vectors of a run.
    pub fn pair<'p>(&self, places: &'p mut [u32]) -> Pairs<'p> {
        let count = if self.paired() { self.stack * self.band / 2 } else { 0 };
        for (at, place) in places[..count].iter_mut().enumerate() {
            let (image, row) = (2 * at / self.band, 2 * at % self.band);
            *place = ((image * self.apart + row) * self.pitch) as u32;
        }
        Pairs::new(&places[..count], self.pitch)
    }

    /// The distances of rows and of images in a run.
    pub fn steps(&self) -> [usize; 2] {
        match (self.paired(), self.axes[1].grid) {
            (true, grid) => [grid, self.band * grid],
            _ => [self.pitch, self.apart * self.pitch],
        }
    }

    /// The pixels of one phase of the result in a block, as one run.
    pub fn run(&self) -> usize {
        if self.paired() {
            return self.stack * self.band * self.axes[1].grid;
        }
        ((self.stack - 1) * self.height() + self.band - 1) * self.pitch + self.axes[1].grid
    }

    /// How many times the pixels that are wanted are computed, in large batches: what follows from it, and with it the
    /// order in which numbers are summed, is the same for a batch and for its parts.
    pub fn waste(&self) -> f64 {
        let [down, across] = self.axes;
        let (bands, wanted) = (down.grid.div_ceil(self.band), self.most * down.grid * across.grid);
        (bands * self.full().run().next_multiple_of(16)) as f64 / wanted as f64
    }

    /// Numbers of all planes, with the zeros after the last and room for a vector at the end.
    pub fn len(&self) -> usize {
        let shared = self.axes[0].shared * self.pitch + self.axes[1].shared;
        self.channels * self.planes() * self.plane + shared + 16
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
        let (size, whole) = (self.read.plane(), self.read.size());
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
    pub fn fill(&self, block: usize, first_channel: usize, from: Samples<'_>, planes: &mut [f32]) {
        let (image, images, row) = self.block(block);
        let [down, across] = self.axes;
        let (height, width) = (self.height(), self.read.width);
        let banded = self.band < down.grid;
        let rows: [_; PLANES] = std::array::from_fn(|a| down.inside(row, height, a.min(down.planes - 1)));
        let columns = self.columns();
        for plane in 0..self.channels * down.planes {
            let (c, a) =
                if down.planes == 1 { (plane, 0) } else { (plane / down.planes, plane % down.planes) };
            let (rows, top) = rows[a].clone();
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
            let start = (first_channel + c) * self.read.plane() + top * width;
            let mut done = 0;
            while done < images {
                let some = from.beside(image + done, images - done);
                let layout = Layout {
                    counts: [some, rows.len(), 0],
                    from: [self.read.size(), down.step * width, across.step],
                    to: [height * self.pitch, self.pitch],
                };
                let from = &from.from(image + done)[start..];
                self.lay_columns(columns, layout, from, done * height + rows.start, planes);
                done += some;
            }
        }
    }

    /// Where the columns of a plane's rows come from and go to.
    fn columns(&self) -> [Columns; PLANES] {
        let across = self.axes[1];
        std::array::from_fn(|plane| {
            let (columns, left) = across.inside(0, self.pitch, plane.min(across.planes - 1));
            Columns { to: plane * self.plane + columns.start, count: columns.len(), from: left }
        })
    }

    /// Lays the columns of some rows out, in the planes of all remainders, from row `first` of theirs on.
    fn lay_columns(
        &self,
        columns: [Columns; PLANES],
        mut layout: Layout,
        from: &[f32],
        first: usize,
        planes: &mut [f32],
    ) {
        let (across, first) = (self.axes[1], first * self.pitch);
        let [mut even, mut odd, ..] = columns;
        if even.from > odd.from {
            (even, odd) = (odd, even);
        }
        let beside = odd.from == even.from + 1 && (even.count == odd.count || even.count == odd.count + 1);
        if across.step == 2 && across.planes == 2 && beside && odd.count > 0 {
            // Pixels in turn: they are read once for both planes.
            layout.counts[2] = even.count + odd.count;
            let (low, high) = planes.split_at_mut(self.plane);
            let pair = if even.to < self.plane {
                [&mut low[first + even.to..], &mut high[first + odd.to - self.plane..]]
            } else {
                [&mut high[first + even.to - self.plane..], &mut low[first + odd.to..]]
            };
            return lay_parted(layout, &from[even.from..], pair);
        }
        for columns in columns.iter().take(across.planes).filter(|columns| columns.count > 0) {
            layout.counts[2] = columns.count;
            lay(layout, &from[columns.from..], 0.0, &mut planes[first + columns.to..]);
        }
    }
}

/// Columns of a row: the first that is read, where it is written, and how many there are.
#[derive(Clone, Copy)]
struct Columns {
    from: usize,
    to: usize,
    count: usize,
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

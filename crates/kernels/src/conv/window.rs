//! Images as operands and results of matrix products: what a convolution's panels are packed from.
//!
//! A column of the product is one pixel (batch, row, column) of a grid, and a depth is one tap of one channel. For one
//! tap, neighbouring columns come from neighbouring pixels, so a panel is filled in runs; the runs of a tap are the
//! same for all channels and are worked out once.

use std::ops::Range;

use super::{Geometry, Image, tap};
use crate::gemm::{Pack, Take};
use crate::pool::Pool;
use crate::samples::Samples;
use crate::shares::{Block, Lattice};
use crate::simd::{Layout, Runs, Tile, lay, transpose, wide};

/// One tap of a window.
#[derive(Clone, Copy)]
pub struct Tap {
    /// Its position in the filter.
    pub weight: usize,
    /// Its row from that of the window.
    pub row: isize,
    /// Its column from that of the window.
    pub column: isize,
}

/// The taps of a window, without an allocation.
pub struct Taps<'a> {
    geometry: &'a Geometry,
    /// The first tap of every axis and the distance to the next that counts.
    first: [usize; 2],
    every: [usize; 2],
    count: [usize; 2],
    /// For a phase of the wide side: its remainder.
    phase: Option<[usize; 2]>,
}

impl<'a> Taps<'a> {
    /// All taps, from the narrow side's point of view.
    pub fn all(geometry: &'a Geometry) -> Taps<'a> {
        Taps { geometry, first: [0; 2], every: [1; 2], count: geometry.window, phase: None }
    }

    /// The taps that meet pixels of the wide side with these remainders by the stride.
    pub fn phase(geometry: &'a Geometry, phase: [usize; 2]) -> Taps<'a> {
        let (mut first, mut every, mut count) = ([0; 2], [1; 2], [0; 2]);
        for axis in 0..2 {
            let meets = |k: usize| {
                let place = (phase[axis] + geometry.before[axis]) as isize;
                (place - (k * geometry.dilation[axis]) as isize).rem_euclid(geometry.stride[axis] as isize)
                    == 0
            };
            let mut taps = (0..geometry.window[axis]).filter(|k| meets(*k));
            if let Some(one) = taps.next() {
                first[axis] = one;
                every[axis] = taps.next().map_or(1, |two| two - one);
                count[axis] = (0..geometry.window[axis]).filter(|k| meets(*k)).count();
            }
        }
        Taps { geometry, first, every, count, phase: Some(phase) }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count[0] * self.count[1]
    }

    /// Tap number `at`.
    pub fn get(&self, at: usize) -> Tap {
        let g = self.geometry;
        let at = [at / self.count[1], at % self.count[1]];
        let k = [0, 1].map(|axis| self.first[axis] + at[axis] * self.every[axis]);
        let offset = [0, 1].map(|axis| {
            let reach = (k[axis] * g.dilation[axis]) as isize;
            let before = g.before[axis] as isize;
            match self.phase {
                None => reach - before,
                Some(phase) => (phase[axis] as isize + before - reach) / g.stride[axis] as isize,
            }
        });
        tap(k[0] * g.window[1] + k[1], offset[0], offset[1])
    }
}

/// An image as windows see it: column (n, i, j) and depth (channel, tap) is the pixel at i · stride + tap.
pub struct Window<'a> {
    pub numbers: Samples<'a>,
    pub image: Image,
    /// The first channel of the group.
    pub first: usize,
    /// Rows and columns of windows.
    pub grid: [usize; 2],
    pub stride: [usize; 2],
    pub taps: &'a Taps<'a>,
}

impl Window<'_> {
    /// Works out where the columns of a tap come from, counted from the first channel of the first column's image.
    fn runs(&self, tap: Tap, columns: Range<usize>, runs: &mut Runs) {
        runs.clear();
        let pixels = self.grid[0] * self.grid[1];
        let (first, whole) = (columns.start / pixels, self.image.size());
        for (image, pixel, count, lane) in images(pixels, columns) {
            self.runs_of_image(tap, lane, pixel..pixel + count, (image - first) * whole, runs);
        }
    }

    fn runs_of_image(&self, tap: Tap, mut lane: usize, pixels: Range<usize>, base: usize, runs: &mut Runs) {
        let across = self.grid[1];
        let (height, width) = (self.image.height as isize, self.image.width as isize);
        let step = self.stride[1] as isize;
        // Columns j with 0 <= j · step + tap.column < width.
        let low = if tap.column < 0 { (-tap.column + step - 1) / step } else { 0 };
        let high = if width > tap.column { (width - 1 - tap.column) / step + 1 } else { 0 };
        let (mut i, mut j) = (pixels.start / across, pixels.start % across);
        let mut left = pixels.len();
        while left > 0 {
            let some = (across - j).min(left);
            let row = (i * self.stride[0]) as isize + tap.row;
            let (from, to) = (low.max(j as isize), high.min((j + some) as isize));
            if (0..height).contains(&row) && from < to {
                let source = row * width + from * step + tap.column;
                runs.push(lane + (from as usize - j), (to - from) as usize, base + source as usize);
            }
            lane += some;
            left -= some;
            (i, j) = (i + 1, 0);
        }
    }

    /// Whether windows are the pixels, one by one.
    fn is_plain(&self) -> bool {
        let one = |tap: Tap| tap.row == 0 && tap.column == 0;
        let all = self.grid == [self.image.height, self.image.width] && self.stride == [1, 1];
        all && self.taps.len() == 1 && one(self.taps.get(0))
    }

    /// Where these columns of a channel begin, if they lie side by side.
    fn stretch(&self, channel: usize, columns: Range<usize>) -> Option<&[f32]> {
        let plane = self.image.plane();
        let (image, pixel) = (columns.start / plane, columns.start % plane);
        let beside = self.is_plain() && pixel + columns.len() <= plane;
        beside.then(|| &self.from(image, channel)[pixel..])
    }

    /// The numbers from this channel of this image on.
    fn from(&self, image: usize, channel: usize) -> &[f32] {
        &self.numbers.from(image)[(self.first + channel) * self.image.plane()..]
    }
}

/// Splits columns by images of `pixels` columns each: (image, first pixel, number, first lane).
fn images(pixels: usize, columns: Range<usize>) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    let mut at = columns.start;
    std::iter::from_fn(move || {
        (at < columns.end).then(|| {
            let (image, pixel) = (at / pixels, at % pixels);
            let some = (pixels - pixel).min(columns.end - at);
            at += some;
            (image, pixel, some, at - some - columns.start)
        })
    })
}

impl Pack for Window<'_> {
    fn pack(&self, depth: Range<usize>, lines: Range<usize>, stride: usize, out: &mut [f32]) {
        let (taps, plane) = (self.taps.len(), self.image.plane());
        let channels = depth.start / taps..depth.end / taps;
        let vectors = lines.len().div_ceil(Tile::here().lanes);
        let image = lines.start / (self.grid[0] * self.grid[1]);
        let mut runs = Runs::new(self.stride[1]);
        for t in 0..taps {
            self.runs(self.taps.get(t), lines.clone(), &mut runs);
            let from = (self.from(image, channels.start), plane, channels.len());
            runs.gather(vectors, from, (&mut out[t * stride..], taps * stride));
        }
    }

    fn together(&self) -> usize {
        if self.is_plain() { usize::MAX } else { 1 }
    }

    fn pack_all(&self, depth: Range<usize>, lines: Range<usize>, wide: usize, out: &mut [f32]) {
        let (deep, panels, plane) = (depth.len(), lines.len() / wide, self.image.plane());
        match self.stretch(depth.start, lines.clone()) {
            Some(from) => {
                let counts = [deep, panels, wide];
                lay(Layout { counts, from: [plane, wide, 1], to: [wide, deep * wide] }, from, 0.0, out);
            }
            None => {
                for (at, first) in lines.step_by(wide).enumerate() {
                    self.pack(depth.clone(), first..first + wide, wide, &mut out[at * deep * wide..]);
                }
            }
        }
    }

    fn ahead(&self, depth: usize, lines: Range<usize>) -> &[f32] {
        let len = lines.len();
        self.stretch(depth, lines).map_or(&[], |numbers| &numbers[..len])
    }
}

/// The same the other way round: depth is the pixel (n, i, j), and a column is one tap of one channel.
pub struct Windows<'a>(pub Window<'a>);

impl Pack for Windows<'_> {
    fn pack(&self, depth: Range<usize>, lines: Range<usize>, stride: usize, out: &mut [f32]) {
        let Windows(window) = self;
        if window.is_plain() {
            let pixels = Pixels { numbers: window.numbers, image: window.image, first: window.first };
            return pixels.pack(depth, lines, stride, out);
        }
        let (taps, plane, tile) = (window.taps.len(), window.image.plane(), Tile::here());
        let wide = tile.columns();
        let mut square = [0f32; 32 * 32];
        let mut runs = Runs::new(window.stride[1]);
        let mut at = depth.start;
        while at < depth.end {
            let pixels = window.grid[0] * window.grid[1];
            let image = at / pixels;
            // Not beyond the images that lie beside this one.
            let most = wide.div_ceil(pixels) + 1;
            let end = (image + window.numbers.beside(image, most)) * pixels;
            let some = wide.min(depth.end.min(end) - at);
            let vectors = some.div_ceil(tile.lanes);
            for t in 0..taps {
                // The lines of this tap stand every so many lines, channel by channel.
                let line = (t + taps - lines.start % taps) % taps;
                if line >= lines.len() {
                    continue;
                }
                let channels = (lines.len() - line).div_ceil(taps);
                window.runs(window.taps.get(t), at..at + some, &mut runs);
                let from = (window.from(image, (lines.start + line) / taps), plane, channels);
                runs.gather(vectors, from, (&mut square[line * wide..], taps * wide));
            }
            transpose(&square, wide, lines.len(), some, stride, &mut out[(at - depth.start) * stride..]);
            at += some;
        }
    }
}

/// A filter as the gradient by the input sees it: a line is a channel of the wide side, and depth is (channel of the
/// narrow side, tap). Either all taps are wanted, and lie side by side, or lines do.
pub struct Filter<'a> {
    pub numbers: &'a [f32],
    /// The distances of lines, of taps and of channels.
    pub line: usize,
    pub tap: usize,
    pub channel: usize,
    pub taps: &'a Taps<'a>,
}

impl Pack for Filter<'_> {
    fn pack(&self, depth: Range<usize>, lines: Range<usize>, stride: usize, out: &mut [f32]) {
        let taps = self.taps.len();
        let channels = depth.start / taps..depth.end / taps;
        let from = &self.numbers[channels.start * self.channel + lines.start * self.line..];
        if self.line == 1 {
            let layout = Layout {
                counts: [1, channels.len(), lines.len()],
                from: [0, self.channel, 1],
                to: [0, taps * stride],
            };
            for t in 0..taps {
                let weight = self.taps.get(t).weight;
                lay(layout, &from[weight * self.tap..], 0.0, &mut out[t * stride..]);
            }
            return;
        }
        for c in 0..channels.len() {
            let (from, out) = (&from[c * self.channel..], &mut out[c * taps * stride..]);
            transpose(from, self.line, lines.len(), taps, stride, out);
        }
    }

    fn together(&self) -> usize {
        if self.line == 1 { usize::MAX } else { 1 }
    }

    fn pack_all(&self, depth: Range<usize>, lines: Range<usize>, wide: usize, out: &mut [f32]) {
        let (deep, panels, taps) = (depth.len(), lines.len() / wide, self.taps.len());
        let channels = depth.start / taps..depth.end / taps;
        let from = &self.numbers[channels.start * self.channel + lines.start..];
        let layout = Layout {
            counts: [channels.len(), panels, wide],
            from: [self.channel, wide, 1],
            to: [taps * wide, deep * wide],
        };
        for t in 0..taps {
            lay(layout, &from[self.taps.get(t).weight * self.tap..], 0.0, &mut out[t * wide..]);
        }
    }
}

/// Exchanges taps and channels of the wide side in the filters of a group, which has so many of either: `to` is as long.
pub fn turn(pool: &mut Pool, w: &[f32], [wide, taps]: [usize; 2], to: &mut [f32]) {
    let each = wide * taps;
    pool.rows(to, each, |start, to| {
        for (from, to) in w[start * each..].chunks_exact(each).zip(to.chunks_exact_mut(each)) {
            transpose(from, taps, wide, taps, wide, to);
        }
    });
}

/// An image by channels: a line is a channel, and depth is the pixel (n, i, j).
pub struct Pixels<'a> {
    pub numbers: Samples<'a>,
    pub image: Image,
    /// The first channel of the group.
    pub first: usize,
}

impl Pack for Pixels<'_> {
    fn pack(&self, depth: Range<usize>, lines: Range<usize>, stride: usize, out: &mut [f32]) {
        let plane = self.image.plane();
        for (image, pixel, count, at) in images(plane, depth) {
            let from = &self.numbers.from(image)[(self.first + lines.start) * plane + pixel..];
            transpose(from, plane, lines.len(), count, stride, &mut out[at * stride..]);
        }
    }
}

/// Puts products into an image: a row is a channel, and a column is one pixel of a grid laid over the image.
pub struct Planes<'a> {
    /// The first channel of the group.
    pub first: usize,
    /// A number for every channel of the image.
    pub bias: Option<&'a [f32]>,
}

/// A grid laid over some channels of an image, as the rows and columns of a product: its rows and columns, their
/// distance in the image, and where it begins there.
pub fn lattice(
    image: Image,
    channels: Range<usize>,
    grid: [usize; 2],
    stride: [usize; 2],
    phase: [usize; 2],
) -> Lattice {
    Lattice {
        start: channels.start * image.plane() + phase[0] * image.width + phase[1],
        rows: channels.len(),
        row: image.plane(),
        images: image.batch,
        image: image.channels * image.plane(),
        grid,
        steps: [stride[0] * image.width, stride[1]],
    }
}

impl Take for Planes<'_> {
    fn take(
        &self,
        to: &mut Block<'_, f32>,
        rows: Range<usize>,
        mut columns: Range<usize>,
        (mut piece, stride): (&[f32], usize),
        first: bool,
    ) {
        while !columns.is_empty() {
            let count = put(self, to, rows.clone(), columns.clone(), piece, stride, first);
            columns.start += count;
            piece = &piece[count..];
        }
    }
}

wide! {
    /// Puts or adds as many columns of a piece as lie in a stretch, and returns how many those are.
    fn put(
        how: &Planes<'_>,
        to: &mut Block<'_, f32>,
        rows: Range<usize>,
        columns: Range<usize>,
        piece: &[f32],
        stride: usize,
        first: bool,
    ) -> usize {
        let mut to = to.stretch(columns);
        let (count, step) = (to.count, to.step);
        for (r, row) in rows.enumerate() {
            let (piece, out) = (&piece[r * stride..][..count], to.row(row));
            let begin = how.bias.map_or(0.0, |bias| bias[how.first + row]);
            match (first, step) {
                (true, 1) => out.iter_mut().zip(piece).for_each(|(out, p)| *out = p + begin),
                (false, 1) => out.iter_mut().zip(piece).for_each(|(out, p)| *out += p),
                (true, _) => out.iter_mut().step_by(step).zip(piece).for_each(|(out, p)| *out = p + begin),
                (false, _) => out.iter_mut().step_by(step).zip(piece).for_each(|(out, p)| *out += p),
            }
        }
        count
    }
}

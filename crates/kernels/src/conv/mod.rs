//! Convolutions of any stride, padding, dilation and number of groups, transposed or not.
//!
//! All are matrix products whose panels are packed straight from the image (`window.rs`), so no unfolded copy of it
//! exists. A strided convolution's gradient by its input (which is also a transposed convolution) is cut into phases
//! (`phases.rs`). Where products would be small (first layers, groups,
//! depthwise convolutions) there are other ways, without packing (`direct.rs`, `slope.rs`, `depthwise.rs`); and a window that
//! is the whole image makes a linear layer (`whole.rs`).

mod depthwise;
mod direct;
mod frame;
mod phases;
mod pointwise;
mod slope;
mod whole;
mod window;

use crate::KernelError;
use tiercel_workload::graph::{Conv, Op};

use super::args::{Args, Call};
use super::gemm::{Bias, Extent, Matrix, Rows, multiply, multiply_into};
use super::pool::Pool;
use super::samples::Samples;
use super::shares::Sheet;
use super::simd::wide;
use depthwise::Planes as Depthwise;
use direct::Direct;
use phases::Phases;
use pointwise::Pointwise;
use slope::Slope;
use whole::Whole;
use window::{Pixels, Planes, Tap, Taps, Window, Windows, lattice};

/// An image tensor: batch, channels, height, width.
#[derive(Clone, Copy, Debug)]
pub(super) struct Image {
    pub batch: usize,
    pub channels: usize,
    pub height: usize,
    pub width: usize,
}

impl Image {
    fn of(shape: tiercel_workload::graph::Shape) -> Image {
        let dim = |axis| shape.dim(axis) as usize;
        Image { batch: dim(0), channels: dim(1), height: dim(2), width: dim(3) }
    }

    /// The pixels of one channel.
    pub fn plane(&self) -> usize {
        self.height * self.width
    }

    /// The numbers of one sample.
    pub fn size(&self) -> usize {
        self.channels * self.plane()
    }
}

/// A convolution in terms of its wide side (the one that windows slide over) and its narrow side (one pixel for
/// every window). A plain convolution reads the wide side and writes the narrow one; a transposed one the reverse.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub wide: Image,
    pub narrow: Image,
    pub window: [usize; 2],
    pub stride: [usize; 2],
    pub dilation: [usize; 2],
    /// Zeros above and left of the wide side.
    pub before: [usize; 2],
    pub groups: usize,
}

/// What a call computes of its geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// The narrow side from the wide one.
    Narrow,
    /// The wide side from the narrow one.
    Wide,
    /// The weights' gradient from both.
    Weight,
}

fn geometry(call: &Call) -> (Task, Geometry) {
    let (inputs, outputs) = (&call.inputs, &call.outputs);
    let (conv, x, y, w, task): (&Conv, _, _, _, _) = match &call.op {
        Op::Conv(c) => (c, &inputs[..], &outputs[..], inputs[1], Task::Narrow),
        Op::ConvBackwardData(c) => (c, &outputs[..], &inputs[1..], inputs[0], Task::Wide),
        Op::ConvBackwardWeight(c) => (c, &inputs[..], &inputs[call.parts..], outputs[0], Task::Weight),
        other => unreachable!("{} is no convolution", other.name()),
    };
    let (x, y) = (Image::of(call.whole(x)), Image::of(call.whole(y)));
    let (wide, narrow) = if conv.transposed { (y, x) } else { (x, y) };
    let task = match (task, conv.transposed) {
        (Task::Narrow, true) => Task::Wide,
        (Task::Wide, true) => Task::Narrow,
        (task, _) => task,
    };
    let pair = |v: [u64; 2]| v.map(|n| n as usize);
    let geometry = Geometry {
        wide,
        narrow,
        window: [w.shape.dim(2) as usize, w.shape.dim(3) as usize],
        stride: pair(conv.stride),
        dilation: pair(conv.dilation),
        before: [conv.padding[0] as usize, conv.padding[1] as usize],
        groups: conv.groups as usize,
    };
    (task, geometry)
}

impl Geometry {
    fn taps(&self) -> usize {
        self.window[0] * self.window[1]
    }

    /// The channels of one group on the wide and on the narrow side.
    fn group(&self) -> (usize, usize) {
        (self.wide.channels / self.groups, self.narrow.channels / self.groups)
    }

    /// Whether every pixel is a window.
    fn is_pointwise(&self) -> bool {
        self.window == [1, 1]
            && self.stride == [1, 1]
            && self.before == [0, 0]
            && self.wide.plane() == self.narrow.plane()
    }

    /// A product whose depth is channels times taps, in blocks of whole channels. Of few whole planes more is copied at once:
    /// memory is read in longer stretches.
    fn blocked(&self, rows: usize, columns: usize, channels: usize, taps: usize) -> Extent {
        let extent = Extent::in_units(rows, columns, channels, taps);
        if self.is_pointwise() && channels <= Extent::SHALLOW { extent.shallow() } else { extent }
    }

    /// The side that a task reads, of those that compute one side from the other.
    fn read(&self, task: Task) -> Image {
        if task == Task::Wide { self.narrow } else { self.wide }
    }

    /// The product that the narrow side is, or the weights' gradient, for one group.
    fn extent(&self, task: Task) -> Extent {
        let (wide, narrow) = self.group();
        let pixels = self.narrow.batch * self.narrow.plane();
        match task {
            Task::Weight => Extent::new(narrow, wide * self.taps(), pixels),
            _ => self.blocked(narrow, pixels, wide, self.taps()),
        }
    }
}

/// Scratch numbers that a call needs.
pub(super) fn scratch(call: &Call, threads: usize) -> usize {
    let (task, geometry) = geometry(call);
    if let Some(whole) = Whole::new(&geometry) {
        return whole.scratch(task) * threads;
    }
    if Depthwise::new(&geometry, task).is_some() {
        return 0;
    }
    if let Some(pixels) = Pointwise::new(&geometry, task) {
        return pixels.scratch() * threads;
    }
    if let Some(direct) = Direct::new(&geometry, task, threads) {
        return direct.scratch() * threads;
    }
    if let Some(slope) = Slope::new(&geometry, threads).filter(|_| task == Task::Weight) {
        return slope.scratch() * threads;
    }
    match task {
        Task::Wide => Phases::new(&geometry).scratch(threads),
        _ => geometry.extent(task).scratch() * threads,
    }
}

pub(super) fn forward(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let (x, w, bias) = (args.read(0)?, args.read(1)?, args.optional(2)?);
    let (y, scratch) = (args.write(0)?, args.scratch());
    let (task, geometry) = geometry(args.call);
    across(args.pool, task, &geometry, w, bias, x, y, scratch);
    Ok(())
}

pub(super) fn backward_data(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let (w, dy) = (args.read(0)?, args.read(1)?);
    let (dx, scratch) = (args.write(0)?, args.scratch());
    let (task, geometry) = geometry(args.call);
    across(args.pool, task, &geometry, w, None, dy, dx, scratch);
    Ok(())
}

/// Computes one side from the other.
#[allow(clippy::too_many_arguments)]
fn across(
    pool: &mut Pool,
    task: Task,
    g: &Geometry,
    w: &[f32],
    bias: Option<&[f32]>,
    from: &[f32],
    to: &mut [f32],
    scratch: &mut [f32],
) {
    if let Some(whole) = Whole::new(g) {
        return whole.run(pool, task, (w, bias), from, to, scratch);
    }
    if let Some(planes) = Depthwise::new(g, task) {
        return planes.run(pool, w, bias, from, to);
    }
    if let Some(pixels) = Pointwise::new(g, task) {
        return pixels.run(pool, (w, bias), from, to, scratch);
    }
    if let Some(direct) = Direct::new(g, task, pool.threads()) {
        return direct.run(pool, w, bias, from, to, scratch);
    }
    if task == Task::Wide {
        return Phases::new(g).run(pool, (w, bias), from, to, scratch);
    }
    let ((wide, narrow), taps) = (g.group(), Taps::all(g));
    for (group, w) in w.chunks_exact(narrow * wide * taps.len()).enumerate() {
        let grid = [g.narrow.height, g.narrow.width];
        let window = Window {
            numbers: Samples::one(from, g.wide.size()),
            image: g.wide,
            first: group * wide,
            grid,
            stride: g.stride,
            taps: &taps,
        };
        let lattice = lattice(g.narrow, group * narrow..(group + 1) * narrow, grid, [1, 1], [0, 0]);
        let planes = Planes { first: group * narrow, bias };
        let extent = g.extent(task);
        let filter = Matrix::by_line(w, extent.depth);
        multiply_into(pool, extent, &filter, &window, (Sheet::new(to, lattice), &planes), scratch);
    }
}

pub(super) fn backward_weight(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let (x, dy) = (args.samples(0)?, args.samples(args.call.parts)?);
    let (dw, db, scratch) = (args.write(0)?, args.write_optional(1)?, args.scratch());
    let (_, g) = geometry(args.call);
    let transposed = matches!(args.call.op, Op::ConvBackwardWeight(c) if c.transposed);
    let (wide_side, narrow_side) = if transposed { (dy, x) } else { (x, dy) };
    if let Some(whole) = Whole::new(&g) {
        whole.slope(args.pool, [wide_side, narrow_side], dw, scratch);
    } else if let Some(planes) = Depthwise::new(&g, Task::Weight) {
        planes.slope(args.pool, wide_side, narrow_side, dw);
    } else if let Some(slope) = Slope::new(&g, args.pool.threads()) {
        if !transposed && slope.sums_narrow() {
            // The bias' gradient falls off.
            slope.run(args.pool, [wide_side, narrow_side], (dw, db), scratch);
            return Ok(());
        }
        slope.run(args.pool, [wide_side, narrow_side], (dw, None), scratch);
    } else {
        let (wide, narrow) = g.group();
        let taps = Taps::all(&g);
        let extent = g.extent(Task::Weight);
        let size = narrow * wide * taps.len();
        for (group, dw) in dw.chunks_exact_mut(size).enumerate() {
            let lines = Pixels { numbers: narrow_side, image: g.narrow, first: group * narrow };
            let windows = Windows(Window {
                numbers: wide_side,
                image: g.wide,
                first: group * wide,
                grid: [g.narrow.height, g.narrow.width],
                stride: g.stride,
                taps: &taps,
            });
            let to = Rows::new(dw, extent.columns, Bias::None);
            multiply(args.pool, extent, &lines, &windows, &to, scratch);
        }
    }
    if let Some(db) = db {
        let image = if transposed { g.wide } else { g.narrow };
        channel_sums(args.pool, dy, image, db);
    }
    Ok(())
}

/// The sum of every channel over the batch.
fn channel_sums(pool: &mut Pool, numbers: Samples<'_>, image: Image, sums: &mut [f32]) {
    let plane = image.plane();
    pool.sums(image.batch * plane, sums, 1, |start, sums| {
        for (i, sum) in sums.iter_mut().enumerate() {
            let planes = (0..image.batch).map(|n| &numbers.from(n)[(start + i) * plane..][..plane]);
            *sum = planes.map(plane_sum).sum();
        }
    });
}

wide! {
    /// Σ x, in a fixed order.
    pub(super) fn plane_sum(numbers: &[f32]) -> f32 {
        let mut sums = [0f32; 32];
        let chunks = numbers.chunks_exact(32);
        let rest: f32 = chunks.remainder().iter().sum();
        for chunk in chunks {
            sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += x);
        }
        sums.iter().sum::<f32>() + rest
    }
}

/// One tap of a window: where its weight is, and how far its pixel is from the window's first.
fn tap(weight: usize, row: isize, column: isize) -> Tap {
    Tap { weight, row, column }
}

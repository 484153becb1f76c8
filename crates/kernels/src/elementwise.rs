//! Loops over elements: what every element-wise family is written with, and sums, products, fills and dropouts.
//!
//! An operand that is `None` lies in the memory of the result.

use crate::KernelError;
use tiercel_workload::graph::Shape;

use super::args::Args;
use super::pool::Pool;
use super::random;
use super::simd::wide;

wide! {
    /// Applies `f` to every element.
    pub(super) fn map_part[F: Fn(f32) -> f32](out: &mut [f32], a: Option<&[f32]>, f: F) {
        match a {
            Some(a) => out.iter_mut().zip(a).for_each(|(out, a)| *out = f(*a)),
            None => out.iter_mut().for_each(|out| *out = f(*out)),
        }
    }
}

wide! {
    /// Applies `f` to every pair of elements.
    pub(super) fn zip_part[F: Fn(f32, f32) -> f32](out: &mut [f32], a: Option<&[f32]>, b: Option<&[f32]>, f: F) {
        match (a, b) {
            (Some(a), Some(b)) => out.iter_mut().zip(a).zip(b).for_each(|((out, a), b)| *out = f(*a, *b)),
            (None, Some(b)) => out.iter_mut().zip(b).for_each(|(out, b)| *out = f(*out, *b)),
            (Some(a), None) => out.iter_mut().zip(a).for_each(|(out, a)| *out = f(*a, *out)),
            (None, None) => out.iter_mut().for_each(|out| *out = f(*out, *out)),
        }
    }
}

/// Applies `f` to every element.
pub(super) fn map(pool: &mut Pool, out: &mut [f32], a: Option<&[f32]>, f: impl Fn(f32) -> f32 + Sync + Copy) {
    pool.rows(out, 1, |start, out| map_part(out, a.map(|a| &a[start..]), f));
}

/// Applies `f` to every pair of elements.
pub(super) fn zip(
    pool: &mut Pool,
    out: &mut [f32],
    a: Option<&[f32]>,
    b: Option<&[f32]>,
    f: impl Fn(f32, f32) -> f32 + Sync + Copy,
) {
    pool.rows(out, 1, |start, out| zip_part(out, a.map(|a| &a[start..]), b.map(|b| &b[start..]), f));
}

pub(super) fn fill(mut args: Args<'_, '_>, value: f32) -> Result<(), KernelError> {
    let out = args.write(0)?;
    args.pool.rows(out, 1, |_, out| out.fill(value));
    Ok(())
}

pub(super) fn scale(mut args: Args<'_, '_>, factor: f32) -> Result<(), KernelError> {
    let (x, y) = (args.maybe(0)?, args.write(0)?);
    map(args.pool, y, x, |x| x * factor);
    Ok(())
}

/// How a smaller operand is stretched to a larger one: runs of the larger one's elements that meet either a run of
/// the smaller one or a single element of it.
struct Stretch {
    /// Elements of a run.
    run: usize,
    /// Whether a run meets a single element.
    single: bool,
    /// The outer axes of the larger operand from the last to the first: extent, and distance in the smaller one.
    axes: [(usize, usize); Shape::MAX_RANK],
    outer: usize,
}

impl Stretch {
    fn new(large: Shape, small: Shape) -> Stretch {
        let rank = large.rank();
        let missing = rank - small.rank();
        let extent = |axis: usize| if axis < missing { 1 } else { small.dims()[axis - missing] as usize };
        let mut at = rank;
        let (mut run, mut inner) = (1, 1);
        let mut single = None;
        while at > 0 {
            let (l, s) = (large.dims()[at - 1] as usize, extent(at - 1));
            let this = s == 1 && l != 1;
            if l != 1 && *single.get_or_insert(this) != this {
                break;
            }
            run *= l;
            inner *= s;
            at -= 1;
        }
        let mut axes = [(1, 0); Shape::MAX_RANK];
        let mut outer = 0;
        while at > 0 {
            let (l, s) = (large.dims()[at - 1] as usize, extent(at - 1));
            axes[outer] = (l, if s == 1 { 0 } else { inner });
            inner *= s;
            outer += 1;
            at -= 1;
        }
        Stretch { run, single: single.unwrap_or(false), axes, outer }
    }

    /// Where in the smaller operand run number `at` begins.
    fn place(&self, mut at: usize) -> usize {
        let mut place = 0;
        for (extent, distance) in &self.axes[..self.outer] {
            place += at % extent * distance;
            at /= extent;
        }
        place
    }
}

/// a + b or a · b, with b stretched to a.
pub(super) fn combine(
    mut args: Args<'_, '_>,
    f: impl Fn(f32, f32) -> f32 + Sync + Copy,
) -> Result<(), KernelError> {
    let (a, b, y) = (args.maybe(0)?, args.maybe(1)?, args.write(0)?);
    let [large, small] = [0, 1].map(|at| args.call.inputs[at].shape);
    if large.elements() == small.elements() {
        zip(args.pool, y, a, b, f);
        return Ok(());
    }
    let b = b.ok_or(KernelError::Stretched)?;
    let stretch = Stretch::new(large, small);
    let run = stretch.run;
    args.pool.rows(y, run, |start, y| {
        for (i, y) in y.chunks_exact_mut(run).enumerate() {
            let a = a.map(|a| &a[(start + i) * run..][..run]);
            let place = stretch.place(start + i);
            if stretch.single {
                let b = b[place];
                map_part(y, a, |a| f(a, b));
            } else {
                zip_part(y, a, Some(&b[place..place + run]), f);
            }
        }
    });
    Ok(())
}

pub(super) fn sum_to(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let (x, y) = (args.read(0)?, args.write(0)?);
    let stretch = Stretch::new(args.call.inputs[0].shape, args.call.outputs[0].shape);
    let run = stretch.run;
    if stretch.single && run * y.len() == x.len() {
        // Every result is the sum of one run.
        args.pool.sums(run, y, 1, |start, y| {
            for (i, y) in y.iter_mut().enumerate() {
                *y = super::conv::plane_sum(&x[(start + i) * run..][..run]);
            }
        });
    } else if !stretch.single && y.len() == run {
        super::linear::column_sums(args.pool, x, y.len(), y, false);
    } else {
        y.fill(0.0);
        for (i, x) in x.chunks_exact(run).enumerate() {
            let place = stretch.place(i);
            if stretch.single {
                y[place] += super::conv::plane_sum(x);
            } else {
                zip_part(&mut y[place..place + run], None, Some(x), |y, x| y + x);
            }
        }
    }
    Ok(())
}

wide! {
    /// Zeros elements by chance, from element `start` on.
    pub(super) fn drop_part(y: &mut [f32], x: Option<&[f32]>, start: u64, key: u64, below: u32, scale: f32) {
        let kept = |at: usize| random::bits(key, (start as u32).wrapping_add(at as u32)) >= below;
        match x {
            Some(x) => y.iter_mut().zip(x).enumerate().for_each(|(at, (y, x))| {
                *y = if kept(at) { x * scale } else { 0.0 };
            }),
            None => y.iter_mut().enumerate().for_each(|(at, y)| *y = if kept(at) { *y * scale } else { 0.0 }),
        }
    }
}

/// The chance of being dropped as a bound on 32 random bits, and what is kept is multiplied with.
pub(super) fn chance(rate: f32) -> (u32, f32) {
    ((f64::from(rate) * 4_294_967_296.0) as u32, 1.0 / (1.0 - rate))
}

pub(super) fn dropout(mut args: Args<'_, '_>, rate: f32, seed: u64) -> Result<(), KernelError> {
    let (x, y) = (args.maybe(0)?, args.write(0)?);
    let key = random::key(&[args.moment.seed, args.moment.iteration, seed]);
    let (below, scale) = chance(rate);
    args.pool.rows(y, 1, |start, y| {
        drop_part(y, x.map(|x| &x[start..]), start as u64, key, below, scale);
    });
    Ok(())
}

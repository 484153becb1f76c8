//! Loops over elements: what every element-wise family is written with, and sums, products, fills and dropouts.
//!
//! An operand that is `None` lies in the memory of the result.

use super::args::Args;
use super::pool::Pool;
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
pub(super) fn map(pool: &mut Pool, out: &mut [f32], a: Option<&[f32]>, f: impl Fn(f32) -> f32 + Sync) {
    pool.rows(out, 1, |start, out| map_part(out, a.map(|a| &a[start..]), &f));
}

/// Applies `f` to every pair of elements.
pub(super) fn zip(
    pool: &mut Pool,
    out: &mut [f32],
    a: Option<&[f32]>,
    b: Option<&[f32]>,
    f: impl Fn(f32, f32) -> f32 + Sync,
) {
    pool.rows(out, 1, |start, out| zip_part(out, a.map(|a| &a[start..]), b.map(|b| &b[start..]), &f));
}

pub(super) fn fill(mut args: Args<'_, '_>, value: f32) -> Result<(), String> {
    let out = args.write(0)?;
    args.pool.rows(out, 1, |_, out| out.fill(value));
    Ok(())
}

pub(super) fn scale(mut args: Args<'_, '_>, factor: f32) -> Result<(), String> {
    let (x, y) = (args.maybe(0)?, args.write(0)?);
    map(args.pool, y, x, |x| x * factor);
    Ok(())
}

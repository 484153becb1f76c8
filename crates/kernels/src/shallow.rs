//! Products of little depth: gradients of samples by few outputs, and of weights by few samples.
//!
//! Writing such a product takes as long as computing it, so every element is summed up in a register and written once, where
//! it belongs, while memory is asked for the place of the next ones. Only the second operand is packed, some columns at a
//! time, which stay in the first-level cache and meet all rows.

use super::gemm::{Bias, Extent, Pack};
use super::pool::Pool;
use super::room;
use super::shares::{self, Each};
use super::simd::{Finish, Lying, Panels, STRIP, Strip, Tile, expect, strip};

/// Numbers of the second operand that are packed at a time.
const PACKED: usize = 8192;

/// The most columns of them.
const BAND: usize = 4096;

/// Columns that are packed at a time.
pub(super) fn band(e: Extent) -> usize {
    let wide = Tile::here().columns();
    let most = (PACKED / e.depth.max(1) / wide * wide).clamp(wide, BAND);
    e.columns.next_multiple_of(wide).min(most)
}

/// Scratch numbers of one thread.
pub(super) fn scratch(e: Extent) -> usize {
    room(e.depth * band(e))
}

/// C = A · B and what is added to it: A as it lies, and the rows of C one behind the other. Every element is summed in the
/// order of depth, so it does not depend on what else is computed.
pub(super) fn multiply(
    pool: &mut Pool,
    e: Extent,
    a: Lying<'_>,
    b: &impl Pack,
    (c, more): (&mut [f32], Bias<'_>),
    scratch: &mut [f32],
) {
    let Extent { rows, columns, depth, .. } = e;
    let (wide, some, band) = (Tile::here().columns(), STRIP.min(Tile::here().rows), band(e));
    let shares = (Each::new(scratch, self::scratch(e)), shares::Rows::new(c, columns, rows));
    pool.each_of(rows * columns * depth, shares, |_, (packed, (start, c))| {
        let own = c.len() / columns;
        for first in (0..columns).step_by(band) {
            let end = columns.min(first + band);
            let panels = packed.chunks_exact_mut(depth * wide);
            for (left, panel) in (first..end).step_by(wide).zip(panels) {
                b.pack(0..depth, left..end.min(left + wide), wide, panel);
            }
            let panels = Panels { numbers: packed, deep: depth };
            for top in (0..own).step_by(some) {
                let a = Lying { numbers: &a.numbers[(start + top) * a.row..], ..a };
                for next in top + some..own.min(top + 2 * some) {
                    expect(c[next * columns + first..].as_ptr(), end - first);
                }
                let (size, c) = ([some.min(own - top), end - first], &mut c[top * columns + first..]);
                if let Bias::Columns(bias) = more {
                    c.chunks_mut(columns)
                        .take(size[0])
                        .for_each(|c| c[..size[1]].copy_from_slice(&bias[first..end]));
                }
                let finish = Finish { factor: 1.0, add: !matches!(more, Bias::None) };
                strip(depth, a, panels, finish, &mut Strip::new(c, size, columns));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::gemm::Matrix;
    use super::*;

    /// One by one rows have the same bits, and they are those that one computes by hand.
    #[test]
    fn rows_do_not_depend_on_others() {
        let mut random = fastrand::Rng::with_seed(4);
        let mut numbers = |count: usize| (0..count).map(|_| random.f32() - 0.5).collect::<Vec<f32>>();
        for (rows, columns, depth) in
            [(1, 1, 1), (13, 40, 10), (9, 600, 16), (35, 512, 3), (21, 1030, 7), (30, 700, 64)]
        {
            let (b, a) = (numbers(depth * columns), numbers(rows * depth));
            let product = |a: &[f32], threads: usize, before: Option<f32>| {
                let e = Extent::new(a.len() / depth, columns, depth);
                let mut memory = vec![0f32; threads * scratch(e)];
                let mut c = vec![before.unwrap_or(7.0); e.rows * columns];
                let (a, b) = (Lying { numbers: a, row: depth, along: 1 }, Matrix::by_depth(&b, columns));
                let more = if before.is_some() { Bias::Add } else { Bias::None };
                multiply(&mut Pool::new(threads), e, a, &b, (&mut c, more), &mut memory);
                c
            };
            let c = product(&a, 2, None);
            assert_eq!(c, a.chunks(depth).flat_map(|a| product(a, 1, None)).collect::<Vec<f32>>());
            let more = product(&a, 2, Some(0.5));
            assert!(c.iter().zip(&more).all(|(c, more)| c + 0.5 == *more), "added to what is there");
            for (i, c) in c.iter().enumerate() {
                let product = |k: usize| a[i / columns * depth + k] * b[k * columns + i % columns];
                let expected: f32 = (0..depth).map(product).sum();
                assert!((c - expected).abs() < 1e-5, "{c} for {expected} at {i}");
            }
        }
    }
}

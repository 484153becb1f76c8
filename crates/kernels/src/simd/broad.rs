//! Depthwise convolutions with windows of three by three and stride 1 over planes that are larger than the first-level
//! cache, in the order in which memory lies.
//!
//! `depthwise.rs` goes down the rows of a column of pixels and reads every number once, but at distances: what it waits for
//! is memory. Here a few rows of results go along all columns together, and memory is asked for what lies a little further
//! on. Numbers are read more often, which a small window leaves time for. The sums of results have the same order.

use std::arch::x86_64::*;

use super::depthwise::{Depthwise, LANES, Taps, Weights, masks, soon};

/// Rows of a window, and columns.
const K: usize = 3;

/// Rows of results that go along together.
const ROWS: usize = 4;

/// How many numbers further on memory is asked for.
const FAR: usize = 2048;

/// The lanes of a vector that are there, for each column of the window; that of the first column begins at `left`.
#[inline(always)]
fn inside(left: isize, width: usize) -> [u16; K] {
    if left >= 0 && left as usize + LANES + K <= width {
        return [u16::MAX; K];
    }
    std::array::from_fn(|b| masks::<1>(left + b as isize, width)[0])
}

/// One plane.
///
/// # Safety
/// The processor has AVX-512, and there is a plane of either side and its weights.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn slide(d: &Depthwise, w: Weights<'_>, from: *const f32, to: *mut f32) {
    let (mut taps, rows) = ([[_mm512_setzero_ps(); K]; K], d.to[0]);
    for (at, tap) in taps.as_flattened_mut().iter_mut().enumerate() {
        *tap = _mm512_set1_ps(w.taps[if w.turned { K * K - 1 - at } else { at }]);
    }
    let begin = _mm512_set1_ps(w.begin.map_or(0.0, |begin| begin[0]));
    let whole = rows / ROWS * ROWS;
    // SAFETY: the caller's promise.
    unsafe {
        for top in (0..whole).step_by(ROWS) {
            slide_rows::<ROWS>(d, top, (taps, begin, w.add), from, to);
        }
        for top in whole..rows {
            slide_rows::<1>(d, top, (taps, begin, w.add), from, to);
        }
    }
}

/// `R` rows from `top` on.
///
/// # Safety
/// As [`slide`], and the rows are there.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn slide_rows<const R: usize>(
    d: &Depthwise,
    top: usize,
    (taps, begin, add): ([[__m512; K]; K], __m512, bool),
    from: *const f32,
    to: *mut f32,
) {
    let Depthwise { from: [height, width], to: [_, columns], before, .. } = *d;
    for first in (0..columns).step_by(LANES) {
        let left = first as isize - before[1] as isize;
        let (inside, written) = (inside(left, width), masks::<1>(0, columns - first)[0]);
        for t in 0..R {
            soon(from.wrapping_add((top + K - 1 + t) * width + first + FAR));
            soon(to.wrapping_add((top + t) * columns + first + FAR));
        }
        let mut sums = [_mm512_setzero_ps(); R];
        for i in 0..R + K - 1 {
            let row = (top + i).wrapping_sub(before[0]);
            if row >= height {
                continue;
            }
            let at = from.wrapping_add(row * width).wrapping_offset(left);
            for b in 0..K {
                // SAFETY: pixels that the masks leave out are not touched.
                let x = unsafe { _mm512_maskz_loadu_ps(inside[b], at.wrapping_add(b)) };
                for t in 0..R {
                    if t <= i && i < t + K {
                        sums[t] = _mm512_fmadd_ps(taps[i - t][b], x, sums[t]);
                    }
                }
            }
        }
        for (t, sum) in sums.into_iter().enumerate() {
            let (at, mut sum) = (to.wrapping_add((top + t) * columns + first), _mm512_add_ps(sum, begin));
            // SAFETY: as above.
            unsafe {
                if add {
                    sum = _mm512_add_ps(_mm512_maskz_loadu_ps(written, at), sum);
                }
                _mm512_mask_storeu_ps(at, written, sum);
            }
        }
    }
}

/// Adds to the vector of every tap the products of a plane's pixels with those of `dy` that the tap gives them to.
///
/// # Safety
/// The processor has AVX-512, and there is a plane of either side.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn meet(d: &Depthwise, from: *const f32, dy: *const f32, out: &mut Taps) {
    let mut sums = [[_mm512_setzero_ps(); K]; K];
    let (rows, whole) = (d.to[0], d.to[0] / ROWS * ROWS);
    // SAFETY: the caller's promise.
    unsafe {
        for top in (0..whole).step_by(ROWS) {
            meet_rows::<ROWS>(d, top, from, dy, &mut sums);
        }
        for top in whole..rows {
            meet_rows::<1>(d, top, from, dy, &mut sums);
        }
        for (out, sum) in out.iter_mut().zip(sums.as_flattened()) {
            let out = out.as_mut_ptr();
            _mm512_storeu_ps(out, _mm512_add_ps(_mm512_loadu_ps(out), *sum));
        }
    }
}

/// `R` rows from `top` on.
///
/// # Safety
/// As [`meet`], and the rows are there.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn meet_rows<const R: usize>(
    d: &Depthwise,
    top: usize,
    from: *const f32,
    dy: *const f32,
    sums: &mut [[__m512; K]; K],
) {
    let Depthwise { from: [height, width], to: [_, columns], before, .. } = *d;
    let mut all = *sums;
    for first in (0..columns).step_by(LANES) {
        let left = first as isize - before[1] as isize;
        let (inside, there) = (inside(left, width), masks::<1>(0, columns - first)[0]);
        // SAFETY: pixels that the masks leave out are not touched.
        let held: [__m512; R] = std::array::from_fn(|t| unsafe {
            _mm512_maskz_loadu_ps(there, dy.wrapping_add((top + t) * columns + first))
        });
        for t in 0..R {
            soon(from.wrapping_add((top + K - 1 + t) * width + first + FAR));
            soon(dy.wrapping_add((top + t) * columns + first + FAR));
        }
        for i in 0..R + K - 1 {
            let row = (top + i).wrapping_sub(before[0]);
            if row >= height {
                continue;
            }
            let at = from.wrapping_add(row * width).wrapping_offset(left);
            for b in 0..K {
                // SAFETY: as above.
                let x = unsafe { _mm512_maskz_loadu_ps(inside[b], at.wrapping_add(b)) };
                for t in 0..R {
                    if t <= i && i < t + K {
                        all[i - t][b] = _mm512_fmadd_ps(held[t], x, all[i - t][b]);
                    }
                }
            }
        }
    }
    *sums = all;
}

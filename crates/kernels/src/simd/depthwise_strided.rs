//! The inner loops of depthwise convolutions of stride 2 (`depthwise.rs` has the form, and those of stride 1): two vectors
//! of neighbouring pixels are parted into those in even and in odd places, which are two columns of the window.

use std::arch::x86_64::*;

use super::depthwise::{Depthwise, LANES, Taps, Weights, load, masks, soon, spread, store};

/// Which pixels of two vectors are there: by vector, and by plane where a vector has two.
type Raw = [[u16; 2]; 2];

/// Those of a row of `width` whose pixel number `first` is the first of the first vector; with `S` planes side by side.
#[inline(always)]
fn raw<const S: usize>(first: isize, width: usize) -> Raw {
    match S {
        1 => [[masks::<1>(first, width)[0], 0], [masks::<1>(first + LANES as isize, width)[0], 0]],
        2 => [[masks::<1>(first, width)[0], 0]; 2],
        _ => [masks::<2>(first, width); 2],
    }
}

/// The pixels in even places and those in odd ones, of each of `S` planes that are `apart`.
///
/// # Safety
/// The processor has AVX-512, and the numbers of the lanes in the masks are there.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq")]
unsafe fn halves<const S: usize>(at: *const f32, apart: usize, masks: Raw) -> [__m512; 2] {
    let second = match S {
        1 => LANES,
        2 => apart,
        _ => 2 * apart,
    };
    let evens = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    let odds = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    // SAFETY: lanes beside the masks are not touched.
    unsafe {
        let (next, beside) = (at.wrapping_add(second), apart.wrapping_sub(LANES / 2));
        let (mut low, mut high) =
            (_mm512_maskz_loadu_ps(masks[0][0], at), _mm512_maskz_loadu_ps(masks[1][0], next));
        if S == 4 {
            low = _mm512_mask_loadu_ps(low, masks[0][1], at.wrapping_add(beside));
            high = _mm512_mask_loadu_ps(high, masks[1][1], next.wrapping_add(beside));
        }
        [_mm512_permutex2var_ps(low, evens, high), _mm512_permutex2var_ps(low, odds, high)]
    }
}

/// Asks for two vectors of a row, or one of each of some planes, as far from these as the next ones are.
#[inline(always)]
fn both_soon<const S: usize>(row: *const f32, next: usize) {
    soon(row.wrapping_add(next));
    if S == 1 {
        soon(row.wrapping_add(next + LANES));
    }
}

/// # Safety
/// The processor has AVX-512, and there are `S` planes of either side and their weights.
#[target_feature(enable = "avx512f,avx512vl,avx512dq")]
pub(super) unsafe fn slide<const K: usize, const S: usize>(
    d: &Depthwise,
    w: Weights<'_>,
    from: *const f32,
    to: *mut f32,
) {
    let (Depthwise { from: [height, width], to: [rows, columns], before, .. }, apart) = (*d, d.planes());
    let (zero, half) = (_mm512_setzero_ps(), K.div_ceil(2));
    // SAFETY: the caller's promise; and pixels that the masks leave out are not touched.
    unsafe {
        let mut taps = [[zero; K]; K];
        for (at, tap) in taps.as_flattened_mut().iter_mut().enumerate() {
            *tap = spread::<S>(w.taps.as_ptr().add(at), K * K);
        }
        let begin = w.begin.map_or(zero, |begin| spread::<S>(begin.as_ptr(), 1));
        for first in (0..columns).step_by(LANES / S) {
            let left = 2 * first as isize - before[1] as isize;
            let inside: [Raw; K] = std::array::from_fn(|b| raw::<S>(left + 2 * b as isize, width));
            let written = masks::<S>(0, columns - first)[0];
            // The sums of as many rows as a row of the image is in, of which the last is number `step`.
            let mut sums = [zero; K];
            for step in 0..rows + half - 1 {
                for odd in 0..2 {
                    let i = (2 * step + odd).wrapping_sub(before[0]);
                    if i >= height {
                        continue;
                    }
                    let row = from.wrapping_add(i * width).wrapping_offset(left);
                    both_soon::<S>(row, apart[0] * S);
                    for b in 0..half {
                        let x = halves::<S>(row.wrapping_add(2 * b), apart[0], inside[b]);
                        for k in 0..half {
                            let (a, sum) = (2 * k + odd, half - 1 - k);
                            if a < K {
                                sums[sum] = _mm512_fmadd_ps(taps[a][2 * b], x[0], sums[sum]);
                                if 2 * b + 1 < K {
                                    sums[sum] = _mm512_fmadd_ps(taps[a][2 * b + 1], x[1], sums[sum]);
                                }
                            }
                        }
                    }
                }
                if step + 1 >= half {
                    let at = to.wrapping_add((step + 1 - half) * columns + first);
                    store::<S>(_mm512_add_ps(sums[0], begin), at, apart[1], written);
                    soon(at.cast_const().wrapping_add(apart[1] * S));
                }
                sums = std::array::from_fn(|a| if a + 1 < half { sums[a + 1] } else { zero });
            }
        }
    }
}

/// Which pixels of either side are there, from a column on.
type Masks<const K: usize, const S: usize> = ([Raw; K], [u16; S]);

/// Those of the columns from `first` on.
#[inline(always)]
fn masked<const K: usize, const S: usize>(d: &Depthwise, first: usize) -> Masks<K, S> {
    let left = 2 * first as isize - d.before[1] as isize;
    (std::array::from_fn(|b| raw::<S>(left + 2 * b as isize, d.from[1])), masks(0, d.to[1] - first))
}

/// A row of the image, which is in even rows of windows or with `ODD` in the others, with the rows of the other side that
/// those are.
///
/// # Safety
/// The processor has AVX-512, and the numbers of the lanes in the masks are there.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq")]
unsafe fn meet_row<const K: usize, const S: usize, const ODD: usize>(
    row: *const f32,
    apart: usize,
    inside: &[Raw; K],
    held: &[__m512; K],
    sums: &mut [[__m512; K]; K],
) {
    let half = K.div_ceil(2);
    for b in 0..half {
        // SAFETY: the caller's promise.
        let x = unsafe { halves::<S>(row.wrapping_add(2 * b), apart, inside[b]) };
        for (k, held) in held.iter().enumerate().take(half) {
            let a = 2 * k + ODD;
            if a < K {
                sums[a][2 * b] = _mm512_fmadd_ps(*held, x[0], sums[a][2 * b]);
                if 2 * b + 1 < K {
                    sums[a][2 * b + 1] = _mm512_fmadd_ps(*held, x[1], sums[a][2 * b + 1]);
                }
            }
        }
    }
}

/// One image, with the rows of windows from number `FIRST` on: all, or with `ONE` every other.
///
/// # Safety
/// The processor has AVX-512, and there are `S` planes of either side.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq")]
unsafe fn meet_image<const K: usize, const S: usize, const FIRST: usize, const ONE: bool>(
    d: &Depthwise,
    begin: &Masks<K, S>,
    (from, dy): (*const f32, *const f32),
    next: [usize; 2],
    out: &mut Taps,
) {
    let (Depthwise { from: [height, width], to: [rows, columns], before, .. }, apart) = (*d, d.planes());
    let (zero, half) = (_mm512_setzero_ps(), K.div_ceil(2));
    let mut sums = [[zero; K]; K];
    for first in (0..columns).step_by(LANES / S) {
        let left = 2 * first as isize - before[1] as isize;
        let (inside, there) = if first == 0 { *begin } else { masked(d, first) };
        // Rows t − k of the other side.
        let mut held = [zero; K];
        for t in 0..rows + half - 1 {
            let at = dy.wrapping_add(t * columns + first);
            // SAFETY: the caller's promise; and pixels that the masks leave out are not touched.
            let newest = if t < rows { unsafe { load(at, apart[1], there) } } else { zero };
            held = std::array::from_fn(|k| if k > 0 { held[k - 1] } else { newest });
            soon(at.wrapping_add(next[1]));
            for odd in FIRST..if ONE { FIRST + 1 } else { 2 } {
                let i = (2 * t + odd).wrapping_sub(before[0]);
                if i >= height {
                    continue;
                }
                let row = from.wrapping_add(i * width).wrapping_offset(left);
                both_soon::<S>(row, next[0]);
                // SAFETY: as above.
                unsafe {
                    match odd {
                        0 => meet_row::<K, S, 0>(row, apart[0], &inside, &held, &mut sums),
                        _ => meet_row::<K, S, 1>(row, apart[0], &inside, &held, &mut sums),
                    }
                }
            }
        }
    }
    for a in (FIRST..K).step_by(if ONE { 2 } else { 1 }) {
        for (out, sum) in out[a * K..].iter_mut().zip(&sums[a]) {
            let out = out.as_mut_ptr();
            // SAFETY: a vector of sums.
            unsafe { _mm512_storeu_ps(out, _mm512_add_ps(_mm512_loadu_ps(out), *sum)) };
        }
    }
}

/// # Safety
/// The processor has AVX-512, and there are `S` planes of either side for every image.
#[target_feature(enable = "avx512f,avx512vl,avx512dq")]
pub(super) unsafe fn meet<const K: usize, const S: usize>(
    d: &Depthwise,
    from: *const f32,
    dy: *const f32,
    (images, next): (usize, [usize; 2]),
    out: &mut Taps,
) {
    let begin = masked(d, 0);
    for image in 0..images {
        let sides = (from.wrapping_add(image * next[0]), dy.wrapping_add(image * next[1]));
        // SAFETY: the caller's promise.
        unsafe {
            if K == 3 {
                meet_image::<K, S, 0, false>(d, &begin, sides, next, out);
            } else {
                // There are more sums than registers.
                meet_image::<K, S, 0, true>(d, &begin, sides, next, out);
                meet_image::<K, S, 1, true>(d, &begin, sides, next, out);
            }
        }
    }
}

/// The other way: every pixel of a plane of twice the size is the sum of those taps that its windows give it. `P` is the
/// remainder of the zeros on the left by the stride.
///
/// # Safety
/// The processor has AVX-512, and there are `S` planes of either side and their weights.
#[target_feature(enable = "avx512f,avx512vl,avx512dq")]
unsafe fn rise<const K: usize, const S: usize, const P: usize>(
    d: &Depthwise,
    w: Weights<'_>,
    from: *const f32,
    to: *mut f32,
) {
    let (Depthwise { from: [height, width], to: [rows, columns], before, .. }, apart) = (*d, d.planes());
    let (zero, half) = (_mm512_setzero_ps(), K.div_ceil(2));
    let first_half = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    let second_half = _mm512_add_epi32(first_half, _mm512_set1_epi32(8));
    // SAFETY: the caller's promise; and pixels that the masks leave out are not touched.
    unsafe {
        let mut taps = [[zero; K]; K];
        for (at, tap) in taps.as_flattened_mut().iter_mut().enumerate() {
            *tap = spread::<S>(w.taps.as_ptr().add(at), K * K);
        }
        let begin = w.begin.map_or(zero, |begin| spread::<S>(begin.as_ptr(), 1));
        for first in (0..columns.div_ceil(2)).step_by(LANES / S) {
            // Pixels 2 m + e get column 2 s − P + e of the window m + (before + P) / 2 − s.
            let place = (first + (before[1] + P) / 2) as isize;
            let inside: [[u16; S]; K] = std::array::from_fn(|s| masks(place - s as isize, width));
            let left = columns - 2 * first;
            for t in before[0] / 2..=(rows - 1 + before[0]) / 2 {
                soon(from.wrapping_add(apart[0] * S + t * width + first));
                // Two rows of results, of which even and odd pixels.
                let mut sums = [[begin; 2]; 2];
                for k in 0..half {
                    let r = t.wrapping_sub(k);
                    if r >= height {
                        continue;
                    }
                    let row = from.wrapping_add(r * width).wrapping_offset(place);
                    for (s, inside) in inside.iter().enumerate().take(half) {
                        let x = load(row.wrapping_sub(s), apart[0], *inside);
                        for (odd, sums) in sums.iter_mut().enumerate() {
                            for (e, sum) in sums.iter_mut().enumerate() {
                                let (a, b) = (2 * k + odd, 2 * s + e);
                                if a < K && b >= P && b - P < K {
                                    *sum = _mm512_fmadd_ps(taps[a][b - P], x, *sum);
                                }
                            }
                        }
                    }
                }
                for (odd, [even, other]) in sums.into_iter().enumerate() {
                    let i = (2 * t + odd).wrapping_sub(before[0]);
                    if i >= rows {
                        continue;
                    }
                    let low = _mm512_permutex2var_ps(even, first_half, other);
                    let high = _mm512_permutex2var_ps(even, second_half, other);
                    let at = to.wrapping_add(i * columns + 2 * first);
                    both_soon::<S>(at, apart[1] * S);
                    let mask = masks::<1>(0, left)[0];
                    if S == 1 {
                        store::<1>(low, at, 0, mask);
                        if left > LANES {
                            store::<1>(high, at.wrapping_add(LANES), 0, masks::<1>(0, left - LANES)[0]);
                        }
                    } else if S == 2 {
                        store::<1>(low, at, 0, mask);
                        store::<1>(high, at.wrapping_add(apart[1]), 0, mask);
                    } else {
                        store::<2>(low, at, apart[1], mask);
                        store::<2>(high, at.wrapping_add(2 * apart[1]), apart[1], mask);
                    }
                }
            }
        }
    }
}

/// With either remainder.
///
/// # Safety
/// As [`rise`].
#[target_feature(enable = "avx512f,avx512vl,avx512dq")]
pub(super) unsafe fn rise_either<const K: usize, const S: usize>(
    d: &Depthwise,
    w: Weights<'_>,
    from: *const f32,
    to: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match d.before[1] % 2 {
            0 => rise::<K, S, 0>(d, w, from, to),
            _ => rise::<K, S, 1>(d, w, from, to),
        }
    }
}

//! The inner loops of depthwise convolutions, straight from one image to the other: of stride 1, and in `depthwise_strided.rs` of
//! stride 2; in `broad.rs` of large planes.
//!
//! A vector is some neighbouring pixels of a row, or the same row of several small planes side by side. Going down the
//! rows, a vector that was read once meets the taps of a whole column of the window: the sums of as many rows of results
//! are kept in registers, and so are, for the gradient by the weights, as many rows of the other side. Pixels beside the
//! image are lanes that are not read.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use super::{Level, level};
#[cfg(target_arch = "x86_64")]
use super::{broad, depthwise_strided};

/// Numbers of a vector.
pub(super) const LANES: usize = 16;

/// The most taps of a window along an axis.
const MOST: usize = 5;

/// Bytes of both planes above which windows of three by three go along the rows: they do not fit the first-level cache.
const BROAD: usize = 32 << 10;

/// A vector for every tap of a window.
pub type Taps = [[f32; LANES]; MOST * MOST];

/// What windows are multiplied with.
#[derive(Clone, Copy)]
pub struct Weights<'w> {
    /// The taps of one plane after the other.
    pub taps: &'w [f32],
    /// Whether the last tap comes first.
    pub turned: bool,
    /// What is added to the pixels of each plane.
    pub begin: Option<&'w [f32]>,
    /// Whether it is all added to what is there; planes that rise, and those that share a vector, are not.
    pub add: bool,
}

/// Two planes, one of which has a pixel for every window that slides over the other.
#[derive(Clone, Copy, Debug)]
pub struct Depthwise {
    /// Rows and columns of the plane that is read.
    pub from: [usize; 2],
    /// Rows and columns of the plane that is written, or is read as well.
    pub to: [usize; 2],
    /// Zeros above and left of the plane that windows slide over.
    pub before: [usize; 2],
    /// Rows of a window, and columns.
    pub window: usize,
    /// The distance of windows, 1 or 2.
    pub stride: usize,
    /// Whether the plane that windows slide over is the one that is written.
    pub rises: bool,
}

impl Depthwise {
    /// Whether there is a loop for it: with these vectors, and windows of three by three or five by five.
    pub fn applies(&self) -> bool {
        let inside = self.before.iter().all(|before| *before < self.window);
        let form = matches!(self.window, 3 | 5) && matches!((self.stride, self.rises), (1, false) | (2, _));
        level() == Level::Avx512 && form && inside
    }

    /// Lanes that a row of a plane takes.
    fn width(&self) -> usize {
        if self.rises { self.to[1].div_ceil(2) } else { self.to[1] }
    }

    /// How many of so many planes are computed at once, side by side in vectors.
    pub fn together(&self, planes: usize) -> usize {
        let fit = match self.width() {
            0..=4 => 4,
            5..=8 => 2,
            _ => 1,
        };
        if planes.is_multiple_of(fit) { fit } else { 1 }
    }

    /// Whether planes are too large for the first-level cache.
    fn is_broad(&self) -> bool {
        self.planes().iter().sum::<usize>() * size_of::<f32>() > BROAD
    }

    pub(super) fn planes(&self) -> [usize; 2] {
        [self.from, self.to].map(|[rows, columns]| rows * columns)
    }

    /// Computes some planes that follow one another: every pixel is the sum over its window times the weights of its
    /// plane, and a number that is the plane's. Windows are summed row by row. The weights of planes that rise are not
    /// turned.
    pub fn slide(&self, planes: usize, w: Weights<'_>, from: &[f32], to: &mut [f32]) {
        let sizes = self.planes();
        assert!(self.applies(), "a window that there is a loop for");
        assert!(w.taps.len() >= planes * self.window * self.window, "all weights are there");
        assert!(w.begin.is_none_or(|begin| begin.len() >= planes), "a number for every plane");
        assert!(from.len() >= planes * sizes[0] && to.len() >= planes * sizes[1], "all planes are there");
        assert!(planes == 1 || planes * self.width() <= LANES, "planes that fit a vector");
        assert!(!w.add || (planes == 1 && self.stride == 1 && !self.rises), "planes that can be added to");
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has these vectors, and all planes are there.
        unsafe {
            let (from, to) = (from.as_ptr(), to.as_mut_ptr());
            match (self.stride + usize::from(self.rises), self.window, planes) {
                (1, 3, 1) if self.is_broad() => broad::slide(self, w, from, to),
                (1, 3, 1) => slide::<3, 1>(self, w, from, to),
                (1, 3, 2) => slide::<3, 2>(self, w, from, to),
                (1, 3, 4) => slide::<3, 4>(self, w, from, to),
                (1, 5, 1) => slide::<5, 1>(self, w, from, to),
                (1, 5, 2) => slide::<5, 2>(self, w, from, to),
                (1, 5, 4) => slide::<5, 4>(self, w, from, to),
                // Of stride 2, and the other way.
                (2, 3, 1) => depthwise_strided::slide::<3, 1>(self, w, from, to),
                (2, 3, 2) => depthwise_strided::slide::<3, 2>(self, w, from, to),
                (2, 3, 4) => depthwise_strided::slide::<3, 4>(self, w, from, to),
                (2, 5, 1) => depthwise_strided::slide::<5, 1>(self, w, from, to),
                (2, 5, 2) => depthwise_strided::slide::<5, 2>(self, w, from, to),
                (2, 5, 4) => depthwise_strided::slide::<5, 4>(self, w, from, to),
                (3, 3, 1) => depthwise_strided::rise_either::<3, 1>(self, w, from, to),
                (3, 3, 2) => depthwise_strided::rise_either::<3, 2>(self, w, from, to),
                (3, 3, 4) => depthwise_strided::rise_either::<3, 4>(self, w, from, to),
                (3, 5, 1) => depthwise_strided::rise_either::<5, 1>(self, w, from, to),
                (3, 5, 2) => depthwise_strided::rise_either::<5, 2>(self, w, from, to),
                (3, 5, 4) => depthwise_strided::rise_either::<5, 4>(self, w, from, to),
                other => unreachable!("windows and planes of {other:?}"),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = w;
    }

    /// Adds to the vector of every tap the products of some planes' pixels with those of `dy` that the tap gives them to,
    /// for each of so many images, which are `next` numbers apart in both.
    pub fn meet(
        &self,
        planes: usize,
        images: usize,
        from: &[f32],
        dy: &[f32],
        next: [usize; 2],
        sums: &mut Taps,
    ) {
        if images == 0 {
            return;
        }
        let sizes = [0, 1].map(|side| (images - 1) * next[side] + planes * self.planes()[side]);
        assert!(self.applies() && !self.rises, "a window that there is a loop for");
        assert!(from.len() >= sizes[0] && dy.len() >= sizes[1], "all planes are there");
        assert!(planes == 1 || planes * self.width() <= LANES, "planes that fit a vector");
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has these vectors, and all planes are there.
        unsafe {
            let (from, dy) = (from.as_ptr(), dy.as_ptr());
            match (self.stride, self.window, planes) {
                (1, 3, 1) if self.is_broad() => {
                    for image in 0..images {
                        broad::meet(self, from.add(image * next[0]), dy.add(image * next[1]), sums);
                    }
                }
                (1, 3, 1) => meet::<3, 1, 3>(self, 0, from, dy, (images, next), sums),
                (1, 3, 2) => meet::<3, 2, 3>(self, 0, from, dy, (images, next), sums),
                (1, 3, 4) => meet::<3, 4, 3>(self, 0, from, dy, (images, next), sums),
                (2, 3, 1) => depthwise_strided::meet::<3, 1>(self, from, dy, (images, next), sums),
                (2, 5, 1) => depthwise_strided::meet::<5, 1>(self, from, dy, (images, next), sums),
                (2, 3, 2) => depthwise_strided::meet::<3, 2>(self, from, dy, (images, next), sums),
                (2, 5, 2) => depthwise_strided::meet::<5, 2>(self, from, dy, (images, next), sums),
                (2, 3, 4) => depthwise_strided::meet::<3, 4>(self, from, dy, (images, next), sums),
                (2, 5, 4) => depthwise_strided::meet::<5, 4>(self, from, dy, (images, next), sums),
                (1, 5, 1) => meet_five::<1>(self, from, dy, (images, next), sums),
                (1, 5, 2) => meet_five::<2>(self, from, dy, (images, next), sums),
                (1, 5, 4) => meet_five::<4>(self, from, dy, (images, next), sums),
                other => unreachable!("windows and planes of {other:?}"),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (next, sums);
    }
}

/// Which lanes come from each of `S` planes: of `lanes` pixels of a row of `width`, the first of which is number `first`,
/// those that are there.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn masks<const S: usize>(first: isize, width: usize) -> [u16; S] {
    let lanes = (LANES / S) as isize;
    let low = (-first).clamp(0, lanes);
    let high = (width as isize - first).clamp(low, lanes);
    let all = ((1u32 << high) - (1u32 << low)) as u16;
    std::array::from_fn(|s| all << (s as isize * lanes))
}

/// A row of each of `S` planes that are `apart`, side by side.
///
/// # Safety
/// The processor has AVX-512, and the numbers of the lanes in the masks are there.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq")]
pub(super) unsafe fn load<const S: usize>(at: *const f32, apart: usize, masks: [u16; S]) -> __m512 {
    // SAFETY: lanes beside the masks are not touched.
    unsafe {
        if S == 2 {
            // Half a vector is less often in two lines of the cache.
            let low = _mm256_maskz_loadu_ps(masks[0] as u8, at);
            let high = _mm256_maskz_loadu_ps((masks[1] >> 8) as u8, at.wrapping_add(apart));
            return _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high);
        }
        let mut all = _mm512_maskz_loadu_ps(masks[0], at);
        for (s, mask) in masks.iter().enumerate().skip(1) {
            let at = at.wrapping_add(s * apart).wrapping_sub(s * LANES / S);
            all = _mm512_mask_loadu_ps(all, *mask, at);
        }
        all
    }
}

/// What windows see of a row of each of `S` planes side by side, or of some columns of one.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Seen<const K: usize, const S: usize> {
    /// The first pixel of the first column of the window.
    left: isize,
    /// The pixels that are there, for each column of the window.
    inside: [[u16; S]; K],
    /// Those of all planes, and where each is among the pixels of whole rows.
    kept: [u16; K],
    taken: [__m512i; K],
    /// The pixels of whole rows, where these fit.
    whole: Option<[u16; S]>,
}

#[cfg(target_arch = "x86_64")]
impl<const K: usize, const S: usize> Seen<K, S> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512dq")]
    fn new(d: &Depthwise, first: usize) -> Seen<K, S> {
        let (width, left) = (d.from[1], first as isize - d.before[1] as isize);
        let inside: [[u16; S]; K] = std::array::from_fn(|b| masks(left + b as isize, width));
        let lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        Seen {
            left,
            inside,
            kept: inside.map(|masks| masks.iter().fold(0, |all, mask| all | mask)),
            taken: std::array::from_fn(|b| {
                _mm512_add_epi32(lanes, _mm512_set1_epi32(left as i32 + b as i32))
            }),
            whole: (S > 1 && width <= LANES / S).then(|| masks(0, width)),
        }
    }

    /// The pixels of a row, for each column of the window.
    ///
    /// # Safety
    /// The processor has AVX-512, and there is a row of each plane.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512dq")]
    unsafe fn row(&self, row: *const f32, apart: usize) -> [__m512; K] {
        let mut columns = [_mm512_setzero_ps(); K];
        if let (true, Some(whole)) = (S > 1, self.whole) {
            // Rows that fit are read once, and moved.
            // SAFETY: lanes beside the masks are not touched.
            let all = unsafe { load(row, apart, whole) };
            for (b, column) in columns.iter_mut().enumerate() {
                *column = _mm512_maskz_permutexvar_ps(self.kept[b], self.taken[b], all);
            }
            return columns;
        }
        let row = row.wrapping_offset(self.left);
        for (b, column) in columns.iter_mut().enumerate() {
            // SAFETY: as above.
            *column = unsafe { load(row.wrapping_add(b), apart, self.inside[b]) };
        }
        columns
    }
}

/// Asks for a line of numbers that will be wanted in the second-level cache.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn soon(at: *const f32) {
    // SAFETY: a hint, which touches nothing.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
}

/// A number for each of `S` planes that lie side by side, which are `apart`.
///
/// # Safety
/// The processor has AVX-512, and the numbers are there.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq")]
pub(super) unsafe fn spread<const S: usize>(at: *const f32, apart: usize) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe {
        let mut all = _mm512_set1_ps(*at);
        for s in 1..S {
            let lanes = u16::MAX << (s * LANES / S);
            all = _mm512_mask_mov_ps(all, lanes, _mm512_set1_ps(*at.add(s * apart)));
        }
        all
    }
}

/// Writes the first numbers of a row of each of `S` planes that are `apart`.
///
/// # Safety
/// The processor has AVX-512, and there is room for the numbers of the mask, which is that of the first plane.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq")]
pub(super) unsafe fn store<const S: usize>(all: __m512, at: *mut f32, apart: usize, mask: u16) {
    // SAFETY: the caller's promise.
    unsafe {
        match S {
            1 => _mm512_mask_storeu_ps(at, mask, all),
            2 => {
                _mm256_mask_storeu_ps(at, mask as u8, _mm512_castps512_ps256(all));
                _mm256_mask_storeu_ps(at.add(apart), mask as u8, _mm512_extractf32x8_ps::<1>(all));
            }
            _ => {
                _mm_mask_storeu_ps(at, mask as u8, _mm512_castps512_ps128(all));
                _mm_mask_storeu_ps(at.add(apart), mask as u8, _mm512_extractf32x4_ps::<1>(all));
                _mm_mask_storeu_ps(at.add(2 * apart), mask as u8, _mm512_extractf32x4_ps::<2>(all));
                _mm_mask_storeu_ps(at.add(3 * apart), mask as u8, _mm512_extractf32x4_ps::<3>(all));
            }
        }
    }
}

/// # Safety
/// The processor has AVX-512, and there are `S` planes of either side and their weights.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq")]
unsafe fn slide<const K: usize, const S: usize>(
    d: &Depthwise,
    w: Weights<'_>,
    from: *const f32,
    to: *mut f32,
) {
    let (Depthwise { from: [height, width], to: [rows, columns], before, .. }, apart) = (*d, d.planes());
    let zero = _mm512_setzero_ps();
    // SAFETY: the caller's promise; and pixels that are not there are not touched.
    unsafe {
        let mut taps = [[zero; K]; K];
        for (at, tap) in taps.as_flattened_mut().iter_mut().enumerate() {
            let at = if w.turned { K * K - 1 - at } else { at };
            *tap = spread::<S>(w.taps.as_ptr().add(at), K * K);
        }
        let begin = w.begin.map_or(zero, |begin| spread::<S>(begin.as_ptr(), 1));
        // The next planes follow these.
        let mut ahead = (from.wrapping_add(S * apart[0]), to.cast_const().wrapping_add(S * apart[1]));
        for first in (0..columns).step_by(LANES / S) {
            let left = first as isize - before[1] as isize;
            let inside: [[u16; S]; K] = std::array::from_fn(|b| masks(left + b as isize, width));
            let written = masks::<S>(0, columns - first)[0];
            // The sums of rows q + 1 − K to q.
            let mut sums = [zero; K];
            for q in 0..rows + K - 1 {
                let i = q.wrapping_sub(before[0]);
                if i < height {
                    let row = from.wrapping_add(i * width).wrapping_offset(left);
                    for b in 0..K {
                        let x = load(row.wrapping_add(b), apart[0], inside[b]);
                        for a in 0..K {
                            sums[K - 1 - a] = _mm512_fmadd_ps(taps[a][b], x, sums[K - 1 - a]);
                        }
                    }
                }
                if q + 1 >= K {
                    let at = to.wrapping_add((q + 1 - K) * columns + first);
                    let mut sum = _mm512_add_ps(sums[0], begin);
                    if S == 1 && w.add {
                        sum = _mm512_add_ps(_mm512_maskz_loadu_ps(written, at), sum);
                    }
                    store::<S>(sum, at, apart[1], written);
                    soon(ahead.0);
                    soon(ahead.1);
                    ahead = (ahead.0.wrapping_add(LANES), ahead.1.wrapping_add(LANES));
                }
                sums = std::array::from_fn(|a| if a + 1 < K { sums[a + 1] } else { zero });
            }
        }
    }
}

/// The rows of the window from number `top` on, as many as `A`.
///
/// # Safety
/// The processor has AVX-512, and there are `S` planes of either side.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq")]
unsafe fn meet<const K: usize, const S: usize, const A: usize>(
    d: &Depthwise,
    top: usize,
    from: *const f32,
    dy: *const f32,
    (images, next): (usize, [usize; 2]),
    out: &mut Taps,
) {
    let (Depthwise { from: [height, width], to: [rows, columns], before, .. }, apart) = (*d, d.planes());
    let zero = _mm512_setzero_ps();
    // SAFETY: the caller's promise; and pixels that are not there are not touched.
    unsafe {
        let begin = Seen::<K, S>::new(d, 0);
        // Small planes are so little that their sums stay in registers, from what images before these have left on: so it does
        // not matter which images lie beside each other.
        let stay = S > 1;
        let mut sums = [[zero; K]; A];
        for (sum, out) in sums.as_flattened_mut().iter_mut().zip(&out[top * K..]).filter(|_| stay) {
            *sum = _mm512_loadu_ps(out.as_ptr());
        }
        for image in 0..images {
            let (from, dy) = (from.wrapping_add(image * next[0]), dy.wrapping_add(image * next[1]));
            let mut ahead = (from.wrapping_add(next[0]), dy.wrapping_add(next[1]));
            for first in (0..columns).step_by(LANES / S) {
                let seen = if first == 0 { begin } else { Seen::new(d, first) };
                let there = masks::<S>(0, columns - first);
                // Rows q − a of the other side.
                let mut held = [zero; A];
                for q in 0..rows + A - 1 {
                    let newest = if q < rows {
                        load(dy.wrapping_add(q * columns + first), apart[1], there)
                    } else {
                        zero
                    };
                    held = std::array::from_fn(|a| if a > 0 { held[a - 1] } else { newest });
                    let i = (q + top).wrapping_sub(before[0]);
                    if i < height {
                        let row = seen.row(from.wrapping_add(i * width), apart[0]);
                        for (b, x) in row.into_iter().enumerate() {
                            for a in 0..A {
                                sums[a][b] = _mm512_fmadd_ps(held[a], x, sums[a][b]);
                            }
                        }
                        soon(ahead.0);
                        soon(ahead.1);
                        ahead = (ahead.0.wrapping_add(LANES), ahead.1.wrapping_add(LANES));
                    }
                }
            }
            if stay && image + 1 < images {
                continue;
            }
            for (out, sum) in out[top * K..].iter_mut().zip(sums.as_flattened_mut()) {
                let out = out.as_mut_ptr();
                let all = if stay { *sum } else { _mm512_add_ps(_mm512_loadu_ps(out), *sum) };
                _mm512_storeu_ps(out, all);
                *sum = zero;
            }
        }
    }
}

/// Windows of five rows have more sums than there are registers, so they take two turns.
///
/// # Safety
/// The processor has AVX-512, and there are `S` planes of either side.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq")]
unsafe fn meet_five<const S: usize>(
    d: &Depthwise,
    from: *const f32,
    dy: *const f32,
    (images, next): (usize, [usize; 2]),
    out: &mut Taps,
) {
    for image in 0..images {
        let (from, dy) = (from.wrapping_add(image * next[0]), dy.wrapping_add(image * next[1]));
        // SAFETY: the caller's promise.
        unsafe {
            meet::<5, S, 3>(d, 0, from, dy, (1, next), out);
            meet::<5, S, 2>(d, 3, from, dy, (1, next), out);
        }
    }
}

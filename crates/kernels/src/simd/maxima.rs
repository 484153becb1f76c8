//! The inner loop of the gradient of a maximum over windows of stride 1, straight from image to image.
//!
//! A vector is some neighbouring windows of a row, or the same row of several small planes side by side. Going down the
//! rows, the largest pixel of each row of a window is found once, and stays in a register while windows cover the row;
//! so does what falls to it of the gradients of windows. Which column of the window it is in is a mask of lanes for each,
//! and what fell to a row that no window covers any more is divided by these masks and moved to its pixels. The lanes of
//! windows at the end of a vector that give to pixels beyond it are computed once more with the next.
//!
//! Pixels are compared as whole numbers in the same order, because more units of the processor do that; less than all of
//! them is what lies beside the plane.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use super::depthwise::LANES;
#[cfg(target_arch = "x86_64")]
use super::depthwise::{load, masks, soon, store};
use super::{Level, level};

/// Whole numbers that have room: those of a plane with what lies beside it stay in the first-level cache.
const ROOM: usize = 8192;

/// The pixels of a plane as whole numbers, or those of some side by side.
#[repr(align(64))]
pub struct Keys([i32; ROOM]);

impl Default for Keys {
    fn default() -> Keys {
        Keys([i32::MIN; ROOM])
    }
}

/// Planes with a window for every place that one fits, some columns and rows of which may lie beside the plane.
#[derive(Clone, Copy, Debug)]
pub struct Maxima {
    /// Rows and columns of a plane.
    pub from: [usize; 2],
    /// Rows and columns of windows.
    pub to: [usize; 2],
    /// Rows above a plane that windows cover, and columns left of it.
    pub before: [usize; 2],
    /// Rows of a window, and columns.
    pub window: usize,
}

impl Maxima {
    /// Whether there is a loop for it: with these vectors, and windows of three by three or five by five, all of which see
    /// some of the plane, which is not too large.
    pub fn applies(&self) -> bool {
        let seen = (0..2).all(|axis| {
            let (from, to, before) = (self.from[axis], self.to[axis], self.before[axis]);
            // So many pixels beyond the end do windows cover.
            let after = (to + self.window).checked_sub(1 + from + before);
            from > 0 && before < self.window && after.is_some_and(|after| after < self.window)
        });
        let room = self.from[0] * (self.from[1] + self.window - 1).max(LANES) + 4 * LANES;
        level() == Level::Avx512 && matches!(self.window, 3 | 5) && seen && room <= ROOM
    }

    /// How many planes are computed at once, side by side in vectors.
    pub fn together(&self) -> usize {
        match self.from[1].max(self.to[1]) {
            0..=4 => 4,
            5..=8 => 2,
            _ => 1,
        }
    }

    fn planes(&self) -> [usize; 2] {
        [self.from, self.to].map(|[rows, columns]| rows * columns)
    }

    /// Gives the gradient of every window of some planes, so many at once, to the first of its largest pixels. Returns how many
    /// times this was done: less than to the end where a pixel is not a number, because such windows are not for this loop.
    /// `keys` have served as many planes of this kind at once, or none.
    pub fn slopes(&self, planes: usize, x: &[f32], dy: &[f32], dx: &mut [f32], keys: &mut Keys) -> usize {
        let [from, to] = self.planes().map(|size| planes * size);
        let times = x.len() / from;
        assert!(self.applies(), "windows that there is a loop for");
        assert!(
            x.len() == times * from && dx.len() == x.len() && dy.len() == times * to,
            "all planes are there"
        );
        assert!(planes == 1 || planes == self.together(), "planes that fit a vector");
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has these vectors, and all planes are there.
        unsafe {
            let (x, dy, dx) = (x.as_ptr(), dy.as_ptr(), dx.as_mut_ptr());
            let vectors = |of: usize| of * self.from[1].div_ceil(of * LANES + 1 - self.window);
            let wide = vectors(2) <= vectors(1);
            match (self.window, planes) {
                (3, 1) if wide => slopes::<3, 1, 2>(self, times, x, dy, dx, keys),
                (3, 1) => slopes::<3, 1, 1>(self, times, x, dy, dx, keys),
                (3, 2) => slopes::<3, 2, 1>(self, times, x, dy, dx, keys),
                (3, 4) => slopes::<3, 4, 1>(self, times, x, dy, dx, keys),
                (5, 1) if wide => slopes::<5, 1, 2>(self, times, x, dy, dx, keys),
                (5, 1) => slopes::<5, 1, 1>(self, times, x, dy, dx, keys),
                (5, 2) => slopes::<5, 2, 1>(self, times, x, dy, dx, keys),
                (5, 4) => slopes::<5, 4, 1>(self, times, x, dy, dx, keys),
                other => unreachable!("windows and planes of {other:?}"),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        return 0;
    }
}

/// Numbers as whole ones in the same order, and their magnitudes. Both zeros are the same.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn ordered(x: __m512) -> [__m512i; 2] {
    let bits = _mm512_castps_si512(x);
    let magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(i32::MAX));
    let below = _mm512_movepi32_mask(bits);
    [_mm512_mask_sub_epi32(magnitude, below, _mm512_setzero_si512(), magnitude), magnitude]
}

/// Where the first pixel of the first row is, and how far rows are apart: behind each there are as many columns beside the
/// plane as windows can cover. Planes side by side have a vector for each row.
#[cfg(target_arch = "x86_64")]
fn places<const K: usize, const S: usize>(width: usize) -> (usize, usize) {
    if S == 1 { (K - 1, width + K - 1) } else { (0, LANES) }
}

/// Lays the pixels of `S` planes out as whole numbers; returns whether all are numbers.
///
/// # Safety
/// The processor has AVX-512, and there are `S` planes, for which the keys have room.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn order<const K: usize, const S: usize>(p: &Maxima, x: *const f32, keys: *mut i32) -> bool {
    let ([height, width], (first, stride)) = (p.from, places::<K, S>(p.from[1]));
    let mut largest = _mm512_setzero_si512();
    for r in 0..height {
        let (row, to) = (x.wrapping_add(r * width), keys.wrapping_add(first + r * stride));
        let mut at = 0;
        loop {
            // The last vector ends where the row does, where it is as long.
            let whole = S == 1 && width >= LANES;
            let from = if whole { at.min(width - LANES) } else { at };
            let to = to.wrapping_add(from);
            // SAFETY: the caller's promise; and lanes beside the masks are not touched.
            unsafe {
                if whole {
                    let [key, magnitude] = ordered(_mm512_loadu_ps(row.wrapping_add(from)));
                    largest = _mm512_max_epi32(largest, magnitude);
                    _mm512_storeu_si512(to.cast(), key);
                } else {
                    let all = masks::<S>(0, width - from);
                    let mask = all.iter().fold(0, |mask, one| mask | one);
                    let [key, magnitude] = ordered(load(row.wrapping_add(from), p.planes()[0], all));
                    largest = _mm512_max_epi32(largest, magnitude);
                    match mask {
                        u16::MAX => _mm512_storeu_si512(to.cast(), key),
                        _ => _mm512_mask_storeu_epi32(to, mask, key),
                    }
                }
            }
            at = from + LANES;
            if at >= width {
                break;
            }
        }
    }
    // Beyond the infinite are those that are no numbers.
    _mm512_cmpgt_epi32_mask(largest, _mm512_set1_epi32(0x7f80_0000)) == 0
}

/// Two vectors as one: the larger, and where that is the second because it is greater.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
fn larger(a: __m512i, b: __m512i) -> (__m512i, u16) {
    (_mm512_max_epi32(a, b), _mm512_cmpgt_epi32_mask(b, a))
}

/// Two vectors as one.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Pair {
    best: __m512i,
    /// Where the second is greater.
    later: u16,
}

#[cfg(target_arch = "x86_64")]
impl Pair {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(a: __m512i, b: __m512i) -> Pair {
        let (best, later) = larger(a, b);
        Pair { best, later }
    }

    /// Adds gradients to the sums of the first or of the second.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    fn give<const K: usize>(self, dy: __m512, sums: &mut [__m512; K], places: [usize; 2]) {
        // The rest of them rather than another mask, of which there are few.
        let second = _mm512_maskz_mov_ps(self.later, dy);
        sums[places[0]] = _mm512_add_ps(sums[places[0]], _mm512_xor_ps(dy, second));
        sums[places[1]] = _mm512_add_ps(sums[places[1]], second);
    }
}

/// Which of `K` vectors has the first of the largest numbers, by lanes: whether it is the second of the first pair, or of the
/// other; whether the other pair has it rather than the first, and whether the last vector has it rather than those. Three
/// vectors have one pair.
#[cfg(target_arch = "x86_64")]
type Peak = [u16; 4];

/// The largest of `K` vectors.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
fn largest<const K: usize>(a: Pair, b: Pair, last: __m512i) -> (__m512i, Peak) {
    let (both, other) = if K == 3 { (a.best, 0) } else { larger(a.best, b.best) };
    let (best, end) = larger(both, last);
    (best, [a.later, b.later, other, end])
}

/// The last `K` rows of a vector of windows: row number q is in place q % K.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Rows<const K: usize> {
    /// The largest pixels of rows.
    tops: [__m512i; K],
    /// Of each row, the two before it.
    pairs: [Pair; K],
    /// The gradients of rows.
    sums: [__m512; K],
}

#[cfg(target_arch = "x86_64")]
impl<const K: usize> Rows<K> {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new() -> Rows<K> {
        let least = _mm512_set1_epi32(i32::MIN);
        let pair = Pair { best: least, later: 0 };
        Rows { tops: [least; K], pairs: [pair; K], sums: [_mm512_setzero_ps(); K] }
    }

    /// The next row, in place `P`, which has these largest pixels.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn enter<const P: usize>(&mut self, top: __m512i) {
        self.pairs[P] = Pair::new(self.tops[(P + K - 2) % K], self.tops[(P + K - 1) % K]);
        self.tops[P] = top;
        self.sums[P] = _mm512_setzero_ps();
    }

    /// Gives the gradients of a row of windows, the last row of which is in place `P`, to the rows that have the largest
    /// pixels.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    fn choose<const P: usize>(&mut self, dy: __m512) {
        let (zero, late) = (_mm512_setzero_ps(), self.pairs[P]);
        let early = if K == 3 { late } else { self.pairs[(P + K - 2) % K] };
        let (_, [.., other, end]) = largest::<K>(early, late, self.tops[P]);
        // Nothing has been given to the last row before.
        self.sums[P] = _mm512_maskz_mov_ps(end, dy);
        // Gradients are divided rather than masks, which fewer units can.
        let mut dy = _mm512_mask_mov_ps(dy, end, zero);
        if K == 5 {
            let dy_late = _mm512_maskz_mov_ps(other, dy);
            dy = _mm512_mask_mov_ps(dy, other, zero);
            late.give(dy_late, &mut self.sums, [(P + K - 2) % K, (P + K - 1) % K]);
        }
        early.give(dy, &mut self.sums, [(P + 1) % K, (P + 2) % K]);
    }
}

/// The taps of a row's largest pixels: of up to two vectors side by side.
#[cfg(target_arch = "x86_64")]
type Taps = [[u16; 2]; 4];

/// The gradients of windows, by the taps that they are given to.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn divide<const K: usize>(dy: __m512, [first, second, other, end]: Peak) -> [__m512; K] {
    // Where a mask is, and where it is not.
    let part = |dy: __m512, mask: u16| {
        let yes = _mm512_maskz_mov_ps(mask, dy);
        [_mm512_xor_ps(dy, yes), yes]
    };
    let [rest, last] = part(dy, end);
    let mut parts = [last; K];
    let [early, late] = if K == 5 { part(rest, other) } else { [rest, rest] };
    [parts[0], parts[1]] = part(early, first);
    if K == 5 {
        [parts[2], parts[3]] = part(late, second);
    }
    parts
}

/// For every pixel the window that has it as tap `b`, of two vectors of windows one behind the other: the first window that
/// has the first pixel has it as its last.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
fn later<const K: usize>(b: usize, low: __m512, high: __m512) -> __m512 {
    let [low, high] = [_mm512_castps_si512(low), _mm512_castps_si512(high)];
    _mm512_castsi512_ps(match K - 1 - b {
        0 => low,
        1 => _mm512_alignr_epi32::<1>(high, low),
        2 => _mm512_alignr_epi32::<2>(high, low),
        3 => _mm512_alignr_epi32::<3>(high, low),
        _ => _mm512_alignr_epi32::<4>(high, low),
    })
}

/// Lanes in order, so much further.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
fn lanes_from(first: isize) -> __m512i {
    let lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    _mm512_add_epi32(lanes, _mm512_set1_epi32(first as i32))
}

/// `V` vectors of windows at a time, or one of the windows of `S` planes.
///
/// # Safety
/// The processor has AVX-512, and there are so many times `S` planes of all three; the keys have room for these.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq")]
unsafe fn slopes<const K: usize, const S: usize, const V: usize>(
    p: &Maxima,
    times: usize,
    x: *const f32,
    dy: *const f32,
    dx: *mut f32,
    keys: &mut Keys,
) -> usize {
    let (Maxima { from: [height, width], to: [rows, columns], before, .. }, apart) = (*p, p.planes());
    let (zero, least) = (_mm512_setzero_ps(), _mm512_set1_epi32(i32::MIN));
    // Pixels that windows give all gradients to: of planes side by side all of them.
    let pitch = if S == 1 { V * LANES + 1 - K } else { LANES / S };
    // Pixel number i is tap b of window number i + turn − b.
    let turn = if S == 1 { K - 1 } else { before[1] };
    let back: [__m512i; K] = std::array::from_fn(|b| lanes_from(turn as isize - b as isize));
    // Of planes side by side, where taps come from.
    let taken: [__m512i; K] = std::array::from_fn(|b| lanes_from(b as isize - turn as isize));
    let inside: [u16; K] = std::array::from_fn(|b| {
        masks::<S>(b as isize - turn as isize, width).iter().fold(0, |mask, one| mask | one)
    });
    let (begin, stride) = places::<K, S>(width);
    for time in 0..times {
        let [from, to] = apart.map(|plane| time * S * plane);
        let (x, dy, dx) = (x.wrapping_add(from), dy.wrapping_add(to), dx.wrapping_add(from));
        let mut ahead = 0;
        // SAFETY: the caller's promise; and pixels that the masks leave out are not touched.
        unsafe {
            if !order::<K, S>(p, x, keys.0.as_mut_ptr()) {
                return time;
            }
            for first in (0..width).step_by(pitch) {
                let left = first as isize - turn as isize;
                let place = left + before[1] as isize;
                let there: [[u16; S]; V] =
                    std::array::from_fn(|v| masks(place + (v * LANES) as isize, columns));
                // What is written beyond the pitch is written again with the next.
                let written: [u16; V] =
                    std::array::from_fn(|v| masks::<S>(0, width.saturating_sub(first + v * LANES))[0]);
                let mut all = [Rows::<K>::new(); V];
                let (mut taps, mut q) = ([Taps::default(); K], 0);
                // One row after the other, each with its place known to the compiler: nothing moves from place to place.
                macro_rules! row {
                ($place:literal) => {
                    if $place < K {
                        const P: usize = $place;
                        let i = q.wrapping_sub(before[0]);
                        let mut tops = [least; V];
                        if i < height {
                            let row = keys.0.as_ptr().wrapping_add(begin + i * stride);
                            for (v, top) in tops.iter_mut().enumerate() {
                                let mut pixels = [least; K];
                                for (b, pixels) in pixels.iter_mut().enumerate() {
                                    *pixels = if S == 1 {
                                        let at = row.wrapping_offset(left).wrapping_add(b + v * LANES);
                                        _mm512_loadu_si512(at.cast())
                                    } else {
                                        let all = _mm512_loadu_si512(row.cast());
                                        _mm512_mask_permutexvar_epi32(least, inside[b], taken[b], all)
                                    };
                                }
                                let a = Pair::new(pixels[0], pixels[1]);
                                let b = Pair::new(pixels[K - 3], pixels[K - 2]);
                                let peak;
                                (*top, peak) = largest::<K>(a, b, pixels[K - 1]);
                                taps[P].iter_mut().zip(peak).for_each(|(taps, peak)| taps[v] = peak);
                            }
                        }
                        for (rows, top) in all.iter_mut().zip(tops) {
                            rows.enter::<P>(top);
                        }
                        let r = q.wrapping_sub(K - 1);
                        if r < rows {
                            let dy = dy.wrapping_add(r * columns).wrapping_offset(place);
                            for (v, rows) in all.iter_mut().enumerate() {
                                // The first-level cache is asked for gradients some rows ahead: they were waited for.
                                _mm_prefetch::<_MM_HINT_T0>(dy.wrapping_add(4 * columns + v * LANES).cast());
                                rows.choose::<P>(load(dy.wrapping_add(v * LANES), apart[1], there[v]));
                            }
                        }
                        let r = r.wrapping_sub(before[0]);
                        if r < height {
                            // The oldest row is where the next will be.
                            let oldest = (P + 1) % K;
                            let taps = taps[oldest];
                            let mut parts = [[zero; K]; V];
                            for (v, parts) in parts.iter_mut().enumerate() {
                                *parts = divide::<K>(all[v].sums[oldest], taps.map(|tap| tap[v]));
                            }
                            for v in 0..V {
                                let mut given = [zero; K];
                                for (b, given) in given.iter_mut().enumerate() {
                                    let [low, high] = [parts[v][b], parts[(v + 1).min(V - 1)][b]];
                                    *given = if S == 1 {
                                        later::<K>(b, low, high)
                                    } else {
                                        _mm512_permutexvar_ps(back[b], low)
                                    };
                                }
                                // Not one after the other: each would wait for the one before.
                                let mut out = _mm512_add_ps(given[0], given[1]);
                                if K == 5 {
                                    out = _mm512_add_ps(out, _mm512_add_ps(given[2], given[3]));
                                }
                                out = _mm512_add_ps(out, given[K - 1]);
                                let at = dx.wrapping_add(r * width + first + v * LANES);
                                match (S, written[v]) {
                                    (1, u16::MAX) => _mm512_storeu_ps(at, out),
                                    (_, mask) => store::<S>(out, at, apart[0], mask),
                                }
                                soon(x.wrapping_add(S * apart[0] + ahead));
                                soon(dy.wrapping_add(S * apart[1] + ahead));
                                soon(dx.cast_const().wrapping_add(S * apart[0] + ahead));
                                ahead += LANES;
                            }
                        }
                        q += 1;
                    }
                };
            }
                while q < height + before[0] + K - 1 {
                    row!(0);
                    row!(1);
                    row!(2);
                    row!(3);
                    row!(4);
                }
            }
        }
    }
    times
}

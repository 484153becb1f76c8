//! Moving numbers into and out of vectors: gathering the pixels that windows see, exchanging rows and columns, and
//! laying rows out anew.

#[cfg(target_arch = "x86_64")]
use super::depthwise::soon;
use super::{Level, Tile, level};

/// Where the numbers of up to two vectors come from: each run fills some lanes from neighbouring positions, and lanes
/// without a run are zero.
pub struct Runs {
    runs: [Run; 64],
    /// How many runs the first vector has, and how many both have.
    ends: [usize; 2],
    /// The distance of the positions of neighbouring lanes.
    step: usize,
    /// The first position that is touched, and one beyond the last.
    touched: (isize, isize),
}

#[derive(Clone, Copy)]
struct Run {
    /// The lanes that it fills.
    mask: u32,
    /// The same with a gap after each.
    spread: u32,
    /// The position that lane 0 would come from.
    origin: isize,
}

/// Puts a gap after each of 16 bits.
fn spread(bits: u32) -> u32 {
    let bits = (bits | bits << 8) & 0x00ff_00ff;
    let bits = (bits | bits << 4) & 0x0f0f_0f0f;
    let bits = (bits | bits << 2) & 0x3333_3333;
    (bits | bits << 1) & 0x5555_5555
}

impl Runs {
    /// No lane filled.
    pub fn new(step: usize) -> Runs {
        let none = Run { mask: 0, spread: 0, origin: 0 };
        Runs { runs: [none; 64], ends: [0; 2], step, touched: (isize::MAX, 0) }
    }

    /// Forgets all runs.
    pub fn clear(&mut self) {
        self.ends = [0; 2];
        self.touched = (isize::MAX, 0);
    }

    /// Fills `count` lanes from `lane` on, from position `from` on; lanes come in order.
    pub fn push(&mut self, lane: usize, count: usize, from: usize) {
        let lanes = Tile::here().lanes;
        let (mut lane, mut count, mut from) = (lane, count, from as isize);
        self.touched.0 = self.touched.0.min(from);
        self.touched.1 = self.touched.1.max(from + ((count - 1) * self.step) as isize + 1);
        while count > 0 {
            let (vector, inside) = (lane / lanes, lane % lanes);
            let some = count.min(lanes - inside);
            let mask = ((1u32 << some) - 1) << inside;
            let origin = from - (inside * self.step) as isize;
            let begin = if vector == 0 { 0 } else { self.ends[0] };
            match self.runs[begin..self.ends[1]].last_mut() {
                Some(last) if last.origin == origin => {
                    last.mask |= mask;
                    last.spread |= spread(mask);
                }
                _ => {
                    self.runs[self.ends[1]] = Run { mask, spread: spread(mask), origin };
                    self.ends[1] += 1;
                    if vector == 0 {
                        self.ends[0] = self.ends[1];
                    }
                }
            }
            lane += some;
            count -= some;
            from += (some * self.step) as isize;
        }
    }

    /// Fills `vectors` vectors at `out[i * stride..]`, with positions counted from `from[i * plane..]`, for every i below
    /// `planes`.
    pub fn gather(
        &self,
        vectors: usize,
        (from, plane, planes): (&[f32], usize, usize),
        (out, stride): (&mut [f32], usize),
    ) {
        let lanes = Tile::here().lanes;
        if planes == 0 {
            return;
        }
        let reach = (planes - 1) * plane + self.touched.1 as usize;
        assert!(self.touched.0 >= 0 && reach <= from.len(), "runs stay within the planes");
        assert!(out.len() >= (planes - 1) * stride + vectors * lanes, "room for the vectors");
        match level() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has these vectors, and all positions were checked.
            Level::Avx512 => unsafe {
                self.gather_avx512(vectors, from.as_ptr(), plane, planes, out.as_mut_ptr(), stride);
            },
            _ => {
                for i in 0..planes {
                    let (from, out) = (&from[i * plane..], &mut out[i * stride..][..vectors * lanes]);
                    out.fill(0.0);
                    for (vector, out) in out.chunks_exact_mut(lanes).enumerate() {
                        let begin = if vector == 0 { 0 } else { self.ends[0] };
                        for run in &self.runs[begin..self.ends[vector]] {
                            for (lane, out) in
                                out.iter_mut().enumerate().filter(|(l, _)| run.mask >> l & 1 == 1)
                            {
                                *out = from[(run.origin + (lane * self.step) as isize) as usize];
                            }
                        }
                    }
                }
            }
        }
    }

    /// # Safety
    /// The processor has AVX-512, and the positions are as [`Runs::gather`] checks them.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    unsafe fn gather_avx512(
        &self,
        vectors: usize,
        from: *const f32,
        plane: usize,
        planes: usize,
        out: *mut f32,
        stride: usize,
    ) {
        use std::arch::x86_64::*;
        let lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        let positions = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(self.step as i32));
        let evens = _mm512_add_epi32(lanes, lanes);
        for vector in 0..vectors {
            let begin = if vector == 0 { 0 } else { self.ends[0] };
            let runs = &self.runs[begin..self.ends[vector]];
            for i in 0..planes {
                let from = from.wrapping_add(i * plane);
                let mut v = _mm512_setzero_ps();
                if self.step == 1 {
                    for run in runs {
                        let at = from.wrapping_offset(run.origin);
                        // SAFETY: lanes of the mask are within the plane; the others are not touched.
                        v = unsafe { _mm512_mask_loadu_ps(v, run.mask as u16, at) };
                    }
                } else if self.step == 2 {
                    for run in runs {
                        let at = from.wrapping_offset(run.origin);
                        // SAFETY: as above, and half of the lanes are gaps.
                        let (low, high) = unsafe {
                            let high = _mm512_maskz_loadu_ps((run.spread >> 16) as u16, at.wrapping_add(16));
                            (_mm512_maskz_loadu_ps(run.spread as u16, at), high)
                        };
                        let even = _mm512_permutex2var_ps(low, evens, high);
                        v = _mm512_mask_mov_ps(v, run.mask as u16, even);
                    }
                } else {
                    for run in runs {
                        let at = from.wrapping_offset(run.origin);
                        // SAFETY: as above.
                        v = unsafe { _mm512_mask_i32gather_ps::<4>(v, run.mask as u16, positions, at) };
                    }
                }
                // SAFETY: the caller checked the room.
                unsafe { _mm512_storeu_ps(out.add(i * stride + vector * 16), v) };
            }
        }
    }
}

/// Numbers of a line that memory is asked for before they are turned.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 32;

/// Copies `lines` rows of `depth` numbers, `across` apart, as columns of a panel with rows of `stride`.
pub fn transpose(from: &[f32], across: usize, lines: usize, depth: usize, stride: usize, out: &mut [f32]) {
    for l in (0..lines).step_by(16) {
        let some = (lines - l).min(16);
        transpose_lines(&from[l * across..], across, some, depth, stride, &mut out[l..]);
    }
}

/// The same from memory to memory: of all lines some at a time, while memory is asked for what comes next.
pub fn transpose_far(
    from: &[f32],
    across: usize,
    lines: usize,
    depth: usize,
    stride: usize,
    out: &mut [f32],
) {
    for d in (0..depth).step_by(16) {
        #[cfg(target_arch = "x86_64")]
        (0..lines).for_each(|l| soon(from.as_ptr().wrapping_add(l * across + d + AHEAD)));
        let some = (depth - d).min(16);
        transpose(&from[d..], across, lines, some, stride, &mut out[d * stride..]);
    }
}

/// Up to 16 lines.
fn transpose_lines(from: &[f32], across: usize, lines: usize, depth: usize, stride: usize, out: &mut [f32]) {
    if lines == 0 || depth == 0 {
        return;
    }
    assert!(from.len() >= (lines - 1) * across + depth, "all lines are there");
    assert!(out.len() >= (depth - 1) * stride + lines, "room for the panel");
    match level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has these vectors, and the lengths were checked.
        Level::Avx512 => unsafe {
            for d in (0..depth).step_by(16) {
                let deep = (depth - d).min(16);
                let (from, out) = (from.as_ptr().add(d), out.as_mut_ptr().add(d * stride));
                let (from, to) = ((from, across), (out, stride));
                match (lines, deep) {
                    (16, 16) => transpose_avx512::<16, 16>(from, (16, 16), to),
                    // As many as there often are classes.
                    (16, 10) => transpose_avx512::<16, 10>(from, (16, 10), to),
                    (10, 16) => transpose_avx512::<10, 16>(from, (10, 16), to),
                    (16, _) => transpose_avx512::<16, 0>(from, (16, deep), to),
                    (_, 16) => transpose_avx512::<0, 16>(from, (lines, 16), to),
                    _ => transpose_avx512::<0, 0>(from, (lines, deep), to),
                }
            }
        },
        _ => {
            for (l, line) in from.chunks(across.max(1)).take(lines).enumerate() {
                for (d, number) in line[..depth].iter().enumerate() {
                    out[d * stride + l] = *number;
                }
            }
        }
    }
}

/// Exchanges rows and columns of a square of 16, or of what is there of it. `L` lines and depth `D` are what the compiler
/// knows of these, if not 0.
///
/// # Safety
/// The processor has AVX-512; there are `lines` rows of `depth` numbers, and `out` has `depth` rows of `lines`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq")]
unsafe fn transpose_avx512<const L: usize, const D: usize>(
    (from, across): (*const f32, usize),
    (lines, depth): (usize, usize),
    (out, stride): (*mut f32, usize),
) {
    use std::arch::x86_64::*;
    let (lines, depth) = (if L > 0 { L } else { lines }, if D > 0 { D } else { depth });
    let (deep, high) = (((1u32 << depth) - 1) as u16, ((1u32 << lines) - 1) as u16);
    // Half of one row and of another side by side.
    let half = |l: usize, right: usize| {
        let mask = (deep >> right) as u8;
        let row = |l: usize| {
            let from = from.wrapping_add(l * across + right);
            // SAFETY: the caller's promise; lanes beyond the depth are not touched.
            unsafe {
                match (l < lines, D == 16) {
                    (true, true) => _mm256_loadu_ps(from),
                    (true, false) => _mm256_maskz_loadu_ps(mask, from),
                    (false, _) => _mm256_setzero_ps(),
                }
            }
        };
        _mm512_insertf32x8::<1>(_mm512_castps256_ps512(row(l)), row(l + 4))
    };
    let low = |a, b| _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
    let top = |a, b| _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
    let mut t = [_mm512_setzero_ps(); 16];
    for right in [0, 8] {
        // Rows come in fours, of which the first and the second four share vectors, and so do the others.
        let four = |first: usize| {
            let r: [__m512; 4] = std::array::from_fn(|l| half(first + l, right));
            let (a, b) = (_mm512_unpacklo_ps(r[0], r[1]), _mm512_unpackhi_ps(r[0], r[1]));
            let (c, d) = (_mm512_unpacklo_ps(r[2], r[3]), _mm512_unpackhi_ps(r[2], r[3]));
            [low(a, c), top(a, c), low(b, d), top(b, d)]
        };
        let (above, below) = (four(0), four(8));
        for k in 0..4 {
            t[right + k] = _mm512_shuffle_f32x4::<0x88>(above[k], below[k]);
            t[right + 4 + k] = _mm512_shuffle_f32x4::<0xdd>(above[k], below[k]);
        }
    }
    let mut to = out;
    for (d, t) in t.iter().enumerate() {
        if d < depth {
            // SAFETY: the caller's promise; lanes beyond the lines are not touched.
            unsafe {
                match L == 16 {
                    true => _mm512_storeu_ps(to, *t),
                    false => _mm512_mask_storeu_ps(to, high, *t),
                }
            }
        }
        to = to.wrapping_add(stride);
    }
}

/// The first so many lanes of a vector of 16.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn lanes(count: usize) -> u16 {
    if count < 16 { (1u16 << count) - 1 } else { u16::MAX }
}

/// How numbers are copied by [`lay`]: blocks of rows of numbers, each of which comes from and goes to somewhere.
#[derive(Clone, Copy)]
pub struct Layout {
    /// How many blocks there are, how many rows in a block, and how many numbers in a row.
    pub counts: [usize; 3],
    /// The distances of blocks, of rows and of numbers where they come from.
    pub from: [usize; 3],
    /// The distances of blocks and of rows where they go; numbers go side by side.
    pub to: [usize; 2],
}

/// Copies numbers with `plus` added.
pub fn lay(layout: Layout, from: &[f32], plus: f32, to: &mut [f32]) {
    let Layout { counts: [blocks, rows, count], from: [apart, across, step], to: [away, stride] } = layout;
    if blocks == 0 || rows == 0 || count == 0 {
        return;
    }
    let last = (blocks - 1) * apart + (rows - 1) * across + (count - 1) * step;
    assert!(from.len() > last, "all numbers are there");
    assert!(to.len() >= (blocks - 1) * away + (rows - 1) * stride + count, "room for all rows");
    match (level(), step) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has these vectors, and the lengths were checked.
        (Level::Avx512, 1) => unsafe { lay_avx512::<1>(layout, from.as_ptr(), plus, to.as_mut_ptr()) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        (Level::Avx512, 2) => unsafe { lay_avx512::<2>(layout, from.as_ptr(), plus, to.as_mut_ptr()) },
        _ => {
            for (m, r) in (0..blocks).flat_map(|m| (0..rows).map(move |r| (m, r))) {
                let from = from[m * apart + r * across..].iter().step_by(step);
                let to = &mut to[m * away + r * stride..][..count];
                to.iter_mut().zip(from).for_each(|(to, from)| *to = from + plus);
            }
        }
    }
}

/// The same from two sources in turn, whose rows are so far apart: number i of row r comes from number i / 2 of row r of
/// `pair[i % 2]`.
pub fn lay_pairs(
    pair: [(&[f32], usize); 2],
    (rows, count): (usize, usize),
    plus: f32,
    (to, stride): (&mut [f32], usize),
) {
    if rows == 0 || count == 0 {
        return;
    }
    let all = |(one, across): (&[f32], usize), count: usize| one.len() >= (rows - 1) * across + count;
    assert!(all(pair[0], count.div_ceil(2)) && all(pair[1], count / 2), "all numbers are there");
    assert!(to.len() >= (rows - 1) * stride + count, "room for all rows");
    match level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has these vectors, and the lengths were checked.
        Level::Avx512 => unsafe {
            let pair = pair.map(|(one, across)| (one.as_ptr(), across));
            lay_pairs_avx512(pair, (rows, count), plus, to.as_mut_ptr(), stride);
        },
        _ => {
            for r in 0..rows {
                let to = &mut to[r * stride..][..count];
                let from = |i: usize| pair[i % 2].0[r * pair[i % 2].1 + i / 2];
                to.iter_mut().enumerate().for_each(|(i, to)| *to = from(i) + plus);
            }
        }
    }
}

/// The other way: number i of a row goes to `pair[i % 2]`, side by side with those that went there before it. The numbers
/// of a row lie side by side where they come from.
pub fn lay_parted(layout: Layout, from: &[f32], pair: [&mut [f32]; 2]) {
    let Layout { counts: [blocks, rows, count], from: [apart, across, _], to: [away, stride] } = layout;
    if blocks == 0 || rows == 0 || count == 0 {
        return;
    }
    let last = (blocks - 1) * away + (rows - 1) * stride;
    assert!(from.len() >= (blocks - 1) * apart + (rows - 1) * across + count, "all numbers are there");
    let room = [count.div_ceil(2), count / 2].map(|some| last + some);
    assert!(pair[0].len() >= room[0] && pair[1].len() >= room[1], "room for all rows");
    let [even, odd] = pair;
    match level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has these vectors, and the lengths were checked.
        Level::Avx512 => unsafe {
            lay_parted_avx512(layout, from.as_ptr(), [even.as_mut_ptr(), odd.as_mut_ptr()]);
        },
        _ => {
            for (m, r) in (0..blocks).flat_map(|m| (0..rows).map(move |r| (m, r))) {
                let (from, to) = (&from[m * apart + r * across..][..count], m * away + r * stride);
                even[to..].iter_mut().zip(from.iter().step_by(2)).for_each(|(to, from)| *to = *from);
                odd[to..].iter_mut().zip(from[1..].iter().step_by(2)).for_each(|(to, from)| *to = *from);
            }
        }
    }
}

/// # Safety
/// The processor has AVX-512, and the lengths are as [`lay_parted`] checks them.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn lay_parted_avx512(layout: Layout, from: *const f32, pair: [*mut f32; 2]) {
    use std::arch::x86_64::*;
    let Layout { counts: [blocks, rows, count], from: [apart, across, _], to: [away, stride] } = layout;
    let parted = _mm512_set_epi32(15, 13, 11, 9, 7, 5, 3, 1, 14, 12, 10, 8, 6, 4, 2, 0);
    let rest = count % 16;
    if count == 16 {
        for m in 0..blocks {
            let mut from = from.wrapping_add(m * apart);
            let [mut even, mut odd] = pair.map(|one| one.wrapping_add(m * away));
            for _ in 0..rows {
                // SAFETY: the numbers of a row, and as many places.
                unsafe {
                    let both = _mm512_permutexvar_ps(parted, _mm512_loadu_ps(from));
                    _mm256_storeu_ps(even, _mm512_castps512_ps256(both));
                    _mm256_storeu_ps(odd, _mm512_extractf32x8_ps::<1>(both));
                }
                from = from.wrapping_add(across);
                (even, odd) = (even.wrapping_add(stride), odd.wrapping_add(stride));
            }
        }
        return;
    }
    for m in 0..blocks {
        for r in 0..rows {
            let from = from.wrapping_add(m * apart + r * across);
            let to = pair.map(|one| one.wrapping_add(m * away + r * stride));
            for at in (0..count - rest).step_by(16) {
                // SAFETY: the numbers of a row, and as many places.
                unsafe {
                    let both = _mm512_permutexvar_ps(parted, _mm512_loadu_ps(from.add(at)));
                    _mm256_storeu_ps(to[0].add(at / 2), _mm512_castps512_ps256(both));
                    _mm256_storeu_ps(to[1].add(at / 2), _mm512_extractf32x8_ps::<1>(both));
                }
            }
            if rest > 0 {
                let at = count - rest;
                // SAFETY: lanes beyond the ends are not touched.
                unsafe {
                    let both =
                        _mm512_permutexvar_ps(parted, _mm512_maskz_loadu_ps(lanes(rest), from.add(at)));
                    _mm512_mask_storeu_ps(to[0].wrapping_add(at / 2), lanes(rest.div_ceil(2)), both);
                    let odd = lanes(rest / 2) << 8;
                    _mm512_mask_storeu_ps(to[1].wrapping_add(at / 2).wrapping_sub(8), odd, both);
                }
            }
        }
    }
}

/// # Safety
/// The processor has AVX-512, and the lengths are as [`lay_pairs`] checks them.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn lay_pairs_avx512(
    pair: [(*const f32, usize); 2],
    (rows, count): (usize, usize),
    plus: f32,
    to: *mut f32,
    stride: usize,
) {
    use std::arch::x86_64::*;
    let first = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    let second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    let plus = _mm512_set1_ps(plus);
    for r in 0..rows {
        if count == 16 {
            // SAFETY: eight numbers of either.
            unsafe {
                let [a, b] = pair.map(|(one, across)| _mm256_loadu_ps(one.wrapping_add(r * across)));
                let both =
                    _mm512_permutex2var_ps(_mm512_castps256_ps512(a), first, _mm512_castps256_ps512(b));
                _mm512_storeu_ps(to.wrapping_add(r * stride), _mm512_add_ps(both, plus));
            }
            continue;
        }
        for at in (0..count).step_by(32) {
            let left = count - at;
            // SAFETY: lanes beyond the ends are not touched.
            unsafe {
                let from = pair.map(|(one, across)| one.wrapping_add(r * across + at / 2));
                let a = _mm512_maskz_loadu_ps(lanes(left.div_ceil(2)), from[0]);
                let b = _mm512_maskz_loadu_ps(lanes(left / 2), from[1]);
                let to = to.wrapping_add(r * stride + at);
                let numbers = _mm512_add_ps(_mm512_permutex2var_ps(a, first, b), plus);
                _mm512_mask_storeu_ps(to, lanes(left), numbers);
                let mask = lanes(left.saturating_sub(16));
                if mask != 0 {
                    let numbers = _mm512_add_ps(_mm512_permutex2var_ps(a, second, b), plus);
                    _mm512_mask_storeu_ps(to.wrapping_add(16), mask, numbers);
                }
            }
        }
    }
}

/// Columns of which it is known beforehand what is touched.
const COLUMNS: usize = 128;

/// # Safety
/// The processor has AVX-512, and the lengths are as [`lay`] checks them.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn lay_avx512<const S: usize>(layout: Layout, from: *const f32, plus: f32, to: *mut f32) {
    use std::arch::x86_64::*;
    let Layout { counts: [blocks, rows, count], from: [apart, across, _], to: [away, stride] } = layout;
    let evens = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    let plus = _mm512_set1_ps(plus);
    let one = |from: *const f32, to: *mut f32, masks: [u16; 3]| {
        // SAFETY: lanes beyond the ends are not touched.
        unsafe {
            let low = _mm512_maskz_loadu_ps(masks[0], from);
            let numbers = if S == 1 {
                low
            } else {
                let high = _mm512_maskz_loadu_ps(masks[1], from.wrapping_add(16));
                _mm512_permutex2var_ps(low, evens, high)
            };
            _mm512_mask_storeu_ps(to, masks[2], _mm512_add_ps(numbers, plus));
        }
    };
    let masks = |at: usize| {
        let left = count - at;
        // The last number that is wanted is the last that is touched.
        let touched = S * (left - 1) + 1;
        [lanes(touched), lanes(touched.saturating_sub(16)), lanes(left)]
    };
    if S == 1 && (4..=16).contains(&count) {
        for m in 0..blocks {
            let (from, to) = (from.wrapping_add(m * apart), to.wrapping_add(m * away));
            for r in 0..rows {
                let (from, to) = (from.wrapping_add(r * across), to.wrapping_add(r * stride));
                // SAFETY: both ends are within the row; the caller's promise.
                unsafe { short(count, from, _mm512_castps512_ps256(plus), to) };
            }
        }
        return;
    }
    if S == 1 && count > 16 {
        let rest = count % 16;
        for m in 0..blocks {
            for r in 0..rows {
                let from = from.wrapping_add(m * apart + r * across);
                let to = to.wrapping_add(m * away + r * stride);
                // SAFETY: the numbers of a row; where they are no whole vectors, the last one sees some of them twice.
                unsafe {
                    for at in (0..count - rest).step_by(16) {
                        _mm512_storeu_ps(to.add(at), _mm512_add_ps(_mm512_loadu_ps(from.add(at)), plus));
                    }
                    if rest > 0 {
                        let at = count - 16;
                        _mm512_storeu_ps(to.add(at), _mm512_add_ps(_mm512_loadu_ps(from.add(at)), plus));
                    }
                }
            }
        }
        return;
    }
    // What depends on the column is worked out once.
    let mut known = [[0u16; 3]; COLUMNS / 16];
    known.iter_mut().zip((0..count).step_by(16)).for_each(|(known, at)| *known = masks(at));
    for m in 0..blocks {
        let (from, to) = (from.wrapping_add(m * apart), to.wrapping_add(m * away));
        if count <= 16 * S {
            for at in (0..count).step_by(16) {
                let (from, to, masks) = (from.wrapping_add(at * S), to.wrapping_add(at), known[at / 16]);
                (0..rows)
                    .for_each(|r| one(from.wrapping_add(r * across), to.wrapping_add(r * stride), masks));
            }
            continue;
        }
        for r in 0..rows {
            let (from, to) = (from.wrapping_add(r * across), to.wrapping_add(r * stride));
            for at in (0..count).step_by(16) {
                let masks = known.get(at / 16).copied().unwrap_or_else(|| masks(at));
                one(from.wrapping_add(at * S), to.wrapping_add(at), masks);
            }
        }
    }
}

/// Copies a row of 4 to 16 numbers with something added: its beginning and its end, which may overlap. Pools of small maps
/// were measured to be faster so than with one store of some lanes; longer rows were not.
///
/// # Safety
/// The processor has AVX, and so many numbers are there and have room.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[inline]
unsafe fn short(count: usize, from: *const f32, plus: std::arch::x86_64::__m256, to: *mut f32) {
    use std::arch::x86_64::*;
    // SAFETY: the caller's promise.
    unsafe {
        if count >= 8 {
            let (a, b) = (_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(count - 8)));
            _mm256_storeu_ps(to, _mm256_add_ps(a, plus));
            if count > 8 {
                _mm256_storeu_ps(to.add(count - 8), _mm256_add_ps(b, plus));
            }
        } else {
            let plus = _mm256_castps256_ps128(plus);
            let (a, b) = (_mm_loadu_ps(from), _mm_loadu_ps(from.add(count - 4)));
            _mm_storeu_ps(to, _mm_add_ps(a, plus));
            _mm_storeu_ps(to.add(count - 4), _mm_add_ps(b, plus));
        }
    }
}

/// Asks for numbers that will be read soon.
#[inline]
pub fn fetch(numbers: &[f32]) {
    for line in numbers.chunks(16) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which touches nothing.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }
}

/// Asks the second-level cache for numbers that will be wanted later.
#[inline]
pub fn foresee<T>(numbers: &[T]) {
    second_level(numbers.as_ptr().cast(), size_of_val(numbers));
}

/// The same for so many numbers that will be read or written: the second-level cache is near enough until then, and the
/// first has room for others.
#[inline]
pub fn fetch_early(at: *const f32, count: usize) {
    second_level(at.cast(), count * size_of::<f32>());
}

/// Asks the second-level cache for so many bytes.
#[inline]
fn second_level(at: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which touches nothing.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T1>(at.wrapping_add(line).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (at, line);
    }
}

/// Asks for memory that will be written soon.
#[inline]
pub fn expect<T>(at: *const T, count: usize) {
    for line in (0..count * size_of::<T>()).step_by(64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which touches nothing.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_ET0>(at.cast::<i8>().wrapping_add(line));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (at, line);
    }
}

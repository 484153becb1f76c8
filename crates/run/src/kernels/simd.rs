//! What depends on the processor: which vectors it has, the inner loop of matrix products for each, and the macro
//! that compiles plain loops once for each.
//!
//! The one file of the kernels with intrinsics. A processor without AVX2 gets the portable code.

use std::sync::OnceLock;

/// The vectors that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Whatever the compiler assumes.
    Portable,
    /// 256 bits with fused multiply-add.
    Avx2,
    /// 512 bits.
    Avx512,
}

/// The vectors that this processor has.
#[inline]
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(detect)
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let wide = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq");
    match (avx2, wide) {
        (true, true) => Level::Avx512,
        (true, false) => Level::Avx2,
        _ => Level::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Portable
}

/// Compiles a function for each kind of vectors, and calls the best that the processor has. The compiler turns plain
/// loops into vector code; results are the same on every processor, because it neither fuses nor reorders arithmetic.
macro_rules! wide {
    ($(#[$doc:meta])* $vis:vis fn $name:ident $([$g:ident: $($bound:tt)+])? ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<$g: $($bound)+>)? ($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn plain $(<$g: $($bound)+>)? ($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            fn avx512 $(<$g: $($bound)+>)? ($($arg: $ty),*) $(-> $ret)? { plain($($arg),*) }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            fn avx2 $(<$g: $($bound)+>)? ($($arg: $ty),*) $(-> $ret)? { plain($($arg),*) }
            match $crate::kernels::simd::level() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the processor has these vectors.
                $crate::kernels::simd::Level::Avx512 => unsafe { avx512($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the processor has these vectors.
                $crate::kernels::simd::Level::Avx2 => unsafe { avx2($($arg),*) },
                _ => plain($($arg),*),
            }
        }
    };
}
pub(crate) use wide;

/// The size of the piece of a product that the inner loop computes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The most rows.
    pub rows: usize,
    /// Elements of a vector; a piece is one or two of them wide.
    pub lanes: usize,
}

impl Tile {
    /// The most elements that a piece has, on any processor.
    pub const MOST: usize = 14 * 32;

    /// The piece of this processor.
    pub fn here() -> Tile {
        match level() {
            Level::Avx512 => Tile { rows: 14, lanes: 16 },
            Level::Avx2 => Tile { rows: 6, lanes: 8 },
            Level::Portable => Tile { rows: 4, lanes: 8 },
        }
    }

    /// The most columns.
    pub fn columns(self) -> usize {
        2 * self.lanes
    }
}

/// `out` becomes a · b, where `a` is `depth` columns of `rows` numbers, `b` is `depth` rows of `vectors` vectors and
/// `out` is `rows` rows as wide as those of `b`. Every element is summed in the order of depth.
pub fn product(depth: usize, rows: usize, vectors: usize, a: &[f32], b: &[f32], out: &mut [f32]) {
    let tile = Tile::here();
    assert!((1..=tile.rows).contains(&rows) && (1..=2).contains(&vectors), "a piece that fits the registers");
    assert!(a.len() >= depth * rows && b.len() >= depth * vectors * tile.lanes, "packed operands");
    assert!(out.len() >= rows * vectors * tile.lanes, "room for the piece");
    macro_rules! pick {
        ($call:ident: $($n:literal)*) => {
            match (rows, vectors) {
                // SAFETY: the processor has these vectors, and the lengths were checked.
                $(($n, 1) => unsafe { $call::<$n, 1>(depth, a.as_ptr(), b.as_ptr(), out.as_mut_ptr()) },)*
                // SAFETY: as above.
                $((_, 2) if rows == $n => unsafe { $call::<$n, 2>(depth, a.as_ptr(), b.as_ptr(), out.as_mut_ptr()) },)*
                _ => {}
            }
        };
    }
    match level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => pick!(product_avx512: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => pick!(product_avx2: 1 2 3 4 5 6),
        _ => pick!(product_portable: 1 2 3 4),
    }
}

/// # Safety
/// `a`, `b` and `out` are as long as [`product`] says.
unsafe fn product_portable<const R: usize, const V: usize>(
    depth: usize,
    a: *const f32,
    b: *const f32,
    out: *mut f32,
) {
    let mut sums = [[[0f32; 8]; V]; R];
    for k in 0..depth {
        // SAFETY: the caller's promise.
        let b: &[[f32; 8]; V] = unsafe { &*b.add(k * V * 8).cast() };
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            let a = unsafe { *a.add(k * R + r) };
            for (sums, b) in sums.iter_mut().zip(b) {
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum += a * b;
                }
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { out.cast::<[[[f32; 8]; V]; R]>().write_unaligned(sums) }
}

/// # Safety
/// The processor has AVX2 and FMA; `a`, `b` and `out` are as long as [`product`] says.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn product_avx2<const R: usize, const V: usize>(
    depth: usize,
    a: *const f32,
    b: *const f32,
    out: *mut f32,
) {
    use std::arch::x86_64::*;
    let mut sums = [[_mm256_setzero_ps(); V]; R];
    for k in 0..depth {
        let mut row = [_mm256_setzero_ps(); V];
        for (v, row) in row.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *row = unsafe { _mm256_loadu_ps(b.add((k * V + v) * 8)) };
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            let a = _mm256_set1_ps(unsafe { *a.add(k * R + r) });
            for v in 0..V {
                sums[v] = _mm256_fmadd_ps(a, row[v], sums[v]);
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        for (v, sum) in sums.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { _mm256_storeu_ps(out.add((r * V + v) * 8), *sum) };
        }
    }
}

/// # Safety
/// The processor has AVX-512; `a`, `b` and `out` are as long as [`product`] says.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn product_avx512<const R: usize, const V: usize>(
    depth: usize,
    a: *const f32,
    b: *const f32,
    out: *mut f32,
) {
    use std::arch::x86_64::*;
    let mut sums = [[_mm512_setzero_ps(); V]; R];
    for k in 0..depth {
        let mut row = [_mm512_setzero_ps(); V];
        for (v, row) in row.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *row = unsafe { _mm512_loadu_ps(b.add((k * V + v) * 16)) };
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            let a = _mm512_set1_ps(unsafe { *a.add(k * R + r) });
            for v in 0..V {
                sums[v] = _mm512_fmadd_ps(a, row[v], sums[v]);
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        for (v, sum) in sums.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { _mm512_storeu_ps(out.add((r * V + v) * 16), *sum) };
        }
    }
}

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
    /// The position that lane 0 would come from.
    origin: isize,
}

impl Runs {
    /// No lane filled.
    pub fn new(step: usize) -> Runs {
        let none = Run { mask: 0, origin: 0 };
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
                Some(last) if last.origin == origin => last.mask |= mask,
                _ => {
                    self.runs[self.ends[1]] = Run { mask, origin };
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

/// Copies `lines` rows of `depth` numbers, `across` apart, as columns of a panel with rows of `stride`.
pub fn transpose(from: &[f32], across: usize, lines: usize, depth: usize, stride: usize, out: &mut [f32]) {
    if lines == 0 || depth == 0 {
        return;
    }
    assert!(from.len() >= (lines - 1) * across + depth, "all lines are there");
    assert!(out.len() >= (depth - 1) * stride + lines, "room for the panel");
    match level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has these vectors, and the lengths were checked.
        Level::Avx512 => unsafe {
            for l in (0..lines).step_by(16) {
                for d in (0..depth).step_by(16) {
                    let (high, deep) = ((lines - l).min(16), (depth - d).min(16));
                    let (from, out) =
                        (from.as_ptr().add(l * across + d), out.as_mut_ptr().add(d * stride + l));
                    transpose_avx512(from, across, high, deep, stride, out);
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

/// Exchanges rows and columns of a square of 16, or of what is there of it.
///
/// # Safety
/// The processor has AVX-512; `from` has `lines` rows of `depth` numbers, and `out` `depth` rows of `lines`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn transpose_avx512(
    from: *const f32,
    across: usize,
    lines: usize,
    depth: usize,
    stride: usize,
    out: *mut f32,
) {
    use std::arch::x86_64::*;
    let (deep, high) = (((1u32 << depth) - 1) as u16, ((1u32 << lines) - 1) as u16);
    let zero = _mm512_setzero_ps();
    let (mut r, mut t) = ([zero; 16], [zero; 16]);
    for (l, r) in r.iter_mut().enumerate() {
        if l < lines {
            // SAFETY: the caller's promise; lanes beyond the depth are not touched.
            *r = unsafe { _mm512_maskz_loadu_ps(deep, from.add(l * across)) };
        }
    }
    for i in 0..8 {
        t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    let low = |a, b| _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
    let top = |a, b| _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
    for j in 0..4 {
        r[4 * j] = low(t[4 * j], t[4 * j + 2]);
        r[4 * j + 1] = top(t[4 * j], t[4 * j + 2]);
        r[4 * j + 2] = low(t[4 * j + 1], t[4 * j + 3]);
        r[4 * j + 3] = top(t[4 * j + 1], t[4 * j + 3]);
    }
    for k in 0..4 {
        let (a, b, c, d) = (r[k], r[4 + k], r[8 + k], r[12 + k]);
        let (ab, cd) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0x88>(c, d));
        let (ab2, cd2) = (_mm512_shuffle_f32x4::<0xdd>(a, b), _mm512_shuffle_f32x4::<0xdd>(c, d));
        t[k] = _mm512_shuffle_f32x4::<0x88>(ab, cd);
        t[4 + k] = _mm512_shuffle_f32x4::<0x88>(ab2, cd2);
        t[8 + k] = _mm512_shuffle_f32x4::<0xdd>(ab, cd);
        t[12 + k] = _mm512_shuffle_f32x4::<0xdd>(ab2, cd2);
    }
    for (d, t) in t.iter().enumerate() {
        if d < depth {
            // SAFETY: the caller's promise; lanes beyond the lines are not touched.
            unsafe { _mm512_mask_storeu_ps(out.add(d * stride), high, *t) };
        }
    }
}

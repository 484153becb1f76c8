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

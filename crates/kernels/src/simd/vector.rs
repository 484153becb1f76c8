//! Vectors as inner loops of products see them, and macros that compile such loops for each kind and for every number of
//! rows and vectors.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// A vector of the processor.
///
/// # Safety
/// Every function needs a processor that has it; addresses must have that many numbers.
pub(super) trait Vector: Copy {
    /// The numbers of a vector.
    const LANES: usize;
    unsafe fn zero() -> Self;
    unsafe fn load(at: *const f32) -> Self;
    /// Half a vector from either address.
    unsafe fn load_halves(first: *const f32, second: *const f32) -> Self;
    unsafe fn store(self, at: *mut f32);
    unsafe fn splat(number: f32) -> Self;
    /// This and a product.
    unsafe fn plus(self, a: Self, b: Self) -> Self;
}

impl Vector for [f32; 8] {
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn zero() -> Self {
        [0.0; 8]
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { at.cast::<[f32; 8]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_halves(first: *const f32, second: *const f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { std::array::from_fn(|lane| if lane < 4 { *first.add(lane) } else { *second.add(lane - 4) }) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { at.cast::<[f32; 8]>().write_unaligned(self) }
    }

    #[inline(always)]
    unsafe fn splat(number: f32) -> Self {
        [number; 8]
    }

    #[inline(always)]
    unsafe fn plus(self, a: Self, b: Self) -> Self {
        std::array::from_fn(|lane| self[lane] + a[lane] * b[lane])
    }
}

/// The same functions of two kinds of vectors.
#[cfg(target_arch = "x86_64")]
macro_rules! vector {
    ($vector:ty, $lanes:literal: $zero:ident $load:ident $store:ident $splat:ident $plus:ident, $halves:expr) => {
        impl Vector for $vector {
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the caller's promise, here and below.
                unsafe { $zero() }
            }

            #[inline(always)]
            unsafe fn load(at: *const f32) -> Self {
                // SAFETY: as above.
                unsafe { $load(at) }
            }

            #[inline(always)]
            unsafe fn load_halves(first: *const f32, second: *const f32) -> Self {
                // SAFETY: as above.
                unsafe { $halves(first, second) }
            }

            #[inline(always)]
            unsafe fn store(self, at: *mut f32) {
                // SAFETY: as above.
                unsafe { $store(at, self) }
            }

            #[inline(always)]
            unsafe fn splat(number: f32) -> Self {
                // SAFETY: as above.
                unsafe { $splat(number) }
            }

            #[inline(always)]
            unsafe fn plus(self, a: Self, b: Self) -> Self {
                // SAFETY: as above.
                unsafe { $plus(a, b, self) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
vector!(__m256, 8: _mm256_setzero_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_set1_ps _mm256_fmadd_ps, halves_256);
#[cfg(target_arch = "x86_64")]
vector!(__m512, 16: _mm512_setzero_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_set1_ps _mm512_fmadd_ps, halves_512);

/// # Safety
/// The processor has AVX, and there are four numbers at either address.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn halves_256(first: *const f32, second: *const f32) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe { _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(_mm_loadu_ps(first)), _mm_loadu_ps(second)) }
}

/// # Safety
/// The processor has AVX-512, and there are eight numbers at either address.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn halves_512(first: *const f32, second: *const f32) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe {
        let (first, second) = (_mm256_loadu_ps(first), _mm256_loadu_ps(second));
        let low = _mm512_castps_pd(_mm512_castps256_ps512(first));
        _mm512_castpd_ps(_mm512_insertf64x4::<1>(low, _mm256_castps_pd(second)))
    }
}

/// Adds to every row of sums its number of `a` times a row of vectors.
///
/// # Safety
/// The processor has these vectors, and there are `R` numbers.
#[inline(always)]
pub(super) unsafe fn add_products<X: Vector, const R: usize, const V: usize>(
    a: *const f32,
    row: [X; V],
    sums: &mut [[X; V]; R],
) {
    // SAFETY: the caller's promise.
    unsafe {
        for (r, sums) in sums.iter_mut().enumerate() {
            let a = X::splat(*a.add(r));
            for v in 0..V {
                sums[v] = sums[v].plus(a, row[v]);
            }
        }
    }
}

/// Writes rows of sums that begin `stride` apart.
///
/// # Safety
/// The processor has these vectors, and there is room for all rows.
#[inline(always)]
pub(super) unsafe fn put<X: Vector, const R: usize, const V: usize>(
    sums: &[[X; V]; R],
    (out, stride): (*mut f32, usize),
) {
    // SAFETY: the caller's promise.
    unsafe {
        for (r, sums) in sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                sum.store(out.add(r * stride + v * X::LANES));
            }
        }
    }
}

/// Compiles an inner loop for each kind of vectors: `portable`, `avx2` and `avx512`, in a module of its own.
macro_rules! for_each_level {
    ($name:ident: $inner:ident ($($arg:ident: $ty:ty),*)) => {
        mod $name {
            use super::*;

            /// # Safety
            /// As the inner loop says.
            pub unsafe fn portable<const R: usize, const V: usize>($($arg: $ty),*) {
                // SAFETY: the caller's promise.
                unsafe { $inner::<[f32; 8], R, V>($($arg),*) }
            }

            /// # Safety
            /// As the inner loop says, on a processor with AVX2 and FMA.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            pub unsafe fn avx2<const R: usize, const V: usize>($($arg: $ty),*) {
                // SAFETY: the caller's promise.
                unsafe { $inner::<__m256, R, V>($($arg),*) }
            }

            /// # Safety
            /// As the inner loop says, on a processor with AVX-512.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f")]
            pub unsafe fn avx512<const R: usize, const V: usize>($($arg: $ty),*) {
                // SAFETY: the caller's promise.
                unsafe { $inner::<__m512, R, V>($($arg),*) }
            }
        }
    };
}

/// Calls an inner loop for a number of rows and vectors that are only known now: those that are listed, with the most
/// vectors for each number of rows.
macro_rules! pick {
    ($call:path, $rows:expr, $vectors:expr, $args:tt: $($r:literal: $($v:literal)+;)+) => {
        match ($rows, $vectors) {
            // SAFETY: the processor has these vectors, and the lengths were checked.
            $($(($r, $v) => unsafe { pick!(@ $call, $r, $v, $args) },)+)+
            (rows, vectors) => unreachable!("a piece of {rows} rows by {vectors} vectors"),
        }
    };
    (@ $call:path, $r:literal, $v:literal, ($($arg:expr),*)) => { { use $call as call; call::<$r, $v>($($arg),*) } };
}

pub(super) use {for_each_level, pick};

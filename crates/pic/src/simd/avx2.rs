//! Vectors of 256 bits, which processors with AVX2 and FMA have.
//!
//! Only [`run`] hands these types to a task, after the processor has been asked; nothing else uses them.

use std::arch::x86_64::*;

use super::{Real, Task, Vector};

/// Does a task compiled for AVX2 and FMA.
///
/// # Panics
/// If the processor has not got them.
#[inline]
pub fn run<R: Real, T: Task<R>>(task: T) -> T::Output {
    assert!(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"), "vectors that are there");
    // SAFETY: the processor has the features.
    unsafe { featured(task) }
}

#[target_feature(enable = "avx2,fma")]
fn featured<R: Real, T: Task<R>>(task: T) -> T::Output {
    task.run::<R::Wide>()
}

macro_rules! wide {
    (
        $name:ident, $real:ident, $raw:ident, $lanes:literal, $doc:literal,
        $set:ident, $load:ident, $store:ident, $add:ident, $sub:ident, $mul:ident, $div:ident, $fma:ident,
        $fnma:ident, $root:ident, $cmp:ident, $and:ident, $zero:ident, $bits:ident, $sum:expr
    ) => {
        #[doc = $doc]
        #[derive(Clone, Copy)]
        pub struct $name($raw);

        impl Vector for $name {
            type Real = $real;
            type Block = [$real; $lanes];
            const LANES: usize = $lanes;
            #[inline(always)]
            fn splat(x: $real) -> Self {
                // SAFETY: the processor has these vectors, here and below: `run` has asked it.
                unsafe { $name($set(x)) }
            }
            #[inline(always)]
            fn load(block: &[$real; $lanes]) -> Self {
                // SAFETY: as above, and the numbers are there.
                unsafe { $name($load(block.as_ptr())) }
            }
            #[inline(always)]
            fn store(self, block: &mut [$real; $lanes]) {
                // SAFETY: as above, and there is room.
                unsafe { $store(block.as_mut_ptr(), self.0) }
            }
            #[inline(always)]
            fn add(self, b: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($add(self.0, b.0)) }
            }
            #[inline(always)]
            fn sub(self, b: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($sub(self.0, b.0)) }
            }
            #[inline(always)]
            fn mul(self, b: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($mul(self.0, b.0)) }
            }
            #[inline(always)]
            fn div(self, b: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($div(self.0, b.0)) }
            }
            #[inline(always)]
            fn fma(self, b: Self, c: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($fma(self.0, b.0, c.0)) }
            }
            #[inline(always)]
            fn fnma(self, b: Self, c: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($fnma(self.0, b.0, c.0)) }
            }
            #[inline(always)]
            fn root(self) -> Self {
                // SAFETY: as above.
                unsafe { $name($root(self.0)) }
            }
            #[inline(always)]
            fn within(self) -> Self {
                // SAFETY: as above.
                unsafe {
                    let above = $cmp::<_CMP_GE_OQ>(self.0, $zero());
                    $name($and(above, $cmp::<_CMP_LT_OQ>(self.0, $set(1.0))))
                }
            }
            #[inline(always)]
            fn and(self, mask: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($and(self.0, mask.0)) }
            }
            #[inline(always)]
            fn bits(self) -> u32 {
                // SAFETY: as above.
                unsafe { $bits(self.0) as u32 }
            }
            #[inline(always)]
            fn sum(self) -> $real {
                // SAFETY: as above.
                unsafe { $sum(self.0) }
            }
        }
    };
}

wide!(
    Wide8,
    f32,
    __m256,
    8,
    "Eight numbers in single precision.",
    _mm256_set1_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_add_ps,
    _mm256_sub_ps,
    _mm256_mul_ps,
    _mm256_div_ps,
    _mm256_fmadd_ps,
    _mm256_fnmadd_ps,
    _mm256_sqrt_ps,
    _mm256_cmp_ps,
    _mm256_and_ps,
    _mm256_setzero_ps,
    _mm256_movemask_ps,
    |x: __m256| {
        let four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
    }
);

wide!(
    Wide4,
    f64,
    __m256d,
    4,
    "Four numbers in double precision.",
    _mm256_set1_pd,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_add_pd,
    _mm256_sub_pd,
    _mm256_mul_pd,
    _mm256_div_pd,
    _mm256_fmadd_pd,
    _mm256_fnmadd_pd,
    _mm256_sqrt_pd,
    _mm256_cmp_pd,
    _mm256_and_pd,
    _mm256_setzero_pd,
    _mm256_movemask_pd,
    |x: __m256d| {
        let two = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd::<1>(x));
        _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)))
    }
);

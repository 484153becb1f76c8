//! Distances with 32-byte registers: AVX2, FMA and F16C.

use std::arch::x86_64::*;

use super::{Form, Pair, key_of_f32, key_of_product, many};
use crate::element::Dtype;

/// The functions for rows of this kind, for processors that have the instructions.
pub(super) fn pair(dtype: Dtype, form: Form) -> Pair {
    match (dtype, form) {
        (Dtype::F32, Form::Squares) => Pair { one: l2_f32, many: l2_f32_many },
        (Dtype::F32, Form::Product) => Pair { one: dot_f32, many: dot_f32_many },
        (Dtype::F16, Form::Squares) => Pair { one: l2_f16, many: l2_f16_many },
        (Dtype::F16, Form::Product) => Pair { one: dot_f16, many: dot_f16_many },
        (Dtype::Bf16, Form::Squares) => Pair { one: l2_bf16, many: l2_bf16_many },
        (Dtype::Bf16, Form::Product) => Pair { one: dot_bf16, many: dot_bf16_many },
        (Dtype::U8, Form::Squares) => Pair { one: l2_u8, many: l2_u8_many },
        (Dtype::U8, Form::Product) => Pair { one: dot_u8, many: dot_u8_many },
        (Dtype::I8, Form::Squares) => Pair { one: l2_i8, many: l2_i8_many },
        (Dtype::I8, Form::Product) => Pair { one: dot_i8, many: dot_i8_many },
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn sum_f32(lanes: __m256) -> f32 {
    let half = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
    let pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
    _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)))
}

#[target_feature(enable = "avx2,fma,f16c")]
fn sum_i32(lanes: __m256i) -> i32 {
    let half = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes));
    let pair = _mm_add_epi32(half, _mm_unpackhi_epi64(half, half));
    _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32::<1>(pair)))
}

/// Eight numbers of each type from memory.
macro_rules! load {
    (f32, $at:expr) => {
        _mm256_loadu_ps($at.cast())
    };
    (f16, $at:expr) => {
        _mm256_cvtph_ps(_mm_loadu_si128($at.cast()))
    };
    (bf16, $at:expr) => {
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128($at.cast()))))
    };
}

macro_rules! real {
    ($name:ident, $many:ident, $type:tt, $size:literal, $term:expr, $key:expr) => {
        #[target_feature(enable = "avx2,fma,f16c")]
        unsafe fn $name(a: *const u8, b: *const u8, len: usize) -> u32 {
            let mut sums = [_mm256_setzero_ps(); 4];
            let mut at = 0;
            // SAFETY: the caller vouches for `len` bytes of both, and every load ends before them.
            unsafe {
                while at + 32 * $size <= len {
                    for lane in 0..4 {
                        let here = at + lane * 8 * $size;
                        sums[lane] = $term(load!($type, a.add(here)), load!($type, b.add(here)), sums[lane]);
                    }
                    at += 32 * $size;
                }
                let mut lane = 0;
                while at < len {
                    sums[lane] = $term(load!($type, a.add(at)), load!($type, b.add(at)), sums[lane]);
                    at += 8 * $size;
                    lane = (lane + 1) % 4;
                }
            }
            let all = _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
            $key(sum_f32(all))
        }
        many!(
            #[target_feature(enable = "avx2,fma,f16c")]
            $many,
            $name
        );
    };
}

/// Adds squared differences.
macro_rules! squared {
    () => {
        |a, b, sum| {
            let difference = _mm256_sub_ps(a, b);
            _mm256_fmadd_ps(difference, difference, sum)
        }
    };
}

/// Adds products.
macro_rules! multiplied {
    () => {
        |a, b, sum| _mm256_fmadd_ps(a, b, sum)
    };
}

real!(l2_f32, l2_f32_many, f32, 4, squared!(), key_of_f32);
real!(dot_f32, dot_f32_many, f32, 4, multiplied!(), |sum: f32| key_of_f32(1.0 - sum));
real!(l2_f16, l2_f16_many, f16, 2, squared!(), key_of_f32);
real!(dot_f16, dot_f16_many, f16, 2, multiplied!(), |sum: f32| key_of_f32(1.0 - sum));
real!(l2_bf16, l2_bf16_many, bf16, 2, squared!(), key_of_f32);
real!(dot_bf16, dot_bf16_many, bf16, 2, multiplied!(), |sum: f32| key_of_f32(1.0 - sum));

/// Adds to four-byte lanes what 32 bytes of both give.
macro_rules! whole {
    ($name:ident, $many:ident, $term:ident, $key:expr) => {
        #[target_feature(enable = "avx2,fma,f16c")]
        unsafe fn $name(a: *const u8, b: *const u8, len: usize) -> u32 {
            let mut sums = [_mm256_setzero_si256(); 2];
            let mut at = 0;
            // SAFETY: the caller vouches for `len` bytes of both, a multiple of 32.
            unsafe {
                while at + 64 <= len {
                    for lane in 0..2 {
                        let here = at + lane * 32;
                        let (x, y) =
                            (_mm256_loadu_si256(a.add(here).cast()), _mm256_loadu_si256(b.add(here).cast()));
                        sums[lane] = _mm256_add_epi32(sums[lane], $term(x, y));
                    }
                    at += 64;
                }
                if at < len {
                    let (x, y) = (_mm256_loadu_si256(a.add(at).cast()), _mm256_loadu_si256(b.add(at).cast()));
                    sums[0] = _mm256_add_epi32(sums[0], $term(x, y));
                }
            }
            $key(sum_i32(_mm256_add_epi32(sums[0], sums[1])))
        }
        many!(
            #[target_feature(enable = "avx2,fma,f16c")]
            $many,
            $name
        );
    };
}

#[target_feature(enable = "avx2,fma,f16c")]
fn squares_u8(a: __m256i, b: __m256i) -> __m256i {
    let apart = _mm256_or_si256(_mm256_subs_epu8(a, b), _mm256_subs_epu8(b, a));
    let zero = _mm256_setzero_si256();
    let (low, high) = (_mm256_unpacklo_epi8(apart, zero), _mm256_unpackhi_epi8(apart, zero));
    _mm256_add_epi32(_mm256_madd_epi16(low, low), _mm256_madd_epi16(high, high))
}

#[target_feature(enable = "avx2,fma,f16c")]
fn squares_i8(a: __m256i, b: __m256i) -> __m256i {
    // Both moved by 128, the difference is the same.
    let by = _mm256_set1_epi8(-128);
    squares_u8(_mm256_xor_si256(a, by), _mm256_xor_si256(b, by))
}

#[target_feature(enable = "avx2,fma,f16c")]
fn products_u8(a: __m256i, b: __m256i) -> __m256i {
    let zero = _mm256_setzero_si256();
    let low = _mm256_madd_epi16(_mm256_unpacklo_epi8(a, zero), _mm256_unpacklo_epi8(b, zero));
    let high = _mm256_madd_epi16(_mm256_unpackhi_epi8(a, zero), _mm256_unpackhi_epi8(b, zero));
    _mm256_add_epi32(low, high)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn products_i8(a: __m256i, b: __m256i) -> __m256i {
    let low = |x| _mm256_cvtepi8_epi16(_mm256_castsi256_si128(x));
    let high = |x| _mm256_cvtepi8_epi16(_mm256_extracti128_si256::<1>(x));
    _mm256_add_epi32(_mm256_madd_epi16(low(a), low(b)), _mm256_madd_epi16(high(a), high(b)))
}

whole!(l2_u8, l2_u8_many, squares_u8, |sum: i32| sum as u32);
whole!(l2_i8, l2_i8_many, squares_i8, |sum: i32| sum as u32);
whole!(dot_u8, dot_u8_many, products_u8, key_of_product);
whole!(dot_i8, dot_i8_many, products_i8, key_of_product);

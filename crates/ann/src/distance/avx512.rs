//! Distances with 64-byte registers: AVX-512 F, BW and VL. The last 32 bytes of a row, where they are half a register, are
//! read with a mask.

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

/// 64 bytes, of which the second half may be zeros that stand for nothing.
macro_rules! bytes {
    ($at:expr, $left:expr) => {
        _mm512_maskz_loadu_epi8(if $left >= 64 { !0 } else { u64::from(u32::MAX) }, $at.cast())
    };
}

/// What 64 bytes of both add to 16 lanes.
macro_rules! kernel {
    ($name:ident, $many:ident, $zero:expr, $term:ident, $sum:expr) => {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
        unsafe fn $name(a: *const u8, b: *const u8, len: usize) -> u32 {
            let mut sums = $zero;
            let mut at = 0;
            while at < len {
                // SAFETY: the caller vouches for `len` bytes of both, a multiple of 32, and the mask keeps within them.
                let (x, y) = unsafe { (bytes!(a.add(at), len - at), bytes!(b.add(at), len - at)) };
                sums = $term(x, y, sums);
                at += 64;
            }
            $sum(sums)
        }
        many!(
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
            $many,
            $name
        );
    };
}

macro_rules! real {
    ($squares:ident, $product:ident, $parts:literal, $widen:expr) => {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
        fn $squares(a: __m512i, b: __m512i, mut sums: [__m512; 2]) -> [__m512; 2] {
            for part in 0..$parts {
                let apart = _mm512_sub_ps($widen(a, part), $widen(b, part));
                sums[part] = _mm512_fmadd_ps(apart, apart, sums[part]);
            }
            sums
        }
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
        fn $product(a: __m512i, b: __m512i, mut sums: [__m512; 2]) -> [__m512; 2] {
            for part in 0..$parts {
                sums[part] = _mm512_fmadd_ps($widen(a, part), $widen(b, part), sums[part]);
            }
            sums
        }
    };
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
fn half(x: __m512i, part: usize) -> __m256i {
    if part == 0 { _mm512_castsi512_si256(x) } else { _mm512_extracti64x4_epi64::<1>(x) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
fn wide_f32(x: __m512i, _: usize) -> __m512 {
    _mm512_castsi512_ps(x)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
fn wide_f16(x: __m512i, part: usize) -> __m512 {
    _mm512_cvtph_ps(half(x, part))
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
fn wide_bf16(x: __m512i, part: usize) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(half(x, part))))
}

real!(squares_f32, products_f32, 1, wide_f32);
real!(squares_f16, products_f16, 2, wide_f16);
real!(squares_bf16, products_bf16, 2, wide_bf16);

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
fn total(sums: [__m512; 2]) -> f32 {
    _mm512_reduce_add_ps(_mm512_add_ps(sums[0], sums[1]))
}

kernel!(l2_f32, l2_f32_many, [_mm512_setzero_ps(); 2], squares_f32, |sums| key_of_f32(total(sums)));
kernel!(dot_f32, dot_f32_many, [_mm512_setzero_ps(); 2], products_f32, |sums| key_of_f32(1.0 - total(sums)));
kernel!(l2_f16, l2_f16_many, [_mm512_setzero_ps(); 2], squares_f16, |sums| key_of_f32(total(sums)));
kernel!(dot_f16, dot_f16_many, [_mm512_setzero_ps(); 2], products_f16, |sums| key_of_f32(1.0 - total(sums)));
kernel!(l2_bf16, l2_bf16_many, [_mm512_setzero_ps(); 2], squares_bf16, |sums| key_of_f32(total(sums)));
kernel!(dot_bf16, dot_bf16_many, [_mm512_setzero_ps(); 2], products_bf16, |sums| key_of_f32(
    1.0 - total(sums)
));

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
fn squares_u8(a: __m512i, b: __m512i, sum: __m512i) -> __m512i {
    let apart = _mm512_or_si512(_mm512_subs_epu8(a, b), _mm512_subs_epu8(b, a));
    let zero = _mm512_setzero_si512();
    let (low, high) = (_mm512_unpacklo_epi8(apart, zero), _mm512_unpackhi_epi8(apart, zero));
    _mm512_add_epi32(sum, _mm512_add_epi32(_mm512_madd_epi16(low, low), _mm512_madd_epi16(high, high)))
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
fn squares_i8(a: __m512i, b: __m512i, sum: __m512i) -> __m512i {
    // Both moved by 128, the difference is the same.
    let by = _mm512_set1_epi8(-128);
    squares_u8(_mm512_xor_si512(a, by), _mm512_xor_si512(b, by), sum)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
fn products_u8(a: __m512i, b: __m512i, sum: __m512i) -> __m512i {
    let zero = _mm512_setzero_si512();
    let low = _mm512_madd_epi16(_mm512_unpacklo_epi8(a, zero), _mm512_unpacklo_epi8(b, zero));
    let high = _mm512_madd_epi16(_mm512_unpackhi_epi8(a, zero), _mm512_unpackhi_epi8(b, zero));
    _mm512_add_epi32(sum, _mm512_add_epi32(low, high))
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
fn products_i8(a: __m512i, b: __m512i, sum: __m512i) -> __m512i {
    let wide = |x, part| _mm512_cvtepi8_epi16(half(x, part));
    let low = _mm512_madd_epi16(wide(a, 0), wide(b, 0));
    let high = _mm512_madd_epi16(wide(a, 1), wide(b, 1));
    _mm512_add_epi32(sum, _mm512_add_epi32(low, high))
}

kernel!(l2_u8, l2_u8_many, _mm512_setzero_si512(), squares_u8, |sum| _mm512_reduce_add_epi32(sum) as u32);
kernel!(l2_i8, l2_i8_many, _mm512_setzero_si512(), squares_i8, |sum| _mm512_reduce_add_epi32(sum) as u32);
kernel!(dot_u8, dot_u8_many, _mm512_setzero_si512(), products_u8, |sum| key_of_product(
    _mm512_reduce_add_epi32(sum)
));
kernel!(dot_i8, dot_i8_many, _mm512_setzero_si512(), products_i8, |sum| key_of_product(
    _mm512_reduce_add_epi32(sum)
));

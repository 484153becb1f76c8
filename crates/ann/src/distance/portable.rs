//! Distances in plain code, for processors without wider instructions; lanes are summed apart so that compilers can.

use half::{bf16, f16};

use super::{Form, Pair, key_of_f32, key_of_product, many};
use crate::element::Dtype;

/// The functions for rows of this kind.
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

/// Sums over elements of `f32` or what becomes one, in eight lanes.
macro_rules! real {
    ($squares:ident, $squares_many:ident, $product:ident, $product_many:ident, $size:literal, $read:expr) => {
        unsafe fn $squares(a: *const u8, b: *const u8, len: usize) -> u32 {
            // SAFETY: the caller vouches for the bytes.
            let lanes = unsafe { lanes::<$size>(a, b, len, $read, |x, y| (x - y) * (x - y)) };
            key_of_f32(lanes)
        }
        unsafe fn $product(a: *const u8, b: *const u8, len: usize) -> u32 {
            // SAFETY: the caller vouches for the bytes.
            let lanes = unsafe { lanes::<$size>(a, b, len, $read, |x, y| x * y) };
            key_of_f32(1.0 - lanes)
        }
        many!($squares_many, $squares);
        many!($product_many, $product);
    };
}

/// # Safety
/// Both must have so many readable bytes.
unsafe fn lanes<const SIZE: usize>(
    a: *const u8,
    b: *const u8,
    len: usize,
    read: impl Fn([u8; SIZE]) -> f32,
    term: impl Fn(f32, f32) -> f32,
) -> f32 {
    // SAFETY: the caller vouches for the bytes.
    let (a, b) = unsafe { (std::slice::from_raw_parts(a, len), std::slice::from_raw_parts(b, len)) };
    let mut sums = [0.0; 8];
    let (a, b) = (a.as_chunks::<SIZE>().0, b.as_chunks::<SIZE>().0);
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        for lane in 0..8 {
            sums[lane] += term(read(a[lane]), read(b[lane]));
        }
    }
    sums.iter().sum()
}

real!(l2_f32, l2_f32_many, dot_f32, dot_f32_many, 4, f32::from_ne_bytes);
real!(l2_f16, l2_f16_many, dot_f16, dot_f16_many, 2, |n| f16::from_ne_bytes(n).to_f32());
real!(l2_bf16, l2_bf16_many, dot_bf16, dot_bf16_many, 2, |n| bf16::from_ne_bytes(n).to_f32());

/// Sums over whole numbers.
macro_rules! whole {
    ($squares:ident, $squares_many:ident, $product:ident, $product_many:ident, $type:ty) => {
        unsafe fn $squares(a: *const u8, b: *const u8, len: usize) -> u32 {
            // SAFETY: the caller vouches for the bytes.
            let (a, b) = unsafe { (std::slice::from_raw_parts(a, len), std::slice::from_raw_parts(b, len)) };
            a.iter()
                .zip(b)
                .map(|(a, b)| (*a as $type).abs_diff(*b as $type))
                .map(|d| u32::from(d) * u32::from(d))
                .sum()
        }
        unsafe fn $product(a: *const u8, b: *const u8, len: usize) -> u32 {
            // SAFETY: the caller vouches for the bytes.
            let (a, b) = unsafe { (std::slice::from_raw_parts(a, len), std::slice::from_raw_parts(b, len)) };
            key_of_product(
                a.iter().zip(b).map(|(a, b)| i32::from(*a as $type) * i32::from(*b as $type)).sum(),
            )
        }
        many!($squares_many, $squares);
        many!($product_many, $product);
    };
}

whole!(l2_u8, l2_u8_many, dot_u8, dot_u8_many, u8);
whole!(l2_i8, l2_i8_many, dot_i8, dot_i8_many, i8);

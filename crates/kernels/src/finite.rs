//! Looks for numbers that are none: not-a-number and infinity.
//!
//! All gradients of an iteration are searched, so it must cost next to nothing: one pass that takes the largest exponent
//! of many numbers at once, and looks at single ones only where that is the largest there is.

use tiercel_workload::graph::DType;

use crate::simd::wide;

/// The first element that is not a finite number, and what it is. Bytes are aligned as elements need, as those of
/// tensors are.
pub fn first_bad(dtype: DType, bytes: &[u8]) -> Option<(u64, f32)> {
    match dtype {
        DType::F32 => search::<u32>(bytes, largest, |x| f32::from_bits(*x)),
        DType::Bf16 => search::<u16>(bytes, largest_half, |x| f32::from_bits(u32::from(*x) << 16)),
        DType::I32 | DType::I64 => None,
    }
}

/// Looks through a stretch at a time; `bad` says whether there is one in it.
fn search<T: bytemuck::AnyBitPattern>(
    bytes: &[u8],
    bad: impl Fn(&[T]) -> bool,
    number: impl Fn(&T) -> f32,
) -> Option<(u64, f32)> {
    const STRETCH: usize = 4096;
    let whole = bytes.len() / size_of::<T>() * size_of::<T>();
    // Of no bytes nobody knows the alignment.
    let elements: &[T] = if whole == 0 { &[] } else { bytemuck::cast_slice(&bytes[..whole]) };
    for (at, stretch) in elements.chunks(STRETCH).enumerate() {
        if bad(stretch) {
            let found = stretch.iter().position(|x| !number(x).is_finite())?;
            return Some(((at * STRETCH + found) as u64, number(&stretch[found])));
        }
    }
    None
}

wide! {
    /// Whether the largest exponent is that of numbers which are none.
    fn largest(numbers: &[u32]) -> bool {
        const EXPONENT: u32 = 0x7f80_0000;
        numbers.iter().fold(0, |most, x| most.max(x & EXPONENT)) == EXPONENT
    }
}

wide! {
    /// The same of halves.
    fn largest_half(numbers: &[u16]) -> bool {
        const EXPONENT: u16 = 0x7f80;
        numbers.iter().fold(0, |most, x| most.max(x & EXPONENT)) == EXPONENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_first_of_either_kind() {
        let mut numbers = vec![1.0f32; 5000];
        let look = |n: &[f32]| first_bad(DType::F32, bytemuck::cast_slice(n));
        assert_eq!(look(&numbers), None);
        numbers[4999] = f32::NAN;
        assert!(matches!(look(&numbers), Some((4999, x)) if x.is_nan()));
        numbers[1024] = f32::NEG_INFINITY;
        assert_eq!(look(&numbers), Some((1024, f32::NEG_INFINITY)));
        numbers[0] = f32::MAX;
        assert_eq!(look(&numbers), Some((1024, f32::NEG_INFINITY)));
        assert_eq!(
            first_bad(DType::Bf16, bytemuck::cast_slice(&[0x3f80u16, 0x7f80])),
            Some((1, f32::INFINITY))
        );
        assert_eq!(first_bad(DType::I32, bytemuck::cast_slice(&[-1i32; 2])), None);
        assert_eq!(first_bad(DType::F32, &[]), None);
    }
}

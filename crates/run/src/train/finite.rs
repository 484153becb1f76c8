//! Looks for numbers that are none: not-a-number and infinity.

use tiercel_workload::graph::DType;

/// The first element that is not a finite number, and what it is.
pub fn first_bad(dtype: DType, bytes: &[u8]) -> Option<(u64, f32)> {
    match dtype {
        DType::F32 => search::<4>(bytes, u32::from_le_bytes),
        DType::Bf16 => search::<2>(bytes, |two| u32::from(u16::from_le_bytes(two)) << 16),
        DType::I32 | DType::I64 => None,
    }
}

/// Looks through a stretch at a time without leaving the loop, which the compiler then does many elements at once.
fn search<const N: usize>(bytes: &[u8], bits: impl Fn([u8; N]) -> u32 + Copy) -> Option<(u64, f32)> {
    const STRETCH: usize = 1024;
    const EXPONENT: u32 = 0x7f80_0000;
    for (at, stretch) in bytes.chunks(STRETCH * N).enumerate() {
        let elements = stretch.as_chunks::<N>().0;
        let bad = elements.iter().fold(false, |bad, x| bad | (bits(*x) & EXPONENT == EXPONENT));
        if bad {
            let found = elements.iter().position(|x| bits(*x) & EXPONENT == EXPONENT)?;
            return Some(((at * STRETCH + found) as u64, f32::from_bits(bits(elements[found]))));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_first_of_either_kind() {
        let mut numbers = vec![1.0f32; 5000];
        let bytes = |n: &[f32]| n.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!(first_bad(DType::F32, &bytes(&numbers)), None);
        numbers[4999] = f32::NAN;
        assert!(matches!(first_bad(DType::F32, &bytes(&numbers)), Some((4999, x)) if x.is_nan()));
        numbers[1024] = f32::NEG_INFINITY;
        assert_eq!(first_bad(DType::F32, &bytes(&numbers)), Some((1024, f32::NEG_INFINITY)));
        numbers[0] = f32::MAX;
        assert_eq!(first_bad(DType::F32, &bytes(&numbers)), Some((1024, f32::NEG_INFINITY)));
        assert_eq!(first_bad(DType::Bf16, &[0x80, 0x3f, 0x80, 0x7f]), Some((1, f32::INFINITY)));
        assert_eq!(first_bad(DType::I32, &[0xff; 8]), None);
        assert_eq!(first_bad(DType::F32, &[]), None);
    }
}

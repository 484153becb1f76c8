//! Numbers of 16 bits to and from those of 32, and fused multiply-add, as plain arithmetic that a compiler turns into
//! vector code.
//!
//! Rounding is to the nearest, ties to even, as everywhere; a not-a-number becomes the one that torch makes of it.

/// A number that gradients come in or parameters go out as.
pub trait Number: Copy + Send + Sync + 'static {
    /// The same in 32 bits, exactly.
    fn widen(self) -> f32;

    /// The nearest number of this kind.
    fn narrow(number: f32) -> Self;
}

impl Number for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(number: f32) -> f32 {
        number
    }
}

/// The upper half of a number of 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

impl Number for Bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    #[inline(always)]
    fn narrow(number: f32) -> Bf16 {
        let bits = number.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        Bf16(if number.is_nan() { 0x7fc0 } else { rounded as u16 })
    }
}

/// Half precision: 5 bits of exponent, 10 of fraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

impl Number for F16 {
    /// Exponent and fraction are shifted into place; a multiplication sets the exponent right, for small ones too.
    #[inline(always)]
    fn widen(self) -> f32 {
        let bits = u32::from(self.0);
        let magnitude = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits((254 - 15) << 23);
        let infinite = if bits & 0x7c00 == 0x7c00 { 0xff << 23 } else { 0 };
        f32::from_bits(magnitude.to_bits() | infinite | ((bits & 0x8000) << 16))
    }

    /// Small results are rounded by an addition that leaves just their bits, others as integers.
    #[inline(always)]
    fn narrow(number: f32) -> F16 {
        let sign = (number.to_bits() >> 16) & 0x8000;
        let bits = number.to_bits() & 0x7fff_ffff;
        const INFINITE: u32 = 0x7c00;
        const MAGIC: u32 = (127 - 15 + 23 - 10 + 1) << 23;
        let small = (f32::from_bits(bits) + f32::from_bits(MAGIC)).to_bits().wrapping_sub(MAGIC);
        let usual = bits
            .wrapping_add(((15u32.wrapping_sub(127)) << 23).wrapping_add(0xfff))
            .wrapping_add((bits >> 13) & 1)
            >> 13;
        let large = if bits > 0x7f80_0000 { 0x7e00 } else { INFINITE };
        let finite = if bits < (113 << 23) { small } else { usual };
        let magnitude = if bits >= (127 + 16) << 23 { large } else { finite };
        F16((magnitude | sign) as u16)
    }
}

/// How a processor multiplies and adds with one rounding.
pub(crate) trait Fused: Copy {
    /// `a * b + c`, rounded once.
    fn fused(a: f32, b: f32, c: f32) -> f32;
}

/// By an instruction.
#[derive(Clone, Copy)]
pub(crate) struct Instruction;

impl Fused for Instruction {
    #[inline(always)]
    fn fused(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

/// In numbers of 64 bits, where the product is exact: the sum is rounded to odd there, which makes the second rounding
/// the only one (Boldo and Melquiond).
#[derive(Clone, Copy)]
pub(crate) struct Emulated;

impl Fused for Emulated {
    #[inline(always)]
    fn fused(a: f32, b: f32, c: f32) -> f32 {
        let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
        let sum = product + c;
        let of_c = sum - product;
        let lost = (product - (sum - of_c)) + (c - of_c);
        // A step away from zero where what was lost points there, a step back where it points back.
        let away = (lost > 0.0) == (sum > 0.0);
        let even = sum.to_bits() & 1 == 0;
        let step = if away { 1u64 } else { u64::MAX };
        let inexact = lost != 0.0 && sum.is_finite() && even;
        f64::from_bits(sum.to_bits().wrapping_add(if inexact { step } else { 0 })) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_is_as_in_the_library() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (F16(bits).widen(), half::f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{bits:#x}");
            let (ours, theirs) = (Bf16(bits).widen(), half::bf16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{bits:#x}");
        }
    }

    #[test]
    fn rounding_to_16_bits_is_as_in_the_library() {
        // Every 211th number of 32 bits, and all beside a tie of small ones.
        let near = (0..0x7c01u32).flat_map(|half| {
            let middle = half::f16::from_bits(half as u16).to_f32().to_bits();
            (0..5).map(move |step| middle.wrapping_add(0x1000).wrapping_sub(2) + step)
        });
        for bits in (0..u32::MAX).step_by(211).chain(near) {
            let number = f32::from_bits(bits);
            if number.is_nan() {
                assert!(F16::narrow(number).widen().is_nan() && Bf16::narrow(number).widen().is_nan());
                continue;
            }
            assert_eq!(F16::narrow(number).0, half::f16::from_f32(number).to_bits(), "{number:e}");
            assert_eq!(Bf16::narrow(number).0, half::bf16::from_f32(number).to_bits(), "{number:e}");
        }
    }

    #[test]
    fn emulated_multiply_add_rounds_once() {
        let mut random = fastrand::Rng::with_seed(7);
        let check = |a: f32, b: f32, c: f32| {
            let (ours, right) = (Emulated::fused(a, b, c), a.mul_add(b, c));
            let same = ours.to_bits() == right.to_bits() || ours.is_nan() && right.is_nan();
            assert!(same, "{a:e} * {b:e} + {c:e}: {ours:e} for {right:e}");
        };
        for _ in 0..2_000_000 {
            let any = |random: &mut fastrand::Rng| f32::from_bits(random.u32(..));
            let (a, b, c) = (any(&mut random), any(&mut random), any(&mut random));
            check(a, b, c);
            // Sums that nearly vanish, and ones that nearly do not matter.
            check(a, b, -(a * b));
            check(a, b, f32::from_bits((a * b).to_bits() ^ (1 << random.u32(0..31))));
            let small = |random: &mut fastrand::Rng| (random.f32() - 0.5) * 4.0;
            check(small(&mut random), small(&mut random), small(&mut random));
        }
        let special =
            [0.0, -0.0, 1.0, f32::MIN_POSITIVE, 1e-45, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        for a in special {
            for b in special {
                for c in special {
                    check(a, b, c);
                    check(a, b, -c);
                }
            }
        }
    }
}

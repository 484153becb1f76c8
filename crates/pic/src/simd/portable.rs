//! Vectors as plain arrays, for processors without AVX2.

use super::{Real, Vector};

macro_rules! plain {
    ($name:ident, $real:ident, $bits:ident, $lanes:literal, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Copy)]
        pub struct $name([$real; $lanes]);

        impl $name {
            #[inline(always)]
            fn zip(self, b: Self, f: impl Fn($real, $real) -> $real) -> Self {
                $name(std::array::from_fn(|lane| f(self.0[lane], b.0[lane])))
            }
        }

        impl Vector for $name {
            type Real = $real;
            type Block = [$real; $lanes];
            const LANES: usize = $lanes;
            #[inline(always)]
            fn splat(x: $real) -> Self {
                $name([x; $lanes])
            }
            #[inline(always)]
            fn load(block: &[$real; $lanes]) -> Self {
                $name(*block)
            }
            #[inline(always)]
            fn store(self, block: &mut [$real; $lanes]) {
                *block = self.0;
            }
            #[inline(always)]
            fn add(self, b: Self) -> Self {
                self.zip(b, |a, b| a + b)
            }
            #[inline(always)]
            fn sub(self, b: Self) -> Self {
                self.zip(b, |a, b| a - b)
            }
            #[inline(always)]
            fn mul(self, b: Self) -> Self {
                self.zip(b, |a, b| a * b)
            }
            #[inline(always)]
            fn div(self, b: Self) -> Self {
                self.zip(b, |a, b| a / b)
            }
            #[inline(always)]
            fn fma(self, b: Self, c: Self) -> Self {
                $name(std::array::from_fn(|lane| self.0[lane].fma(b.0[lane], c.0[lane])))
            }
            #[inline(always)]
            fn fnma(self, b: Self, c: Self) -> Self {
                $name(std::array::from_fn(|lane| (-self.0[lane]).fma(b.0[lane], c.0[lane])))
            }
            #[inline(always)]
            fn root(self) -> Self {
                $name(self.0.map(|x| x.sqrt()))
            }
            #[inline(always)]
            fn within(self) -> Self {
                $name(self.0.map(|x| $real::from_bits(if (0.0..1.0).contains(&x) { $bits::MAX } else { 0 })))
            }
            #[inline(always)]
            fn and(self, mask: Self) -> Self {
                self.zip(mask, |a, b| $real::from_bits(a.to_bits() & b.to_bits()))
            }
            #[inline(always)]
            fn bits(self) -> u32 {
                (0..$lanes).map(|lane| u32::from(self.0[lane].is_sign_negative()) << lane).sum()
            }
            #[inline(always)]
            fn sum(self) -> $real {
                let mut left = self.0;
                let mut half = $lanes / 2;
                while half > 0 {
                    for lane in 0..half {
                        left[lane] += left[lane + half];
                    }
                    half /= 2;
                }
                left[0]
            }
        }
    };
}

plain!(Eight, f32, u32, 8, "Eight numbers in single precision.");
plain!(Four, f64, u64, 4, "Four numbers in double precision.");

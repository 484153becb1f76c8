//! Vectors for any processor: arrays.

use super::{Lanes, ROOT};

/// Arrays, of which the compiler makes what it can.
#[derive(Clone, Copy)]
pub struct Plain;

impl Lanes for Plain {
    type Vector = [f32; 8];
    type Mask = [bool; 8];
    const COUNT: usize = 8;

    #[inline(always)]
    fn splat(self, number: f32) -> [f32; 8] {
        [number; 8]
    }

    #[inline(always)]
    fn load(self, from: &[f32], at: usize) -> [f32; 8] {
        std::array::from_fn(|lane| from[at + lane])
    }

    #[inline(always)]
    fn load_some(self, from: &[f32], at: usize) -> [f32; 8] {
        std::array::from_fn(|lane| from.get(at + lane).copied().unwrap_or(0.0))
    }

    #[inline(always)]
    fn store(self, numbers: [f32; 8], to: &mut [f32], at: usize) {
        to[at..at + 8].copy_from_slice(&numbers);
    }

    #[inline(always)]
    fn store_some(self, numbers: [f32; 8], to: &mut [f32], at: usize) {
        to.iter_mut().skip(at).zip(numbers).for_each(|(to, number)| *to = number);
    }

    #[inline(always)]
    fn add(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane] + b[lane])
    }

    #[inline(always)]
    fn sub(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane] - b[lane])
    }

    #[inline(always)]
    fn mul(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane] * b[lane])
    }

    #[inline(always)]
    fn fma(self, a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane].mul_add(b[lane], c[lane]))
    }

    #[inline(always)]
    fn div(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane] / b[lane])
    }

    #[inline(always)]
    fn root(self, x: [f32; 8]) -> [f32; 8] {
        x.map(f32::sqrt)
    }

    #[inline(always)]
    fn smaller(self, x: [f32; 8], best: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| if x[lane] < best[lane] { x[lane] } else { best[lane] })
    }

    #[inline(always)]
    fn two_to(self, x: [f32; 8]) -> [f32; 8] {
        x.map(|x| f32::from_bits((x.to_bits() << 23).wrapping_add(127 << 23)))
    }

    #[inline(always)]
    fn parts(self, x: [f32; 8]) -> [[f32; 8]; 2] {
        let bits = x.map(|x| (x.to_bits() as i32).wrapping_sub(ROOT));
        let rest = bits.map(|bits| f32::from_bits((bits & 0x007f_ffff).wrapping_add(ROOT) as u32));
        [bits.map(|bits| (bits >> 23) as f32), rest]
    }

    #[inline(always)]
    fn larger(self, x: [f32; 8], best: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| if x[lane] > best[lane] { x[lane] } else { best[lane] })
    }

    #[inline(always)]
    fn better(self, x: [f32; 8], best: [f32; 8]) -> [bool; 8] {
        std::array::from_fn(|lane| (x[lane] > best[lane]) | x[lane].is_nan())
    }

    #[inline(always)]
    fn strange(self, x: [f32; 8]) -> [bool; 8] {
        std::array::from_fn(|lane| x[lane].is_nan())
    }

    #[inline(always)]
    fn equal(self, a: [f32; 8], b: [f32; 8]) -> [bool; 8] {
        std::array::from_fn(|lane| a[lane] == b[lane])
    }

    #[inline(always)]
    fn these(self, bits: u16) -> [bool; 8] {
        std::array::from_fn(|lane| bits >> lane & 1 == 1)
    }

    #[inline(always)]
    fn pick(self, mask: [bool; 8], yes: [f32; 8], no: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| if mask[lane] { yes[lane] } else { no[lane] })
    }

    #[inline(always)]
    fn part(self, low: [f32; 8], high: [f32; 8]) -> [[f32; 8]; 2] {
        let at = |i: usize| if i < 8 { low[i] } else { high[i - 8] };
        [0, 1].map(|odd| std::array::from_fn(|lane| at(2 * lane + odd)))
    }

    #[inline(always)]
    fn join(self, even: [f32; 8], odd: [f32; 8]) -> [[f32; 8]; 2] {
        let at = |i: usize| if i.is_multiple_of(2) { even[i / 2] } else { odd[i / 2] };
        [0, 8].map(|first| std::array::from_fn(|lane| at(first + lane)))
    }

    #[inline(always)]
    fn halve(self, a: [f32; 8], b: [f32; 8]) -> [[f32; 8]; 2] {
        [0, 4].map(|first| {
            std::array::from_fn(|lane| if lane < 4 { a[first + lane] } else { b[first + lane - 4] })
        })
    }

    #[inline(always)]
    fn slide<const N: usize>(self, low: [f32; 8], high: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| if lane + N < 8 { low[lane + N] } else { high[lane + N - 8] })
    }

    #[inline(always)]
    fn follow(self, before: [f32; 8], all: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| if lane > 0 { all[lane - 1] } else { before[7] })
    }
}

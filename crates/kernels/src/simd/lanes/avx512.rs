//! Vectors of sixteen numbers, which processors with AVX-512 have.

use std::arch::x86_64::*;

use super::{Lanes, ROOT, instructions};

/// For numbers that come from three vectors of 16: where among the first two each is, and then where among what that gave
/// and the third.
const fn places(vector: usize, part: bool) -> [[i32; 16]; 2] {
    let mut places = [[0; 16]; 2];
    let mut lane = 0;
    while lane < 16 {
        let i = 16 * vector + lane;
        let place = if part { i % 16 * 3 + i / 16 } else { i % 3 * 16 + i / 3 };
        places[0][lane] = if place < 32 { place as i32 } else { 0 };
        places[1][lane] = if place < 32 { lane as i32 } else { place as i32 - 16 };
        lane += 1;
    }
    places
}

/// The places of all three vectors, taken apart and put together.
static PLACES: [[[[i32; 16]; 2]; 3]; 2] = [
    [places(0, true), places(1, true), places(2, true)],
    [places(0, false), places(1, false), places(2, false)],
];

/// 512 bits; only a processor with AVX-512 has one.
#[derive(Clone, Copy)]
pub struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The processor has AVX-512.
    pub unsafe fn new() -> Avx512 {
        Avx512(())
    }

    /// Numbers of three vectors from other places.
    #[inline(always)]
    fn places(self, [a, b, c]: [__m512; 3], [two, three]: &[[i32; 16]; 2]) -> __m512 {
        // SAFETY: the processor has these vectors, and the places are as many.
        unsafe {
            let two = _mm512_permutex2var_ps(a, _mm512_loadu_si512(two.as_ptr().cast()), b);
            _mm512_permutex2var_ps(two, _mm512_loadu_si512(three.as_ptr().cast()), c)
        }
    }

    /// The first so many lanes.
    #[inline(always)]
    fn first(self, count: usize) -> u16 {
        if count < 16 { (1u16 << count) - 1 } else { u16::MAX }
    }
}

impl Lanes for Avx512 {
    type Vector = __m512;
    type Mask = u16;
    const COUNT: usize = 16;

    // Of those that compare, the second is taken where they cannot be compared.
    instructions!(__m512:
        add(a, b) _mm512_add_ps;
        sub(a, b) _mm512_sub_ps;
        mul(a, b) _mm512_mul_ps;
        fma(a, b, c) _mm512_fmadd_ps;
        div(a, b) _mm512_div_ps;
        root(x) _mm512_sqrt_ps;
        smaller(x, best) _mm512_min_ps;
        larger(x, best) _mm512_max_ps;
    );

    #[inline(always)]
    fn splat(self, number: f32) -> __m512 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm512_set1_ps(number) }
    }

    #[inline(always)]
    fn load(self, from: &[f32], at: usize) -> __m512 {
        // SAFETY: the processor has these vectors, and the numbers are there.
        unsafe { _mm512_loadu_ps(from[at..at + 16].as_ptr()) }
    }

    #[inline(always)]
    fn load_some(self, from: &[f32], at: usize) -> __m512 {
        let from = &from[at.min(from.len())..];
        // SAFETY: the processor has these vectors, and lanes beyond the end are not touched.
        unsafe { _mm512_maskz_loadu_ps(self.first(from.len()), from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, numbers: __m512, to: &mut [f32], at: usize) {
        // SAFETY: the processor has these vectors, and there is room.
        unsafe { _mm512_storeu_ps(to[at..at + 16].as_mut_ptr(), numbers) }
    }

    #[inline(always)]
    fn store_some(self, numbers: __m512, to: &mut [f32], at: usize) {
        let end = to.len();
        let to = &mut to[at.min(end)..];
        // SAFETY: the processor has these vectors, and lanes beyond the end are not touched.
        unsafe {
            match to.len() {
                16.. => _mm512_storeu_ps(to.as_mut_ptr(), numbers),
                9.. => _mm512_mask_storeu_ps(to.as_mut_ptr(), self.first(to.len()), numbers),
                // Less is in the way of others.
                _ => {
                    let mask = self.first(to.len()) as u8;
                    _mm256_mask_storeu_ps(to.as_mut_ptr(), mask, _mm512_castps512_ps256(numbers));
                }
            }
        }
    }

    #[inline(always)]
    fn two_to(self, x: __m512) -> __m512 {
        // SAFETY: the processor has these vectors.
        unsafe {
            let shifted = _mm512_slli_epi32::<23>(_mm512_castps_si512(x));
            _mm512_castsi512_ps(_mm512_add_epi32(shifted, _mm512_set1_epi32(127 << 23)))
        }
    }

    #[inline(always)]
    fn parts(self, x: __m512) -> [__m512; 2] {
        // SAFETY: the processor has these vectors.
        unsafe {
            let root = _mm512_set1_epi32(ROOT);
            let bits = _mm512_sub_epi32(_mm512_castps_si512(x), root);
            let rest = _mm512_and_si512(bits, _mm512_set1_epi32(0x007f_ffff));
            let n = _mm512_cvtepi32_ps(_mm512_srai_epi32::<23>(bits));
            [n, _mm512_castsi512_ps(_mm512_add_epi32(rest, root))]
        }
    }

    #[inline(always)]
    fn better(self, x: __m512, best: __m512) -> u16 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, best) | _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x) }
    }

    #[inline(always)]
    fn strange(self, x: __m512) -> u16 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x) }
    }

    #[inline(always)]
    fn equal(self, a: __m512, b: __m512) -> u16 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b) }
    }

    #[inline(always)]
    fn these(self, bits: u16) -> u16 {
        bits
    }

    #[inline(always)]
    fn pick(self, mask: u16, yes: __m512, no: __m512) -> __m512 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm512_mask_mov_ps(no, mask, yes) }
    }

    #[inline(always)]
    fn part(self, low: __m512, high: __m512) -> [__m512; 2] {
        // SAFETY: the processor has these vectors.
        unsafe {
            let evens = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
            let odds = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
            [_mm512_permutex2var_ps(low, evens, high), _mm512_permutex2var_ps(low, odds, high)]
        }
    }

    #[inline(always)]
    fn join(self, even: __m512, odd: __m512) -> [__m512; 2] {
        // SAFETY: the processor has these vectors.
        unsafe {
            let first = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
            let second = _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
            [_mm512_permutex2var_ps(even, first, odd), _mm512_permutex2var_ps(even, second, odd)]
        }
    }

    #[inline(always)]
    fn halve(self, a: __m512, b: __m512) -> [__m512; 2] {
        // SAFETY: the processor has these vectors.
        unsafe { [_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b)] }
    }

    #[inline(always)]
    fn part3(self, all: [__m512; 3]) -> [__m512; 3] {
        let [a, b, c] = &PLACES[0];
        [self.places(all, a), self.places(all, b), self.places(all, c)]
    }

    #[inline(always)]
    fn join3(self, all: [__m512; 3]) -> [__m512; 3] {
        let [a, b, c] = &PLACES[1];
        [self.places(all, a), self.places(all, b), self.places(all, c)]
    }

    #[inline(always)]
    fn slide<const N: usize>(self, low: __m512, high: __m512) -> __m512 {
        // SAFETY: the processor has these vectors.
        unsafe {
            let [low, high] = [_mm512_castps_si512(low), _mm512_castps_si512(high)];
            _mm512_castsi512_ps(match N {
                1 => _mm512_alignr_epi32::<1>(high, low),
                2 => _mm512_alignr_epi32::<2>(high, low),
                3 => _mm512_alignr_epi32::<3>(high, low),
                4 => _mm512_alignr_epi32::<4>(high, low),
                _ => unreachable!("up to four"),
            })
        }
    }

    #[inline(always)]
    fn follow(self, before: __m512, all: __m512) -> __m512 {
        // SAFETY: the processor has these vectors.
        unsafe {
            let [before, all] = [_mm512_castps_si512(before), _mm512_castps_si512(all)];
            _mm512_castsi512_ps(_mm512_alignr_epi32::<15>(all, before))
        }
    }
}

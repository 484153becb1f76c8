//! Vectors of eight numbers, which processors with AVX2 have.

use std::arch::x86_64::*;

use super::{Lanes, ROOT, instructions};

/// 256 bits; only a processor with AVX2 and FMA has one.
#[derive(Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The processor has AVX2 and FMA.
    pub unsafe fn new() -> Avx2 {
        Avx2(())
    }

    /// The first so many lanes.
    #[inline(always)]
    fn first(self, count: usize) -> __m256i {
        // SAFETY: the processor has these vectors, here and below.
        unsafe {
            let lanes = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
            _mm256_cmpgt_epi32(_mm256_set1_epi32(count.min(8) as i32), lanes)
        }
    }
}

impl Lanes for Avx2 {
    type Vector = __m256;
    type Mask = __m256;
    const COUNT: usize = 8;

    // Of those that compare, the second is taken where they cannot be compared.
    instructions!(__m256:
        add(a, b) _mm256_add_ps;
        sub(a, b) _mm256_sub_ps;
        mul(a, b) _mm256_mul_ps;
        fma(a, b, c) _mm256_fmadd_ps;
        div(a, b) _mm256_div_ps;
        root(x) _mm256_sqrt_ps;
        smaller(x, best) _mm256_min_ps;
        larger(x, best) _mm256_max_ps;
    );

    #[inline(always)]
    fn splat(self, number: f32) -> __m256 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm256_set1_ps(number) }
    }

    #[inline(always)]
    fn load(self, from: &[f32], at: usize) -> __m256 {
        // SAFETY: the processor has these vectors, and the numbers are there.
        unsafe { _mm256_loadu_ps(from[at..at + 8].as_ptr()) }
    }

    #[inline(always)]
    fn load_some(self, from: &[f32], at: usize) -> __m256 {
        let from = &from[at.min(from.len())..];
        // SAFETY: the processor has these vectors, and lanes beyond the end are not touched.
        unsafe { _mm256_maskload_ps(from.as_ptr(), self.first(from.len())) }
    }

    #[inline(always)]
    fn store(self, numbers: __m256, to: &mut [f32], at: usize) {
        // SAFETY: the processor has these vectors, and there is room.
        unsafe { _mm256_storeu_ps(to[at..at + 8].as_mut_ptr(), numbers) }
    }

    #[inline(always)]
    fn store_some(self, numbers: __m256, to: &mut [f32], at: usize) {
        let end = to.len();
        let to = &mut to[at.min(end)..];
        // SAFETY: the processor has these vectors, and lanes beyond the end are not touched.
        unsafe { _mm256_maskstore_ps(to.as_mut_ptr(), self.first(to.len()), numbers) }
    }

    #[inline(always)]
    fn two_to(self, x: __m256) -> __m256 {
        // SAFETY: the processor has these vectors.
        unsafe {
            let shifted = _mm256_slli_epi32::<23>(_mm256_castps_si256(x));
            _mm256_castsi256_ps(_mm256_add_epi32(shifted, _mm256_set1_epi32(127 << 23)))
        }
    }

    #[inline(always)]
    fn parts(self, x: __m256) -> [__m256; 2] {
        // SAFETY: the processor has these vectors.
        unsafe {
            let root = _mm256_set1_epi32(ROOT);
            let bits = _mm256_sub_epi32(_mm256_castps_si256(x), root);
            let rest = _mm256_and_si256(bits, _mm256_set1_epi32(0x007f_ffff));
            let n = _mm256_cvtepi32_ps(_mm256_srai_epi32::<23>(bits));
            [n, _mm256_castsi256_ps(_mm256_add_epi32(rest, root))]
        }
    }

    #[inline(always)]
    fn better(self, x: __m256, best: __m256) -> __m256 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm256_or_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(x, best), _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x)) }
    }

    #[inline(always)]
    fn strange(self, x: __m256) -> __m256 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x) }
    }

    #[inline(always)]
    fn equal(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b) }
    }

    #[inline(always)]
    fn these(self, bits: u16) -> __m256 {
        // SAFETY: the processor has these vectors.
        unsafe {
            let lanes = _mm256_set_epi32(128, 64, 32, 16, 8, 4, 2, 1);
            let set = _mm256_and_si256(_mm256_set1_epi32(bits.into()), lanes);
            _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lanes))
        }
    }

    #[inline(always)]
    fn pick(self, mask: __m256, yes: __m256, no: __m256) -> __m256 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm256_blendv_ps(no, yes, mask) }
    }

    #[inline(always)]
    fn part(self, low: __m256, high: __m256) -> [__m256; 2] {
        // SAFETY: the processor has these vectors.
        unsafe {
            let even = _mm256_castps_pd(_mm256_shuffle_ps::<0x88>(low, high));
            let odd = _mm256_castps_pd(_mm256_shuffle_ps::<0xdd>(low, high));
            let even = _mm256_permute4x64_pd::<0xd8>(even);
            [_mm256_castpd_ps(even), _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(odd))]
        }
    }

    #[inline(always)]
    fn join(self, even: __m256, odd: __m256) -> [__m256; 2] {
        // SAFETY: the processor has these vectors.
        unsafe {
            let (low, high) = (_mm256_unpacklo_ps(even, odd), _mm256_unpackhi_ps(even, odd));
            [_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high)]
        }
    }

    #[inline(always)]
    fn halve(self, a: __m256, b: __m256) -> [__m256; 2] {
        // SAFETY: the processor has these vectors.
        unsafe { [_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b)] }
    }

    #[inline(always)]
    fn slide<const N: usize>(self, low: __m256, high: __m256) -> __m256 {
        // SAFETY: the processor has these vectors.
        unsafe {
            // The last four of one and the first four of the other.
            let middle = _mm256_permute2f128_ps::<0x21>(low, high);
            let [bits, behind] = [_mm256_castps_si256(low), _mm256_castps_si256(middle)];
            match N {
                1 => _mm256_castsi256_ps(_mm256_alignr_epi8::<4>(behind, bits)),
                2 => _mm256_castsi256_ps(_mm256_alignr_epi8::<8>(behind, bits)),
                3 => _mm256_castsi256_ps(_mm256_alignr_epi8::<12>(behind, bits)),
                4 => middle,
                _ => unreachable!("up to four"),
            }
        }
    }

    #[inline(always)]
    fn follow(self, before: __m256, all: __m256) -> __m256 {
        // SAFETY: the processor has these vectors.
        unsafe {
            let middle = _mm256_castps_si256(_mm256_permute2f128_ps::<0x21>(before, all));
            _mm256_castsi256_ps(_mm256_alignr_epi8::<12>(_mm256_castps_si256(all), middle))
        }
    }
}

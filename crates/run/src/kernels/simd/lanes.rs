//! Vectors as values, for loops that the compiler does not turn into vector code by itself: rows that are shorter than
//! what it unrolls, comparisons, and numbers that are exchanged between lanes.
//!
//! Who has a [`Lanes`] has a processor with these vectors, so its functions are safe; the macro [`lanes!`] hands it out.
//! All that lies between the macro and them must be inlined, always: closures, which nobody promises to inline, will not
//! do.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// A kind of vectors. Results are the same whatever the kind, lane by lane.
pub trait Lanes: Copy {
    /// So many numbers.
    type Vector: Copy;
    /// A yes or no for each of them.
    type Mask: Copy;
    /// How many.
    const COUNT: usize;

    /// The same number in all lanes.
    fn splat(self, number: f32) -> Self::Vector;
    /// The numbers from position `at` on.
    fn load(self, from: &[f32], at: usize) -> Self::Vector;
    /// The same, and zeros where there are no more.
    fn load_some(self, from: &[f32], at: usize) -> Self::Vector;
    /// Writes a vector to position `at`.
    fn store(self, numbers: Self::Vector, to: &mut [f32], at: usize);
    /// The same, as far as there is room.
    fn store_some(self, numbers: Self::Vector, to: &mut [f32], at: usize);
    /// a + b.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a − b.
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a · b.
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a · b + c, rounded once.
    fn fma(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// a / b.
    fn div(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// √x.
    fn root(self, x: Self::Vector) -> Self::Vector;
    /// The smaller of x and what is best so far, which stays where x is not a number.
    fn smaller(self, x: Self::Vector, best: Self::Vector) -> Self::Vector;
    /// 2 to the power of the whole number that is in the last bits of x, which leave no room for others.
    fn two_to(self, x: Self::Vector) -> Self::Vector;
    /// n and m, where x = m · 2^n and m is between √½ and √2.
    fn parts(self, x: Self::Vector) -> [Self::Vector; 2];
    /// The larger of x and what is best so far, which stays where x is not a number.
    fn larger(self, x: Self::Vector, best: Self::Vector) -> Self::Vector;
    /// Where x is greater than what is best so far, or is not a number.
    fn better(self, x: Self::Vector, best: Self::Vector) -> Self::Mask;
    /// Where x is not a number.
    fn strange(self, x: Self::Vector) -> Self::Mask;
    /// Where a and b are equal.
    fn equal(self, a: Self::Vector, b: Self::Vector) -> Self::Mask;
    /// One or the other.
    fn pick(self, mask: Self::Mask, yes: Self::Vector, no: Self::Vector) -> Self::Vector;
    /// Every other number of two vectors: those in even places, and those in odd ones.
    fn part(self, low: Self::Vector, high: Self::Vector) -> [Self::Vector; 2];
    /// Numbers in turn from both.
    fn join(self, even: Self::Vector, odd: Self::Vector) -> [Self::Vector; 2];

    /// Every third number of three vectors: those in places that are multiples of three, and those one and two further.
    #[inline(always)]
    fn part3(self, all: [Self::Vector; 3]) -> [Self::Vector; 3] {
        self.exchange(all, |i| i % Self::COUNT * 3 + i / Self::COUNT)
    }

    /// Numbers in turn from all three.
    #[inline(always)]
    fn join3(self, all: [Self::Vector; 3]) -> [Self::Vector; 3] {
        self.exchange(all, |i| i % 3 * Self::COUNT + i / 3)
    }

    /// Numbers of three vectors in another order.
    #[inline(always)]
    fn exchange(self, all: [Self::Vector; 3], place: impl Fn(usize) -> usize) -> [Self::Vector; 3] {
        let [mut from, mut to] = [[0f32; 48]; 2];
        for (at, one) in all.into_iter().enumerate() {
            self.store(one, &mut from, at * Self::COUNT);
        }
        for (i, to) in to[..3 * Self::COUNT].iter_mut().enumerate() {
            *to = from[place(i)];
        }
        [self.load(&to, 0), self.load(&to, Self::COUNT), self.load(&to, 2 * Self::COUNT)]
    }
}

/// The bits of √½.
pub(super) const ROOT: i32 = 0x3f35_04f3;

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
}

/// 256 bits; only a processor with AVX2 and FMA has one.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub struct Avx2(());

#[cfg(target_arch = "x86_64")]
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

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx2 {
    type Vector = __m256;
    type Mask = __m256;
    const COUNT: usize = 8;

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
    fn add(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm256_div_ps(a, b) }
    }

    #[inline(always)]
    fn root(self, x: __m256) -> __m256 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm256_sqrt_ps(x) }
    }

    #[inline(always)]
    fn smaller(self, x: __m256, best: __m256) -> __m256 {
        // SAFETY: the processor has these vectors, and takes the second where they cannot be compared.
        unsafe { _mm256_min_ps(x, best) }
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
    fn larger(self, x: __m256, best: __m256) -> __m256 {
        // SAFETY: the processor has these vectors, and takes the second where they cannot be compared.
        unsafe { _mm256_max_ps(x, best) }
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
}

/// For numbers that come from three vectors of 16: where among the first two each is, and then where among what that gave
/// and the third.
#[cfg(target_arch = "x86_64")]
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
#[cfg(target_arch = "x86_64")]
static PLACES: [[[[i32; 16]; 2]; 3]; 2] = [
    [places(0, true), places(1, true), places(2, true)],
    [places(0, false), places(1, false), places(2, false)],
];

/// 512 bits; only a processor with AVX-512 has one.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub struct Avx512(());

#[cfg(target_arch = "x86_64")]
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

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx512 {
    type Vector = __m512;
    type Mask = u16;
    const COUNT: usize = 16;

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
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn root(self, x: __m512) -> __m512 {
        // SAFETY: the processor has these vectors.
        unsafe { _mm512_sqrt_ps(x) }
    }

    #[inline(always)]
    fn smaller(self, x: __m512, best: __m512) -> __m512 {
        // SAFETY: the processor has these vectors, and takes the second where they cannot be compared.
        unsafe { _mm512_min_ps(x, best) }
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
    fn larger(self, x: __m512, best: __m512) -> __m512 {
        // SAFETY: the processor has these vectors, and takes the second where they cannot be compared.
        unsafe { _mm512_max_ps(x, best) }
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
    fn part3(self, all: [__m512; 3]) -> [__m512; 3] {
        let [a, b, c] = &PLACES[0];
        [self.places(all, a), self.places(all, b), self.places(all, c)]
    }

    #[inline(always)]
    fn join3(self, all: [__m512; 3]) -> [__m512; 3] {
        let [a, b, c] = &PLACES[1];
        [self.places(all, a), self.places(all, b), self.places(all, c)]
    }
}

/// Compiles a function for each kind of vectors, which is its first argument, and calls the best that the processor has.
macro_rules! lanes {
    ($(#[$doc:meta])* $vis:vis fn $name:ident $([$life:lifetime, $g:ident: $($bound:tt)+])? ($l:ident; $($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<$life, $g: $($bound)+>)? ($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn any<$($life,)? L: $crate::kernels::simd::Lanes $(, $g: $($bound)+)?>($l: L, $($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            fn avx512 $(<$life, $g: $($bound)+>)? ($l: $crate::kernels::simd::Avx512, $($arg: $ty),*) $(-> $ret)? { any($l, $($arg),*) }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            fn avx2 $(<$life, $g: $($bound)+>)? ($l: $crate::kernels::simd::Avx2, $($arg: $ty),*) $(-> $ret)? { any($l, $($arg),*) }
            match $crate::kernels::simd::level() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the processor has these vectors.
                $crate::kernels::simd::Level::Avx512 => unsafe {
                    avx512($crate::kernels::simd::Avx512::new(), $($arg),*)
                },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the processor has these vectors.
                $crate::kernels::simd::Level::Avx2 => unsafe {
                    avx2($crate::kernels::simd::Avx2::new(), $($arg),*)
                },
                _ => any($crate::kernels::simd::Plain, $($arg),*),
            }
        }
    };
}
pub(crate) use lanes;

#[cfg(test)]
mod tests {
    use super::*;

    /// What a vector holds.
    fn numbers<L: Lanes>(l: L, vector: L::Vector) -> Vec<f32> {
        let mut all = vec![0f32; L::COUNT];
        l.store(vector, &mut all, 0);
        all
    }

    fn every_function<L: Lanes>(l: L) {
        let n = L::COUNT;
        let count: Vec<f32> = (0..4 * n).map(|i| i as f32).collect();
        let at = |first: usize, step: usize| {
            count[first..].iter().step_by(step).take(n).copied().collect::<Vec<_>>()
        };
        let [a, b, c] = [0, n, 2 * n].map(|first| l.load(&count, first));
        assert_eq!(l.part(a, b).map(|v| numbers(l, v)), [at(0, 2), at(1, 2)]);
        let [even, odd] = l.part(a, b);
        assert_eq!(l.join(even, odd).map(|v| numbers(l, v)), [at(0, 1), at(n, 1)]);
        assert_eq!(l.part3([a, b, c]).map(|v| numbers(l, v)), [at(0, 3), at(1, 3), at(2, 3)]);
        let parts = l.part3([a, b, c]);
        assert_eq!(l.join3(parts).map(|v| numbers(l, v)), [at(0, 1), at(n, 1), at(2 * n, 1)]);
        for some in 0..=n + 1 {
            let there = &count[1..1 + some];
            let expected: Vec<f32> = (1..=n).map(|i| if i <= some { i as f32 } else { 0.0 }).collect();
            assert_eq!(numbers(l, l.load_some(there, 0)), expected);
            let mut to = vec![-1.0; some + 2];
            l.store_some(a, &mut to[1..], 1);
            assert_eq!(to[..2], [-1.0; 2]);
            assert!(to[2..].iter().take(n).zip(&count).all(|(to, number)| to == number), "{to:?}");
            l.store_some(a, &mut to, some + 5);
            assert_eq!(numbers(l, l.load_some(there, some + 5)), vec![0.0; n]);
        }
        let (one, nan) = (l.splat(1.0), l.splat(f32::NAN));
        let yes = |mask| numbers(l, l.pick(mask, one, l.splat(0.0))) == vec![1.0; n];
        let no = |mask| numbers(l, l.pick(mask, one, l.splat(0.0))) == vec![0.0; n];
        assert!(yes(l.better(one, l.splat(0.5))) && yes(l.better(nan, one)) && yes(l.better(nan, nan)));
        assert!(no(l.better(one, one)) && no(l.better(one, nan)) && no(l.equal(nan, nan)));
        assert!(yes(l.equal(l.larger(nan, one), one)) && yes(l.equal(l.larger(one, l.splat(0.5)), one)));
        assert!(yes(l.equal(l.larger(l.splat(0.5), one), one)));
        assert!(yes(l.equal(one, one)) && no(l.equal(one, l.splat(2.0))));
        assert!(yes(l.strange(nan)) && no(l.strange(one)));
        assert!(yes(l.equal(l.smaller(nan, one), one)) && yes(l.equal(l.smaller(l.splat(2.0), one), one)));
        assert!(yes(l.equal(l.root(l.div(l.splat(4.5), l.splat(2.0))), l.splat(1.5))));
        assert!(yes(l.equal(l.two_to(l.splat(f32::from_bits(3))), l.splat(8.0))));
        for x in [1.0f32, 0.7, 0.8, 1.4, 1.42, 3e-5, 7e8] {
            let [n, m] = l.parts(l.splat(x)).map(|v| numbers(l, v)[0]);
            assert!((0.707..1.4143).contains(&m) && m * n.exp2() == x, "{x} is {m} times 2 to {n}");
        }
        let fused = l.fma(l.splat(1.0 + f32::EPSILON), l.splat(1.0 - f32::EPSILON), l.splat(-1.0));
        assert!(numbers(l, fused) == vec![-f32::EPSILON * f32::EPSILON; n]);
        let expected: Vec<f32> = count[..n].iter().map(|x| (x + 3.0) * (x - 1.0)).collect();
        assert_eq!(numbers(l, l.mul(l.add(a, l.splat(3.0)), l.sub(a, one))), expected);
    }

    #[test]
    fn all_kinds_do_the_same() {
        every_function(Plain);
        #[cfg(target_arch = "x86_64")]
        {
            use super::super::{Level, level};
            if level() >= Level::Avx2 {
                // SAFETY: the processor has these vectors.
                every_function(unsafe { Avx2::new() });
            }
            if level() >= Level::Avx512 {
                // SAFETY: the processor has these vectors.
                every_function(unsafe { Avx512::new() });
            }
        }
    }
}

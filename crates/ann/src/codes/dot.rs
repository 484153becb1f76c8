//! Products of codes with a query: by counting bits where a number has one or two, by multiplying bytes where it has more.

/// Bits of a query's numbers, where bits are counted.
const PLANES: usize = 6;

/// A query in whole numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level {
    bits: u32,
    /// For counting: every word's planes, lowest bit first.
    planes: Vec<[u64; PLANES]>,
    /// For multiplying: one signed byte a number, in the order of packed codes.
    bytes: Vec<i8>,
    /// What one is worth, and what zero stands for.
    step: f32,
    low: f32,
    /// What codes count from their middle: half the levels times the sum of the query.
    middle: f32,
}

/// The bits that a level really has: bytes keep to seven, so that sums of two products fit in sixteen.
pub(super) fn depth(bits: u32) -> u32 {
    bits.min(7)
}

/// The numbers as levels: on which scale they are nearest in angle.
pub(super) fn round(residual: &[f32], bits: u32) -> Vec<u8> {
    if bits == 1 {
        return residual.iter().map(|n| u8::from(*n > 0.0)).collect();
    }
    let top = ((1u32 << depth(bits)) - 1) as f32;
    let most = residual.iter().fold(0.0f32, |most, n| most.max(n.abs()));
    if most == 0.0 {
        return vec![(top / 2.0) as u8; residual.len()];
    }
    let level = |n: f32, scale: f32| (n * scale + top / 2.0).round().clamp(0.0, top);
    let angle = |scale: f32| {
        let (mut along, mut square) = (0.0, 0.0);
        for n in residual {
            let code = level(*n, scale) - top / 2.0;
            along += code * n;
            square += code * code;
        }
        along / f32::max(square, f32::MIN_POSITIVE).sqrt()
    };
    // With all numbers within the levels, or the largest cut off.
    let scales = (0..10).map(|step| top / 2.0 / most * (1.0 + 0.25 * step as f32));
    let best =
        scales.map(|scale| (angle(scale), scale)).fold((f32::MIN, 1.0), |a, b| if b.0 > a.0 { b } else { a });
    residual.iter().map(|n| level(*n, best.1) as u8).collect()
}

/// Levels as codes keep them: planes of bits, nibbles or bytes.
pub(super) fn pack(levels: &[u8], bits: u32, into: &mut [u8]) {
    match bits {
        8 => into.copy_from_slice(levels),
        // Of 64 numbers, the first 32 are the low halves.
        4 => {
            for (to, from) in into.chunks_exact_mut(32).zip(levels.chunks_exact(64)) {
                to.iter_mut().enumerate().for_each(|(at, byte)| *byte = from[at] | from[at + 32] << 4);
            }
        }
        _ => {
            let words = levels.len() / 64;
            for (at, level) in levels.iter().enumerate() {
                for plane in 0..bits as usize {
                    let bit = level >> plane & 1;
                    into[(plane * words + at / 64) * 8 + at % 64 / 8] |= bit << (at % 8);
                }
            }
        }
    }
}

impl Level {
    /// Takes a query that is rotated and less the mean.
    pub(super) fn set(&mut self, query: &[f32], bits: u32) {
        self.bits = bits;
        let top = ((1u32 << depth(bits)) - 1) as f32;
        self.middle = top / 2.0 * query.iter().sum::<f32>();
        if bits <= 2 {
            let (low, high) = query.iter().fold((f32::MAX, f32::MIN), |(l, h), n| (l.min(*n), h.max(*n)));
            let most = ((1 << PLANES) - 1) as f32;
            self.low = low;
            self.step = if high > low { (high - low) / most } else { 1.0 };
            self.planes.clear();
            for word in query.chunks_exact(64) {
                let mut planes = [0; PLANES];
                for (at, n) in word.iter().enumerate() {
                    let number = ((n - low) / self.step).round().clamp(0.0, most) as u64;
                    planes
                        .iter_mut()
                        .enumerate()
                        .for_each(|(bit, plane)| *plane |= (number >> bit & 1) << at);
                }
                self.planes.push(planes);
            }
        } else {
            let most = query.iter().fold(0.0f32, |most, n| most.max(n.abs()));
            self.low = 0.0;
            self.step = if most > 0.0 { most / 127.0 } else { 1.0 };
            self.bytes.clear();
            self.bytes.extend(query.iter().map(|n| (n / self.step).round() as i8));
        }
    }

    /// The products of the query with the codes of these rows, from the middle of their levels.
    pub(super) fn many(&self, codes: &[u8], stride: usize, rows: &[u32], products: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("popcnt") {
            // SAFETY: the processor has the instructions.
            return unsafe { self.wide(codes, stride, rows, products) };
        }
        self.each(codes, stride, rows, products, |level, code| match level.bits {
            8 => bytes(&level.bytes, code),
            _ => nibbles(&level.bytes, code),
        });
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt")]
    fn wide(&self, codes: &[u8], stride: usize, rows: &[u32], products: &mut [f32]) {
        self.each(codes, stride, rows, products, |level, code| match level.bits {
            8 => wide::bytes(&level.bytes, code),
            _ => wide::nibbles(&level.bytes, code),
        });
    }

    #[inline(always)]
    fn each(
        &self,
        codes: &[u8],
        stride: usize,
        rows: &[u32],
        products: &mut [f32],
        multiply: impl Fn(&Level, &[u8]) -> i32,
    ) {
        for (row, product) in rows.iter().zip(products) {
            let code = &codes[*row as usize * stride..][..stride - super::TAIL];
            *product = match self.bits {
                1 => self.count(code, 0, 1.0),
                2 => self.count(code, 0, 1.0) + self.count(code, self.planes.len(), 2.0),
                _ => multiply(self, code) as f32 * self.step,
            } - self.middle;
        }
    }

    /// The product with one plane of a code.
    #[inline(always)]
    fn count(&self, code: &[u8], from: usize, worth: f32) -> f32 {
        let words = &code.as_chunks::<8>().0[from..];
        let mut sums = [0u32; PLANES];
        let mut set = 0;
        for (planes, word) in self.planes.iter().zip(words) {
            let word = u64::from_le_bytes(*word);
            set += word.count_ones();
            for (sum, plane) in sums.iter_mut().zip(planes) {
                *sum += (word & plane).count_ones();
            }
        }
        let whole: u32 = sums.iter().enumerate().map(|(bit, sum)| sum << bit).sum();
        worth * (whole as f32 * self.step + set as f32 * self.low)
    }
}

fn bytes(query: &[i8], code: &[u8]) -> i32 {
    query.iter().zip(code).map(|(q, c)| i32::from(*q) * i32::from(*c)).sum()
}

fn nibbles(query: &[i8], code: &[u8]) -> i32 {
    let parts = query.as_chunks::<64>().0.iter().zip(code.as_chunks::<32>().0);
    parts
        .map(|(q, c)| {
            (0..32)
                .map(|at| {
                    i32::from(q[at]) * i32::from(c[at] & 15) + i32::from(q[at + 32]) * i32::from(c[at] >> 4)
                })
                .sum::<i32>()
        })
        .sum()
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2")]
    fn load<T>(from: &[T; 32]) -> __m256i {
        const { assert!(size_of::<T>() == 1) };
        // SAFETY: 32 bytes are there.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    fn sum(lanes: __m256i) -> i32 {
        let half = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes));
        let pair = _mm_add_epi32(half, _mm_unpackhi_epi64(half, half));
        _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32::<1>(pair)))
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn bytes(query: &[i8], code: &[u8]) -> i32 {
        let ones = _mm256_set1_epi16(1);
        let mut total = _mm256_setzero_si256();
        for (q, c) in query.as_chunks::<32>().0.iter().zip(code.as_chunks::<32>().0) {
            let pairs = _mm256_maddubs_epi16(load(c), load(q));
            total = _mm256_add_epi32(total, _mm256_madd_epi16(pairs, ones));
        }
        sum(total)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn nibbles(query: &[i8], code: &[u8]) -> i32 {
        let (ones, low) = (_mm256_set1_epi16(1), _mm256_set1_epi8(15));
        let mut total = _mm256_setzero_si256();
        for (q, c) in query.as_chunks::<32>().0.chunks_exact(2).zip(code.as_chunks::<32>().0) {
            let both = load(c);
            let first = _mm256_maddubs_epi16(_mm256_and_si256(both, low), load(&q[0]));
            let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(both), low);
            let second = _mm256_maddubs_epi16(upper, load(&q[1]));
            total = _mm256_add_epi32(total, _mm256_madd_epi16(_mm256_add_epi16(first, second), ones));
        }
        sum(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Products of packed codes are those of their levels, up to how finely the query is rounded.
    #[test]
    fn products_are_those_of_the_levels() {
        let mut random = fastrand::Rng::with_seed(6);
        for bits in super::super::WIDTHS {
            for dim in [64, 128, 832] {
                let numbers = |random: &mut fastrand::Rng| {
                    (0..dim).map(|_| random.f32() * 2.0 - 1.0).collect::<Vec<f32>>()
                };
                let (query, residual) = (numbers(&mut random), numbers(&mut random));
                let levels = round(&residual, bits);
                let mut code = vec![0; dim * bits as usize / 8 + super::super::TAIL];
                let len = code.len();
                pack(&levels, bits, &mut code[..len - super::super::TAIL]);
                let mut level = Level::default();
                level.set(&query, bits);
                let mut found = [0.0];
                level.many(&code, len, &[0], &mut found);
                let middle = ((1u32 << depth(bits)) - 1) as f32 / 2.0;
                let wanted: f32 = query.iter().zip(&levels).map(|(q, l)| q * (f32::from(*l) - middle)).sum();
                let size = (dim as f32).sqrt() * middle;
                assert!((found[0] - wanted).abs() < 0.06 * size, "{bits} {dim}: {} {wanted}", found[0]);
                if bits > 2 {
                    let code = &code[..len - super::super::TAIL];
                    let plain =
                        if bits == 8 { bytes(&level.bytes, code) } else { nibbles(&level.bytes, code) };
                    assert_eq!(plain as f32 * level.step - level.middle, found[0]);
                }
            }
        }
    }
}

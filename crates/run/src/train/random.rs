//! Random numbers by counting: the number at an index follows from the seed, the stream and the index alone.
//!
//! So contents do not depend on the order in which tensors are filled, nor on where a run was stopped and resumed.
//! No function of the system's mathematics library is used: the numbers are the same on every machine.

/// One stream of random numbers, read at any index.
#[derive(Clone, Copy, Debug)]
pub struct Stream(u64);

impl Stream {
    /// The stream of this name under this seed.
    pub fn new(seed: u64, name: &str) -> Stream {
        // FNV-1a of the name, so that streams of similar names are apart.
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
        Stream(mix(mix(seed ^ 0x9e37_79b9_7f4a_7c15) ^ hash))
    }

    /// A stream of this one, by number: one for each iteration or epoch.
    pub fn nth(self, n: u64) -> Stream {
        Stream(mix(self.0 ^ mix(n.wrapping_add(0x6a09_e667_f3bc_c909))))
    }

    /// 64 random bits.
    pub fn bits(self, index: u64) -> u64 {
        mix(self.0.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// A whole number below `bound`, which is above zero.
    pub fn below(self, index: u64, bound: u64) -> u64 {
        ((u128::from(self.bits(index)) * u128::from(bound)) >> 64) as u64
    }

    /// A number of mean 0 and standard deviation 1: the sum of four even ones, so none beyond 3.47.
    pub fn normal(self, index: u64) -> f32 {
        let bits = self.bits(index);
        let quarter = |at: u32| (bits >> (16 * at)) as u32 & 0xffff;
        let sum = quarter(0) + quarter(1) + quarter(2) + quarter(3);
        // Four numbers of 0..65536 have the mean 4 · 32767.5 and the variance 4 · (65536² − 1) / 12.
        (sum as f32 - 131_070.0) * (1.0 / 37_837.227)
    }

    /// The numbers below `n`, each once, in random order.
    pub fn order(self, n: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n as u32).collect();
        for at in (1..n).rev() {
            order.swap(at, self.below(at as u64, at as u64 + 1) as usize);
        }
        order
    }
}

/// The finaliser of SplitMix64: every bit of the result depends on every bit of `x`.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_numbers_have_their_mean_and_deviation() {
        let stream = Stream::new(7, "weight");
        let numbers: Vec<f64> = (0..200_000).map(|i| f64::from(stream.normal(i))).collect();
        let n = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / n;
        let variance = numbers.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        assert!(mean.abs() < 0.01, "{mean}");
        assert!((variance - 1.0).abs() < 0.01, "{variance}");
        let neighbours = numbers.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / n;
        assert!(neighbours.abs() < 0.01, "{neighbours}");
    }

    #[test]
    fn streams_differ_by_seed_name_and_number() {
        let first = |s: Stream| [s.bits(0), s.bits(1)];
        let all = [
            first(Stream::new(0, "a")),
            first(Stream::new(1, "a")),
            first(Stream::new(0, "b")),
            first(Stream::new(0, "a").nth(0)),
            first(Stream::new(0, "a").nth(1)),
        ];
        for (i, x) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|y| x[0] != y[0] && x[0] != y[1] && x[1] != y[1]), "{i}");
        }
    }

    #[test]
    fn orders_are_permutations_and_numbers_stay_below() {
        let stream = Stream::new(3, "order");
        let mut order = stream.order(1000);
        assert_ne!(order[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
        order.sort_unstable();
        assert!(order.iter().copied().eq(0..1000));
        assert!(stream.order(0).is_empty());
        assert!((0..10_000).all(|i| stream.below(i, 7) < 7));
        assert!((0..7).all(|n| (0..1000).any(|i| stream.below(i, 7) == n)));
    }
}

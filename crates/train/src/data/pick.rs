//! Choices at random that follow from a seed, a name and a position.

use tiercel_kernels::random::{key, mix, name};

/// The key of the choices of this name under this seed.
pub fn stream(seed: u64, called: &str) -> u64 {
    key(&[seed, name(called)])
}

/// A whole number below `bound`, which is above zero.
pub fn below(stream: u64, at: u64, bound: u64) -> u64 {
    let bits = mix(stream ^ mix(at.wrapping_add(0x6A09_E667_F3BC_C909)));
    ((u128::from(bits) * u128::from(bound)) >> 64) as u64
}

/// The numbers below `n`, each once, in random order.
pub fn order(stream: u64, n: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n as u32).collect();
    for at in (1..n).rev() {
        order.swap(at, below(stream, at as u64, at as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_permutations_and_numbers_stay_below() {
        let key = stream(3, "order");
        let mut shuffled = order(key, 1000);
        assert_ne!(shuffled[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_ne!(shuffled, order(stream(4, "order"), 1000));
        shuffled.sort_unstable();
        assert!(shuffled.iter().copied().eq(0..1000));
        assert!(order(key, 0).is_empty());
        assert!((0..10_000).all(|i| below(key, i, 7) < 7));
        assert!((0..7).all(|n| (0..1000).any(|i| below(key, i, 7) == n)));
    }
}

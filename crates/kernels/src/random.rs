//! Random numbers that follow from where they stand: the same on every thread, under every policy, in every order.

use std::hash::Hasher;

/// Mixes bits so that neighbours look unrelated (the finisher of SplitMix64).
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// One key of several.
pub fn key(parts: &[u64]) -> u64 {
    parts
        .iter()
        .fold(0x9E37_79B9_7F4A_7C15, |key, part| mix(key ^ mix(part.wrapping_add(0x9E37_79B9_7F4A_7C15))))
}

/// The key of a name.
pub fn name(name: &str) -> u64 {
    let mut hash = Fnv(0xCBF2_9CE4_8422_2325);
    hash.write(name.as_bytes());
    hash.finish()
}

struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// 32 random bits of a position under a key; cheap in vectors.
#[inline(always)]
pub fn bits(key: u64, at: u32) -> u32 {
    let mut x = at ^ key as u32;
    x = (x ^ (x >> 16)).wrapping_mul(0x21F0_AAAD);
    x ^= (key >> 32) as u32;
    x = (x ^ (x >> 15)).wrapping_mul(0x735A_2D97);
    x ^ (x >> 15)
}

/// A number of mean 0 and deviation 1 for a position under a key (Box and Muller).
pub fn normal(key: u64, at: u64) -> f32 {
    let bits = mix(key ^ at.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let unit = |bits: u64| ((bits as u32) as f64 + 0.5) / 4_294_967_296.0;
    let (radius, angle) = ((-2.0 * unit(bits >> 32).ln()).sqrt(), std::f64::consts::TAU * unit(bits));
    (radius * angle.cos()) as f32
}

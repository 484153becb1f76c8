//! Maps by small keys, such as objects: a multiplication instead of a hash that is safe against enemies, since policies ask
//! such maps for every object that they might move.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by keys that nobody chooses to do harm.
pub(crate) type QuickMap<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// Mixes the numbers that a key is made of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mix(u64);

/// An odd number without pattern: the golden ratio's fraction.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(29) ^ number).wrapping_mul(FACTOR);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

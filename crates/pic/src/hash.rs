//! A fingerprint of results: equal for equal bits.

/// FNV-1a over words, so that a long run of numbers takes little time.
#[derive(Clone, Copy, Debug)]
pub struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Hash::new()
    }
}

impl Hash {
    /// Of nothing.
    pub fn new() -> Hash {
        Hash(0xCBF2_9CE4_8422_2325)
    }

    /// Adds a word.
    #[inline]
    pub fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01B3);
        self.0 ^= self.0 >> 29;
    }

    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.word(u64::from_le_bytes(word.try_into().unwrap_or_default()));
        }
        for byte in words.remainder() {
            self.word(u64::from(*byte));
        }
        self.word(bytes.len() as u64);
    }

    /// The fingerprint so far.
    pub fn value(self) -> u64 {
        self.0
    }
}

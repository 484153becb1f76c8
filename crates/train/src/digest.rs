//! A checksum of 64 bits that keeps up with memory: equal results have equal digests, damage changes them.

/// A checksum under way.
#[derive(Clone, Copy, Debug)]
pub struct Digest {
    lanes: [u64; 4],
    bytes: u64,
}

const FACTOR: u64 = 0x9fb2_1c65_1e98_df25;

impl Default for Digest {
    fn default() -> Digest {
        let lanes = [1, 2, 3, 4].map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Digest { lanes, bytes: 0 }
    }
}

impl Digest {
    /// Takes in a piece. Where the pieces are cut counts: the same bytes in other pieces are another text.
    pub fn add(&mut self, piece: &[u8]) {
        self.more(piece);
        self.end();
    }

    /// Takes in some of a piece: a multiple of 32 bytes, unless it is the last of it.
    pub fn more(&mut self, piece: &[u8]) {
        let mut words = piece.chunks_exact(32);
        for four in &mut words {
            for (lane, word) in self.lanes.iter_mut().zip(four.chunks_exact(8)) {
                *lane = step(*lane, u64::from_le_bytes(word.try_into().expect("eight bytes")));
            }
        }
        for (at, byte) in words.remainder().iter().enumerate() {
            let lane = &mut self.lanes[at % 4];
            *lane = step(*lane, u64::from(*byte) | 0x100);
        }
        self.bytes += piece.len() as u64;
    }

    /// Ends a piece.
    pub fn end(&mut self) {
        self.lanes[0] = step(self.lanes[0], self.bytes);
    }

    /// The checksum of what was taken in so far.
    pub fn value(&self) -> u64 {
        let [a, b, c, d] = self.lanes;
        [b, c, d].into_iter().fold(a, |sum, lane| step(sum, lane).rotate_left(17))
    }
}

/// For a fixed word, different lanes give different results, and the other way round: no single change is lost.
fn step(lane: u64, word: u64) -> u64 {
    let x = (lane ^ word).wrapping_mul(FACTOR);
    x ^ (x >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(piece: &[u8]) -> u64 {
        let mut digest = Digest::default();
        digest.add(piece);
        digest.value()
    }

    #[test]
    fn every_flipped_bit_every_cut_and_every_swap_counts() {
        let bytes: Vec<u8> = (0..211u32).map(|i| (i * 37) as u8).collect();
        let whole = of(&bytes);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(of(&damaged), whole, "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert_ne!(of(&bytes[..length]), whole);
        }
        let mut swapped = bytes.clone();
        swapped.swap(3, 40);
        assert_ne!(of(&swapped), whole);
        assert_eq!(of(&bytes), whole);
    }
}

//! The cache kept as ranges against one kept block by block.

use tiercel_core::Bytes;
use tiercel_policies::memory_mode::{DirectMapped, Outcome};
use tiercel_testbed::for_seeds;

const BLOCK: u64 = 64;

/// One entry a block: the address of what it holds, and whether that is dirty.
struct Naive {
    blocks: Vec<Option<(u64, bool)>>,
}

impl Naive {
    fn access(&mut self, address: u64, bytes: u64, write: bool) -> Outcome {
        let mut outcome = Outcome::default();
        for block in address / BLOCK..(address + bytes).div_ceil(BLOCK) {
            let at = (block % self.blocks.len() as u64) as usize;
            let slot = &mut self.blocks[at];
            let dirty = match *slot {
                Some((held, dirty)) if held == block => {
                    outcome.hits += BLOCK;
                    dirty
                }
                Some((_, true)) => {
                    outcome.dirty_misses += BLOCK;
                    false
                }
                _ => {
                    outcome.clean_misses += BLOCK;
                    false
                }
            };
            *slot = Some((block, dirty || write));
        }
        outcome
    }
}

#[test]
fn ranges_behave_like_blocks() {
    for_seeds(300, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let blocks = random.u64(1..40);
        let mut naive = Naive { blocks: vec![None; blocks as usize] };
        let mut cache = DirectMapped::new(Bytes(blocks * BLOCK));
        for _ in 0..200 {
            let address = random.u64(0..blocks * BLOCK * 6);
            let (bytes, write) = (random.u64(0..blocks * BLOCK * 2), random.bool());
            assert_eq!(cache.access(address, bytes, write), naive.access(address, bytes, write));
        }
    });
}

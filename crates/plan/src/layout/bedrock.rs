//! Blocks that live all the time lie at the bottom.
//!
//! Any packing can be changed so: what lies beneath such a block moves up by its size, and the block down to the bottom;
//! nothing meets anew, and the peak stays. Weights that a plan leaves where they are live all the time, and there are
//! hundreds of them. With them out of the way the search need not place them again and again, and finds moments that
//! nothing outlasts, where a packing falls into parts.

use super::problem::{Problem, Raw};

/// What is left of a problem above the blocks that live all the time.
pub(super) struct Bedrock {
    /// The problem of all other blocks.
    pub above: Problem,
    /// Where it begins.
    pub height: u64,
    /// The offset of each block that lives all the time; of the others, nothing yet.
    places: Vec<Option<u64>>,
}

impl Bedrock {
    /// Lays the blocks that live all the time one above the other. Where offsets must be multiples of something, no block is
    /// taken for one.
    pub fn new(raw: &[Raw]) -> Bedrock {
        let all = Problem::new(raw, &[]);
        let free = all.blocks.iter().all(|block| block.grain == 1);
        let mut height = 0;
        let mut place = |block: &super::problem::Block| {
            let lasts = free && block.sections() == (0..all.sections);
            lasts.then(|| {
                height += block.size;
                height - block.size
            })
        };
        let places: Vec<Option<u64>> = all.blocks.iter().map(&mut place).collect();
        let others: Vec<Raw> = raw
            .iter()
            .zip(&places)
            .filter(|(_, place)| place.is_none())
            .map(|(raw, _)| raw.clone())
            .collect();
        let above = if others.len() == raw.len() { all } else { Problem::new(&others, &[]) };
        Bedrock { above, height, places }
    }

    /// The offsets of all blocks, from those of the blocks above.
    pub fn offsets(&self, above: &[u64]) -> Vec<u64> {
        let mut above = above.iter().map(|offset| offset + self.height);
        let place = |place: &Option<u64>| place.or_else(|| above.next()).expect("one for each of the others");
        self.places.iter().map(place).collect()
    }
}

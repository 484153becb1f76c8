//! Finds the blocks that meet a given one in time, without a list of all pairs.
//!
//! Blocks are kept by birth, in classes by the length of their lives. In a class no life is longer than a power of two, so
//! only births within that distance can matter, and at least about every other one of those does.

use super::problem::{Block, Problem};

/// Blocks by birth, by classes of length.
pub(super) struct Meeting {
    /// For each class the longest life in it, and births with the block's number.
    classes: Vec<(u32, Vec<(u32, u32)>)>,
}

impl Meeting {
    pub fn new(problem: &Problem) -> Meeting {
        let mut classes: Vec<(u32, Vec<(u32, u32)>)> = vec![(0, Vec::new()); 33];
        for (k, block) in problem.blocks.iter().enumerate() {
            let length = block.to - block.from;
            let class = &mut classes[length.ilog2() as usize];
            class.0 = class.0.max(length);
            class.1.push((block.from, k as u32));
        }
        classes.retain(|(_, births)| !births.is_empty());
        classes.iter_mut().for_each(|(_, births)| births.sort_unstable());
        Meeting { classes }
    }

    /// The blocks that may meet `block`; most do.
    pub fn near(&self, block: &Block) -> impl Iterator<Item = u32> {
        let (from, to) = (block.from, block.to);
        self.classes.iter().flat_map(move |(longest, births)| {
            let first = births.partition_point(|(birth, _)| birth + longest <= from);
            births[first..].iter().take_while(move |(birth, _)| *birth < to).map(|(_, k)| *k)
        })
    }
}

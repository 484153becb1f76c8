//! The problem as the engines see it: blocks over moments without names, and obstacles that do not move.
//!
//! Moments are reduced to *sections*: the largest sets of blocks that live at the same time. Two blocks meet in
//! time exactly when they meet in a section, and no other moment can be more crowded, so nothing is lost. Sizes
//! and offsets are divided by their greatest common divisor.

use std::ops::Range;

/// A block of memory with a lifetime; where it lies is to be found.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// First section of its life.
    pub from: u32,
    /// Section after the last of its life.
    pub to: u32,
    pub size: u64,
    /// The offset is a multiple of this; at least 1.
    pub grain: u64,
}

impl Block {
    pub fn sections(&self) -> Range<usize> {
        self.from as usize..self.to as usize
    }

    /// The sections of its life that are followed by another one.
    pub fn inner(&self) -> Range<usize> {
        self.from as usize..self.to as usize - 1
    }

    /// Bytes over sections: how much of the packing it takes.
    pub fn area(&self) -> u128 {
        u128::from(self.size) * u128::from(self.to - self.from)
    }

    pub fn meets(&self, other: &Block) -> bool {
        self.from < other.to && other.from < self.to
    }
}

/// Blocks to place, among obstacles.
#[derive(Clone, Debug, Default)]
pub(super) struct Problem {
    pub blocks: Vec<Block>,
    /// Blocks that lie already, with their offsets, by which they are sorted.
    pub obstacles: Vec<(Block, u64)>,
    pub sections: usize,
}

/// A lifetime, a size and a grain, before moments are reduced to sections.
#[derive(Clone, Debug)]
pub(super) struct Raw {
    pub lower: u64,
    pub upper: u64,
    pub size: u64,
    pub grain: u64,
}

impl Problem {
    /// Reduces moments to sections.
    pub fn new(blocks: &[Raw], obstacles: &[(Raw, u64)]) -> Problem {
        // Births after deaths at the same moment: lifetimes are half-open.
        let all = || blocks.iter().chain(obstacles.iter().map(|(raw, _)| raw));
        let mut events: Vec<(u64, bool, u32)> = Vec::with_capacity(2 * (blocks.len() + obstacles.len()));
        for (at, raw) in all().enumerate() {
            events.push((raw.lower, true, at as u32));
            events.push((raw.upper, false, at as u32));
        }
        events.sort_unstable();
        let mut from = vec![0; blocks.len() + obstacles.len()];
        let mut to = from.clone();
        let mut section = 0;
        let mut grown = false;
        for (_, birth, at) in events {
            if birth {
                from[at as usize] = section;
                grown = true;
            } else {
                // A death after a birth ends a section; the deaths that follow shrink it only.
                section += u32::from(grown);
                grown = false;
                to[at as usize] = section;
            }
        }
        let mut walls: Vec<usize> = (0..obstacles.len()).collect();
        walls.sort_by_key(|at| obstacles[*at].1);
        let block =
            |at: usize, raw: &Raw| Block { from: from[at], to: to[at], size: raw.size, grain: raw.grain };
        Problem {
            blocks: blocks.iter().enumerate().map(|(at, raw)| block(at, raw)).collect(),
            obstacles: walls
                .into_iter()
                .map(|at| (block(blocks.len() + at, &obstacles[at].0), obstacles[at].1))
                .collect(),
            sections: section as usize,
        }
    }

    /// Live bytes in each section.
    pub fn load(&self) -> Vec<u64> {
        let mut load = vec![0u64; self.sections + 1];
        for block in self.blocks.iter().chain(self.obstacles.iter().map(|(block, _)| block)) {
            load[block.from as usize] = load[block.from as usize].wrapping_add(block.size);
            load[block.to as usize] = load[block.to as usize].wrapping_sub(block.size);
        }
        let mut sum = 0u64;
        for entry in &mut load {
            sum = sum.wrapping_add(*entry);
            *entry = sum;
        }
        load.truncate(self.sections);
        load
    }

    /// For each block those that meet it in time.
    pub fn neighbours(&self) -> Vec<Vec<u32>> {
        let mut births: Vec<u32> = (0..self.blocks.len() as u32).collect();
        births.sort_unstable_by_key(|k| self.blocks[*k as usize].from);
        let mut neighbours = vec![Vec::new(); self.blocks.len()];
        for (at, &a) in births.iter().enumerate() {
            let end = self.blocks[a as usize].to;
            for &b in births[at + 1..].iter().take_while(|b| self.blocks[**b as usize].from < end) {
                neighbours[a as usize].push(b);
                neighbours[b as usize].push(a);
            }
        }
        neighbours
    }

    /// How many pairs of blocks meet in time.
    pub fn pairs(&self) -> u64 {
        // Each birth meets those that were born before and have not died.
        let mut change = vec![(0u64, 0u64); self.sections + 1];
        for block in &self.blocks {
            change[block.from as usize].0 += 1;
            change[block.to as usize].1 += 1;
        }
        let (mut alive, mut pairs) = (0, 0);
        for (births, deaths) in change {
            alive -= deaths;
            pairs += births * alive + births * births.saturating_sub(1) / 2;
            alive += births;
        }
        pairs
    }

    /// For each section, how high obstacles reach that lie on the floor, or on one another from there.
    pub fn ground(&self) -> Vec<u64> {
        let mut ground = vec![0; self.sections];
        for (block, offset) in &self.obstacles {
            for height in ground[block.sections()].iter_mut().filter(|height| *offset <= **height) {
                *height = (*height).max(offset + block.size);
            }
        }
        ground
    }

    /// For each block the stretches of address that obstacles take from it, in order and apart from each other.
    pub fn blocked(&self) -> Vec<Vec<(u64, u64)>> {
        self.blocks.iter().map(|block| self.blocked_for(block)).collect()
    }

    /// The stretches that obstacles take from one block. Obstacles are sorted by offset.
    pub fn blocked_for(&self, block: &Block) -> Vec<(u64, u64)> {
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        for (other, offset) in self.obstacles.iter().filter(|(other, _)| other.meets(block)) {
            let end = offset + other.size;
            match stretches.last_mut() {
                Some(last) if last.1 >= *offset => last.1 = last.1.max(end),
                _ => stretches.push((*offset, end)),
            }
        }
        stretches
    }

    /// The problem of placing some blocks among others that lie already; `place` says where those do, if they do.
    pub fn part(&self, some: &[u32], place: impl Fn(u32) -> Option<u64>) -> Problem {
        let raw = |block: &Block| Raw {
            lower: u64::from(block.from),
            upper: u64::from(block.to),
            size: block.size,
            grain: block.grain,
        };
        let blocks: Vec<Raw> = some.iter().map(|k| raw(&self.blocks[*k as usize])).collect();
        let from = blocks.iter().map(|b| b.lower).min().unwrap_or(0);
        let to = blocks.iter().map(|b| b.upper).max().unwrap_or(0);
        let placed = self.blocks.iter().enumerate();
        let placed = placed.filter_map(|(k, block)| Some((block, place(k as u32)?)));
        let fixed = self.obstacles.iter().map(|(block, offset)| (block, *offset));
        let obstacles: Vec<(Raw, u64)> = placed
            .chain(fixed)
            .map(|(block, offset)| (raw(block), offset))
            .filter(|(raw, _)| raw.lower < to && from < raw.upper)
            .map(|(raw, offset)| {
                (Raw { lower: raw.lower.max(from), upper: raw.upper.min(to), ..raw }, offset)
            })
            .collect();
        Problem::new(&blocks, &obstacles)
    }

    /// Where a block ends.
    pub fn end(&self, k: u32, offsets: &[u64]) -> u64 {
        offsets[k as usize] + self.blocks[k as usize].size
    }

    /// The highest end of all blocks.
    pub fn peak(&self, offsets: &[u64]) -> u64 {
        (0..self.blocks.len() as u32).map(|k| self.end(k, offsets)).max().unwrap_or(0)
    }
}

/// The lowest offset from `floor` on that `block` may take beside obstacles.
pub(super) fn lowest(floor: u64, block: &Block, blocked: &[(u64, u64)]) -> u64 {
    let mut at = floor.next_multiple_of(block.grain);
    for &(start, end) in blocked {
        if at + block.size <= start {
            break;
        }
        if at < end {
            at = end.next_multiple_of(block.grain);
        }
    }
    at
}

//! Links of level 0 as a file and little memory keep them: as many bits a link as the number of nodes needs, and no empty
//! places. Lists are as they were, in their order, or cut short where memory is.

use crate::arena::Arena;
use crate::error::AnnError;

/// Nodes between two notes of where a list begins.
const BLOCK: usize = 16;

/// Packed lists.
pub(crate) struct Links {
    /// How many bits a link has.
    width: u32,
    /// How many links a node has.
    counts: Arena,
    bits: Arena,
    /// Where, in links, every block's first list begins.
    starts: Vec<u64>,
}

/// How many bits the numbers of so many nodes need.
pub(crate) fn width(nodes: usize) -> u32 {
    usize::BITS - nodes.saturating_sub(1).leading_zeros()
}

/// The bytes of so many links, with room for whole words to be read anywhere.
fn bytes(links: u64, width: u32) -> usize {
    ((links * u64::from(width)).div_ceil(8) + 8) as usize
}

/// What so many nodes with so many links in all take.
pub(crate) fn packed(nodes: usize, links: u64) -> usize {
    nodes + bytes(links, width(nodes)) + nodes.div_ceil(BLOCK) * 8
}

impl Links {
    /// Packs the lists of so many nodes; `list` says one in its order, of at most 255 links.
    pub(crate) fn pack<'a>(
        counts: impl Iterator<Item = usize>,
        nodes: usize,
        mut list: impl FnMut(usize, &mut Vec<u32>) + 'a,
    ) -> std::io::Result<Links> {
        let width = width(nodes);
        let mut packed =
            Links { width, counts: Arena::zeroed(nodes)?, bits: Arena::new(), starts: Vec::new() };
        let mut total = 0u64;
        for (node, count) in counts.enumerate() {
            if node % BLOCK == 0 {
                packed.starts.push(total);
            }
            packed.counts[node] = count as u8;
            total += count as u64;
        }
        packed.bits.resize_exact(bytes(total, width))?;
        let mut links = Vec::new();
        let mut at = 0u64;
        for node in 0..nodes {
            links.clear();
            list(node, &mut links);
            for link in &links[..usize::from(packed.counts[node])] {
                packed.put(at, *link);
                at += 1;
            }
        }
        Ok(packed)
    }

    fn put(&mut self, link: u64, value: u32) {
        let bit = link * u64::from(self.width);
        let at = (bit / 8) as usize;
        let word: &mut [u8; 8] = (&mut self.bits[at..at + 8]).try_into().expect("eight bytes");
        *word = (u64::from_le_bytes(*word) | u64::from(value) << (bit % 8)).to_le_bytes();
    }

    /// What a file keeps: counts and bits.
    pub(crate) fn parts(&self) -> [&[u8]; 2] {
        [&self.counts, &self.bits]
    }

    /// From what a file kept; `None` where a link leads nowhere or lengths do not fit.
    pub(crate) fn from_parts(nodes: usize, counts: Arena, bits: Arena) -> Option<Links> {
        let width = width(nodes);
        let mut starts = Vec::with_capacity(nodes.div_ceil(BLOCK));
        let mut total = 0u64;
        for (node, count) in counts.iter().enumerate() {
            if node % BLOCK == 0 {
                starts.push(total);
            }
            total += u64::from(*count);
        }
        if counts.len() != nodes || bits.len() != bytes(total, width) {
            return None;
        }
        let links = Links { width, counts, bits, starts };
        (0..total).all(|at| (links.at(at) as usize) < nodes).then_some(links)
    }

    #[inline(always)]
    fn at(&self, link: u64) -> u32 {
        let bit = link * u64::from(self.width);
        let at = (bit / 8) as usize;
        let word = self.bits[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        (word >> (bit % 8)) as u32 & (((1u64 << self.width) - 1) as u32)
    }

    #[inline(always)]
    fn start(&self, node: usize) -> u64 {
        let first = node / BLOCK * BLOCK;
        self.starts[node / BLOCK]
            + self.counts[first..node].iter().map(|count| u64::from(*count)).sum::<u64>()
    }

    /// The links of a node.
    #[inline(always)]
    pub(crate) fn of(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let start = self.start(node as usize);
        (start..start + u64::from(self.counts[node as usize])).map(|at| self.at(at))
    }

    /// How many links a node has.
    pub(crate) fn count(&self, node: u32) -> usize {
        usize::from(self.counts[node as usize])
    }

    /// Asks for a list ahead of its turn.
    #[inline(always)]
    pub(crate) fn fetch(&self, node: u32) {
        let start = self.starts[node as usize / BLOCK] + (node as usize % BLOCK * self.count(node)) as u64;
        let at = (start * u64::from(self.width) / 8) as usize;
        crate::distance::fetch(self.bits.as_ptr().wrapping_add(at), 128);
    }

    /// The same lists of at most so many links.
    pub(crate) fn cut(&self, most: usize) -> std::io::Result<Links> {
        let nodes = self.counts.len();
        let counts = self.counts.iter().map(|count| usize::from(*count).min(most));
        Links::pack(counts, nodes, |node, list| list.extend(self.of(node as u32)))
    }

    /// How many nodes have lists.
    pub(crate) fn nodes(&self) -> usize {
        self.counts.len()
    }

    /// How many links there would be with at most so many a node.
    pub(crate) fn total(&self, most: usize) -> u64 {
        self.counts.iter().map(|count| u64::from(*count).min(most as u64)).sum()
    }

    /// The bytes held.
    pub(crate) fn resident(&self) -> usize {
        self.counts.len() + self.bits.len() + self.starts.len() * 8
    }
}

/// The most links a list may have for its count to fit.
pub(crate) fn check(cap: usize) -> Result<(), AnnError> {
    crate::index::within("links of a node on level 0", cap, 1, usize::from(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back_as_they_were_or_cut() {
        let mut random = fastrand::Rng::with_seed(4);
        for nodes in [1usize, 2, 3, 100, 5000] {
            let lists: Vec<Vec<u32>> = (0..nodes)
                .map(|_| (0..random.usize(0..33)).map(|_| random.u32(0..nodes as u32)).collect())
                .collect();
            let packed =
                Links::pack(lists.iter().map(Vec::len), nodes, |node, list| list.extend(&lists[node]))
                    .unwrap();
            let copy = |part: &[u8]| {
                let mut arena = Arena::zeroed(part.len()).unwrap();
                arena.copy_from_slice(part);
                arena
            };
            let [counts, bits] = packed.parts().map(copy);
            let back = Links::from_parts(nodes, counts, bits).unwrap();
            let cut = back.cut(7).unwrap();
            for (node, list) in lists.iter().enumerate() {
                assert!(back.of(node as u32).eq(list.iter().copied()));
                assert!(cut.of(node as u32).eq(list.iter().copied().take(7)));
            }
            assert_eq!(cut.total(255), back.total(7));
            assert_eq!(back.resident(), super::packed(nodes, back.total(255)));
            let [counts, _] = packed.parts().map(copy);
            assert!(Links::from_parts(nodes, counts, Arena::new()).is_none());
        }
    }
}

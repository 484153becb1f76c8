//! What of an index stays in fast memory: codes of all vectors and the links among them. A search walks on these alone.

use std::collections::HashMap;
use std::io;

use crate::beam::{Beam, Visited};
use crate::codes::{CodeQuery, Codes};
use crate::links::{Links, packed};

/// The fewest links a node is left with where memory is short.
const FEWEST: usize = 6;

/// The lists above level 0, by node, level 1 first.
pub(crate) type Towers = HashMap<u32, Vec<Vec<u32>>>;

/// Codes and links.
pub(crate) struct Fast {
    pub(crate) links: Links,
    pub(crate) codes: Codes,
    pub(crate) towers: Towers,
    pub(crate) entry: u32,
}

/// What a walk needs beside it, kept from one to the next.
#[derive(Default)]
pub(crate) struct Walk {
    pub(crate) query: CodeQuery,
    pub(crate) beam: Beam,
    visited: Visited,
    fresh: Vec<u32>,
    keys: Vec<u32>,
    /// Estimates made since this was last set to zero.
    pub(crate) estimates: u64,
}

impl Walk {
    /// The bytes held.
    pub(crate) fn resident(&self) -> usize {
        self.visited.resident()
    }
}

impl Fast {
    /// The bytes held.
    pub(crate) fn resident(&self) -> usize {
        let lists = self.towers.values().flatten();
        let above: usize = lists.map(|list| list.len() * 4 + size_of::<Vec<u32>>()).sum();
        self.links.resident() + self.codes.resident() + above + self.towers.capacity() * 48
    }

    /// Gives up the lists of level 1, and cuts those of level 0 so short that all of it fits into so many bytes, and no shorter; where not
    /// even the shortest do, they are as short as that, and it says how many bytes would do.
    pub(crate) fn shorten(&mut self, room: usize) -> io::Result<Result<(), usize>> {
        if self.resident() <= room {
            return Ok(Ok(()));
        }
        // A walk that begins one level higher is a few steps longer; a short list loses neighbours.
        let towers = std::mem::take(&mut self.towers).into_iter();
        let above = towers.map(|(node, lists)| (node, lists.into_iter().skip(1).collect::<Vec<_>>()));
        self.towers = above.filter(|(_, lists)| !lists.is_empty()).collect();
        self.towers.shrink_to_fit();
        let rest = self.resident() - self.links.resident();
        let wanted = |most: usize| rest + packed(self.links.nodes(), self.links.total(most));
        if wanted(usize::MAX) <= room {
            return Ok(Ok(()));
        }
        let most = (FEWEST..usize::from(u8::MAX)).rev().find(|most| wanted(*most) <= room);
        let least = wanted(FEWEST);
        self.links = self.links.cut(most.unwrap_or(FEWEST))?;
        Ok(most.map(|_| ()).ok_or(least))
    }

    /// Walks with a beam of a width towards the query that `walk` has; its beam then holds the nearest by estimate.
    pub(crate) fn walk(&self, nodes: usize, width: usize, walk: &mut Walk) {
        let Walk { query, beam, visited, fresh, keys, estimates } = walk;
        let mut key = [0];
        self.codes.estimate(query, &[self.entry], &mut key);
        let (mut best, entry) = ((key[0], self.entry), key[0]);
        for level in (0..self.towers.get(&self.entry).map_or(0, Vec::len)).rev() {
            while let Some(links) = self.towers.get(&best.1).and_then(|lists| lists.get(level)) {
                keys.resize(links.len(), 0);
                self.codes.estimate(query, links, keys);
                *estimates += links.len() as u64;
                match keys.iter().copied().zip(links.iter().copied()).min() {
                    Some(nearest) if nearest < best => best = nearest,
                    _ => break,
                }
            }
        }
        visited.start(nodes);
        beam.start(width);
        visited.insert(best.1);
        beam.offer(best.0, best.1);
        // A way leads to every node from the entry, but not from everywhere.
        if visited.insert(self.entry) {
            beam.offer(entry, self.entry);
        }
        while let Some(node) = beam.follow() {
            fresh.clear();
            for link in self.links.of(node) {
                if visited.insert(link) {
                    self.codes.fetch(link);
                    fresh.push(link);
                }
            }
            if let Some(next) = beam.peek() {
                self.links.fetch(next);
            }
            keys.resize(fresh.len(), 0);
            self.codes.estimate(query, fresh, keys);
            *estimates += fresh.len() as u64;
            for (key, node) in keys.iter().zip(fresh.iter()) {
                beam.offer(*key, *node);
            }
        }
    }

    /// The nearest of some nodes by estimate.
    pub(crate) fn scan(&self, mut among: impl Iterator<Item = u32>, width: usize, walk: &mut Walk) {
        let Walk { query, beam, fresh, keys, estimates, .. } = walk;
        beam.start(width);
        loop {
            fresh.clear();
            fresh.extend(among.by_ref().take(256));
            if fresh.is_empty() {
                return;
            }
            keys.resize(fresh.len(), 0);
            self.codes.estimate(query, fresh, keys);
            keys.iter().zip(fresh.iter()).for_each(|(key, node)| {
                beam.offer(*key, *node);
            });
            *estimates += fresh.len() as u64;
        }
    }
}

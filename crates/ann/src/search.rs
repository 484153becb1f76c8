//! Searching a graph in memory: greedily down to level 1, with a beam on the level below.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::beam::{Beam, Visited, entry, key_of, row_of};
use crate::distance::fetch;
use crate::graph::{Graph, NONE};
use crate::rows::Rows;

/// What a search needs beside the index, kept from one search to the next.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) beam: Beam,
    pub(crate) visited: Visited,
    fresh: Vec<u32>,
    keys: Vec<u32>,
    candidates: BinaryHeap<Reverse<u64>>,
    /// A query's short copy, and what is near by true distances.
    pub(crate) copy: Vec<u8>,
    pub(crate) near: Beam,
    /// Distances computed since this was last set to zero.
    pub(crate) distances: u64,
}

/// Vectors and links.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) rows: &'a Rows,
    pub(crate) graph: &'a Graph,
}

impl View<'_> {
    /// The nearest node that greedy steps find from `start` on the levels from `top` down to `last`.
    pub(crate) fn descend(
        &self,
        query: (&[u8], f32),
        start: u32,
        levels: (usize, usize),
        scratch: &mut Scratch,
    ) -> (u32, u32) {
        let distance = self.rows.distance();
        let mut best = (distance.one(query, self.rows.get(start)), start);
        scratch.distances += 1;
        for level in (levels.1..=levels.0).rev() {
            loop {
                let links = self.graph.links(best.1, level);
                scratch.keys.resize(links.len(), 0);
                distance.many(query, self.rows, links, &mut scratch.keys);
                scratch.distances += links.len() as u64;
                let nearest = scratch.keys.iter().copied().zip(links.iter().copied()).min();
                match nearest {
                    Some(nearest) if nearest < best => best = nearest,
                    _ => break,
                }
            }
        }
        best
    }

    /// Searches one level with a beam, from these keys and nodes; the beam holds what was found.
    pub(crate) fn beam(
        &self,
        query: (&[u8], f32),
        entries: &[(u32, u32)],
        (level, width): (usize, usize),
        scratch: &mut Scratch,
    ) {
        let Scratch { beam, visited, fresh, keys, distances, .. } = scratch;
        let (rows, graph, distance) = (self.rows, self.graph, self.rows.distance());
        visited.start(graph.nodes());
        beam.start(width);
        for (key, node) in entries {
            if visited.insert(*node) {
                beam.offer(*key, *node);
            }
        }
        let (base, line) = (rows.bytes().as_ptr(), rows.stride().min(128));
        while let Some(node) = beam.follow() {
            fresh.clear();
            let links = if level == 0 { graph.ground(node) } else { graph.links(node, level) };
            for link in links {
                if *link == NONE {
                    break;
                }
                if visited.insert(*link) {
                    fetch(base.wrapping_add(*link as usize * rows.stride()), line);
                    fresh.push(*link);
                }
            }
            if let (0, Some(next)) = (level, beam.peek()) {
                let links = graph.ground(next);
                fetch(links.as_ptr().cast(), size_of_val(links));
            }
            keys.resize(fresh.len(), 0);
            distance.many(query, rows, fresh, keys);
            *distances += fresh.len() as u64;
            for (key, node) in keys.iter().zip(fresh.iter()) {
                beam.offer(*key, *node);
            }
        }
    }

    /// Searches level 0 for nodes that are wanted alone; the way leads over all others, too. The beam holds what was found.
    pub(crate) fn filtered(
        &self,
        query: (&[u8], f32),
        entries: &[(u32, u32)],
        width: usize,
        wanted: &dyn Fn(u32) -> bool,
        scratch: &mut Scratch,
    ) {
        let Scratch { beam, visited, fresh, keys, candidates, distances, .. } = scratch;
        visited.start(self.graph.nodes());
        beam.start(width);
        candidates.clear();
        for (key, node) in entries {
            if visited.insert(*node) {
                candidates.push(Reverse(entry(*key, *node)));
                if wanted(*node) {
                    beam.offer(*key, *node);
                }
            }
        }
        while let Some(Reverse(nearest)) = candidates.pop() {
            if beam.full() && beam.worst().is_some_and(|worst| key_of(nearest) > worst) {
                break;
            }
            fresh.clear();
            let links = self.graph.links(row_of(nearest), 0);
            fresh.extend(links.iter().copied().filter(|link| visited.insert(*link)));
            keys.resize(fresh.len(), 0);
            self.rows.distance().many(query, self.rows, fresh, keys);
            *distances += fresh.len() as u64;
            for (key, node) in keys.iter().zip(fresh.iter()) {
                if !beam.full() || beam.worst().is_some_and(|worst| *key < worst) {
                    candidates.push(Reverse(entry(*key, *node)));
                    if wanted(*node) {
                        beam.offer(*key, *node);
                    }
                }
            }
        }
    }
}

//! Breadth-first search and shortest paths over a graph whose degrees follow a power law (R-MAT), from one source after
//! another.
//!
//! Edges lie node by node and are read in order, once a node; what is kept of nodes is small and is read and written all
//! the time, and it is allocated last, as programs do.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::Recorder;

/// Bytes of an edge: where it leads, its weight, and what a program keeps beside them.
const EDGE: u64 = 32;
/// Bytes kept of a node.
const NODE: u64 = 16;
/// Edges of a node, on average: 14 billion over 0.9 billion.
const DEGREE: u64 = 16;

struct Graph {
    offsets: Vec<u32>,
    targets: Vec<u32>,
    weights: Vec<u8>,
    edges_at: u64,
    offsets_at: u64,
    state_at: u64,
}

impl Graph {
    fn nodes(&self) -> usize {
        self.offsets.len() - 1
    }

    fn load(recorder: &mut Recorder, bytes: u64, random: &mut fastrand::Rng) -> Graph {
        let nodes = (bytes / (DEGREE * EDGE + 2 * NODE)) as usize;
        let count = nodes * DEGREE as usize;
        let levels = usize::BITS - (nodes - 1).leading_zeros();
        let mut list: Vec<(u32, u32)> = Vec::with_capacity(count);
        while list.len() < count {
            let (mut from, mut to) = (0usize, 0usize);
            for _ in 0..levels {
                // The quarters of R-MAT: 57, 19, 19 and 5 %.
                let quarter = random.u32(..100);
                from = from * 2 + usize::from(quarter >= 76);
                to = to * 2 + usize::from((57..76).contains(&quarter) || quarter >= 95);
            }
            if from < nodes && to < nodes {
                list.push((from as u32, to as u32));
            }
        }
        // Numbers of nodes say nothing of their degree, as in a generated graph whose nodes are permuted.
        let mut names: Vec<u32> = (0..nodes as u32).collect();
        random.shuffle(&mut names);
        for (from, to) in &mut list {
            *from = names[*from as usize];
            *to = names[*to as usize];
        }
        list.sort_unstable();
        let mut offsets = vec![0u32; nodes + 1];
        list.iter().for_each(|(from, _)| offsets[*from as usize + 1] += 1);
        (0..nodes).for_each(|at| offsets[at + 1] += offsets[at]);
        let graph = Graph {
            targets: list.iter().map(|(_, to)| *to).collect(),
            weights: (0..count).map(|_| random.u8(1..64)).collect(),
            offsets,
            edges_at: recorder.room(count as u64 * EDGE),
            offsets_at: recorder.room(nodes as u64 * NODE),
            state_at: recorder.room(nodes as u64 * NODE),
        };
        recorder.stream_write(graph.edges_at, count as u64 * EDGE);
        recorder.stream_write(graph.offsets_at, nodes as u64 * NODE);
        recorder.stream_write(graph.state_at, nodes as u64 * NODE);
        recorder.begin(60.0);
        graph
    }

    /// The edges of a node, read as a program reads them.
    fn edges(&self, recorder: &mut Recorder, node: u32) -> std::ops::Range<usize> {
        recorder.read(self.offsets_at + u64::from(node) * NODE);
        let range = self.offsets[node as usize] as usize..self.offsets[node as usize + 1] as usize;
        recorder.stream_read(self.edges_at + range.start as u64 * EDGE, range.len() as u64 * EDGE);
        range
    }

    fn state(&self, node: u32) -> u64 {
        self.state_at + u64::from(node) * NODE
    }
}

pub(super) fn bfs(recorder: &mut Recorder, bytes: u64, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x6266_7300);
    let graph = Graph::load(recorder, bytes, &mut random);
    while !recorder.full() {
        let mut depth = vec![u32::MAX; graph.nodes()];
        let source = random.u32(..graph.nodes() as u32);
        depth[source as usize] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(node) = queue.pop_front() {
            if recorder.full() {
                return;
            }
            for edge in graph.edges(recorder, node) {
                let to = graph.targets[edge];
                recorder.read(graph.state(to));
                if depth[to as usize] == u32::MAX {
                    depth[to as usize] = depth[node as usize] + 1;
                    recorder.write(graph.state(to));
                    queue.push_back(to);
                }
            }
        }
    }
}

pub(super) fn sssp(recorder: &mut Recorder, bytes: u64, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x7373_7370);
    let graph = Graph::load(recorder, bytes, &mut random);
    while !recorder.full() {
        let mut distance = vec![u64::MAX; graph.nodes()];
        let source = random.u32(..graph.nodes() as u32);
        distance[source as usize] = 0;
        let mut queue = BinaryHeap::from([Reverse((0u64, source))]);
        while let Some(Reverse((far, node))) = queue.pop() {
            if recorder.full() {
                return;
            }
            recorder.read(graph.state(node));
            if far > distance[node as usize] {
                continue;
            }
            for edge in graph.edges(recorder, node) {
                let to = graph.targets[edge];
                let through = far + u64::from(graph.weights[edge]);
                recorder.read(graph.state(to));
                if through < distance[to as usize] {
                    distance[to as usize] = through;
                    recorder.write(graph.state(to));
                    queue.push(Reverse((through, to)));
                }
            }
        }
    }
}

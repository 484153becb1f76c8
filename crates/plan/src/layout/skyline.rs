//! A packing from the bottom up in near-linear time: fill the lowest gap with the best block that it holds.
//!
//! Best fit as for strips of material (Burke, Kendall and Whitwell 2004), which Sekiyama and others ("Profile-Guided Memory
//! Optimization for Deep Neural Networks", 2018) brought to memory: the upper edge of what lies is a *skyline*
//! of segments. The lowest segment takes the first block, in the order given, that lives within it; if there is none,
//! the segment rises to its lower neighbour. Theirs looks at every block for each segment; here a tree over births and
//! deaths finds it in about the square root of their number, so that tens of thousands of blocks take a fraction of a
//! second, however many live at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::problem::{Problem, lowest};

/// Packs all blocks; those that come first in `order` are preferred.
pub(super) fn pack(problem: &Problem, order: &[u32]) -> Vec<u64> {
    fill(problem, order, 1, |_, _, found| found.first().copied())
}

/// Packs all blocks; of the first few in `order` that a segment holds it takes the one that wastes least beside it, for its
/// size, where sections are weighed by how little they can afford to lose.
pub(super) fn pack_closely(problem: &Problem, order: &[u32], among: usize, dear: &Dear) -> Vec<u64> {
    fill(problem, order, among, |segment, walls, found| {
        let waste = |rank: u32| {
            let block = &problem.blocks[order[rank as usize] as usize];
            // What is left beside the block is narrow: count it as lost up to the lower of its walls.
            let pit = |from, to, wall: u64| dear.sum(from, to) * wall.min(block.size) as f64;
            let lost = pit(segment.0, block.from, walls.0) + pit(block.to, segment.1, walls.1);
            lost / (dear.sum(block.from, block.to) * block.size as f64)
        };
        found
            .iter()
            .map(|rank| (waste(*rank), *rank))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, rank)| rank)
    })
}

/// Fills the lowest segment with the rank that `choose` takes, given the segment, how much higher its neighbours are, and
/// the first `among` that it holds.
fn fill(
    problem: &Problem,
    order: &[u32],
    among: usize,
    choose: impl Fn((u32, u32), (u64, u64), &[u32]) -> Option<u32>,
) -> Vec<u64> {
    let mut tree = Tree::new(problem, order);
    let mut sky = Sky::over(&problem.ground());
    let mut offsets = vec![0; problem.blocks.len()];
    let mut left = order.len();
    let mut found = Vec::with_capacity(among + 1);
    while left > 0 {
        let Some((from, to, height)) = sky.lowest() else { break };
        found.clear();
        tree.first(1, (from, to), among, &mut found);
        let Some(rank) = choose((from, to), sky.walls(from), &found) else {
            sky.rise(from);
            continue;
        };
        tree.remove(rank);
        left -= 1;
        let k = order[rank as usize] as usize;
        let block = &problem.blocks[k];
        offsets[k] = lowest(height, block, &problem.blocked_for(block));
        sky.cover(from, block.from, block.to, offsets[k] + block.size);
    }
    offsets
}

/// What waste costs in each section: most where live bytes nearly fill the memory.
pub(super) struct Dear {
    weights: Vec<f64>,
    /// Running sums of the weights.
    sums: Vec<f64>,
}

/// How much dearer waste becomes where a packing came out too high.
const RAISE: f64 = 1.5;

impl Dear {
    /// By live bytes alone, over those of the fullest section, to the power of `steepness`.
    pub fn new(problem: &Problem, steepness: i32) -> Dear {
        let load = problem.load();
        let most = load.iter().copied().max().unwrap_or(0).max(1) as f64;
        // Nowhere is waste free: of two blocks that do no harm the one that fits better is taken.
        let weights: Vec<f64> =
            load.iter().map(|live| (*live as f64 / most).powi(steepness) + 1e-9).collect();
        let mut dear = Dear { sums: vec![0.0; weights.len() + 1], weights };
        dear.add_up();
        dear
    }

    /// Makes waste dearer where blocks end above `goal`.
    pub fn learn(&mut self, problem: &Problem, offsets: &[u64], goal: u64) {
        let mut high = vec![false; self.weights.len()];
        for (block, offset) in problem.blocks.iter().zip(offsets) {
            if offset + block.size > goal {
                high[block.sections()].fill(true);
            }
        }
        for (weight, _) in self.weights.iter_mut().zip(high).filter(|(_, high)| *high) {
            *weight = (*weight * RAISE).min(1e12);
        }
        self.add_up();
    }

    fn add_up(&mut self) {
        for (at, weight) in self.weights.iter().enumerate() {
            self.sums[at + 1] = self.sums[at] + weight;
        }
    }

    /// What a byte lost over `from..to` costs.
    fn sum(&self, from: u32, to: u32) -> f64 {
        self.sums[to as usize] - self.sums[from as usize]
    }
}

/// The upper edge: segments by their first section.
struct Sky {
    /// Section after the last, for each first section.
    end: Vec<u32>,
    /// First section of the segment before, for each first section.
    before: Vec<u32>,
    height: Vec<u64>,
    /// Height and first section of segments, some of which are no more.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    alive: Vec<bool>,
    sections: u32,
}

const NONE: u32 = u32::MAX;

impl Sky {
    /// Begins with what lies already: the height of each section.
    fn over(ground: &[u64]) -> Sky {
        let sections = ground.len();
        let mut sky = Sky {
            end: vec![0; sections],
            before: vec![NONE; sections],
            height: vec![0; sections],
            heap: BinaryHeap::new(),
            alive: vec![false; sections],
            sections: sections as u32,
        };
        let (mut from, mut before) = (0, NONE);
        for level in ground.chunk_by(|a, b| a == b) {
            let to = from + level.len() as u32;
            sky.add(from, to, level[0], before);
            (before, from) = (from, to);
        }
        sky
    }

    fn add(&mut self, from: u32, to: u32, height: u64, before: u32) {
        let at = from as usize;
        (self.end[at], self.height[at], self.before[at], self.alive[at]) = (to, height, before, true);
        self.heap.push(Reverse((height, from)));
        if to < self.sections {
            self.before[to as usize] = from;
        }
    }

    /// The lowest segment: first section, section after the last, height.
    fn lowest(&mut self) -> Option<(u32, u32, u64)> {
        while let Some(Reverse((height, from))) = self.heap.peek().copied() {
            if self.alive[from as usize] && self.height[from as usize] == height {
                return Some((from, self.end[from as usize], height));
            }
            self.heap.pop();
        }
        None
    }

    /// How much higher than a segment its neighbours are.
    fn walls(&self, from: u32) -> (u64, u64) {
        let (before, to, height) =
            (self.before[from as usize], self.end[from as usize], self.height[from as usize]);
        let left = if before == NONE { u64::MAX } else { self.height[before as usize] - height };
        let right = if to >= self.sections { u64::MAX } else { self.height[to as usize] - height };
        (left, right)
    }

    /// Lifts a segment to the lower of its neighbours and joins it with those of equal height.
    fn rise(&mut self, from: u32) {
        let to = self.end[from as usize];
        let left = Some(self.before[from as usize]).filter(|left| *left != NONE);
        let right = Some(to).filter(|right| *right < self.sections);
        let heights = left.into_iter().chain(right).map(|at| self.height[at as usize]);
        let Some(height) = heights.min() else { return };
        self.join(from, to, height);
    }

    /// Makes one segment of `from..to` at `height`, and of its neighbours if they are as high.
    fn join(&mut self, from: u32, to: u32, height: u64) {
        let (mut first, mut last) = (from, to);
        let left = self.before[from as usize];
        if left != NONE && self.height[left as usize] == height {
            self.alive[from as usize] = false;
            first = left;
        }
        if last < self.sections && self.height[last as usize] == height {
            self.alive[last as usize] = false;
            last = self.end[last as usize];
        }
        let before = self.before[first as usize];
        self.add(first, last, height, before);
    }

    /// Puts a block over `from..to` on the segment that begins at `segment`.
    fn cover(&mut self, segment: u32, from: u32, to: u32, height: u64) {
        let (end, under) = (self.end[segment as usize], self.height[segment as usize]);
        let mut before = self.before[segment as usize];
        self.alive[segment as usize] = false;
        if segment < from {
            self.add(segment, from, under, before);
            before = segment;
        }
        self.add(from, to, height, before);
        if to < end {
            self.add(to, end, under, from);
        }
        self.join(from, to, height);
    }
}

/// Finds the first block in an order whose life lies within a range: a tree that halves by births and deaths in turn.
struct Tree {
    nodes: Vec<Node>,
    /// The leaf of each rank.
    leaf: Vec<u32>,
    leaves: usize,
}

#[derive(Clone, Copy)]
struct Node {
    births: (u32, u32),
    deaths: (u32, u32),
    /// The lowest rank of a block that is left.
    best: u32,
}

impl Tree {
    fn new(problem: &Problem, order: &[u32]) -> Tree {
        let leaves = order.len().next_power_of_two();
        let empty = Node { births: (NONE, 0), deaths: (NONE, 0), best: NONE };
        let mut tree = Tree { nodes: vec![empty; 2 * leaves], leaf: vec![0; order.len()], leaves };
        let mut ranks: Vec<(u32, u32, u32)> = order
            .iter()
            .enumerate()
            .map(|(rank, k)| {
                let block = &problem.blocks[*k as usize];
                (block.from, block.to, rank as u32)
            })
            .collect();
        tree.build(1, leaves, &mut ranks, true);
        tree
    }

    /// Fills the node with a share of the leaves.
    fn build(&mut self, node: usize, leaves: usize, ranks: &mut [(u32, u32, u32)], by_birth: bool) {
        if ranks.is_empty() {
            return;
        }
        if leaves == 1 {
            let (birth, death, rank) = ranks[0];
            self.nodes[node] = Node { births: (birth, birth), deaths: (death, death), best: rank };
            self.leaf[rank as usize] = node as u32;
            return;
        }
        let half = (leaves / 2).min(ranks.len());
        if half < ranks.len() {
            ranks.select_nth_unstable_by_key(half, |r| if by_birth { (r.0, r.2) } else { (r.1, r.2) });
        }
        let (left, right) = ranks.split_at_mut(half);
        self.build(2 * node, leaves / 2, left, !by_birth);
        self.build(2 * node + 1, leaves / 2, right, !by_birth);
        let (a, b) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
        self.nodes[node] = Node {
            births: (a.births.0.min(b.births.0), a.births.1.max(b.births.1)),
            deaths: (a.deaths.0.min(b.deaths.0), a.deaths.1.max(b.deaths.1)),
            best: a.best.min(b.best),
        };
    }

    /// Adds the lowest ranks of blocks below `at` that live within `within`, in order, and keeps the first `count`.
    fn first(&self, at: usize, within: (u32, u32), count: usize, found: &mut Vec<u32>) {
        let (node, (from, to)) = (&self.nodes[at], within);
        let late = found.len() == count && found.last().is_some_and(|last| node.best >= *last);
        if node.best == NONE || late || node.births.1 < from || node.deaths.0 > to {
            return;
        }
        let inside = node.births.0 >= from && node.deaths.1 <= to;
        if at < self.leaves && !(inside && count == 1) {
            // The better half first: the other is then likely to be of no use.
            let swap = usize::from(self.nodes[2 * at + 1].best < self.nodes[2 * at].best);
            self.first(2 * at + swap, within, count, found);
            self.first(2 * at + 1 - swap, within, count, found);
        } else if inside {
            found.insert(found.partition_point(|rank| *rank < node.best), node.best);
            found.truncate(count);
        }
    }

    fn remove(&mut self, rank: u32) {
        let mut at = self.leaf[rank as usize] as usize;
        self.nodes[at].best = NONE;
        while at > 1 {
            at /= 2;
            self.nodes[at].best = self.nodes[2 * at].best.min(self.nodes[2 * at + 1].best);
        }
    }
}

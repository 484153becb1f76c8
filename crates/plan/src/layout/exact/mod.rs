//! Exact search: blocks are stacked from the bottom up until all lie below the capacity, or none can.
//!
//! The ground is MiniMalloc's (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine
//! Learning", ASPLOS 2023): solutions in which nothing can move down, pruning by what is yet to lie in each section,
//! and splitting in time wherever no block is left to tie the parts. Beyond it we treat the problem as what it is, a
//! job shop turned upright (a section is a machine, a block is an operation on several neighbouring machines, an
//! offset is a start, the capacity is the makespan), and take from that field:
//!
//! - Branching on conflict sets (Giffler and Thompson 1960; `branch.rs`): of the blocks left, one could end lowest; only
//!   a block that meets it in time and begins below that end can come next. Where several such places exist, the one
//!   with the fewest choices is taken.
//! - A branch is "this block lies at its floor" against "it does not". In the second case another block must come
//!   beneath it, so its *head*, the least offset that it can have, rises to the lowest end of those, and stays there.
//! - Inference on each section as on one machine with release dates (`infer.rs`).
//!
//! Failed states are remembered. What a state may still become depends only on which blocks are left, their floors
//! and their heads, so the memory serves all later runs, whatever their order.

mod branch;
mod infer;

use std::ops::Range;

use super::clock::Clock;
use super::problem::{Block, Problem, lowest};

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Every block has its offset.
    Solved,
    /// No packing exists within the capacity.
    Failed,
    /// The limit of nodes or of time came first.
    Stopped,
}

/// Which block goes first where several could.
#[derive(Clone, Debug)]
pub(super) struct Taste {
    /// One figure a block, higher first.
    pub priority: Vec<f64>,
    /// What wasting all the slack of a section costs.
    pub waste: f64,
    /// What a block gains that begins or ends where its gap does.
    pub wall: f64,
    /// What a block gains whose upper end is level with that of a neighbour.
    pub level: f64,
    /// Branch where the choices are fewest; else where a block could end lowest.
    pub fewest: bool,
    pub tie: Tie,
    /// Prefer the lowest floor to everything else.
    pub lowest: bool,
}

/// Which of several places with equally many choices is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tie {
    /// Where the least room can be wasted.
    Tightest,
    /// Where a block could end lowest.
    Lowest,
    /// Where a block is born first.
    Earliest,
    /// Where a block dies last.
    Latest,
}

/// A search for offsets within one capacity; it may be run again with another taste.
pub(super) struct Search {
    blocks: Vec<Block>,
    capacity: u64,
    /// Blocks that meet each block in time.
    neighbours: Vec<Vec<u32>>,
    blocked: Vec<Vec<(u64, u64)>>,
    /// Obstacles as parts of the bound: sections, offset, size; by offset.
    walls: Vec<(Range<usize>, u64, u64)>,
    /// Blocks that are the same in everything but their number.
    twins: Vec<Vec<u32>>,
    /// Whether blocks may lie at any offset.
    free: bool,
    /// The lowest offset above all blocks placed beneath; the offset of a block that is placed.
    floor: Vec<u64>,
    /// The lowest offset that is possible here: the floor or above.
    head: Vec<u64>,
    placed: Vec<bool>,
    /// The highest end of a placed block in each section.
    height: Vec<u64>,
    /// Bytes yet to place in each section.
    rest: Vec<u64>,
    /// Blocks yet to place that live in this section and the next.
    ties: Vec<u32>,
    /// Sections in which a head has changed since they were looked at.
    fresh: Vec<bool>,
    /// What was fresh at the nodes on the path.
    kept: Vec<bool>,
    trail: Vec<Step>,
    /// Heights that placed blocks covered.
    covered: Vec<u64>,
    /// The blocks of the nodes on the path, one list after the other.
    lists: Vec<u32>,
    failed: Failed,
    scratch: Scratch,
    nodes: u64,
    limit: u64,
}

/// Room for working, kept between nodes.
#[derive(Default)]
struct Scratch {
    /// One figure a section.
    tops: Vec<u64>,
    /// One figure a block.
    near: Vec<u64>,
    /// Blocks of one section: end, size, number.
    stacks: Vec<Vec<(u64, u64, u32)>>,
    order: Vec<u32>,
}

/// What must be undone.
enum Step {
    Raised { block: u32, floor: u64, head: u64 },
    Placed { block: u32 },
}

/// Blocks that hang together in time: where they are listed, and the sections from first to last.
#[derive(Clone)]
struct Part {
    list: Range<usize>,
    sections: Range<usize>,
}

impl Search {
    /// A search over all blocks of `problem`.
    pub fn new(problem: &Problem, capacity: u64) -> Search {
        let blocks = problem.blocks.clone();
        let blocked = problem.blocked();
        let neighbours = problem.neighbours();
        let same = |a: usize, b: usize| {
            let key = |x: usize| (blocks[x].from, blocks[x].to, blocks[x].size, blocks[x].grain, &blocked[x]);
            key(a) == key(b)
        };
        let twins = |a: usize| neighbours[a].iter().copied().filter(|b| same(a, *b as usize)).collect();
        let twins = (0..blocks.len()).map(twins).collect();
        let walls: Vec<_> =
            problem.obstacles.iter().map(|(block, at)| (block.sections(), *at, block.size)).collect();
        let mut rest = vec![0; problem.sections];
        let mut ties = vec![0; problem.sections];
        for block in &blocks {
            rest[block.sections()].iter_mut().for_each(|r| *r += block.size);
            ties[block.inner()].iter_mut().for_each(|t| *t += 1);
        }
        let floor: Vec<u64> = blocks.iter().zip(&blocked).map(|(block, b)| lowest(0, block, b)).collect();
        let scratch = Scratch {
            tops: vec![0; problem.sections],
            near: vec![0; blocks.len()],
            stacks: vec![Vec::new(); problem.sections],
            order: Vec::new(),
        };
        Search {
            capacity,
            neighbours,
            free: walls.is_empty() && blocks.iter().all(|block| block.grain == 1),
            walls,
            twins,
            head: floor.clone(),
            floor,
            placed: vec![false; blocks.len()],
            height: vec![0; problem.sections],
            rest,
            ties,
            fresh: vec![true; problem.sections],
            kept: Vec::new(),
            trail: Vec::new(),
            covered: Vec::new(),
            lists: Vec::new(),
            failed: Failed::new(blocks.len()),
            scratch,
            nodes: 0,
            limit: 0,
            blocks,
            blocked,
        }
    }

    /// Searches over at most `limit` nodes.
    pub fn run(&mut self, taste: &Taste, limit: u64, clock: &Clock) -> Outcome {
        self.undo(0);
        (self.nodes, self.limit) = (0, limit);
        self.lists.clear();
        self.lists.extend(0..self.blocks.len() as u32);
        self.kept.clear();
        self.fresh.fill(true);
        self.parts(0, taste, clock)
    }

    /// The offsets, after a run that solved it.
    pub fn offsets(&self) -> &[u64] {
        &self.floor
    }

    /// Solves the blocks listed from `start` on: each part in time for itself, the smallest first.
    fn parts(&mut self, start: usize, taste: &Taste, clock: &Clock) -> Outcome {
        let end = self.lists.len();
        if start == end {
            return Outcome::Solved;
        }
        let sections = self.extent(start..end);
        if self.ties[sections.start..sections.end - 1].iter().all(|ties| *ties > 0) {
            return self.node(Part { list: start..end, sections }, taste, clock);
        }
        let cuts: Vec<usize> =
            (sections.start..sections.end - 1).filter(|s| self.ties[*s] == 0).map(|s| s + 1).collect();
        let mut parts: Vec<Vec<u32>> = vec![Vec::new(); cuts.len() + 1];
        for &k in &self.lists[start..end] {
            let from = self.blocks[k as usize].from as usize;
            parts[cuts.partition_point(|cut| *cut <= from)].push(k);
        }
        parts.retain(|part| !part.is_empty());
        parts.sort_by_key(Vec::len);
        let mark = self.trail.len();
        for part in parts {
            self.lists.extend(part);
            let list = end..self.lists.len();
            let sections = self.extent(list.clone());
            let outcome = self.node(Part { list, sections }, taste, clock);
            self.lists.truncate(end);
            if outcome != Outcome::Solved {
                self.undo(mark);
                return outcome;
            }
        }
        Outcome::Solved
    }

    /// The sections from the first birth to the last death.
    fn extent(&self, list: Range<usize>) -> Range<usize> {
        let sections = || self.lists[list.clone()].iter().map(|k| self.blocks[*k as usize].sections());
        let start = sections().map(|sections| sections.start).min().unwrap_or_default();
        start..sections().map(|sections| sections.end).max().unwrap_or_default()
    }

    /// Solves one part.
    fn node(&mut self, part: Part, taste: &Taste, clock: &Clock) -> Outcome {
        self.nodes += 1;
        if self.nodes > self.limit || (self.nodes.is_multiple_of(64) && clock.over()) {
            return Outcome::Stopped;
        }
        let key = self.key(part.list.clone());
        if self.failed.contains(key) {
            return Outcome::Failed;
        }
        let mark = self.trail.len();
        while self.infer(&part) {
            let (next, only) = match self.spanning(&part) {
                Some(next) => (next, true),
                None => match self.choose(&part, taste) {
                    Some(next) => (next, false),
                    None => break,
                },
            };
            if self.possible(next) {
                let (here, kept) = (self.trail.len(), self.kept.len());
                self.kept.extend_from_slice(&self.fresh[part.sections.clone()]);
                self.place(next);
                for at in part.list.clone() {
                    if self.lists[at] != next {
                        self.lists.push(self.lists[at]);
                    }
                }
                let outcome = self.parts(part.list.end, taste, clock);
                self.lists.truncate(part.list.end);
                if outcome != Outcome::Failed {
                    return outcome;
                }
                self.undo(here);
                self.fresh[part.sections.clone()]
                    .copy_from_slice(&self.kept[kept..kept + part.sections.len()]);
                self.kept.truncate(kept);
            }
            if only || !self.delay(next) {
                break;
            }
        }
        self.undo(mark);
        self.failed.insert(key);
        Outcome::Failed
    }

    /// Whether `k` may lie at its floor, with all that is left above it in each of its sections.
    fn possible(&self, k: u32) -> bool {
        let most = self.rest[self.blocks[k as usize].sections()].iter().max().copied().unwrap_or(0);
        let k = k as usize;
        self.head[k] == self.floor[k] && self.floor[k] + most <= self.capacity
    }

    fn place(&mut self, k: u32) {
        let block = &self.blocks[k as usize];
        let end = self.floor[k as usize] + block.size;
        self.placed[k as usize] = true;
        self.trail.push(Step::Placed { block: k });
        self.covered.extend_from_slice(&self.height[block.sections()]);
        self.height[block.sections()].fill(end);
        self.rest[block.sections()].iter_mut().for_each(|r| *r -= block.size);
        self.ties[block.inner()].iter_mut().for_each(|t| *t -= 1);
        for &other in &self.neighbours[k as usize] {
            let o = other as usize;
            if self.placed[o] || self.floor[o] >= end {
                continue;
            }
            self.trail.push(Step::Raised { block: other, floor: self.floor[o], head: self.head[o] });
            self.floor[o] = lowest(end, &self.blocks[o], &self.blocked[o]);
            if self.head[o] < self.floor[o] {
                self.head[o] = self.floor[o];
                self.fresh[self.blocks[o].sections()].fill(true);
            }
        }
    }

    /// Takes note that `k`, and blocks just like it, do not lie at their floor: another comes beneath.
    /// False if there is no other.
    fn delay(&mut self, k: u32) -> bool {
        let k = k as usize;
        let others = self.neighbours[k].iter().map(|o| *o as usize).filter(|o| !self.placed[*o]);
        let Some(end) = others.map(|o| self.head[o] + self.blocks[o].size).min() else { return false };
        let head = lowest(end, &self.blocks[k], &self.blocked[k]);
        let floor = self.floor[k];
        self.raise(k, head);
        for at in 0..self.twins[k].len() {
            let twin = self.twins[k][at] as usize;
            if !self.placed[twin] && self.floor[twin] == floor {
                self.raise(twin, head);
            }
        }
        true
    }

    fn raise(&mut self, k: usize, head: u64) {
        if head > self.head[k] {
            self.trail.push(Step::Raised { block: k as u32, floor: self.floor[k], head: self.head[k] });
            self.head[k] = head;
            self.fresh[self.blocks[k].sections()].fill(true);
        }
    }

    fn undo(&mut self, mark: usize) {
        for step in self.trail.drain(mark..).rev() {
            match step {
                Step::Raised { block, floor, head } => {
                    self.floor[block as usize] = floor;
                    self.head[block as usize] = head;
                }
                Step::Placed { block: k } => {
                    let block = &self.blocks[k as usize];
                    self.placed[k as usize] = false;
                    let under = self.covered.len() - block.sections().len();
                    self.height[block.sections()].copy_from_slice(&self.covered[under..]);
                    self.covered.truncate(under);
                    self.rest[block.sections()].iter_mut().for_each(|r| *r += block.size);
                    self.ties[block.inner()].iter_mut().for_each(|t| *t += 1);
                }
            }
        }
    }

    /// A number for the state of a part, all but certainly its own.
    fn key(&self, list: Range<usize>) -> u64 {
        self.lists[list].iter().fold(0, |key, k| {
            let k = *k as usize;
            let state = mix(self.floor[k].wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.head[k]);
            key ^ mix(state ^ (k as u64).wrapping_mul(0xd6e8_feb8_6659_fd93))
        })
    }
}

/// Scatters the bits of a number (the last steps of SplitMix64).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// States that are known to fail, as many as fit; later ones take the place of earlier ones.
struct Failed {
    keys: Vec<u64>,
}

impl Failed {
    /// Few blocks have few states.
    fn new(blocks: usize) -> Failed {
        Failed { keys: vec![0; 1 << (blocks + 6).min(19)] }
    }

    fn contains(&self, key: u64) -> bool {
        key != 0 && self.keys[self.slot(key)] == key
    }

    fn insert(&mut self, key: u64) {
        let slot = self.slot(key);
        self.keys[slot] = key;
    }

    fn slot(&self, key: u64) -> usize {
        key as usize & (self.keys.len() - 1)
    }
}

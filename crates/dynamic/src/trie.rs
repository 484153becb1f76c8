//! What programs have done: recorded sequences of operations as a trie, in bounded memory.
//!
//! Nobody has to say where a program branches: sequences that begin alike share a stem, and where they part there is a fork.
//! A node is a run of operations without a fork. Walking costs one comparison for an operation and one look-up at a fork;
//! an iteration that ends is entered in as many steps as it is long. Nodes and operations are limited: what was not used for longest
//! goes, leaf by leaf. An iteration longer than [`Limits::longest`] is not recorded.

use std::collections::HashMap;

/// An operation as far as sequences are compared: its type and what it works on, without sizes.
pub type Symbol = u64;

/// Ends every sequence, so that one that begins another is a leaf of its own.
const END: Symbol = u64::MAX;

/// A node; a leaf stands for a sequence. Numbers are not used again for another node while the trie lives.
pub type NodeId = u32;

const NONE: u32 = u32::MAX;

/// How much a trie holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nodes.
    pub nodes: usize,
    /// Operations of all nodes together.
    pub symbols: usize,
    /// Operations of one iteration.
    pub longest: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { nodes: 4096, symbols: 1 << 18, longest: 1 << 15 }
    }
}

#[derive(Clone, Debug)]
struct Node {
    label: Vec<Symbol>,
    parent: u32,
    children: Vec<NodeId>,
    count: u64,
    id: NodeId,
    /// Neighbours in the row of leaves by last use.
    older: u32,
    newer: u32,
    free: bool,
}

/// Where in the trie a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Here {
    /// In a node, so many of whose operations have been done.
    Known(NodeId),
    /// Where no recorded sequence has been; the node is the last that was known.
    Lost(NodeId),
}

/// The trie, and the iteration that is under way.
#[derive(Clone, Debug)]
pub struct Trie {
    limits: Limits,
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// The child of a node by its first operation.
    ways: HashMap<(u32, Symbol), u32>,
    /// Where the node of a number lies.
    slots: HashMap<NodeId, u32>,
    next: NodeId,
    oldest: u32,
    newest: u32,
    symbols: usize,
    /// The iteration under way: what it has done, and where it is (slot, operations done there), unless it is lost.
    done: Vec<Symbol>,
    at: (u32, usize),
    lost: bool,
    /// How far it was known.
    known: usize,
    steps: u64,
    evicted: u64,
}

impl Trie {
    /// An empty trie.
    pub fn new(limits: Limits) -> Trie {
        let root = Node {
            label: Vec::new(),
            parent: NONE,
            children: Vec::new(),
            count: 0,
            id: 0,
            older: NONE,
            newer: NONE,
            free: false,
        };
        Trie {
            limits,
            nodes: vec![root],
            free: Vec::new(),
            ways: HashMap::new(),
            slots: HashMap::from([(0, 0)]),
            next: 1,
            oldest: NONE,
            newest: NONE,
            symbols: 0,
            done: Vec::new(),
            at: (0, 0),
            lost: false,
            known: 0,
            steps: 0,
            evicted: 0,
        }
    }

    /// The first node.
    pub fn root(&self) -> NodeId {
        0
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// How many operations all nodes have.
    pub fn symbols(&self) -> usize {
        self.symbols
    }

    /// How many sequences are recorded.
    pub fn sequences(&self) -> usize {
        self.leaves().len()
    }

    /// The most bytes that a trie within these limits takes, its tables included.
    pub fn most_bytes(limits: &Limits) -> usize {
        let node =
            size_of::<Node>() + 2 * size_of::<((u32, Symbol), u32)>() + 2 * size_of::<(u32, u32)>() + 16;
        limits.nodes * node + (limits.symbols + limits.longest) * 2 * size_of::<Symbol>()
    }

    /// What has been done since the beginning, in look-ups and comparisons: what tests count in place of time.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// How many sequences have been forgotten.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    fn slot(&self, id: NodeId) -> Option<u32> {
        self.slots.get(&id).copied()
    }

    /// The nodes that follow a node.
    pub fn children(&self, id: NodeId) -> Vec<NodeId> {
        let Some(slot) = self.slot(id) else { return Vec::new() };
        self.nodes[slot as usize].children.iter().map(|child| self.nodes[*child as usize].id).collect()
    }

    /// How often a node has been gone through to the end of an iteration.
    pub fn count(&self, id: NodeId) -> u64 {
        self.slot(id).map_or(0, |slot| self.nodes[slot as usize].count)
    }

    /// The nodes from the first to this one, both included.
    pub fn lineage(&self, id: NodeId) -> Vec<NodeId> {
        let mut line = Vec::new();
        let mut slot = self.slot(id).unwrap_or(NONE);
        while slot != NONE {
            line.push(self.nodes[slot as usize].id);
            slot = self.nodes[slot as usize].parent;
        }
        line.reverse();
        line
    }

    /// All recorded sequences by their leaves, the one used last first.
    pub fn leaves(&self) -> Vec<NodeId> {
        let mut leaves = Vec::new();
        let mut at = self.newest;
        while at != NONE {
            leaves.push(self.nodes[at as usize].id);
            at = self.nodes[at as usize].older;
        }
        leaves
    }

    /// The program does this next. Says where it is then.
    pub fn step(&mut self, symbol: Symbol) -> Here {
        self.steps += 1;
        if self.done.len() < self.limits.longest {
            self.done.push(symbol);
        }
        self.walk(symbol);
        self.here()
    }

    fn walk(&mut self, symbol: Symbol) {
        if self.lost {
            return;
        }
        let (slot, offset) = self.at;
        let node = &self.nodes[slot as usize];
        match node.label.get(offset) {
            Some(known) if *known == symbol => self.at.1 += 1,
            Some(_) => self.lost = true,
            None => match self.ways.get(&(slot, symbol)) {
                Some(child) => self.at = (*child, 1),
                None => self.lost = true,
            },
        }
        if !self.lost {
            self.known += 1;
        }
    }

    /// Where the program is.
    pub fn here(&self) -> Here {
        let id = self.nodes[self.at.0 as usize].id;
        if self.lost { Here::Lost(id) } else { Here::Known(id) }
    }

    /// How many operations of the iteration under way were as in a recorded one.
    pub fn known(&self) -> usize {
        self.known
    }

    /// The operations of a recorded sequence; nothing of a node that is no leaf.
    pub fn sequence(&self, leaf: NodeId) -> Vec<Symbol> {
        let slots = self.lineage(leaf).into_iter().filter_map(|id| self.slot(id));
        let mut done: Vec<Symbol> =
            slots.flat_map(|slot| self.nodes[slot as usize].label.iter().copied()).collect();
        if done.pop() != Some(END) {
            done.clear();
        }
        done
    }

    /// The iteration under way has done the first `upto` operations of a recorded sequence, whatever was said of it before.
    pub fn resume(&mut self, leaf: NodeId, upto: usize) {
        self.done.clear();
        (self.at, self.lost, self.known) = ((0, 0), false, 0);
        for symbol in self.sequence(leaf).into_iter().take(upto) {
            self.step(symbol);
        }
    }

    /// The iteration has ended, and it was this recorded sequence from end to end: what [`Trie::end`] does, without the steps.
    pub fn again(&mut self, leaf: NodeId) -> bool {
        self.done.clear();
        (self.at, self.lost, self.known) = ((0, 0), false, 0);
        let Some(mut slot) = self.slot(leaf).filter(|slot| self.linked(*slot)) else { return false };
        self.touch(slot);
        while slot != NONE {
            self.steps += 1;
            self.nodes[slot as usize].count += 1;
            slot = self.nodes[slot as usize].parent;
        }
        true
    }

    /// The recorded sequences that begin as the iteration under way, at most so many, and whether those are all.
    pub fn ahead(&self, most: usize) -> (Vec<NodeId>, bool) {
        if self.lost {
            return (Vec::new(), true);
        }
        let (mut open, mut found) = (vec![self.at.0], Vec::new());
        while let Some(slot) = open.pop() {
            let node = &self.nodes[slot as usize];
            if node.children.is_empty() && slot != 0 {
                if found.len() == most {
                    return (found, false);
                }
                found.push(node.id);
            }
            open.extend(&node.children);
        }
        (found, true)
    }

    /// The iteration has ended. Its leaf, whether it was there before, and the leaves that were forgotten for it; no leaf
    /// where it was too long to be recorded.
    pub fn end(&mut self) -> (Option<NodeId>, bool, Vec<NodeId>) {
        let mut gone = Vec::new();
        let mut found = (None, false);
        if self.done.len() < self.limits.longest {
            self.walk(END);
            let known = !self.lost;
            let leaf = if known { self.at.0 } else { self.enter() };
            self.touch(leaf);
            let mut slot = leaf;
            while slot != NONE {
                self.steps += 1;
                self.nodes[slot as usize].count += 1;
                slot = self.nodes[slot as usize].parent;
            }
            found = (Some(self.nodes[leaf as usize].id), known);
            while (self.nodes() > self.limits.nodes || self.symbols > self.limits.symbols)
                && self.oldest != self.newest
            {
                self.forget(&mut gone);
            }
        }
        self.done.clear();
        (self.at, self.lost, self.known) = ((0, 0), false, 0);
        (found.0, found.1, gone)
    }

    /// Enters what the lost iteration did after the last known operation, as a new leaf.
    fn enter(&mut self) -> u32 {
        let (slot, offset) = self.at;
        let parent =
            if offset < self.nodes[slot as usize].label.len() { self.split(slot, offset) } else { slot };
        let mut label = self.done.split_off(self.known);
        label.push(END);
        self.steps += label.len() as u64;
        self.add(parent, label)
    }

    fn add(&mut self, parent: u32, label: Vec<Symbol>) -> u32 {
        self.symbols += label.len();
        let id = self.next;
        self.next = self.next.wrapping_add(1).max(1);
        let first = label[0];
        let node =
            Node { label, parent, children: Vec::new(), count: 0, id, older: NONE, newer: NONE, free: false };
        let slot = self.put(node);
        self.ways.insert((parent, first), slot);
        self.nodes[parent as usize].children.push(slot);
        self.unlink(parent);
        slot
    }

    fn put(&mut self, node: Node) -> u32 {
        let id = node.id;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.nodes[slot as usize] = node;
                slot
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        self.slots.insert(id, slot);
        slot
    }

    /// Makes a fork inside a node: a new node takes its front, and it keeps the rest, so that leaves keep their numbers.
    fn split(&mut self, slot: u32, offset: usize) -> u32 {
        let rest = self.nodes[slot as usize].label.split_off(offset);
        let front = std::mem::replace(&mut self.nodes[slot as usize].label, rest);
        self.steps += front.len() as u64;
        let (parent, count) = (self.nodes[slot as usize].parent, self.nodes[slot as usize].count);
        let id = self.next;
        self.next = self.next.wrapping_add(1).max(1);
        let (first, second) = (front.first().copied(), self.nodes[slot as usize].label[0]);
        let node = Node {
            label: front,
            parent,
            children: vec![slot],
            count,
            id,
            older: NONE,
            newer: NONE,
            free: false,
        };
        let middle = self.put(node);
        if let Some(first) = first {
            self.ways.insert((parent, first), middle);
        }
        let siblings = &mut self.nodes[parent as usize].children;
        if let Some(child) = siblings.iter_mut().find(|child| **child == slot) {
            *child = middle;
        }
        self.nodes[slot as usize].parent = middle;
        self.ways.insert((middle, second), slot);
        middle
    }

    fn linked(&self, slot: u32) -> bool {
        self.oldest == slot || self.nodes[slot as usize].older != NONE
    }

    fn unlink(&mut self, slot: u32) {
        if !self.linked(slot) {
            return;
        }
        let (older, newer) = (self.nodes[slot as usize].older, self.nodes[slot as usize].newer);
        match older {
            NONE => self.oldest = newer,
            _ => self.nodes[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => self.nodes[newer as usize].older = older,
        }
        (self.nodes[slot as usize].older, self.nodes[slot as usize].newer) = (NONE, NONE);
    }

    /// A leaf has been used now.
    fn touch(&mut self, slot: u32) {
        self.unlink(slot);
        self.nodes[slot as usize].older = self.newest;
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.nodes[newest as usize].newer = slot,
        }
        self.newest = slot;
    }

    /// Forgets the leaf that was not used for longest, and the stem that it leaves without any.
    fn forget(&mut self, gone: &mut Vec<NodeId>) {
        let mut slot = self.oldest;
        self.unlink(slot);
        self.evicted += 1;
        gone.push(self.nodes[slot as usize].id);
        while slot != 0 && self.nodes[slot as usize].children.is_empty() {
            self.steps += 1;
            let node = &mut self.nodes[slot as usize];
            let (label, parent, id) = (std::mem::take(&mut node.label), node.parent, node.id);
            node.free = true;
            self.symbols -= label.len();
            self.slots.remove(&id);
            self.ways.remove(&(parent, label[0]));
            let siblings = &mut self.nodes[parent as usize].children;
            if let Some(at) = siblings.iter().position(|child| *child == slot) {
                self.steps += at as u64;
                siblings.swap_remove(at);
            }
            self.free.push(slot);
            slot = parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(trie: &mut Trie, sequence: &[Symbol]) -> (NodeId, bool) {
        for symbol in sequence {
            trie.step(*symbol);
        }
        let (leaf, known, _) = trie.end();
        (leaf.expect("it is short"), known)
    }

    #[test]
    fn an_iteration_goes_on_from_a_recorded_one() {
        let mut trie = Trie::new(Limits::default());
        let (a, _) = play(&mut trie, &[1, 2, 3, 4]);
        let (b, _) = play(&mut trie, &[1, 2, 5, 6]);
        assert_eq!(trie.sequence(a), [1, 2, 3, 4]);
        assert!(trie.sequence(trie.root()).is_empty());
        trie.resume(a, 2);
        let both = trie.ahead(8);
        assert_eq!((both.0.len(), both.1), (2, true));
        assert_eq!(trie.ahead(1), (vec![both.0[0]], false), "more than were asked for");
        assert!(matches!(trie.step(5), Here::Known(_)));
        assert_eq!(trie.ahead(8), (vec![b], true));
        trie.step(6);
        assert_eq!(trie.end(), (Some(b), true, vec![]));
        assert_eq!(trie.count(b), 2);
        assert!(trie.again(a) && trie.count(a) == 2 && trie.count(trie.root()) == 4);
        assert_eq!(trie.leaves(), [a, b], "used last first");
        assert!(!trie.again(99), "nobody");
        trie.resume(a, 3);
        trie.step(9);
        assert_eq!(trie.ahead(8), (vec![], true));
        let (c, known, _) = trie.end();
        assert!(!known);
        assert_eq!(trie.sequence(c.expect("it is short")), [1, 2, 3, 9]);
    }

    #[test]
    fn sequences_share_their_stems() {
        let mut trie = Trie::new(Limits::default());
        let (long, known) = play(&mut trie, &[1, 2, 3, 4]);
        assert!(!known);
        let (other, _) = play(&mut trie, &[1, 2, 5]);
        let (short, _) = play(&mut trie, &[1, 2]);
        assert_eq!(play(&mut trie, &[1, 2, 3, 4]), (long, true));
        assert_eq!(play(&mut trie, &[1, 2]), (short, true));
        assert_eq!((trie.sequences(), trie.nodes()), (3, 5));
        assert_eq!(trie.symbols(), 2 + 3 + 2 + 1);
        let stem = trie.children(trie.root())[0];
        assert_eq!((trie.count(stem), trie.children(stem).len()), (5, 3));
        assert_eq!(trie.lineage(other), [0, stem, other]);
        assert_eq!(trie.step(1), Here::Known(stem));
        assert_eq!((trie.step(9), trie.known()), (Here::Lost(stem), 1));
    }

    /// Issue: a million random branches leave memory bounded and make nothing slower.
    #[test]
    fn a_million_random_branches() {
        let limits = Limits { nodes: 1000, symbols: 20_000, longest: 500 };
        let mut trie = Trie::new(limits);
        let mut random = fastrand::Rng::with_seed(29);
        let (mut branches, mut operations) = (0u64, 0u64);
        let mut costs = Vec::new();
        let mut last = (0, 0);
        while branches < 1_000_000 {
            for place in 0..20u64 {
                branches += 1;
                let way = random.u64(0..4);
                for turn in 0..=way {
                    operations += 1;
                    trie.step(place * 100 + way * 10 + turn);
                }
            }
            trie.end();
            assert!(trie.nodes() <= limits.nodes && trie.symbols() <= limits.symbols);
            if branches.is_multiple_of(100_000) {
                costs.push((trie.steps() - last.0) as f64 / (operations - last.1) as f64);
                last = (trie.steps(), operations);
            }
        }
        assert!(trie.evicted() > 40_000, "nearly every sequence is new: {}", trie.evicted());
        let (first, worst) = (costs[0], costs.iter().copied().fold(0.0, f64::max));
        assert!(worst < 6.0 && worst < 1.5 * first, "steps an operation, by 100,000 branches: {costs:?}");
        assert_eq!(trie.sequences(), trie.leaves().len());
        assert!(trie.slots.len() == trie.nodes() && trie.ways.len() == trie.nodes() - 1);
        assert!(trie.nodes.len() <= limits.nodes + 2, "slots are used again");
    }

    #[test]
    fn what_is_too_long_is_not_recorded() {
        let mut trie = Trie::new(Limits { longest: 10, ..Limits::default() });
        (0..1000).for_each(|symbol| {
            trie.step(symbol);
        });
        assert_eq!(trie.end(), (None, false, Vec::new()));
        assert_eq!((trie.nodes(), trie.symbols()), (1, 0));
        assert!(trie.done.capacity() < 100);
    }
}

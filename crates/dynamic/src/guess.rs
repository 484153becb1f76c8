//! The predictor of the next branch, from features of the sample and from the prefix: ours, beside the paper's model.
//!
//! The prefix is where the program is in the trie. A small hidden layer, shared by all forks, makes of the sample's features
//! what forks can use; each way out of a fork has a row of weights, and the ways of a fork share its probability (softmax). A
//! path's probability is the product of its ways. Learning is online, one step for each iteration that has ended, with some of
//! the last ones learned again. Rows belong to nodes and go when these are forgotten.

use std::collections::HashMap;

use crate::trie::{NodeId, Trie};

/// The hidden layer.
const HIDDEN: usize = 96;
/// Iterations that are kept to be learned again, and how many of them are with each new one.
const KEPT: usize = 4096;
const AGAIN: usize = 8;
/// The rate of learning: at first, and after how many steps it has halved.
const RATE: f32 = 0.04;
const HALVED: f32 = 20_000.0;
/// How much a fork's own statistics count for ways that have few samples.
const PRIOR: f32 = 1.0;

/// One way out of a fork.
#[derive(Clone, Debug)]
struct Row {
    weights: [f32; HIDDEN],
    bias: f32,
}

/// The predictor.
#[derive(Clone, Debug)]
pub struct Guess {
    features: usize,
    /// Input by input.
    first: Vec<f32>,
    bias: [f32; HIDDEN],
    rows: HashMap<NodeId, Row>,
    kept: Vec<(Vec<f32>, NodeId)>,
    turn: usize,
    learned: u64,
    random: fastrand::Rng,
}

impl Guess {
    /// A predictor of so many features.
    pub fn new(features: usize, seed: u64) -> Guess {
        let mut random = fastrand::Rng::with_seed(seed);
        let spread = (6.0 / features.max(1) as f32).sqrt();
        let first = (0..features * HIDDEN).map(|_| (random.f32() * 2.0 - 1.0) * spread).collect();
        Guess {
            features,
            first,
            bias: [0.0; HIDDEN],
            rows: HashMap::new(),
            kept: Vec::new(),
            turn: 0,
            learned: 0,
            random,
        }
    }

    /// How many ways have weights, and the most numbers that these and the samples to learn again take.
    pub fn size(&self) -> (usize, usize) {
        let row = HIDDEN + 1;
        (self.rows.len(), self.first.len() + HIDDEN + self.rows.len() * row + KEPT * self.features)
    }

    fn hidden(&self, features: &[f32]) -> [f32; HIDDEN] {
        let mut out = self.bias;
        for (x, line) in features.iter().zip(self.first.chunks_exact(HIDDEN)) {
            if *x != 0.0 {
                for (sum, weight) in out.iter_mut().zip(line) {
                    *sum += x * weight;
                }
            }
        }
        out.map(|x| x.max(0.0))
    }

    /// The probabilities of the ways out of a fork.
    fn ways(&self, trie: &Trie, children: &[NodeId], hidden: &[f32; HIDDEN]) -> Vec<f32> {
        let score = |child: &NodeId| {
            let own = self.rows.get(child).map_or(0.0, |row| {
                let mut sums = [0f32; 8];
                for (a, b) in row.weights.chunks_exact(8).zip(hidden.chunks_exact(8)) {
                    for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
                        *sum += a * b;
                    }
                }
                row.bias + sums.iter().sum::<f32>()
            });
            own + PRIOR * (trie.count(*child).max(1) as f32).ln()
        };
        let mut scores: Vec<f32> = children.iter().map(score).collect();
        let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sum = 0.0;
        for score in &mut scores {
            *score = (*score - most).exp();
            sum += *score;
        }
        scores.iter_mut().for_each(|score| *score /= sum);
        scores
    }

    /// The sequences that may follow from a node on, by probability, at most so many: the most probable first.
    pub fn likely(&self, trie: &Trie, from: NodeId, features: &[f32], most: usize) -> Vec<(NodeId, f32)> {
        let hidden = self.hidden(features);
        let mut open: Vec<(f32, NodeId)> = vec![(1.0, from)];
        let mut found = Vec::new();
        while let Some(best) = (0..open.len()).max_by(|a, b| open[*a].0.total_cmp(&open[*b].0)) {
            let (probability, mut node) = open.swap_remove(best);
            let mut children = trie.children(node);
            while children.len() == 1 {
                node = children[0];
                children = trie.children(node);
            }
            if children.is_empty() {
                found.push((node, probability));
                if found.len() >= most {
                    break;
                }
                continue;
            }
            let ways = self.ways(trie, &children, &hidden);
            open.extend(ways.iter().zip(children).map(|(way, child)| (probability * way, child)));
            // What is left out of account is less likely than all that is kept.
            if open.len() > 64 {
                open.sort_by(|a, b| b.0.total_cmp(&a.0));
                open.truncate(32);
            }
        }
        found
    }

    /// An iteration with these features ended at this leaf; `gone` are leaves that were forgotten.
    pub fn learn(&mut self, trie: &Trie, features: &[f32], leaf: NodeId, gone: &[NodeId]) {
        if !gone.is_empty() {
            // Rows of nodes that are no more would pile up.
            self.rows.retain(|node, _| trie.count(*node) > 0);
        }
        self.step(trie, features, leaf);
        for _ in 0..AGAIN.min(self.kept.len()) {
            let at = self.random.usize(0..self.kept.len());
            let (features, leaf) = std::mem::take(&mut self.kept[at]);
            self.step(trie, &features, leaf);
            self.kept[at] = (features, leaf);
        }
        let new = (features.to_vec(), leaf);
        if self.kept.len() < KEPT {
            self.kept.push(new);
        } else {
            self.kept[self.turn] = new;
            self.turn = (self.turn + 1) % KEPT;
        }
    }

    fn step(&mut self, trie: &Trie, features: &[f32], leaf: NodeId) {
        self.learned += 1;
        let rate = RATE / (1.0 + self.learned as f32 / HALVED);
        let hidden = self.hidden(features);
        let mut back = [0f32; HIDDEN];
        for pair in trie.lineage(leaf).windows(2) {
            let children = trie.children(pair[0]);
            if children.len() < 2 {
                continue;
            }
            let ways = self.ways(trie, &children, &hidden);
            for (child, way) in children.iter().zip(ways) {
                let error = way - f32::from(u8::from(*child == pair[1]));
                if error.abs() < 1e-3 {
                    continue;
                }
                let row = self.rows.entry(*child).or_insert(Row { weights: [0.0; HIDDEN], bias: 0.0 });
                for ((weight, back), x) in row.weights.iter_mut().zip(&mut back).zip(&hidden) {
                    *back += error * *weight;
                    *weight -= rate * error * x;
                }
                row.bias -= rate * error;
            }
        }
        for ((bias, back), x) in self.bias.iter_mut().zip(&mut back).zip(&hidden) {
            if *x <= 0.0 {
                *back = 0.0;
            }
            *back = back.clamp(-1.0, 1.0) * rate;
            *bias -= *back;
        }
        for (x, line) in features.iter().zip(self.first.chunks_exact_mut(HIDDEN)) {
            if *x != 0.0 {
                for (weight, back) in line.iter_mut().zip(&back) {
                    *weight -= x * back;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trie::Limits;

    #[test]
    fn it_learns_which_way_follows_from_what() {
        let mut trie = Trie::new(Limits::default());
        let mut guess = Guess::new(4, 1);
        let mut random = fastrand::Rng::with_seed(2);
        let mut right = 0;
        for turn in 0..3000 {
            let features: Vec<f32> = (0..4).map(|_| if random.bool() { 1.0 } else { -1.0 }).collect();
            // The first fork is an exclusive or, the second a single feature.
            let ways = [u64::from(features[0] * features[1] > 0.0), u64::from(features[2] > 0.0)];
            let said = guess.likely(&trie, trie.root(), &features, 3);
            for symbol in [7, ways[0], 8, ways[1], 9] {
                trie.step(symbol);
            }
            let (leaf, _, gone) = trie.end();
            let leaf = leaf.expect("it is short");
            if turn >= 2500 {
                right += u32::from(said.first().is_some_and(|(first, _)| *first == leaf));
                assert!(said.windows(2).all(|pair| pair[0].1 >= pair[1].1));
            }
            guess.learn(&trie, &features, leaf, &gone);
        }
        assert!(right > 480, "{right} of 500");
    }
}

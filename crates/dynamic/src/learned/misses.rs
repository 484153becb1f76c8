//! The record of misses (DyNN-Offload, section 6.4.5): where the learned model was wrong, what it had said, and what was right.
//!
//! A new output is compared with those of the three most frequent misses before it is mapped; if one is the same, what was right
//! then is taken. The paper asks for outputs that are exactly the same, which outputs of real numbers never are: here they
//! are compared in whole operators, block by block. A case whose advice turns out wrong is recorded in its turn, with what
//! was right now.

use std::collections::HashMap;

use crate::blocks::BLOCKS;

/// An output in whole operators, block by block.
pub type Whole = [i16; BLOCKS];

/// How many misses a new output is compared with.
const COMPARED: usize = 3;

/// Cases that are remembered at most: the rarest goes first.
const REMEMBERED: usize = 512;

/// The record.
#[derive(Clone, Debug, Default)]
pub struct Misses {
    /// For a network and an output, how often which record was right after all.
    cases: HashMap<(usize, Whole), HashMap<usize, u32>>,
    /// The most frequent.
    first: Vec<(usize, Whole, usize)>,
    /// How many misses there were.
    pub count: u64,
}

impl Misses {
    /// Notes that a network's record was right where the model had said this.
    pub fn note(&mut self, network: usize, said: Whole, right: usize) {
        self.count += 1;
        if self.cases.len() >= REMEMBERED && !self.cases.contains_key(&(network, said)) {
            let sum = |case: &HashMap<usize, u32>| case.values().sum::<u32>();
            let rarest = self.cases.iter().min_by_key(|(key, case)| (sum(case), **key)).map(|(key, _)| *key);
            rarest.and_then(|key| self.cases.remove(&key));
        }
        *self.cases.entry((network, said)).or_default().entry(right).or_default() += 1;
        let mut all: Vec<(u32, usize, Whole, usize)> = Vec::with_capacity(self.cases.len());
        for ((network, said), rights) in &self.cases {
            let most = rights.iter().max_by_key(|(right, count)| (**count, usize::MAX - **right));
            let (right, _) = most.expect("a case has been right");
            all.push((rights.values().sum(), *network, *said, *right));
        }
        all.sort_unstable_by(|a, b| b.cmp(a));
        // A miss that was seen once says nothing of the next.
        let often = all.into_iter().filter(|(count, ..)| *count > 1).take(COMPARED);
        self.first = often.map(|(_, network, said, right)| (network, said, right)).collect();
    }

    /// What was right when a network's output was this, if it is among the most frequent misses.
    pub fn advice(&self, network: usize, said: &Whole) -> Option<usize> {
        self.first.iter().find(|(of, known, _)| *of == network && known == said).map(|(.., right)| *right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_most_frequent_are_tried() {
        let mut misses = Misses::default();
        let said = |n: i16| [n; BLOCKS];
        for n in 1..=5 {
            for _ in 0..n {
                misses.note(0, said(n), 7);
            }
        }
        assert_eq!(misses.count, 15);
        assert_eq!(misses.advice(0, &said(5)), Some(7));
        assert_eq!(misses.advice(0, &said(3)), Some(7));
        assert_eq!(misses.advice(0, &said(2)), None, "the fourth");
        assert_eq!(misses.advice(1, &said(5)), None, "another network");
        for _ in 0..6 {
            misses.note(0, said(5), 2);
        }
        assert_eq!(misses.advice(0, &said(5)), Some(2), "advice that is wrong is replaced");
        for n in 100..2000 {
            misses.note(0, said(n), 1);
        }
        assert!(misses.cases.len() <= REMEMBERED);
    }
}

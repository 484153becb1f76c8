//! ReDL's search for the length of its migration period (section III-D): an iterated greedy walk outwards from the
//! median.
//!
//! Half of all layers is tried first. If that length meets the constraints it is taken; otherwise one layer more and
//! one less are tried, then two more and two less, and so on: a round takes three iterations, of which the first
//! repeats the best length so far. A round in which a length met the constraints is the last one, and so is the one
//! that reaches both ends; the fastest length measured is used from then on.

use std::collections::{BTreeMap, VecDeque};

use tiercel_core::Nanos;

/// A search for the best length, one measured iteration after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeriodSearch {
    layers: u32,
    median: u32,
    round: u32,
    /// What the rest of this round tries.
    queue: VecDeque<u32>,
    times: BTreeMap<u32, Nanos>,
    /// Whether a length that was tried met the constraints.
    met: bool,
    iterations: u32,
    found: Option<u32>,
}

impl PeriodSearch {
    /// A search for a program of so many layers, before its first measured iteration.
    pub fn new(layers: u32) -> PeriodSearch {
        let median = (layers / 2).max(1);
        let queue = VecDeque::from([median]);
        let times = BTreeMap::new();
        PeriodSearch { layers, median, round: 0, queue, times, met: false, iterations: 0, found: None }
    }

    /// The length to use in the coming iteration, in layers.
    pub fn length(&self) -> u32 {
        self.found.or_else(|| self.queue.front().copied()).unwrap_or(self.median)
    }

    /// Whether the search is over.
    pub fn is_over(&self) -> bool {
        self.found.is_some()
    }

    /// How many iterations it has taken so far.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// The time of every length that was tried, as it was measured last.
    pub fn times(&self) -> &BTreeMap<u32, Nanos> {
        &self.times
    }

    /// An iteration with the length asked for has taken this long; `fits` says whether a length meets the
    /// constraints.
    pub fn measured(&mut self, time: Nanos, fits: impl Fn(u32) -> bool) {
        if self.is_over() {
            return;
        }
        let Some(length) = self.queue.pop_front() else { return };
        self.iterations += 1;
        if self.times.insert(length, time).is_none() {
            self.met |= fits(length);
        }
        match self.queue.is_empty() {
            true if self.met => self.found = self.best(),
            true => self.next_round(),
            false => {}
        }
    }

    fn best(&self) -> Option<u32> {
        self.times.iter().min_by_key(|(length, time)| (**time, **length)).map(|(length, _)| *length)
    }

    fn next_round(&mut self) {
        // The first round has measured the median already.
        let again = if self.round == 0 { None } else { self.best() };
        self.round += 1;
        let more = Some(self.median + self.round).filter(|length| *length <= self.layers);
        let less = self.median.checked_sub(self.round).filter(|length| *length > 0);
        if more.is_none() && less.is_none() {
            self.found = self.best();
            return;
        }
        self.queue.extend([again, more, less].into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths that a search tries until it is over, and the one that it finds.
    fn search(layers: u32, time: impl Fn(u32) -> u64, fits: impl Fn(u32) -> bool) -> (Vec<u32>, u32) {
        let mut search = PeriodSearch::new(layers);
        let mut tried = Vec::new();
        while !search.is_over() {
            tried.push(search.length());
            search.measured(Nanos(time(search.length())), &fits);
            assert!(tried.len() < 1000, "it ends");
        }
        assert_eq!(search.iterations() as usize, tried.len());
        (tried, search.length())
    }

    #[test]
    fn a_median_that_fits_is_taken() {
        assert_eq!(search(10, |_| 7, |length| length <= 5), (vec![5], 5));
    }

    #[test]
    fn rounds_of_three_go_outwards_until_one_fits() {
        let (tried, found) = search(20, u64::from, |length| length <= 8);
        assert_eq!(tried, [10, 11, 9, 9, 12, 8]);
        assert_eq!(found, 8);
    }

    #[test]
    fn the_fastest_counts_whether_it_fits_or_not() {
        let (_, found) = search(20, |length| u64::from(length.abs_diff(11)), |length| length <= 8);
        assert_eq!(found, 11);
    }

    #[test]
    fn where_nothing_fits_every_length_is_tried() {
        for layers in 1..12 {
            let (tried, found) = search(layers, |length| u64::from(length.abs_diff(2)), |_| false);
            let all: std::collections::BTreeSet<u32> = tried.iter().copied().collect();
            assert_eq!(all, (1..=layers).collect(), "{layers} layers");
            assert_eq!(found, 2.min(layers));
        }
    }
}

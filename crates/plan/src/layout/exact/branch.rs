//! Which block to try next.
//!
//! Let a block be able to end at `bar` (its head plus its size), and let no rival of it, that is a block that meets it
//! and could begin below the bar, meet a third one that could end below the bar. Then in any solution in which nothing
//! can move down, it or a rival begins below the bar: else it could move down to its floor. Nothing that is left ends
//! beneath that one, so it lies at its floor. Those that may are the choices. The block whose end is lowest of all always
//! has the property; others may too, and the place with the fewest choices fails soonest.

use std::cmp::Reverse;

use super::{Part, Search, Taste, Tie};

impl Search {
    /// A block that may lie at its floor if any solution exists: it lives as long as all the others of its part, and
    /// none can lie lower. Whatever lay beneath it could be lifted by its size.
    pub(super) fn spanning(&self, part: &Part) -> Option<u32> {
        if !self.free {
            return None;
        }
        let list = &self.lists[part.list.clone()];
        let floor = list.iter().map(|k| self.floor[*k as usize]).min()?;
        list.iter().copied().find(|k| {
            self.floor[*k as usize] == floor && self.blocks[*k as usize].sections() == part.sections
        })
    }

    /// The block to try next, if there is a choice anywhere. Expects the list sorted by heads.
    pub(super) fn choose(&mut self, part: &Part, taste: &Taste) -> Option<u32> {
        let list = &self.lists[part.list.clone()];
        let end = |k: u32| self.head[k as usize] + self.blocks[k as usize].size;
        let lowest = &mut self.scratch.tops;
        lowest[part.sections.clone()].fill(u64::MAX);
        for &k in list {
            let end = end(k);
            lowest[self.blocks[k as usize].sections()].iter_mut().for_each(|l| *l = (*l).min(end));
        }
        let near = &mut self.scratch.near;
        for &k in list {
            let ends = &lowest[self.blocks[k as usize].sections()];
            near[k as usize] = ends.iter().copied().min().unwrap_or(0);
        }
        let near = &self.scratch.near;
        let mut best: Option<(usize, u64, u32)> = None;
        for &k in list.iter().filter(|k| near[**k as usize] == end(**k)) {
            let bar = end(k);
            let Some(count) = self.count(part, k, bar) else { continue };
            let count = if taste.fewest || count == 0 { count } else { 1 };
            let tie = self.tie(k, bar, taste.tie);
            if best.is_none_or(|(fewest, least, _)| (count, tie) < (fewest, least)) {
                best = Some((count, tie, k));
            }
        }
        let (_, _, place) = best?;
        let bar = self.head[place as usize] + self.blocks[place as usize].size;
        let mut found: Option<((Reverse<u64>, f64), u32)> = None;
        for k in self.rivals(part, place, bar).filter(|k| self.ready(*k)) {
            let low = if taste.lowest { Reverse(self.floor[k as usize]) } else { Reverse(0) };
            let score = (low, self.score(k, part, taste));
            if found.is_none_or(|(most, _)| score > most) {
                found = Some((score, k));
            }
        }
        found.map(|(_, k)| k)
    }

    /// What decides between places with equally many choices: less is better.
    fn tie(&self, k: u32, bar: u64, tie: Tie) -> u64 {
        let block = &self.blocks[k as usize];
        let slack = |s| self.capacity.saturating_sub(self.height[s] + self.rest[s]);
        match tie {
            Tie::Tightest => block.sections().map(slack).min().unwrap_or(0),
            Tie::Lowest => bar,
            Tie::Earliest => u64::from(block.from),
            Tie::Latest => u64::MAX - u64::from(block.to),
        }
    }

    /// Blocks whose heads are below the bar and that meet `place`.
    fn rivals(&self, part: &Part, place: u32, bar: u64) -> impl Iterator<Item = u32> {
        let target = &self.blocks[place as usize];
        let list = self.lists[part.list.clone()].iter().copied();
        list.take_while(move |k| self.head[*k as usize] < bar)
            .filter(|k| self.blocks[*k as usize].meets(target))
    }

    /// Whether a block may lie at its floor.
    fn ready(&self, k: u32) -> bool {
        self.head[k as usize] == self.floor[k as usize]
    }

    /// How many choices there are, unless a rival may have a lower end beneath it.
    fn count(&self, part: &Part, place: u32, bar: u64) -> Option<usize> {
        let mut count = 0;
        for k in self.rivals(part, place, bar) {
            if self.scratch.near[k as usize] < bar {
                return None;
            }
            count += usize::from(self.ready(k));
        }
        Some(count)
    }

    /// How well a block fits at its floor.
    fn score(&self, k: u32, part: &Part, taste: &Taste) -> f64 {
        let block = &self.blocks[k as usize];
        let floor = self.floor[k as usize];
        let mut worst = 0.0f64;
        for s in block.sections() {
            let waste = floor.saturating_sub(self.height[s]);
            if waste > 0 {
                let slack = self.capacity.saturating_sub(self.height[s] + self.rest[s]);
                worst = worst.max(waste as f64 / slack.max(1) as f64);
            }
        }
        let (from, to) = (block.from as usize, block.to as usize);
        let left = (from > part.sections.start).then(|| self.height[from - 1]);
        let right = (to < part.sections.end).then(|| self.height[to]);
        let top = floor + block.size;
        let among = |yes: fn(Option<u64>, u64) -> bool, at: u64| {
            f64::from(u8::from(yes(left, at)) + u8::from(yes(right, at)))
        };
        let walls = among(|side, floor| side.is_none_or(|height| height > floor), floor);
        let level = among(|side, top| side == Some(top), top);
        taste.priority[k as usize] - taste.waste * worst + taste.wall * walls + taste.level * level
    }
}

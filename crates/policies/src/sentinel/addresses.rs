//! Addresses of fast memory over the kernels of an iteration: who has which, and where there is room for one more.
//!
//! Pages make an operating system free to put an object anywhere; a heap is not, and breaks into pieces that are too small.
//! But the iteration is known and repeats itself, so every stay in fast memory gets its addresses ahead, for the same kernels
//! of every iteration, and memory is never in pieces when somebody comes. Of several places the one is taken that was
//! left longest ago by somebody whose bytes had to be copied away: then nobody waits for that copy.

use tiercel_core::Bytes;

/// Addresses taken for some kernels. Kernels count on into the next iteration and back into the one before.
#[derive(Clone, Copy, Debug)]
struct Taken {
    from: i64,
    last: i64,
    start: u64,
    end: u64,
    /// Whether bytes are copied away at the end.
    copied: bool,
    /// Whether it was given back.
    gone: bool,
}

/// Who has addresses, to give them back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim(u32);

/// Who has which addresses when.
#[derive(Clone, Debug)]
pub struct Addresses {
    capacity: u64,
    /// How much of the beginning is reserved at each kernel.
    reserved: Vec<u64>,
    taken: Vec<Taken>,
    /// For each stretch of kernels, who has addresses then.
    shelves: Vec<Vec<u32>>,
    /// Kernels in a stretch.
    stretch: i64,
    /// For each of `taken`, the search that has seen it last.
    seen: Vec<u64>,
    searches: u64,
}

/// Into how many stretches an iteration is divided at most.
const SHELVES: usize = 256;

impl Addresses {
    /// Memory of which the beginning is reserved, as much as this at each kernel.
    pub fn new(capacity: Bytes, reserved: &[Bytes]) -> Addresses {
        let stretch = reserved.len().div_ceil(SHELVES).max(1);
        Addresses {
            capacity: capacity.0,
            reserved: reserved.iter().map(|bytes| bytes.0).collect(),
            taken: Vec::new(),
            shelves: vec![Vec::new(); reserved.len().div_ceil(stretch)],
            stretch: stretch as i64,
            seen: Vec::new(),
            searches: 0,
        }
    }

    fn steps(&self) -> i64 {
        self.reserved.len() as i64
    }

    /// The stretches that kernels belong to, each once.
    fn shelves(&self, from: i64, last: i64) -> impl Iterator<Item = usize> + use<> {
        let (steps, stretch, count) = (self.steps(), self.stretch, self.shelves.len());
        let first = (from.rem_euclid(steps) / stretch) as usize;
        // Kernels of two iterations may share a stretch.
        let many = ((last - from) / stretch + 3).min(count as i64) as usize;
        (0..many).map(move |turn| (first + turn) % count)
    }

    /// Those who have addresses at some of these kernels.
    fn others(&mut self, from: i64, last: i64) -> Vec<Taken> {
        self.searches += 1;
        let steps = self.steps();
        let meets = |taken: &Taken| {
            // The first turn at which it does not end before, and whether it has begun by then.
            let turn = (from - taken.last + steps - 1).div_euclid(steps);
            taken.from + turn * steps <= last
        };
        let mut found = Vec::new();
        for shelf in self.shelves(from, last) {
            for &at in &self.shelves[shelf] {
                let taken = &self.taken[at as usize];
                let seen = std::mem::replace(&mut self.seen[at as usize], self.searches);
                if seen != self.searches && !taken.gone && meets(taken) {
                    found.push(*taken);
                }
            }
        }
        found
    }

    /// The free stretches of at least `size` bytes during these kernels, in order.
    fn gaps(&mut self, from: i64, last: i64, size: u64) -> Vec<(u64, u64)> {
        let mut others: Vec<(u64, u64)> =
            self.others(from, last).iter().map(|taken| (taken.start, taken.end)).collect();
        others.sort_unstable();
        others.push((self.capacity, self.capacity));
        let at = |step: i64| self.reserved[step.rem_euclid(self.steps()) as usize];
        let mut low = (from..=last.min(from + self.steps() - 1)).map(at).max().unwrap_or(0);
        let mut gaps = Vec::new();
        for (start, end) in others {
            if start >= low.saturating_add(size) {
                gaps.push((low, start));
            }
            low = low.max(end);
        }
        gaps
    }

    /// Whether there is room for so many bytes during these kernels.
    fn has(&mut self, from: i64, last: i64, size: Bytes) -> bool {
        !self.gaps(from, last, size.0).is_empty()
    }

    /// The earliest kernel between these two from which on there is room until `last`.
    pub fn earliest(&mut self, from: i64, until: i64, last: i64, size: Bytes) -> Option<i64> {
        if from > until || !self.has(until, last, size) {
            return None;
        }
        let (mut low, mut high) = (from, until);
        if self.has(from, last, size) {
            return Some(from);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.has(middle, last, size) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(high)
    }

    /// Takes room for so many bytes during these kernels; says where.
    pub fn take(&mut self, from: i64, last: i64, size: Bytes, copied: bool) -> Option<(Bytes, Claim)> {
        let start = self.longest_left(from, last, size.0)?;
        let claim = Claim(self.taken.len() as u32);
        for shelf in self.shelves(from, last) {
            self.shelves[shelf].push(self.taken.len() as u32);
        }
        self.taken.push(Taken { from, last, start, end: start + size.0, copied, gone: false });
        self.seen.push(0);
        Some((Bytes(start), claim))
    }

    /// Gives addresses back, or takes the same ones again: nobody else may have them by then.
    pub fn set_gone(&mut self, claim: Claim, gone: bool) {
        self.taken[claim.0 as usize].gone = gone;
    }

    /// The place that was left longest ago by somebody whose bytes are copied away; of equals the first.
    fn longest_left(&mut self, from: i64, last: i64, size: u64) -> Option<u64> {
        let gaps = self.gaps(from, last, size);
        let past = self.left_before(from);
        let mut edges: Vec<u64> = past.iter().flat_map(|taken| [taken.start, taken.end]).collect();
        edges.sort_unstable();
        let mut best: Option<(i64, u64)> = None;
        for (low, high) in gaps {
            // At both ends of a gap, and in it where those begin and end who left lately.
            let most = high - size;
            let first = edges.partition_point(|edge| *edge <= low);
            let inside = &edges[first..edges.partition_point(|edge| *edge < most).max(first)];
            for start in std::iter::once(low).chain(inside.iter().copied()).chain([most]) {
                let overlaps = |taken: &&Taken| taken.start < start + size && start < taken.end;
                let left = past.iter().filter(overlaps).map(|taken| taken.last).max();
                // Nobody lately: there is no better one.
                let Some(left) = left else { return Some(start) };
                if best.is_none_or(|best| (left, start) < best) {
                    best = Some((left, start));
                }
            }
        }
        best.map(|(_, start)| start)
    }

    /// Those whose bytes were copied away shortly before a kernel, with the kernels as counted there.
    fn left_before(&mut self, step: i64) -> Vec<Taken> {
        let since = step - (self.steps() / 8).clamp(1, 64);
        let mut past = Vec::new();
        let steps = self.steps();
        for taken in self.others(since, step - 1).into_iter().filter(|taken| taken.copied) {
            let turns = (step - 1 - taken.last).div_euclid(steps);
            let last = taken.last + turns * steps;
            if last >= since && last < step {
                past.push(Taken { last, ..taken });
            }
        }
        past
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One entry a byte and kernel.
    struct Naive {
        taken: Vec<Vec<bool>>,
    }

    impl Naive {
        fn free(&self, from: i64, last: i64, start: u64, size: u64) -> bool {
            (from..=last).all(|step| {
                let row = &self.taken[step.rem_euclid(self.taken.len() as i64) as usize];
                row.get(start as usize..(start + size) as usize).is_some_and(|row| row.iter().all(|t| !t))
            })
        }

        fn set(&mut self, from: i64, last: i64, start: u64, size: u64) {
            for step in from..=last {
                let steps = self.taken.len() as i64;
                self.taken[step.rem_euclid(steps) as usize][start as usize..(start + size) as usize]
                    .fill(true);
            }
        }
    }

    #[test]
    fn addresses_are_free_whenever_they_are_taken() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (steps, capacity) = (random.i64(1..600), random.u64(1..60));
            let reserved: Vec<Bytes> = (0..steps).map(|_| Bytes(random.u64(0..=capacity / 2))).collect();
            let mut naive = Naive { taken: vec![vec![false; capacity as usize]; steps as usize] };
            for (step, bytes) in reserved.iter().enumerate() {
                naive.set(step as i64, step as i64, 0, bytes.0);
            }
            let mut room = Addresses::new(Bytes(capacity), &reserved);
            for _ in 0..40 {
                let from = random.i64(-steps..steps);
                let last = from + random.i64(0..steps);
                let (until, size) = (random.i64(from..=last), random.u64(1..=capacity));
                let fits = |from| (0..capacity).any(|start| naive.free(from, last, start, size));
                let expected = (from..=until).find(|from| fits(*from));
                assert_eq!(room.earliest(from, until, last, Bytes(size)), expected, "seed {seed}");
                if let Some(from) = expected {
                    let (start, claim) =
                        room.take(from, last, Bytes(size), random.bool()).expect("there is room");
                    assert!(naive.free(from, last, start.0, size), "seed {seed}");
                    room.set_gone(claim, true);
                    assert_eq!(room.earliest(from, until, last, Bytes(size)), expected, "seed {seed}");
                    room.set_gone(claim, false);
                    naive.set(from, last, start.0, size);
                } else {
                    assert_eq!(room.take(until, last, Bytes(size), true), None);
                }
            }
        }
    }
}

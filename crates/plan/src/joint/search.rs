//! The joint search: first a choice for each gap by what it frees for what it costs, then changes of some choices at a time
//! as long as there is time.
//!
//! Greedy choices by memory freed per time spent are TSPLIT's (ICDE 2022, section 4) and Capuchin's (ASPLOS 2020, section
//! 4.4); here prices of computing again follow from what is dropped already, chains included, and every change is judged by
//! unrolling and playing the whole iteration.

use std::time::Instant;

use super::base::{Base, Choice, NONE};
use super::flow::Flow;
use super::unroll::{Sequence, Unroller};

/// What may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub(crate) moves: bool,
    pub(crate) again: bool,
}

/// Choices with what comes of them.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) choices: Vec<Choice>,
    pub(crate) cost: f64,
    pub(crate) time: f64,
    pub(crate) fits: bool,
}

/// The search's state: memory for evaluations, and randomness.
pub(crate) struct Searcher<'a> {
    base: &'a Base,
    pub(crate) unroller: Unroller,
    pub(crate) sequence: Sequence,
    pub(crate) flow: Flow,
    random: fastrand::Rng,
    /// When to stop.
    until: Instant,
    pub(crate) evaluations: u64,
}

/// The shares of what links can carry that moves are given at first.
const SHARES: [f64; 6] = [0.0, 0.25, 0.5, 0.75, 1.0, 1.4];
/// The part of the excess that one round of greedy choices is to remove.
const PORTION: f64 = 0.08;
/// Changes for each gap that may bring next to nothing before the search ends, and what is more than nothing.
const PATIENCE: u64 = 20;
const WORTH: f64 = 1e-5;
/// How often a choice of the wanted kind is looked for.
const TRIES: usize = 12;
/// How much worse than the last a change may be at first, as a share of the time.
const LENIENCE: f64 = 2e-3;

impl<'a> Searcher<'a> {
    pub(crate) fn new(base: &'a Base, seed: u64, until: Instant) -> Searcher<'a> {
        Searcher {
            base,
            unroller: Unroller::default(),
            sequence: Sequence::default(),
            flow: Flow::default(),
            random: fastrand::Rng::with_seed(seed),
            until,
            evaluations: 0,
        }
    }

    fn over(&self) -> bool {
        Instant::now() >= self.until
    }

    pub(crate) fn until(&mut self, until: Instant) {
        self.until = until;
    }

    /// What comes of choices; nothing where they cannot be.
    pub(crate) fn judge(&mut self, choices: &[Choice]) -> Option<f64> {
        self.evaluations += 1;
        if !self.unroller.unroll(self.base, choices, &mut self.sequence) {
            return None;
        }
        self.flow.play(self.base, &self.sequence);
        Some(self.flow.cost(self.base))
    }

    fn found(&mut self, choices: Vec<Choice>) -> Option<Found> {
        let cost = self.judge(&choices)?;
        Some(Found { choices, cost, time: self.flow.time, fits: self.flow.excess == 0 })
    }

    /// The best of some greedy starts.
    pub(crate) fn start(&mut self, allowed: Allowed) -> Option<Found> {
        let mut best: Option<Found> = None;
        for share in SHARES {
            let found = match (allowed.moves, allowed.again) {
                (true, true) => self.greedy(share, true),
                (false, true) if share == 0.0 => self.greedy(0.0, true),
                (true, false) => self.greedy(share * 3.0, false),
                (false, false) if share == 0.0 => self.greedy(0.0, false),
                _ => continue,
            };
            best = better(best, found);
            if self.over() && best.as_ref().is_some_and(|best| best.fits) {
                break;
            }
        }
        if allowed.moves && !allowed.again {
            best = better(best, self.greedy(f64::INFINITY, false));
        }
        if let Some(found) = &mut best {
            self.prune(found);
        }
        best
    }

    /// Moves what is dear to make again as far as the links allow, then drops what is cheap for its bytes until all fits.
    fn greedy(&mut self, share: f64, again: bool) -> Option<Found> {
        let base = self.base;
        let mut choices = vec![Choice::Keep; base.gaps.len()];
        self.judge(&choices)?;
        if self.flow.excess == 0 {
            return self.found(choices);
        }
        if share > 0.0 {
            self.choose_moves(&mut choices, share, again);
            self.judge(&choices)?;
            self.sink(&mut choices)?;
        }
        if again {
            self.drop_until_it_fits(&mut choices)?;
        }
        if self.flow.excess > 0 && share > 0.0 {
            // What is left has to move, whatever that takes.
            self.choose_moves(&mut choices, f64::INFINITY, false);
            self.judge(&choices)?;
            self.sink(&mut choices)?;
        }
        self.found(choices)
    }

    /// Lets what is away longest go on to the tier behind the slow one, until that has room for the rest.
    fn sink(&mut self, choices: &mut [Choice]) -> Option<()> {
        let base = self.base;
        let mut began = Vec::with_capacity(base.calls.len() + 1);
        began.push(0.0);
        began.extend(base.calls.iter().scan(0.0, |clock, call| {
            *clock += call.time;
            Some(*clock)
        }));
        let away = |gap: &super::base::Gap, choice: Choice| match (gap.from, choice) {
            (NONE, Choice::Away) => {
                base.floor - (began[last(base, gap.tensor)] - began[gap.to as usize]).max(0.0)
            }
            (NONE, _) => began[gap.to as usize],
            (from, _) => began[gap.to as usize] - began[from as usize + 1],
        };
        while self.flow.beyond > 0 {
            let shallow = |at: &u32| matches!(choices[*at as usize], Choice::Move | Choice::Away);
            let mut offers: Vec<u32> = (0..base.gaps.len() as u32).filter(shallow).collect();
            if offers.is_empty() {
                break;
            }
            let long = |at: &u32| away(&base.gaps[*at as usize], choices[*at as usize]);
            offers.sort_by(|a, b| long(b).total_cmp(&long(a)).then(a.cmp(b)));
            let mut left = self.flow.beyond as i64;
            for at in offers {
                let choice = &mut choices[at as usize];
                *choice = if *choice == Choice::Away { Choice::DeepAway } else { Choice::Deep };
                left -= base.items[base.gaps[at as usize].tensor as usize].bytes as i64;
                if left <= 0 {
                    break;
                }
            }
            self.judge(choices)?;
        }
        Some(())
    }

    /// Drops what frees most for what it takes to make it again, until all fits or nothing more can be dropped.
    fn drop_until_it_fits(&mut self, choices: &mut [Choice]) -> Option<()> {
        let base = self.base;
        let mut banned = vec![false; base.gaps.len()];
        while self.flow.excess > 0 {
            let mut offers = self.offers(choices, &banned);
            if offers.is_empty() {
                break;
            }
            offers.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            let (before, total) = (self.flow.cost(base), self.flow.area);
            let mut taken = 0.0;
            let mut now: Vec<u32> = Vec::new();
            for (gap, _, area) in offers {
                choices[gap as usize] = Choice::Again;
                now.push(gap);
                taken += area;
                if taken >= PORTION * total {
                    break;
                }
            }
            let cost = self.judge(choices);
            if cost.is_none_or(|cost| cost >= before) {
                // Together they do not do: one at a time.
                now.iter().for_each(|gap| choices[*gap as usize] = Choice::Keep);
                let mut last = before;
                for gap in now {
                    choices[gap as usize] = Choice::Again;
                    match self.judge(choices).filter(|cost| *cost < last) {
                        Some(cost) => last = cost,
                        None => {
                            choices[gap as usize] = Choice::Keep;
                            banned[gap as usize] = true;
                        }
                    }
                }
                self.judge(choices)?;
            }
        }
        Some(())
    }

    /// Choices that fitted more memory than there is: drops more.
    pub(crate) fn repair(&mut self, old: Found, allowed: Allowed) -> Option<Found> {
        let mut choices = old.choices;
        self.judge(&choices)?;
        if allowed.again {
            self.drop_until_it_fits(&mut choices)?;
        }
        if self.flow.excess > 0 && allowed.moves {
            self.choose_moves(&mut choices, f64::INFINITY, false);
            self.judge(&choices)?;
            self.sink(&mut choices)?;
        }
        self.found(choices)
    }

    /// Chooses moves by what it would take to make their tensors again, until links have so much of their time.
    fn choose_moves(&mut self, choices: &mut [Choice], share: f64, again: bool) {
        let base = self.base;
        let areas = self.areas(choices);
        let mut offers: Vec<(u32, f64)> = Vec::new();
        for (at, gap) in base.gaps.iter().enumerate() {
            if !gap.moves || choices[at] != Choice::Keep || areas[at] <= 0.0 {
                continue;
            }
            let bytes = base.items[gap.tensor as usize].bytes;
            let long = areas[at] / bytes as f64;
            // What comes back while it is away would only be waited for; where nothing else fits, that is what it takes.
            if share.is_finite() && long < base.link.copying(bytes, 0) + base.link.copying(bytes, 1) {
                continue;
            }
            let price = match again && gap.again {
                true => self.unroller.price(base, choices, &self.sequence, gap.tensor, gap.to),
                false => None,
            };
            let worth = price.map_or(1e9, |price| price / bytes as f64 * 1e6);
            offers.push((at as u32, worth * long / base.floor));
        }
        offers.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut left = share * base.floor * 0.5;
        for (at, _) in offers {
            let bytes = base.items[base.gaps[at as usize].tensor as usize].bytes;
            left -= base.link.copying(bytes, 0).max(base.link.copying(bytes, 1));
            if left < 0.0 {
                break;
            }
            choices[at as usize] = Choice::Move;
        }
    }

    /// For each gap, bytes times nanoseconds above the limit that its tensor stands for.
    fn areas(&self, choices: &[Choice]) -> Vec<f64> {
        let base = self.base;
        let room = |place: usize| base.room(self.sequence.kernels[place].1);
        let steps = self.sequence.kernels.len();
        let time = |place: usize| base.calls[self.sequence.kernels[place].0 as usize].time.max(1000.0);
        let above: Vec<(u64, f64)> =
            (0..steps).map(|p| (self.flow.memory[p].saturating_sub(room(p)), time(p))).collect();
        // Only where too much is wanted.
        let first = above.iter().position(|(above, _)| *above > 0).unwrap_or(steps);
        let last = above.iter().rposition(|(above, _)| *above > 0).map_or(0, |last| last + 1);
        let area = |(at, gap): (usize, &super::base::Gap)| {
            if choices[at] != Choice::Keep {
                return 0.0;
            }
            let bytes = base.items[gap.tensor as usize].bytes;
            let from =
                if gap.from == NONE { 0 } else { self.sequence.places[gap.from as usize] as usize + 1 };
            let to = self.sequence.places[gap.to as usize] as usize;
            let (from, to) = (from.max(first), to.min(last));
            if from >= to {
                return 0.0;
            }
            above[from..to].iter().map(|(above, time)| bytes.min(*above) as f64 * time).sum()
        };
        base.gaps.iter().enumerate().map(area).collect()
    }

    /// Gaps whose tensors could be made again: how much of the excess goes for what it takes, and the excess.
    fn offers(&mut self, choices: &[Choice], banned: &[bool]) -> Vec<(u32, f64, f64)> {
        let areas = self.areas(choices);
        let mut offers = Vec::new();
        for (at, area) in areas.into_iter().enumerate() {
            let gap = &self.base.gaps[at];
            if area <= 0.0 || !gap.again || banned[at] {
                continue;
            }
            let price = self.unroller.price(self.base, choices, &self.sequence, gap.tensor, gap.to);
            if let Some(price) = price {
                offers.push((at as u32, area / price.max(1.0), area));
            }
        }
        offers
    }

    /// Takes back choices that are not needed, the dearest first.
    fn prune(&mut self, found: &mut Found) {
        if !found.fits {
            return;
        }
        let mut chosen: Vec<(u32, f64)> = Vec::new();
        for (at, choice) in found.choices.iter().enumerate() {
            if *choice == Choice::Again {
                let gap = &self.base.gaps[at];
                let price =
                    self.unroller.price(self.base, &found.choices, &self.sequence, gap.tensor, gap.to);
                chosen.push((at as u32, price.unwrap_or(0.0)));
            }
        }
        chosen.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        for (at, _) in chosen {
            if self.over() {
                break;
            }
            self.attempt(found, &[(at, Choice::Keep)], 0.0);
        }
    }

    /// Changes some choices if that costs no more than so much more.
    fn attempt(&mut self, found: &mut Found, changes: &[(u32, Choice)], more: f64) -> bool {
        let old: Vec<Choice> = changes.iter().map(|(at, _)| found.choices[*at as usize]).collect();
        for (at, choice) in changes {
            found.choices[*at as usize] = *choice;
        }
        let cost = self.judge(&found.choices);
        if let Some(cost) = cost.filter(|cost| *cost <= found.cost + more) {
            (found.cost, found.time, found.fits) = (cost, self.flow.time, self.flow.excess == 0);
            return true;
        }
        for ((at, _), old) in changes.iter().zip(old).rev() {
            found.choices[*at as usize] = old;
        }
        false
    }

    /// Changes choices at random as long as there is time, and as often as that.
    pub(crate) fn improve(&mut self, best: Found, allowed: Allowed, rounds: u64) -> Found {
        let base = self.base;
        let began = Instant::now();
        let options: Vec<u32> = (0..base.gaps.len() as u32)
            .filter(|at| {
                let gap = &base.gaps[*at as usize];
                allowed.moves && gap.moves || allowed.again && gap.again
            })
            .collect();
        if options.is_empty() {
            return best;
        }
        let (mut best, mut current) = (best.clone(), best);
        let total = self.until.saturating_duration_since(began).as_secs_f64().max(1e-9);
        let (mut last, patience) = (0, PATIENCE * options.len() as u64);
        for round in 0..rounds {
            if best.fits && round - last > patience {
                break;
            }
            if best.fits && best.time <= base.floor * 1.0005 {
                break;
            }
            if round % 8 == 0 && self.over() {
                break;
            }
            let left = (1.0 - began.elapsed().as_secs_f64() / total)
                .max(0.0)
                .min(1.0 - round as f64 / rounds as f64);
            let changes = self.change(&current, &options, allowed);
            let more = LENIENCE * base.floor * left * left * self.random.f64();
            if self.attempt(&mut current, &changes, more) && current.cost < best.cost {
                if current.cost < best.cost * (1.0 - WORTH) {
                    last = round;
                }
                best = current.clone();
            }
            if current.cost > best.cost * 1.02 {
                current = best.clone();
            }
        }
        best
    }

    /// One to three choices made otherwise: most often something that leaves stays, and something else leaves instead.
    fn change(&mut self, current: &Found, options: &[u32], allowed: Allowed) -> Vec<(u32, Choice)> {
        let mut changes: Vec<(u32, Choice)> = Vec::new();
        let kind = self.random.u8(..8);
        let wanted: &[Option<bool>] = match kind {
            0 => &[Some(true)],
            1 => &[Some(false)],
            2..=4 => &[Some(true), Some(false)],
            5 => &[Some(true), Some(true), Some(false)],
            6 => &[Some(true), Some(false), Some(false)],
            _ => &[None],
        };
        for leaves in wanted {
            let mut at = options[self.random.usize(..options.len())];
            for _ in 0..TRIES {
                let away = current.choices[at as usize] != Choice::Keep;
                if leaves.is_none_or(|leaves| leaves == away) {
                    break;
                }
                at = options[self.random.usize(..options.len())];
            }
            if changes.iter().all(|(other, _)| *other != at) {
                let now = current.choices[at as usize];
                // What leaves may also leave otherwise.
                let stays = now != Choice::Keep && *leaves == Some(true) && self.random.u8(..3) > 0;
                let choice = if stays { Choice::Keep } else { self.other(at, now, allowed) };
                changes.push((at, choice));
            }
        }
        changes
    }

    fn other(&mut self, at: u32, now: Choice, allowed: Allowed) -> Choice {
        let gap = &self.base.gaps[at as usize];
        let mut choices = [Choice::Keep; 6];
        let mut count = 0;
        let mut add = |choice: Choice, may: bool| {
            if may && choice != now {
                choices[count] = choice;
                count += 1;
            }
        };
        add(Choice::Keep, true);
        add(Choice::Again, allowed.again && gap.again);
        add(Choice::Move, allowed.moves && gap.moves);
        add(Choice::Away, allowed.moves && gap.from == NONE);
        let deep = allowed.moves && self.base.behind.is_some();
        add(Choice::Deep, deep && gap.moves);
        add(Choice::DeepAway, deep && gap.from == NONE);
        choices[self.random.usize(..count.max(1))]
    }
}

/// The last step that uses a tensor.
fn last(base: &Base, tensor: u32) -> usize {
    base.items[tensor as usize].uses.last().map_or(0, |last| *last as usize)
}

/// The better of two.
pub(crate) fn better(a: Option<Found>, b: Option<Found>) -> Option<Found> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.cost < a.cost { b } else { a }),
        (a, b) => a.or(b),
    }
}

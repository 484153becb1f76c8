//! Places for tensors that are on the fastest tier when an iteration ends and when the next begins, and away in between.
//!
//! What the next iteration finds must lie where the plan says that it does, so such a tensor comes back to its very place. The
//! packer knows of buffers that live once; taken as living all the time, these would keep their memory from others. So
//! where that does not fit, a search of its own places buffers that live twice: one after the other, each as low or as high as
//! it can be, and what does not fit comes earlier in the next attempt.

use std::collections::BTreeMap;
use std::time::Instant;

use fastrand::Rng;
use tiercel_core::Bytes;

use crate::layout::{Buffer, LayoutError, pack, pack_around};
use crate::search::solve::Effort;

/// A buffer, by its position, and from when until when it is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) buffer: usize,
    pub(crate) away: (u64, u64),
}

/// Attempts at most, and how much work they are: pairs of buffers that are looked at.
const ATTEMPTS: u32 = 4000;
const WORK: u64 = 40_000_000;

/// How much sooner what did not fit has its turn.
const SOONER: f64 = 1.3;

/// Packs buffers, some of which are away for a while.
pub(crate) fn pack_rounds(
    buffers: &[Buffer],
    rounds: &[Round],
    capacity: Bytes,
    effort: &Effort,
) -> Result<Vec<Bytes>, LayoutError> {
    let all = pack(buffers, Some(capacity), effort).map(|packing| packing.offsets);
    match all {
        Err(error) if !rounds.is_empty() => {
            let found = stacked(buffers, rounds, capacity, effort);
            found.or_else(|| Attempt::new(buffers, rounds, capacity).search(effort)).ok_or(error)
        }
        all => all,
    }
}

/// Packs what lives all the time at the bottom, on it what is away for a while, and the rest on that. Who leaves first lies
/// highest: what it leaves is open to the sky then, and the others are packed into it as on uneven ground.
fn stacked(buffers: &[Buffer], rounds: &[Round], capacity: Bytes, effort: &Effort) -> Option<Vec<Bytes>> {
    let (from, to) = (buffers.iter().map(|b| b.lower).min()?, buffers.iter().map(|b| b.upper).max()?);
    let away: BTreeMap<usize, (u64, u64)> = rounds.iter().map(|round| (round.buffer, round.away)).collect();
    let lasts = |at: usize| (buffers[at].lower, buffers[at].upper) == (from, to);
    let (bottom, others): (Vec<usize>, Vec<usize>) =
        (0..buffers.len()).filter(|at| !away.contains_key(at)).partition(|at| lasts(*at));
    let rest: Vec<Buffer> = others.iter().map(|at| buffers[*at]).collect();
    let mut stack: Vec<usize> = away.keys().copied().collect();
    stack.sort_by_key(|at| (u64::MAX - away[at].0, away[at].1));
    let (mut offsets, mut lying, mut height) = (vec![Bytes::ZERO; buffers.len()], Vec::new(), Bytes::ZERO);
    for &at in bottom.iter().chain(&stack) {
        let buffer = buffers[at];
        offsets[at] = height.round_up(buffer.alignment)?;
        height = offsets[at] + buffer.size;
        let (gone, back) = away.get(&at).copied().unwrap_or((buffer.upper, buffer.upper));
        let lives = [(buffer.lower, gone), (back, buffer.upper)];
        let lives = lives.into_iter().filter(|(lower, upper)| lower < upper);
        lying.extend(lives.map(|(lower, upper)| (Buffer { lower, upper, ..buffer }, offsets[at])));
    }
    if height > capacity {
        return None;
    }
    let found = pack_around(&rest, &lying, capacity, effort);
    others.iter().zip(found.ok()?).for_each(|(at, offset)| offsets[*at] = offset);
    Some(offsets)
}

/// Buffers and what has been learned of them.
struct Attempt<'b> {
    buffers: &'b [Buffer],
    capacity: u64,
    /// For each buffer, those that are there at some moment when it is.
    beside: Vec<Vec<usize>>,
    /// How early each has its turn, and whether it then lies as high as it can.
    turns: Vec<f64>,
    high: Vec<bool>,
}

impl<'b> Attempt<'b> {
    fn new(buffers: &'b [Buffer], rounds: &[Round], capacity: Bytes) -> Attempt<'b> {
        let lives = |at: usize| match rounds.iter().find(|round| round.buffer == at) {
            Some(Round { away, .. }) => vec![(buffers[at].lower, away.0), (away.1, buffers[at].upper)],
            None => vec![(buffers[at].lower, buffers[at].upper)],
        };
        let lives: Vec<Vec<(u64, u64)>> = (0..buffers.len()).map(lives).collect();
        let meet = |a: usize, b: usize| {
            lives[a].iter().any(|one| lives[b].iter().any(|other| one.0 < other.1 && other.0 < one.1))
        };
        let all = 0..buffers.len();
        let beside = all.clone().map(|a| all.clone().filter(|b| *b != a && meet(a, *b)).collect()).collect();
        let long = |at: usize| lives[at].iter().map(|(from, to)| to - from).sum::<u64>() as f64;
        let turns = all.map(|at| buffers[at].size.0 as f64 * long(at).sqrt()).collect();
        Attempt { buffers, capacity: capacity.0, beside, turns, high: vec![false; buffers.len()] }
    }

    fn search(mut self, effort: &Effort) -> Option<Vec<Bytes>> {
        let (mut rng, started) = (Rng::with_seed(effort.seed), Instant::now());
        let pairs: usize = self.beside.iter().map(Vec::len).sum();
        let attempts = (WORK / (pairs as u64 + 1)).min(ATTEMPTS.into()).max(1);
        for _ in 0..attempts {
            let (offsets, outside) = self.place();
            if outside.is_empty() {
                return Some(offsets.into_iter().map(Bytes).collect());
            }
            if started.elapsed() >= effort.time {
                return None;
            }
            for at in outside {
                self.turns[at] *= SOONER * (1.0 + rng.f64());
                self.high[at] = rng.bool();
            }
            // Something else changes, too, or attempts might go in circles.
            let other = rng.usize(0..self.buffers.len());
            self.high[other] = rng.bool();
        }
        None
    }

    /// Places all in their turns; those for which there is no room are returned as well.
    fn place(&self) -> (Vec<u64>, Vec<usize>) {
        let mut order: Vec<usize> = (0..self.buffers.len()).collect();
        order.sort_by(|a, b| self.turns[*b].total_cmp(&self.turns[*a]));
        let mut offsets: Vec<Option<u64>> = vec![None; self.buffers.len()];
        let (mut outside, mut taken) = (Vec::new(), Vec::new());
        for at in order {
            let there = self.beside[at].iter().filter_map(|other| Some((offsets[*other]?, *other)));
            taken.clear();
            taken.extend(there.map(|(offset, other)| (offset, offset + self.buffers[other].size.0)));
            taken.sort_unstable();
            match self.room(&taken, &self.buffers[at], self.high[at]) {
                Some(offset) => offsets[at] = Some(offset),
                None => outside.push(at),
            }
        }
        (offsets.into_iter().map(Option::unwrap_or_default).collect(), outside)
    }

    /// The lowest or the highest place for a buffer beside stretches that are taken, in order.
    fn room(&self, taken: &[(u64, u64)], buffer: &Buffer, high: bool) -> Option<u64> {
        let (size, unit) = (buffer.size.0, buffer.alignment.0);
        let mut best = None;
        let mut free = 0_u64;
        for &(start, end) in taken.iter().chain([&(self.capacity, u64::MAX)]) {
            let low = free.next_multiple_of(unit);
            if low.checked_add(size).is_some_and(|end| end <= start) {
                best = Some(if high { (start - size) / unit * unit } else { low });
                if !high {
                    break;
                }
            }
            free = free.max(end);
            if free == u64::MAX {
                break;
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random buffers that fit by construction, some of which live at the beginning and at the end.
    #[test]
    fn what_lives_twice_leaves_its_memory_to_others_and_no_two_overlap() {
        let mut found = 0;
        for seed in 0..60 {
            let mut rng = Rng::with_seed(seed);
            let (mut buffers, mut rounds) = (Vec::new(), Vec::new());
            for _ in 0..rng.usize(2..5) {
                let size = Bytes(64 * rng.u64(1..20));
                rounds.push(Round { buffer: buffers.len(), away: (10, 90) });
                buffers.push(Buffer::new(0, 100, size).aligned(Bytes(64)));
                for (from, to) in [(10, 50), (50, 90)] {
                    buffers.push(Buffer::new(from, to, size).aligned(Bytes(64)));
                }
            }
            let capacity = Bytes(rounds.iter().map(|round| buffers[round.buffer].size.0).sum());
            let Ok(offsets) = pack_rounds(&buffers, &rounds, capacity, &Effort::default()) else { continue };
            found += 1;
            let away = |at: usize| rounds.iter().find(|round| round.buffer == at).map(|round| round.away);
            let lives = |at: usize, moment: u64| {
                let gone = away(at).is_some_and(|(from, to)| from <= moment && moment < to);
                buffers[at].lower <= moment && moment < buffers[at].upper && !gone
            };
            for moment in 0..100 {
                let there: Vec<usize> = (0..buffers.len()).filter(|at| lives(*at, moment)).collect();
                for a in &there {
                    assert!(offsets[*a] + buffers[*a].size <= capacity && offsets[*a].0 % 64 == 0);
                    for b in there.iter().filter(|b| *b != a) {
                        let apart = offsets[*a] + buffers[*a].size <= offsets[*b]
                            || offsets[*b] + buffers[*b].size <= offsets[*a];
                        assert!(apart, "seed {seed}: {a} and {b} at {moment}");
                    }
                }
            }
        }
        assert!(found >= 50, "{found} of 60 were packed");
    }
}

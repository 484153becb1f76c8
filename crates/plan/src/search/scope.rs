//! What a branch of the search still allows: the states of every tensor, the placements of every kernel, the room.
//!
//! A choice for one tensor often leaves no choice for others: what is surely in fast memory takes room that they
//! cannot have, a kernel that has lost its placements with a tensor in slow memory needs it in fast memory, and so
//! on. `tighten` follows these consequences until there are no more. At the root of the search it allows everything.

use crate::bound::paths::{States, rest};
use crate::model::problem::{Item, Problem};
use crate::search::headroom::Headroom;

/// The states that are open, as bits, for every slot of every tensor: the rest before use `i` is its slot `2 i`, the
/// use its slot `2 i + 1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Open(Vec<u64>);

/// What is still allowed.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) open: Open,
    /// Where the slots of each tensor start.
    starts: Vec<usize>,
    /// Each kernel's time for every placement; infinite for those that are closed.
    pub(crate) times: Vec<Vec<f64>>,
    /// The bytes that tensors can take at each step: no more than there is room for.
    pub(crate) room: Vec<Option<Vec<f64>>>,
    /// The bytes that are surely taken.
    taken: Vec<Option<Vec<f64>>>,
    /// For each state, those that can follow it, and those that it can follow.
    after: Vec<u64>,
    before: Vec<u64>,
    /// For each tier, the states that take room there, and those that work there.
    holds: Vec<u64>,
    works: Vec<u64>,
}

/// How often consequences are followed around before the rest is left to the search.
const ROUNDS: usize = 6;

impl Scope {
    /// Everything is allowed that the problem itself allows.
    pub(crate) fn root(problem: &Problem, states: &States) -> Scope {
        let count = states.all.len();
        let mask = |keep: &dyn Fn(usize) -> bool| (0..count).filter(|s| keep(*s)).fold(0, |m, s| m | 1 << s);
        let all: u64 = mask(&|_| true);
        let plain = mask(&|s| states.all[s].copy.is_none());
        let (mut open, mut starts) = (Vec::new(), Vec::with_capacity(problem.items.len()));
        for item in &problem.items {
            starts.push(open.len());
            // What is there at the start has no copy yet, and what stays ends without one.
            open.push(if item.persistent || item.fed { plain } else { all });
            for visit in &item.visits {
                open.push(if visit.writes { plain } else { all });
                open.push(all);
            }
            if item.persistent {
                *open.last_mut().expect("every tensor has a slot") = plain;
            }
        }
        let can = |from: usize, to: usize| states.cost(from, to, 1.0).is_finite();
        Scope {
            open: Open(open),
            starts,
            times: problem.calls.iter().map(|call| call.times.clone()).collect(),
            room: problem.bound_room.clone(),
            taken: problem.bound_room.clone(),
            after: (0..count).map(|from| mask(&|to| can(from, to))).collect(),
            before: (0..count).map(|to| mask(&|from| can(from, to))).collect(),
            holds: (0..problem.tiers).map(|tier| mask(&|s| states.holds(s as u8, tier))).collect(),
            works: (0..problem.tiers).map(|tier| mask(&|s| states.tier(s as u8) == tier)).collect(),
        }
    }

    /// Goes to another branch: just the open states are remembered, what follows from them is found again.
    pub(crate) fn visit(&mut self, problem: &Problem, open: &Open) {
        self.open.0.clone_from(&open.0);
        for (times, call) in self.times.iter_mut().zip(&problem.calls) {
            times.clone_from(&call.times);
        }
        self.room.clone_from(&problem.bound_room);
    }

    /// The open states at each slot of a tensor.
    pub(crate) fn slots(&self, at: usize) -> &[u64] {
        let end = self.starts.get(at + 1).copied().unwrap_or(self.open.0.len());
        &self.open.0[self.starts[at]..end]
    }

    /// Where a tensor must be: the tiers that take room for it in every open state, and from which step up to which.
    pub(crate) fn needs(&self, problem: &Problem, at: usize) -> Vec<(usize, usize, usize)> {
        let mut needs = Vec::new();
        for (slot, open) in self.slots(at).iter().enumerate() {
            let (from, to) = stretch(&problem.items[at], slot, problem.calls.len());
            let tiers = (0..problem.tiers).filter(|tier| open & !self.holds[*tier] == 0);
            needs.extend(tiers.filter(|_| from < to).map(|tier| (tier, from, to)));
        }
        needs
    }

    /// The states with the tensor itself on a tier.
    pub(crate) fn on(&self, tier: usize) -> u64 {
        self.works[tier]
    }

    /// Closes all states of a slot but some; returns whether that changed anything.
    pub(crate) fn keep(&mut self, at: usize, slot: usize, states: u64) -> bool {
        let open = &mut self.open.0[self.starts[at] + slot];
        let before = std::mem::replace(open, *open & states);
        *open != before
    }

    /// Follows the consequences of what is closed; `false` where nothing is left.
    pub(crate) fn tighten(&mut self, problem: &Problem) -> bool {
        for _ in 0..ROUNDS {
            if !self.weigh(problem) {
                return false;
            }
            let mut changed = self.crowd_out(problem);
            changed |= self.agree(problem);
            for at in 0..problem.items.len() {
                changed |= self.connect(&problem.items[at], at);
            }
            if self.open.0.contains(&0) {
                return false;
            }
            if !changed {
                break;
            }
        }
        true
    }

    /// Counts what is surely taken and what may be; `false` where even the former does not fit.
    fn weigh(&mut self, problem: &Problem) -> bool {
        let steps = problem.calls.len();
        for tier in 0..problem.tiers {
            let Some(room) = &problem.bound_room[tier] else { continue };
            let (mut surely, mut perhaps) = (vec![0.0; steps + 1], vec![0.0; steps + 1]);
            for (at, item) in problem.items.iter().enumerate() {
                for (slot, open) in self.slots(at).iter().enumerate() {
                    let (from, to) = stretch(item, slot, steps);
                    let bytes = item.bytes as f64;
                    if from >= to || open & self.holds[tier] == 0 {
                        continue;
                    }
                    (perhaps[from], perhaps[to]) = (perhaps[from] + bytes, perhaps[to] - bytes);
                    if open & !self.holds[tier] == 0 {
                        (surely[from], surely[to]) = (surely[from] + bytes, surely[to] - bytes);
                    }
                }
            }
            let (taken, most) = (self.taken[tier].as_mut(), self.room[tier].as_mut());
            let (Some(taken), Some(most)) = (taken, most) else { continue };
            let (mut sure, mut possible) = (0.0, 0.0);
            for step in 0..steps {
                (sure, possible) = (sure + surely[step], possible + perhaps[step]);
                taken[step] = sure;
                most[step] = room[step].min(possible);
                if sure > room[step] {
                    return false;
                }
            }
        }
        true
    }

    /// Closes the states for which there is no room beside what is surely there.
    fn crowd_out(&mut self, problem: &Problem) -> bool {
        let steps = problem.calls.len();
        let mut changed = false;
        for tier in 0..problem.tiers {
            let (Some(room), Some(taken)) = (&problem.bound_room[tier], &self.taken[tier]) else { continue };
            let left = Headroom::new(room.iter().zip(taken).map(|(room, taken)| room - taken).collect());
            let holds = self.holds[tier];
            for (at, item) in problem.items.iter().enumerate() {
                for slot in 0..2 * item.visits.len() + 1 {
                    let open = &mut self.open.0[self.starts[at] + slot];
                    let (from, to) = stretch(item, slot, steps);
                    if from >= to || *open & holds == 0 || *open & !holds == 0 {
                        continue;
                    }
                    if !left.fits(from, to, item.bytes as f64) {
                        *open &= !holds;
                        changed = true;
                    }
                }
            }
        }
        changed
    }

    /// Closes the placements of kernels that their operands or the room rule out, and the states of operands for which
    /// no placement is left.
    fn agree(&mut self, problem: &Problem) -> bool {
        let mut changed = false;
        let mut operands: Vec<(usize, u64, f64)> = Vec::new();
        for (step, call) in problem.calls.iter().enumerate() {
            operands.clear();
            for item in &call.items {
                let item = *item as usize;
                let slot = self.slot_at(problem, item, step);
                let index = self.starts[item] + slot;
                operands.push((index, self.open.0[index], problem.items[item].bytes as f64));
            }
            let mut seen = vec![0_u64; operands.len()];
            for (placement, time) in self.times[step].iter_mut().enumerate() {
                if time.is_infinite() {
                    continue;
                }
                let mut digits = placement;
                let mut load = [0.0; 64];
                let possible = operands.iter().all(|(_, open, bytes)| {
                    let tier = digits % problem.tiers;
                    digits /= problem.tiers;
                    load[tier] += bytes;
                    open & self.works[tier] != 0
                });
                let fits = |tier: usize| match (&problem.bound_room[tier], &self.taken[tier]) {
                    (Some(room), Some(taken)) => {
                        let surely = |(_, open, bytes): &(usize, u64, f64)| {
                            if open & !self.holds[tier] == 0 { *bytes } else { 0.0 }
                        };
                        let own: f64 = operands.iter().map(surely).sum();
                        taken[step] - own + load[tier] <= room[step]
                    }
                    _ => true,
                };
                if !possible || !(0..problem.tiers).all(fits) {
                    *time = f64::INFINITY;
                    continue;
                }
                let mut digits = placement;
                for seen in &mut seen {
                    *seen |= self.works[digits % problem.tiers];
                    digits /= problem.tiers;
                }
            }
            for ((index, open, _), seen) in operands.iter().zip(&seen) {
                if open & !seen != 0 {
                    self.open.0[*index] &= seen;
                    changed = true;
                }
            }
        }
        changed
    }

    /// The slot of a tensor's use at a step.
    pub(crate) fn slot_at(&self, problem: &Problem, item: usize, step: usize) -> usize {
        let visits = &problem.items[item].visits;
        2 * visits.partition_point(|visit| (visit.step as usize) < step) + 1
    }

    /// Closes the states that no path of the tensor goes through.
    fn connect(&mut self, item: &Item, at: usize) -> bool {
        let start = self.starts[at];
        let last = start + 2 * item.visits.len();
        if item.visits.is_empty() {
            return false;
        }
        let mut through = vec![0; last - start + 1];
        // What stays must end where it began.
        let beginnings = self.open.0[start] & if item.persistent { self.open.0[last] } else { u64::MAX };
        let single = |mask: u64| (0..64).map(|s| 1 << s).filter(move |bit| mask & bit != 0);
        let ways: Vec<u64> = if item.persistent { single(beginnings).collect() } else { vec![beginnings] };
        let mut reached = vec![0; through.len()];
        for way in ways {
            reached[0] = way;
            for slot in 1..reached.len() {
                let free = moves_before(item, slot);
                reached[slot] = self.open.0[start + slot] & step(&self.after, reached[slot - 1], free);
            }
            let mut mask = if item.persistent { way } else { u64::MAX };
            for slot in (0..reached.len()).rev() {
                mask &= reached[slot];
                through[slot] |= mask;
                if slot > 0 {
                    mask = step(&self.before, mask, moves_before(item, slot));
                }
            }
        }
        let changed = self.open.0[start..=last] != through;
        self.open.0[start..=last].copy_from_slice(&through);
        changed
    }
}

/// The states next to some: those that a move leads to, or the same.
fn step(next: &[u64], from: u64, free: bool) -> u64 {
    if !free {
        return from;
    }
    next.iter().enumerate().filter(|(s, _)| from & 1 << s != 0).fold(0, |mask, (_, to)| mask | to)
}

/// Whether a tensor may change its state before a slot: what is born is born where it is used first, and what dies
/// does not move before.
pub(crate) fn moves_before(item: &Item, slot: usize) -> bool {
    let born = slot == 1 && !item.persistent && !item.fed;
    let dies = slot == 2 * item.visits.len() && !item.persistent;
    !born && !dies
}

/// The steps of a slot.
pub(crate) fn stretch(item: &Item, slot: usize, steps: usize) -> (usize, usize) {
    if item.visits.is_empty() {
        return if item.persistent { (0, steps) } else { (0, 0) };
    }
    match slot % 2 {
        0 => rest(item, slot / 2, steps),
        _ => {
            let step = item.visits[slot / 2].step as usize;
            (step, step + 1)
        }
    }
}

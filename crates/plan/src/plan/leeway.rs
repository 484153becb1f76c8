//! How much earlier than planned each move could begin: the leeway that a run has when the world is slower than the plan
//! thought.
//!
//! A move to a faster tier may begin as soon as its place there is free, its bytes are on the tier that it leaves, and no
//! kernel uses them any more until it is done. Moves that begin as early as that still never meet: a place is free from the
//! end of the stay before.

use std::collections::{BTreeMap, HashMap};

use tiercel_core::{Machine, TierId};
use tiercel_workload::Trace;

use crate::plan::offsets::{places, size};
use crate::plan::verify::{Flaw, Stay, replay};
use crate::plan::{Action, Plan};

/// For each of a plan's moves the first boundary at which it could begin: its own start where it cannot be earlier.
pub fn leeway(plan: &Plan, trace: &Trace, machine: &Machine) -> Result<Vec<u32>, Flaw> {
    let stays = replay(plan, trace, machine)?;
    let mut first: Vec<u32> = plan.moves.iter().map(|m| m.start).collect();
    let ids: HashMap<&str, usize> =
        trace.tensors.iter().enumerate().map(|(at, t)| (t.name.as_str(), at)).collect();
    let tier = |name: &str| machine.tier_named(name);
    let free = since_free(plan, trace, machine, &stays);
    let mut used: Vec<Vec<u32>> = vec![Vec::new(); trace.tensors.len()];
    for (step, kernel) in trace.kernels.iter().enumerate() {
        for u in kernel.reads.iter().chain(&kernel.writes) {
            used[u.tensor.0 as usize].push(step as u32);
        }
    }
    // When the bytes were last brought to somewhere.
    let mut brought: HashMap<usize, u32> = HashMap::new();
    for (index, m) in plan.moves.iter().enumerate() {
        let tensor = ids[m.tensor.as_str()];
        let comes = tier(&m.to) < tier(&m.from) && matches!(m.action, Action::Move | Action::Fetch);
        if let Some(free) = free.get(&index).filter(|_| comes) {
            let before = used[tensor].partition_point(|step| *step < m.start);
            let unused = before.checked_sub(1).map_or(0, |last| used[tensor][last] + 1);
            let there = brought.get(&tensor).copied().unwrap_or(0);
            first[index] = unused.max(there).max(*free).min(m.start);
        }
        brought.insert(tensor, m.done.max(m.start));
    }
    Ok(first)
}

/// Since when the place of each move has been free when the move begins; nothing of moves without a place.
fn since_free(plan: &Plan, trace: &Trace, machine: &Machine, stays: &[Stay]) -> HashMap<usize, u32> {
    let place = places(plan, trace);
    let mut events: Vec<(u32, bool, usize)> = Vec::new();
    let mut spans: Vec<(u64, u64)> = Vec::with_capacity(stays.len());
    let mut all_placed = true;
    for (at, stay) in stays.iter().enumerate() {
        let (offset, size) = (place(stay), size(trace, machine, stay.tensor));
        // Where something lies anywhere, nothing is known of what is free.
        all_placed &= offset.is_some() || stay.tier != TierId(0);
        spans.push(offset.map_or((0, 0), |offset| (offset, offset.saturating_add(size))));
        events.push((stay.from, true, at));
        events.push((stay.to, false, at));
    }
    let mut found = HashMap::new();
    if !all_placed {
        return found;
    }
    events.sort_unstable();
    let mut vacated = Vacated::default();
    for (boundary, begins, at) in events {
        let (Stay { tier, brought, .. }, (start, end)) = (stays[at], spans[at]);
        if tier != TierId(0) || start == end {
            continue;
        }
        match brought.filter(|_| begins) {
            Some(index) => _ = found.insert(index, vacated.latest(start, end)),
            None if !begins => vacated.set(start, end, boundary),
            None => {}
        }
    }
    found
}

/// When each byte of a tier was last given up; from each mark to the next it is the same.
#[derive(Default)]
struct Vacated(BTreeMap<u64, u32>);

impl Vacated {
    fn at(&self, byte: u64) -> u32 {
        self.0.range(..=byte).next_back().map_or(0, |(_, when)| *when)
    }

    /// Later than anything that was set before.
    fn set(&mut self, start: u64, end: u64, when: u32) {
        let beyond = self.at(end);
        let within: Vec<u64> = self.0.range(start..end).map(|(byte, _)| *byte).collect();
        within.iter().for_each(|byte| _ = self.0.remove(byte));
        self.0.insert(start, when);
        self.0.insert(end, beyond);
    }

    fn latest(&self, start: u64, end: u64) -> u32 {
        self.0.range(start..end).map(|(_, when)| *when).fold(self.at(start), u32::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a tier that is a list of bytes.
    #[test]
    fn what_was_vacated_when_is_known_byte_by_byte() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let (mut fast, mut naive) = (Vacated::default(), [0u32; 64]);
            for when in 1..30 {
                let start = random.u64(0..63);
                let end = random.u64(start + 1..=64);
                let slow = naive[start as usize..end as usize].iter().max().copied();
                assert_eq!(Some(fast.latest(start, end)), slow);
                fast.set(start, end, when);
                naive[start as usize..end as usize].fill(when);
            }
        }
    }
}

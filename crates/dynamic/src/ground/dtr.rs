//! Dynamic tensor rematerialisation (Kirisame et al., ICLR 2021): nothing leaves the card; what is cheapest to make again for
//! its size and the time since its last use is dropped when memory is short, and made again when it is wanted.
//!
//! The heuristic is the paper's: h = c / (m · s), the cost of making the tensor and all dropped neighbours that this would
//! take or that would take it, over its size and its staleness. Parameters, what the optimizer remembers and tensors that
//! several kernels write are never dropped. Neighbourhoods are walked up to 64 tensors.

use tiercel_core::Backend;

use super::{Play, Rival, Short, Victims};

/// Tensors of a neighbourhood that are looked at.
const NEAR: usize = 64;

/// The rival.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dtr;

impl Rival for Dtr {
    fn begin(&mut self, play: &mut Play<'_>) -> Result<(), Short> {
        play.victims = Victims::Dropped;
        Ok(())
    }
}

/// The tensor to drop.
pub(super) fn victim(play: &Play<'_>, all: impl Iterator<Item = usize>) -> Option<usize> {
    let now = play.ground.sim.now().0;
    let droppable = |at: &usize| {
        let writers = &play.writers[*at];
        !play.trace.tensors[*at].persistent && writers.len() == 1 && (writers[0] as usize) < play.step
    };
    let heuristic = |at: &usize| {
        let slot = &play.slots[*at];
        let cost = (play.alone(play.writers[*at][0] as usize) + neighbours(play, *at)) as f64;
        cost / (slot.bytes.max(1) as f64 * now.saturating_sub(slot.at).max(1) as f64)
    };
    let judged = all.filter(droppable).map(|at| (heuristic(&at), at));
    judged.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))).map(|(_, at)| at)
}

/// The cost of the dropped tensors that making this one again would take, and of those that would take it.
fn neighbours(play: &Play<'_>, tensor: usize) -> u64 {
    let dropped = |at: usize| {
        let slot = &play.slots[at];
        let made = play.writers[at].first().is_some_and(|writer| (*writer as usize) < play.step);
        !slot.fast && !slot.copy && made
    };
    let mut seen = vec![tensor];
    let mut cost = 0;
    for up in [true, false] {
        let mut open = vec![tensor];
        while let Some(at) = open.pop() {
            if seen.len() >= NEAR {
                break;
            }
            let mut visit = |other: usize| {
                if dropped(other) && !seen.contains(&other) {
                    seen.push(other);
                    open.push(other);
                    cost += play.alone(play.writers[other][0] as usize);
                }
            };
            if up {
                let kernel = &play.trace.kernels[play.writers[at][0] as usize];
                kernel.reads.iter().for_each(|used| visit(used.tensor.0 as usize));
            } else {
                for step in play.lives.uses(tiercel_workload::TensorId(at as u32)) {
                    if (step.0 as usize) < play.step {
                        let kernel = &play.trace.kernels[step.0 as usize];
                        kernel.writes.iter().for_each(|used| visit(used.tensor.0 as usize));
                    }
                }
            }
        }
    }
    cost
}

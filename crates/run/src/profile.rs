//! How long kernels take with their operands in each tier, recorded while they run.
//!
//! A kernel is run again and again with few different placements, so one line is kept for each of them, and a run
//! adds to its line: no memory is taken once every placement has been seen, and nothing is computed that a clock
//! reading does not need. The times are the kernel's own: waiting for copies is not in them, what a slow tier costs
//! the kernel is, emulated or real.

use tiercel_core::{Nanos, Step, TierId};
use tiercel_workload::trace::Timing;

use tiercel_sim::world::Work;

/// The runs of one kernel with its operands in the same tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profiled {
    /// When in the trace the kernel runs.
    pub step: Step,
    /// The tier of every operand, reads first, then writes, in the kernel's order.
    pub tiers: Vec<TierId>,
    /// How often it ran so.
    pub runs: u32,
    /// All runs together.
    pub total: Nanos,
    /// The quickest run.
    pub least: Nanos,
}

impl Profiled {
    /// A run takes this long on average.
    pub fn mean(&self) -> Nanos {
        Nanos(self.total.0 / u64::from(self.runs.max(1)))
    }

    /// The quickest run as a trace states it: what else ran on the machine has disturbed it least.
    pub fn timing(&self) -> Timing {
        Timing { tiers: self.tiers.clone(), time: self.least }
    }
}

/// The times of a trace's kernels by placement.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// By step.
    kernels: Vec<Vec<Profiled>>,
}

impl Profile {
    /// Every kernel and placement seen, in the order of steps.
    pub fn iter(&self) -> impl Iterator<Item = &Profiled> {
        self.kernels.iter().flatten()
    }

    /// The placements seen of one kernel.
    pub fn of(&self, step: Step) -> &[Profiled] {
        self.kernels.get(step.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// Records one run.
    pub(crate) fn add(&mut self, work: &Work<'_>, time: Nanos) {
        let step = work.step.0 as usize;
        if self.kernels.len() <= step {
            self.kernels.resize(step + 1, Vec::new());
        }
        let tiers = || work.slots.iter().map(|slot| work.places[*slot].0.tier);
        let seen = &mut self.kernels[step];
        match seen.iter_mut().find(|known| known.tiers.iter().copied().eq(tiers())) {
            Some(known) => {
                known.runs += 1;
                known.total += time;
                known.least = known.least.min(time);
            }
            None => seen.push(Profiled {
                step: work.step,
                tiers: tiers().collect(),
                runs: 1,
                total: time,
                least: time,
            }),
        }
    }
}

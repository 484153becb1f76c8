//! Where the time of an iteration went: what kernels take with everything in fast memory, and what was added to that.

use std::fmt;

use tiercel_core::{Machine, Nanos, TierId};
use tiercel_sim::{KernelTime, Work};

use crate::Times;

/// The parts of the time of one iteration; what kernels waited is counted elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Kernels with all operands in fast memory and nothing beside them.
    pub fast: Nanos,
    /// What kernels took longer because operands were in slower memory.
    pub slow: Nanos,
    /// What kernels took longer because copies beside them had cores and bandwidth.
    pub contention: Nanos,
    /// Kernels that ran again because what they made was dropped, with all operands in fast memory.
    pub again: Nanos,
}

impl Split {
    /// Adds a kernel that took so long.
    pub(crate) fn add(&mut self, machine: &Machine, times: &Times, work: &Work<'_>, took: Nanos) {
        let tiers: Vec<TierId> = work.slots.iter().map(|slot| work.places[*slot].0.tier).collect();
        let fast = times.chosen(machine, work.kernel, &vec![TierId(0); tiers.len()]);
        let alone = match work.cached {
            true => times.cached(machine, work.kernel, work.traffic),
            false => times.chosen(machine, work.kernel, &tiers),
        };
        // Slow memory may be the faster one for what a model is unsure of; no part is less than nothing.
        let fast = fast.min(took);
        let alone = alone.clamp(fast, took);
        *(if work.kernel.derived.again { &mut self.again } else { &mut self.fast }) += fast;
        self.slow += alone.saturating_sub(fast);
        self.contention += took.saturating_sub(alone);
    }

    /// The parts of one of so many iterations.
    pub(crate) fn each(self, iterations: u64) -> Split {
        let each = |time: Nanos| Nanos(time.0 / iterations.max(1));
        let Split { fast, slow, contention, again } = self;
        Split { fast: each(fast), slow: each(slow), contention: each(contention), again: each(again) }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with operands in fast memory", self.fast)?;
        for (time, what) in [
            (self.slow, "more where they were in slower memory"),
            (self.contention, "more beside copies"),
            (self.again, "for what ran again"),
        ] {
            if time > Nanos::ZERO {
                write!(f, ", {time} {what}")?;
            }
        }
        Ok(())
    }
}

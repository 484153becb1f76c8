//! How long a kernel takes with nothing beside it.

use tiercel_core::{Machine, Nanos};

use crate::world::Work;

/// Tells how long a kernel takes alone, with its operands where they are.
pub trait KernelTime {
    /// The time of this kernel on this machine.
    fn time(&self, machine: &Machine, work: &Work<'_>) -> Nanos;
}

/// The slower of computing and of moving bytes on the busiest tier, unless the trace says what was measured for just
/// this placement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roofline;

impl KernelTime for Roofline {
    fn time(&self, machine: &Machine, work: &Work<'_>) -> Nanos {
        let here = || work.slots.iter().map(|slot| work.places[*slot].0.tier);
        let measured = work.kernel.timings.iter().find(|timing| timing.tiers.iter().copied().eq(here()));
        if let Some(timing) = measured {
            return timing.time;
        }
        let compute = work.kernel.flops as f64 / (machine.compute.gflops * 1e9);
        let busiest = work.traffic.iter().map(|t| {
            let tier = machine.tier(t.tier);
            let apart = t.read.0 as f64 / tier.read.0 + t.write.0 as f64 / tier.write.0;
            let together = tier.combined.map_or(0.0, |both| (t.read.0 + t.write.0) as f64 / both.0);
            apart.max(together)
        });
        Nanos::from_seconds(busiest.fold(compute, f64::max))
    }
}

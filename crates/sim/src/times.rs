//! How long a kernel takes with nothing beside it: the one question that simulation and planning both ask.

use tiercel_core::{Backing, Bytes, Machine, Nanos, TierId, Traffic};
use tiercel_workload::Kernel;

/// Tells how long a kernel takes alone, with its operands where they are.
pub trait KernelTime {
    /// The time of a kernel whose reads, then writes, lie on these tiers.
    fn time(&self, machine: &Machine, kernel: &Kernel, tiers: &[TierId]) -> Nanos;

    /// How many of a kernel's last operands it does not touch: they stand for choices, and may lie on any tier.
    fn untouched(&self, _kernel: &Kernel) -> usize {
        0
    }

    /// The same for the implementation of the kernel that was chosen.
    fn chosen(&self, machine: &Machine, kernel: &Kernel, tiers: &[TierId]) -> Nanos {
        scaled(self.time(machine, kernel, tiers), kernel.factor)
    }

    /// The time of a kernel whose bytes do not follow from where its operands lie, because a cache works below the
    /// level of objects.
    fn cached(&self, machine: &Machine, kernel: &Kernel, traffic: &[Traffic]) -> Nanos {
        roofline(machine, kernel, traffic)
    }
}

/// A time, so many times over.
pub(crate) fn scaled(time: Nanos, factor: f64) -> Nanos {
    if factor == 1.0 { time } else { Nanos((time.0 as f64 * factor).round() as u64) }
}

/// How far a kernel's own work hides what its bytes take on memory that is slowed down to stand in for another: 1 hides
/// nothing, and far above it the longer of the two is all that counts. This is what was fitted to kernels on persistent memory
/// that are of no particular kind (`machines/optane-autotm.toml`): loads and stores there hold a kernel up nearly as long as
/// they take.
pub const EMULATED_OVERLAP: f64 = 1.2;

/// The time of two things that overlap: their sum at an overlap of 1, the longer one far above it.
pub fn together(a: f64, b: f64, overlap: f64) -> f64 {
    let (long, short) = if a > b { (a, b) } else { (b, a) };
    if short <= 0.0 { long } else { long * (1.0 + (short / long).powf(overlap)).powf(1.0 / overlap) }
}

/// The slower of computing and of moving bytes on the busiest tier, unless the trace says what was measured for just
/// this placement. Emulated tiers hide less ([`EMULATED_OVERLAP`]), here as on real memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roofline;

impl KernelTime for Roofline {
    fn time(&self, machine: &Machine, kernel: &Kernel, tiers: &[TierId]) -> Nanos {
        let measured = kernel.timings.iter().find(|timing| timing.tiers == tiers);
        measured.map_or_else(|| roofline(machine, kernel, &traffic(kernel, tiers)), |timing| timing.time)
    }
}

/// The bytes that a kernel moves on each tier with its reads, then writes, on these tiers.
pub(crate) fn traffic(kernel: &Kernel, tiers: &[TierId]) -> Vec<Traffic> {
    let mut all: Vec<Traffic> = Vec::new();
    let reads = kernel.reads.iter().map(|u| (u.bytes, Bytes::ZERO));
    let writes = kernel.writes.iter().map(|u| (Bytes::ZERO, u.bytes));
    for ((read, write), &tier) in reads.chain(writes).zip(tiers) {
        match all.iter_mut().find(|t| t.tier == tier) {
            Some(t) => (t.read, t.write) = (t.read + read, t.write + write),
            None => all.push(Traffic { tier, read, write }),
        }
    }
    all
}

fn roofline(machine: &Machine, kernel: &Kernel, traffic: &[Traffic]) -> Nanos {
    let compute = kernel.flops as f64 / (machine.compute.gflops * 1e9);
    let (mut real, mut emulated) = (compute, 0.0_f64);
    for t in traffic {
        let tier = machine.tier(t.tier);
        let apart = t.read.0 as f64 / tier.read.0 + t.write.0 as f64 / tier.write.0;
        let busy = apart.max(tier.flow(t.read.0 as f64, t.write.0 as f64));
        let of = if tier.backing == Backing::Throttled { &mut emulated } else { &mut real };
        *of = of.max(busy);
    }
    Nanos::from_seconds(together(real, emulated, EMULATED_OVERLAP))
}

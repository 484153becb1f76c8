//! Kernel times measured on this machine, for plans and predictions.
//!
//! A kernel that was seen with just these tiers takes what was measured. Otherwise it takes what it took with everything
//! in fast memory, or, where a tier is emulated, what its bytes take at that tier's speed, whichever is longer: that is
//! how the emulation charges kernels that work on it. Kernels are known by their names, which are unique in a network.

use std::collections::HashMap;

use tiercel_core::{Backing, Machine, Nanos, TierId};
use tiercel_run::{KernelTime, Profile, Roofline};
use tiercel_workload::trace::Use;
use tiercel_workload::{Kernel, Trace};

/// Times of a trace's kernels as they were measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    kernels: HashMap<String, Vec<(Vec<TierId>, Nanos)>>,
}

impl Measured {
    /// What a profile of a trace says: the mean time of every kernel and placement seen.
    pub fn new(trace: &Trace, profile: &Profile) -> Measured {
        let mut measured = Measured::default();
        for line in profile.iter() {
            let name = trace.kernel(line.step).name.clone();
            measured.kernels.entry(name).or_default().push((line.tiers.clone(), line.mean()));
        }
        measured
    }
}

impl KernelTime for Measured {
    fn time(&self, machine: &Machine, kernel: &Kernel, tiers: &[TierId]) -> Nanos {
        // What runs again takes what it took the first time.
        let name = kernel.name.strip_suffix(".again").unwrap_or(&kernel.name);
        let Some(seen) = self.kernels.get(name) else { return Roofline.time(machine, kernel, tiers) };
        if let Some((_, time)) = seen.iter().find(|(places, _)| places == tiers) {
            return *time;
        }
        let fast = seen.iter().filter(|(places, _)| places.iter().all(|tier| *tier == TierId(0)));
        let base = fast.map(|(_, time)| *time).next().unwrap_or_default();
        let mut slowest = base.0 as f64 / 1e9;
        for (id, tier) in machine.tier_ids().zip(&machine.tiers) {
            if tier.backing != Backing::Throttled {
                continue;
            }
            let here = |uses: &[Use], tiers: &[TierId]| -> f64 {
                let used = uses.iter().zip(tiers).filter(|(_, place)| **place == id);
                used.map(|(u, _)| u.bytes.0 as f64).sum()
            };
            let (reads, writes) = tiers.split_at(kernel.reads.len());
            slowest = slowest.max(here(&kernel.reads, reads) / tier.read.0);
            slowest = slowest.max(here(&kernel.writes, writes) / tier.write.0);
        }
        Nanos::from_seconds(slowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiercel_core::Bytes;
    use tiercel_workload::nets;

    #[test]
    fn an_emulated_tier_charges_by_its_bytes() {
        let machine = Machine::parse(
            "name = 'm'
            [[tier]]\nname = 'a'\ncapacity = '1 GiB'\nread = '9 GB/s'\nwrite = '9 GB/s'
            [[tier]]\nname = 'b'\ncapacity = '1 GiB'\nread = '2 GB/s'\nwrite = '1 GB/s'\nbacking = 'throttled'
            [[link]]\nfrom = 'a'\nto = 'b'\nthreads = 1\nbandwidth = { 1 = '1 GB/s' }
            [[link]]\nfrom = 'b'\nto = 'a'\nthreads = 1\nbandwidth = { 1 = '2 GB/s' }",
        )
        .expect("two tiers");
        let trace =
            nets::find("mlp").expect("built in").build(&nets::Options::default()).expect("sound").trace;
        let kernel = &trace.kernels[0];
        let count = kernel.reads.len() + kernel.writes.len();
        let fast = vec![TierId(0); count];
        let kernels = HashMap::from([(kernel.name.clone(), vec![(fast.clone(), Nanos(1000))])]);
        let measured = Measured { kernels };
        assert_eq!(measured.time(&machine, kernel, &fast), Nanos(1000));
        let mut slow = fast;
        slow[count - 1] = TierId(1);
        let written: Bytes = kernel.writes[kernel.writes.len() - 1].bytes;
        assert_eq!(measured.time(&machine, kernel, &slow), Nanos(written.0.max(1000)));
    }
}

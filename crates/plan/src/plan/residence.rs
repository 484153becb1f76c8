//! What a plan prefers to keep in fast memory, in shares of bytes: the view of AutoTM's section 6.4 and Figure 10b.

use tiercel_core::{Machine, TierId};
use tiercel_workload::lifetimes::Class;
use tiercel_workload::{Lifetimes, Trace, Use};

use crate::plan::Plan;
use crate::plan::verify::{Flaw, replay};

/// Shares of bytes on the fastest tier.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Residence {
    /// Of what kernels read, when they read it.
    pub inputs: f64,
    /// Of what kernels write, when they write it.
    pub outputs: f64,
    /// Of the uses of tensors that live within a layer.
    pub short: f64,
    /// Of the uses of all others.
    pub long: f64,
}

/// A share as it adds up.
#[derive(Clone, Copy, Default)]
struct Share {
    fast: f64,
    all: f64,
}

impl Share {
    fn add(&mut self, bytes: f64, is_fast: bool) {
        self.all += bytes;
        self.fast += if is_fast { bytes } else { 0.0 };
    }

    fn get(self) -> f64 {
        if self.all > 0.0 { self.fast / self.all } else { 1.0 }
    }
}

impl Residence {
    /// What a plan does with a trace.
    ///
    /// # Errors
    /// Where the plan cannot be played.
    pub fn new(plan: &Plan, trace: &Trace, machine: &Machine) -> Result<Residence, Flaw> {
        let mut fast: Vec<Vec<(u32, u32)>> = vec![Vec::new(); trace.tensors.len()];
        for stay in replay(plan, trace, machine)?.iter().filter(|stay| stay.tier == TierId(0)) {
            fast[stay.tensor].push((stay.from, stay.to));
        }
        let lifetimes = Lifetimes::new(trace);
        let [mut inputs, mut outputs, mut short, mut long] = [Share::default(); 4];
        for (step, kernel) in (0u32..).zip(&trace.kernels) {
            let mut add = |used: &Use, side: &mut Share| {
                let bytes = trace.tensor(used.tensor).bytes.0 as f64;
                let stays = &fast[used.tensor.0 as usize];
                let is_fast = stays.iter().any(|(from, to)| *from <= step && step < *to);
                side.add(bytes, is_fast);
                let class = lifetimes.of(used.tensor).map(|lifetime| lifetime.class);
                if class == Some(Class::Short) { &mut short } else { &mut long }.add(bytes, is_fast);
            };
            kernel.reads.iter().for_each(|used| add(used, &mut inputs));
            kernel.writes.iter().for_each(|used| add(used, &mut outputs));
        }
        Ok(Residence { inputs: inputs.get(), outputs: outputs.get(), short: short.get(), long: long.get() })
    }
}

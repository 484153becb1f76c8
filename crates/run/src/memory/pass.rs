//! What a program does between two marks, as a trace: so that it can be simulated and planned like a network.
//!
//! Every call of a kernel is a step. What is known of it is what it read and wrote, where that lay, and how long it took
//! there; on other tiers a simulation goes by the bytes, and by as many operations as the machine does in the time.
//! A kernel may do anything beside, so none is run again by a planner.

use std::collections::HashMap;
use std::sync::Arc;

use super::Took;
use tiercel_core::{Bytes, Machine, Nanos, ObjectId, Operand, TierId};
use tiercel_workload::repeat::Repeat;
use tiercel_workload::trace::{Kernel, Phase, Role, Tensor, Timing, Use};
use tiercel_workload::{TensorId, Trace};

/// An array, as long as the pass has known it.
struct Known {
    tensor: Tensor,
    gone: bool,
}

/// What has been done so far.
#[derive(Default)]
pub(super) struct Pass {
    known: Vec<Known>,
    /// The array that an object stands for.
    numbers: HashMap<ObjectId, usize>,
    kernels: Vec<Kernel>,
    /// How long each was at work, apart from what emulated tiers make of it.
    worked: Vec<Nanos>,
    layers: u32,
}

impl Pass {
    /// An array is there; it was already when the pass began, or came within.
    pub(super) fn came(&mut self, object: ObjectId, name: &Arc<str>, bytes: Bytes, before: bool) {
        let role = if before { Role::Weight } else { Role::Activation };
        let tensor = Tensor { name: name.to_string(), bytes, role, persistent: before };
        self.numbers.insert(object, self.known.len());
        self.known.push(Known { tensor, gone: false });
    }

    /// An array has been given up.
    pub(super) fn went(&mut self, object: ObjectId) {
        if let Some(number) = self.numbers.remove(&object) {
            self.known[number].gone = true;
        }
    }

    /// Arrays were filled from outside, or read.
    pub(super) fn loaded(&mut self, operands: &[Operand]) {
        for operand in operands.iter().filter(|operand| operand.access.writes()) {
            let Some(number) = self.numbers.get(&operand.object) else { continue };
            let tensor = &mut self.known[*number].tensor;
            if !tensor.persistent {
                tensor.role = Role::Input;
            }
        }
    }

    /// A layer of the program ends here.
    pub(super) fn layer_ended(&mut self) {
        self.layers += 1;
    }

    /// A kernel ran, with its operands on these tiers.
    pub(super) fn ran(&mut self, op: &str, operands: &[Operand], tiers: Vec<Option<TierId>>, took: Took) {
        let mut kernel = Kernel {
            name: format!("{op} {}", self.kernels.len()),
            op: op.to_string(),
            reads: Vec::new(),
            writes: Vec::new(),
            flops: 0,
            layer: self.layers,
            phase: Phase::Forward,
            timings: Vec::new(),
            alternatives: Vec::new(),
            detached: false,
            factor: 1.0,
            repeat: Some(Repeat::Once),
            derived: Default::default(),
        };
        let (mut read, mut written) = (Vec::new(), Vec::new());
        for (operand, tier) in operands.iter().zip(tiers) {
            let (Some(number), Some(tier)) = (self.numbers.get(&operand.object), tier) else { continue };
            if operand.bytes == Bytes::ZERO {
                continue;
            }
            let usage = Use { tensor: TensorId(*number as u32), bytes: operand.bytes };
            if operand.access.reads() {
                kernel.reads.push(usage);
                read.push(tier);
            }
            if operand.access.writes() {
                kernel.writes.push(usage);
                written.push(tier);
            }
        }
        read.append(&mut written);
        kernel.timings.push(Timing { tiers: read, time: took.whole });
        self.kernels.push(kernel);
        self.worked.push(took.worked);
    }

    /// One iteration that does what was done, or why it could not be repeated.
    pub(super) fn trace(self, name: &str, machine: &Machine) -> Result<Trace, String> {
        for Known { tensor, gone } in &self.known {
            match (tensor.persistent, gone) {
                (true, true) => {
                    return Err(format!("array `{}` was there before it and is gone", tensor.name));
                }
                (false, false) => {
                    return Err(format!(
                        "array `{}` was made within and is still there: make it before, or give it up",
                        tensor.name
                    ));
                }
                _ => {}
            }
        }
        let mut trace = Trace {
            name: name.to_string(),
            tensors: self.known.into_iter().map(|known| known.tensor).collect(),
            kernels: self.kernels,
            layers: (0..=self.layers).map(|layer| format!("layer {layer}")).collect(),
        };
        for (kernel, worked) in trace.kernels.iter_mut().zip(&self.worked) {
            kernel.flops = (worked.seconds() * machine.compute.gflops * 1e9) as u64;
        }
        drop_unused(&mut trace);
        trace.check().map_err(|fault| fault.to_string())?;
        Ok(trace)
    }
}

/// Leaves out arrays that came and went without being used, or that have no bytes.
fn drop_unused(trace: &mut Trace) {
    let mut used: Vec<bool> = trace.tensors.iter().map(|t| t.persistent && t.bytes > Bytes::ZERO).collect();
    for kernel in &trace.kernels {
        kernel.reads.iter().chain(&kernel.writes).for_each(|u| used[u.tensor.0 as usize] = true);
    }
    let mut next = 0;
    let renumbered: Vec<u32> = used
        .iter()
        .map(|used| {
            next += u32::from(*used);
            next.wrapping_sub(1)
        })
        .collect();
    for kernel in &mut trace.kernels {
        for one in kernel.reads.iter_mut().chain(&mut kernel.writes) {
            one.tensor = TensorId(renumbered[one.tensor.0 as usize]);
        }
    }
    let mut keep = used.into_iter();
    trace.tensors.retain(|_| keep.next().unwrap_or(false));
}

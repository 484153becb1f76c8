//! What planners have learned of traces, for settings that differ in the amount of fast memory alone: points of a curve,
//! and steps towards the least memory that is enough.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use tiercel_plan::{Formulation, WarmStart};
use tiercel_workload::Trace;

/// Keeps what is known of each trace that was planned, by the kind of plan. One machine, but for the capacity of its fastest
/// tier, and one set of kernel times.
#[derive(Debug, Default)]
pub struct WarmStarts(Mutex<HashMap<(u64, Formulation), WarmStart>>);

impl WarmStarts {
    /// Lets `plan` use what is known of a trace, and add to it.
    pub(crate) fn with<T>(
        &self,
        trace: &Trace,
        formulation: Formulation,
        plan: impl FnOnce(&mut WarmStart) -> T,
    ) -> T {
        let key = (fingerprint(trace), formulation);
        let all = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = all().remove(&key).unwrap_or_default();
        let planned = plan(&mut known);
        all().insert(key, known);
        planned
    }
}

/// A number for a trace: tensors by name and size, kernels by name and operands, and whether they run beside others.
fn fingerprint(trace: &Trace) -> u64 {
    let mut hasher = DefaultHasher::new();
    for tensor in &trace.tensors {
        (&tensor.name, tensor.bytes.0).hash(&mut hasher);
    }
    for kernel in &trace.kernels {
        (&kernel.name, kernel.detached).hash(&mut hasher);
        kernel.reads.iter().chain(&kernel.writes).for_each(|used| used.tensor.hash(&mut hasher));
    }
    hasher.finish()
}

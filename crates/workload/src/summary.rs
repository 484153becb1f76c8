//! What a workload amounts to: the figures that `tiercel describe` shows.

use tiercel_core::{Bytes, Step};

use crate::Lifetimes;
use crate::open::Workload;
use crate::trace::{Phase, Role, TensorId};

/// The roles in the order in which tables list them.
pub const ROLES: [Role; 6] =
    [Role::Weight, Role::Gradient, Role::State, Role::Input, Role::Activation, Role::Workspace];

/// The phases in the order in which an iteration has them.
pub const PHASES: [Phase; 3] = [Phase::Forward, Phase::Backward, Phase::Update];

/// The figures of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Trainable parameters; `None` for a trace, which knows bytes and not numbers.
    pub parameters: Option<u64>,
    /// Multiply-adds of the forward pass over the whole batch; for a trace, half its forward operations.
    pub forward_macs: u64,
    /// Floating-point operations of the whole iteration.
    pub flops: u64,
    /// Kernels of each phase, in the order of [`PHASES`].
    pub kernels: [usize; 3],
    /// Tensors.
    pub tensors: usize,
    /// Tensors that are born and die within one visit of one layer.
    pub short_lived: usize,
    /// The most bytes alive at once.
    pub peak: Bytes,
    /// Where that is.
    pub peak_step: Step,
    /// The most bytes of short-lived tensors alive at once.
    pub short_lived_peak: Bytes,
    /// For each role in the order of [`ROLES`]: tensors, their bytes together, and their bytes alive at the peak.
    pub roles: [(usize, Bytes, Bytes); 6],
    /// The bytes alive at each step.
    pub live: Vec<Bytes>,
    /// The largest tensors, the largest first.
    pub largest: Vec<TensorId>,
}

impl Summary {
    /// Works out the figures, with the `largest` so many tensors.
    pub fn new(workload: &Workload, lifetimes: &Lifetimes, largest: usize) -> Summary {
        let trace = workload.trace();
        let live = lifetimes.live_bytes();
        let (peak_step, peak) = lifetimes.peak();
        let mut roles = [(0, Bytes::ZERO, Bytes::ZERO); 6];
        let mut short_lived = 0;
        for (at, tensor) in trace.tensors.iter().enumerate() {
            let life = lifetimes.of(TensorId(at as u32));
            short_lived += usize::from(life.is_some_and(|l| l.class == crate::lifetimes::Class::Short));
            if let Some((count, all, alive)) =
                ROLES.iter().position(|r| *r == tensor.role).map(|role| &mut roles[role])
            {
                *count += 1;
                *all += tensor.bytes;
                if life.is_some_and(|l| l.birth <= peak_step && peak_step <= l.last) {
                    *alive += tensor.bytes;
                }
            }
        }
        let mut order: Vec<TensorId> = (0..trace.tensors.len() as u32).map(TensorId).collect();
        order.sort_by_key(|id| std::cmp::Reverse(trace.tensor(*id).bytes));
        order.truncate(largest);
        let flops = |wanted: &dyn Fn(Phase) -> bool| {
            let kernels = trace.kernels.iter().filter(|k| wanted(k.phase));
            kernels.fold(0u64, |sum, k| sum.saturating_add(k.flops))
        };
        let graph = workload.program().map(|program| &program.graph);
        Summary {
            parameters: graph.map(|g| g.parameters()),
            forward_macs: graph.map_or_else(|| flops(&|p| p == Phase::Forward) / 2, |g| g.forward_macs()),
            flops: flops(&|_| true),
            kernels: PHASES.map(|phase| trace.kernels.iter().filter(|k| k.phase == phase).count()),
            tensors: trace.tensors.len(),
            short_lived,
            peak,
            peak_step,
            short_lived_peak: lifetimes.short_lived_peak(),
            roles,
            live,
            largest: order,
        }
    }

    /// The live bytes in `columns` equal stretches of the iteration, the most of each.
    pub fn curve(&self, columns: usize) -> Vec<Bytes> {
        let (steps, columns) = (self.live.len(), columns.min(self.live.len()));
        let stretch = |i: usize| &self.live[i * steps / columns..(i + 1) * steps / columns];
        (0..columns).map(|i| stretch(i).iter().copied().max().unwrap_or(Bytes::ZERO)).collect()
    }
}

//! Random sound traces.

use proptest::collection::vec;
use proptest::prelude::*;
use tiercel_core::{Bytes, Nanos, TierId};
use tiercel_workload::repeat::Repeat;
use tiercel_workload::trace::{Alternative, Phase, Role, Timing, Use};
use tiercel_workload::{Kernel, Tensor, TensorId, Trace};

const ROLES: [Role; 6] =
    [Role::Weight, Role::Gradient, Role::State, Role::Input, Role::Activation, Role::Workspace];
const PHASES: [Phase; 3] = [Phase::Forward, Phase::Backward, Phase::Update];

/// One kernel as random numbers: name, layer, phase, operands with bytes, flops, a time and an alternative.
type RawKernel = (String, usize, usize, Vec<(bool, usize, u64)>, u64, bool, Option<(u64, f64)>);

prop_compose! {
    /// A trace of a few layers, tensors and kernels whose names are any text at all.
    pub fn trace()(
        name in ".*",
        layers in vec(".*", 1..4),
        tensors in vec((".*", 0usize..6, 1u64..1 << 40, any::<bool>()), 1..10),
        kernels in vec(kernel(), 0..20),
    ) -> Trace {
        let unique = |at: usize, name: String| format!("{name}{at}");
        let tensors: Vec<Tensor> = tensors
            .into_iter()
            .enumerate()
            .map(|(at, (name, role, bytes, persistent))| Tensor {
                name: unique(at, name),
                bytes: Bytes(bytes),
                role: ROLES[role],
                persistent,
            })
            .collect();
        let layers: Vec<String> = layers.into_iter().enumerate().map(|(at, n)| unique(at, n)).collect();
        let mut filled: Vec<bool> =
            tensors.iter().map(|t| t.persistent || t.role == Role::Input).collect();
        let kernels = kernels
            .into_iter()
            .enumerate()
            .map(|(at, raw)| sound(at, raw, &tensors, layers.len(), &mut filled))
            .collect();
        Trace { name, tensors, kernels, layers }
    }
}

fn kernel() -> impl Strategy<Value = RawKernel> {
    let uses = vec((any::<bool>(), 0usize..10, 0u64..1 << 40), 0..5);
    let alternative = proptest::option::of((0u64..1 << 40, 1e-9f64..1e9));
    (".*", 0usize..4, 0usize..3, uses, 0u64..1 << 50, any::<bool>(), alternative)
}

/// Makes a kernel of random numbers that reads only what holds something.
fn sound(at: usize, raw: RawKernel, tensors: &[Tensor], layers: usize, filled: &mut [bool]) -> Kernel {
    let (name, layer, phase, uses, flops, timed, alternative) = raw;
    let (mut reads, mut writes): (Vec<Use>, Vec<Use>) = (Vec::new(), Vec::new());
    for (write, tensor, bytes) in uses {
        let index = tensor % tensors.len();
        let list = if write { &mut writes } else { &mut reads };
        let tensor = TensorId(index as u32);
        if (write || filled[index]) && list.iter().all(|u| u.tensor != tensor) {
            list.push(Use { tensor, bytes: Bytes(bytes) });
        }
    }
    writes.iter().for_each(|used| filled[used.tensor.0 as usize] = true);
    let operands = reads.len() + writes.len();
    let tiers = (0..operands).map(|i| TierId((i * 37 % 256) as u8)).collect();
    Kernel {
        op: format!("{name}?"),
        name: format!("{name}{at}"),
        reads,
        writes,
        flops,
        layer: (layer % layers) as u32,
        phase: PHASES[phase],
        timings: if timed { vec![Timing { tiers, time: Nanos(flops << 11 | 1) }] } else { Vec::new() },
        alternatives: alternative
            .map(|(workspace, factor)| Alternative { name, workspace: Bytes(workspace), factor })
            .filter(|a| !a.name.is_empty())
            .into_iter()
            .collect(),
        detached: flops % 3 == 0,
        factor: 1.0,
        repeat: [None, Some(Repeat::Pure), Some(Repeat::Seeded), Some(Repeat::Scratch), Some(Repeat::Once)]
            [(flops % 5) as usize],
        derived: Default::default(),
    }
}

//! An iteration as it was seen, and the trace that it becomes.
//!
//! The program tells of storages and of operations in the order in which they ran, with the time that each took. The trace
//! is what planners, policies and the simulator know of any program; memory that an operation needs while it runs is a
//! tensor of its own in it.

use tiercel_core::{Bytes, Nanos, TierId};
use tiercel_workload::repeat::Repeat;
use tiercel_workload::trace::{Kernel, Phase, Role as TensorRole, Tensor, TensorId, Timing, Trace, Use};

/// What a storage is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A parameter.
    Weight,
    /// The gradient of a parameter.
    Gradient,
    /// What the optimizer remembers, buffers, and other things that stay.
    State,
    /// Made on the way.
    Activation,
}

/// A storage of the iteration.
#[derive(Clone, Debug)]
pub struct StorageInfo {
    /// What people call it; need not be unique.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// What it is for.
    pub role: Role,
    /// Whether it is there before the iteration and after it.
    pub persistent: bool,
}

/// One operation, or several that belong together.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its type, such as `aten.mm`.
    pub op: String,
    /// The part of the model that it belongs to.
    pub layer: String,
    /// The part of the iteration: 0 forward, 1 backward, 2 update.
    pub phase: u8,
    /// Storages that it reads.
    pub reads: Vec<u32>,
    /// Storages that it writes; one that it also reads is changed in place.
    pub writes: Vec<u32>,
    /// Memory that it needs while it runs.
    pub workspace: u64,
    /// How long it takes with everything in place.
    pub nanos: u64,
    /// Whether it may run again; by its type where nothing is said.
    pub repeat: Option<Repeat>,
}

/// An iteration as it was seen.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// The storages; operations name them by position.
    pub storages: Vec<StorageInfo>,
    /// The operations in the order in which they ran.
    pub operations: Vec<Operation>,
}

impl Recording {
    /// The iteration as a trace: tensors are the storages at the same positions, then the workspaces; kernels are the
    /// operations.
    pub fn trace(&self, name: &str) -> Trace {
        let mut trace = Trace { name: name.to_string(), ..Trace::default() };
        for (at, storage) in self.storages.iter().enumerate() {
            trace.tensors.push(Tensor {
                name: format!("{}#{at}", storage.name),
                bytes: Bytes(storage.bytes.max(1)),
                role: match storage.role {
                    Role::Weight => TensorRole::Weight,
                    Role::Gradient => TensorRole::Gradient,
                    Role::State => TensorRole::State,
                    Role::Activation => TensorRole::Activation,
                },
                persistent: storage.persistent,
            });
        }
        for (at, operation) in self.operations.iter().enumerate() {
            let whole =
                |slot: &u32| Use { tensor: TensorId(*slot), bytes: trace.tensors[*slot as usize].bytes };
            let reads: Vec<Use> = operation.reads.iter().map(whole).collect();
            let mut writes: Vec<Use> = operation.writes.iter().map(whole).collect();
            if operation.workspace > 0 {
                let tensor = TensorId(trace.tensors.len() as u32);
                let bytes = Bytes(operation.workspace);
                let name = format!("workspace of {at}#{}", tensor.0);
                trace.tensors.push(Tensor { name, bytes, role: TensorRole::Workspace, persistent: false });
                writes.push(Use { tensor, bytes });
            }
            let layer = match trace.layers.iter().position(|layer| *layer == operation.layer) {
                Some(layer) => layer,
                None => {
                    trace.layers.push(operation.layer.clone());
                    trace.layers.len() - 1
                }
            };
            let phase = match operation.phase {
                0 => Phase::Forward,
                1 => Phase::Backward,
                _ => Phase::Update,
            };
            let tiers = vec![TierId(0); reads.len() + writes.len()];
            let timings = vec![Timing { tiers, time: Nanos(operation.nanos) }];
            trace.kernels.push(Kernel {
                name: format!("{}#{at}", operation.op),
                op: operation.op.clone(),
                reads,
                writes,
                flops: 0,
                layer: layer as u32,
                phase,
                timings,
                alternatives: Vec::new(),
                detached: false,
                factor: 1.0,
                repeat: operation.repeat,
                derived: Default::default(),
            });
        }
        trace
    }
}

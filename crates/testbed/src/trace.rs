//! Random traces in the shape of training, and kernels whose results depend on every byte that they read.

use tiercel_core::{Bytes, Operand};
use tiercel_run::{Detached, Failure, Kernels, View};
use tiercel_sim::Work;
use tiercel_workload::trace::{Phase, Role};
use tiercel_workload::{Kernel, Tensor, TensorId, Trace, Use};

/// A trace with a forward and a backward pass over `layers` layers, with tensors of up to `largest` bytes.
pub fn random_trace(random: &mut fastrand::Rng, layers: u32, largest: u64) -> Trace {
    let mut trace = Trace { name: "random".to_string(), ..Trace::default() };
    let mut tensor = |name: String, role: Role| {
        let bytes = Bytes(random.u64(1..=largest));
        let persistent = matches!(role, Role::Weight | Role::Input);
        trace.tensors.push(Tensor { name, bytes, role, persistent });
        TensorId(trace.tensors.len() as u32 - 1)
    };
    let input = tensor("input".to_string(), Role::Input);
    let weights: Vec<TensorId> = (0..layers).map(|l| tensor(format!("w{l}"), Role::Weight)).collect();
    let outputs: Vec<TensorId> = (0..layers).map(|l| tensor(format!("y{l}"), Role::Activation)).collect();
    let errors: Vec<TensorId> = (0..layers).map(|l| tensor(format!("dy{l}"), Role::Activation)).collect();
    let kernel = |name: String, phase: Phase, layer: u32, reads: &[TensorId], writes: &[TensorId]| Kernel {
        name,
        op: "scramble".to_string(),
        reads: uses(&trace.tensors, reads),
        writes: uses(&trace.tensors, writes),
        flops: 1000,
        layer,
        phase,
        timings: Vec::new(),
        alternatives: Vec::new(),
        detached: false,
        factor: 1.0,
        repeat: None,
        derived: Default::default(),
    };
    let mut kernels = Vec::new();
    for layer in 0..layers {
        let l = layer as usize;
        let from = if l == 0 { input } else { outputs[l - 1] };
        let mut reads = vec![from, weights[l]];
        // Now and then a connection that skips layers.
        if l > 2 && random.bool() {
            reads.push(outputs[random.usize(0..l - 1)]);
        }
        kernels.push(kernel(format!("f{l}"), Phase::Forward, layer, &reads, &[outputs[l]]));
        if random.bool() {
            kernels.push(kernel(format!("act{l}"), Phase::Forward, layer, &[outputs[l]], &[outputs[l]]));
        }
    }
    for layer in (0..layers).rev() {
        let l = layer as usize;
        let mut reads = vec![outputs[l], weights[l]];
        reads.extend(errors.get(l + 1));
        kernels.push(kernel(format!("b{l}"), Phase::Backward, layer, &reads, &[errors[l]]));
        let update = kernel(format!("u{l}"), Phase::Update, layer, &[weights[l], errors[l]], &[weights[l]]);
        kernels.push(update);
    }
    trace.kernels = kernels;
    trace.layers = (0..layers).map(|l| format!("layer {l}")).collect();
    trace
}

fn uses(tensors: &[Tensor], ids: &[TensorId]) -> Vec<Use> {
    ids.iter().map(|id| Use { tensor: *id, bytes: tensors[id.0 as usize].bytes }).collect()
}

/// Kernels that fill what they write with a function of all that they read, and keep a digest of it.
#[derive(Debug, Default)]
pub struct Scramble {
    /// Differs if any byte that any kernel read or wrote differs.
    pub digest: u64,
}

fn mix(state: u64, value: u64) -> u64 {
    let mixed = (state ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 29
}

fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(bytes.len() as u64, |state, byte| mix(state, u64::from(*byte)))
}

fn fill(bytes: &mut [u8], seed: u64) {
    bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (mix(seed, at as u64) >> 32) as u8);
}

impl Kernels for Scramble {
    fn load(&mut self, tensor: &Tensor, bytes: &mut [u8]) -> Result<(), Failure> {
        fill(bytes, digest(tensor.name.as_bytes()));
        Ok(())
    }

    fn run(&mut self, work: &Work<'_>, views: &mut [View<'_>]) -> Result<(), Failure> {
        let state = scramble(&work.kernel.name, work.operands, views);
        // When a kernel beside others ends is chance; what it made shows in what is made of that.
        if !work.kernel.detached {
            self.digest = mix(self.digest, state);
        }
        Ok(())
    }

    fn detach(&mut self, work: &Work<'_>) -> Option<Detached> {
        let (name, operands) = (work.kernel.name.clone(), work.operands.to_vec());
        Some(Box::new(move |views| {
            scramble(&name, &operands, views);
            Ok(())
        }))
    }
}

/// Fills what a kernel writes with a function of what it reads, and tells that.
fn scramble(kernel: &str, operands: &[Operand], views: &mut [View<'_>]) -> u64 {
    let mut state = digest(kernel.as_bytes());
    for (view, operand) in views.iter().zip(operands) {
        match view {
            View::Read(bytes) => state = mix(state, digest(bytes)),
            View::Write(bytes) if operand.access.reads() => state = mix(state, digest(bytes)),
            View::Write(_) => {}
        }
    }
    for view in views {
        if let View::Write(bytes) = view {
            fill(bytes, state);
        }
    }
    state
}

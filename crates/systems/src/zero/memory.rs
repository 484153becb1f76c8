//! What a GPU and a host must hold to train a model, and so how large it can be.
//!
//! Beside the states a GPU holds a checkpoint of each block, what one block needs while it is computed again, and the
//! scores of all words in 16 bits and twice in 32; 1 GB is the device's own.

use super::{Gpt, SEQUENCE, WORDS};

/// A way to train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All states on every GPU.
    Plain,
    /// All states divided among the GPUs that share a model's blocks.
    Sliced,
    /// Gradients and optimizer states divided among ranks, parameters on each.
    Zero2,
    /// Gradients and optimizer states on the host, blocks divided among so many GPUs.
    Offload {
        /// GPUs that share a model's blocks.
        slices: u64,
    },
}

/// The memory of a machine, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeftOnGpu {
    /// Of one GPU.
    pub gpu: f64,
    /// Of the host.
    pub host: f64,
    /// GPUs.
    pub gpus: u64,
}

/// What the device itself takes.
const OWN: f64 = 1e9;

/// Gradients on their way, in buckets.
const BUCKETS: f64 = 0.5e9;

/// Bytes on one GPU.
pub fn on_gpu(way: Way, model: Gpt, gpus: u64) -> f64 {
    let (parameters, batch, ranks) = (model.parameters(), model.batch as f64, gpus as f64);
    let tokens = batch * SEQUENCE;
    let heads = model.hidden as f64 / 128.0;
    let checkpoints = model.layers as f64 * tokens * model.hidden as f64 * 2.0;
    let block = tokens * (34.0 * model.hidden as f64 + 5.0 * heads * SEQUENCE);
    let scores = tokens * WORDS * 10.0;
    let (states, parts) = match way {
        Way::Plain => (16.0 * parameters, 1.0),
        Way::Sliced => (16.0 * parameters / ranks, ranks),
        Way::Zero2 => ((2.0 + 14.0 / ranks) * parameters, 1.0),
        Way::Offload { slices } => (2.0 * parameters / slices as f64 + BUCKETS, slices as f64),
    };
    OWN + states + checkpoints + (block + scores) / parts
}

/// Bytes on the host: three states of 32 bits, gradients in both kinds, and parameters on their way.
pub fn on_host(way: Way, model: Gpt) -> f64 {
    match way {
        Way::Offload { .. } => 20.0 * model.parameters(),
        _ => 0.0,
    }
}

/// The most parameters that a machine trains with blocks of this width, one block more at a time.
pub fn largest(way: Way, shape: Gpt, room: LeftOnGpu) -> f64 {
    let fits = |layers: &u64| {
        let model = Gpt { layers: *layers, ..shape };
        on_gpu(way, model, room.gpus) <= room.gpu && on_host(way, model) <= room.host
    };
    let most = (1..2000).take_while(fits).last().unwrap_or(0);
    Gpt { layers: most, ..shape }.parameters()
}

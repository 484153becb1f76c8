//! A training step as tasks on devices that each do one at a time: the GPU, the link's two directions, the processor and the
//! network. A task begins when its device is free and the tasks that it waits for have ended.
//!
//! Kernels run at one rate whatever their size; blocks are alike. So what is found here is what schedules do, not what kernels
//! do.

use super::{Gpt, SEQUENCE};

/// What is known of a machine, for each GPU but the processor's and the network's, which are a node's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Operations of a GPU in a second.
    pub gpu: f64,
    /// Bytes of its memory in a second.
    pub hbm: f64,
    /// Bytes to the host in a second.
    pub out: f64,
    /// Bytes from the host in a second.
    pub back: f64,
    /// Bytes of host memory in a second, for all GPUs of a node.
    pub host: f64,
    /// Bytes to other GPUs of a node in a second.
    pub near: f64,
    /// Bytes of a node to other nodes in a second.
    pub far: f64,
    /// GPUs of a node.
    pub node: u64,
}

/// Who has the states and the update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// ZeRO-Offload, with updates a step late or in time.
    Offload {
        /// Whether the update runs beside the next passes.
        delayed: bool,
    },
    /// ZeRO stage 2: on the GPUs.
    Zero2,
    /// L2L: one block on the GPU at a time, the update there.
    Layers,
}

/// Bytes of memory that an update in one pass moves for each parameter.
pub const PASS: f64 = 28.0;

/// The same for an update of one operation after the other: means 8 + 12 and 8 + 12, root, quotient and sum 12 + 12 + 8 with
/// new memory for two of them, the parameter 16.
pub const SEPARATE: f64 = 88.0;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Device {
    Gpu,
    Out,
    Back,
    Host,
    Network,
}

#[derive(Default)]
struct Clock {
    free: [f64; 5],
}

impl Clock {
    /// Does a task, and returns when it has ended.
    fn task(&mut self, device: Device, seconds: f64, after: f64) -> f64 {
        let free = &mut self.free[device as usize];
        *free = free.max(after) + seconds;
        *free
    }
}

/// The seconds of a step in the steady state, with `batch` sequences in all on `gpus` GPUs.
pub fn seconds(system: System, model: Gpt, rates: Rates, gpus: u64, batch: u64) -> f64 {
    let mut clock = Clock::default();
    let (mut ended, mut before, mut ready, mut late) = (0.0, 0.0, 0.0, None);
    for _ in 0..4 {
        before = ended;
        let (done, next, updated) = step(&mut clock, system, model, rates, gpus, batch, ready, late);
        (ended, ready, late) = (done, next, updated);
    }
    ended - before
}

/// One step: when it has ended, when the next forward pass may begin, and when a delayed update will have been computed.
#[allow(clippy::too_many_arguments)]
fn step(
    clock: &mut Clock,
    system: System,
    model: Gpt,
    rates: Rates,
    gpus: u64,
    batch: u64,
    ready: f64,
    late: Option<f64>,
) -> (f64, f64, Option<f64>) {
    let (ranks, nodes) = (gpus as f64, gpus.div_ceil(rates.node) as f64);
    let blocks = model.layers;
    let size = model.parameters() / blocks as f64;
    let share = batch.div_ceil(gpus);
    let passes = share.div_ceil(model.batch);
    let tokens = share as f64 / passes as f64 * SEQUENCE;
    let forward = 2.0 * size * tokens / rates.gpu;
    // A reduction or a gathering of a block: within nodes, and between them where there are several.
    let collective = if gpus == 1 {
        0.0
    } else {
        let near = 2.0 * size * (ranks - 1.0) / ranks / rates.near;
        if nodes > 1.0 { near.max(2.0 * size * (nodes - 1.0) / nodes / rates.far) } else { near }
    };
    let synchronous = system == System::Layers;
    let mut now = ready;
    let mut arrived = ready;
    let back = |clock: &mut Clock, after: f64| {
        let copied = clock.task(Device::Back, 2.0 * size / ranks / rates.back, after);
        clock.task(Device::Network, collective, copied)
    };
    let mut returned = ready;
    for pass in 0..passes {
        for _ in 0..blocks {
            let there =
                if synchronous { clock.task(Device::Back, 2.0 * size / rates.back, now) } else { now };
            now = clock.task(Device::Gpu, forward, there);
        }
        // The backward pass computes each block once more.
        for _ in 0..blocks {
            let there =
                if synchronous { clock.task(Device::Back, 2.0 * size / rates.back, now) } else { now };
            now = clock.task(Device::Gpu, 3.0 * forward, there);
            let reduced = clock.task(Device::Network, collective, now);
            if system != System::Zero2 {
                arrived = arrived.max(clock.task(Device::Out, 2.0 * size / ranks / rates.out, reduced));
            } else {
                arrived = arrived.max(reduced);
            }
            // No pass wants this block's parameters any more: those updated beside the passes take their place.
            if let Some(late) = late.filter(|_| pass + 1 == passes) {
                returned = returned.max(back(clock, now.max(late)));
            }
        }
    }
    let computed = now.max(arrived);
    // What a node's processor has to update of each block.
    let on_host = PASS * size / nodes / rates.host;
    match system {
        System::Zero2 => {
            let mut end = computed;
            for _ in 0..blocks {
                end = clock.task(Device::Gpu, PASS * size / ranks / rates.hbm, end);
                end = clock.task(Device::Network, collective, end);
            }
            (end, end, None)
        }
        System::Layers => {
            let mut end = computed;
            for _ in 0..blocks {
                let there = clock.task(Device::Back, 12.0 * size / rates.back, computed);
                let updated = clock.task(Device::Gpu, SEPARATE * size / rates.hbm, there);
                end = clock.task(Device::Out, 12.0 * size / rates.out, updated);
            }
            (end, end, None)
        }
        System::Offload { delayed } => {
            if delayed {
                let end = computed.max(returned);
                let updated = clock.task(Device::Host, on_host * blocks as f64, computed);
                return (end, end, Some(updated));
            }
            let mut end = computed;
            for _ in 0..blocks {
                let updated = clock.task(Device::Host, on_host, computed);
                end = end.max(back(clock, updated));
            }
            (end, end, None)
        }
    }
}

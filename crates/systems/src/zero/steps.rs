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
    let step = Step::new(system, model, rates, gpus, batch);
    let mut clock = Clock::default();
    let (mut ended, mut before, mut ready, mut late) = (0.0, 0.0, 0.0, None);
    for _ in 0..4 {
        before = ended;
        let passed = step.pass(&mut clock, ready, late);
        (ended, ready, late) = step.update(&mut clock, passed);
    }
    ended - before
}

/// What every step of a run has in common; times are in seconds.
struct Step {
    system: System,
    rates: Rates,
    ranks: f64,
    nodes: f64,
    blocks: u64,
    /// Parameters of a block.
    size: f64,
    /// Forward and backward passes of a step.
    passes: u64,
    /// The forward pass of a block.
    forward: f64,
    /// A reduction or a gathering of a block: within nodes, and between them where there are several.
    collective: f64,
}

/// When the passes of a step have ended.
struct Passed {
    /// All gradients are where they are updated.
    computed: f64,
    /// All parameters of a delayed update are there.
    returned: f64,
}

impl Step {
    fn new(system: System, model: Gpt, rates: Rates, gpus: u64, batch: u64) -> Step {
        let (ranks, nodes) = (gpus as f64, gpus.div_ceil(rates.node) as f64);
        let blocks = model.layers;
        let size = model.parameters() / blocks as f64;
        let share = batch.div_ceil(gpus);
        let passes = share.div_ceil(model.batch);
        let tokens = share as f64 / passes as f64 * SEQUENCE;
        let forward = 2.0 * size * tokens / rates.gpu;
        let near = 2.0 * size * (ranks - 1.0) / ranks / rates.near;
        let collective = match nodes > 1.0 {
            _ if gpus == 1 => 0.0,
            true => near.max(2.0 * size * (nodes - 1.0) / nodes / rates.far),
            false => near,
        };
        Step { system, rates, ranks, nodes, blocks, size, passes, forward, collective }
    }

    /// The parameters of a block come back from the host and are gathered: when they are there.
    fn back(&self, clock: &mut Clock, after: f64) -> f64 {
        let copied = clock.task(Device::Back, 2.0 * self.size / self.ranks / self.rates.back, after);
        clock.task(Device::Network, self.collective, copied)
    }

    /// The parameters of a block are where a kernel finds them.
    fn there(&self, clock: &mut Clock, now: f64) -> f64 {
        match self.system {
            System::Layers => clock.task(Device::Back, 2.0 * self.size / self.rates.back, now),
            _ => now,
        }
    }

    /// Forward and backward passes, from when parameters are ready; `late`: when a delayed update has been computed.
    fn pass(&self, clock: &mut Clock, ready: f64, late: Option<f64>) -> Passed {
        let (mut now, mut arrived, mut returned) = (ready, ready, ready);
        for pass in 0..self.passes {
            for _ in 0..self.blocks {
                let there = self.there(clock, now);
                now = clock.task(Device::Gpu, self.forward, there);
            }
            // The backward pass computes each block once more.
            for _ in 0..self.blocks {
                let there = self.there(clock, now);
                now = clock.task(Device::Gpu, 3.0 * self.forward, there);
                let reduced = clock.task(Device::Network, self.collective, now);
                let out = 2.0 * self.size / self.ranks / self.rates.out;
                arrived = arrived.max(match self.system {
                    System::Zero2 => reduced,
                    _ => clock.task(Device::Out, out, reduced),
                });
                // No pass wants this block's parameters any more: those updated beside the passes take their place.
                if let Some(late) = late.filter(|_| pass + 1 == self.passes) {
                    returned = returned.max(self.back(clock, now.max(late)));
                }
            }
        }
        Passed { computed: now.max(arrived), returned }
    }

    /// The update: when the step has ended, when the next forward pass may begin, and when a delayed update will have been
    /// computed.
    fn update(&self, clock: &mut Clock, Passed { computed, returned }: Passed) -> (f64, f64, Option<f64>) {
        let Step { size, rates, .. } = self;
        // What a node's processor has to update of each block.
        let on_host = PASS * size / self.nodes / rates.host;
        let mut end = computed;
        match self.system {
            System::Zero2 => {
                for _ in 0..self.blocks {
                    end = clock.task(Device::Gpu, PASS * size / self.ranks / rates.hbm, end);
                    end = clock.task(Device::Network, self.collective, end);
                }
            }
            System::Layers => {
                for _ in 0..self.blocks {
                    let there = clock.task(Device::Back, 12.0 * size / rates.back, computed);
                    let updated = clock.task(Device::Gpu, SEPARATE * size / rates.hbm, there);
                    end = clock.task(Device::Out, 12.0 * size / rates.out, updated);
                }
            }
            System::Offload { delayed: true } => {
                end = end.max(returned);
                let updated = clock.task(Device::Host, on_host * self.blocks as f64, computed);
                return (end, end, Some(updated));
            }
            System::Offload { delayed: false } => {
                for _ in 0..self.blocks {
                    let updated = clock.task(Device::Host, on_host, computed);
                    end = end.max(self.back(clock, updated));
                }
            }
        }
        (end, end, None)
    }
}

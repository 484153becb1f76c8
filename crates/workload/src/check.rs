//! What makes a trace sound: the rules that every consumer relies on, checked in one place.
//!
//! The built-in networks keep them by construction; traces from files are held to them with the line and the column
//! of the offence, because the parser feeds the same checker line by line.

use std::collections::HashMap;
use std::fmt;

use crate::trace::{Kernel, Role, Tensor, TensorId, Trace};

/// Which part of a layer, tensor or kernel breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Its name.
    Name,
    /// The size of a tensor.
    Size,
    /// The layer of a kernel.
    Layer,
    /// The floating-point operations of a kernel.
    Flops,
    /// The kernel's read of this position.
    Read(usize),
    /// The kernel's write of this position.
    Write(usize),
    /// The kernel's measured time of this position.
    Timing(usize),
    /// The kernel's alternative of this position.
    Alternative(usize),
}

/// A rule that a trace breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where in the layer, tensor or kernel.
    pub part: Part,
    /// What is wrong, naming the layer, tensor or kernel.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.message)
    }
}

impl std::error::Error for Fault {}

impl Trace {
    /// Says whether the trace is sound: names are unique, sizes are positive, every kernel's operands exist and hold
    /// something when it reads them, and no sum of sizes, bytes touched or operations overflows.
    pub fn check(&self) -> Result<(), Fault> {
        let mut checker = Checker::default();
        self.layers.iter().try_for_each(|layer| checker.layer(layer))?;
        self.tensors.iter().try_for_each(|tensor| checker.tensor(tensor))?;
        self.kernels.iter().try_for_each(|kernel| checker.kernel(kernel, &self.tensors))
    }

    /// Says whether all tiers that measured times speak of are there on a machine with so many.
    pub fn check_tiers(&self, there: usize) -> Result<(), TierError> {
        for (step, kernel) in self.kernels.iter().enumerate() {
            let mut tiers = kernel.timings.iter().flat_map(|timing| &timing.tiers);
            if let Some(tier) = tiers.find(|tier| tier.index() >= there) {
                return Err(TierError { kernel: kernel.name.clone(), step, tier: tier.index(), there });
            }
        }
        Ok(())
    }
}

/// A measured time speaks of a tier that a machine does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "kernel `{kernel}` (step {step}) has a time with an operand in tier {tier}; the machine has {there}, counted from 0"
)]
pub struct TierError {
    /// The kernel.
    pub kernel: String,
    /// Its place in the trace.
    pub step: usize,
    /// The tier that its time speaks of.
    pub tier: usize,
    /// How many tiers there are.
    pub there: usize,
}

/// All sums stay below this, so that consumers can add without looking.
const LIMIT: u64 = 1 << 62;

/// Checks a trace piece by piece: all layers and tensors before the kernels that name them.
#[derive(Default)]
pub(crate) struct Checker {
    layers: HashMap<String, u32>,
    tensors: HashMap<String, u32>,
    kernels: HashMap<String, u32>,
    /// Whether each tensor holds something by now.
    filled: Vec<bool>,
    bytes: u64,
    touched: u64,
    flops: u64,
    /// The last kernel that read and that wrote each tensor, to see doubles.
    seen: Vec<[u32; 2]>,
}

fn fault(part: Part, message: String) -> Result<(), Fault> {
    Err(Fault { part, message })
}

/// Adds `amount` to `sum` unless that reaches the limit.
fn grow(sum: &mut u64, amount: u64) -> bool {
    match sum.checked_add(amount) {
        Some(grown) if grown < LIMIT => {
            *sum = grown;
            true
        }
        _ => false,
    }
}

fn name(names: &mut HashMap<String, u32>, kind: &str, name: &str) -> Result<(), Fault> {
    let position = names.len() as u32;
    if name.is_empty() {
        fault(Part::Name, format!("a {kind} without a name"))
    } else if names.insert(name.to_string(), position).is_some() {
        fault(Part::Name, format!("a second {kind} named `{name}`"))
    } else {
        Ok(())
    }
}

impl Checker {
    /// The position of the layer of this name.
    pub(crate) fn layer_named(&self, name: &str) -> Option<u32> {
        self.layers.get(name).copied()
    }

    /// The tensor of this name.
    pub(crate) fn tensor_named(&self, name: &str) -> Option<TensorId> {
        self.tensors.get(name).copied().map(TensorId)
    }

    pub(crate) fn layer(&mut self, layer: &str) -> Result<(), Fault> {
        name(&mut self.layers, "layer", layer)
    }

    pub(crate) fn tensor(&mut self, tensor: &Tensor) -> Result<(), Fault> {
        name(&mut self.tensors, "tensor", &tensor.name)?;
        if tensor.bytes.0 == 0 {
            return fault(Part::Size, format!("tensor `{}` has no bytes", tensor.name));
        }
        if !grow(&mut self.bytes, tensor.bytes.0) {
            return fault(Part::Size, format!("with tensor `{}` the sizes exceed 2^62 bytes", tensor.name));
        }
        self.filled.push(tensor.persistent || tensor.role == Role::Input);
        self.seen.push([u32::MAX; 2]);
        Ok(())
    }

    pub(crate) fn kernel(&mut self, kernel: &Kernel, tensors: &[Tensor]) -> Result<(), Fault> {
        let step = self.kernels.len() as u32;
        name(&mut self.kernels, "kernel", &kernel.name)?;
        let me = &kernel.name;
        if kernel.layer as usize >= self.layers.len() {
            return fault(
                Part::Layer,
                format!("kernel `{me}` is of layer {}, which is not there", kernel.layer),
            );
        }
        if !grow(&mut self.flops, kernel.flops) {
            return fault(Part::Flops, format!("with kernel `{me}` the operations exceed 2^62"));
        }
        let lists = [(&kernel.reads, "reads"), (&kernel.writes, "writes")];
        for (list, (uses, verb)) in lists.into_iter().enumerate() {
            let part = |at| if list == 0 { Part::Read(at) } else { Part::Write(at) };
            for (at, used) in uses.iter().enumerate() {
                let index = used.tensor.0 as usize;
                let Some(tensor) = tensors.get(index) else {
                    let message = format!("kernel `{me}` {verb} tensor {index}, which is not there");
                    return fault(part(at), message);
                };
                if self.seen[index][list] == step {
                    return fault(part(at), format!("kernel `{me}` {verb} `{}` twice", tensor.name));
                }
                self.seen[index][list] = step;
                if list == 0 && !self.filled[index] {
                    let message =
                        format!("kernel `{me}` reads `{}`, which no kernel has written yet", tensor.name);
                    return fault(part(at), message);
                }
                if !grow(&mut self.touched, used.bytes.0) {
                    return fault(part(at), format!("with kernel `{me}` the bytes touched exceed 2^62"));
                }
            }
        }
        for used in &kernel.writes {
            self.filled[used.tensor.0 as usize] = true;
        }
        self.extras(kernel)
    }

    /// Measured times and alternatives.
    fn extras(&mut self, kernel: &Kernel) -> Result<(), Fault> {
        let (me, operands) = (&kernel.name, kernel.reads.len() + kernel.writes.len());
        for (at, timing) in kernel.timings.iter().enumerate() {
            let tiers = timing.tiers.len();
            if tiers != operands {
                let message = format!("kernel `{me}` has {operands} operands and a time for {tiers} of them");
                return fault(Part::Timing(at), message);
            }
            if timing.time.0 >= LIMIT {
                return fault(Part::Timing(at), format!("kernel `{me}` has a time beyond 2^62 nanoseconds"));
            }
        }
        for (at, alternative) in kernel.alternatives.iter().enumerate() {
            let message = if alternative.name.is_empty() {
                format!("kernel `{me}` has an alternative without a name")
            } else if !(alternative.factor.is_finite() && alternative.factor > 0.0) {
                format!("alternative `{}` has a factor that is not positive", alternative.name)
            } else if alternative.workspace.0 >= LIMIT {
                format!("alternative `{}` has a workspace beyond 2^62 bytes", alternative.name)
            } else if kernel.alternatives[..at].iter().any(|other| other.name == alternative.name) {
                format!("kernel `{me}` has two alternatives `{}`", alternative.name)
            } else {
                continue;
            };
            return fault(Part::Alternative(at), message);
        }
        Ok(())
    }
}

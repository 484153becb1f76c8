//! The trace: one iteration as data.
//!
//! A trace says which tensors exist, how large they are and what they are for, and lists the kernels in the
//! order in which they run with the bytes that each reads and writes. It is all that the executor, the
//! simulator, the policies and the planners see of a program; a network, an imported graph or a file written by
//! another program all become one.

use tiercel_core::{Bytes, Nanos, Step};

/// The position of a tensor in [`Trace::tensors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorId(pub u32);

/// The position of a kernel in [`Trace::kernels`]; the same number as its [`Step`].
pub type KernelId = u32;

/// What a tensor is for, so that a planner can treat weights and activations apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A parameter that training changes.
    Weight,
    /// The gradient of a parameter.
    Gradient,
    /// What the optimizer remembers of a parameter, such as its momentum.
    State,
    /// What comes from outside: a batch of images, labels, token ids, constants.
    Input,
    /// What the forward pass makes, and the gradients of it that the backward pass makes.
    Activation,
    /// Scratch memory of one kernel.
    Workspace,
}

/// One movable piece of data of the trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// A name that a person can find in the network.
    pub name: String,
    /// Its size.
    pub bytes: Bytes,
    /// What it is for.
    pub role: Role,
    /// Whether it outlives the iteration: it exists before the first kernel and after the last.
    pub persistent: bool,
}

/// How a kernel touches one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The tensor.
    pub tensor: TensorId,
    /// How many bytes the kernel moves between the tensor and the processor: less than the tensor's size where
    /// only some rows are looked up, more where the kernel passes over it several times.
    pub bytes: Bytes,
}

/// Which part of the iteration a kernel belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Computes the loss.
    Forward,
    /// Computes the gradients.
    Backward,
    /// Changes the weights.
    Update,
}

/// A measured time of a kernel with its operands in given tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The tier of every operand, reads first, then writes, in the kernel's order.
    pub tiers: Vec<tiercel_core::TierId>,
    /// How long the kernel took.
    pub time: Nanos,
}

/// Another way of doing a kernel's work: faster, perhaps, for more scratch memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    /// The implementation's name.
    pub name: String,
    /// Scratch memory that it needs while it runs.
    pub workspace: Bytes,
    /// Its time relative to the kernel's own: 0.8 is a fifth faster.
    pub factor: f64,
}

/// One unit of compute.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// A name that a person can find in the network.
    pub name: String,
    /// Its type, such as `conv` or `batch-norm.backward`.
    pub op: String,
    /// What it reads.
    pub reads: Vec<Use>,
    /// What it writes; a tensor in both lists is changed in place.
    pub writes: Vec<Use>,
    /// Floating-point operations that it does, a multiply-add counted as two.
    pub flops: u64,
    /// The layer of the network that it belongs to, as a position in [`Trace::layers`].
    pub layer: u32,
    /// The part of the iteration that it belongs to.
    pub phase: Phase,
    /// Measured times by placement; empty where a model must do.
    pub timings: Vec<Timing>,
    /// Other implementations to choose from.
    pub alternatives: Vec<Alternative>,
    /// Whether it runs beside those that follow, where the machine has something to run it: nobody needs what it writes for a
    /// while, and nothing waits for it before that.
    pub detached: bool,
    /// The time of the implementation that was chosen, relative to what is said or modelled of the kernel.
    pub factor: f64,
    /// Whether it may be run again, where the trace says; see [`Kernel::repeat()`].
    pub repeat: Option<crate::repeat::Repeat>,
    /// How it came from a kernel of the program as it was written, where it did.
    pub derived: Derived,
}

impl Kernel {
    /// What the kernel was called in the program as it was written.
    pub fn first_name(&self) -> &str {
        self.derived.first_name(&self.name)
    }
}

/// How a kernel of a rewritten program came from one of the program as it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Derived {
    /// What that one is called, where the name is another now.
    pub from: Option<String>,
    /// Whether it was put to run again, because what it made was dropped.
    pub again: bool,
    /// Whether it does a part of the work.
    pub part: bool,
}

impl Derived {
    /// What a kernel of this name was called first.
    pub fn first_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.from.as_deref().unwrap_or(name)
    }

    /// The same for one that was made from a kernel of this name, to run again.
    pub fn again(&self, name: &str) -> Derived {
        Derived { from: Some(self.first_name(name).to_string()), again: true, ..*self }
    }

    /// The same for one that was made from a kernel of this name, for a part of its work.
    pub fn part(&self, name: &str) -> Derived {
        Derived { from: Some(self.first_name(name).to_string()), part: true, ..*self }
    }
}

/// The kernels of one iteration in order, with the tensors that they touch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// What the program is called.
    pub name: String,
    /// Every tensor.
    pub tensors: Vec<Tensor>,
    /// Every kernel, in the order in which they run.
    pub kernels: Vec<Kernel>,
    /// The names of the layers.
    pub layers: Vec<String>,
}

impl Trace {
    /// The tensor with this id.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.0 as usize]
    }

    /// The kernel that runs at this step.
    pub fn kernel(&self, step: Step) -> &Kernel {
        &self.kernels[step.0 as usize]
    }
}

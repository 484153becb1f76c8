//! The graph form of a program: tensors with shapes, and the kernels between them in an order that runs.
//!
//! A [`Value`] is one tensor as the network's author thinks of it. Several values can share one piece of memory
//! (a reshape of another, a result written over its operand); which ones do is decided by the schedule, never
//! here. A [`Node`] is one kernel. Nodes stand in an order in which every operand is ready, forward, backward and
//! update nodes alike, so a graph needs no edges: the order and the operands say it all.

mod builder;
pub mod cost;
mod infer;
mod layers;
pub mod op;
pub mod shape;

pub use builder::{Builder, GraphError};
pub use layers::{ConvLayer, Padding};
pub use op::{Activation, Attention, Conv, Op, Optimizer, Pool, PoolKind, ResponseNorm};
pub use shape::{DType, Shape};

use crate::trace::{Derived, Phase, Role};

/// The position of a value in [`Graph::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(pub u32);

impl ValueId {
    /// The position as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a value holds before the first iteration, or at the start of every one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Nothing: a kernel writes it first.
    Computed,
    /// The same number everywhere.
    Constant(f32),
    /// Random numbers of mean 0 and this standard deviation.
    Normal(f32),
    /// Whole numbers at random, all below this one: token ids, labels.
    Below(u64),
    /// 0, 1, 2, and so on: the positions of a sequence.
    Ascending,
    /// A copy of another value: the f32 master of a bf16 weight.
    Copy(ValueId),
}

/// One tensor of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// A name that a person can find in the network, unique in the graph.
    pub name: String,
    /// Its extents.
    pub shape: Shape,
    /// Its number format.
    pub dtype: DType,
    /// What it is for.
    pub role: Role,
    /// Whether it outlives the iteration.
    pub persistent: bool,
    /// The value whose memory this is under another shape, or a stretch of it; never itself a view.
    pub view_of: Option<ValueId>,
    /// How many elements of that memory come before those of the view.
    pub start: u64,
    /// How many elements of that memory come from one row of the view (its last axis) to the next, where rows do not lie
    /// side by side.
    pub pitch: Option<u64>,
    /// The value of which this is a part with memory of its own, and how many elements of that come before it.
    pub part_of: Option<(ValueId, u64)>,
    /// Whether gradients stop here.
    pub detached: bool,
    /// What it holds at first.
    pub init: Init,
    /// The layer in which it was made, as a position in [`Graph::layers`].
    pub layer: u32,
}

/// One kernel of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// A name that a person can find in the network, unique among nodes.
    pub name: String,
    /// What it does.
    pub op: Op,
    /// Its operands, in the order that [`Op`] states.
    pub inputs: Vec<ValueId>,
    /// Its results, in the order that [`Op`] states; one that is an operand too is changed in place.
    pub outputs: Vec<ValueId>,
    /// The layer that it belongs to, as a position in [`Graph::layers`].
    pub layer: u32,
    /// The part of the iteration that it belongs to.
    pub phase: Phase,
    /// How it came from a kernel of the program as it was written, where it did.
    pub derived: Derived,
}

impl Node {
    /// In how many parts, each an operand or a result of its own, the node takes what it works on sample by sample: one,
    /// unless it sums over a batch that is worked on in parts.
    pub fn parts(&self) -> usize {
        match self.op {
            Op::ConvBackwardWeight(_) => self.inputs.len() / 2,
            Op::BatchNorm { .. } => self.inputs.len() - 4,
            Op::BatchNormBackward => (self.inputs.len() - 3) / 2,
            _ => 1,
        }
    }
}

/// Kernels in an order that runs, and the tensors between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// What the program is called.
    pub name: String,
    /// Every tensor.
    pub values: Vec<Value>,
    /// Every kernel.
    pub nodes: Vec<Node>,
    /// The names of the layers.
    pub layers: Vec<String>,
}

impl Graph {
    /// The value with this id.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The value that owns the memory which `id` looks at: `id` itself unless it is a view.
    pub fn root(&self, id: ValueId) -> ValueId {
        self.value(id).view_of.unwrap_or(id)
    }

    /// The value that `id` is a part of, and how many elements of that come before it: itself unless it is a part.
    pub fn whole(&self, id: ValueId) -> (ValueId, u64) {
        self.value(id).part_of.unwrap_or((id, 0))
    }

    /// The trainable parameters: every element of every weight, counted once. Running statistics of batch
    /// norms are state, not parameters.
    pub fn parameters(&self) -> u64 {
        self.values
            .iter()
            .filter(|v| v.role == Role::Weight && v.view_of.is_none() && v.part_of.is_none())
            .map(|v| v.shape.elements())
            .sum()
    }

    /// Multiply-adds of the forward kernels that multiply matrices (convolutions, linear layers, attention), the
    /// figure that papers print for a network.
    pub fn forward_macs(&self) -> u64 {
        self.nodes
            .iter()
            .filter(|n| n.phase == Phase::Forward)
            .fold(0, |sum: u64, n| sum.saturating_add(cost::macs(self, n)))
    }
}

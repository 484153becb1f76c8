//! A joint plan as an eager runtime plays it: for each step of the original trace what to do before it and after it.
//!
//! Tensors and kernels are positions in the original trace. As JSON: `{"steps": [{"before": [{"fetch": 7}, {"wait": 7},
//! {"recompute": 3}], "after": [{"evict": 2}, {"drop": 5}]}, …], …}`. What a list names is done in its order.

use serde::{Deserialize, Serialize};

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// A copy of the tensor to the slow tier begins; its fast memory is free when that has been waited for.
    Evict(u32),
    /// A copy of the tensor to the fast tier begins; memory for it is taken now.
    Fetch(u32),
    /// The copy of the tensor that is under way has to have ended: an eviction's memory is free from here on, a fetched
    /// tensor can be used.
    Wait(u32),
    /// The kernel runs once more, on the bytes that its operands have now. What it writes has memory from here on; a result whose
    /// tensor still has its bytes may be thrown away.
    Recompute(u32),
    /// The tensor's fast memory is given up; no copy is kept, or it will be made again.
    Drop(u32),
}

/// What surrounds one step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Around {
    /// Before its kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<Act>,
    /// After its kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Act>,
}

/// A joint plan, step by step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The trace's name, and how many kernels and tensors it has.
    pub net: String,
    /// How many kernels the trace has.
    pub kernels: u32,
    /// How many tensors the trace has.
    pub tensors: u32,
    /// The fast memory that it keeps to.
    pub fast_bytes: u64,
    /// What an iteration should take.
    pub iteration_ns: f64,
    /// No plan takes less.
    pub bound_ns: f64,
    /// Tensors that begin and end an iteration on the slow tier.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<u32>,
    /// One entry for each step.
    pub steps: Vec<Around>,
    /// Where everything lies, if every tensor has its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<Places>,
}

/// Places in the fast tier, by the original's tensors, kernels and steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Places {
    /// Tensors that are there when an iteration begins, and where.
    pub begin: Vec<(u32, u64)>,
    /// Tensors that set out for it before a step: step, tensor, place; in the order of the steps.
    pub fetched: Vec<(u32, u32, u64)>,
    /// Tensors that a kernel makes: the step before or at which it runs, the kernel, tensor, place; in the order in which kernels run.
    pub made: Vec<(u32, u32, u32, u64)>,
}

//! What a plan is for, in outline: enough to refuse it for another batch or another trace, and to say what differs.
//!
//! Planners leave it out, because what they are given is what is played; a plan that goes to a file takes it along.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tiercel_core::Bytes;
use tiercel_workload::Trace;
use tiercel_workload::trace::Role;

use crate::plan::Plan;
use crate::plan::verify::Flaw;

/// The outline of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outline {
    /// Samples in a batch, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// How many kernels there are.
    pub kernels: u64,
    /// The bytes of every tensor.
    pub tensors: BTreeMap<String, u64>,
    /// The tensors that are scratch memory of kernels.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub scratch: BTreeSet<String>,
}

/// What differs between the trace that a plan is for and another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The batch.
    #[error("the plan is for batch {plan}, this is batch {here}")]
    Batch {
        /// What the plan is for.
        plan: u64,
        /// What there is.
        here: u64,
    },
    /// The number of kernels.
    #[error("the plan is for {plan} kernels, here are {here}")]
    Kernels {
        /// What the plan is for.
        plan: u64,
        /// What there is.
        here: u64,
    },
    /// A tensor's size.
    #[error("the plan is for `{tensor}` of {}", sizes(*.plan, *.here))]
    Size {
        /// The first tensor that differs.
        tensor: String,
        /// What the plan is for.
        plan: Bytes,
        /// What there is.
        here: Bytes,
        /// Whether it is scratch memory of a kernel.
        scratch: bool,
    },
    /// A tensor that is not there.
    #[error("the plan is for a trace with `{tensor}` of {bytes}, which is not here")]
    Missing {
        /// The tensor.
        tensor: String,
        /// Its size in the plan.
        bytes: Bytes,
        /// Whether it is scratch memory of a kernel.
        scratch: bool,
    },
    /// A tensor that the plan does not know.
    #[error("the plan does not know `{tensor}` of {bytes}")]
    Unplanned {
        /// The tensor.
        tensor: String,
        /// Its size.
        bytes: Bytes,
    },
}

/// Two sizes that differ, to the byte where they would read the same.
fn sizes(plan: Bytes, here: Bytes) -> String {
    match (plan.to_string(), here.to_string()) {
        (plan, here) if plan != here => format!("{plan}, here it has {here}"),
        _ => format!("{} bytes, here it has {} bytes", plan.0, here.0),
    }
}

impl Outline {
    /// The outline of a trace.
    pub fn new(trace: &Trace, batch: Option<u64>) -> Outline {
        let tensors = trace.tensors.iter().map(|tensor| (tensor.name.clone(), tensor.bytes.0)).collect();
        let scratch = trace.tensors.iter().filter(|tensor| tensor.role == Role::Workspace);
        let scratch = scratch.map(|tensor| tensor.name.clone()).collect();
        Outline { batch, kernels: trace.kernels.len() as u64, tensors, scratch }
    }

    /// Whether a trace is the one, the scratch memory aside that kernels have on real memory alone: there must be room
    /// for it, which is another question.
    pub(crate) fn check(&self, trace: &Trace) -> Result<(), Mismatch> {
        let kernels = trace.kernels.len() as u64;
        if self.kernels != kernels {
            return Err(Mismatch::Kernels { plan: self.kernels, here: kernels });
        }
        let mut known = 0;
        for tensor in &trace.tensors {
            let (name, here) = (&tensor.name, tensor.bytes);
            match self.tensors.get(name) {
                Some(bytes) if *bytes == here.0 => known += 1,
                Some(bytes) => {
                    let (plan, scratch) = (Bytes(*bytes), tensor.role == Role::Workspace);
                    return Err(Mismatch::Size { tensor: name.clone(), plan, here, scratch });
                }
                None if tensor.role == Role::Workspace => {}
                None => return Err(Mismatch::Unplanned { tensor: name.clone(), bytes: here }),
            }
        }
        if known == self.tensors.len() {
            return Ok(());
        }
        let is_here = |name: &str| trace.tensors.iter().any(|tensor| tensor.name == name);
        let missing = self.tensors.iter().find(|(name, _)| !is_here(name));
        missing.map_or(Ok(()), |(name, bytes)| {
            let scratch = self.scratch.contains(name);
            Err(Mismatch::Missing { tensor: name.clone(), bytes: Bytes(*bytes), scratch })
        })
    }
}

impl Plan {
    /// Refuses a plan for another network or another batch, as far as the plan and the caller know.
    pub fn meant_for(&self, net: &str, batch: Option<u64>) -> Result<(), Flaw> {
        if self.net != net {
            return Err(Flaw::OtherTrace { plan: self.net.clone(), trace: net.to_string() });
        }
        let planned = self.outline.as_ref().and_then(|outline| outline.batch);
        match planned.zip(batch).filter(|(plan, here)| plan != here) {
            Some((plan, here)) => Err(Mismatch::Batch { plan, here }.into()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tiercel_workload::{Program, nets};

    use super::*;

    fn mlp(batch: u64) -> Program {
        let options = nets::NetOptions { batch: Some(batch), ..nets::NetOptions::default() };
        nets::find("mlp").expect("built in").build(&options).expect("sound")
    }

    #[test]
    fn a_trace_is_told_from_another() {
        let trace = mlp(8).trace;
        let outline = Outline::new(&trace, Some(8));
        let says = |trace: &Trace| outline.check(trace).map_err(|mismatch| mismatch.to_string());
        assert_eq!(says(&trace), Ok(()));
        let other = |change: &dyn Fn(&mut Trace)| {
            let mut other = trace.clone();
            change(&mut other);
            says(&other).expect_err("it is another")
        };
        let n = trace.kernels.len();
        let expected = format!("the plan is for {n} kernels, here are {}", n - 1);
        assert_eq!(other(&|trace| _ = trace.kernels.pop()), expected);
        let size = |bytes| move |trace: &mut Trace| trace.tensors[1].bytes = Bytes(bytes);
        let (name, bytes) = (&trace.tensors[1].name, trace.tensors[1].bytes);
        let expected = format!("the plan is for `{name}` of {bytes}, here it has 1 GiB");
        assert_eq!(other(&size(1 << 30)), expected);
        let expected =
            format!("the plan is for `{name}` of {} bytes, here it has {} bytes", bytes.0, bytes.0 + 1);
        assert_eq!(other(&size(bytes.0 + 1)), expected);
        let mut renamed = trace.clone();
        renamed.tensors[1].name = "renamed".to_string();
        assert_eq!(says(&renamed), Err(format!("the plan does not know `renamed` of {bytes}")));
        let mut fewer = trace.clone();
        let last = fewer.tensors.pop().expect("some");
        let expected =
            format!("the plan is for a trace with `{}` of {}, which is not here", last.name, last.bytes);
        assert_eq!(says(&fewer), Err(expected));
    }

    #[test]
    fn scratch_memory_may_come_on_top() {
        let program = mlp(8);
        let outline = Outline::new(&program.trace, None);
        let trace = program.with_workspace(|_, _| Bytes::kib(4)).trace;
        assert_eq!(outline.check(&trace), Ok(()));
    }
}

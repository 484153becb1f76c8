//! Cuts of a trace into intervals: the runs of steps between which data is moved.
//!
//! "While part *i* computes, fetch what part *i + 1* needs" is one idea under many names (Sentinel's migration
//! interval, ReDL's period, DyNN-Offload's block). An interval here is a range of steps; how long it is is the
//! policy's choice, by steps or by visits of layers.

use tiercel_core::{Bytes, Step};

use crate::lifetimes;
use crate::trace::{TensorId, Trace};

/// A run of steps, the end excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interval {
    /// The first step.
    pub start: Step,
    /// The step behind the last.
    pub end: Step,
}

impl Interval {
    /// Its number of steps.
    pub fn steps(self) -> u32 {
        self.end.0 - self.start.0
    }

    /// The tensors that its kernels touch, each once, in the order of their first use in it.
    pub fn tensors(self, trace: &Trace) -> Vec<TensorId> {
        let kernels = &trace.kernels[self.start.0 as usize..self.end.0 as usize];
        let mut seen = std::collections::HashSet::new();
        kernels
            .iter()
            .flat_map(|k| k.reads.iter().chain(&k.writes))
            .map(|used| used.tensor)
            .filter(|tensor| seen.insert(*tensor))
            .collect()
    }

    /// The memory of all tensors that its kernels touch.
    pub fn bytes(self, trace: &Trace) -> Bytes {
        self.tensors(trace).into_iter().map(|t| trace.tensor(t).bytes).sum()
    }
}

/// Cuts the trace into intervals of `steps` kernels; the last may be shorter.
pub fn by_steps(trace: &Trace, steps: u32) -> Vec<Interval> {
    cut(trace.kernels.len() as u32, |step| step / steps.max(1))
}

/// Cuts the trace into intervals of `layers` visits of layers (one layer in one phase); the last may be shorter.
pub fn by_layers(trace: &Trace, layers: u32) -> Vec<Interval> {
    let visits = lifetimes::visits(trace);
    cut(visits.len() as u32, |step| visits[step as usize] / layers.max(1))
}

/// Groups neighbouring steps that have the same key.
pub fn cut(steps: u32, key: impl Fn(u32) -> u32) -> Vec<Interval> {
    let mut intervals: Vec<Interval> = Vec::new();
    for step in 0..steps {
        match intervals.last_mut() {
            Some(open) if key(open.start.0) == key(step) => open.end = Step(step + 1),
            _ => intervals.push(Interval { start: Step(step), end: Step(step + 1) }),
        }
    }
    intervals
}

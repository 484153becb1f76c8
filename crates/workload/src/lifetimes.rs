//! When tensors are alive: births, last uses, distances between uses, and the memory that this adds up to.
//!
//! A tensor is alive from the step that first writes it to the step that last touches it; what comes from outside
//! is there from the first step, and what is persistent is always there. A *visit* is a run of steps of one layer
//! in one phase; a tensor that is born and dies within one visit is short-lived. (Sentinel, section 3, found that
//! most tensors of a training step are, and gives them memory of their own.)

use tiercel_core::{Bytes, Step};

use crate::trace::{Role, TensorId, Trace};

/// How long a tensor lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Within one visit of one layer.
    Short,
    /// Across visits, but not beyond the iteration.
    Long,
    /// Beyond the iteration.
    Persistent,
}

/// The steps between which one tensor is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The first step at which it must exist.
    pub birth: Step,
    /// The last step at which it must exist.
    pub last: Step,
    /// How long that is.
    pub class: Class,
    /// How many visits of layers it lives through; 1 for a short-lived one, 2 for what one layer hands to the next.
    pub visits: u32,
}

/// The lifetimes and uses of all tensors of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Lifetimes {
    spans: Vec<Option<Lifetime>>,
    bytes: Vec<Bytes>,
    /// The steps that touch a tensor, one tensor after the other.
    uses: Vec<Step>,
    /// Where each tensor's uses start in `uses`, and where the last one's end.
    starts: Vec<u32>,
    steps: u32,
}

impl Lifetimes {
    /// Works out the lifetimes in time linear in the uses.
    pub fn new(trace: &Trace) -> Lifetimes {
        let (starts, uses) = uses(trace);
        let visits = visits(trace);
        let steps = trace.kernels.len() as u32;
        let span = |(at, tensor): (usize, &crate::trace::Tensor)| {
            let used = &uses[starts[at] as usize..starts[at + 1] as usize];
            let (birth, last) = if tensor.persistent {
                (Step(0), Step(steps.checked_sub(1)?))
            } else if tensor.role == Role::Input {
                (Step(0), *used.last()?)
            } else {
                (*used.first()?, *used.last()?)
            };
            let lived = visits[last.0 as usize] - visits[birth.0 as usize] + 1;
            let class = match tensor.role {
                _ if tensor.persistent => Class::Persistent,
                Role::Input => Class::Long,
                _ if lived > 1 => Class::Long,
                _ => Class::Short,
            };
            Some(Lifetime { birth, last, class, visits: lived })
        };
        let spans = trace.tensors.iter().enumerate().map(span).collect();
        let bytes = trace.tensors.iter().map(|t| t.bytes).collect();
        Lifetimes { spans, bytes, uses, starts, steps }
    }

    /// When the tensor is alive; `None` where nothing touches it and it is not persistent.
    pub fn of(&self, tensor: TensorId) -> Option<Lifetime> {
        self.spans[tensor.0 as usize]
    }

    /// The steps that read or write the tensor, in order.
    pub fn uses(&self, tensor: TensorId) -> &[Step] {
        let at = tensor.0 as usize;
        &self.uses[self.starts[at] as usize..self.starts[at + 1] as usize]
    }

    /// The first use of the tensor after `step`.
    pub fn next_use(&self, tensor: TensorId, step: Step) -> Option<Step> {
        let uses = self.uses(tensor);
        uses.get(uses.partition_point(|u| *u <= step)).copied()
    }

    /// The last use of the tensor before `step`.
    pub fn previous_use(&self, tensor: TensorId, step: Step) -> Option<Step> {
        let uses = self.uses(tensor);
        uses[..uses.partition_point(|u| *u < step)].last().copied()
    }

    /// The steps from each use of the tensor to its next; for a persistent one, the last figure reaches to its
    /// first use in the next iteration.
    pub fn distances(&self, tensor: TensorId) -> Vec<u32> {
        let uses = self.uses(tensor);
        let mut distances: Vec<u32> = uses.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        if let (Some(first), Some(last)) = (uses.first(), uses.last())
            && self.of(tensor).is_some_and(|l| l.class == Class::Persistent)
        {
            distances.push(self.steps - last.0 + first.0);
        }
        distances
    }

    /// The bytes alive at each step.
    pub fn live_bytes(&self) -> Vec<Bytes> {
        self.live_bytes_of(|_| true)
    }

    /// The bytes alive at each step of the tensors that `wanted` picks.
    pub fn live_bytes_of(&self, wanted: impl Fn(TensorId) -> bool) -> Vec<Bytes> {
        let mut births = vec![0u64; self.steps as usize];
        let mut deaths = vec![0u64; self.steps as usize];
        for (at, span) in self.spans.iter().enumerate() {
            if let Some(span) = span.filter(|_| self.steps > 0 && wanted(TensorId(at as u32))) {
                births[span.birth.0 as usize] += self.bytes[at].0;
                deaths[span.last.0 as usize] += self.bytes[at].0;
            }
        }
        let mut live = 0;
        let step = |(birth, death)| {
            live += birth;
            let now = Bytes(live);
            live -= death;
            now
        };
        births.into_iter().zip(deaths).map(step).collect()
    }

    /// The step at which most bytes are alive, and how many: what a single memory must hold.
    pub fn peak(&self) -> (Step, Bytes) {
        peak(&self.live_bytes())
    }

    /// The most bytes of short-lived tensors that are alive at once: what memory set aside for them must hold.
    pub fn short_lived_peak(&self) -> Bytes {
        let short = |t: TensorId| self.of(t).is_some_and(|l| l.class == Class::Short);
        peak(&self.live_bytes_of(short)).1
    }
}

/// The first largest of `live`, with its step.
fn peak(live: &[Bytes]) -> (Step, Bytes) {
    let mut best = (Step(0), Bytes::ZERO);
    for (at, bytes) in live.iter().enumerate() {
        if *bytes > best.1 {
            best = (Step(at as u32), *bytes);
        }
    }
    best
}

/// The visit that each step belongs to, counted from 0: a new one starts where the layer or the phase changes.
pub fn visits(trace: &Trace) -> Vec<u32> {
    let mut visit = 0;
    let mut last = None;
    let next = |kernel: &crate::trace::Kernel| {
        let here = (kernel.layer, kernel.phase);
        if last.is_some_and(|l| l != here) {
            visit += 1;
        }
        last = Some(here);
        visit
    };
    trace.kernels.iter().map(next).collect()
}

/// All uses, tensor by tensor, each step once, and where each tensor's begin.
fn uses(trace: &Trace) -> (Vec<u32>, Vec<Step>) {
    let mut counts = vec![0u32; trace.tensors.len() + 1];
    let mut seen = vec![u32::MAX; trace.tensors.len()];
    let mut each = |mut record: Box<dyn FnMut(usize, u32) + '_>| {
        seen.fill(u32::MAX);
        for (step, kernel) in trace.kernels.iter().enumerate() {
            for used in kernel.reads.iter().chain(&kernel.writes) {
                let at = used.tensor.0 as usize;
                if seen[at] != step as u32 {
                    seen[at] = step as u32;
                    record(at, step as u32);
                }
            }
        }
    };
    each(Box::new(|tensor, _| counts[tensor + 1] += 1));
    for at in 1..counts.len() {
        counts[at] += counts[at - 1];
    }
    let mut next = counts.clone();
    let mut uses = vec![Step(0); counts.last().copied().unwrap_or(0) as usize];
    each(Box::new(|tensor, step| {
        uses[next[tensor] as usize] = Step(step);
        next[tensor] += 1;
    }));
    (counts, uses)
}

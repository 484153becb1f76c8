//! What a known iteration will need, cut into intervals of layers: who is used where, how far off the next use is,
//! and how much memory is still to come.
//!
//! ReDL's migration periods are such a cut (section III-D); so is any other that fetches for the next interval while
//! this one computes.

use tiercel_core::{Bytes, Step};
use tiercel_workload::TensorId;
use tiercel_workload::intervals::{Interval, by_layers};
use tiercel_workload::lifetimes::Class;

use crate::notebook::SeenIteration;

/// A known iteration, cut into intervals.
#[derive(Clone, Debug)]
pub struct Forecast {
    intervals: Vec<Interval>,
    /// The interval of each step.
    of_step: Vec<usize>,
    /// For each interval, the tensors that live longer than a layer and are used in it, first used first.
    wanted: Vec<Vec<TensorId>>,
    /// At each step, how much more memory the rest of its interval will take for tensors yet to be born.
    growth: Vec<Bytes>,
    /// The same for short-lived tensors alone.
    short_growth: Vec<Bytes>,
}

impl Forecast {
    /// Cuts a known iteration into intervals of so many layers.
    pub fn new(known: &SeenIteration, layers: u32) -> Forecast {
        let intervals = by_layers(&known.trace, layers);
        let mut of_step = vec![0; known.trace.kernels.len()];
        for (at, interval) in intervals.iter().enumerate() {
            of_step[interval.start.0 as usize..interval.end.0 as usize].fill(at);
        }
        let lasting = |tensor: &TensorId| class(known, *tensor) != Some(Class::Short);
        let wanted = |interval: &Interval| {
            let tensors = interval.tensors(&known.trace).into_iter();
            tensors.filter(lasting).collect()
        };
        Forecast {
            wanted: intervals.iter().map(wanted).collect(),
            growth: growth(known, &intervals, &of_step, |_| true),
            short_growth: growth(known, &intervals, &of_step, |class| class == Class::Short),
            intervals,
            of_step,
        }
    }

    /// How many intervals there are.
    pub fn len(&self) -> usize {
        self.intervals.len()
    }

    /// Whether there is no interval.
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// The interval that a step belongs to; `None` behind the last step.
    pub fn interval(&self, step: Step) -> Option<usize> {
        self.of_step.get(step.0 as usize).copied()
    }

    /// The interval after this one; after the last comes the first of the next iteration.
    pub fn next(&self, interval: usize) -> usize {
        (interval + 1) % self.intervals.len().max(1)
    }

    /// The steps of an interval.
    pub fn steps(&self, interval: usize) -> Interval {
        self.intervals[interval]
    }

    /// The tensors that live longer than a layer and are used in an interval, first used first.
    pub fn wanted(&self, interval: usize) -> &[TensorId] {
        &self.wanted[interval]
    }

    /// How much more memory the rest of the interval will take, from this step on, for tensors yet to be born.
    pub fn growth(&self, step: Step) -> Bytes {
        self.growth.get(step.0 as usize).copied().unwrap_or_default()
    }

    /// The same for short-lived tensors alone.
    pub fn short_growth(&self, step: Step) -> Bytes {
        self.short_growth.get(step.0 as usize).copied().unwrap_or_default()
    }
}

/// How long a tensor lives; `None` where the iteration does not have it.
pub fn class(known: &SeenIteration, tensor: TensorId) -> Option<Class> {
    let listed = (tensor.0 as usize) < known.trace.tensors.len();
    listed.then(|| known.lifetimes.of(tensor)).flatten().map(|lifetime| lifetime.class)
}

/// The first step at or after this one that uses a tensor; one beyond the iteration's end stands for a use in the
/// next iteration. `None` where there is none.
pub fn next_use(known: &SeenIteration, tensor: TensorId, step: Step) -> Option<Step> {
    let class = class(known, tensor)?;
    let uses = known.lifetimes.uses(tensor);
    let later = uses.get(uses.partition_point(|used| *used < step)).copied();
    let again = uses.first().map(|first| Step(known.trace.kernels.len() as u32 + first.0));
    later.or(again.filter(|_| class == Class::Persistent))
}

/// At each step, the most memory that tensors born later in the same interval will take at once.
fn growth(
    known: &SeenIteration,
    intervals: &[Interval],
    of_step: &[usize],
    wanted: impl Fn(Class) -> bool,
) -> Vec<Bytes> {
    let steps = of_step.len();
    let (mut born, mut gone) = (vec![0u64; steps], vec![0u64; steps]);
    for (at, tensor) in known.trace.tensors.iter().enumerate() {
        let Some(lifetime) = known.lifetimes.of(TensorId(at as u32)) else { continue };
        let given = tensor.persistent || tensor.role == tiercel_workload::trace::Role::Input;
        if given || !wanted(lifetime.class) {
            continue;
        }
        let (birth, last) = (lifetime.birth.0 as usize, lifetime.last.0 as usize);
        born[birth] += tensor.bytes.0;
        if of_step[birth] == of_step[last] {
            gone[last] += tensor.bytes.0;
        }
    }
    let mut growth = vec![Bytes::ZERO; steps];
    for interval in intervals {
        // Backwards: what the rest needs, less what will have gone before it.
        let mut rest = 0u64;
        for step in (interval.start.0 as usize..interval.end.0 as usize).rev() {
            rest = born[step] + rest.saturating_sub(gone[step]);
            growth[step] = Bytes(rest);
        }
    }
    growth
}

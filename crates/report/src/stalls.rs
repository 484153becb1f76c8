//! Where waiting comes from: which kernel waited, for which object, and why.

use std::collections::HashMap;

use serde::Serialize;
use tiercel_core::{Cause, Nanos, Step};

use crate::run::{Run, length};

/// All waiting of a run, gathered.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stalls {
    /// All of it together.
    #[serde(rename = "stall_ns")]
    pub total: Nanos,
    /// By kernel, object and cause, the longest first. Their times add up to the total.
    pub all: Vec<Waiting>,
    /// By object alone, the longest first.
    pub by_object: Vec<Share>,
    /// By kernel alone, the longest first.
    pub by_kernel: Vec<Share>,
    /// By cause alone, the longest first.
    pub by_cause: Vec<Share>,
}

/// How long one kernel has waited for one object for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// The object's name.
    pub object: String,
    /// The kernel's name.
    pub kernel: String,
    /// Its step; `None` while objects were loaded.
    pub step: Option<u32>,
    /// Why.
    pub cause: Cause,
    /// How often.
    pub times: u64,
    /// How long, all together.
    #[serde(rename = "stall_ns")]
    pub time: Nanos,
}

/// A part of all waiting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// What it is of.
    pub name: String,
    /// How often.
    pub times: u64,
    /// How long, all together.
    #[serde(rename = "stall_ns")]
    pub time: Nanos,
}

/// What a cause means, in a few words.
pub fn meaning(cause: Cause) -> &'static str {
    match cause {
        Cause::Arrival => "bytes not there yet",
        Cause::Departure => "still being copied away",
        Cause::Space => "memory not free yet",
    }
}

/// What one can do about a cause.
pub fn advice(cause: Cause) -> &'static str {
    match cause {
        Cause::Arrival => {
            "Kernels waited for data on its way to them. Start fetching earlier (a longer look-ahead), keep the tensors \
             that head the list in fast memory, or give more of it."
        }
        Cause::Departure => {
            "Kernels were about to change data that was still being copied away. Evict after the last change instead \
             of before it, or do not keep a copy of what changes often."
        }
        Cause::Space => {
            "Kernels waited for memory that an eviction had not left yet. Evict earlier, so that room is there before \
             it is needed, or use a faster link to the slow memory."
        }
    }
}

impl Stalls {
    /// Gathers all the waiting of a run, loading and warm-ups included.
    pub fn new(run: &Run) -> Stalls {
        Stalls::of(run, |_| true)
    }

    /// Gathers the waiting in the iterations that count.
    pub fn counted(run: &Run) -> Stalls {
        let counted = run.counted();
        Stalls::of(run, |at| counted.iter().any(|i| i.began < at && at <= i.ended))
    }

    /// Gathers the waiting that ended at moments of interest.
    fn of(run: &Run, wanted: impl Fn(Nanos) -> bool) -> Stalls {
        let mut all: HashMap<(usize, Step, Cause), (u64, Nanos)> = HashMap::new();
        for stall in run.stalls.iter().filter(|stall| wanted(stall.span.ended)) {
            let (times, time) = all.entry((stall.object, stall.step, stall.cause)).or_default();
            *times += 1;
            *time = sum(*time, length(stall.span));
        }
        let object = |position: usize| run.objects.get(position).map_or("?", |object| &*object.name);
        let waiting = all.iter().map(|(&(position, step, cause), &(times, time))| Waiting {
            object: object(position).to_string(),
            kernel: run.kernel_name(step),
            step: (step != Step::LOAD).then_some(step.0),
            cause,
            times,
            time,
        });
        let mut all: Vec<Waiting> = waiting.collect();
        all.sort_by(|a, b| {
            let key = |w: &Waiting| (w.step, w.cause as u8);
            b.time.cmp(&a.time).then_with(|| key(a).cmp(&key(b))).then_with(|| a.object.cmp(&b.object))
        });
        Stalls {
            total: all.iter().fold(Nanos::ZERO, |total, waiting| sum(total, waiting.time)),
            by_object: shares(&all, |waiting| waiting.object.clone()),
            by_kernel: shares(&all, |waiting| waiting.kernel.clone()),
            by_cause: shares(&all, |waiting| meaning(waiting.cause).to_string()),
            all,
        }
    }

    /// The cause of most of the waiting.
    pub fn main_cause(&self) -> Option<Cause> {
        let name = &self.by_cause.first()?.name;
        [Cause::Arrival, Cause::Departure, Cause::Space].into_iter().find(|cause| meaning(*cause) == name)
    }

    /// A part as a share of all.
    pub fn share(&self, time: Nanos) -> f64 {
        if self.total == Nanos::ZERO { 0.0 } else { time.0 as f64 / self.total.0 as f64 }
    }
}

fn sum(a: Nanos, b: Nanos) -> Nanos {
    Nanos(a.0.saturating_add(b.0))
}

fn shares(all: &[Waiting], name: impl Fn(&Waiting) -> String) -> Vec<Share> {
    let mut shares: HashMap<String, (u64, Nanos)> = HashMap::new();
    for waiting in all {
        let (times, time) = shares.entry(name(waiting)).or_default();
        *times += waiting.times;
        *time = sum(*time, waiting.time);
    }
    let mut shares: Vec<Share> =
        shares.into_iter().map(|(name, (times, time))| Share { name, times, time }).collect();
    shares.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
    shares
}

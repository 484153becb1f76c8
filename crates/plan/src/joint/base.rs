//! What the joint search knows of a trace: numbers alone, with the gaps between the uses of each tensor as its decisions.

use tiercel_core::{Machine, TierId};
use tiercel_sim::KernelTime;
use tiercel_workload::Trace;
use tiercel_workload::repeat::{HELD, Repeat};
use tiercel_workload::trace::Role;

use crate::recompute::fastest;

/// What is done with a tensor between two uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Choice {
    /// It stays.
    #[default]
    Keep,
    /// It leaves for the slow tier and comes back.
    Move,
    /// The same, and it goes on to the tier behind that one meanwhile.
    Deep,
    /// It is dropped and made again.
    Again,
    /// It begins and ends the iteration on the slow tier; of persistent tensors, for the gap before their first use.
    Away,
    /// The same on the tier behind that one.
    DeepAway,
}

impl Choice {
    /// Whether it goes to the tier behind the slow one.
    pub(crate) fn is_deep(self) -> bool {
        matches!(self, Choice::Deep | Choice::DeepAway)
    }

    /// Whether the tensor leaves between two uses and comes back.
    pub(crate) fn is_move(self) -> bool {
        matches!(self, Choice::Move | Choice::Deep)
    }
}

/// The slow tier where it cannot hold all: what it holds, and the link to the tier behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behind {
    pub(crate) capacity: u64,
    pub(crate) link: Link,
}

/// A pair of links between neighbours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Nanoseconds a byte, and a copy: towards the slower tier, and back.
    copy: [f64; 2],
    latency: [f64; 2],
    /// The share of its speed that each keeps while the other is busy.
    pub(crate) both: f64,
}

impl Link {
    fn new(machine: &Machine, fast: TierId, slow: TierId) -> Link {
        let link = |from, to| machine.link(from, to);
        let per_byte = |from, to| link(from, to).map_or(f64::INFINITY, |l| 1e9 / l.speed().0);
        let latency = |from, to| link(from, to).map_or(0.0, |l| l.latency.0 as f64);
        let copy = [per_byte(fast, slow), per_byte(slow, fast)];
        let together =
            machine.tier(slow).combined.map_or(f64::INFINITY, |c| c.0) / (1e9 / copy[0] + 1e9 / copy[1]);
        Link { copy, latency: [latency(fast, slow), latency(slow, fast)], both: together.min(1.0) }
    }

    /// The nanoseconds of a copy of so many bytes, towards the slower tier (0) or back (1).
    pub(crate) fn copying(&self, bytes: u64, side: usize) -> f64 {
        bytes as f64 * self.copy[side] + self.latency[side]
    }

    /// Nanoseconds a byte in the quicker direction.
    pub(crate) fn least(&self) -> f64 {
        self.copy[0].min(self.copy[1])
    }
}

/// A kernel.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Nanoseconds with everything fast.
    pub(crate) time: f64,
    /// Tensors that it reads and does not write, with the number of kernels that had written them.
    pub(crate) reads: Vec<(u32, u32)>,
    /// Tensors that it writes, with that number; state of which it changes a scratch copy when it runs again is not among
    /// them but in `touches`.
    pub(crate) writes: Vec<(u32, u32)>,
    /// Everything that it uses, each once.
    pub(crate) touches: Vec<u32>,
    /// Whether it may be run again.
    pub(crate) again: bool,
    /// It computes nothing: a program holds its operands until here.
    pub(crate) held: bool,
}

/// A tensor.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Its size in whole grains.
    pub(crate) bytes: u64,
    pub(crate) persistent: bool,
    /// It is there before the first kernel.
    pub(crate) given: bool,
    /// The kernels that write it and those that use it, in order.
    pub(crate) writers: Vec<u32>,
    pub(crate) uses: Vec<u32>,
    /// For each use, the gap after it, and at last the one before the first; `NONE` where there is no decision.
    pub(crate) gaps: Vec<u32>,
}

pub(crate) const NONE: u32 = u32::MAX;

/// The time between two uses of a tensor, or before the first of a persistent one.
#[derive(Clone, Debug)]
pub(crate) struct Gap {
    pub(crate) tensor: u32,
    /// The step before the gap; `NONE` before the first use.
    pub(crate) from: u32,
    /// The step that ends it.
    pub(crate) to: u32,
    /// Whether the tensor can be made again, as far as its own kernels are concerned, and whether it can move.
    pub(crate) again: bool,
    pub(crate) moves: bool,
}

/// The trace as numbers.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) calls: Vec<Call>,
    pub(crate) items: Vec<Item>,
    pub(crate) gaps: Vec<Gap>,
    /// The fast memory, and how much of it is given up at each step.
    pub(crate) limit: u64,
    pub(crate) spare: Vec<u64>,
    /// Between the fast tier and the slow one.
    pub(crate) link: Link,
    /// What is behind the slow one, where that cannot hold all.
    pub(crate) behind: Option<Behind>,
    /// All kernels once.
    pub(crate) floor: f64,
}

/// Where tensors leave for, and, where that cannot hold all of them, where they go on to from there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiers {
    pub(crate) near: TierId,
    pub(crate) deep: Option<TierId>,
}

/// Tensors below this share of the fast memory stay where they are.
const NEGLIGIBLE: f64 = 2e-4;

impl Base {
    pub(crate) fn new(
        trace: &Trace,
        machine: &Machine,
        times: &dyn KernelTime,
        tiers: Tiers,
        seeded: bool,
    ) -> Base {
        let fast = TierId(0);
        let limit = machine.tier(fast).capacity.0;
        let grain = machine.grain();
        let mut items: Vec<Item> = trace
            .tensors
            .iter()
            .map(|t| Item {
                bytes: tiercel_core::Bytes(t.bytes.0.max(1)).round_up(grain).unwrap_or(t.bytes).0,
                persistent: t.persistent,
                given: t.persistent || t.role == Role::Input,
                writers: Vec::new(),
                uses: Vec::new(),
                gaps: Vec::new(),
            })
            .collect();
        let mut calls: Vec<Call> = Vec::with_capacity(trace.kernels.len());
        let own = fastest(&trace.kernels, machine, times);
        for (step, kernel) in trace.kernels.iter().enumerate() {
            let repeat = kernel.repeat();
            let mut call = Call {
                time: own[step],
                reads: Vec::new(),
                writes: Vec::new(),
                touches: Vec::new(),
                again: repeat != Repeat::Once && (seeded || repeat != Repeat::Seeded),
                held: kernel.op == HELD,
            };
            for used in &kernel.writes {
                let (at, version) = (used.tensor.0, items[used.tensor.0 as usize].writers.len() as u32);
                call.touches.push(at);
                if items[at as usize].given {
                    call.again &= repeat == Repeat::Scratch;
                } else {
                    call.writes.push((at, version));
                }
            }
            for used in &kernel.reads {
                let (at, version) = (used.tensor.0, items[used.tensor.0 as usize].writers.len() as u32);
                if !call.touches.contains(&at) {
                    call.touches.push(at);
                    call.reads.push((at, version));
                }
            }
            for used in &kernel.writes {
                items[used.tensor.0 as usize].writers.push(step as u32);
            }
            for at in &call.touches {
                items[*at as usize].uses.push(step as u32);
            }
            calls.push(call);
        }
        let Tiers { near, deep } = tiers;
        let behind = deep.map(|deep| Behind {
            capacity: machine.tier(near).capacity.0,
            link: Link::new(machine, near, deep),
        });
        let mut base = Base {
            spare: vec![0; calls.len()],
            floor: own.iter().sum(),
            calls,
            items,
            gaps: Vec::new(),
            limit,
            link: Link::new(machine, fast, near),
            behind,
        };
        base.find_gaps();
        base
    }

    fn find_gaps(&mut self) {
        let least = (self.limit as f64 * NEGLIGIBLE) as u64;
        for (at, item) in self.items.iter_mut().enumerate() {
            item.gaps = vec![NONE; item.uses.len() + 1];
            if item.bytes < least || item.uses.is_empty() {
                continue;
            }
            let mut known = 0;
            for (i, pair) in item.uses.windows(2).enumerate() {
                let (from, to) = (pair[0], pair[1]);
                if to == from + 1 {
                    continue;
                }
                known += item.writers[known..].iter().take_while(|w| **w <= from).count();
                // For somebody who only holds it nothing is made again.
                let again = !item.given
                    && !self.calls[to as usize].held
                    && item.writers[..known].iter().all(|w| self.calls[*w as usize].again);
                item.gaps[i] = self.gaps.len() as u32;
                self.gaps.push(Gap { tensor: at as u32, from, to, again, moves: true });
            }
            if item.persistent {
                *item.gaps.last_mut().expect("one more than uses") = self.gaps.len() as u32;
                self.gaps.push(Gap {
                    tensor: at as u32,
                    from: NONE,
                    to: item.uses[0],
                    again: false,
                    moves: true,
                });
            }
        }
    }

    /// The fast memory beside one step.
    pub(crate) fn room(&self, step: u32) -> u64 {
        self.limit.saturating_sub(self.spare[step as usize])
    }

    /// How often a tensor has been written before a step.
    pub(crate) fn version(&self, tensor: u32, step: u32) -> u32 {
        self.items[tensor as usize].writers.partition_point(|w| *w < step) as u32
    }
}

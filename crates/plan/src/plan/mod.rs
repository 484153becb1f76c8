//! A plan as data: where every tensor is born, and every move, with the kernels before which it may start and must
//! be done.
//!
//! A *boundary* is the moment before a kernel, by the kernel's step; the boundary after the last kernel has the number
//! of kernels. In a synchronous plan every move must be done at the boundary at which it may start, and the program waits.

pub mod leeway;
pub mod offsets;
pub(crate) mod residence;
pub mod verify;

use serde::{Deserialize, Serialize};
use tiercel_core::{Bytes, CopyThreads, Machine, TierId};
use tiercel_workload::repeated::Rerun;
use tiercel_workload::rewriting::Rewriting;
use tiercel_workload::{Program, Trace};

use crate::bound::paths::{Flight, State, States};
use crate::model::outline::Outline;
use crate::model::problem::{Formulation, Item, Problem};
use crate::plan::verify::Flaw;
use crate::search::solve::Solution;

/// Where every tensor lives at every step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The trace that it is for.
    pub net: String,
    /// The machine that it is for.
    pub machine: String,
    /// The fastest tier's capacity that it keeps to.
    pub fast_bytes: u64,
    /// Whether kernels run while tensors move, and wait only for what they need; otherwise the program waits for a move
    /// that must be done at the boundary at which it may start.
    #[serde(default)]
    pub asynchronous: bool,
    /// What one iteration should take.
    pub iteration_ns: f64,
    /// No plan of this kind takes less.
    pub bound_ns: f64,
    /// Where each tensor is born, for those that are not born just anywhere on the fastest tier.
    pub births: Vec<Birth>,
    /// The moves, in the order of the boundaries at which they may start.
    pub moves: Vec<Move>,
    /// The kernels that do not run as they are written but as one of their alternatives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub implementations: Vec<Implementation>,
    /// Whether it is for the program with each weight updated as soon as it can be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub early_updates: bool,
    /// The tensors that the program, as the plan is for it, drops after the forward pass and computes again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recomputed: Vec<String>,
    /// The kernels that run once more in the trace, as the plan is for it, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repeats: Vec<Repeated>,
    /// The size above which the program, as the plan is for it, works on activations in parts of about that size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts_bytes: Option<u64>,
    /// The size above which tables of the program, as the plan is for it, have their rows updated beside what follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detached_bytes: Option<u64>,
    /// The threads that copy in each direction, where cores do and the plan says how many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copy_threads: Vec<CopyThreads>,
    /// What the trace that it is for looks like, where the plan says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outline: Option<Outline>,
}

/// A kernel that runs once more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeated {
    /// The step of the original trace before which it does.
    pub before: u32,
    /// The kernel's step in the original trace.
    pub step: u32,
    /// Its name.
    pub kernel: String,
}

/// The implementation of a kernel that was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Implementation {
    /// When the kernel runs.
    pub step: u32,
    /// The kernel's name.
    pub kernel: String,
    /// The alternative's name.
    pub name: String,
}

/// The tier on which a tensor is born.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Birth {
    /// The tensor's name.
    pub tensor: String,
    /// The tier's name.
    pub tier: String,
    /// Where on the tier; anywhere unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

/// What happens to a tensor's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// They are copied to another tier, and leave the one they were on.
    Move,
    /// They are copied to another tier, and a copy stays on the one they were on.
    Fetch,
    /// They leave the tier they were on for another that holds them already.
    Drop,
    /// The copy on another tier is given up.
    Forget,
}

/// One move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// The boundary at which it may start.
    pub start: u32,
    /// The boundary at which it must be done.
    pub done: u32,
    /// The tensor's name.
    pub tensor: String,
    /// What happens.
    pub action: Action,
    /// The tier that the tensor is on.
    pub from: String,
    /// The other tier.
    pub to: String,
    /// Where on that tier; anywhere unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

impl Plan {
    /// Writes a solution down as a plan.
    pub fn new(trace: &Trace, machine: &Machine, problem: &Problem, solution: &Solution) -> Plan {
        let states = States::new(problem);
        let mut plan = Plan {
            net: trace.name.clone(),
            machine: machine.name.clone(),
            fast_bytes: machine.tiers[0].capacity.0,
            asynchronous: problem.lanes.is_some(),
            iteration_ns: solution.cost,
            bound_ns: solution.bound,
            births: Vec::new(),
            moves: Vec::new(),
            implementations: Vec::new(),
            early_updates: false,
            recomputed: Vec::new(),
            repeats: Vec::new(),
            parts_bytes: None,
            detached_bytes: None,
            copy_threads: machine.copy_threads(),
            outline: None,
        };
        for (item, path) in problem.items.iter().zip(&solution.paths) {
            let tensor = &trace.tensor(item.tensor).name;
            let name = |tier: u8| machine.tiers[usize::from(tier)].name.clone();
            let state = |index: u8| states.all[usize::from(index)];
            let exists_before = item.persistent || item.fed;
            let first = match path.uses.first() {
                Some(first) if !exists_before => state(*first),
                _ => state(path.rests[0]),
            };
            if first.tier > 0 {
                plan.births.push(Birth { tensor: tensor.clone(), tier: name(first.tier), offset: None });
            }
            let mut at = |boundary: u32, flight: Option<&Flight>, from: State, to: State| {
                for (action, from, to) in actions(from, to) {
                    let (from, to) = (name(from), name(to));
                    let tensor = tensor.clone();
                    let copies = matches!(action, Action::Move | Action::Fetch);
                    let (start, done) = match flight {
                        Some(flight) if copies => (flight.start, flight.done),
                        _ => (boundary, boundary),
                    };
                    plan.moves.push(Move { start, done, tensor, action, from, to, offset: None });
                }
            };
            let flight = |i: usize, side: usize| path.flights.get(i).map(|flights| &flights[side]);
            walk(item, path.uses.len(), |boundary, i, arrives| match arrives {
                true if i == 0 && !exists_before => {}
                true => at(boundary, flight(i, 0), state(path.rests[i]), state(path.uses[i])),
                false if i + 1 == path.uses.len() && !item.persistent => {}
                // A kernel that writes leaves no copy behind.
                false => at(boundary, flight(i, 1), state(path.uses[i]), state(path.rests[i + 1])),
            });
        }
        plan.moves.sort_by(|a, b| (a.start, a.done, &a.tensor).cmp(&(b.start, b.done, &b.tensor)));
        plan
    }

    /// Says how the program was rewritten for whose trace the plan was made.
    pub fn rewritten_as(mut self, rewriting: &Rewriting) -> Plan {
        let Rewriting { early_updates, recomputed, parts, detached } = rewriting.clone();
        (self.early_updates, self.recomputed) = (early_updates, recomputed);
        self.parts_bytes = parts.map(|limit| limit.0);
        self.detached_bytes = detached.map(|limit| limit.0);
        self
    }

    /// A program as the plan is for it: `None` where that is the program as it is. A trace has no program behind it,
    /// and is played as it is or not at all.
    pub fn rewrite(&self, trace: &Trace, program: Option<&Program>) -> Result<Option<Program>, Flaw> {
        self.meant_for(&trace.name, None)?;
        let rewriting = Rewriting {
            early_updates: self.early_updates,
            recomputed: self.recomputed.clone(),
            parts: self.parts_bytes.map(Bytes),
            detached: self.detached_bytes.map(Bytes),
        };
        match program {
            _ if rewriting.is_none() => Ok(None),
            Some(program) => program.rewritten(&rewriting).map(Some).map_err(Flaw::Rewriting),
            None => Err(Flaw::NoProgram),
        }
    }

    /// The trace as the plan is for it, with kernels that run once more: `None` where that is the trace as it is.
    pub fn repeated(&self, trace: &Trace) -> Result<Option<Trace>, Flaw> {
        if self.repeats.is_empty() {
            return Ok(None);
        }
        let mut reruns = Vec::with_capacity(self.repeats.len());
        for Repeated { before, step, kernel } in &self.repeats {
            let there = trace.kernels.get(*step as usize);
            if there.is_none_or(|there| there.name != *kernel) {
                return Err(Flaw::Unknown { kind: "kernel", name: kernel.clone() });
            }
            reruns.push(Rerun { before: *before, kernel: *step });
        }
        trace.repeating(&reruns).map(|repeated| Some(repeated.trace)).map_err(Flaw::Repeat)
    }

    /// How much less the best plan of this kind could take, as a share of this one.
    pub fn gap(&self) -> f64 {
        ((self.iteration_ns - self.bound_ns) / self.iteration_ns).max(0.0)
    }

    /// Bytes that the plan copies towards faster tiers, and towards slower ones.
    pub fn traffic(&self, trace: &Trace, machine: &Machine) -> (Bytes, Bytes) {
        let (mut fetched, mut evicted) = (Bytes::ZERO, Bytes::ZERO);
        let sizes: std::collections::HashMap<&str, Bytes> =
            trace.tensors.iter().map(|t| (t.name.as_str(), t.bytes)).collect();
        for m in self.moves.iter().filter(|m| matches!(m.action, Action::Move | Action::Fetch)) {
            let bytes = sizes.get(m.tensor.as_str()).copied().unwrap_or_default();
            let tier = |name: &str| machine.tier_named(name).unwrap_or(TierId(0));
            *(if tier(&m.to) < tier(&m.from) { &mut fetched } else { &mut evicted }) += bytes;
        }
        (fetched, evicted)
    }
}

/// Calls `each` at every boundary at which a tensor may change its state: before use `i` (`true`) and after it.
fn walk(item: &Item, uses: usize, mut each: impl FnMut(u32, usize, bool)) {
    for i in 0..uses {
        each(item.visits[i].step, i, true);
        each(item.visits[i].step + 1, i, false);
    }
}

/// What it takes to go from one state to another.
fn actions(from: State, to: State) -> Vec<(Action, u8, u8)> {
    if from == to {
        return Vec::new();
    }
    let mut actions = Vec::new();
    let mut left_copy = from.copy;
    if from.tier != to.tier {
        let there = from.copy == Some(to.tier);
        let stays = to.copy == Some(from.tier);
        let action = if there {
            Action::Drop
        } else if stays {
            Action::Fetch
        } else {
            Action::Move
        };
        actions.push((action, from.tier, to.tier));
        left_copy = if there { None } else { from.copy };
    }
    if let Some(copy) = left_copy.filter(|copy| to.copy != Some(*copy) && to.tier != *copy) {
        actions.push((Action::Forget, to.tier, copy));
    }
    actions
}

/// The name of a formulation on the command line.
impl std::fmt::Display for Formulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Formulation::Static => "autotm-static",
            Formulation::Synchronous => "autotm-sync",
            Formulation::Asynchronous => "autotm-async",
        })
    }
}

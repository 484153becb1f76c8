//! A joint plan written down: as a plan for the rewritten trace, and as a schedule for the original one.

use std::collections::HashMap;

use tiercel_core::{Machine, TierId};
use tiercel_workload::Trace;
use tiercel_workload::repeated::{RepeatError, Repeated, Rerun};
use tiercel_workload::trace::Tensor;

use super::base::{Base, NONE, Tiers};
use super::flow::{Flow, Moved};
use super::schedule::{Act, Around, Places, Schedule};
use super::unroll::Sequence;
use crate::plan::{Action, Birth, Move, Plan};

/// The trace with kernels run again as a sequence has them.
pub(crate) fn rewritten(trace: &Trace, sequence: &Sequence) -> Result<Repeated, RepeatError> {
    let again = sequence.kernels.iter().filter(|(kernel, step)| kernel != step);
    let reruns: Vec<Rerun> =
        again.map(|(kernel, before)| Rerun { kernel: *kernel, before: *before }).collect();
    trace.repeating(&reruns)
}

/// The tensor of the rewritten trace that each life is.
fn names(repeated: &Repeated, sequence: &Sequence) -> Vec<Option<usize>> {
    let find = |life: &super::unroll::Life| {
        let Some(first) = life.uses.first() else { return Some(life.tensor as usize) };
        let kernel = &repeated.trace.kernels[*first as usize];
        let mut used = kernel.reads.iter().chain(&kernel.writes).map(|u| u.tensor);
        used.find(|t| repeated.tensors[t.0 as usize].0 == life.tensor).map(|t| t.0 as usize)
    };
    sequence.lives().iter().map(find).collect()
}

/// The plan for the rewritten trace.
pub(crate) fn plan(
    repeated: &Repeated,
    machine: &Machine,
    tiers: Tiers,
    (sequence, flow): (&Sequence, &Flow),
    bound: f64,
) -> Plan {
    let names = names(repeated, sequence);
    let name = |moved: &Moved| {
        let tensor = names[moved.life as usize].unwrap_or(0);
        repeated.trace.tensors[tensor].name.clone()
    };
    let named = |tier: TierId| machine.tier(tier).name.clone();
    let (fast, slow, behind) = (named(TierId(0)), named(tiers.near), named(tiers.deep.unwrap_or(tiers.near)));
    let again = sequence.kernels.iter().filter(|(kernel, step)| kernel != step);
    let repeat = |(step, before): &(u32, u32)| {
        let place = sequence.places[*step as usize] as usize;
        crate::plan::Repeated {
            before: *before,
            step: *step,
            kernel: repeated.trace.kernels[place].name.clone(),
        }
    };
    let repeats = again.map(repeat).collect();
    let mut plan = Plan {
        net: repeated.trace.name.clone(),
        machine: machine.name.clone(),
        fast_bytes: machine.tiers[0].capacity.0,
        asynchronous: true,
        iteration_ns: flow.time,
        bound_ns: bound.min(flow.time),
        births: Vec::new(),
        moves: Vec::new(),
        implementations: Vec::new(),
        early_updates: false,
        recomputed: Vec::new(),
        repeats,
        parts_bytes: None,
        detached_bytes: None,
        copy_threads: machine.copy_threads(),
        outline: None,
    };
    for moved in flow.moves.iter().filter(|moved| moved.on) {
        let tensor = name(moved);
        let deep = moved.deep.filter(|deep| deep.on);
        let mut add = |from: &String, to: &String, start, done| {
            let (from, to, tensor) = (from.clone(), to.clone(), tensor.clone());
            plan.moves.push(Move { start, done, tensor, action: Action::Move, from, to, offset: None });
        };
        if moved.out != NONE {
            add(&fast, &slow, moved.out, moved.gone);
        }
        if let Some(deep) = deep {
            if deep.sinks != NONE {
                add(&slow, &behind, deep.sinks, deep.sunk);
            }
            if moved.back != NONE {
                add(&behind, &slow, deep.rises, moved.comes);
            }
        }
        if moved.back != NONE {
            add(&slow, &fast, moved.comes, moved.back);
        }
        if moved.out == NONE {
            let tier = if deep.is_some() { behind.clone() } else { slow.clone() };
            plan.births.push(Birth { tensor, tier, offset: None });
        }
    }
    plan.moves.sort_by(|a, b| (a.start, a.done, &a.tensor).cmp(&(b.start, b.done, &b.tensor)));
    plan
}

/// The schedule for the original trace.
pub(crate) fn schedule(trace: &Trace, base: &Base, sequence: &Sequence, flow: &Flow, bound: f64) -> Schedule {
    let places = sequence.kernels.len();
    let tensor = |life: u32| sequence.lives()[life as usize].tensor;
    let (mut waits, mut starts, mut drops) =
        (vec![Vec::new(); places + 1], vec![Vec::new(); places + 1], vec![Vec::new(); places + 1]);
    let mut out: Vec<Vec<Act>> = vec![Vec::new(); places + 1];
    let mut away = Vec::new();
    // Copies out are listed in the order in which the link takes them.
    let mut order: Vec<usize> = (0..flow.moves.len()).filter(|at| flow.moves[*at].on).collect();
    order.sort_by(|a, b| flow.left[*a].total_cmp(&flow.left[*b]));
    for moved in order.iter().map(|at| &flow.moves[*at]) {
        let t = tensor(moved.life);
        if moved.out == NONE {
            away.push(t);
        } else {
            out[moved.out as usize].push(Act::Evict(t));
            waits[moved.gone as usize].push(Act::Wait(t));
        }
        if moved.back != NONE {
            starts[moved.comes as usize].push(Act::Fetch(t));
            waits[moved.back as usize].push(Act::Wait(t));
        }
    }
    // What will be made again is dropped, and so is what was made again and is not wanted any more.
    let mut lives: HashMap<u32, Vec<&super::unroll::Life>> = HashMap::new();
    for life in sequence.lives() {
        lives.entry(life.tensor).or_default().push(life);
    }
    for (tensor, lives) in lives {
        for (at, life) in lives.iter().enumerate() {
            let Some(last) = life.uses.last() else { continue };
            if lives.len() > 1 && !base.items[tensor as usize].given {
                let _ = at;
                drops[*last as usize + 1].push(Act::Drop(tensor));
            }
        }
    }
    let mut steps: Vec<Around> = vec![Around::default(); base.calls.len()];
    for place in 0..=places {
        // After the kernel before: what leaves.
        let left = match place.checked_sub(1).map(|before| sequence.kernels[before]) {
            Some((kernel, step)) if kernel == step => Some(&mut steps[step as usize].after),
            _ => sequence.kernels.get(place).map(|(_, step)| &mut steps[*step as usize].before),
        };
        drops[place].sort_unstable_by_key(|act| match act {
            Act::Drop(t) | Act::Evict(t) | Act::Fetch(t) | Act::Wait(t) | Act::Recompute(t) => *t,
        });
        if let Some(left) = left {
            left.append(&mut drops[place]);
            left.append(&mut out[place]);
            if place == places {
                left.append(&mut waits[place]);
            }
        }
        let Some((kernel, step)) = sequence.kernels.get(place) else { break };
        let before = &mut steps[*step as usize].before;
        // Evictions that have to have ended make room for what sets out; what comes for this kernel is waited for last.
        before.append(&mut waits[place]);
        before.append(&mut starts[place]);
        if kernel != step {
            before.push(Act::Recompute(*kernel));
        }
    }
    // What sets out where it is wanted is waited for behind that.
    for around in &mut steps {
        let acts = std::mem::take(&mut around.before);
        let mut late: Vec<Act> = Vec::new();
        let mut ordered: Vec<Act> = Vec::with_capacity(acts.len());
        for (at, act) in acts.iter().enumerate() {
            match act {
                Act::Wait(t)
                    if acts[at..]
                        .iter()
                        .take_while(|a| !matches!(a, Act::Recompute(_)))
                        .any(|a| *a == Act::Fetch(*t)) =>
                {
                    late.push(*act);
                }
                Act::Recompute(_) => {
                    ordered.append(&mut late);
                    ordered.push(*act);
                }
                _ => ordered.push(*act),
            }
        }
        ordered.append(&mut late);
        around.before = ordered;
    }
    away.sort_unstable();
    Schedule {
        net: trace.name.clone(),
        kernels: trace.kernels.len() as u32,
        tensors: trace.tensors.len() as u32,
        fast_bytes: base.limit,
        iteration_ns: flow.time,
        bound_ns: bound.min(flow.time),
        away,
        steps,
        places: None,
    }
}

/// The places of a plan in which every tensor has one, in the words of the original trace.
pub(crate) fn places(plan: &Plan, repeated: &Repeated, machine: &Machine, sequence: &Sequence) -> Places {
    let fast = &machine.tiers[0].name;
    let tensors = &repeated.trace.tensors;
    let named: HashMap<&str, u32> = tensors.iter().zip(0..).map(|(t, at)| (t.name.as_str(), at)).collect();
    let born: HashMap<&str, u64> = plan
        .births
        .iter()
        .filter(|birth| birth.tier == *fast)
        .filter_map(|birth| Some((birth.tensor.as_str(), birth.offset?)))
        .collect();
    let original = |tensor: u32| repeated.tensors[tensor as usize].0;
    let mut places = Places::default();
    let mut seen = vec![false; tensors.len()];
    for (kernel, (origin, step)) in repeated.trace.kernels.iter().zip(&sequence.kernels) {
        for used in kernel.reads.iter().chain(&kernel.writes) {
            let tensor = used.tensor.0;
            if std::mem::replace(&mut seen[tensor as usize], true) {
                continue;
            }
            let Tensor { name, persistent, .. } = &tensors[tensor as usize];
            let Some(offset) = born.get(name.as_str()) else { continue };
            match persistent {
                true => places.begin.push((original(tensor), *offset)),
                false => places.made.push((*step, *origin, original(tensor), *offset)),
            }
        }
    }
    for moved in plan.moves.iter().filter(|moved| moved.to == *fast) {
        let there =
            (named.get(moved.tensor.as_str()), sequence.kernels.get(moved.start as usize), moved.offset);
        if let (Some(tensor), Some((_, step)), Some(offset)) = there {
            places.fetched.push((*step, original(*tensor), offset));
        }
    }
    places
}

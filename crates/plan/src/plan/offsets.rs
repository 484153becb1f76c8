//! Offsets for a plan's tensors: where on each tier they lie, so that what fits by bytes fits in fact.
//!
//! AutoTM plans by live bytes, lets its framework assign addresses, and solves again with a lower limit where they come
//! out too high (section 4.2). Here every stay of a tensor on a tier is a buffer for [`crate::layout`], which packs them
//! close to the peak of live bytes; [`arranged`] keeps the loop for when that is not close enough.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tiercel_core::{Bytes, Machine, TierId};
use tiercel_sim::KernelTime;
use tiercel_workload::Trace;

use crate::layout::{Buffer, LayoutError, Packing};
use crate::model::implementations::{ByWay, widen};
use crate::model::problem::{Formulation, PlanError, Problem};
use crate::plan::verify::{Flaw, Stay, replay, verify};
use crate::plan::{Action, Birth, Plan};
use crate::search::rounds::{Round, pack_rounds};
use crate::search::solve::{Effort, Solution, near, solve_again, solve_warm};
use crate::search::warm::{TIE, WarmStart};

/// A plan with places for its tensors, and how it came about.
#[derive(Clone, Debug)]
pub struct Arranged {
    /// The plan.
    pub plan: Plan,
    /// Whether the search stopped because the plan was good enough.
    pub met: bool,
    /// Whether every tensor has its place; where not, the plan counts bytes only.
    pub packed: bool,
    /// How long all of it took.
    pub time: Duration,
}

/// How often a plan is made anew with less memory because it could not be packed.
const ROUNDS: u32 = 8;
/// The least share of the fastest tier that is given up where something did not fit.
const LEAST: f64 = 5e-3;
/// And the largest, at a time.
const MOST: f64 = 0.05;
/// A plan that can be packed and is this much slower than one that cannot is good enough.
const NEAR: f64 = 5e-3;

/// Plans a trace and gives every tensor its place; memory that cannot be packed is left unused.
pub fn arranged(
    trace: &Trace,
    machine: &Machine,
    times: &dyn KernelTime,
    formulation: Formulation,
    effort: &Effort,
) -> Result<Arranged, PlanError> {
    arranged_anew(trace, machine, times, formulation, effort, &mut WarmStart::default())
}

/// The same, beginning with what plans of the same kind for other amounts of fast memory have taught, and adding to that;
/// trace, machine and times must be the same but for the fastest tier's capacity. With more memory than before the plan is no
/// worse, by more than a thousandth for less to move.
pub fn arranged_anew(
    trace: &Trace,
    machine: &Machine,
    times: &dyn KernelTime,
    formulation: Formulation,
    effort: &Effort,
    known: &mut WarmStart,
) -> Result<Arranged, PlanError> {
    let fast = machine.tiers[0].capacity;
    let started = Instant::now();
    let wide = widen(trace);
    let ways = ByWay(times);
    let mut problem = match &wide {
        Some(wide) => Problem::new(&wide.trace, machine, &ways, formulation)?,
        None => Problem::new(trace, machine, times, formulation)?,
    };
    // Half of the time that is left, so that some is left for another round.
    let share = || {
        let time = (effort.time.saturating_sub(started.elapsed()) / 2).max(effort.time / 20);
        Effort { time, ..*effort }
    };
    let mut solution = solve_warm(&problem, &share(), known.lesson(fast)).ok_or(PlanError::NoPlan)?;
    let lesson = std::mem::take(&mut solution.lesson);
    // What holds with less memory need not hold with all of it.
    let bound = solution.bound;
    let (mut loose, mut best): (Option<Arranged>, Option<Arranged>) = (None, None);
    if let Some(less) = known.less(trace, machine) {
        let plan = Plan { fast_bytes: fast.0, bound_ns: bound, ..less.plan.clone() };
        let met = near(bound, plan.iteration_ns, effort);
        best = Some(Arranged { plan, met, time: started.elapsed(), packed: true });
    }
    for round in 0..ROUNDS {
        let arrange = |solution: &Solution| {
            let planned = wide.as_ref().map_or(trace, |wide| &wide.trace);
            let mut plan = Plan::new(planned, machine, &problem, solution);
            plan.bound_ns = bound;
            let chosen = wide.as_ref().map(|wide| wide.settle(trace, &mut plan, machine));
            let packed = assign(&mut plan, chosen.as_ref().unwrap_or(trace), machine, effort);
            let (time, met) = (started.elapsed(), near(bound, solution.cost, effort));
            (Arranged { plan, met, packed: packed.is_ok(), time }, packed.err())
        };
        let mut keep = |arranged: Arranged| {
            let better = |best: &Arranged| {
                let [ours, theirs] = [&arranged.plan, &best.plan].map(|plan| plan.iteration_ns);
                // What was planned for less memory moves more: for as good as nothing it need not.
                ours < theirs
                    || ours <= theirs * (1.0 + TIE) && moved(&arranged.plan, trace) < moved(&best.plan, trace)
            };
            if best.as_ref().is_none_or(better) {
                best = Some(arranged);
            }
        };
        let (arranged, excess) = arrange(&solution);
        let Some(mut excess) = excess else {
            keep(arranged);
            break;
        };
        loose.get_or_insert(arranged);
        if let Some(hasty) = solution.hasty() {
            let (arranged, left) = arrange(&hasty);
            match left {
                Some(left) => excess = left,
                None => keep(arranged),
            }
        }
        // A plan for less memory takes no less than this one.
        if best.as_ref().is_some_and(|best| best.plan.iteration_ns <= (1.0 + NEAR) * solution.cost) {
            break;
        }
        excess.add(round as f64 * LEAST * machine.tiers[0].capacity.0 as f64);
        if started.elapsed() >= effort.time {
            break;
        }
        problem.narrow(&excess.0);
        let Some(next) = solve_again(&problem, &solution, &share()) else { break };
        solution = next;
    }
    let mut arranged = best.or(loose).ok_or(PlanError::NoPlan)?;
    arranged.time = started.elapsed();
    known.note(fast, &arranged, lesson);
    Ok(arranged)
}

/// The bytes that a plan moves in an iteration.
fn moved(plan: &Plan, trace: &Trace) -> u64 {
    let sizes: BTreeMap<&str, u64> = trace.tensors.iter().map(|t| (t.name.as_str(), t.bytes.0)).collect();
    let moves = plan.moves.iter().filter(|m| matches!(m.action, Action::Move | Action::Fetch));
    moves.filter_map(|m| sizes.get(m.tensor.as_str())).sum()
}

/// The bytes by which tensors did not fit into the fastest tier, step by step.
#[derive(Clone, Debug, PartialEq)]
pub struct Excess(Vec<f64>);

impl Excess {
    /// What of the buffers ends above the capacity, and at least somewhat more than nothing there.
    fn new(buffers: &[Buffer], packing: &Packing, capacity: Bytes, steps: usize) -> Excess {
        let mut bytes = vec![0.0_f64; steps];
        let (least, most) = (capacity.0 as f64 * LEAST, capacity.0 as f64 * MOST);
        for (buffer, offset) in buffers.iter().zip(&packing.offsets) {
            let above = (offset.0 + buffer.size.0).saturating_sub(capacity.0);
            if above > 0 {
                let here = &mut bytes[buffer.lower as usize..(buffer.upper as usize).min(steps)];
                here.iter_mut().for_each(|bytes| *bytes = bytes.max((above as f64).clamp(least, most)));
            }
        }
        Excess(bytes)
    }

    /// Adds bytes at every step.
    fn add(&mut self, bytes: f64) {
        self.0.iter_mut().for_each(|excess| *excess += bytes);
    }
}

/// Gives every stay on a tier that is scarce its offset; otherwise tells by how many bytes, and when, they did not fit.
pub fn assign(plan: &mut Plan, trace: &Trace, machine: &Machine, effort: &Effort) -> Result<(), Excess> {
    let steps = trace.kernels.len();
    let everything = |_| Excess(vec![machine.tiers[0].capacity.0 as f64 * LEAST; steps]);
    let stays = replay(plan, trace, machine).map_err(everything)?;
    let held = held(trace, machine, &stays);
    if held == stays {
        return place(plan, trace, machine, effort, &stays, &held);
    }
    // Who can have other memory should not wait for a kernel beside others.
    place(plan, trace, machine, effort, &stays, &held)
        .or_else(|_| place(plan, trace, machine, effort, &stays, &stays))
}

/// Stays on the fastest tier as memory should be kept for them: where they end with a kernel that runs beside others, it will
/// not have ended before long.
fn held(trace: &Trace, machine: &Machine, stays: &[Stay]) -> Vec<Stay> {
    let mut held = stays.to_vec();
    if machine.detached.is_none() {
        return held;
    }
    for (kernel, boundary) in trace.kernels.iter().zip(1..).filter(|(kernel, _)| kernel.detached) {
        let uses = |stay: &Stay| {
            kernel.reads.iter().chain(&kernel.writes).any(|u| u.tensor.0 as usize == stay.tensor)
        };
        for stay in held.iter_mut().filter(|stay| stay.tier == TierId(0) && stay.to == boundary && uses(stay))
        {
            stay.to = trace.kernels.len() as u32;
        }
    }
    held
}

/// Gives every stay its offset, with memory kept for as long as `held` says.
fn place(
    plan: &mut Plan,
    trace: &Trace,
    machine: &Machine,
    effort: &Effort,
    stays: &[Stay],
    held: &[Stay],
) -> Result<(), Excess> {
    let steps = trace.kernels.len();
    let mut places: Vec<Option<u64>> = vec![None; stays.len()];
    for tier in machine.tier_ids() {
        let capacity = machine.tier(tier).capacity;
        let here: Vec<usize> = (0..stays.len()).filter(|at| stays[*at].tier == tier).collect();
        let total: u64 = here.iter().map(|at| size(trace, machine, stays[*at].tensor)).sum();
        if total <= capacity.0 && tier != TierId(0) {
            continue;
        }
        let (buffers, owners, rounds) = buffers(trace, machine, held, &here);
        let brief = Effort { time: (effort.time / 8).min(PACKING), ..*effort };
        let packed = if total <= capacity.0 {
            // Where there is room for all of them, none has to wait until a copy is done with another's memory.
            let next = |end: &mut u64, buffer: &Buffer| {
                *end += buffer.size.0;
                Some(Bytes(*end - buffer.size.0))
            };
            Ok(buffers.iter().scan(0, next).collect())
        } else {
            pack_rounds(&buffers, &rounds, capacity, &brief)
        };
        match packed {
            Ok(offsets) => {
                for (offset, owners) in offsets.into_iter().zip(owners) {
                    owners.into_iter().for_each(|stay| places[stay] = Some(offset.0));
                }
            }
            Err(LayoutError::DoesNotFit(shortfall)) => {
                return Err(Excess::new(&buffers, &shortfall.best, capacity, steps));
            }
            Err(error) => unreachable!("the stays of a plan are sound buffers: {error}"),
        }
    }
    let mut born: BTreeMap<usize, u64> = BTreeMap::new();
    for (stay, place) in stays.iter().zip(&places) {
        let Some(offset) = *place else { continue };
        match stay.brought {
            Some(index) => plan.moves[index].offset = Some(offset),
            None => _ = born.insert(stay.tensor, offset),
        }
    }
    write_births(plan, trace, machine, stays, &born);
    debug_assert_eq!(verify(plan, trace, machine), Ok(()));
    Ok(())
}

/// The longest that one packing may take.
const PACKING: Duration = Duration::from_secs(3);

pub(crate) fn size(trace: &Trace, machine: &Machine, tensor: usize) -> u64 {
    let bytes = Bytes(trace.tensors[tensor].bytes.0.max(1));
    bytes.round_up(machine.grain()).unwrap_or(bytes).0
}

/// One buffer a stay; the first and the last stay of a tensor that ends where it began are one, which lasts, or is away in
/// between.
fn buffers(
    trace: &Trace,
    machine: &Machine,
    stays: &[Stay],
    here: &[usize],
) -> (Vec<Buffer>, Vec<Vec<usize>>, Vec<Round>) {
    let end = trace.kernels.len() as u32;
    let mut first: BTreeMap<usize, usize> = BTreeMap::new();
    let (mut buffers, mut owners): (Vec<Buffer>, Vec<Vec<usize>>) = (Vec::new(), Vec::new());
    let mut rounds = Vec::new();
    for &at in here {
        let stay = stays[at];
        let persistent = trace.tensors[stay.tensor].persistent;
        if let Some(&known) = first.get(&stay.tensor).filter(|_| persistent && stay.to == end) {
            let away = (buffers[known].upper, u64::from(stay.from));
            if away.0 < away.1 {
                rounds.push(Round { buffer: known, away });
            }
            buffers[known].upper = u64::from(end);
            owners[known].push(at);
            continue;
        }
        if stay.from >= stay.to {
            // It comes and goes at one boundary; give it a moment.
            continue;
        }
        if persistent && stay.brought.is_none() {
            first.insert(stay.tensor, buffers.len());
        }
        let size = Bytes(size(trace, machine, stay.tensor));
        let buffer = Buffer::new(u64::from(stay.from), u64::from(stay.to), size).aligned(machine.grain());
        buffers.push(buffer);
        owners.push(vec![at]);
    }
    (buffers, owners, rounds)
}

/// Writes down where tensors are born, besides those that may be anywhere on the fastest tier.
fn write_births(
    plan: &mut Plan,
    trace: &Trace,
    machine: &Machine,
    stays: &[Stay],
    born: &BTreeMap<usize, u64>,
) {
    plan.births.clear();
    for stay in stays.iter().filter(|stay| stay.brought.is_none()) {
        let offset = born.get(&stay.tensor).copied();
        if stay.tier > TierId(0) || offset.is_some() {
            let tier = machine.tier(stay.tier).name.clone();
            plan.births.push(Birth { tensor: trace.tensors[stay.tensor].name.clone(), tier, offset });
        }
    }
}

/// Where each stay of a tensor on a tier lies, where the plan says.
pub(crate) fn places<'a>(plan: &'a Plan, trace: &'a Trace) -> impl Fn(&Stay) -> Option<u64> + 'a {
    let born: BTreeMap<&str, u64> =
        plan.births.iter().filter_map(|b| Some((b.tensor.as_str(), b.offset?))).collect();
    move |stay| match stay.brought {
        Some(index) => plan.moves[index].offset,
        None => born.get(trace.tensors[stay.tensor].name.as_str()).copied(),
    }
}

/// Makes sure that no two stays with offsets share a byte, and that all end within their tiers.
pub(crate) fn disjoint(plan: &Plan, trace: &Trace, machine: &Machine, stays: &[Stay]) -> Result<(), Flaw> {
    let place = places(plan, trace);
    // Begin and end of each stay, ends first; what is there now lies in a map by offset.
    let mut events: Vec<(u32, bool, usize)> = Vec::new();
    for (at, stay) in stays.iter().enumerate() {
        let Some(offset) = place(stay).filter(|_| stay.from < stay.to) else { continue };
        let end = offset.saturating_add(size(trace, machine, stay.tensor));
        if Bytes(end) > machine.tier(stay.tier).capacity {
            return Err(Flaw::Beyond {
                tensor: trace.tensors[stay.tensor].name.clone(),
                tier: machine.tier(stay.tier).name.clone(),
                end: Bytes(end),
                there: machine.tier(stay.tier).capacity,
            });
        }
        events.push((stay.from, true, at));
        events.push((stay.to, false, at));
    }
    events.sort_unstable();
    let mut there: BTreeMap<(TierId, u64), usize> = BTreeMap::new();
    for (boundary, begins, at) in events {
        let stay = &stays[at];
        let offset = place(stay).expect("only stays with offsets are here");
        if !begins {
            there.remove(&(stay.tier, offset));
            continue;
        }
        let end = offset + size(trace, machine, stay.tensor);
        let below = there.range(..(stay.tier, end)).next_back();
        let clash = below.filter(|((tier, start), other)| {
            *tier == stay.tier && start + size(trace, machine, stays[**other].tensor) > offset
        });
        if let Some(((_, start), other)) = clash {
            return Err(Flaw::Overlap {
                step: boundary,
                tensor: trace.tensors[stay.tensor].name.clone(),
                other: trace.tensors[stays[*other].tensor].name.clone(),
                tier: machine.tier(stay.tier).name.clone(),
                offset: Bytes((*start).max(offset)),
            });
        }
        there.insert((stay.tier, offset), at);
    }
    Ok(())
}

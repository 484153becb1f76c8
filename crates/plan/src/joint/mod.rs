//! Keep, move, or run again: one plan for all three, for a trace from anywhere.
//!
//! [`joint`] is given a trace, a machine whose fastest tier's capacity is the limit, kernel times, and a [`Request`]. It returns
//! a [`Joint`]: the rewritten trace ([`Repeated`], with for each of its kernels the kernel of the original that it is or
//! repeats, and for each of its tensors the tensor of the original), an ordinary [`Plan`] for that trace, which is verified,
//! simulated and played like any other, and the same as a [`Schedule`]: for each step of the *original* trace what to fetch, wait
//! for, recompute, evict and drop, by the original's tensor and kernel numbers, for a runtime that goes operation by operation.
//!
//! Which kernels may be run again is the trace's word ([`tiercel_workload::repeat`]). A tensor is dropped between two uses
//! and made again just before the second, from what is there then; what is not there is made again, too, so chains are as long as
//! they must be, and what they hold in memory is charged. Where the tier behind the fast one cannot hold all that is away, what is
//! away longest goes on to a tier behind that one, and comes back the same way. Kernels work on the fastest tier alone: machines whose slower tiers
//! kernels can use have better planners here ([`crate::arranged`]).
//!
//! ```text
//! base      the trace as numbers; a decision for each gap between two uses
//! unroll    choices → the sequence of kernels, with what is made again
//! flow      when copies set out and have to have ended; the time; the memory
//! search    greedy starts, then changes judged by unroll and flow
//! bound     what no such plan takes less than
//! write     the plan and the schedule
//! ```

mod base;
mod bound;
mod flow;
mod schedule;
mod search;
mod unroll;
mod write;

use std::time::{Duration, Instant};

use tiercel_core::{Bytes, Machine, TierId};
use tiercel_sim::KernelTime;
use tiercel_workload::repeated::Repeated;
use tiercel_workload::{Lifetimes, Trace};

use crate::model::problem::PlanError;
use crate::plan::Plan;
use crate::plan::offsets::{Excess, assign};
use crate::plan::verify::verify;
use crate::search::solve::Effort;
use base::{Base, Tiers};
use search::{Allowed, Found, Searcher, better};

pub use schedule::{Act, Around, Places, Schedule};

/// What is asked of the joint planner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// Whether tensors may move.
    pub moves: bool,
    /// Whether kernels may run again.
    pub again: bool,
    /// Whether whoever plays the plan can put generators of random numbers back to where they were, so that kernels that
    /// are `seeded` may run again.
    pub seeded: bool,
    /// Whether every tensor is to have its place in fast memory; otherwise bytes are counted alone, as for a runtime that has an
    /// allocator of its own.
    pub places: bool,
    /// The changes after which the search ends, however fast the machine is.
    pub rounds: u64,
    /// The time after which the best plan so far is taken.
    pub time: Duration,
    /// Where randomness starts.
    pub seed: u64,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            moves: true,
            again: true,
            seeded: true,
            places: true,
            rounds: u64::MAX,
            time: Duration::from_secs(10),
            seed: 0,
        }
    }
}

/// A joint plan.
#[derive(Clone, Debug)]
pub struct Joint {
    /// The trace that it is for, and where its kernels and tensors come from.
    pub repeated: Repeated,
    /// The plan for that trace.
    pub plan: Plan,
    /// The same, step by step of the original.
    pub schedule: Schedule,
    /// Whether every tensor has its place; where not, the plan counts bytes only.
    pub packed: bool,
    /// The nanoseconds of kernels that run again.
    pub again_ns: f64,
    /// How many plans were judged.
    pub judged: u64,
    /// How long planning took.
    pub time: Duration,
}

/// The part of the time for each of moving alone and running again alone, which the joint plan must not lose to.
const APART: f64 = 0.06;
/// The part of the time for the first plan of all.
const STARTS: f64 = 0.2;
/// The part of the time in which it is found out whether a slow tier is worth going to.
const PASSING: f64 = 0.05;
/// How often memory is given up because tensors did not find their places, and how much more of it is everywhere each time.
const ROUNDS: usize = 9;
const MORE: f64 = 0.004;
/// The part of the time after which the search ends, so that some is left for places.
const SEARCH: f64 = 0.45;
/// The same where bytes are counted alone.
const COUNTED: f64 = 0.95;
/// The part of the time after which the last search ends, where places are there for a plan and a better one is looked for.
const LAST: f64 = 0.95;
/// The part of the time in which a plan is mended for less memory.
const SLICE: f64 = 0.05;
/// A packing gets this part of the time, as a divisor of it, times the packer's own divisor.
const PACKINGS: u32 = 2;

/// Plans a trace: which tensors stay, move, or are made again, so that an iteration takes least with so much fast memory.
pub fn joint(
    trace: &Trace,
    machine: &Machine,
    times: &dyn KernelTime,
    request: &Request,
) -> Result<Joint, PlanError> {
    let started = Instant::now();
    trace.check().map_err(|error| PlanError::Trace(error.to_string()))?;
    trace.check_tiers(machine.tiers.len()).map_err(|error| PlanError::Trace(error.to_string()))?;
    let moves = request.moves && machine.tiers.len() > 1;
    let allowed = Allowed { moves, again: request.again };
    let [near, far] = tiers(trace, machine).map(|tiers| {
        let base = Base::new(trace, machine, times, tiers, request.seeded);
        (tiers, base)
    });
    feasible(&near.1, trace, machine)?;
    // A slow tier that is small is passed by.
    let first = |base: &Base| {
        Searcher::new(base, request.seed, deadline(started, request.time.mul_f64(PASSING))).start(allowed)
    };
    let passes = near.0.deep.is_some() && {
        let cost = |base: &Base| first(base).map_or(f64::INFINITY, |found| found.cost);
        cost(&far.1) < cost(&near.1)
    };
    let (tiers, whole) = if passes { far } else { near };
    let bound = bound::bound(&whole, allowed);
    let (found, judged) = search(&whole, allowed, request, started);
    let mut best = found.filter(|found| found.fits).ok_or(PlanError::NoPlan)?;
    // Memory is given up where tensors did not find their places, until they do; then a better plan for the rest is sought.
    let (mut loose, mut packed): (Option<Joint>, Option<Joint>) = (None, None);
    let mut base = whole;
    for round in 0..ROUNDS {
        let mut searcher =
            Searcher::new(&base, request.seed, deadline(Instant::now(), request.time.mul_f64(SLICE)));
        if round > 0 {
            if packed.is_some() {
                searcher.until(deadline(started, request.time.mul_f64(LAST)));
            } else {
                let Some(found) = searcher.repair(best.clone(), allowed) else { break };
                best = found;
            }
            best = searcher.improve(best, allowed, request.rounds);
        }
        if searcher.judge(&best.choices).is_none() || searcher.flow.excess > 0 {
            break;
        }
        let (written, excess) =
            write_down(trace, machine, tiers, (&base, &mut searcher), (bound, judged), request, started)?;
        let Some(excess) = excess else {
            let better = packed.as_ref().is_none_or(|old| written.plan.iteration_ns < old.plan.iteration_ns);
            let last = packed.is_some() || round == 0 || !request.places;
            if better {
                packed = Some(written);
            }
            if last {
                break;
            }
            continue;
        };
        loose.get_or_insert(written);
        if packed.is_some() || started.elapsed() >= request.time {
            break;
        }
        let kernels = std::mem::take(&mut searcher.sequence.kernels);
        give_up(&mut base, &kernels, &excess, round);
    }
    packed.or(loose).ok_or(PlanError::NoPlan)
}

/// Gives memory up where tensors did not find their places: there, and everywhere a little more from round to round.
fn give_up(base: &mut Base, kernels: &[(u32, u32)], excess: &Excess, round: usize) {
    if excess.tier > TierId(0) {
        if let Some(behind) = &mut base.behind {
            behind.capacity -= (behind.capacity as f64 * MORE) as u64;
        }
        return;
    }
    let mut least: Vec<u64> = vec![0; base.spare.len()];
    for ((_, step), bytes) in kernels.iter().zip(&excess.bytes) {
        least[*step as usize] = least[*step as usize].max(*bytes as u64);
    }
    let more = (base.limit as f64 * MORE * round as f64) as u64;
    base.spare.iter_mut().zip(least).for_each(|(spare, least)| *spare += least + more);
}

/// Searches with what is allowed, and with each part of that alone.
fn search(base: &Base, allowed: Allowed, request: &Request, started: Instant) -> (Option<Found>, u64) {
    let both = allowed.moves && allowed.again;
    let part = |share: f64| deadline(started, request.time.mul_f64(share));
    let mut searcher = Searcher::new(base, request.seed, part(STARTS));
    let mut best = searcher.start(allowed);
    if both {
        let mut share = STARTS;
        for alone in [Allowed { moves: true, again: false }, Allowed { moves: false, again: true }] {
            share += APART;
            searcher.until(part(share));
            let found = searcher.start(alone);
            best = better(best, found);
        }
    }
    searcher.until(part(if request.places { SEARCH } else { COUNTED }));
    let found = best.map(|best| searcher.improve(best, allowed, request.rounds));
    (found, searcher.evaluations)
}

/// When so much time will be over; far from now where that is beyond what clocks can tell.
fn deadline(started: Instant, time: Duration) -> Instant {
    started.checked_add(time).unwrap_or(started + FAR)
}

const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The tiers that tensors leave for: the next one, and behind it the nearest that holds them all; or that one alone.
fn tiers(trace: &Trace, machine: &Machine) -> [Tiers; 2] {
    let peak = Lifetimes::new(trace).peak().1;
    let wanted = Bytes(peak.0.saturating_sub(machine.tiers[0].capacity.0).saturating_mul(2));
    let enough = machine.tier_ids().skip(1).find(|tier| machine.tier(*tier).capacity >= wanted);
    let (near, last) = (TierId(1.min(machine.slowest().0)), enough.unwrap_or(machine.slowest()));
    [Tiers { near, deep: (last > near).then_some(last) }, Tiers { near: last, deep: None }]
}

/// Every kernel's operands fit.
fn feasible(base: &Base, trace: &Trace, machine: &Machine) -> Result<(), PlanError> {
    let wanted = |call: &base::Call| call.touches.iter().map(|t| base.items[*t as usize].bytes).sum::<u64>();
    let largest = base.calls.iter().enumerate().max_by_key(|(_, call)| wanted(call));
    match largest {
        Some((step, call)) if wanted(call) > base.limit => Err(PlanError::TooTight {
            kernel: trace.kernels[step].name.clone(),
            step: tiercel_core::Step(step as u32),
            tier: machine.tiers[0].name.clone(),
            limit: machine.tiers[0].capacity,
            least: Bytes(wanted(call)),
        }),
        _ => Ok(()),
    }
}

/// Writes a plan down, with places where they are wanted.
fn write_down(
    trace: &Trace,
    machine: &Machine,
    tiers: Tiers,
    (base, searcher): (&Base, &mut Searcher<'_>),
    (bound, judged): (f64, u64),
    request: &Request,
    started: Instant,
) -> Result<(Joint, Option<Excess>), PlanError> {
    if request.places {
        searcher.flow.hasten();
        searcher.flow.spread(base, &searcher.sequence);
    }
    let (sequence, flow) = (&searcher.sequence, &searcher.flow);
    let repeated = write::rewritten(trace, sequence).map_err(|error| PlanError::Trace(error.to_string()))?;
    let mut plan = write::plan(&repeated, machine, tiers, (sequence, flow), bound);
    let effort = Effort { time: request.time / PACKINGS, seed: request.seed, ..Effort::default() };
    let excess = request.places.then(|| assign(&mut plan, &repeated.trace, machine, &effort).err()).flatten();
    let packed = request.places && excess.is_none();
    verify(&plan, &repeated.trace, machine).map_err(|flaw| PlanError::Trace(flaw.to_string()))?;
    let mut schedule = write::schedule(trace, base, sequence, flow, bound);
    schedule.places = packed.then(|| write::places(&plan, &repeated, machine, sequence));
    let (again_ns, time) = (sequence.again, started.elapsed());
    Ok((Joint { repeated, plan, schedule, packed, again_ns, judged, time }, excess))
}

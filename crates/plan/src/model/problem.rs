//! The planning problem as numbers: tensors with their uses, kernels with a time for every placement, capacities.
//!
//! This is AutoTM's problem (section 3) in the form that the solvers share. It differs from the paper's integer
//! program in what it leaves out because it is no decision: tensors too small to matter stay in fast memory, and a
//! placement that could never fit is not offered.

use tiercel_core::{Bytes, Machine, Step, TierId};
use tiercel_sim::KernelTime;
use tiercel_workload::trace::Use;
use tiercel_workload::{Lifetimes, TensorId, Trace};

use crate::bound::paths::States;
use crate::model::lanes::Lanes;
use crate::search::scope::{Scope, stretch};

/// Whether tensors may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Formulation {
    /// Every tensor stays where it is born (AutoTM's *static*).
    Static,
    /// Tensors move between kernels, and the program waits (AutoTM's *synchronous*).
    Synchronous,
    /// Tensors move while kernels run (AutoTM's *asynchronous*, section 7, without its limit of one kernel).
    Asynchronous,
}

/// One use of a tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    /// The kernel.
    pub(crate) step: u32,
    /// Which of the kernel's placed operands the tensor is; those behind the table's are the kernel's others.
    pub(crate) operand: u16,
    /// Whether the kernel changes it, so that other copies become stale.
    pub(crate) writes: bool,
}

/// A tensor whose place is a decision.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) tensor: TensorId,
    /// Its size, in whole grains.
    pub(crate) bytes: u64,
    pub(crate) visits: Vec<Visit>,
    /// It exists before the first kernel and after the last, so it ends where it began.
    pub(crate) persistent: bool,
    /// It exists from the first kernel on although no kernel makes it.
    pub(crate) fed: bool,
    /// It stands for a choice: its kernel runs wherever it is.
    pub(crate) choice: bool,
    /// Where it must be in any plan: a tier, and from which step up to which.
    pub(crate) needs: Vec<(usize, usize, usize)>,
}

/// A kernel with a time for every placement of its operands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    /// The placed operands, as positions in [`Problem::items`].
    pub(crate) items: Vec<u32>,
    /// Nanoseconds by placement: the tier of operand `i` counts `tiers^i`. Placements that do not fit are infinite.
    pub(crate) times: Vec<f64>,
    /// Of a kernel with more operands than a table can list, the smallest: what each adds on each tier, alone.
    pub(crate) others: Vec<Vec<f64>>,
    /// Whether a listed operand on a faster tier never makes it slower, or not fit.
    pub(crate) ordered: bool,
}

impl Call {
    /// The placement that takes the least time of all that fit.
    pub(crate) fn fastest(&self) -> usize {
        let times = self.times.iter().enumerate();
        times.min_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(placement, _)| placement)
    }
}

/// The planning problem as numbers.
#[derive(Clone, Debug)]
pub struct Problem {
    pub(crate) formulation: Formulation,
    pub(crate) tiers: usize,
    pub(crate) items: Vec<Item>,
    pub(crate) calls: Vec<Call>,
    /// For each tier, the bytes that items may take at each step; none where they all fit anyway.
    pub(crate) room: Vec<Option<Vec<f64>>>,
    /// The same without what the small tensors take: a bound that ignores them still holds.
    pub(crate) bound_room: Vec<Option<Vec<f64>>>,
    /// Nanoseconds a byte from one tier to another.
    pub(crate) copy: Vec<Vec<f64>>,
    /// Nanoseconds that every copy costs at the least.
    pub(crate) latency: Vec<Vec<f64>>,
    /// The smallest fast memory for which the largest kernel has a placement.
    pub(crate) least: Bytes,
    /// What copies can do while kernels run, where they may.
    pub(crate) lanes: Option<Lanes>,
}

/// Why there is nothing to plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A kernel cannot run in so little memory.
    #[error("{kernel} ({step}) cannot work with {limit} of {tier}; all kernels can with {least}")]
    TooTight {
        /// The kernel's name.
        kernel: String,
        /// When it runs.
        step: Step,
        /// The tier whose limit is too low.
        tier: String,
        /// The limit that was asked for.
        limit: Bytes,
        /// The smallest limit with which every kernel can run.
        least: Bytes,
    },
    /// All tiers together are too small.
    #[error("the tensors alive at {step} take {wanted}; the tiers hold {there}")]
    TooSmall {
        /// When the most is alive.
        step: Step,
        /// What is alive then.
        wanted: Bytes,
        /// What the tiers hold.
        there: Bytes,
    },
    /// The search found no plan at all.
    #[error("no plan was found in the time given")]
    NoPlan,
    /// The trace itself is wrong.
    #[error("{0}")]
    Trace(String),
}

/// Tensors that together take no more than this share of the fastest tier are not worth a decision.
const NEGLIGIBLE: f64 = 5e-4;
/// The most placements that a kernel's table lists.
const TABLE: usize = 4096;

impl Problem {
    /// Reads the problem off a trace and a machine; capacities are the machine's.
    pub fn new(
        trace: &Trace,
        machine: &Machine,
        times: &dyn KernelTime,
        formulation: Formulation,
    ) -> Result<Problem, PlanError> {
        trace.check().map_err(|error| PlanError::Trace(error.to_string()))?;
        trace.check_tiers(machine.tiers.len()).map_err(|error| PlanError::Trace(error.to_string()))?;
        let lifetimes = Lifetimes::new(trace);
        let tiers = machine.tiers.len();
        let placed = decisions(trace, machine, &lifetimes);
        let mut index = vec![u32::MAX; trace.tensors.len()];
        let mut items: Vec<Item> = Vec::with_capacity(placed.len());
        for id in placed {
            let tensor = trace.tensor(id);
            index[id.0 as usize] = items.len() as u32;
            items.push(Item {
                tensor: id,
                bytes: rounded(tensor.bytes, machine).0,
                visits: Vec::new(),
                persistent: tensor.persistent,
                fed: tensor.role == tiercel_workload::trace::Role::Input && !tensor.persistent,
                choice: false,
                needs: Vec::new(),
            });
        }
        let mut problem = Problem {
            formulation,
            tiers,
            calls: Vec::with_capacity(trace.kernels.len()),
            room: rooms(trace, machine, &lifetimes, &index, true),
            bound_room: rooms(trace, machine, &lifetimes, &index, false),
            copy: between(machine, |link| 1e9 / link.speed().0),
            latency: between(machine, |link| link.latency.0 as f64),
            items,
            least: Bytes::ZERO,
            lanes: None,
        };
        for step in 0..trace.kernels.len() {
            problem.call(trace, machine, times, &index, step);
        }
        problem.check(trace, machine, &lifetimes)?;
        if formulation == Formulation::Asynchronous {
            problem.lanes = Some(Lanes::new(&problem, trace, machine));
        }
        let mut scope = Scope::root(&problem, &States::new(&problem));
        if scope.tighten(&problem) {
            for at in 0..problem.items.len() {
                problem.items[at].needs = scope.needs(&problem, at);
            }
        }
        Ok(problem)
    }

    /// Takes bytes of the fastest tier away, step by step.
    pub(crate) fn narrow(&mut self, bytes: &[f64]) {
        let Some(room) = &mut self.room[0] else { return };
        room.iter_mut().zip(bytes).for_each(|(room, bytes)| *room = (*room - bytes).max(0.0));
    }

    /// The smallest fastest tier with which every kernel can run.
    pub fn least_fast(&self) -> Bytes {
        self.least
    }

    /// How many tensors have a place that is a decision.
    pub fn decisions(&self) -> usize {
        self.items.len()
    }

    /// The time with every tensor on one tier, however little room that has.
    pub fn uniform(trace: &Trace, machine: &Machine, times: &dyn KernelTime, tier: TierId) -> f64 {
        let time = |kernel: &tiercel_workload::Kernel| {
            let tiers = vec![tier; kernel.reads.len() + kernel.writes.len()];
            times.chosen(machine, kernel, &tiers).0 as f64
        };
        trace.kernels.iter().map(time).sum()
    }

    /// Adds the kernel at a step: its placed operands, and its time for every placement.
    fn call(&mut self, trace: &Trace, machine: &Machine, times: &dyn KernelTime, index: &[u32], step: usize) {
        let kernel = &trace.kernels[step];
        let slots: Vec<u32> =
            kernel.reads.iter().chain(&kernel.writes).map(|u| index[u.tensor.0 as usize]).collect();
        let mut operands: Vec<u32> = slots.iter().copied().filter(|item| *item != u32::MAX).collect();
        operands.sort_unstable();
        operands.dedup();
        // The largest first: where a table would be too long, the smallest are left out of it.
        operands.sort_by_key(|item| std::cmp::Reverse(self.items[*item as usize].bytes));
        let mut most = operands.len();
        while self.tiers.saturating_pow(most as u32) > TABLE {
            most -= 1;
        }
        let (listed, rest) = operands.split_at(most);
        let mut tiers = vec![TierId(0); slots.len()];
        let touched = slots.len() - times.untouched(kernel);
        for item in slots[touched..].iter().filter(|item| **item != u32::MAX) {
            self.items[*item as usize].choice = true;
        }
        // What runs beside the others takes none of their time.
        let detached = kernel.detached && machine.detached.is_some();
        let mut time = |tier_of: &dyn Fn(u32) -> usize| {
            for (tier, item) in tiers.iter_mut().zip(&slots) {
                *tier = TierId(tier_of(*item) as u8);
            }
            let mut places = tiers[..touched].iter().zip(kernel.reads.iter().chain(&kernel.writes));
            let works = |(tier, u): (&TierId, &Use)| {
                machine.tier(*tier).serves(u.bytes, trace.tensor(u.tensor).bytes)
            };
            match places.all(works) {
                true if detached => 0.0,
                true => times.chosen(machine, kernel, &tiers).0 as f64,
                false => f64::INFINITY,
            }
        };
        let mut table = Vec::with_capacity(self.tiers.pow(most as u32));
        for placement in 0..self.tiers.pow(most as u32) {
            let fits = (0..self.tiers).all(|tier| {
                let bytes = |(operand, item): (usize, &u32)| {
                    let here = self.digit(placement, operand) == tier;
                    if here { self.items[*item as usize].bytes as f64 } else { 0.0 }
                };
                let taken: f64 = listed.iter().enumerate().map(bytes).sum();
                self.room[tier].as_ref().is_none_or(|room| taken <= room[step])
            });
            let tier_of = |item: u32| match listed.iter().position(|listed| *listed == item) {
                Some(operand) => self.digit(placement, operand),
                None => 0,
            };
            table.push(if fits { time(&tier_of) } else { f64::INFINITY });
        }
        let fastest = time(&|_| 0);
        let mut alone =
            |other: u32, tier: usize| time(&|item| if item == other { tier } else { 0 }) - fastest;
        let others = rest.iter().map(|item| (0..self.tiers).map(|tier| alone(*item, tier)).collect());
        let others: Vec<Vec<f64>> = others.collect();
        let writes = |item: u32| kernel.writes.iter().any(|u: &Use| index[u.tensor.0 as usize] == item);
        for (operand, item) in operands.iter().enumerate() {
            let visit = Visit { step: step as u32, operand: operand as u16, writes: writes(*item) };
            self.items[*item as usize].visits.push(visit);
        }
        let no_slower = |placement: usize, operand: usize| {
            let faster = placement - self.tiers.pow(operand as u32);
            table[faster] <= table[placement]
        };
        let ordered = (0..table.len()).all(|placement| {
            let mut moved = (0..most).filter(|operand| self.digit(placement, *operand) > 0);
            moved.all(|operand| no_slower(placement, operand))
        });
        self.calls.push(Call { items: listed.to_vec(), times: table, others, ordered });
    }

    /// The synchronous problem with kernel times, copies towards slower tiers and copies towards faster ones weighted.
    pub(crate) fn weighted(&self, kernels: f64, out: f64, back: f64) -> Problem {
        let mut weighted = Problem { formulation: Formulation::Synchronous, lanes: None, ..self.clone() };
        for call in &mut weighted.calls {
            call.times.iter_mut().chain(call.others.iter_mut().flatten()).for_each(|time| *time *= kernels);
        }
        let lanes = (self.tiers * (self.tiers - 1) / 2).max(1) as f64;
        for from in 0..self.tiers {
            for to in 0..self.tiers {
                let weight = if to > from { out } else { back } / lanes;
                // What a copy takes from kernels, it takes on whichever link.
                let taken = self.lanes.as_ref().map_or(0.0, |lanes| lanes.taken(from, to));
                weighted.copy[from][to] *= weight + kernels * taken;
                weighted.latency[from][to] *= weight;
            }
        }
        weighted
    }

    /// Whether copies keep cores busy that kernels want.
    pub(crate) fn takes_cores(&self) -> bool {
        let pairs = (0..self.tiers).flat_map(|from| (0..self.tiers).map(move |to| (from, to)));
        self.lanes.as_ref().is_some_and(|lanes| pairs.clone().any(|(from, to)| lanes.taken(from, to) > 0.0))
    }

    /// What a use costs that the kernel's table does not list, with its tensor on a tier.
    pub(crate) fn other(&self, visit: &Visit, tier: usize) -> Option<f64> {
        let call = &self.calls[visit.step as usize];
        let other = usize::from(visit.operand).checked_sub(call.items.len())?;
        Some(call.others[other][tier])
    }

    /// The tier of an operand in a placement.
    pub(crate) fn digit(&self, placement: usize, operand: usize) -> usize {
        placement / self.tiers.pow(operand as u32) % self.tiers
    }

    /// The bytes of all tensors that are alive and used, at each step.
    fn live(&self) -> Vec<u64> {
        let steps = self.calls.len();
        let mut live = Sums::new(steps);
        for item in self.items.iter().filter(|item| !item.visits.is_empty() && !item.choice) {
            let first = stretch(item, 0, steps).0;
            let end = stretch(item, 2 * item.visits.len(), steps).1;
            live.add(first, end, item.bytes);
        }
        live.each()
    }

    /// Refuses what no plan could satisfy.
    fn check(&mut self, trace: &Trace, machine: &Machine, lifetimes: &Lifetimes) -> Result<(), PlanError> {
        let everything: Bytes = machine.tiers.iter().map(|t| t.capacity).sum();
        let (step, peak) = lifetimes.peak();
        if peak > everything {
            return Err(PlanError::TooSmall { step, wanted: peak, there: everything });
        }
        let live = self.live();
        let computable = |tier: usize| machine.tiers[tier].computable;
        let elsewhere = (1..self.tiers).any(computable);
        if !elsewhere {
            let working_set = |call: &Call| -> u64 {
                let items = call.items.iter().map(|i| &self.items[*i as usize]);
                items.filter(|item| !item.choice).map(|item| item.bytes).sum()
            };
            let small = |step: usize| match &self.room[0] {
                Some(room) => machine.tiers[0].capacity.0 as f64 - room[step],
                None => 0.0,
            };
            // What cannot move must stay where kernels can work as long as it lives.
            let used = match self.formulation {
                Formulation::Static => live.clone(),
                Formulation::Synchronous | Formulation::Asynchronous => {
                    self.calls.iter().map(working_set).collect()
                }
            };
            let needs = used.iter().enumerate().map(|(step, used)| used + small(step) as u64);
            self.least = Bytes(needs.max().unwrap_or(0));
        }
        let short = |step: usize| {
            let stays = !elsewhere && self.formulation == Formulation::Static;
            let room = self.room[0].as_ref().filter(|_| stays);
            room.is_some_and(|room| live[step] as f64 > room[step])
        };
        let impossible =
            |(step, call): (usize, &Call)| call.times.iter().all(|time| time.is_infinite()) || short(step);
        let stuck = self.calls.iter().enumerate().position(impossible);
        match stuck {
            None => Ok(()),
            Some(step) => Err(PlanError::TooTight {
                kernel: trace.kernels[step].name.clone(),
                step: Step(step as u32),
                tier: machine.tiers[0].name.clone(),
                limit: machine.tiers[0].capacity,
                least: self.least,
            }),
        }
    }
}

/// Bytes over time, added up stretch by stretch.
struct Sums(Vec<i128>);

impl Sums {
    fn new(steps: usize) -> Sums {
        Sums(vec![0; steps + 1])
    }

    /// Adds bytes from one step up to another.
    fn add(&mut self, from: usize, to: usize, bytes: u64) {
        self.0[from] += i128::from(bytes);
        self.0[to] -= i128::from(bytes);
    }

    /// The bytes at each step.
    fn each(self) -> Vec<u64> {
        let steps = self.0.len() - 1;
        let mut sum = 0;
        let sums = self.0.into_iter().take(steps).map(|change| {
            sum += change;
            sum as u64
        });
        sums.collect()
    }
}

fn rounded(bytes: Bytes, machine: &Machine) -> Bytes {
    Bytes(bytes.0.max(1)).round_up(machine.grain()).unwrap_or(bytes)
}

/// The tensors whose place is a decision: all but the smallest, as long as those take next to nothing together.
fn decisions(trace: &Trace, machine: &Machine, lifetimes: &Lifetimes) -> Vec<TensorId> {
    let mut ids: Vec<TensorId> =
        (0..trace.tensors.len() as u32).map(TensorId).filter(|id| lifetimes.of(*id).is_some()).collect();
    ids.sort_by_key(|id| trace.tensor(*id).bytes);
    let most = machine.tiers[0].capacity.0 as f64 * NEGLIGIBLE;
    let mut taken = 0.0;
    let small = ids.iter().position(|id| {
        // Bytes of all small tensors together bound what is alive of them at any step.
        taken += rounded(trace.tensor(*id).bytes, machine).0 as f64;
        taken > most
    });
    let mut large = ids.split_off(small.unwrap_or(ids.len()));
    large.sort_unstable();
    large
}

/// For each tier, the bytes that there are at each step for tensors whose place is a decision.
fn rooms(
    trace: &Trace,
    machine: &Machine,
    lifetimes: &Lifetimes,
    index: &[u32],
    small_count: bool,
) -> Vec<Option<Vec<f64>>> {
    let steps = trace.kernels.len();
    let mut live = Sums::new(steps);
    let mut small = Sums::new(steps);
    for (at, tensor) in trace.tensors.iter().enumerate() {
        let Some(life) = lifetimes.of(TensorId(at as u32)) else { continue };
        let bytes = rounded(tensor.bytes, machine).0;
        let to = if index[at] == u32::MAX { &mut small } else { &mut live };
        let (first, last) =
            if tensor.persistent { (0, steps - 1) } else { (life.birth.0 as usize, life.last.0 as usize) };
        to.add(first, last + 1, bytes);
    }
    let (live, small) = (live.each(), small.each());
    let peak = live.iter().zip(&small).map(|(a, b)| a + b).max().unwrap_or(0) as f64;
    let tiers = machine.tiers.iter().enumerate();
    tiers
        .map(|(tier, t)| {
            let capacity = (t.capacity.0 / machine.grain().0 * machine.grain().0) as f64;
            // Copies that are left behind count too, so twice the peak is always enough.
            let plenty = if tier == 0 { peak } else { 2.0 * peak };
            (capacity < plenty).then(|| {
                let taken = |step: usize| if tier == 0 && small_count { small[step] as f64 } else { 0.0 };
                (0..steps).map(|step| (capacity - taken(step)).max(0.0)).collect()
            })
        })
        .collect()
}

fn between(machine: &Machine, figure: impl Fn(&tiercel_core::Link) -> f64) -> Vec<Vec<f64>> {
    let to = |from: TierId| {
        let figures = machine.tier_ids().map(|to| machine.link(from, to).map_or(0.0, &figure));
        figures.collect()
    };
    machine.tier_ids().map(to).collect()
}

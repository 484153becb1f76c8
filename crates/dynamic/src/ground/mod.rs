//! The ground on which rivals meet: one simulated card, one step after the other, each with the trace that its sample makes.
//!
//! The clock, the links and the kernels are the house's simulated world (`tiercel_sim`); what is here is the memory of the
//! card, in bytes: tensors come, leave, are dropped and are made again, and whatever a kernel lacks is served on demand, so a
//! wrong guess costs time and nothing else. Fragmentation is not simulated. Parameters and what the optimizer remembers of
//! them stay where a step leaves them; the first step finds them in host memory. The executor of `tiercel_run` plays one
//! trace over and over and has no kernel that runs again; here every step has another trace, and a plan may be
//! for a trace that does not come.

mod dtr;
mod rivals;

use std::fmt;

use tiercel_core::{Backend, Bytes, CopyOrder, Machine, Nanos, Place, Step, Ticket, TierId, Traffic};
use tiercel_profile::Model;
use tiercel_sim::{Sim, Work};
use tiercel_workload::trace::{Role, Timing};
use tiercel_workload::{Kernel, Lifetimes, TensorId, Trace};

pub use dtr::Dtr;
pub use rivals::{Blocked, Demand, LayerByLayer, Plan, Planned, ZeroOffload, alike};

const FAST: TierId = TierId(0);
const SLOW: TierId = TierId(1);

/// What one fault of unified memory brings.
const PAGE: u64 = 64 << 10;

/// What a step took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// All of it.
    pub time: Nanos,
    /// Kernels, each once.
    pub compute: Nanos,
    /// Kernels that ran again.
    pub again: Nanos,
    /// Waiting for copies.
    pub stall: Nanos,
    /// Bytes that came to the card.
    pub fetched: Bytes,
    /// Bytes that left it.
    pub evicted: Bytes,
    /// Tensors that a kernel had to ask for.
    pub missed: u32,
}

/// A step cannot be run in so little memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// The kernel.
    pub kernel: String,
    /// What it lacks.
    pub lacks: Bytes,
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lacks {}", self.kernel, self.lacks)
    }
}

/// Who leaves when memory is short.
#[derive(Clone, Debug, PartialEq)]
pub enum Victims {
    /// What was used longest ago.
    Oldest,
    /// What will be used last, as far as is believed.
    Farthest {
        /// When tensors will be used.
        lives: std::sync::Arc<Lifetimes>,
        /// Of how many tensors that is known.
        known: usize,
    },
    /// Nobody leaves: what is cheapest to make again for its size and age is dropped.
    Dropped,
}

/// A system on this ground.
pub trait Rival {
    /// A step begins: nothing of its trace has run.
    fn begin(&mut self, play: &mut Play<'_>) -> Result<(), Short> {
        let _ = play;
        Ok(())
    }

    /// A kernel comes next.
    fn before(&mut self, play: &mut Play<'_>, step: usize) -> Result<(), Short> {
        let _ = (play, step);
        Ok(())
    }

    /// Runs the kernel of a step.
    fn run(&mut self, play: &mut Play<'_>, step: usize) -> Result<(), Short> {
        play.run(step, false)
    }

    /// A kernel has ended.
    fn after(&mut self, play: &mut Play<'_>, step: usize) -> Result<(), Short> {
        let _ = (play, step);
        Ok(())
    }
}

/// A tensor.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    bytes: u64,
    /// It has memory on the card.
    fast: bool,
    /// The host has its bytes, too.
    copy: bool,
    coming: Option<Ticket>,
    leaving: Option<Ticket>,
    locks: u16,
    /// When it was used last, in kernels and in time.
    used: u64,
    at: u64,
}

/// The card between steps.
pub struct Ground {
    machine: Machine,
    sim: Sim,
    limit: u64,
    /// The tensors that outlive steps: the first ones of every trace.
    lasting: Vec<Slot>,
    model: Model,
    turn: u64,
}

impl Ground {
    /// A card with so much memory, before the first step.
    pub fn new(machine: &Machine, model: &Model, limit: Bytes) -> Ground {
        Ground {
            sim: Sim::with_times(machine.clone(), model.clone()),
            machine: machine.clone(),
            model: model.clone(),
            limit: limit.0,
            lasting: Vec::new(),
            turn: 0,
        }
    }

    /// Plays a step.
    pub fn step(&mut self, trace: &Trace, rival: &mut dyn Rival) -> Result<Outcome, Short> {
        let lives = Lifetimes::new(trace);
        let slot = |tensor: &tiercel_workload::Tensor| Slot {
            bytes: tensor.bytes.0,
            copy: tensor.persistent || tensor.role == Role::Input,
            ..Slot::default()
        };
        let mut slots: Vec<Slot> = trace.tensors.iter().map(slot).collect();
        for (slot, known) in slots.iter_mut().zip(&self.lasting) {
            *slot = Slot { bytes: slot.bytes, ..*known };
        }
        let used = slots.iter().filter(|slot| slot.fast).map(|slot| slot.bytes).sum();
        let last = |at: usize| lives.of(TensorId(at as u32)).map_or(0, |life| life.last.0);
        let mut writers = vec![Vec::new(); slots.len()];
        for (step, kernel) in trace.kernels.iter().enumerate() {
            kernel.writes.iter().for_each(|used| writers[used.tensor.0 as usize].push(step as u32));
        }
        let times = crate::blocks::alone(trace, &self.machine, &self.model);
        let began = self.sim.now();
        let mut play = Play {
            times: times.into_iter().map(|time| time.0).collect(),
            lasts: (0..slots.len()).map(last).collect(),
            ground: self,
            trace,
            lives,
            writers,
            slots,
            used,
            victims: Victims::Oldest,
            paged: false,
            leaving: Vec::new(),
            revived: Vec::new(),
            step: 0,
            depth: 0,
            outcome: Outcome::default(),
        };
        rival.begin(&mut play)?;
        for step in 0..trace.kernels.len() {
            play.step = step;
            rival.before(&mut play, step)?;
            rival.run(&mut play, step)?;
            play.retire(step);
            rival.after(&mut play, step)?;
        }
        let outlive = trace.tensors.iter().take_while(|tensor| tensor.persistent).count();
        let (mut outcome, slots) = play.finish();
        self.lasting = slots[..outlive].to_vec();
        outcome.time = self.sim.now() - began;
        Ok(outcome)
    }
}

/// A step under way.
pub struct Play<'g> {
    ground: &'g mut Ground,
    /// What really runs.
    pub trace: &'g Trace,
    lives: Lifetimes,
    /// Who writes each tensor, and the last kernel that uses it.
    writers: Vec<Vec<u32>>,
    lasts: Vec<u32>,
    times: Vec<u64>,
    slots: Vec<Slot>,
    used: u64,
    /// Who leaves when memory is short.
    pub victims: Victims,
    /// Whether bytes come page by page.
    pub paged: bool,
    /// Copies out that have not ended, in order.
    leaving: Vec<usize>,
    /// What was made again though no kernel of its own wants it.
    revived: Vec<usize>,
    step: usize,
    depth: u32,
    outcome: Outcome,
}

impl Play<'_> {
    /// Whether the card has memory for a tensor, which may be on its way.
    pub fn is_fast(&self, tensor: usize) -> bool {
        self.slots[tensor].fast
    }

    /// The memory that is not taken; what is leaving is still there.
    pub fn free(&self) -> u64 {
        self.ground.limit.saturating_sub(self.used)
    }

    /// The same once what has left is given back.
    pub fn free_now(&mut self) -> u64 {
        self.settle();
        self.free()
    }

    /// The card's memory.
    pub fn limit(&self) -> u64 {
        self.ground.limit
    }

    /// The memory that will not be taken once all that leaves has left.
    pub fn free_soon(&self) -> u64 {
        self.free() + self.leaving.iter().map(|at| self.slots[*at].bytes).sum::<u64>()
    }

    /// The size of a tensor.
    pub fn bytes(&self, tensor: usize) -> u64 {
        self.slots[tensor].bytes
    }

    /// Half of the card's memory: one of two buffers.
    pub fn half(&self) -> u64 {
        self.ground.limit / 2
    }

    /// The tensors that the card has.
    pub fn residents(&self) -> Vec<usize> {
        (0..self.slots.len()).filter(|at| self.slots[*at].fast).collect()
    }

    fn wait(&mut self, ticket: Ticket) {
        let before = self.ground.sim.now();
        self.ground.sim.wait(ticket).expect("simulated copies do not fail");
        self.ground.sim.forget(ticket);
        self.outcome.stall += self.ground.sim.now() - before;
    }

    fn copy(&mut self, tensor: usize, from: TierId, to: TierId, after: &[Ticket]) -> Ticket {
        let bytes = Bytes(self.slots[tensor].bytes);
        let place = |tier| Place { tier, offset: Bytes::ZERO };
        let order = CopyOrder { from: place(from), to: place(to), bytes, after };
        if to == FAST {
            self.outcome.fetched += bytes;
        } else {
            self.outcome.evicted += bytes;
        }
        let pages = if self.paged { bytes.0.div_ceil(PAGE).max(1) } else { 1 };
        self.ground.sim.copy_paged(order, pages)
    }

    fn give_back(&mut self, tensor: usize) {
        let slot = &mut self.slots[tensor];
        if slot.fast {
            slot.fast = false;
            self.used -= slot.bytes;
        }
    }

    /// Gives back the memory of what has left.
    fn settle(&mut self) {
        let mut at = 0;
        while at < self.leaving.len() {
            let tensor = self.leaving[at];
            let ticket = self.slots[tensor].leaving;
            let ended = ticket.is_none_or(|t| self.ground.sim.done(t).expect("simulated copies do not fail"));
            if ended {
                self.left(at);
            } else {
                at += 1;
            }
        }
    }

    fn left(&mut self, at: usize) {
        let tensor = self.leaving.remove(at);
        if let Some(ticket) = self.slots[tensor].leaving.take() {
            self.ground.sim.forget(ticket);
            self.slots[tensor].copy = true;
            self.give_back(tensor);
        }
    }

    /// Makes room, if need be by sending others away.
    fn room(&mut self, bytes: u64) -> Result<(), Short> {
        loop {
            if self.free() >= bytes {
                return Ok(());
            }
            self.settle();
            let soon: u64 = self.leaving.iter().map(|at| self.slots[*at].bytes).sum();
            let free = self.free();
            if free >= bytes {
                return Ok(());
            }
            if free + soon < bytes
                && let Some(victim) = self.victim()
            {
                match self.victims {
                    Victims::Dropped => self.drop(victim),
                    _ => self.evict(victim),
                }
                continue;
            }
            let Some(first) = self.leaving.first().copied() else {
                // What was to come early can come later.
                let early = |at: &usize| self.slots[*at].coming.is_some() && self.slots[*at].locks == 0;
                if let Some(early) = (0..self.slots.len()).find(early) {
                    self.evict(early);
                    continue;
                }
                let kernel = self.trace.kernels[self.step].name.clone();
                return Err(Short { kernel, lacks: Bytes(bytes - free) });
            };
            let ticket = self.slots[first].leaving.expect("it is leaving");
            self.wait(ticket);
            self.left(0);
        }
    }

    fn victim(&self) -> Option<usize> {
        let there = |at: &usize| {
            let slot = &self.slots[*at];
            slot.fast && slot.locks == 0 && slot.coming.is_none() && slot.leaving.is_none()
        };
        let all = (0..self.slots.len()).filter(there);
        match &self.victims {
            Victims::Oldest => all.min_by_key(|at| (self.slots[*at].used, *at)),
            Victims::Farthest { lives, known } => all.max_by_key(|at| {
                let known = *at < *known;
                let here = Step(self.step as u32);
                let uses = |lives: &Lifetimes| {
                    let id = TensorId(*at as u32);
                    if lives.uses(id).binary_search(&here).is_ok() {
                        Some(here)
                    } else {
                        lives.next_use(id, here)
                    }
                };
                let next =
                    if known { uses(lives).map_or(u32::MAX, |step| step.0) } else { self.step as u32 + 64 };
                (next, self.slots[*at].bytes, *at)
            }),
            Victims::Dropped => dtr::victim(self, all),
        }
    }

    /// A tensor leaves: its memory is free once a copy has ended, or at once where the host has its bytes.
    pub fn evict(&mut self, tensor: usize) {
        let slot = self.slots[tensor];
        if !slot.fast || slot.leaving.is_some() {
            return;
        }
        if let Some(coming) = self.slots[tensor].coming.take() {
            self.ground.sim.cancel(coming);
            self.ground.sim.forget(coming);
            self.give_back(tensor);
            return;
        }
        if slot.copy {
            self.give_back(tensor);
            return;
        }
        let ticket = self.copy(tensor, FAST, SLOW, &[]);
        self.slots[tensor].leaving = Some(ticket);
        self.leaving.push(tensor);
    }

    /// A tensor's memory is given up; its bytes are lost if the host has none.
    pub fn drop(&mut self, tensor: usize) {
        for ticket in
            [self.slots[tensor].coming.take(), self.slots[tensor].leaving.take()].into_iter().flatten()
        {
            self.ground.sim.cancel(ticket);
            self.ground.sim.forget(ticket);
            self.leaving.retain(|at| *at != tensor);
        }
        self.give_back(tensor);
    }

    /// Gives up what a plan drops: what the host has, and what can be made again. What outlives steps and has no copy stays.
    pub fn drop_if_made_again(&mut self, tensor: usize) {
        if self.slots[tensor].copy || !self.trace.tensors[tensor].persistent {
            self.drop(tensor);
        }
    }

    /// A tensor begins to come, once `after` have left; nothing happens where it is there or the host has no bytes of it.
    pub fn fetch(&mut self, tensor: usize, after: &[usize]) -> Result<(), Short> {
        self.settle();
        if let Some(leaving) = self.slots[tensor].leaving.take() {
            // Its bytes are still there.
            self.ground.sim.cancel(leaving);
            self.ground.sim.forget(leaving);
            self.leaving.retain(|at| *at != tensor);
            return Ok(());
        }
        if self.slots[tensor].fast || !self.slots[tensor].copy {
            return Ok(());
        }
        let bytes = self.slots[tensor].bytes;
        self.room(bytes)?;
        let tickets: Vec<Ticket> = after.iter().filter_map(|at| self.slots[*at].leaving).collect();
        let ticket = self.copy(tensor, SLOW, FAST, &tickets);
        self.slots[tensor].fast = true;
        self.used += bytes;
        self.slots[tensor].coming = Some(ticket);
        Ok(())
    }

    /// Waits until a tensor that comes is there, and one that leaves has left.
    pub fn wait_for(&mut self, tensor: usize) {
        if let Some(ticket) = self.slots[tensor].coming.take() {
            self.wait(ticket);
        }
        if let Some(ticket) = self.slots[tensor].leaving {
            self.wait(ticket);
            self.settle();
        }
    }

    /// A kernel wants a tensor: it comes or is made again, and everything waits.
    fn demand(&mut self, tensor: usize) -> Result<(), Short> {
        if self.slots[tensor].leaving.is_some() {
            self.fetch(tensor, &[])?;
        }
        if !self.slots[tensor].fast {
            self.outcome.missed += u32::from(self.depth == 0);
            if self.slots[tensor].copy {
                self.fetch(tensor, &[])?;
            } else {
                self.make_again(tensor)?;
            }
        }
        if let Some(ticket) = self.slots[tensor].coming.take() {
            self.wait(ticket);
        }
        Ok(())
    }

    fn make_again(&mut self, tensor: usize) -> Result<(), Short> {
        for turn in 0..self.writers[tensor].len() {
            let writer = self.writers[tensor][turn] as usize;
            if writer >= self.step {
                break;
            }
            self.run(writer, true)?;
        }
        assert!(self.slots[tensor].fast, "{} is never made", self.trace.tensors[tensor].name);
        Ok(())
    }

    /// Runs a kernel again, unless what it makes is there.
    pub fn again(&mut self, step: usize) -> Result<(), Short> {
        let there = |used: &tiercel_workload::Use| self.slots[used.tensor.0 as usize].fast;
        if step < self.step && !self.trace.kernels[step].writes.iter().all(there) {
            self.run(step, true)?;
        }
        Ok(())
    }

    /// Runs a kernel, with all that it wants.
    pub fn run(&mut self, step: usize, again: bool) -> Result<(), Short> {
        let trace = self.trace;
        let kernel = &trace.kernels[step];
        let id = |used: &tiercel_workload::Use| used.tensor.0 as usize;
        let reads = kernel.reads.iter().map(id);
        let mut operands: Vec<usize> = reads.chain(kernel.writes.iter().map(id)).collect();
        operands.sort_unstable();
        operands.dedup();
        operands.iter().for_each(|at| self.slots[*at].locks += 1);
        let depth = self.depth;
        self.depth += u32::from(again);
        for used in &kernel.reads {
            self.demand(id(used))?;
        }
        for used in &kernel.writes {
            let at = id(used);
            self.wait_for(at);
            if !self.slots[at].fast {
                self.room(self.slots[at].bytes)?;
                self.slots[at].fast = true;
                self.used += self.slots[at].bytes;
                if self.lasts[at] < self.step as u32 {
                    self.revived.push(at);
                }
            }
        }
        self.depth = depth;
        debug_assert!(self.used <= self.ground.limit, "memory is never exceeded");
        let took = self.compute(kernel, step);
        if again {
            self.outcome.again += took;
        } else {
            self.outcome.compute += took;
        }
        self.ground.turn += 1;
        for used in &kernel.writes {
            self.slots[id(used)].copy = false;
        }
        for at in operands {
            let slot = &mut self.slots[at];
            slot.locks -= 1;
            (slot.used, slot.at) = (self.ground.turn, self.ground.sim.now().0);
        }
        if depth == 0 {
            let dead = std::mem::take(&mut self.revived);
            dead.into_iter().for_each(|at| self.drop(at));
        }
        Ok(())
    }

    fn compute(&mut self, kernel: &Kernel, step: usize) -> Nanos {
        let operands = kernel.reads.len() + kernel.writes.len();
        let sum = |uses: &[tiercel_workload::Use]| uses.iter().map(|used| used.bytes).sum();
        let traffic = [Traffic { tier: FAST, read: sum(&kernel.reads), write: sum(&kernel.writes) }];
        let places = [(Place { tier: FAST, offset: Bytes::ZERO }, Bytes::ZERO)];
        let slots = vec![0; operands];
        let began = self.ground.sim.now();
        let step = Step(step as u32);
        self.ground.sim.compute(&Work {
            step,
            kernel,
            operands: &[],
            places: &places,
            slots: &slots,
            traffic: &traffic,
            cached: false,
        });
        self.ground.sim.now() - began
    }

    /// The host works on a kernel's bytes while the card waits.
    fn on_host(&mut self, step: usize, time: Nanos) {
        let trace = self.trace;
        let mut kernel = trace.kernels[step].clone();
        let operands = kernel.reads.len() + kernel.writes.len();
        kernel.timings = vec![Timing { tiers: vec![FAST; operands], time }];
        let none = |used: &mut tiercel_workload::Use| used.bytes = Bytes::ZERO;
        kernel.reads.iter_mut().chain(&mut kernel.writes).for_each(none);
        let took = self.compute(&kernel, step);
        self.outcome.compute += took;
    }

    /// The time that a kernel takes alone.
    fn alone(&self, step: usize) -> u64 {
        self.times[step]
    }

    /// Gives back what no later kernel uses.
    fn retire(&mut self, step: usize) {
        let trace = self.trace;
        let kernel = &trace.kernels[step];
        for used in kernel.reads.iter().chain(&kernel.writes) {
            let at = used.tensor.0 as usize;
            if !trace.tensors[at].persistent && self.lasts[at] <= step as u32 && self.slots[at].fast {
                self.drop(at);
            }
        }
    }

    /// Waits for what is under way.
    fn finish(mut self) -> (Outcome, Vec<Slot>) {
        for at in 0..self.slots.len() {
            if self.slots[at].coming.is_some() || self.slots[at].leaving.is_some() {
                self.wait_for(at);
            }
        }
        self.settle();
        for slot in &mut self.slots {
            slot.locks = 0;
        }
        (self.outcome, self.slots)
    }
}

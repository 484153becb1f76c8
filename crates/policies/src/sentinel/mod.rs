//! Sentinel (Ren, Luo, Wu, Zhang, Jeon, Li, HPCA 2021): profile one iteration, then keep in fast memory what this part of
//! the program and the next one need.
//!
//! - The first iteration runs in slow memory and is written down (`recording.rs`): sizes, lifetimes, accesses to each
//!   object, times, and the ends of layers. Every object has pages of its own meanwhile, so that on real memory
//!   `tiercel_profile::Counting` can count accesses; [`Sentinel::count`] takes what it found.
//! - Objects that live within one layer have a zone of fast memory for themselves and never move (`zone.rs`); all others are
//!   laid out so that only those with the same lifetime share a page.
//! - The iteration is cut into intervals of as many layers as Equations 1 and 2 say (`interval.rs`). At the beginning
//!   of each, what the next one needs is fetched, and objects leave as soon as neither needs them (`schedule.rs`).
//! - Where a fetch comes too late, waiting and staying in slow memory are both tried (`trial.rs`), unless kernels cannot work
//!   on slow memory: then there is nothing but to wait (section V).
//! - Another input size or another dataflow is profiled in its turn (`flow.rs`).
//!
//! Where kernels cannot work on slow memory (a GPU), objects leave only for others who want their room ([`Leaving`]). By the
//! paper's words everything leaves at once; then a link that is slow beside the kernels moves twice the peak where a third of
//! it does not fit. `Sentinel::leaving` has either on any machine.
//!
//! Where it deviates from the paper: a kernel waits for the late bytes that it needs and not for all of its interval's; an
//! object that the next interval needs does not leave in between; which objects find room is worked out ahead from
//! the profile. Only the length of intervals and the outcome of trials depend on time: [`Sentinel::follower`] makes
//! a policy that decides the same in any world.

mod addresses;
mod course;
mod flow;
pub mod interval;
mod memory;
pub mod need;
pub mod schedule;
pub mod trial;
pub mod zone;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tiercel_core::{Bytes, Error, Hint, Manager, Nanos, ObjectId, Operand, Policy, Step};
use tiercel_profile::Accesses;
use tiercel_profile::accesses::PAGE;

pub use need::{TooSmall, enough, lower_bound};

use crate::moves::Pricing;
use crate::recency::Recency;
use crate::recording::{Key, Recorder};
use flow::{Flows, Profiled, Ways};
use interval::Terms;
use schedule::{Fetch, Leaving};
use trial::Late;
use zone::Reserve;

/// How the intervals of one iteration began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cases {
    /// All that they need was there (Case 1).
    pub ready: u32,
    /// Something found no room (Case 2).
    pub no_room: u32,
    /// Something was still under way (Case 3).
    pub late: u32,
}

/// Iterations that were not ordinary ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Profiled.
    pub profiled: u32,
    /// Used for test and trial.
    pub tried: u32,
}

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct Sentinel {
    recorder: Recorder,
    flows: Flows,
    /// The program that is running; none while it is profiled.
    now: Option<usize>,
    /// The program that fast memory has been prepared for.
    prepared: Option<usize>,
    /// The unit in which memory is handed out.
    page: Option<Bytes>,
    reserve: Reserve,
    recency: RefCell<Recency>,
    /// The kernel that memory has been reserved for.
    entered: Option<usize>,
    /// Fetches that found no room yet.
    pending: Vec<Fetch>,
    /// For which interval which unit was fetched.
    fetched: Vec<(usize, usize)>,
    late: BTreeMap<usize, Late>,
    began: Nanos,
    /// How intervals began, in this iteration and in the one before.
    counting: Cases,
    cases: Cases,
    ways: Ways,
    /// Decide nothing by the clock.
    frozen: bool,
    profiled: u32,
    deviations: u64,
}

impl Sentinel {
    /// The policy before the first iteration.
    pub fn new() -> Sentinel {
        Sentinel::default()
    }

    /// The same with intervals of so many layers, whatever the equations say.
    pub fn interval(mut self, layers: u32) -> Sentinel {
        self.ways.length = Some(layers.max(1));
        self
    }

    /// The same with objects that leave fast memory then, on any machine.
    pub fn leaving(mut self, leaving: Leaving) -> Sentinel {
        self.ways.leaving = Some(leaving);
        self
    }

    /// A policy for another run of the same programs that begins with all that this one has learned and decides
    /// nothing by the clock: it does the same in every world.
    pub fn follower(&self) -> Sentinel {
        let recording = self.now.map(|now| Arc::clone(&self.flows.get(now).known));
        Sentinel {
            recorder: recording.map(|known| Recorder::expecting(&known.recording)).unwrap_or_default(),
            flows: self.flows.clone(),
            now: self.now,
            ways: self.ways,
            frozen: true,
            ..Sentinel::default()
        }
    }

    /// Whether profile and trials are over: iterations from here on are what there will be. Comparisons leave out those
    /// before.
    pub fn settled(&self) -> bool {
        self.now.is_some_and(|now| self.frozen || self.flows.get(now).trials.settled())
    }

    /// Iterations that were profiled or tried something.
    pub fn steps(&self) -> Steps {
        let tried = self.now.map_or(0, |now| self.flows.get(now).trials.steps());
        Steps { profiled: self.profiled, tried }
    }

    /// What the equations said of the intervals of the present program.
    pub fn terms(&self) -> Option<Terms> {
        self.now.map(|now| self.flows.get(now).known.terms)
    }

    /// The least fast memory that the present program should have; with less it runs, slowly.
    pub fn lower_bound(&self) -> Option<Bytes> {
        self.now.map(|now| self.flows.get(now).known.lower_bound)
    }

    /// How the intervals of the last iteration began.
    pub fn cases(&self) -> Cases {
        self.cases
    }

    /// How many intervals leave objects in slow memory, by trial.
    pub fn left(&self) -> usize {
        self.now.map_or(0, |now| self.flows.get(now).trials.leaving())
    }

    /// How often something could not be done as scheduled, a fast memory below the lower bound included.
    pub fn deviations(&self) -> u64 {
        self.deviations
    }

    /// Takes accesses that were counted, in place of those that the kernels' bytes amount to, and decides anew.
    pub fn count(&mut self, m: &mut Manager, counted: &Accesses) -> Result<(), Error> {
        let Some(now) = self.now else { return Ok(()) };
        let mut recording = self.flows.get(now).known.recording.clone();
        let counts: HashMap<&str, _> = counted.by_name();
        for item in &mut recording.items {
            if let Some(count) = counts.get(item.name.as_str()) {
                item.accesses = count.accesses;
            }
        }
        let page = self.page(m);
        self.flows.revise(now, recording, m, page, self.ways);
        self.begin(m)
    }

    fn page(&mut self, m: &Manager) -> Bytes {
        *self.page.get_or_insert_with(|| zone::page(m, PAGE))
    }

    fn pricing(&self) -> Pricing<'_> {
        Pricing { recency: &self.recency, keep: &[] }
    }

    fn known(&self) -> Option<Arc<Profiled>> {
        self.now.map(|now| Arc::clone(&self.flows.get(now).known))
    }

    /// The position of an object in the running program's recording.
    fn item(&self, known: &Profiled, object: ObjectId) -> Option<usize> {
        known.recording.find(self.recorder.key(object)?)
    }
}

impl Policy for Sentinel {
    fn name(&self) -> &str {
        "sentinel"
    }

    fn settled(&self) -> bool {
        Sentinel::settled(self)
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        let key = self.recorder.born(m, object);
        let found = self.known().and_then(|known| Some((known.recording.find(key)?, known)));
        match found {
            Some((item, known)) if matches!(key, Key::Born(_)) => {
                self.enter(m, &known, self.recorder.steps())?;
                self.put_known(m, &known, item, object)?;
            }
            _ => self.put_unknown(m, object)?,
        }
        if let Some(home) = m.home(object) {
            self.recency.get_mut().touch(object, home);
        }
        Ok(())
    }

    fn hint(&mut self, m: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error> {
        if hint == Hint::Retire && m.contains(object) {
            m.retire(object)?;
            self.recency.get_mut().remove(object);
            self.recorder.retired(object);
        }
        Ok(())
    }

    fn before(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        if step == Step::LOAD {
            self.recorder.loaded(operands);
        } else {
            self.recorder.before(operands);
            let at = self.recorder.steps() - 1;
            if at == 0 {
                self.began = m.now();
            }
            self.recognise(m)?;
            if let Some(known) = self.known() {
                self.enter(m, &known, at)?;
                let interval = known.schedule.interval_of[at];
                if known.schedule.intervals[interval].start.0 as usize == at {
                    self.open(m, &known, interval);
                }
                self.fetch(m, &known, at)?;
            }
        }
        for operand in operands {
            if let Some(home) = m.home(operand.object) {
                self.recency.get_mut().touch(operand.object, home);
            }
        }
        self.gather(m, step, operands)?;
        if step != Step::LOAD {
            self.recorder.starts(m);
        }
        Ok(())
    }

    fn after(&mut self, m: &mut Manager, step: Step, _operands: &[Operand]) -> Result<(), Error> {
        if step == Step::LOAD {
            return Ok(());
        }
        self.recorder.after(m);
        let Some((known, at)) = self.known().zip(self.recorder.steps().checked_sub(1)) else { return Ok(()) };
        for unit in known.schedule.leaves.get(at).into_iter().flatten() {
            for (item, _) in &known.schedule.units[*unit].items {
                if let Some(object) = self.recorder.object(known.recording.items[*item].key) {
                    self.send(m, object)?;
                }
            }
        }
        Ok(())
    }

    fn layer_ended(&mut self, _: &mut Manager) -> Result<(), Error> {
        self.recorder.layer_ended();
        Ok(())
    }

    fn iteration_ended(&mut self, m: &mut Manager) -> Result<(), Error> {
        let steps = self.recorder.steps();
        let whole = self.now.filter(|now| self.flows.get(*now).known.recording.moments.len() == steps);
        self.entered = None;
        self.cases = std::mem::take(&mut self.counting);
        let late = std::mem::take(&mut self.late);
        if let Some(now) = whole {
            self.recorder.forget();
            if !self.frozen {
                let time = m.now().saturating_sub(self.began);
                self.flows.get_mut(now).trials.ended(time, &late);
            }
            return Ok(());
        }
        let recording = self.recorder.finish();
        if recording.moments.is_empty() || self.frozen {
            return Ok(());
        }
        self.profiled += 1;
        let page = self.page(m);
        let learned = self.flows.learn(recording, m, page, self.ways);
        self.flows.touch(learned);
        self.now = Some(learned);
        self.begin(m)
    }
}

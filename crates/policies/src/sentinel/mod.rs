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
//! Where it deviates from the paper: a kernel waits for the late bytes that it needs and not for all of its interval's; an
//! object that the next interval needs does not leave in between; which objects find room is worked out ahead from
//! the profile. Only the length of intervals and the outcome of trials depend on time: [`Sentinel::follower`] makes
//! a policy that decides the same in any world.

mod flow;
pub mod interval;
pub mod need;
mod room;
pub mod schedule;
pub mod trial;
pub mod zone;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tiercel_core::{
    Bytes, Error, Hint, Manager, Nanos, ObjectId, Operand, Place, Policy, RegionId, Step, TierId,
};
use tiercel_profile::Accesses;
use tiercel_profile::accesses::PAGE;

pub use need::{TooSmall, enough, lower_bound};

use crate::gather::gather;
use crate::moves::{self, Pricing, make_room};
use crate::recency::Recency;
use crate::recording::{Key, Recorder};
use flow::{Flows, Known};
use interval::Terms;
use schedule::Fetch;
use trial::Late;
use zone::{FAST, Reserve, whole};

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
    cases: Cases,
    last_cases: Cases,
    /// Layers in an interval, where the equations are not asked.
    length: Option<u32>,
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
        self.length = Some(layers.max(1));
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
            length: self.length,
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
        self.last_cases
    }

    /// How many intervals leave objects in slow memory, by trial.
    pub fn leaving(&self) -> usize {
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
        self.flows.revise(now, recording, m, page, self.length);
        self.begin(m)
    }

    fn page(&mut self, m: &Manager) -> Bytes {
        *self.page.get_or_insert_with(|| zone::page(m, PAGE))
    }

    fn pricing(&self) -> Pricing<'_> {
        Pricing { recency: &self.recency, keep: &[] }
    }

    fn known(&self) -> Option<Arc<Known>> {
        self.now.map(|now| Arc::clone(&self.flows.get(now).known))
    }

    /// The position of an object in the running program's recording.
    fn item(&self, known: &Known, object: ObjectId) -> Option<usize> {
        known.recording.find(self.recorder.key(object)?)
    }

    // --- memory ---

    /// Gives an object its first region, on the first of these tiers that has room.
    fn put(&mut self, m: &mut Manager, object: ObjectId, tiers: &[TierId]) -> Result<(), Error> {
        let (size, page) = (m.size(object)?, self.page(m));
        if let Some(region) = tiers.iter().find_map(|tier| whole(m, *tier, size, page)) {
            return m.set_primary(object, region);
        }
        for tier in tiers {
            let mut region = m.allocate(*tier, size);
            if region.is_err() && make_room(m, self.pricing(), object, *tier)? {
                region = m.allocate(*tier, size);
            }
            if let Ok(region) = region {
                return m.set_primary(object, region);
            }
        }
        Err(m.no_room(object, m.machine().slowest()))
    }

    /// Puts an object that nothing is known of into slow memory: the slowest that kernels can work on.
    fn put_unknown(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        let (mut work, mut rest): (Vec<TierId>, Vec<TierId>) =
            m.machine().tier_ids().partition(|tier| m.machine().tier(*tier).computable);
        work.reverse();
        work.append(&mut rest);
        self.put(m, object, &work)
    }

    /// Puts an object where the schedule wants it.
    fn put_known(
        &mut self,
        m: &mut Manager,
        known: &Known,
        item: usize,
        object: ObjectId,
    ) -> Result<(), Error> {
        let (short, size) = (known.recording.items[item].is_short(), m.size(object)?);
        let place = known.schedule.offset(item, self.recorder.steps());
        let region = match place {
            _ if short => self.reserve.allocate(m, size),
            Some(offset) => m.allocate_at(Place { tier: FAST, offset }, size).ok(),
            None => None,
        };
        if let Some(region) = region {
            return m.set_primary(object, region);
        }
        let mut tiers: Vec<TierId> = m.machine().tier_ids().collect();
        if short || place.is_some() {
            self.deviations += 1;
        } else {
            tiers.rotate_left(1);
        }
        self.put(m, object, &tiers)
    }

    /// Sends an object to slower memory.
    fn send(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        let Some(x) = m.primary(object).filter(|x| m.tier(*x) == FAST && !m.in_use(object)) else {
            return Ok(());
        };
        let slower: Vec<TierId> = m.machine().tier_ids().filter(|tier| *tier > FAST).collect();
        if slower.is_empty() {
            return Ok(());
        }
        if slower.iter().all(|tier| m.region_on(object, *tier).is_none()) {
            let (size, page) = (m.size_of(x), self.page(m));
            if let Some(y) = slower.iter().find_map(|tier| whole(m, *tier, size, page)) {
                m.link(x, y)?;
            }
        }
        match moves::evict(m, self.pricing(), object) {
            // Nowhere to go: it stays.
            Err(Error::Full { .. }) => {
                self.deviations += 1;
                Ok(())
            }
            result => result,
        }
    }

    /// Takes an object out of fast memory, whether its current bytes are there or not.
    fn clear(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        match m.region_on(object, FAST) {
            Some(region) if m.primary(object) != Some(region) => m.free(region),
            _ => self.send(m, object),
        }
    }

    /// Brings one object to its place in fast memory; says whether it is there.
    fn bring(&mut self, m: &mut Manager, object: ObjectId, offset: Bytes) -> Result<bool, Error> {
        let Some(x) = m.primary(object).filter(|x| m.tier(*x) != FAST) else { return Ok(true) };
        if m.in_use(object) {
            return Ok(false);
        }
        self.clear(m, object)?;
        let Ok(y) = m.allocate_at(Place { tier: FAST, offset }, m.size_of(x)) else { return Ok(false) };
        self.settle_in(m, object, x, y)?;
        Ok(true)
    }

    /// Moves an object from one region to a new one in fast memory; the one that it leaves stays linked.
    fn settle_in(
        &mut self,
        m: &mut Manager,
        object: ObjectId,
        x: RegionId,
        y: RegionId,
    ) -> Result<(), Error> {
        if m.is_written(object) {
            m.copy(x, y)?;
        }
        m.link(x, y)?;
        m.set_primary(object, y)?;
        self.recency.get_mut().moved(object, FAST);
        Ok(())
    }

    /// Brings all objects of a unit; says whether they are there.
    fn bring_unit(&mut self, m: &mut Manager, known: &Known, fetch: &Fetch) -> Result<bool, Error> {
        let mut all = true;
        for (item, offset) in &known.schedule.units[fetch.unit].items {
            let Some(object) = self.recorder.object(known.recording.items[*item].key) else { continue };
            all &= self.bring(m, object, fetch.offset + *offset)?;
        }
        if all {
            self.fetched.push((fetch.interval, fetch.unit));
        }
        Ok(all)
    }

    // --- the schedule ---

    /// A kernel of the running program comes: gives the reserved zone its size for it.
    fn enter(&mut self, m: &mut Manager, known: &Known, step: usize) -> Result<(), Error> {
        if self.entered == Some(step) || step >= known.schedule.reserved.len() {
            return Ok(());
        }
        self.entered = Some(step);
        let (wanted, page) = (known.schedule.reserved[step], self.page(m));
        if self.reserve.resize(m, wanted, page) || wanted <= self.reserve.size(m) {
            return Ok(());
        }
        // It cannot grow: first those make way that this interval does not need, then it takes what there is.
        let interval = known.schedule.interval_of[step];
        let needs = |item: usize| {
            let uses = &known.recording.items[item].uses;
            uses.iter().any(|step| known.schedule.interval_of[*step as usize] == interval)
        };
        let mut stay = None;
        for object in self.reserve.in_the_way(m, wanted) {
            if self.item(known, object).is_some_and(needs) || m.in_use(object) {
                let start = m.region_on(object, FAST).map(|region| m.place_of(region).offset);
                stay = stay.into_iter().chain(start).min();
            } else {
                self.clear(m, object)?;
            }
        }
        if !self.reserve.resize(m, wanted, page) {
            self.deviations += 1;
            if let Some(stay) = stay {
                self.reserve.resize(m, Bytes(stay.0 / page.0 * page.0), page);
            }
        }
        Ok(())
    }

    /// An interval begins: looks what of its objects is there.
    fn open(&mut self, m: &mut Manager, known: &Known, interval: usize) {
        m.settle();
        let mut late = Late::default();
        for (_, unit) in self.fetched.extract_if(.., |(wanted, _)| *wanted == interval) {
            let items = known.schedule.units[unit].items.iter();
            let objects =
                items.filter_map(|(item, _)| self.recorder.object(known.recording.items[*item].key));
            let under_way = objects.filter(|object| m.is_arriving(*object) && m.home(*object) == Some(FAST));
            let bytes: Bytes = under_way.filter_map(|object| m.size(object).ok()).sum();
            if bytes > Bytes::ZERO {
                late.units.insert(unit);
                late.bytes += bytes;
            }
        }
        let waiting = self.pending.iter().any(|fetch| fetch.interval == interval);
        if !late.units.is_empty() {
            self.cases.late += 1;
            let slow_works = m.machine().tiers.iter().all(|tier| tier.computable);
            if slow_works && !self.frozen {
                self.late.insert(interval, late);
            }
        } else if waiting || known.schedule.left_out[interval] > 0 {
            self.cases.no_room += 1;
        } else {
            self.cases.ready += 1;
        }
    }

    /// Fetches what the schedule has for this kernel, and what found no room before.
    fn fetch(&mut self, m: &mut Manager, known: &Known, step: usize) -> Result<(), Error> {
        let Some(now) = self.now else { return Ok(()) };
        let mut wanted = std::mem::take(&mut self.pending);
        let due = wanted.extract_if(.., |fetch| fetch.until == step).count();
        self.deviations += due as u64;
        wanted.extend(&known.schedule.fetches[step]);
        for fetch in wanted {
            let left = self.flows.get(now).trials.leaves(fetch.interval, fetch.unit);
            if !left && !self.bring_unit(m, known, &fetch)? {
                self.pending.push(fetch);
            }
        }
        Ok(())
    }

    /// Prepares fast memory for a program that begins to run: others' objects leave, its own come.
    fn begin(&mut self, m: &mut Manager) -> Result<(), Error> {
        self.pending.clear();
        self.fetched.clear();
        (self.entered, self.prepared) = (None, self.now);
        let Some(known) = self.known() else { return Ok(()) };
        let step = self.recorder.steps().saturating_sub(1);
        for object in m.objects_on(FAST) {
            let item = self.item(&known, object);
            let place = item.and_then(|item| known.schedule.offset(item, step));
            let short = item.is_some_and(|item| known.recording.items[item].is_short());
            let lies = m.place(object).filter(|place| place.tier == FAST).map(|place| place.offset);
            if !short && (place.is_none() || place != lies) && !m.in_use(object) {
                self.clear(m, object)?;
            }
        }
        self.deviations += u64::from(known.lower_bound > m.space(FAST).capacity());
        if self.recorder.steps() <= 1 {
            self.enter(m, &known, 0)?;
            for fetch in known.schedule.first() {
                self.bring_unit(m, &known, &fetch)?;
            }
        }
        Ok(())
    }

    /// Finds out which program is running, now that one more kernel is known.
    fn recognise(&mut self, m: &mut Manager) -> Result<(), Error> {
        let step = self.recorder.steps() - 1;
        let same = self.now.is_some_and(|now| {
            let moments = &self.flows.get(now).known.recording.moments;
            step > 0 && moments.get(step).is_some_and(|moment| moment.operands == self.recorder.line(step))
        });
        if same {
            return Ok(());
        }
        // Whoever has lost its program in the middle of an iteration profiles to the end of it.
        let found = if self.now.is_some() || step == 0 {
            self.flows.matching(&self.recorder, self.now)
        } else {
            None
        };
        self.now = found;
        if let Some(found) = found {
            self.flows.touch(found);
        }
        if self.prepared == self.now { Ok(()) } else { self.begin(m) }
    }

    /// Brings operands that a kernel cannot work on where they are to the end of fast memory, where they are least in the
    /// way of what is scheduled.
    fn bring_unscheduled(&mut self, m: &mut Manager, operands: &[Operand]) -> Result<(), Error> {
        for operand in operands {
            let computable = |tier: TierId| m.machine().tier(tier).computable;
            let Some(x) = m.primary(operand.object).filter(|x| !computable(m.tier(*x))) else { continue };
            self.clear(m, operand.object)?;
            let (size, page) = (m.size_of(x), self.page(m));
            if let Some(y) = whole(m, FAST, size, page) {
                self.settle_in(m, operand.object, x, y)?;
            }
        }
        Ok(())
    }

    /// Brings a kernel's operands to where it can work on them. Where memory that is set aside stands in the way, it is
    /// given up.
    fn gather(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        self.bring_unscheduled(m, operands)?;
        match gather(m, &self.recency, step, operands) {
            Err(Error::Full { .. } | Error::WorkingSet { .. }) => {
                self.deviations += 1;
                self.reserve.dissolve(m);
                gather(m, &self.recency, step, operands)
            }
            result => result,
        }
    }
}

impl Policy for Sentinel {
    fn name(&self) -> &str {
        "sentinel"
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
        self.last_cases = std::mem::take(&mut self.cases);
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
        let learned = self.flows.learn(recording, m, page, self.length);
        self.flows.touch(learned);
        self.now = Some(learned);
        self.begin(m)
    }
}

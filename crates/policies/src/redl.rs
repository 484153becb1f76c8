//! ReDL (Rang, Yang, Li, Cheng, "Scalable Data Management on Hybrid Memory System for DNN Applications"): short-lived
//! objects stay in fast memory, long-lived ones come and go by migration periods.
//!
//! - *Liveness classes* (section III-B): one iteration is written down; what lives within one layer is short-lived.
//! - *Idle migration* (III-C): short-lived objects are born in fast memory and never moved; room for those to come is
//!   kept free of others. The paper sets one stretch aside for a period; here it is a number of bytes that shrinks as
//!   they are born, so that none of it lies idle.
//! - *Dynamic migration* (III-D): an iteration is cut into periods of equal length, in layers. When one begins, what
//!   the next one uses is fetched in the order of use, as long as there is room, and if there will not be, those with
//!   the longest reference distance leave. The length is searched for (`period_search.rs`). Constraint (4) is taken as: what
//!   a period uses fits beside its short-lived objects, in every period that could be shorter; constraint (5) as: all
//!   fetches together take no longer than all kernels. (As printed they compare times with sizes; and that a period
//!   may be too short for some phases is what direct access is for.)
//! - *Direct slow-memory access* (III-D2): a kernel does not wait for a fetch that is late; it works on the slow
//!   tier. Only where it cannot work there does it wait.
//!
//! Where a long-lived object is born the paper says two things: Algorithm 2 puts it in slow memory, while sections
//! II-B and III-B find that outputs in slow memory cost most and place them in fast memory. Here it is born in fast
//! memory while there is room beside the short-lived ones, and leaves when its turn comes; else in slow memory.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use tiercel_core::{
    Bytes, Error, EvictError, Hint, Machine, Manager, Nanos, ObjectId, Operand, Policy, RegionId, Step,
    TierId,
};
use tiercel_workload::TensorId;
use tiercel_workload::lifetimes::Class;

use crate::forecast::{Forecast, class, next_use};
use crate::gather::gather;
use crate::moves::{Pricing, evict};
use crate::notebook::{Ended, Notebook, SeenIteration};
use crate::period_search::PeriodSearch;
use crate::recency::Recency;

const FAST: TierId = TierId(0);

/// How one known iteration is played.
#[derive(Clone, Debug)]
struct Scheme {
    search: PeriodSearch,
    length: u32,
    forecast: Forecast,
}

impl Scheme {
    fn new(known: &SeenIteration) -> Scheme {
        let search = PeriodSearch::new(known.layers());
        let length = search.length();
        Scheme { forecast: Forecast::new(known, length), search, length }
    }

    /// An iteration has taken this long.
    fn measured(&mut self, known: &SeenIteration, machine: &Machine, time: Nanos) {
        self.search.measured(time, |length| fits(&Forecast::new(known, length), known, machine));
        if self.search.length() != self.length {
            self.length = self.search.length();
            self.forecast = Forecast::new(known, self.length);
        }
    }
}

/// Whether a cut meets the constraints (4) and (5).
fn fits(forecast: &Forecast, known: &SeenIteration, machine: &Machine) -> bool {
    let slow = machine.slowest();
    let bandwidth = machine.link(slow, FAST).map_or(machine.tier(slow).read, |link| link.speed());
    let size = |tensor: &TensorId| known.trace.tensor(*tensor).bytes;
    let (mut fetched, mut computed) = (Bytes::ZERO, Nanos::ZERO);
    for at in 0..forecast.len() {
        let steps = forecast.steps(at);
        let wanted: Bytes = forecast.wanted(at).iter().map(size).sum();
        let (first, last) = (known.visits[steps.start.0 as usize], known.visits[steps.end.0 as usize - 1]);
        if first != last && wanted + forecast.short_growth(steps.start) > machine.tier(FAST).capacity {
            return false;
        }
        let before = forecast.wanted((at + forecast.len() - 1) % forecast.len());
        let alive = |tensor: &&TensorId| known.lifetimes.of(**tensor).is_some_and(|l| l.birth < steps.start);
        let comes = forecast.wanted(at).iter().filter(alive).filter(|tensor| !before.contains(tensor));
        fetched += comes.map(size).sum();
        computed += known.times[steps.start.0 as usize..steps.end.0 as usize].iter().copied().sum();
    }
    fetched.0 as f64 / bandwidth.0 <= computed.seconds()
}

/// The policy of ReDL.
#[derive(Clone, Debug, Default)]
pub struct Redl {
    notebook: Notebook,
    schemes: BTreeMap<u32, Scheme>,
    recency: RefCell<Recency>,
    /// The interval that has begun last in this iteration.
    interval: Option<usize>,
    /// What is still to be fetched for the next interval.
    fetching: VecDeque<TensorId>,
    began: Option<Nanos>,
    late: u64,
    iterations: u32,
    warm_up: u32,
}

impl Redl {
    /// The policy before its first iteration.
    pub fn new() -> Redl {
        Redl::default()
    }

    /// How many iterations have gone by until the period was settled; more, if the program has changed since.
    pub fn warm_up(&self) -> Option<u32> {
        self.settled().then_some(self.warm_up)
    }

    /// The length of the migration periods, in layers.
    pub fn period(&self) -> Option<u32> {
        self.scheme().map(|(_, scheme)| scheme.length)
    }

    /// How often a kernel worked on slow memory because a fetch was late.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// What this iteration is known to be like, and how it is played.
    fn scheme(&self) -> Option<(&SeenIteration, &Scheme)> {
        let known = self.notebook.page()?;
        self.schemes.get(&known.id).map(|scheme| (known, scheme))
    }

    fn is_short(&self, tensor: TensorId) -> bool {
        self.notebook.page().is_some_and(|known| class(known, tensor) == Some(Class::Short))
    }

    /// How many steps from now an object is used next; `None` where it must stay, because it is short-lived or used
    /// in the rest of this interval.
    fn distance(&self, object: ObjectId) -> Option<u32> {
        let Some((known, scheme)) = self.scheme() else { return Some(u32::MAX) };
        let (Some(tensor), now) = (self.notebook.tensor(object), self.notebook.step()) else {
            return Some(u32::MAX);
        };
        if self.is_short(tensor) {
            return None;
        }
        let Some(next) = next_use(known, tensor, now) else { return Some(u32::MAX) };
        let here = scheme.forecast.interval(now);
        let stays = here.is_some() && scheme.forecast.interval(next) == here;
        (!stays).then_some(next.0 - now.0)
    }

    /// Whether an object is used in the interval after this one.
    fn is_next(&self, object: ObjectId) -> bool {
        let Some((known, scheme)) = self.scheme() else { return false };
        let Some(here) = scheme.forecast.interval(self.notebook.step()) else { return false };
        let next = scheme.forecast.next(here);
        let used = self.notebook.tensor(object).and_then(|t| next_use(known, t, self.notebook.step()));
        let steps = known.trace.kernels.len() as u32;
        used.is_some_and(|used| scheme.forecast.interval(Step(used.0 % steps)) == Some(next))
    }

    /// What it costs to lose a region of fast memory: less the longer the reference distance.
    fn price(&self, m: &Manager, region: RegionId) -> Option<u64> {
        let owner = m.parent(region).filter(|owner| !m.in_use(*owner))?;
        let is_primary = m.primary(owner) == Some(region);
        if is_primary && m.tier(region) == m.machine().slowest() {
            return None;
        }
        let distance = self.distance(owner)?;
        let on_its_way = m.is_filling(region) && self.is_next(owner);
        if !is_primary && !on_its_way {
            return Some(0);
        }
        let steps = self.notebook.page().map_or(1, |known| known.trace.kernels.len() as u64);
        Some(((m.size_of(region).0 >> 10) + 1) * (1 + steps * 16 / (u64::from(distance) + 1)))
    }

    /// Clears a stretch of fast memory for so many bytes. Returns whether it could.
    fn make_way(&self, m: &mut Manager, size: Bytes) -> Result<bool, Error> {
        let cleared =
            m.evict_from(FAST, size, &[], |m, region| self.price(m, region), |m, r| self.vacate(m, r));
        match cleared {
            Ok(_) => Ok(true),
            Err(EvictError::NoWindow | EvictError::Vacate(Error::Full { .. })) => Ok(false),
            Err(EvictError::Vacate(error)) => Err(error),
        }
    }

    fn vacate(&self, m: &mut Manager, region: RegionId) -> Result<(), Error> {
        match m.parent(region) {
            Some(owner) if m.primary(owner) == Some(region) => {
                evict(m, Pricing { recency: &self.recency, keep: &[] }, owner)
            }
            _ => m.free(region),
        }
    }

    /// Lets objects leave fast memory, the longest reference distance first, until so many bytes are free.
    fn thin_out(&self, m: &mut Manager, wanted: Bytes, spare_next: bool) -> Result<(), Error> {
        if free(m) >= wanted {
            return Ok(());
        }
        let mut leaving: Vec<(u32, RegionId)> = Vec::new();
        for object in m.objects_on(FAST) {
            if m.in_use(object) || (spare_next && self.is_next(object)) {
                continue;
            }
            let region = m.region_on(object, FAST);
            leaving.extend(self.distance(object).zip(region));
        }
        leaving.sort_by_key(|(distance, _)| std::cmp::Reverse(*distance));
        for (_, region) in leaving {
            if free(m) >= wanted {
                break;
            }
            match self.vacate(m, region) {
                Ok(()) | Err(Error::Full { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The program has come to a new step: if an interval begins, room is made and fetches are lined up; what fits is
    /// fetched.
    fn arrive(&mut self, m: &mut Manager) -> Result<(), Error> {
        self.began.get_or_insert(m.now());
        let step = self.notebook.step();
        let Some((known, scheme)) = self.scheme() else { return Ok(()) };
        let Some(here) = scheme.forecast.interval(step) else { return Ok(()) };
        let growth = scheme.forecast.growth(step);
        if self.interval != Some(here) {
            let (forecast, next) = (&scheme.forecast, scheme.forecast.next(here));
            let born_next = forecast.growth(forecast.steps(next).start);
            let next = forecast.wanted(next).iter().copied();
            let missing = |tensor: &TensorId| {
                let object = self.notebook.object(*tensor);
                object.is_some_and(|object| m.region_on(object, FAST).is_none())
            };
            let coming: VecDeque<TensorId> = next.filter(missing).collect();
            let size: Bytes = coming.iter().map(|tensor| known.trace.tensor(*tensor).bytes).sum();
            self.thin_out(m, size + growth + born_next, true)?;
            (self.fetching, self.interval) = (coming, Some(here));
        }
        self.fetch(m, growth)
    }

    /// Fetches what the next interval uses while there is room beside what this one will still make.
    fn fetch(&mut self, m: &mut Manager, growth: Bytes) -> Result<(), Error> {
        while let Some(&tensor) = self.fetching.front() {
            let object = self.notebook.object(tensor);
            let source = object.filter(|o| m.is_written(*o) && m.region_on(*o, FAST).is_none());
            let source = source.and_then(|object| m.primary(object));
            if let Some(x) = source {
                if free(m) < m.size_of(x) + growth {
                    break;
                }
                let Ok(y) = m.allocate(FAST, m.size_of(x)) else { break };
                m.copy(x, y)?;
                // Kernels go on working on the slow tier until the bytes are there.
                m.link(x, y)?;
            }
            self.fetching.pop_front();
        }
        Ok(())
    }

    /// Lets a kernel work on fast memory where a fetch has landed, or where it cannot work on anything else.
    fn land(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        let Some(y) = m.region_on(object, FAST) else { return Ok(()) };
        let Some(home) = m.home(object).filter(|home| *home != FAST) else { return Ok(()) };
        if !m.is_current(y) {
            return m.free(y);
        }
        if m.is_filling(y) && m.machine().tier(home).computable {
            self.late += 1;
            return Ok(());
        }
        m.set_primary(object, y)?;
        self.recency.get_mut().moved(object, FAST);
        Ok(())
    }

    /// Lets inputs make way for outputs until so many bytes are free: what slow memory holds as well, and the rest of
    /// the interval only reads, is read there. A slow input costs little, a slow output much (section II-B).
    fn yield_inputs(&mut self, m: &mut Manager, wanted: Bytes) -> Result<(), Error> {
        let Some((known, scheme)) = self.scheme().filter(|_| free(m) < wanted) else { return Ok(()) };
        let now = self.notebook.step();
        let Some(here) = scheme.forecast.interval(now) else { return Ok(()) };
        let rest = &known.trace.kernels[now.0 as usize..scheme.forecast.steps(here).end.0 as usize];
        let is_written =
            |tensor: TensorId| rest.iter().any(|kernel| kernel.writes.iter().any(|u| u.tensor == tensor));
        for object in m.objects_on(FAST) {
            if free(m) >= wanted {
                break;
            }
            let Some(x) = m.primary(object).filter(|x| m.tier(*x) == FAST && !m.in_use(object)) else {
                continue;
            };
            let held = |y: &RegionId| *y != x && m.is_current(*y) && m.machine().tier(m.tier(*y)).computable;
            let Some(y) = m.regions_of(object).find(held) else { continue };
            if self.notebook.tensor(object).is_some_and(|tensor| !is_written(tensor)) {
                m.set_primary(object, y)?;
                m.free(x)?;
                self.recency.borrow_mut().moved(object, m.tier(y));
            }
        }
        Ok(())
    }

    /// A region of fast memory for a new object, if it may have one.
    fn admit(&mut self, m: &mut Manager, size: Bytes, short: bool) -> Result<Option<RegionId>, Error> {
        let Some((_, scheme)) = self.scheme() else { return Ok(m.allocate(FAST, size).ok()) };
        if size > m.space(FAST).capacity() {
            return Ok(None);
        }
        let others = if short { Bytes::ZERO } else { scheme.forecast.short_growth(self.notebook.step()) };
        self.thin_out(m, size + others, false)?;
        self.yield_inputs(m, size + others)?;
        if free(m) < size + others {
            return Ok(None);
        }
        if let Ok(region) = m.allocate(FAST, size) {
            return Ok(Some(region));
        }
        // There is room, but in pieces.
        if !self.make_way(m, size)? {
            self.yield_inputs(m, Bytes(u64::MAX))?;
            self.make_way(m, size)?;
        }
        Ok(m.allocate(FAST, size).ok())
    }
}

/// The bytes of fast memory that are free, in whatever pieces.
fn free(m: &Manager) -> Bytes {
    let space = m.space(FAST);
    space.capacity().saturating_sub(space.used())
}

impl Policy for Redl {
    fn name(&self) -> &str {
        "redl"
    }

    fn coming(&mut self, m: &mut Manager, _: Step, op: &str) -> Result<(), Error> {
        self.notebook.coming(op);
        self.arrive(m)
    }

    fn layer_ended(&mut self, _: &mut Manager) -> Result<(), Error> {
        self.notebook.layer_ended();
        Ok(())
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        let size = m.size(object)?;
        let seen = self.notebook.placed(m, object);
        let short = seen.is_some_and(|tensor| self.is_short(tensor));
        let mut region = self.admit(m, size, short)?;
        for tier in m.machine().tier_ids().skip(1) {
            region = region.or_else(|| m.allocate(tier, size).ok());
        }
        let Some(region) = region else { return Err(m.no_room(object, m.machine().slowest())) };
        m.set_primary(object, region)?;
        self.recency.get_mut().touch(object, m.tier(region));
        Ok(())
    }

    fn hint(&mut self, m: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error> {
        if hint == Hint::Retire && m.contains(object) {
            self.notebook.retired(object);
            self.recency.get_mut().remove(object);
            m.retire(object)?;
        }
        Ok(())
    }

    fn before(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        m.settle();
        if step != Step::LOAD {
            self.arrive(m)?;
        }
        self.notebook.before(m, step, operands);
        for operand in operands {
            self.land(m, operand.object)?;
            if let Some(home) = m.home(operand.object) {
                self.recency.get_mut().touch(operand.object, home);
            }
        }
        gather(m, &self.recency, step, operands)
    }

    fn after(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        self.notebook.after(m, step);
        for operand in operands.iter().filter(|operand| operand.access.writes()) {
            // A fetch of what has been changed since is of no use.
            let region = m.region_on(operand.object, FAST);
            if let Some(stale) = region.filter(|region| !m.is_current(*region)) {
                m.free(stale)?;
            }
        }
        Ok(())
    }

    fn iteration_ended(&mut self, m: &mut Manager) -> Result<(), Error> {
        let time = self.began.take().map_or(Nanos::ZERO, |began| m.now().saturating_sub(began));
        self.iterations += 1;
        match self.notebook.ended() {
            Ended::Learned(id) => {
                self.schemes.retain(|id, _| self.notebook.known(*id).is_some());
                if let Some(known) = self.notebook.known(id) {
                    self.schemes.insert(id, Scheme::new(known));
                }
            }
            Ended::Known(id) => {
                if let Some((known, scheme)) = self.notebook.known(id).zip(self.schemes.get_mut(&id)) {
                    let over = scheme.search.is_over();
                    scheme.measured(known, m.machine(), time);
                    if scheme.search.is_over() && !over {
                        self.warm_up = self.iterations;
                    }
                }
            }
            Ended::Unknown => {}
        }
        (self.interval, self.fetching) = (None, VecDeque::new());
        Ok(())
    }

    fn settled(&self) -> bool {
        self.scheme().is_some_and(|(_, scheme)| scheme.search.is_over())
    }
}

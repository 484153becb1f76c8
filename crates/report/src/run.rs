//! A run as it can be drawn: everything that has a beginning and an end, worked out from its events.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tiercel_core::{Bytes, Cause, Nanos, Outcome, Place, Span, Step, Ticket, TierId};
use tiercel_workload::trace::Role;

use crate::comparison::Row;
use crate::events::{Entry, Log, What};
use crate::header::{Header, Kernel, read_role, write_role};

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What it was.
    pub header: Header,
    /// The objects that it made; one that is made anew in every iteration is here once.
    pub objects: Vec<Object>,
    /// Its iterations, in order.
    pub iterations: Vec<Iteration>,
    /// Kernels that ran, by their beginning.
    pub kernels: Vec<KernelSpan>,
    /// Copies, in the order in which they were started.
    pub copies: Vec<CopySpan>,
    /// Waiting, by its end.
    pub stalls: Vec<Stall>,
    /// Memory in use, by its beginning.
    pub regions: Vec<RegionSpan>,
    /// Memory set aside, by its beginning.
    pub zones: Vec<ZoneSpan>,
    /// The most bytes that each tier has held at once.
    pub peak: Vec<Bytes>,
    /// When the last event was.
    pub end: Nanos,
    /// What somebody who looks at it should know.
    pub notes: Vec<String>,
}

/// An object that a run made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Its name.
    pub name: Arc<str>,
    /// What it is for; `None` where nobody said.
    #[serde(default, serialize_with = "write_role", deserialize_with = "read_role")]
    pub role: Option<Role>,
    /// Its size.
    pub bytes: Bytes,
}

/// One pass over the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iteration {
    /// Its number.
    pub number: u32,
    /// When it began.
    #[serde(rename = "began_ns")]
    pub began: Nanos,
    /// When it ended, or the run did.
    #[serde(rename = "ended_ns")]
    pub ended: Nanos,
    /// Time in which its inputs were filled, which does not count.
    #[serde(rename = "loading_ns", default)]
    pub loading: Nanos,
    /// Time in kernels.
    #[serde(rename = "compute_ns")]
    pub compute: Nanos,
    /// The same with every operand in the fastest tier and nothing beside, where the header knows it of all kernels.
    #[serde(rename = "compute_alone_ns")]
    pub alone: Option<Nanos>,
    /// Time that kernels waited for copies.
    #[serde(rename = "stall_ns")]
    pub stall: Nanos,
    /// Bytes moved towards faster tiers.
    #[serde(rename = "fetched_bytes")]
    pub fetched: Bytes,
    /// Bytes moved towards slower tiers.
    #[serde(rename = "evicted_bytes")]
    pub evicted: Bytes,
}

impl Iteration {
    /// How long it took.
    pub fn time(&self) -> Nanos {
        self.ended.saturating_sub(self.began).saturating_sub(self.loading)
    }

    /// Time in neither kernels nor waiting: what deciding costs.
    pub fn rest(&self) -> Nanos {
        self.time().saturating_sub(self.compute).saturating_sub(self.stall)
    }
}

/// One kernel that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelSpan {
    /// Which one; [`Step::LOAD`] where an object got its first contents.
    pub step: Step,
    /// When.
    pub span: Span,
    /// Whether it had run before in this iteration: its result had been dropped and was computed again.
    pub again: bool,
    /// Whether it ran beside others.
    #[serde(default)]
    pub detached: bool,
}

/// One copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopySpan {
    /// Its ticket.
    pub ticket: Ticket,
    /// The position of its object in [`Run::objects`].
    pub object: usize,
    /// Where the bytes were.
    pub from: Place,
    /// Where they went.
    pub to: Place,
    /// How many.
    pub bytes: Bytes,
    /// When it was asked for.
    pub asked: Nanos,
    /// When its bytes moved; where nobody knows, from when it was asked for until it was seen to have ended.
    pub span: Span,
    /// How it ended; `None` if it had not when the run did.
    pub outcome: Option<Outcome>,
}

impl CopySpan {
    /// Whether it went towards a faster tier.
    pub fn is_fetch(&self) -> bool {
        self.to.tier < self.from.tier
    }

    /// What people call it: by its direction.
    pub fn kind(&self) -> &'static str {
        match self.to.tier.cmp(&self.from.tier) {
            std::cmp::Ordering::Less => "fetch",
            std::cmp::Ordering::Greater => "evict",
            std::cmp::Ordering::Equal => "shift",
        }
    }
}

/// A kernel waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// The kernel.
    pub step: Step,
    /// The position of the object that it waited for in [`Run::objects`].
    pub object: usize,
    /// The copy that it waited for.
    pub ticket: Ticket,
    /// Why.
    pub cause: Cause,
    /// When.
    pub span: Span,
}

/// Memory in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionSpan {
    /// Where.
    pub place: Place,
    /// How much.
    pub bytes: Bytes,
    /// The position of its object in [`Run::objects`]; `None` if it never had one.
    pub object: Option<usize>,
    /// When.
    pub span: Span,
}

/// Memory set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneSpan {
    /// What for.
    pub name: Arc<str>,
    /// Where.
    pub place: Place,
    /// How much.
    pub bytes: Bytes,
    /// When.
    pub span: Span,
}

impl Run {
    /// Works a run out from its events.
    pub fn new(log: Log) -> Run {
        let Log { header, entries, notes } = log;
        let mut digest = Digest::new(header, notes);
        for entry in &entries {
            digest.add(entry);
        }
        digest.finish()
    }

    /// The kernel at a step, where the header knows it.
    pub fn kernel(&self, step: Step) -> Option<&Kernel> {
        self.header.kernels.get(step.0 as usize).filter(|_| step != Step::LOAD)
    }

    /// The name of the kernel at a step.
    pub fn kernel_name(&self, step: Step) -> String {
        self.kernel(step).map_or_else(|| step.to_string(), |kernel| kernel.name.clone())
    }

    /// The iterations that count: those after the warm-ups.
    pub fn counted(&self) -> &[Iteration] {
        self.iterations.get(self.header.warmup_iterations as usize..).unwrap_or_default()
    }

    /// The time of all stalls together.
    pub fn stall(&self) -> Nanos {
        Nanos(add_up(self.stalls.iter().map(|stall| length(stall.span).0)))
    }

    /// Bytes moved in all iterations that count together, towards faster tiers and towards slower ones.
    pub fn moved(&self) -> (Bytes, Bytes) {
        let fetched = add_up(self.counted().iter().map(|i| i.fetched.0));
        (Bytes(fetched), Bytes(add_up(self.counted().iter().map(|i| i.evicted.0))))
    }

    /// Its figures, as a row of a comparison.
    pub fn row(&self) -> Row {
        let header = &self.header;
        let (fetched, evicted) = self.moved();
        let peak = header.peak_bytes.filter(|peak| peak.0 > 0);
        Row {
            net: header.net.clone(),
            batch: header.batch,
            machine: header.machine.clone(),
            system: header.system.clone(),
            on: header.on.clone(),
            measured: header.measured,
            emulated: header.emulated(),
            fast_fraction: peak.map(|peak| header.fast_bytes.0 as f64 / peak.0 as f64),
            fast_bytes: header.fast_bytes,
            iteration_ns: self.counted().iter().map(|i| i.time().0).collect(),
            stall_ns: add_up(self.counted().iter().map(|i| i.stall.0)),
            fetched_bytes: fetched,
            evicted_bytes: evicted,
            peak_fast_bytes: self.peak.first().copied().unwrap_or_default(),
            memory_price: peak.and_then(|peak| self.price()?.at(header.fast_bytes.min(peak))),
            ..Row::default()
        }
    }

    /// What memory costs by how much of it is fast, where the header has prices and the peak.
    pub fn price(&self) -> Option<crate::curve::Price> {
        let price = |tier: Option<&crate::header::Tier>| tier?.price_per_gb;
        let (fast, slow) = (price(self.header.tiers.first())?, price(self.header.tiers.last())?);
        Some(crate::curve::Price::new(fast, slow, self.header.peak_bytes?))
    }
}

/// A sum that stays at the largest number where it would go beyond: figures of files may be anything.
pub(crate) fn add_up(figures: impl Iterator<Item = u64>) -> u64 {
    figures.fold(0, u64::saturating_add)
}

/// How long a span is.
pub(crate) fn length(span: Span) -> Nanos {
    span.ended.saturating_sub(span.began)
}

/// What is known while events are gone through.
struct Digest {
    run: Run,
    /// The positions of objects by name.
    by_name: HashMap<Arc<str>, usize>,
    /// What the header says of objects.
    roles: HashMap<String, Role>,
    /// The objects that live now.
    living: HashMap<u32, usize>,
    /// The positions of regions that are in use now.
    regions: HashMap<u32, usize>,
    /// The positions of zones that exist now, by tier and number.
    zones: HashMap<(TierId, u32), usize>,
    /// The positions of copies that fly now.
    copies: HashMap<Ticket, usize>,
    /// The kernels that run now, by their positions.
    kernels: HashMap<Step, usize>,
    /// The kernels that run beside others now, by their positions.
    detached: HashMap<Ticket, usize>,
    /// How often each step has run in this iteration.
    seen: HashMap<Step, u32>,
    iteration: Option<Iteration>,
    /// Bytes in use on each tier, in whole grains.
    used: Vec<Bytes>,
}

impl Digest {
    fn new(header: Header, notes: Vec<String>) -> Digest {
        let tiers = header.tiers.len();
        let roles = header.objects.iter().filter_map(|o| Some((o.name.clone(), o.role?))).collect();
        let run = Run { peak: vec![Bytes::ZERO; tiers], header, notes, ..Run::default() };
        Digest {
            run,
            by_name: HashMap::new(),
            roles,
            living: HashMap::new(),
            regions: HashMap::new(),
            zones: HashMap::new(),
            copies: HashMap::new(),
            kernels: HashMap::new(),
            detached: HashMap::new(),
            seen: HashMap::new(),
            iteration: None,
            used: vec![Bytes::ZERO; tiers],
        }
    }

    fn add(&mut self, entry: &Entry) {
        let at = entry.at;
        self.run.end = at.max(self.run.end);
        match entry.what {
            What::Created { object, ref name, bytes } => self.created(object, name.as_ref(), bytes),
            What::Retired { object } => {
                self.living.remove(&object);
            }
            What::Allocated { region, place, bytes } => self.allocated(at, region, place, bytes),
            What::Freed { region, place, bytes } => self.freed(at, region, place, bytes),
            What::Linked { object, region } => self.linked(at, object, region),
            What::CopyStarted { ticket, object, from, to, bytes } => {
                self.copy_started(at, ticket, object, from, to, bytes);
            }
            What::CopyEnded { ticket, outcome, span, .. } => {
                if let Some(position) = self.copies.remove(&ticket) {
                    let copy = &mut self.run.copies[position];
                    // A copy of which nothing moved took no time.
                    let nothing = Span { began: at, ended: at };
                    let seen = Span { began: copy.asked, ended: at };
                    let unknown = if outcome == Outcome::Done { seen } else { nothing };
                    copy.span = span.map_or(unknown, |span| clip(span, copy.asked, at));
                    copy.outcome = Some(outcome);
                }
            }
            What::Cached { fetched, evicted } => self.count(fetched, evicted),
            What::Zoned { zone, ref name, place, bytes } => self.zoned(at, zone, name, place, bytes),
            What::KernelBegan { step } => self.kernel_began(at, step),
            What::KernelEnded { step } => self.kernel_ended(at, step),
            What::KernelLeft { step, ticket } => {
                if let Some(position) = self.kernels.remove(&step) {
                    self.run.kernels[position].detached = true;
                    self.detached.insert(ticket, position);
                }
            }
            What::KernelReturned { ticket, span, .. } => {
                if let Some(position) = self.detached.remove(&ticket) {
                    let kernel = &mut self.run.kernels[position];
                    let seen = Span { began: kernel.span.began, ended: at };
                    kernel.span = span.map_or(seen, |span| clip(span, kernel.span.began, at));
                }
            }
            What::Stalled { step, object, ticket, cause, time } => {
                let object = self.object(object);
                let span = Span { began: at.saturating_sub(time), ended: at };
                self.run.stalls.push(Stall { step, object, ticket, cause, span });
                if let Some(iteration) = &mut self.iteration {
                    iteration.stall = Nanos(iteration.stall.0.saturating_add(length(span).0));
                }
            }
            What::IterationBegan { iteration } => {
                self.end_iteration(at);
                self.seen.clear();
                let alone = (!self.run.header.kernels.is_empty()).then_some(Nanos::ZERO);
                self.iteration =
                    Some(Iteration { number: iteration, began: at, alone, ..Iteration::default() });
            }
            What::IterationEnded { .. } => self.end_iteration(at),
            What::Hinted { .. } | What::Unlinked { .. } | What::Primary { .. } => {}
        }
    }

    fn finish(mut self) -> Run {
        let end = self.run.end;
        if let Some(iteration) = &self.iteration {
            let note = format!("iteration {} had not ended when the events did", iteration.number);
            self.run.notes.push(note);
        }
        self.iteration = None;
        for position in self.regions.values() {
            self.run.regions[*position].span.ended = end;
        }
        for position in self.zones.values() {
            self.run.zones[*position].span.ended = end;
        }
        for position in self.copies.values() {
            self.run.copies[*position].span.ended = end;
        }
        for position in self.kernels.values().chain(self.detached.values()) {
            self.run.kernels[*position].span.ended = end;
        }
        self.run
    }

    /// The position of the object that a number stands for now; one that nobody made gets a name from its number.
    fn object(&mut self, number: u32) -> usize {
        match self.living.get(&number) {
            Some(position) => *position,
            None => {
                let position = self.named(Arc::from(format!("object {number}")), Bytes::ZERO);
                self.living.insert(number, position);
                position
            }
        }
    }

    fn named(&mut self, name: Arc<str>, bytes: Bytes) -> usize {
        let next = self.run.objects.len();
        let position = *self.by_name.entry(Arc::clone(&name)).or_insert(next);
        if position == next {
            let role = self.roles.get(&*name).copied();
            self.run.objects.push(Object { name, role, bytes });
        }
        let object = &mut self.run.objects[position];
        object.bytes = bytes.max(object.bytes);
        position
    }

    fn created(&mut self, object: u32, name: Option<&Arc<str>>, bytes: Bytes) {
        let name = name.map_or_else(|| Arc::from(format!("object {object}")), Arc::clone);
        let position = self.named(name, bytes);
        self.living.insert(object, position);
    }

    fn grains(&self, bytes: Bytes) -> Bytes {
        bytes.max(Bytes(1)).round_up(self.run.header.grain).unwrap_or(bytes)
    }

    fn allocated(&mut self, at: Nanos, region: u32, place: Place, bytes: Bytes) {
        let span = Span { began: at, ended: at };
        self.run.regions.push(RegionSpan { place, bytes, object: None, span });
        self.regions.insert(region, self.run.regions.len() - 1);
        let grains = self.grains(bytes);
        let used = &mut self.used[place.tier.index()];
        *used = Bytes(used.0.saturating_add(grains.0));
        let peak = &mut self.run.peak[place.tier.index()];
        *peak = (*peak).max(*used);
    }

    fn freed(&mut self, at: Nanos, region: u32, place: Place, bytes: Bytes) {
        if let Some(position) = self.regions.remove(&region) {
            self.run.regions[position].span.ended = at;
            let grains = self.grains(bytes);
            let used = &mut self.used[place.tier.index()];
            *used = used.saturating_sub(grains);
        }
    }

    /// A region that had another object before is drawn as two.
    fn linked(&mut self, at: Nanos, object: u32, region: u32) {
        let object = self.object(object);
        let Some(&position) = self.regions.get(&region) else { return };
        let known = &mut self.run.regions[position];
        match known.object {
            None => known.object = Some(object),
            Some(before) if before == object => {}
            Some(_) => {
                known.span.ended = at;
                let next = RegionSpan { object: Some(object), span: Span { began: at, ended: at }, ..*known };
                self.run.regions.push(next);
                self.regions.insert(region, self.run.regions.len() - 1);
            }
        }
    }

    fn zoned(&mut self, at: Nanos, zone: u32, name: &Arc<str>, place: Place, bytes: Bytes) {
        if let Some(position) = self.zones.remove(&(place.tier, zone)) {
            self.run.zones[position].span.ended = at;
        }
        if bytes > Bytes::ZERO {
            let span = Span { began: at, ended: at };
            self.run.zones.push(ZoneSpan { name: Arc::clone(name), place, bytes, span });
            self.zones.insert((place.tier, zone), self.run.zones.len() - 1);
        }
    }

    fn copy_started(&mut self, at: Nanos, ticket: Ticket, object: u32, from: Place, to: Place, bytes: Bytes) {
        let object = self.object(object);
        let span = Span { began: at, ended: at };
        let copy = CopySpan { ticket, object, from, to, bytes, asked: at, span, outcome: None };
        match copy.kind() {
            "fetch" => self.count(bytes, Bytes::ZERO),
            "evict" => self.count(Bytes::ZERO, bytes),
            _ => {}
        }
        self.run.copies.push(copy);
        self.copies.insert(ticket, self.run.copies.len() - 1);
    }

    fn count(&mut self, fetched: Bytes, evicted: Bytes) {
        if let Some(iteration) = &mut self.iteration {
            iteration.fetched = Bytes(iteration.fetched.0.saturating_add(fetched.0));
            iteration.evicted = Bytes(iteration.evicted.0.saturating_add(evicted.0));
        }
    }

    fn kernel_began(&mut self, at: Nanos, step: Step) {
        let times = self.seen.entry(step).or_default();
        *times += 1;
        let again = *times > 1 && step != Step::LOAD && self.iteration.is_some();
        let span = Span { began: at, ended: at };
        self.run.kernels.push(KernelSpan { step, span, again, detached: false });
        self.kernels.insert(step, self.run.kernels.len() - 1);
    }

    fn kernel_ended(&mut self, at: Nanos, step: Step) {
        let Some(position) = self.kernels.remove(&step) else { return };
        let kernel = &mut self.run.kernels[position];
        kernel.span.ended = at;
        let time = length(kernel.span);
        let alone = self.run.header.kernels.get(step.0 as usize).and_then(|k| k.fast_ns);
        if step == Step::LOAD {
            if let Some(iteration) = &mut self.iteration {
                iteration.loading = Nanos(iteration.loading.0.saturating_add(time.0));
            }
        } else if let Some(iteration) = &mut self.iteration {
            iteration.compute = Nanos(iteration.compute.0.saturating_add(time.0));
            let sum = iteration.alone.zip(alone).map(|(sum, alone)| Nanos(sum.0.saturating_add(alone)));
            iteration.alone = sum;
        }
    }

    fn end_iteration(&mut self, at: Nanos) {
        if let Some(mut iteration) = self.iteration.take() {
            iteration.ended = at;
            self.run.iterations.push(iteration);
        }
    }
}

/// A span within limits, so that what a backend says never leads outside the run.
fn clip(span: Span, from: Nanos, to: Nanos) -> Span {
    let began = span.began.clamp(from, to.max(from));
    Span { began, ended: span.ended.clamp(began, to.max(began)) }
}

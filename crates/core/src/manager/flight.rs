//! Copies in flight: what they hold, what waits for them, and what happens when one fails.
//!
//! A copy is started and returned from at once. Its source may be freed, its destination made primary, its memory
//! handed out again, all while it flies; so what a policy decides never depends on how fast copies are. What must
//! keep its order is kept by dependencies:
//! - a copy from a region waits for the copy that fills that region;
//! - a copy into a region waits for copies that fill or read it, and for copies of earlier regions that still use
//!   its memory (the region is haunted);
//! - a kernel waits for just the same (`kernel.rs`).
//!
//! A kernel that runs beside others (`detached.rs`) flies in the same way: it fills what it writes and reads the rest.
//!
//! A failed copy is undone: since everything that would overwrite its source waits for it, the source's bytes are
//! still there even if the region is not, and the region is made anew.

use crate::backend::{Backend, CopyError, CopyOrder, Place, Ticket};
use crate::error::Error;
use crate::event::{Cause, Event, Outcome};
use crate::object::ObjectId;
use crate::region::RegionId;
use crate::slab::key;
use crate::units::{Bytes, Step};

use super::{Manager, unknown};

key!(
    /// A copy, or a kernel beside others, that has not been seen to end.
    FlightId,
    "flight"
);

#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) ticket: Ticket,
    cancelled: bool,
    pub(super) job: Job,
}

/// What is under way.
#[derive(Clone, Debug)]
pub(super) enum Job {
    /// Bytes on their way from one region to another.
    Copy(Freight),
    /// A kernel beside others.
    Kernel(Detached),
}

/// The bytes of a copy.
#[derive(Clone, Debug)]
pub(super) struct Freight {
    object: ObjectId,
    /// The version of the object's bytes that it carries.
    version: u32,
    bytes: Bytes,
    from: Place,
    to: Place,
    /// The region that it reads, while that exists.
    source: Option<RegionId>,
    /// The region that it fills, while that exists and wants its bytes.
    target: Option<RegionId>,
    /// What was still filling its source when it started: it carries on what that one brings.
    feeds_on: Option<FlightId>,
}

/// A kernel beside others: the regions that it only reads and those that it writes, while they exist.
#[derive(Clone, Debug)]
pub(super) struct Detached {
    pub(super) step: Step,
    /// An object that it writes.
    pub(super) object: Option<ObjectId>,
    pub(super) reads: Vec<RegionId>,
    pub(super) writes: Vec<RegionId>,
}

impl Flight {
    /// A flight that has just been ordered.
    pub(super) fn new(ticket: Ticket, job: Job) -> Flight {
        Flight { ticket, cancelled: false, job }
    }

    /// The bytes that it carries, where it is a copy.
    fn freight(&self) -> Option<&Freight> {
        match &self.job {
            Job::Copy(freight) => Some(freight),
            Job::Kernel(_) => None,
        }
    }

    /// The regions that it reads.
    fn sources(&self) -> &[RegionId] {
        match &self.job {
            Job::Copy(freight) => freight.source.as_slice(),
            Job::Kernel(detached) => &detached.reads,
        }
    }

    /// The regions that it fills.
    fn targets(&self) -> &[RegionId] {
        match &self.job {
            Job::Copy(freight) => freight.target.as_slice(),
            Job::Kernel(detached) => &detached.writes,
        }
    }

    /// A region that it may use is no more.
    fn leave(&mut self, region: RegionId) {
        match &mut self.job {
            Job::Copy(freight) => {
                freight.source.take_if(|source| *source == region);
                freight.target.take_if(|target| *target == region);
            }
            Job::Kernel(detached) => {
                detached.reads.retain(|other| *other != region);
                detached.writes.retain(|other| *other != region);
            }
        }
    }

    /// It fills a region that has been made anew.
    fn fill(&mut self, region: RegionId) {
        match &mut self.job {
            Job::Copy(freight) => freight.target = Some(region),
            Job::Kernel(detached) => detached.writes.push(region),
        }
    }
}

/// Memory that was given back while a copy still used it.
#[derive(Clone, Debug)]
pub(super) struct Ghost {
    pub(super) start: Bytes,
    pub(super) end: Bytes,
    pub(super) flight: FlightId,
}

/// More copies than this in flight are worth a look at which have ended before memory is handed out.
const MANY: usize = 64;

impl<B: Backend + ?Sized> Manager<B> {
    /// Starts to copy a region's bytes into another region. The destination counts as holding them from now on;
    /// whoever needs them waits until they are there.
    pub fn copy(&mut self, from: RegionId, to: RegionId) -> Result<Ticket, Error> {
        self.copy_paged(from, to, Bytes(u64::MAX))
    }

    /// The same for a copy that page faults ask for, page by page: each page takes the link's latency.
    pub fn copy_paged(&mut self, from: RegionId, to: RegionId, page: Bytes) -> Result<Ticket, Error> {
        let source = self.regions.get(from.0).ok_or_else(|| unknown(from))?;
        let target = self.regions.get(to.0).ok_or_else(|| unknown(to))?;
        let refused = |what: RegionId, why| Err(Error::Refused { what: what.to_string(), why });
        let Some(object) = source.contents.filter(|object| self.contains(*object)) else {
            return refused(from, "it holds no object's bytes");
        };
        if self.objects.get(object.0).is_some_and(|o| o.writers > 0) {
            return Err(Error::InUse { what: self.what(object), action: "copied" });
        }
        if from == to || target.size < source.size {
            return refused(to, "it cannot take the bytes of the other region");
        }
        if target.object.is_some_and(|parent| self.primary(parent) == Some(to)) {
            return refused(to, "it holds an object's current bytes");
        }
        if target.object.is_some_and(|parent| parent != object) {
            return refused(to, "it belongs to another object");
        }
        let (version, bytes, feeds_on) = (source.version, source.size, source.fill);
        let after = self.blockers(from, to);
        let (from_place, to_place) = (self.place_of(from), self.place_of(to));
        let order = CopyOrder { from: from_place, to: to_place, bytes, after: &after };
        let ticket = self.backend.copy_paged(order, bytes.0.div_ceil(page.0.max(1)).max(1));
        let freight = Freight {
            object,
            version,
            bytes,
            from: from_place,
            to: to_place,
            source: Some(from),
            target: Some(to),
            feeds_on,
        };
        let flight = FlightId(self.flights.insert(Flight::new(ticket, Job::Copy(freight))));
        self.flying.push(flight);
        self.regions.get_mut(from.0).expect("just seen").readers += 1;
        let target = self.regions.get_mut(to.0).expect("just seen");
        (target.fill, target.version, target.contents) = (Some(flight), version, Some(object));
        self.totals.copies += 1;
        match from_place.tier.cmp(&to_place.tier) {
            std::cmp::Ordering::Less => self.totals.evicted += bytes,
            std::cmp::Ordering::Greater => self.totals.fetched += bytes,
            std::cmp::Ordering::Equal => {}
        }
        self.note(|| Event::CopyStarted { ticket, object, from: from_place, to: to_place, bytes });
        Ok(ticket)
    }

    /// Looks which copies have ended. One that failed is undone, and the next kernel to begin says so.
    ///
    /// Copies wait only for older ones, so going from the oldest on, the cause of a failure is undone before what
    /// failed because of it.
    pub fn settle(&mut self) {
        let mut at = 0;
        while at < self.flying.len() {
            let id = self.flying[at];
            match self.backend.done(self.flight(id).ticket) {
                Ok(false) => at += 1,
                Ok(true) => self.land(id),
                Err(cause) => {
                    let error = self.crash(id, cause);
                    self.failure.get_or_insert(error);
                    at = 0;
                }
            }
        }
    }

    /// Waits until every copy has ended, and says if one failed.
    pub fn drain(&mut self) -> Result<(), Error> {
        while let Some(id) = self.flying.first().copied() {
            self.finish(id)?;
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    /// How many copies have not been seen to end.
    pub fn in_flight(&self) -> usize {
        self.flying.len()
    }

    /// Whether a copy that fills the object's primary may still fly.
    pub fn is_arriving(&self, object: ObjectId) -> bool {
        self.primary(object).is_some_and(|region| self.region(region).fill.is_some())
    }

    /// Whether a copy that fills this region may still fly.
    pub fn is_filling(&self, region: RegionId) -> bool {
        self.regions.get(region.0).is_some_and(|r| r.fill.is_some())
    }

    /// Waits until the object's bytes are in its primary, for policies that move synchronously; the time counts as a
    /// stall of the kernel at `step`.
    pub fn wait_for(&mut self, step: Step, object: ObjectId) -> Result<(), Error> {
        let fill = self.primary(object).and_then(|region| self.region(region).fill);
        fill.map_or(Ok(()), |flight| self.stall(step, object, flight, Cause::Arrival))
    }

    /// Settles when many copies fly, so that programs without kernels do not keep them forever.
    pub(super) fn settle_many(&mut self) {
        if self.flying.len() > MANY {
            self.settle();
        }
    }

    /// Waits for one copy.
    pub(super) fn finish(&mut self, id: FlightId) -> Result<(), Error> {
        let Some(flight) = self.flights.get(id.0) else { return Ok(()) };
        match self.backend.wait(flight.ticket) {
            Ok(()) => {
                self.land(id);
                Ok(())
            }
            Err(_) => {
                self.settle();
                Err(self.failure.take().expect("a copy that failed is undone when copies are settled"))
            }
        }
    }

    /// The ticket of a copy that may still fly.
    pub(super) fn ticket(&self, id: FlightId) -> Option<Ticket> {
        self.flights.get(id.0).map(|flight| flight.ticket)
    }

    /// What reads a region and may still fly.
    pub(super) fn departures(&self, region: RegionId) -> Vec<FlightId> {
        let reads = |id: &&FlightId| self.flight(**id).sources().contains(&region);
        self.flying.iter().filter(reads).copied().collect()
    }

    /// Waits for every copy that reads an object's primary, because its bytes are about to change. The regions
    /// that those copies fill will be stale then, so what has not moved yet need not.
    pub(super) fn finish_departures(&mut self, object: ObjectId) -> Result<(), Error> {
        // What arrives may have come from here: it must not be called off with what departs.
        if let Some(arrival) = self.primary(object).and_then(|region| self.region(region).fill) {
            self.finish(arrival)?;
        }
        let Some(primary) = self.primary(object) else { return Ok(()) };
        for id in self.departures(primary) {
            self.call_off(id);
            self.finish(id)?;
        }
        Ok(())
    }

    /// Nobody needs the bytes of this copy any more, nor those of copies that carry them on. A kernel cannot be called off:
    /// somebody needs what else it writes.
    pub(super) fn call_off(&mut self, id: FlightId) {
        let Some(flight) = self.flights.get_mut(id.0).filter(|flight| flight.freight().is_some()) else {
            return;
        };
        flight.cancelled = true;
        let ticket = flight.ticket;
        self.void(id);
        self.backend.cancel(ticket);
        for next in self.onwards(id) {
            self.call_off(next);
        }
    }

    /// The region that a copy fills will not hold what it should.
    fn void(&mut self, id: FlightId) {
        let target = self.flight(id).freight().and_then(|freight| freight.target);
        let target = target.and_then(|region| self.regions.get_mut(region.0));
        if let Some(target) = target.filter(|target| target.fill == Some(id)) {
            target.version = 0;
        }
    }

    /// The copies that carry on what this one brings.
    fn onwards(&self, id: FlightId) -> Vec<FlightId> {
        let feeds = |next: &FlightId| self.flight(*next).freight().is_some_and(|f| f.feeds_on == Some(id));
        self.flying.iter().copied().filter(feeds).collect()
    }

    /// Cancels the copy that fills a region about to be freed.
    pub(super) fn cancel_fill(&mut self, region: RegionId) {
        if let Some(id) = self.region(region).fill {
            // A copy onwards from this region still needs its bytes.
            if self.region(region).readers == 0 {
                self.call_off(id);
            }
        }
    }

    /// Cancels every copy of an object that is given up, as far as this region goes.
    pub(super) fn abandon(&mut self, region: RegionId) {
        for id in self.departures(region) {
            self.call_off(id);
        }
        if let Some(id) = self.region(region).fill {
            self.call_off(id);
        }
    }

    /// Leaves ghosts for the copies that use a region about to be freed.
    pub(super) fn haunt(&mut self, region: RegionId) {
        let r = self.region(region);
        if r.fill.is_none() && r.readers == 0 {
            return;
        }
        let (tier, start) = (r.tier, r.offset);
        let end = start + self.spaces[tier.index()].heap(r.zone).size(r.block);
        // What haunted it before it was allocated goes on doing so.
        let mut flights: Vec<FlightId> = r.fill.into_iter().collect();
        flights.extend(self.departures(region));
        for id in flights {
            let Some(flight) = self.flights.get_mut(id.0) else { continue };
            flight.leave(region);
            self.ghosts[tier.index()].push(Ghost { start, end, flight: id });
        }
    }

    pub(super) fn flight(&self, id: FlightId) -> &Flight {
        self.flights.get(id.0).unwrap_or_else(|| panic!("{id} has ended"))
    }

    /// The tickets that a copy between these regions must wait for.
    fn blockers(&self, from: RegionId, to: RegionId) -> Vec<Ticket> {
        let (source, target) = (self.region(from), self.region(to));
        let mut flights: Vec<FlightId> = source.fill.iter().chain(&target.fill).copied().collect();
        flights.extend(source.space.iter().chain(&target.space));
        if target.readers > 0 {
            flights.extend(self.departures(to));
        }
        let mut tickets: Vec<Ticket> = flights.iter().filter_map(|id| self.ticket(*id)).collect();
        tickets.sort_unstable();
        tickets.dedup();
        tickets
    }

    /// A copy has ended well.
    fn land(&mut self, id: FlightId) {
        let outcome = if self.flight(id).cancelled { Outcome::Cancelled } else { Outcome::Done };
        let flight = self.close(id, outcome);
        self.backend.forget(flight.ticket);
    }

    /// A copy holds its regions no longer and does not haunt their memory any more.
    fn close(&mut self, id: FlightId, outcome: Outcome) -> Flight {
        let flight = self.flights.remove(id.0).expect("a closed flight exists");
        self.flying.retain(|other| *other != id);
        for source in flight.sources() {
            if let Some(source) = self.regions.get_mut(source.0) {
                source.readers -= 1;
            }
        }
        for target in flight.targets() {
            if let Some(target) = self.regions.get_mut(target.0) {
                target.fill = target.fill.filter(|fill| *fill != id);
            }
        }
        for ghosts in &mut self.ghosts {
            ghosts.retain(|ghost| ghost.flight != id);
        }
        let ticket = flight.ticket;
        if self.journal.is_some() {
            let span = self.backend.span(ticket);
            self.note(|| match &flight.job {
                Job::Copy(freight) => Event::CopyEnded { ticket, object: freight.object, outcome, span },
                Job::Kernel(detached) => Event::KernelReturned { step: detached.step, ticket, span },
            });
        }
        flight
    }

    /// Something under way has failed: a copy is undone; what a kernel should have written is not there. Says what happened.
    fn crash(&mut self, id: FlightId, cause: CopyError) -> Error {
        let flight = self.flight(id);
        let freight = match &flight.job {
            Job::Copy(freight) => freight,
            Job::Kernel(detached) => {
                let (step, ticket) = (detached.step, flight.ticket);
                self.close(id, Outcome::Failed);
                self.backend.forget(ticket);
                return Error::Kernel { step, why: cause.0 };
            }
        };
        let tier = |place: Place| self.machine.tier(place.tier).name.clone();
        let (what, bytes) = (self.what(freight.object), freight.bytes);
        let (from, to) = (tier(freight.from), tier(freight.to));
        self.undo(id, true);
        Error::Copy { what, bytes, from, to, cause }
    }

    /// Stops a copy, and undoes it once it has ended.
    fn stop(&mut self, id: FlightId, salvage: bool) {
        let Some(ticket) = self.ticket(id) else { return };
        self.backend.cancel(ticket);
        // What it holds must not be used again before it has ended; how it ended does not matter.
        let _ = self.backend.wait(ticket);
        self.undo(id, salvage);
    }

    /// Puts things back as they were before a copy that failed; with `salvage` an object that it leaves without
    /// its bytes gets them back from the copy's source.
    fn undo(&mut self, id: FlightId, salvage: bool) {
        self.void(id);
        // What carries on bytes that never arrived has nothing to salvage.
        for next in self.onwards(id) {
            self.stop(next, false);
        }
        let flight = self.close(id, Outcome::Failed);
        let Job::Copy(freight) = &flight.job else { return self.backend.forget(flight.ticket) };
        if salvage && !flight.cancelled {
            self.restore(freight, flight.ticket);
        }
        // Only now: what waits for the copy must learn that it failed, and leave the memory it read alone.
        self.backend.forget(flight.ticket);
        if let Some(target) = freight.target.filter(|t| self.regions.get(t.0).is_some()) {
            let is_primary = self.parent(target).is_some_and(|object| self.primary(object) == Some(target));
            if !is_primary && self.region(target).fill.is_none() && self.region(target).readers == 0 {
                self.release(target);
            }
        }
    }

    /// Gives an object that a failed copy leaves without its bytes a primary: another region that holds them, or a
    /// new one where the copy read them.
    fn restore(&mut self, freight: &Freight, ticket: Ticket) {
        let Some(o) = self.objects.get(freight.object.0) else { return };
        let wanted = o.version == freight.version && o.version > 0;
        if !wanted || o.primary.is_some_and(|primary| self.is_current(primary)) {
            return;
        }
        let object = freight.object;
        let holder = self.regions_of(object).find(|region| self.is_current(*region));
        let holder = holder.or_else(|| self.resurrect(freight, ticket));
        let o = self.objects.get_mut(object.0).expect("a restored object exists");
        match holder {
            Some(region) => {
                (o.primary, o.lost) = (Some(region), false);
                let tier = self.tier(region);
                self.note(|| Event::Primary { object, region, tier });
            }
            None => o.lost = true,
        }
    }

    /// Takes back the memory that a failed copy read: whatever was given it since has not been written yet.
    fn resurrect(&mut self, freight: &Freight, ticket: Ticket) -> Option<RegionId> {
        let (tier, start) = (freight.from.tier, freight.from.offset);
        let end = start + freight.bytes;
        let squatter = |manager: &Self| {
            let mut all = manager.regions.iter().map(|(key, region)| (RegionId(key), region));
            all.find(|(_, r)| r.tier == tier && r.offset < end && start < r.end()).map(|(region, _)| region)
        };
        // Copies into it have waited for the failed one, so none has begun; none must begin now.
        // (Kernels have waited for it before they began.)
        let lands_there = |other: &Flight| {
            let within =
                |f: &Freight| f.to.tier == tier && f.to.offset < end && start < f.to.offset + f.bytes;
            other.freight().is_some_and(within)
        };
        let later = |id: &FlightId| self.flight(*id).ticket > ticket;
        let landing = self.flying.iter().copied().filter(|id| later(id) && lands_there(self.flight(*id)));
        for id in landing.collect::<Vec<_>>() {
            self.stop(id, true);
        }
        if let Some(stale) = self.region_on(freight.object, tier) {
            self.objects.get_mut(freight.object.0)?.primary.take_if(|primary| *primary == stale);
            self.release(stale);
        }
        while let Some(region) = squatter(self) {
            self.evacuate(region)?;
        }
        let region = self.allocate_at(freight.from, freight.bytes).ok()?;
        let r = self.regions.get_mut(region.0).expect("just made");
        (r.contents, r.version) = (Some(freight.object), freight.version);
        // It never began, perhaps, and what it should have read is still on its way.
        if let Some(feed) = freight.feeds_on.filter(|feed| self.flights.get(feed.0).is_some()) {
            r.fill = Some(feed);
            self.flights.get_mut(feed.0)?.fill(region);
        }
        self.attach(freight.object, region).expect("nothing of the object is left on that tier");
        Some(region)
    }

    /// Frees a region that waits for a copy that has failed, and so holds nothing yet.
    fn evacuate(&mut self, region: RegionId) -> Option<()> {
        if self.regions.get(region.0).is_some() {
            if let Some(object) = self.parent(region).filter(|o| self.primary(*o) == Some(region)) {
                if self.in_use(object) || (self.is_written(object) && self.is_current(region)) {
                    return None;
                }
                self.objects.get_mut(object.0).expect("a parent exists").primary = None;
            }
            self.release(region);
        }
        Some(())
    }
}

//! The data manager: the one place where the state of objects, regions and tiers changes.
//!
//! It offers the data-management interface of CachedArrays (section III-C) to policies: regions are allocated,
//! linked, copied and freed, and an object's primary is changed from one to another. It differs from the paper in
//! three ways. Copies are asynchronous (`flight.rs`): every call returns at once, and dependencies between copies,
//! and between copies and kernels, follow from the regions that they touch. Any number of tiers is allowed. And
//! room is made by price (`evict_from`), not around a victim.
//!
//! What kernels do is in `kernel.rs`, those beside others in `detached.rs`, the verification of the entire state in `check.rs`.

mod check;
mod detached;
mod flight;
mod kernel;

use std::sync::Arc;

use crate::backend::{Backend, Locked, Place};
use crate::error::{Error, Full};
use crate::event::{Event, Stamped, Totals};
use crate::heap::{End, Window};
use crate::hint::Hint;
use crate::machine::Machine;
use crate::object::{Object, ObjectId};
use crate::region::{Region, RegionId};
use crate::slab::Slab;
use crate::units::{Bytes, Nanos, TierId};
use crate::zone::{Space, ZoneId};

pub(crate) use flight::FlightId;
use flight::{Flight, Ghost};

/// Keeps objects over the tiers of one machine, and moves their bytes through a backend.
///
/// `&mut Manager<Sim>` becomes `&mut Manager<dyn Backend>`, written `&mut Manager`, where a policy is called.
pub struct Manager<B: Backend + ?Sized = dyn Backend> {
    machine: Machine,
    spaces: Vec<Space>,
    objects: Slab<Object>,
    regions: Slab<Region>,
    flights: Slab<Flight>,
    /// Copies that have not been seen to end, oldest first.
    flying: Vec<FlightId>,
    /// For each tier, memory that was given back while a copy still used it.
    ghosts: Vec<Vec<Ghost>>,
    /// A copy that failed while nobody waited for it.
    failure: Option<Error>,
    totals: Totals,
    /// Kernels that have begun so far.
    begun: u64,
    journal: Option<Vec<Stamped>>,
    backend: B,
}

impl<B: Backend> Manager<B> {
    /// A manager with empty tiers. Copies that somebody else has started on the backend end first.
    pub fn new(machine: Machine, mut backend: B) -> Manager<B> {
        backend.settle();
        let grain = machine.grain();
        let spaces: Vec<Space> = machine.tiers.iter().map(|t| Space::new(t.capacity, grain)).collect();
        Manager {
            totals: Totals { peak: vec![Bytes::ZERO; spaces.len()], ..Totals::default() },
            ghosts: vec![Vec::new(); spaces.len()],
            machine,
            spaces,
            objects: Slab::new(),
            regions: Slab::new(),
            flights: Slab::new(),
            flying: Vec::new(),
            failure: None,
            begun: 0,
            journal: None,
            backend,
        }
    }
}

impl<B: Locked> Manager<B> {
    /// The world that the bytes live in, to run kernels in, for whoever holds its key.
    pub fn backend_mut(&mut self, _key: B::Key) -> &mut B {
        &mut self.backend
    }
}

impl<B: Backend + ?Sized> Manager<B> {
    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The world that the bytes live in.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The time since the start of the run.
    pub fn now(&self) -> Nanos {
        self.backend.now()
    }

    /// Sums over the run so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Starts to record events; objects that are there already are recorded as if they had just come.
    pub fn record(&mut self) {
        if self.journal.is_some() {
            return;
        }
        self.journal = Some(Vec::new());
        let there: Vec<ObjectId> = self.objects.iter().map(|(key, _)| ObjectId(key)).collect();
        for object in there {
            let known = self.objects.get(object.0).expect("listed");
            let (name, bytes) = (known.name.clone(), known.size);
            self.note(|| Event::Created { object, name, bytes });
            for region in self.regions_of(object).collect::<Vec<_>>() {
                let (place, bytes) = (self.place_of(region), self.size_of(region));
                self.note(|| Event::Allocated { region, place, bytes });
                self.note(|| Event::Linked { object, region });
            }
            if let Some(region) = self.primary(object) {
                let tier = self.tier(region);
                self.note(|| Event::Primary { object, region, tier });
            }
        }
    }

    /// Takes the events recorded since the last call.
    pub fn take_events(&mut self) -> Vec<Stamped> {
        self.journal.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Records an event, if events are recorded.
    pub fn note(&mut self, event: impl FnOnce() -> Event) {
        if let Some(journal) = &mut self.journal {
            journal.push(Stamped { at: self.backend.now(), event: event() });
        }
    }

    // --- objects ---

    /// Makes an object without a region; the policy places it.
    pub fn create(&mut self, name: Option<&str>, size: Bytes) -> Result<ObjectId, Error> {
        self.create_named(name.map(Arc::from), size)
    }

    /// The same with a name that is shared, so that whoever makes the same objects again and again allocates nothing.
    pub fn create_named(&mut self, name: Option<Arc<str>>, size: Bytes) -> Result<ObjectId, Error> {
        let largest = self.spaces.iter().enumerate().max_by_key(|(_, space)| space.capacity());
        let (tier, space) = largest.expect("a machine has tiers");
        if size > space.capacity() {
            let tier = self.machine.tiers[tier].name.clone();
            let what = name.as_deref().unwrap_or("an object").to_string();
            return Err(Error::TooLarge { what, wanted: size, tier, capacity: space.capacity() });
        }
        let object = ObjectId(self.objects.insert(Object {
            name: name.clone(),
            size,
            primary: None,
            regions: None,
            version: 0,
            pins: 0,
            writers: 0,
            named: 0,
            lost: false,
        }));
        self.note(|| Event::Created { object, name, bytes: size });
        Ok(object)
    }

    /// Gives an object up: its regions are freed, copies of it that still fly are cancelled.
    pub fn retire(&mut self, object: ObjectId) -> Result<(), Error> {
        if self.known(object)?.pins > 0 {
            return Err(Error::InUse { what: self.what(object), action: "retired" });
        }
        self.note(|| Event::Retired { object });
        self.objects.get_mut(object.0).expect("just seen").primary = None;
        while let Some(region) = self.objects.get(object.0).and_then(|o| o.regions) {
            self.abandon(region);
            self.release(region);
        }
        self.objects.remove(object.0);
        Ok(())
    }

    /// Whether the object exists.
    pub fn contains(&self, object: ObjectId) -> bool {
        self.objects.get(object.0).is_some()
    }

    /// How many objects there are.
    pub fn objects(&self) -> usize {
        self.objects.len()
    }

    /// An object's size.
    pub fn size(&self, object: ObjectId) -> Result<Bytes, Error> {
        self.known(object).map(|o| o.size)
    }

    /// An object's name, or its number where it has none.
    pub fn what(&self, object: ObjectId) -> String {
        let name = self.objects.get(object.0).and_then(|o| o.name.as_deref());
        name.map_or_else(|| object.to_string(), str::to_string)
    }

    /// Whether anything has been written to the object.
    pub fn is_written(&self, object: ObjectId) -> bool {
        self.objects.get(object.0).is_some_and(|o| o.version > 0)
    }

    /// Whether a kernel uses the object right now.
    pub fn in_use(&self, object: ObjectId) -> bool {
        self.objects.get(object.0).is_some_and(|o| o.pins > 0)
    }

    /// The region that holds an object's current bytes; none before it is placed.
    pub fn primary(&self, object: ObjectId) -> Option<RegionId> {
        self.objects.get(object.0)?.primary
    }

    /// The tier that holds an object's current bytes; none before it is placed.
    pub fn home(&self, object: ObjectId) -> Option<TierId> {
        self.primary(object).map(|region| self.tier(region))
    }

    /// Where an object's current bytes are.
    pub fn place(&self, object: ObjectId) -> Option<Place> {
        self.primary(object).map(|region| self.place_of(region))
    }

    /// Makes a region the one that holds an object's current bytes. It must hold them already, or be about to:
    /// a copy that fills it may still fly.
    pub fn set_primary(&mut self, object: ObjectId, region: RegionId) -> Result<(), Error> {
        let o = self.known(object)?;
        let r = self.regions.get(region.0).ok_or_else(|| unknown(region))?;
        let refused = |why| Err(Error::Refused { what: self.what(object), why });
        if o.pins > 0 {
            return Err(Error::InUse { what: self.what(object), action: "moved" });
        }
        if r.object.is_some_and(|other| other != object) {
            return refused("the region belongs to another object");
        }
        if r.size < o.size {
            return refused("the region is smaller than the object");
        }
        if o.version > 0 && !(r.contents == Some(object) && r.version == o.version) {
            return refused("the region does not hold the object's current bytes");
        }
        if r.object.is_none() {
            self.attach(object, region)?;
        }
        let version = self.known(object)?.version;
        let r = self.regions.get_mut(region.0).expect("just seen");
        (r.contents, r.version) = (Some(object), version);
        let tier = r.tier;
        self.objects.get_mut(object.0).expect("just seen").primary = Some(region);
        self.note(|| Event::Primary { object, region, tier });
        Ok(())
    }

    // --- regions ---

    /// Takes a loose region of `size` bytes from a tier.
    pub fn allocate(&mut self, tier: TierId, size: Bytes) -> Result<RegionId, Full> {
        self.allocate_in(tier, ZoneId::MAIN, size)
    }

    /// Takes a loose region of `size` bytes from a zone of a tier.
    pub fn allocate_in(&mut self, tier: TierId, zone: ZoneId, size: Bytes) -> Result<RegionId, Full> {
        self.settle_many();
        let next = self.regions.next_index();
        let block =
            self.spaces[tier.index()].allocate(zone, size, next).ok_or(Full { tier, wanted: size })?;
        Ok(self.adopt(tier, zone, block, size))
    }

    /// Takes a loose region of `size` bytes that has whole units (pages, say) of a tier for itself.
    pub fn allocate_whole(
        &mut self,
        tier: TierId,
        size: Bytes,
        unit: Bytes,
        end: End,
    ) -> Result<RegionId, Full> {
        self.settle_many();
        let next = self.regions.next_index();
        let block = self.spaces[tier.index()].allocate_whole(ZoneId::MAIN, size, unit, end, next);
        let block = block.ok_or(Full { tier, wanted: size })?;
        Ok(self.adopt(tier, ZoneId::MAIN, block, size))
    }

    /// Takes a loose region at a given offset of a tier.
    pub fn allocate_at(&mut self, place: Place, size: Bytes) -> Result<RegionId, Full> {
        self.settle_many();
        let (tier, next) = (place.tier, self.regions.next_index());
        let space = &mut self.spaces[tier.index()];
        let (zone, block) = space.allocate_at(place.offset, size, next).ok_or(Full { tier, wanted: size })?;
        Ok(self.adopt(tier, zone, block, size))
    }

    /// Gives a region back. An object's primary is refused: only `retire` gives data up.
    pub fn free(&mut self, region: RegionId) -> Result<(), Error> {
        let r = self.regions.get(region.0).ok_or_else(|| unknown(region))?;
        if let Some(object) = r.object.filter(|object| self.primary(*object) == Some(region)) {
            let why = "its primary cannot be freed; only retiring gives data up";
            return Err(Error::Refused { what: self.what(object), why });
        }
        self.cancel_fill(region);
        self.release(region);
        Ok(())
    }

    /// Makes a loose region one of the regions of the object that `member` belongs to.
    pub fn link(&mut self, member: RegionId, loose: RegionId) -> Result<(), Error> {
        let refused = |region: RegionId, why| Error::Refused { what: region.to_string(), why };
        let object = self.parent(member).ok_or_else(|| refused(member, "it belongs to no object"))?;
        if self.parent(loose).is_some() {
            return Err(refused(loose, "it is linked already"));
        }
        self.attach(object, loose)
    }

    /// Makes a region loose again. An object's primary is refused.
    pub fn unlink(&mut self, region: RegionId) -> Result<(), Error> {
        let object = self.parent(region).ok_or_else(|| Error::Refused {
            what: region.to_string(),
            why: "it is not linked to anything",
        })?;
        if self.primary(object) == Some(region) {
            let why = "its primary cannot be unlinked";
            return Err(Error::Refused { what: self.what(object), why });
        }
        self.detach(object, region);
        Ok(())
    }

    /// The size of a region.
    pub fn size_of(&self, region: RegionId) -> Bytes {
        self.regions.get(region.0).map_or(Bytes::ZERO, |r| r.size)
    }

    /// The tier of a region.
    ///
    /// # Panics
    /// If the region has been freed.
    pub fn tier(&self, region: RegionId) -> TierId {
        self.region(region).tier
    }

    /// Where a region lies.
    ///
    /// # Panics
    /// If the region has been freed.
    pub fn place_of(&self, region: RegionId) -> Place {
        let region = self.region(region);
        Place { tier: region.tier, offset: region.offset }
    }

    /// The object that a region belongs to; none while it is loose.
    pub fn parent(&self, region: RegionId) -> Option<ObjectId> {
        self.regions.get(region.0)?.object
    }

    /// The region of the same object on another tier.
    pub fn linked(&self, region: RegionId, tier: TierId) -> Option<RegionId> {
        self.parent(region).and_then(|object| self.region_on(object, tier))
    }

    /// The region that an object has on a tier.
    pub fn region_on(&self, object: ObjectId, tier: TierId) -> Option<RegionId> {
        self.regions_of(object).find(|region| self.region(*region).tier == tier)
    }

    /// Every region of an object.
    pub fn regions_of(&self, object: ObjectId) -> impl Iterator<Item = RegionId> + '_ {
        let first = self.objects.get(object.0).and_then(|o| o.regions);
        std::iter::successors(first, |region| self.region(*region).sibling)
    }

    /// Whether a region holds its object's current bytes, or will once the copy that fills it has landed.
    pub fn is_current(&self, region: RegionId) -> bool {
        let Some(r) = self.regions.get(region.0) else { return false };
        let Some(object) = r.object.or(r.contents) else { return false };
        self.objects.get(object.0).is_some_and(|o| r.contents == Some(object) && r.version == o.version)
    }

    /// Whether a region holds bytes that no other region of its object holds.
    pub fn is_dirty(&self, region: RegionId) -> bool {
        let Some(object) = self.parent(region) else { return false };
        self.is_current(region)
            && self.regions_of(object).all(|other| other == region || !self.is_current(other))
    }

    /// Says that a primary's bytes were changed outside a kernel: every other region of the object is stale.
    pub fn mark_dirty(&mut self, region: RegionId) -> Result<(), Error> {
        let object = self.marked(region)?;
        self.finish_departures(object)?;
        self.written(object);
        Ok(())
    }

    /// Says that the other regions of a primary's object hold its bytes, because the caller brought them there by
    /// other means. The manager's own copies need no such word.
    pub fn mark_clean(&mut self, region: RegionId) -> Result<(), Error> {
        let object = self.marked(region)?;
        let version = self.known(object)?.version;
        let others: Vec<RegionId> = self.regions_of(object).filter(|other| *other != region).collect();
        for other in others {
            let r = self.regions.get_mut(other.0).expect("listed");
            if r.fill.is_none() {
                (r.contents, r.version) = (Some(object), version);
            }
        }
        Ok(())
    }

    // --- tiers ---

    /// Bytes that regions hold on a tier.
    pub fn used(&self, tier: TierId) -> Bytes {
        self.spaces[tier.index()].used()
    }

    /// The memory of a tier: its heap, zones, largest free piece and fragmentation.
    pub fn space(&self, tier: TierId) -> &Space {
        &self.spaces[tier.index()]
    }

    /// The objects that have a region on a tier, in address order.
    pub fn objects_on(&self, tier: TierId) -> Vec<ObjectId> {
        let space = &self.spaces[tier.index()];
        let regions = space.tags().filter_map(|index| self.regions.key_at(index));
        regions.filter_map(|key| self.parent(RegionId(key))).collect()
    }

    /// Sets memory of a tier aside under a name.
    pub fn carve(&mut self, tier: TierId, name: &str, size: Bytes) -> Result<ZoneId, Full> {
        let zone = self.spaces[tier.index()].carve(name, size).ok_or(Full { tier, wanted: size })?;
        self.note_zone(tier, zone, self.space(tier).heap(zone).capacity());
        Ok(zone)
    }

    /// Sets `size` bytes at a place aside under a name.
    pub fn carve_at(&mut self, place: Place, name: &str, size: Bytes) -> Result<ZoneId, Full> {
        let zone = self.spaces[place.tier.index()].carve_at(name, place.offset, size);
        zone.ok_or(Full { tier: place.tier, wanted: size })
    }

    /// Gives a zone another limit; `false` where what is in it, or behind it, is in the way.
    pub fn resize_zone(&mut self, tier: TierId, zone: ZoneId, limit: Bytes) -> bool {
        let resized = self.spaces[tier.index()].resize(zone, limit);
        if resized {
            self.note_zone(tier, zone, self.space(tier).heap(zone).capacity());
        }
        resized
    }

    /// Gives a zone back to its tier; `false` where something is in it.
    pub fn dissolve_zone(&mut self, tier: TierId, zone: ZoneId) -> bool {
        let name: Arc<str> = Arc::from(self.space(tier).name(zone));
        let place = Place { tier, offset: self.space(tier).base(zone) };
        let dissolved = self.spaces[tier.index()].dissolve(zone);
        if dissolved {
            self.note(|| Event::Zoned { zone, name, place, bytes: Bytes::ZERO });
        }
        dissolved
    }

    /// Records where a zone is now.
    fn note_zone(&mut self, tier: TierId, zone: ZoneId, bytes: Bytes) {
        if self.journal.is_some() {
            let place = Place { tier, offset: self.space(tier).base(zone) };
            let name: Arc<str> = Arc::from(self.space(tier).name(zone));
            self.note(|| Event::Zoned { zone, name, place, bytes });
        }
    }

    /// Frees a contiguous stretch of `size` bytes of a tier: finds the stretch that is cheapest by `price` and
    /// calls `vacate` for each region in it, which must free that region.
    ///
    /// `seeds` narrows the search to stretches around these regions; without any, the whole tier is searched.
    /// Regions of objects that a kernel uses are never touched.
    pub fn evict_from(
        &mut self,
        tier: TierId,
        size: Bytes,
        seeds: &[RegionId],
        price: impl Fn(&Self, RegionId) -> Option<u64>,
        mut vacate: impl FnMut(&mut Self, RegionId) -> Result<(), Error>,
    ) -> Result<Window, EvictError> {
        let here =
            |region: &&RegionId| self.tier(**region) == tier && self.region(**region).zone == ZoneId::MAIN;
        let seeds: Vec<_> = seeds.iter().filter(here).map(|region| self.region(*region).block).collect();
        let window = self.spaces[tier.index()].cheapest_window(ZoneId::MAIN, size, &seeds, |index| {
            price(self, RegionId(self.regions.key_at(index)?))
        });
        let window = window.ok_or(EvictError::NoWindow)?;
        for index in &window.tags {
            // Vacating one region may have freed the next one too.
            let Some(region) = self.regions.key_at(*index).map(RegionId) else { continue };
            let r = self.region(region);
            let inside =
                r.tier == tier && window.offset <= r.offset && r.offset < window.offset + window.bytes;
            if inside {
                vacate(self, region).map_err(EvictError::Vacate)?;
                debug_assert!(self.regions.get(region.0).is_none(), "vacate frees {region}");
            }
        }
        Ok(window)
    }

    /// Adds bytes that a cache below the level of objects moved to the totals.
    pub fn count_cached(&mut self, fetched: Bytes, evicted: Bytes) {
        self.totals.fetched += fetched;
        self.totals.evicted += evicted;
        if fetched + evicted > Bytes::ZERO {
            self.note(|| Event::Cached { fetched, evicted });
        }
    }

    /// The error that says that a tier has no room for an object.
    pub fn no_room(&self, object: ObjectId, tier: TierId) -> Error {
        let heap = self.spaces[tier.index()].heap(ZoneId::MAIN);
        Error::Full {
            tier: self.machine.tier(tier).name.clone(),
            what: self.what(object),
            wanted: self.size(object).unwrap_or_default(),
            free: heap.free_bytes(),
            largest: heap.largest_free(),
        }
    }

    /// Records a hint; the policy acts on it.
    pub fn hinted(&mut self, object: ObjectId, hint: Hint) {
        self.note(|| Event::Hinted { object, hint });
    }

    // --- inside ---

    fn known(&self, object: ObjectId) -> Result<&Object, Error> {
        self.objects.get(object.0).ok_or_else(|| Error::Unknown { what: object.to_string() })
    }

    fn region(&self, region: RegionId) -> &Region {
        self.regions.get(region.0).unwrap_or_else(|| panic!("{region} has been freed"))
    }

    /// The object of a region that is a primary and may be marked.
    fn marked(&self, region: RegionId) -> Result<ObjectId, Error> {
        let refused = |why| Error::Refused { what: region.to_string(), why };
        let object = self.parent(region).ok_or_else(|| refused("it belongs to no object"))?;
        if self.primary(object) != Some(region) {
            return Err(refused("only a primary can be marked dirty or clean"));
        }
        Ok(object)
    }

    /// The bytes of an object have changed in its primary.
    fn written(&mut self, object: ObjectId) {
        let o = self.objects.get_mut(object.0).expect("a written object exists");
        o.version += 1;
        let (version, primary) = (o.version, o.primary.expect("a written object has a primary"));
        let r = self.regions.get_mut(primary.0).expect("a primary exists");
        (r.contents, r.version) = (Some(object), version);
    }

    /// Makes a region of a block just taken.
    fn adopt(&mut self, tier: TierId, zone: ZoneId, block: crate::heap::BlockId, size: Bytes) -> RegionId {
        let space = &self.spaces[tier.index()];
        let offset = space.offset(zone, block);
        let end = offset + space.heap(zone).size(block);
        let used = space.used();
        let ghosts = self.ghosts[tier.index()].iter();
        let haunting =
            ghosts.filter(|ghost| ghost.start < end && offset < ghost.end).map(|ghost| ghost.flight);
        let region = RegionId(self.regions.insert(Region {
            object: None,
            contents: None,
            sibling: None,
            version: 0,
            tier,
            zone,
            block,
            offset,
            size,
            fill: None,
            readers: 0,
            space: haunting.collect(),
        }));
        let peak = &mut self.totals.peak[tier.index()];
        *peak = used.max(*peak);
        self.note(|| Event::Allocated { region, place: Place { tier, offset }, bytes: size });
        region
    }

    /// Takes a region out of its object and gives its memory back. Copies that still use that memory haunt it.
    fn release(&mut self, region: RegionId) {
        if let Some(object) = self.region(region).object {
            self.detach(object, region);
        }
        self.haunt(region);
        let Region { tier, zone, block, offset, size, .. } =
            self.regions.remove(region.0).expect("a released region exists");
        self.spaces[tier.index()].free(zone, block);
        self.note(|| Event::Freed { region, place: Place { tier, offset }, bytes: size });
    }

    fn attach(&mut self, object: ObjectId, region: RegionId) -> Result<(), Error> {
        let tier = self.regions.get(region.0).ok_or_else(|| unknown(region))?.tier;
        if self.region_on(object, tier).is_some() {
            let why = "it has a region on that tier already";
            return Err(Error::Refused { what: self.what(object), why });
        }
        let first = self.known(object)?.regions;
        let r = self.regions.get_mut(region.0).expect("just seen");
        (r.object, r.sibling) = (Some(object), first);
        if r.contents != Some(object) {
            (r.contents, r.version) = (Some(object), 0);
        }
        self.objects.get_mut(object.0).expect("just seen").regions = Some(region);
        self.note(|| Event::Linked { object, region });
        Ok(())
    }

    fn detach(&mut self, object: ObjectId, region: RegionId) {
        let next = self.region(region).sibling;
        let before = self.regions_of(object).find(|other| self.region(*other).sibling == Some(region));
        match before {
            Some(before) => self.regions.get_mut(before.0).expect("listed").sibling = next,
            None => self.objects.get_mut(object.0).expect("a parent exists").regions = next,
        }
        let r = self.regions.get_mut(region.0).expect("a detached region exists");
        (r.object, r.sibling) = (None, None);
        self.note(|| Event::Unlinked { object, region });
    }
}

/// Why no stretch was cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictError {
    /// No stretch of that size may be vacated.
    NoWindow,
    /// A region of the stretch could not be vacated.
    Vacate(Error),
}

fn unknown(region: RegionId) -> Error {
    Error::Unknown { what: region.to_string() }
}

//! The memory set aside for short-lived objects (Sentinel, section IV-C).
//!
//! It lies at the beginning of fast memory, is as large as the short-lived objects of the interval need when the interval
//! begins, and gives memory back as soon as the rest of the interval needs less.

use tiercel_core::{Bytes, End, Manager, ObjectId, Place, RegionId, TierId, ZoneId};

/// The fastest tier.
pub(super) const FAST: TierId = TierId(0);

/// Where the zone lies.
const BEGINNING: Place = Place { tier: FAST, offset: Bytes::ZERO };

/// The memory set aside for short-lived objects.
#[derive(Clone, Debug, Default)]
pub struct Reserve {
    zone: Option<ZoneId>,
}

impl Reserve {
    /// Takes memory for a short-lived object.
    pub fn allocate(&self, m: &mut Manager, size: Bytes) -> Option<RegionId> {
        m.allocate_in(FAST, self.zone?, size).ok()
    }

    /// How large it is.
    pub fn size(&self, m: &Manager) -> Bytes {
        self.zone.map_or(Bytes::ZERO, |zone| m.space(FAST).heap(zone).capacity())
    }

    /// Makes it as large as this; `false` where something is in the way.
    pub fn resize(&mut self, m: &mut Manager, wanted: Bytes, page: Bytes) -> bool {
        if wanted == Bytes::ZERO {
            return self.zone.is_none() || self.dissolve(m);
        }
        let wanted = Bytes(wanted.0.next_multiple_of(page.0));
        match self.zone {
            Some(_) if self.size(m) == wanted => true,
            Some(zone) => m.resize_zone(FAST, zone, wanted),
            None => {
                self.zone = m.carve_at(BEGINNING, "short-lived", wanted).ok();
                self.zone.is_some()
            }
        }
    }

    /// The objects that keep it from growing so far.
    pub fn in_the_way(&self, m: &Manager, wanted: Bytes) -> Vec<ObjectId> {
        let end = self.size(m);
        let lies_there = |object: &ObjectId| {
            let Some(region) = m.region_on(*object, FAST) else { return false };
            let start = m.place_of(region).offset;
            start < wanted && start + m.size_of(region) > end
        };
        m.objects_on(FAST).into_iter().filter(lies_there).collect()
    }

    /// Gives it up; `false` where there is none or something is in it.
    pub fn dissolve(&mut self, m: &mut Manager) -> bool {
        self.zone.take_if(|zone| m.dissolve_zone(FAST, *zone)).is_some()
    }
}

/// Memory with fewer pages than this is handed out in smaller units.
const LEAST_PAGES: u64 = 256;

/// The unit in which a machine's fast memory is handed out: pages of this size, where it has enough of them.
pub fn page(m: &Manager, page: Bytes) -> Bytes {
    let space = m.space(FAST);
    let few = space.capacity().0 / page.0 < LEAST_PAGES;
    if few { space.heap(ZoneId::MAIN).grain() } else { page }
}

/// Takes whole pages of a tier, from its end where it is the fast one: the beginning is for the zone.
pub fn whole(m: &mut Manager, tier: TierId, size: Bytes, page: Bytes) -> Option<RegionId> {
    let end = if tier == FAST { End::Far } else { End::Near };
    m.allocate_whole(tier, size, page, end).ok()
}

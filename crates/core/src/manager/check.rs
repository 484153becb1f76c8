//! Verifies the entire state: heaps against regions against objects against copies in flight.
//!
//! Linear in everything there is, so it is for tests and for after something went wrong.

use crate::backend::Backend;
use crate::error::Unsound;
use crate::object::{Object, ObjectId};
use crate::region::{Region, RegionId};

use super::Manager;

impl<B: Backend + ?Sized> Manager<B> {
    /// Says what is wrong with the state, if anything is.
    pub fn check(&self) -> Result<(), Unsound> {
        self.checked().map_err(Unsound)
    }

    fn checked(&self) -> Result<(), String> {
        self.check_tiers()?;
        for (key, region) in self.regions.iter() {
            let id = RegionId(key);
            self.check_region(id, region).map_err(|e| format!("{id}: {e}"))?;
        }
        for (key, object) in self.objects.iter() {
            let id = ObjectId(key);
            self.check_object(id, object).map_err(|e| format!("{}: {e}", self.what(id)))?;
        }
        self.check_flights()
    }

    /// How many regions belong to no object; policies leave none behind.
    pub fn loose_regions(&self) -> usize {
        self.regions.iter().filter(|(_, region)| region.object.is_none()).count()
    }

    fn check_tiers(&self) -> Result<(), String> {
        for (index, space) in self.spaces.iter().enumerate() {
            let name = &self.machine.tiers[index].name;
            space.check().map_err(|e| format!("{name}: {e}"))?;
            if space.used() > self.machine.tiers[index].capacity {
                return Err(format!("{name} holds {}, more than it has", space.used()));
            }
            let regions = self.regions.iter().filter(|(_, r)| r.tier.index() == index).count();
            if regions != space.pieces() {
                return Err(format!("{name} has {} pieces for {regions} regions", space.pieces()));
            }
            for ghost in &self.ghosts[index] {
                if self.flights.get(ghost.flight.0).is_none() {
                    return Err(format!("{name} is haunted by {}, which has ended", ghost.flight));
                }
            }
        }
        Ok(())
    }

    fn check_region(&self, id: RegionId, region: &Region) -> Result<(), String> {
        let space = &self.spaces[region.tier.index()];
        let heap = space.heap(region.zone);
        if heap.tag(region.block) as usize != id.index() {
            return Err(format!("its block carries the tag {}", heap.tag(region.block)));
        }
        if space.offset(region.zone, region.block) != region.offset || heap.size(region.block) < region.size {
            return Err("its block is elsewhere, or too small".to_string());
        }
        if let Some(object) = region.object {
            if self.objects.get(object.0).is_none() {
                return Err(format!("it belongs to {object}, which is gone"));
            }
            if !self.regions_of(object).any(|other| other == id) {
                return Err(format!("{object} does not list it"));
            }
        }
        if region.readers as usize != self.departures(id).len() {
            return Err(format!("{} readers, {} copies read it", region.readers, self.departures(id).len()));
        }
        if region.fill.is_some_and(|fill| self.flights.get(fill.0).is_none()) {
            return Err("the copy that fills it has ended".to_string());
        }
        Ok(())
    }

    fn check_object(&self, id: ObjectId, object: &Object) -> Result<(), String> {
        let mut tiers = 0_u64;
        for region in self.regions_of(id) {
            let r = self.region(region);
            if r.object != Some(id) || r.size < object.size {
                return Err(format!("{region} is not fit to be its"));
            }
            if tiers >> r.tier.0 & 1 == 1 {
                return Err(format!("two regions on {}", r.tier));
            }
            tiers |= 1 << r.tier.0;
        }
        match object.primary {
            None if object.version > 0 && !object.lost => Err("its primary is lost".to_string()),
            None => Ok(()),
            Some(primary) if !self.regions_of(id).any(|region| region == primary) => {
                Err(format!("its primary {primary} is not one of its regions"))
            }
            Some(primary) if !self.is_current(primary) && !object.lost => {
                Err(format!("its primary {primary} does not hold its current bytes"))
            }
            Some(_) => Ok(()),
        }
    }

    fn check_flights(&self) -> Result<(), String> {
        if self.flights.len() != self.flying.len() {
            return Err(format!("{} copies fly, {} are listed", self.flights.len(), self.flying.len()));
        }
        self.flying.iter().try_for_each(|id| match self.flights.get(id.0) {
            Some(_) => Ok(()),
            None => Err(format!("{id} is listed but has ended")),
        })
    }
}

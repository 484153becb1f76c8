//! The two moves that policies are made of: evict and prefetch (CachedArrays, Listings 1 and 2).
//!
//! Both return at once: copies fly while the program goes on. Where the listings say SLOW and FAST, here any two
//! tiers may stand; and where Listing 2 clears the neighbours of one victim, [`make_room`] clears the stretch that is
//! cheapest by recency.

use std::cell::RefCell;

use tiercel_core::{Error, EvictError, Manager, ObjectId, RegionId, TierId};

use crate::recency::Recency;

/// What may make room, and what that costs.
#[derive(Clone, Copy, Debug)]
pub struct Pricing<'a> {
    /// When objects were last used: the longest unused cost least, and archived ones less than all others.
    pub recency: &'a RefCell<Recency>,
    /// Objects that stay where they are.
    pub keep: &'a [ObjectId],
}

impl Pricing<'_> {
    /// What it costs to lose a region, or `None` where it must stay: a replica costs nothing, and what the slowest
    /// tier holds alone has nowhere to go.
    fn price(self, m: &Manager, region: RegionId) -> Option<u64> {
        let owner = m.parent(region)?;
        if self.keep.contains(&owner) || m.in_use(owner) {
            return None;
        }
        let replica = m.primary(owner) != Some(region);
        if !replica && m.tier(region) == m.machine().slowest() {
            return None;
        }
        Some(if replica { 0 } else { self.recency.borrow().price(owner, m.size_of(region)) })
    }
}

/// Moves an object's current bytes to a slower tier and frees the region that it leaves (Listing 1).
pub fn evict(m: &mut Manager, pricing: Pricing<'_>, object: ObjectId) -> Result<(), Error> {
    let Some(x) = m.primary(object) else { return Ok(()) };
    let fast = m.tier(x);
    let y = match slower_region(m, x) {
        Some(y) => y,
        None => allocate_below(m, pricing, object, fast)?,
    };
    // An object that nothing has written has no bytes worth moving; a linked region may hold them already.
    if m.is_written(object) && !m.is_current(y) {
        m.copy(x, y)?;
    }
    m.set_primary(object, y)?;
    pricing.recency.borrow_mut().moved(object, m.tier(y));
    m.free(x)
}

/// Brings an object's current bytes to a faster tier (Listing 2). The region that it leaves stays linked, so that
/// evicting it unchanged costs nothing. Returns whether the object is there now.
///
/// With `force`, room is made by evicting others; without, or where that cannot be done, the object stays.
pub fn prefetch(
    m: &mut Manager,
    pricing: Pricing<'_>,
    object: ObjectId,
    fast: TierId,
    force: bool,
) -> Result<bool, Error> {
    let Some(x) = m.primary(object) else { return Ok(false) };
    if m.tier(x) <= fast {
        return Ok(true);
    }
    if m.in_use(object) {
        return Ok(false);
    }
    let size = m.size_of(x);
    let y = match m.allocate(fast, size) {
        Ok(y) => y,
        Err(_) if force && make_room(m, pricing, object, fast)? => {
            m.allocate(fast, size).map_err(|_| m.no_room(object, fast))?
        }
        Err(_) => return Ok(false),
    };
    // What made room may have pushed the object itself further down.
    let x = m.primary(object).unwrap_or(x);
    if m.is_written(object) {
        m.copy(x, y)?;
    }
    m.link(x, y)?;
    m.set_primary(object, y)?;
    pricing.recency.borrow_mut().moved(object, fast);
    Ok(true)
}

/// Gives an object its first memory on the fastest tier that has room, or where others can make some.
pub fn place(m: &mut Manager, recency: &RefCell<Recency>, object: ObjectId) -> Result<(), Error> {
    let size = m.size(object)?;
    for tier in m.machine().tier_ids() {
        let mut region = m.allocate(tier, size);
        if region.is_err() && make_room(m, Pricing { recency, keep: &[] }, object, tier)? {
            region = m.allocate(tier, size);
        }
        if let Ok(region) = region {
            m.set_primary(object, region)?;
            recency.borrow_mut().touch(object, tier);
            return Ok(());
        }
    }
    Err(m.no_room(object, m.machine().slowest()))
}

/// Clears the cheapest stretch of a tier that can hold an object, by evicting what lies there. Returns whether it
/// could.
pub fn make_room(
    m: &mut Manager,
    pricing: Pricing<'_>,
    object: ObjectId,
    tier: TierId,
) -> Result<bool, Error> {
    let size = m.size(object)?;
    let price = |m: &Manager, region: RegionId| pricing.price(m, region);
    let vacate = |m: &mut Manager, region: RegionId| match m.parent(region) {
        Some(owner) if m.primary(owner) == Some(region) => evict(m, pricing, owner),
        _ => m.free(region),
    };
    let seeds = seeds(m, &pricing.recency.borrow(), tier);
    let mut cleared = m.evict_from(tier, size, &seeds, price, vacate);
    if cleared == Err(EvictError::NoWindow) && !seeds.is_empty() {
        cleared = m.evict_from(tier, size, &[], price, vacate);
    }
    match cleared {
        Ok(_) => Ok(true),
        Err(EvictError::NoWindow | EvictError::Vacate(Error::Full { .. })) => Ok(false),
        Err(EvictError::Vacate(error)) => Err(error),
    }
}

/// Pieces of a heap up to which the whole of it is searched for the cheapest stretch.
const SEARCHED_WHOLE: usize = 4096;
/// How many of the coldest objects a search in a larger heap starts from.
const SEEDS: usize = 32;

/// The regions around which room is looked for; none where the tier is small enough to be searched whole.
fn seeds(m: &Manager, recency: &Recency, tier: TierId) -> Vec<RegionId> {
    if m.space(tier).pieces() <= SEARCHED_WHOLE {
        return Vec::new();
    }
    let regions = recency.coldest(tier).filter_map(|object| m.region_on(object, tier));
    regions.take(SEEDS).collect()
}

/// The fastest region of the same object on a slower tier, current ones before stale ones.
fn slower_region(m: &Manager, x: RegionId) -> Option<RegionId> {
    let object = m.parent(x)?;
    let slower = m.regions_of(object).filter(|y| m.tier(*y) > m.tier(x));
    slower.min_by_key(|y| (!m.is_current(*y), m.tier(*y)))
}

/// A new region for an object on a tier slower than `above`: the next one that has room, or that can pass colder
/// objects on to the tiers below it.
fn allocate_below(
    m: &mut Manager,
    pricing: Pricing<'_>,
    object: ObjectId,
    above: TierId,
) -> Result<RegionId, Error> {
    let (size, slowest) = (m.size(object)?, m.machine().slowest());
    let slower: Vec<TierId> = m.machine().tier_ids().filter(|tier| *tier > above).collect();
    for &tier in &slower {
        let room = m.allocate(tier, size);
        if room.is_ok() || make_room(m, pricing, object, tier)? {
            return room.or_else(|_| m.allocate(tier, size)).map_err(|_| m.no_room(object, tier));
        }
    }
    Err(m.no_room(object, slowest))
}

//! Brings a kernel's operands onto tiers that it can work on: what every policy owes every kernel.
//!
//! Where all tiers can be worked on there is nothing to do. Where some cannot (a file, the host seen from a GPU), the
//! operands that lie there are fetched, and others make room. If the memory is too broken up for that, everything
//! that may move is cleared out and the operands come in one after another: whatever can fit at all then fits.

use std::cell::RefCell;

use tiercel_core::{Bytes, Error, Manager, ObjectId, Operand, Step, TierId};

use crate::moves::{Pricing, evict, make_room, prefetch};
use crate::recency::Recency;

/// Makes sure that a kernel can work on all of its operands.
pub fn gather(
    m: &mut Manager,
    recency: &RefCell<Recency>,
    step: Step,
    operands: &[Operand],
) -> Result<(), Error> {
    if m.machine().tiers.iter().all(|tier| tier.computable) {
        return Ok(());
    }
    let keep: Vec<ObjectId> = operands.iter().map(|operand| operand.object).collect();
    let missing = operands.iter().filter(|operand| !works(m, step, operand));
    let mut missing: Vec<ObjectId> = missing.map(|operand| operand.object).collect();
    // The largest first: small ones fit into what is left.
    missing.sort_by_key(|object| std::cmp::Reverse(m.size(*object).unwrap_or_default()));
    for &object in &missing {
        if !bring(m, Pricing { recency, keep: &keep }, object)? {
            return regroup(m, Pricing { recency, keep: &[] }, step, &keep);
        }
    }
    Ok(())
}

/// Whether a kernel can work on the operand where it lies.
fn works(m: &Manager, step: Step, operand: &Operand) -> bool {
    let size = m.size(operand.object).unwrap_or_default();
    m.home(operand.object).is_none_or(|tier| m.machine().tier(tier).serves(operand.wanted(step), size))
}

fn computable_tiers(m: &Manager) -> Vec<TierId> {
    m.machine().tier_ids().filter(|tier| m.machine().tier(*tier).computable).collect()
}

/// Fetches one object to the fastest tier that has room or can make some.
fn bring(m: &mut Manager, pricing: Pricing<'_>, object: ObjectId) -> Result<bool, Error> {
    for tier in computable_tiers(m) {
        let room = m.space(tier).heap(tiercel_core::ZoneId::MAIN).largest_free() >= m.size(object)?;
        let room = room || make_room(m, pricing, object, tier)?;
        if room && prefetch(m, pricing, object, tier, false)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Clears out every object that may move, then fetches the operands into the empty memory.
fn regroup(m: &mut Manager, pricing: Pricing<'_>, step: Step, operands: &[ObjectId]) -> Result<(), Error> {
    let tiers = computable_tiers(m);
    for &tier in tiers.iter().rev() {
        for object in m.objects_on(tier) {
            if m.in_use(object) {
                continue;
            }
            while m.home(object).is_some_and(|home| m.machine().tier(home).computable) {
                evict(m, pricing, object)?;
            }
            for region in m.regions_of(object).collect::<Vec<_>>() {
                if tiers.contains(&m.tier(region)) {
                    m.free(region)?;
                }
            }
        }
    }
    let mut operands: Vec<ObjectId> = operands.to_vec();
    operands.sort_by_key(|object| std::cmp::Reverse(m.size(*object).unwrap_or_default()));
    for &object in &operands {
        let mut fetched = false;
        for &tier in &tiers {
            fetched = fetched || prefetch(m, pricing, object, tier, false)?;
        }
        if !fetched {
            let wanted: Bytes = operands.iter().filter_map(|object| m.size(*object).ok()).sum();
            let capacity = tiers.iter().map(|tier| m.space(*tier).capacity()).sum();
            return Err(if wanted > capacity {
                Error::WorkingSet { step, wanted, capacity }
            } else {
                m.no_room(object, tiers[0])
            });
        }
    }
    Ok(())
}

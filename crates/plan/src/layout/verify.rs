//! Holds a packing against its buffers: nothing overlaps in time and address at once, all ends within the capacity.
//!
//! One sweep over time with the live buffers in the order of their offsets: a buffer that is born needs to be held
//! against its two neighbours there only.

use std::collections::BTreeMap;

use tiercel_core::Bytes;

use super::{Buffer, Fault};

/// Finds a fault of a packing, if it has any; n·log n steps for n buffers.
///
/// # Errors
/// Names the buffers and bytes of what is wrong.
pub fn verify(buffers: &[Buffer], offsets: &[Bytes], capacity: Option<Bytes>) -> Result<(), Fault> {
    if buffers.len() != offsets.len() {
        return Err(Fault::Count { buffers: buffers.len(), offsets: offsets.len() });
    }
    let capacity = capacity.unwrap_or(Bytes(u64::MAX));
    let mut events = Vec::with_capacity(2 * buffers.len());
    for (at, (buffer, offset)) in buffers.iter().zip(offsets).enumerate() {
        let Buffer { size, alignment, .. } = *buffer;
        if offset.0.checked_add(size.0).is_none_or(|end| end > capacity.0) {
            return Err(Fault::Beyond { buffer: at, offset: *offset, size, capacity });
        }
        if !offset.0.is_multiple_of(alignment.0.max(1)) {
            return Err(Fault::Misaligned { buffer: at, offset: *offset, alignment });
        }
        // What has no bytes or no life overlaps nothing.
        if buffer.lower < buffer.upper && size.0 > 0 {
            events.push((buffer.lower, true, at));
            events.push((buffer.upper, false, at));
        }
    }
    // At one moment deaths come before births: lifetimes are half-open.
    events.sort_unstable();
    let mut live: BTreeMap<u64, usize> = BTreeMap::new();
    for (moment, birth, at) in events {
        let offset = offsets[at].0;
        if !birth {
            live.remove(&offset);
            continue;
        }
        let below = live.range(..=offset).next_back();
        let below = below.filter(|(start, other)| *start + buffers[**other].size.0 > offset);
        let above = live.range(offset..).next().filter(|(start, _)| **start < offset + buffers[at].size.0);
        if let Some((_, &other)) = below.or(above) {
            let (a_offset, b_offset) = (offsets[other], offsets[at]);
            return Err(Fault::Overlap { a: other, a_offset, b: at, b_offset, moment });
        }
        live.insert(offset, at);
    }
    Ok(())
}

//! What short-lived objects need of the memory set aside for them, and the least fast memory there is a point in.
//!
//! Sentinel, sections IV-C and IV-E: the memory must hold the peak of the short-lived objects, and the largest long-lived
//! one beside them; with less, objects go to and fro or stay outside.

use tiercel_core::heap::Heap;
use tiercel_core::{Bytes, Machine, TierId};
use tiercel_workload::lifetimes::Class;
use tiercel_workload::{Lifetimes, TensorId, Trace};

use crate::recording::Recording;

/// What the start of every object is a multiple of.
const GRAIN: Bytes = Bytes(64);

/// For each kernel, how far the short-lived objects reach that are there then, when they are allocated one after the other
/// in memory of their own, in whole pages.
pub fn reach(recording: &Recording, page: Bytes) -> Vec<Bytes> {
    let steps = recording.moments.len();
    let (mut births, mut deaths) = (vec![Vec::new(); steps], vec![Vec::new(); steps]);
    let mut all = 0;
    for (at, item) in recording.items.iter().enumerate().filter(|(_, item)| item.is_short()) {
        let (Some(birth), Some(last)) = (item.birth, item.retired) else { continue };
        births[birth as usize].push(at);
        deaths[last as usize].push(at);
        all += item.size.0.max(1).next_multiple_of(GRAIN.0);
    }
    let mut heap = Heap::new(Bytes(all), GRAIN);
    let mut blocks = vec![None; recording.items.len()];
    let mut reach = Vec::with_capacity(steps);
    for step in 0..steps {
        for at in &births[step] {
            blocks[*at] = heap.allocate(recording.items[*at].size, *at as u32);
        }
        let end = heap.used_blocks().last().map_or(Bytes::ZERO, |b| heap.offset(b) + heap.size(b));
        reach.push(Bytes(end.0.next_multiple_of(page.0)));
        for at in &deaths[step] {
            if let Some(block) = blocks[*at].take() {
                heap.free(block);
            }
        }
    }
    reach
}

/// The least fast memory that a program should have: with less, expect to lose more than a fifth of the speed.
pub fn lower_bound(trace: &Trace) -> Bytes {
    let lifetimes = Lifetimes::new(trace);
    let long = |at: usize| lifetimes.of(TensorId(at as u32)).is_some_and(|life| life.class != Class::Short);
    let sizes = trace.tensors.iter().enumerate().filter(|(at, _)| long(*at)).map(|(_, t)| t.bytes);
    lifetimes.short_lived_peak() + sizes.max().unwrap_or_default()
}

/// The same from a profiled iteration.
pub(super) fn lower_bound_of(recording: &Recording, reach: &[Bytes]) -> Bytes {
    let long = recording.items.iter().filter(|item| !item.is_short()).map(|item| item.size);
    reach.iter().copied().max().unwrap_or_default() + long.max().unwrap_or_default()
}

/// Fast memory is below the lower bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{tier}: short-lived objects and the largest long-lived one of {program} need {wanted}; there are {there}"
)]
pub struct TooSmall {
    /// The tier.
    pub tier: String,
    /// The program.
    pub program: String,
    /// The lower bound.
    pub wanted: Bytes,
    /// The tier's capacity.
    pub there: Bytes,
}

/// Says if a machine's fast memory is below a program's lower bound. The program runs there all the same, only slower.
pub fn enough(trace: &Trace, machine: &Machine) -> Result<(), TooSmall> {
    let (wanted, fast) = (lower_bound(trace), machine.tier(TierId(0)));
    if wanted <= fast.capacity {
        return Ok(());
    }
    let (tier, program) = (fast.name.clone(), trace.name.clone());
    Err(TooSmall { tier, program, wanted, there: fast.capacity })
}

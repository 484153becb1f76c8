//! Which placements of a kernel's operands are measured, and what the others follow from.
//!
//! Asked for a profile, a thorough one is made. With few operands every combination of tiers is measured, as AutoTM does
//! (section 4.1). With many there are too many combinations: then everything on the fastest tier, each operand alone on each
//! other tier, and everything on each other tier. From these any other placement follows ([`derive`]): what its operands cost
//! alone is added up, and shrunk as much as what the operands cost together is less than that sum, because a kernel that
//! waits for one memory need not wait for another.
//!
//! Who only wants to plan waits for seconds, not for minutes: then everything on the fastest tier is measured, and on each
//! other tier everything that is read alone, and everything. What reads and what writes cost is shared out by bytes.
//!
//! An emulated tier is fast memory with a charge: its time on fast memory and what its bytes take there hide each other in
//! part ([`together`]). That is known without a clock, and known better, so of such a tier only everything on it is
//! measured, to see that it is so.

use tiercel_core::{Access, Backing, Bytes, Machine, Nanos, Tier, TierId, Traffic};
use tiercel_run::executor::operands;
use tiercel_sim::{EMULATED_OVERLAP, together};
use tiercel_workload::Kernel;

use super::Placed;

/// The most combinations that are measured one by one: five operands on two tiers.
const MOST: usize = 32;

/// How many placements are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    /// Those that tell of all others, three a tier at most.
    #[default]
    Coarse,
    /// Every combination of few operands, and each of many alone.
    Thorough,
}

/// The placements of a kernel's operands on a machine that are measured, all on the fastest tier first.
pub fn chosen(operands: &[Access], machine: &Machine, sampling: Sampling) -> Vec<Vec<TierId>> {
    let usable = machine.tier_ids().filter(|id| machine.tier(*id).computable);
    let (emulated, real): (Vec<TierId>, Vec<TierId>) =
        usable.partition(|id| machine.tier(*id).backing == Backing::Throttled && *id != TierId(0));
    let mut chosen = match sampling {
        Sampling::Coarse => coarse(operands, &real),
        Sampling::Thorough => combinations(operands.len(), &real),
    };
    chosen.extend(emulated.into_iter().map(|tier| vec![tier; operands.len()]));
    chosen
}

/// Everything on the fastest tier; on each other what is only read, and everything.
fn coarse(operands: &[Access], tiers: &[TierId]) -> Vec<Vec<TierId>> {
    let mut chosen = vec![vec![tiers[0]; operands.len()]];
    for &tier in &tiers[1..] {
        for place in [reads_on(operands, tiers[0], tier), vec![tier; operands.len()]] {
            if !chosen.contains(&place) {
                chosen.push(place);
            }
        }
    }
    chosen
}

/// What is only read on one tier, the rest on another.
fn reads_on(operands: &[Access], first: TierId, tier: TierId) -> Vec<TierId> {
    operands.iter().map(|access| if *access == Access::Read { tier } else { first }).collect()
}

/// All combinations of a few operands on tiers, or those that tell of many.
fn combinations(operands: usize, tiers: &[TierId]) -> Vec<Vec<TierId>> {
    let all = u32::try_from(operands).ok().and_then(|n| tiers.len().checked_pow(n));
    if let Some(all) = all.filter(|all| *all <= MOST) {
        let place = |mut at: usize| -> Vec<TierId> {
            let digit = |_| {
                let tier = tiers[at % tiers.len()];
                at /= tiers.len();
                tier
            };
            (0..operands).map(digit).collect()
        };
        return (0..all).map(place).collect();
    }
    let fast = vec![tiers[0]; operands];
    let mut chosen = vec![fast.clone()];
    for &tier in &tiers[1..] {
        for at in 0..operands {
            let mut one = fast.clone();
            one[at] = tier;
            chosen.push(one);
        }
        chosen.push(vec![tier; operands]);
    }
    chosen
}

/// The time of a kernel whose reads, then writes, lie on tiers with which it was not measured, from placements with
/// which it was, or with which one was measured of whose work it does a part; `None` where that was not measured on fast
/// memory alone.
pub fn derive(
    machine: &Machine,
    kernel: &Kernel,
    (known, part): (&[Placed], f64),
    tiers: &[TierId],
) -> Option<Nanos> {
    let of =
        |wanted: &[TierId]| known.iter().find(|(places, _)| places == wanted).map(|(_, time)| time.0 as f64);
    let (first, (own, uses)) = (TierId(0), operands(kernel));
    let access = |slot: usize| own[slot].1;
    // The same kernel may have lost its workspace, or found one, when the program was rewritten.
    let base = known.iter().find(|(places, _)| places.iter().all(|tier| *tier == first))?.1.0 as f64;
    let mut real = base;
    for id in machine.tier_ids().skip(1).filter(|id| tiers.contains(id)) {
        if machine.tier(id).backing == Backing::Throttled {
            continue;
        }
        // What operand `at` costs on this tier beside the rest on fast memory.
        let alone = |at: usize| {
            let one: Vec<TierId> = uses.iter().map(|o| if *o == at { id } else { first }).collect();
            of(&one).map_or(0.0, |time| (time - base).max(0.0))
        };
        let count = uses.iter().max().map_or(0, |most| most + 1);
        let sum: f64 = (0..count).map(alone).sum();
        let here = (0..count).filter(|at| uses.iter().zip(tiers).any(|(o, tier)| o == at && *tier == id));
        let wanted: f64 = here.map(alone).sum();
        let all = known.iter().find(|(places, _)| places.iter().all(|tier| *tier == id));
        let together = all.map_or(sum, |(_, time)| (time.0 as f64 - base).max(0.0));
        let reads: Vec<TierId> =
            uses.iter().map(|slot| if access(*slot) == Access::Read { id } else { first }).collect();
        real += if all.is_some_and(|(places, _)| places.len() != tiers.len()) {
            // What was one operand comes in parts: what all of them cost is shared out by bytes.
            together * bytes_there(kernel, tiers, id, |_| true)
        } else if sum == 0.0 && all.is_some() {
            // None of them was measured alone.
            let reading = of(&reads).map_or(0.0, |time| (time - base).clamp(0.0, together));
            let read = |slot: usize| access(slot) == Access::Read;
            reading * bytes_there(kernel, tiers, id, |at| read(uses[at]))
                + (together - reading) * bytes_there(kernel, tiers, id, |at| !read(uses[at]))
        } else {
            wanted * if sum > 0.0 { together / sum } else { 1.0 }
        };
    }
    let charges = machine.tier_ids().map(|id| charge(machine, kernel, tiers, id));
    let time = together(real * part, charges.fold(0.0, f64::max), EMULATED_OVERLAP);
    Some(Nanos(time.round() as u64))
}

/// The share of the bytes of some of a kernel's uses which lie on a tier.
fn bytes_there(kernel: &Kernel, tiers: &[TierId], id: TierId, counts: impl Fn(usize) -> bool) -> f64 {
    let uses = kernel.reads.iter().chain(&kernel.writes).map(|u| u.bytes.0 as f64);
    let (mut all, mut there) = (0.0, 0.0);
    for (_, (bytes, tier)) in uses.zip(tiers).enumerate().filter(|(at, _)| counts(*at)) {
        all += bytes;
        there += if *tier == id { bytes } else { 0.0 };
    }
    if all > 0.0 { there / all } else { 0.0 }
}

/// The time of a kernel that takes `fast` on fast memory where a cache below the level of objects moves these bytes:
/// emulated tiers charge for them, others take their time beside the kernel's own.
pub(super) fn beside_cache(machine: &Machine, fast: Nanos, traffic: &[Traffic]) -> Nanos {
    let slow = |t: &&Traffic| t.tier != TierId(0);
    let (emulated, real): (Vec<&Traffic>, Vec<&Traffic>) =
        traffic.iter().filter(slow).partition(|t| machine.tier(t.tier).backing == Backing::Throttled);
    let own = fast.0 as f64 + real.iter().map(|t| flow(machine.tier(t.tier), t)).sum::<f64>();
    let charged = emulated.iter().map(|t| flow(machine.tier(t.tier), t)).fold(0.0, f64::max);
    Nanos(together(own, charged, EMULATED_OVERLAP).round() as u64)
}

/// What an emulated tier charges a kernel for its bytes there, in nanoseconds; nothing for any other.
fn charge(machine: &Machine, kernel: &Kernel, tiers: &[TierId], id: TierId) -> f64 {
    let tier = machine.tier(id);
    if tier.backing != Backing::Throttled {
        return 0.0;
    }
    let (operands, slots) = operands(kernel);
    let mut traffic = Traffic { tier: id, read: Bytes::ZERO, write: Bytes::ZERO };
    for (at, (_, access, bytes)) in operands.iter().enumerate() {
        let here = slots.iter().zip(tiers).any(|(slot, place)| *slot == at && *place == id);
        let bytes = if here { *bytes } else { Bytes::ZERO };
        traffic.read += if access.reads() { bytes } else { Bytes::ZERO };
        traffic.write += if access.writes() { bytes } else { Bytes::ZERO };
    }
    flow(tier, &traffic)
}

/// How long bytes take on a tier, in nanoseconds.
fn flow(tier: &Tier, traffic: &Traffic) -> f64 {
    1e9 * tier.flow(traffic.read.0 as f64, traffic.write.0 as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiercel_workload::TensorId;
    use tiercel_workload::trace::{Phase, Use};

    fn kernel(reads: u64, writes: u64) -> Kernel {
        let uses = |from: u64, count: u64| {
            let each = |at: u64| Use { tensor: TensorId(at as u32), bytes: Bytes(1000 * (at + 1)) };
            (from..from + count).map(each).collect()
        };
        Kernel {
            name: "k".to_string(),
            op: "k".to_string(),
            reads: uses(0, reads),
            writes: uses(reads, writes),
            flops: 0,
            layer: 0,
            phase: Phase::Forward,
            timings: Vec::new(),
            alternatives: Vec::new(),
            detached: false,
            factor: 1.0,
            repeat: None,
            derived: Default::default(),
        }
    }

    fn machine(backing: &str) -> Machine {
        let text = "name = 'm'
            [[tier]]\nname = 'a'\ncapacity = '1 GiB'\nread = '9 GB/s'\nwrite = '9 GB/s'
            [[tier]]\nname = 'b'\ncapacity = '1 GiB'\nread = '2 GB/s'\nwrite = '1 GB/s'\nbacking = 'BACKING'
            [[link]]\nfrom = 'a'\nto = 'b'\nthreads = 1\nbandwidth = { 1 = '1 GB/s' }
            [[link]]\nfrom = 'b'\nto = 'a'\nthreads = 1\nbandwidth = { 1 = '2 GB/s' }";
        Machine::parse(&text.replace("BACKING", backing)).expect("two tiers")
    }

    #[test]
    fn few_operands_are_measured_everywhere_and_many_one_by_one() {
        let two = machine("numa:0");
        for operands in 1..=5 {
            let mut all = chosen(&vec![Access::Read; operands], &two, Sampling::Thorough);
            assert_eq!(all[0], vec![TierId(0); operands]);
            assert_eq!(all.len(), 1 << operands);
            all.sort();
            all.dedup();
            assert_eq!(all.len(), 1 << operands, "each once");
        }
        let many = |count: usize| chosen(&vec![Access::Read; count], &two, Sampling::Thorough).len();
        assert_eq!((many(9), many(70)), (1 + 9 + 1, 72));
        let emulated = chosen(&[Access::Read; 3], &machine("throttled"), Sampling::Thorough);
        assert_eq!(emulated, [vec![TierId(0); 3], vec![TierId(1); 3]]);
    }

    #[test]
    fn who_only_plans_waits_for_three_placements_at_most() {
        let two = machine("numa:0");
        let places = |operands: &[Access]| chosen(operands, &two, Sampling::Coarse);
        let at = |tiers: &[u8]| tiers.iter().map(|tier| TierId(*tier)).collect::<Vec<_>>();
        let kernel = [Access::Read, Access::Write, Access::Read, Access::ReadWrite];
        assert_eq!(places(&kernel), [at(&[0, 0, 0, 0]), at(&[1, 0, 1, 0]), at(&[1, 1, 1, 1])]);
        assert_eq!(places(&[Access::Read, Access::Read]), [at(&[0, 0]), at(&[1, 1])], "nothing is written");
        assert_eq!(places(&[Access::Write]), [at(&[0]), at(&[1])], "nothing is read");
    }

    #[test]
    fn what_reads_and_writes_cost_is_shared_out_by_bytes() {
        // Reads of 1000, 2000 and 3000 bytes, and a write of 4000.
        let (machine, kernel) = (machine("numa:0"), kernel(3, 1));
        let at = |tiers: [u8; 4]| tiers.map(TierId).to_vec();
        let known = [(at([0; 4]), Nanos(1000)), (at([1, 1, 1, 0]), Nanos(1600)), (at([1; 4]), Nanos(2400))];
        let time = |places: [u8; 4]| {
            derive(&machine, &kernel, (&known, 1.0), &places.map(TierId)).expect("measured").0
        };
        assert_eq!(time([0, 0, 0, 0]), 1000);
        assert_eq!(time([1, 0, 0, 0]), 1100);
        assert_eq!(time([0, 1, 1, 0]), 1500);
        assert_eq!(time([0, 0, 0, 1]), 1800);
        assert_eq!(time([1, 1, 1, 1]), 2400);
    }

    #[test]
    fn an_emulated_tier_charges_by_its_bytes() {
        let (machine, kernel) = (machine("throttled"), kernel(2, 1));
        let known = [(vec![TierId(0); 3], Nanos(1200))];
        let time = |places: [u8; 3]| derive(&machine, &kernel, (&known, 1.0), &places.map(TierId));
        assert_eq!(time([0, 0, 0]), Some(Nanos(1200)));
        let both = |charge: f64| Some(Nanos(together(1200.0, charge, EMULATED_OVERLAP).round() as u64));
        assert_eq!(time([1, 1, 0]), both(1500.0), "3000 bytes read at 2 GB/s");
        assert_eq!(time([1, 1, 1]), both(3000.0), "3000 bytes written at 1 GB/s beside them");
        assert_eq!(time([1, 0, 0]), both(500.0), "in part hidden behind what the kernel takes anyway");
        assert_eq!(derive(&machine, &kernel, (&[], 1.0), &[TierId(0); 3]), None);
    }

    #[test]
    fn what_operands_cost_alone_adds_up_to_what_they_cost_together() {
        let (machine, kernel) = (machine("numa:0"), kernel(5, 1));
        // Operand i alone costs i more; all together cost half the sum.
        let alone = |places: &[TierId]| -> u64 {
            places.iter().enumerate().map(|(at, tier)| at as u64 * u64::from(tier.0) * 10).sum()
        };
        let halved = |places: &[TierId]| places.iter().all(|tier| *tier == TierId(1));
        let operands = [Access::Read; 6];
        let known: Vec<(Vec<TierId>, Nanos)> = chosen(&operands, &machine, Sampling::Thorough)
            .into_iter()
            .map(|places| {
                let cost = alone(&places) / if halved(&places) { 2 } else { 1 };
                (places, Nanos(1000 + cost))
            })
            .collect();
        let time = |places: [u8; 6]| {
            derive(&machine, &kernel, (&known, 1.0), &places.map(TierId)).expect("measured")
        };
        assert_eq!(time([0, 1, 0, 1, 0, 1]), Nanos(1000 + 90 / 2));
        assert!(time([1; 6]) == Nanos(1075) && time([0; 6]) == Nanos(1000));
        let few = time([0, 1, 1, 0, 0, 0]);
        assert!(few <= time([0, 1, 1, 1, 0, 0]) && few >= Nanos(1000), "more on slow memory is never faster");
    }
}

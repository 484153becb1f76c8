//! How fast this machine copies between its tiers, by the number of threads, and how many threads should: what the model of
//! copy threads asks for, and what it is asked.
//!
//! WarpX-PM measures bandwidths once for a machine with a microbenchmark (section 7.4.2). Here it takes some milliseconds, and is
//! done before a run that leaves the number of copy threads to the model. What a phase computes and copies is known after its second
//! iteration; each phase gets a number of its own.

use tiercel_core::copiers::{Hardware, Interval};
use tiercel_core::{Bandwidth, Bytes, Machine, Manager, ObjectId, RegionId, TierId, ZoneId};
use tiercel_run::Host;

use crate::error::PicError;
use crate::simulation::{PHASES, Work};

/// What is copied: large enough for threads to share, small enough to take little time on slow memory.
const PROBE: Bytes = Bytes::mib(16);

/// How often; the best counts.
const TIMES: usize = 3;

/// The machine with its links' bandwidths as they are here, for one thread, for two, and so on up to `most`.
pub fn measured(machine: &Machine, most: u32) -> Result<Machine, PicError> {
    let mut measured = machine.clone();
    measured.links.iter_mut().for_each(|link| link.curve.clear());
    for threads in 1..=most {
        let mut machine = machine.clone();
        machine.links.iter_mut().for_each(|link| link.threads = threads);
        let [inward, outward, _] = copies(&machine)?;
        for link in &mut measured.links {
            link.curve.push((threads, Bandwidth(if link.to == TierId(0) { inward } else { outward })));
        }
    }
    Ok(measured)
}

/// How many threads should copy in each phase, on a machine whose bandwidths are known and that has so many threads.
pub fn choose(machine: &Machine, threads: usize, works: &[Work; PHASES.len()]) -> [u32; PHASES.len()] {
    let (fast, slow) = (TierId(0), machine.slowest());
    works.map(|work| {
        let (Some(inward), Some(outward)) = (machine.link(slow, fast), machine.link(fast, slow)) else {
            return 1;
        };
        let hardware = Hardware { inward, outward, threads, ranks: 1 };
        let compute_bandwidth = work.behind / work.compute.max(1e-9);
        let Work { compute, bytes_in, bytes_out, .. } = work;
        // Where nothing can be said one thread copies, as it did while this was measured.
        hardware
            .choose(&Interval { bytes_in, bytes_out, compute, compute_bandwidth })
            .map_or(1, |chosen| chosen.threads as u32)
    })
}

/// Bytes a second to fast memory, from it, and of both together while both are under way.
pub(crate) fn copies(machine: &Machine) -> Result<[f64; 3], PicError> {
    let mut machine = machine.clone();
    machine.tiers.iter_mut().for_each(|tier| tier.capacity = Bytes(PROBE.0 * 4));
    let host = Host::open(&machine)?;
    let mut m = Manager::new(machine, host);
    // Both lie behind before anything is timed: what a file never held is read from nowhere.
    let (one, other) = (Probe::new(&mut m)?, Probe::new(&mut m)?);
    one.go(&mut m, Way::Out)?;
    m.drain()?;
    let mut best = [f64::INFINITY; 3];
    for _ in 0..TIMES {
        let ways: [&[(&Probe, Way)]; 3] =
            [&[(&one, Way::In)], &[(&one, Way::Out)], &[(&one, Way::In), (&other, Way::Out)]];
        for (best, moves) in best.iter_mut().zip(ways) {
            let clock = std::time::Instant::now();
            for (probe, way) in moves {
                probe.go(&mut m, *way)?;
            }
            m.drain()?;
            let bytes = PROBE.0 as f64 * moves.len() as f64;
            *best = best.min(clock.elapsed().as_secs_f64().max(1e-9) / bytes);
        }
        one.go(&mut m, Way::Out)?;
        other.go(&mut m, Way::In)?;
        m.drain()?;
    }
    Ok(best.map(f64::recip))
}

/// Where a probe goes.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    In,
    Out,
}

/// What is copied to and fro: an object with memory on both tiers.
struct Probe {
    object: ObjectId,
    fast: RegionId,
    slow: RegionId,
}

impl Probe {
    /// In fast memory.
    fn new(m: &mut Manager<Host>) -> Result<Probe, PicError> {
        let object = m.create(Some("probe"), PROBE)?;
        let region = |m: &mut Manager<Host>, tier| {
            m.allocate_in(tier, ZoneId::MAIN, PROBE).map_err(|_| m.no_room(object, tier))
        };
        let (fast, slow) = (region(m, TierId(0))?, region(m, TierId(1))?);
        m.set_primary(object, fast)?;
        m.link(fast, slow)?;
        m.mark_dirty(fast)?;
        Ok(Probe { object, fast, slow })
    }

    /// Copies all of it, changed or not.
    fn go(&self, m: &mut Manager<Host>, way: Way) -> Result<(), PicError> {
        let (from, to) = if way == Way::In { (self.slow, self.fast) } else { (self.fast, self.slow) };
        m.mark_dirty(from)?;
        m.copy(from, to)?;
        m.set_primary(self.object, to)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tiercel_core::Backing;

    use super::*;
    use crate::system::{Needs, machine};

    /// Memory that is slowed down copies no faster than it is allowed to, in either direction.
    #[test]
    fn throttled_memory_is_as_slow_as_it_should_be() {
        let throttled = (Bandwidth(2e9), Bandwidth(1e9));
        let machine = machine(&Needs::default(), Bytes::mib(32), Backing::Throttled, throttled, 1);
        let machine = measured(&machine, 2).expect("memory");
        let (fast, slow) = (TierId(0), TierId(1));
        let curve = |from, to| machine.link(from, to).expect("a link").curve.clone();
        let [inward, outward] = [curve(slow, fast), curve(fast, slow)];
        assert_eq!((inward.len(), outward.len()), (2, 2));
        for at in 0..2 {
            assert!(inward[at].1.0 > 0.0 && inward[at].1.0 < 3e9, "{inward:?}");
            assert!(outward[at].1.0 > 0.0 && outward[at].1.0 < 1.5e9, "{outward:?}");
        }
    }
    /// Each phase gets what its own bytes ask for: a push that copies both ways in little time wants two threads, a deposit that
    /// only reads has time for one, and fields copy nothing.
    #[test]
    fn phases_are_answered_each_for_itself() {
        let throttled = (Bandwidth(2e9), Bandwidth(1e9));
        let mut machine = machine(&Needs::default(), Bytes::mib(32), Backing::Throttled, throttled, 1);
        for link in &mut machine.links {
            link.curve = vec![(1, Bandwidth(1e9)), (2, Bandwidth(1.8e9)), (3, Bandwidth(6e9))];
        }
        let work = |compute, bytes_in, bytes_out| Work { compute, bytes_in, bytes_out, behind: 0.0 };
        let works = [work(0.12, 2e8, 2e8), work(0.3, 2e8, 0.0), work(0.01, 0.0, 0.0)];
        assert_eq!(choose(&machine, 24, &works), [2, 1, 1]);
        assert_eq!(choose(&machine, 2, &works), [1, 1, 1]);
    }
}

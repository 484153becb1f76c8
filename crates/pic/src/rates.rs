//! How fast this machine copies between its tiers, by the number of threads: what the model of copy threads asks for.
//!
//! WarpX-PM measures this once for a machine with a microbenchmark (section 7.4.2). Here it takes some milliseconds, and is done
//! before a run that leaves the number of copy threads to the model.

use tiercel_core::{Access, Bytes, Error, Machine, Manager, ObjectId, Operand, Step, TierId, ZoneId};
use tiercel_run::Host;

use crate::error::PicError;

/// What is copied: large enough for threads to share, small enough to take little time on slow memory.
const PROBE: Bytes = Bytes::mib(8);

/// How often; the best counts.
const TIMES: usize = 3;

/// Bytes a second to fast memory and back, for one thread, for two, and so on up to `most`.
pub fn measure(machine: &Machine, most: u32) -> Result<[Vec<f64>; 2], PicError> {
    let mut curves = [Vec::new(), Vec::new()];
    for threads in 1..=most {
        let mut machine = machine.clone();
        machine.links.iter_mut().for_each(|link| link.threads = threads);
        for tier in &mut machine.tiers {
            tier.capacity = Bytes(PROBE.0 * 2);
        }
        let [inward, outward] = copies(&machine)?;
        curves[0].push(inward);
        curves[1].push(outward);
    }
    Ok(curves)
}

/// Bytes a second of the best copies to fast memory and back, on this machine.
fn copies(machine: &Machine) -> Result<[f64; 2], PicError> {
    let host = Host::open(machine)?;
    let mut m = Manager::new(machine.clone(), host);
    let object = m.create(Some("probe"), PROBE)?;
    let (fast, slow) = (TierId(0), machine.slowest());
    let home = m.allocate_in(slow, ZoneId::MAIN, PROBE).map_err(|_| m.no_room(object, slow))?;
    m.set_primary(object, home)?;
    m.mark_dirty(home)?;
    let region = m.allocate_in(fast, ZoneId::MAIN, PROBE).map_err(|_| m.no_room(object, fast))?;
    let (mut best, mut loose) = ([f64::INFINITY; 2], true);
    for _ in 0..TIMES {
        for (way, (from, to)) in [(home, region), (region, home)].into_iter().enumerate() {
            let clock = std::time::Instant::now();
            m.copy(from, to)?;
            if std::mem::take(&mut loose) {
                m.link(home, region)?;
            }
            m.set_primary(object, to)?;
            arrived(&mut m, object)?;
            best[way] = best[way].min(clock.elapsed().as_secs_f64());
            m.mark_dirty(to)?;
        }
    }
    Ok(best.map(|seconds| PROBE.0 as f64 / seconds.max(1e-9)))
}

/// Returns when an object's bytes are where it is.
fn arrived(m: &mut Manager<Host>, object: ObjectId) -> Result<(), Error> {
    let reads = [Operand { object, access: Access::Read, bytes: PROBE }];
    m.begin(Step(0), &reads)?;
    m.end(Step(0), &reads);
    Ok(())
}

#[cfg(test)]
mod tests {
    use tiercel_core::{Backing, Bandwidth};

    use super::*;
    use crate::system::{Needs, machine};

    /// Memory that is slowed down copies no faster than it is allowed to, in either direction.
    #[test]
    fn throttled_memory_is_as_slow_as_it_should_be() {
        let throttled = (Bandwidth(2e9), Bandwidth(1e9));
        let machine = machine(&Needs::default(), Bytes::mib(32), Backing::Throttled, throttled, 1);
        let [inward, outward] = measure(&machine, 2).expect("memory");
        assert_eq!((inward.len(), outward.len()), (2, 2));
        for at in 0..2 {
            assert!(inward[at] > 0.0 && inward[at] < 3e9, "{inward:?}");
            assert!(outward[at] > 0.0 && outward[at] < 1.5e9, "{outward:?}");
        }
    }
}

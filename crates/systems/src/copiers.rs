//! How many threads copy, for each direction and system, where cores do it and so cannot compute meanwhile.
//!
//! The answers are `tiercel_core::copiers`': copies that kernels wait for may have every core; copies beside kernels should have those
//! that move nearly as much as a lone one would. A planner says which of the two it makes. What a policy does is found by playing
//! it: each way is simulated, and the fastest is taken, so that every system is at its best.

use std::collections::BTreeSet;

use tiercel_core::{Link, Machine};

use crate::{Prepared, Recording, Setting, System, SystemError, simulate_prepared};

/// When a system copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    /// While kernels wait.
    Awaited,
    /// While kernels run.
    Beside,
    /// Either, as it comes.
    Mixed,
}

/// The machines that are worth a trial: they differ in their copy threads.
fn candidates(copies: Copies, machine: &Machine) -> Vec<Machine> {
    let Some(cores) = machine.cores() else { return vec![machine.clone()] };
    let swift = |link: &Link| link.swiftest(cores as u32);
    let sparing = |link: &Link| link.sparing();
    let with = |threads: &dyn Fn(&Link) -> u32| machine.clone().with_copy_threads(threads);
    match copies {
        Copies::Awaited => vec![with(&swift)],
        Copies::Beside => vec![with(&sparing)],
        Copies::Mixed => {
            let mut seen = BTreeSet::new();
            // By direction: what comes in from slower tiers, and what goes out to them.
            let ways = [(false, false), (true, false), (false, true), (true, true)].into_iter().map(
                |(inward, outward)| {
                    with(&|link| {
                        let swiftly = if link.from > link.to { inward } else { outward };
                        if swiftly { swift(link) } else { sparing(link) }
                    })
                },
            );
            let threads = |m: &Machine| m.links.iter().map(|link| link.threads).collect::<Vec<u32>>();
            ways.filter(|m| seen.insert(threads(m))).collect()
        }
    }
}

/// Prepares a system with the copy threads that serve it best.
pub(crate) fn prepare(system: &System, setting: &Setting<'_>) -> Result<Prepared, SystemError> {
    let candidates = candidates(system.copies, setting.machine);
    let on = |machine: &Machine| {
        let prepared = (system.prepare)(&Setting { machine, ..*setting })?;
        let chosen = prepared.copy_threads.is_empty().then(|| machine.copy_threads());
        Ok(Prepared { copy_threads: chosen.unwrap_or(prepared.copy_threads.clone()), ..prepared })
    };
    if let [only] = candidates.as_slice() {
        return on(only);
    }
    let mut best: Option<(u64, &Machine)> = None;
    for machine in &candidates {
        let run = simulate_prepared(system.name, on(machine)?, setting, 1, Recording::Off)?;
        let time = run.time().0;
        if best.is_none_or(|(least, _)| time < least) {
            best = Some((time, machine));
        }
    }
    on(best.map_or(setting.machine, |(_, machine)| machine))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiercel_profile::machines;

    fn threads(copies: Copies, machine: &str) -> Vec<Vec<u32>> {
        let machine = machines::named(machine).expect("it ships");
        let threads = |m: &Machine| m.links.iter().map(|link| link.threads).collect();
        candidates(copies, &machine).iter().map(threads).collect()
    }

    #[test]
    fn copies_beside_kernels_spare_cores_and_awaited_ones_do_not() {
        // Out and in: writing persistent memory peaks at six threads.
        assert_eq!(threads(Copies::Awaited, "optane-autotm"), [[6, 24]]);
        assert_eq!(threads(Copies::Beside, "optane-autotm"), [[6, 8]]);
        assert_eq!(threads(Copies::Mixed, "optane-autotm"), [[6, 8], [6, 24]]);
    }

    #[test]
    fn engines_are_left_as_they_are() {
        for copies in [Copies::Awaited, Copies::Beside, Copies::Mixed] {
            assert_eq!(threads(copies, "h200"), [[1, 1]]);
        }
    }
}

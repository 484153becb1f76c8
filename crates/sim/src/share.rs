//! Divides the tiers' bandwidths among the copies and the kernel that want them.
//!
//! All flows are raised together until one resource (a tier's read, write or combined bandwidth, the turns that its
//! directions take, or the cores that compute and copy) is used up; the
//! flows that use it stay there and the others go on: max-min fairness in shares of what each could use alone.

use tiercel_core::{Machine, TierId, Traffic};

/// What one flow draws from each resource when it runs undisturbed, in bytes a second.
#[derive(Clone, Debug, Default)]
pub(super) struct Demand {
    draws: Vec<(Resource, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resource {
    Read(TierId),
    Write(TierId),
    Cores,
}

impl Demand {
    /// A copy at full speed, by so many cores.
    pub(super) fn copy(from: TierId, to: TierId, speed: f64, cores: f64) -> Demand {
        let mut draws = vec![(Resource::Read(from), speed), (Resource::Write(to), speed)];
        if cores > 0.0 {
            draws.push((Resource::Cores, cores));
        }
        Demand { draws }
    }

    /// A kernel that takes `seconds` alone, as far as it contends with copies at all, on so many cores.
    pub(super) fn kernel(machine: &Machine, traffic: &[Traffic], seconds: f64, cores: f64) -> Demand {
        let mut draws = Vec::new();
        if cores > 0.0 {
            draws.push((Resource::Cores, cores));
        }
        for t in traffic {
            let tier = machine.tier(t.tier);
            for (resource, bytes, most) in [
                (Resource::Read(t.tier), t.read, tier.read.0),
                (Resource::Write(t.tier), t.write, tier.write.0),
            ] {
                let draw = (bytes.0 as f64 / seconds).min(most) * machine.contention;
                if draw > 0.0 {
                    draws.push((resource, draw));
                }
            }
        }
        Demand { draws }
    }
}

/// The bandwidths that flows share.
#[derive(Debug)]
pub(super) struct Shares {
    /// How much there is, and what draws use of it.
    limits: Vec<(f64, Limit)>,
}

/// A limit on what is read from and what is written to a tier.
#[derive(Clone, Copy, Debug)]
struct Limit {
    tier: TierId,
    /// What a byte read a second uses of it.
    read: f64,
    /// What a byte written a second uses of it.
    write: f64,
    /// What a core that is busy uses of it.
    core: f64,
}

impl Limit {
    fn weight(self, resource: Resource) -> f64 {
        match resource {
            Resource::Read(tier) if tier == self.tier => self.read,
            Resource::Write(tier) if tier == self.tier => self.write,
            Resource::Cores => self.core,
            _ => 0.0,
        }
    }
}

impl Shares {
    pub(super) fn new(machine: &Machine) -> Shares {
        let mut limits = Vec::new();
        for (id, tier) in machine.tier_ids().zip(&machine.tiers) {
            let limit = |read, write| Limit { tier: id, read, write, core: 0.0 };
            limits.push((tier.read.0, limit(1.0, 0.0)));
            limits.push((tier.write.0, limit(0.0, 1.0)));
            limits.extend(tier.combined.map(|both| (both.0, limit(1.0, 1.0))));
            limits.extend(tier.duplex.map(|turns| (turns, limit(1.0 / tier.read.0, 1.0 / tier.write.0))));
        }
        let cores = Limit { tier: TierId(0), read: 0.0, write: 0.0, core: 1.0 };
        limits.extend(machine.cores().map(|count| (count, cores)));
        Shares { limits }
    }

    /// For each flow, the share of its undisturbed speed that it gets.
    pub(super) fn divide(&self, flows: &[Demand]) -> Vec<f64> {
        let mut shares: Vec<Option<f64>> = vec![None; flows.len()];
        let draw = |flow: &Demand, limit: Limit| -> f64 {
            flow.draws.iter().map(|(resource, d)| d * limit.weight(*resource)).sum()
        };
        loop {
            // The limit that stops the flows still rising first.
            let mut tightest: Option<(f64, Limit)> = None;
            for &(capacity, limit) in &self.limits {
                let (mut rising, mut settled) = (0.0, 0.0);
                for (flow, share) in flows.iter().zip(&shares) {
                    match share {
                        None => rising += draw(flow, limit),
                        Some(share) => settled += share * draw(flow, limit),
                    }
                }
                let level = (capacity - settled).max(0.0) / rising;
                if rising > 0.0 && level < 1.0 && tightest.is_none_or(|(least, _)| level < least) {
                    tightest = Some((level, limit));
                }
            }
            let Some((level, limit)) = tightest else { break };
            for (flow, share) in flows.iter().zip(&mut shares) {
                if share.is_none() && draw(flow, limit) > 0.0 {
                    // Never nothing at all, so that everything ends.
                    *share = Some(level.max(1e-6));
                }
            }
        }
        shares.into_iter().map(|share| share.unwrap_or(1.0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiercel_core::Bytes;

    fn machine(contention: f64) -> Machine {
        Machine::parse(&format!(
            r#"
            name = "test"
            contention = {contention}
            [[tier]]
            name = "fast"
            capacity = "1 GiB"
            read = "100 GB/s"
            write = "80 GB/s"
            [[tier]]
            name = "slow"
            capacity = "1 GiB"
            read = "40 GB/s"
            write = "10 GB/s"
            combined = "40 GB/s"
            [[link]]
            from = "fast"
            to = "slow"
            threads = 1
            bandwidth = {{ 1 = "10 GB/s" }}
            [[link]]
            from = "slow"
            to = "fast"
            threads = 1
            bandwidth = {{ 1 = "40 GB/s" }}
            "#
        ))
        .unwrap()
    }

    const FAST: TierId = TierId(0);
    const SLOW: TierId = TierId(1);

    #[test]
    fn a_flow_alone_gets_all_it_wants() {
        let shares = Shares::new(&machine(1.0));
        assert_eq!(shares.divide(&[Demand::copy(SLOW, FAST, 40e9, 0.0)]), [1.0]);
    }

    #[test]
    fn both_directions_share_what_the_tier_can_do_at_once() {
        let shares = Shares::new(&machine(1.0));
        let both = [Demand::copy(SLOW, FAST, 40e9, 0.0), Demand::copy(FAST, SLOW, 10e9, 0.0)];
        assert_eq!(shares.divide(&both), [0.8, 0.8]);
    }

    #[test]
    fn directions_that_take_turns_are_slower_together_and_not_alone() {
        let mut machine = machine(1.0);
        machine.tiers[1].combined = None;
        let (up, down) = (Demand::copy(SLOW, FAST, 40e9, 0.0), Demand::copy(FAST, SLOW, 10e9, 0.0));
        for (duplex, together) in [(1.0, 0.5), (1.5, 0.75), (2.0, 1.0)] {
            machine.tiers[1].duplex = Some(duplex);
            let shares = Shares::new(&machine);
            assert_eq!(shares.divide(&[up.clone(), down.clone()]), [together; 2]);
            assert_eq!(shares.divide(std::slice::from_ref(&down)), [1.0]);
            assert_eq!(shares.divide(std::slice::from_ref(&up)), [1.0]);
        }
    }

    #[test]
    fn a_kernel_and_a_copy_meet_only_as_far_as_contention_says() {
        for (contention, expected) in [(1.0, [0.5, 0.5]), (0.0, [1.0, 1.0])] {
            let machine = machine(contention);
            let reads = Traffic { tier: SLOW, read: Bytes(40_000_000_000), write: Bytes::ZERO };
            let kernel = Demand::kernel(&machine, &[reads], 1.0, 0.0);
            let copy = Demand::copy(SLOW, FAST, 40e9, 0.0);
            assert_eq!(Shares::new(&machine).divide(&[copy, kernel]), expected);
        }
    }

    #[test]
    fn cores_that_copy_are_taken_from_the_kernel_and_engines_are_not() {
        let mut machine = machine(0.0);
        machine.compute = tiercel_core::Compute::new(8, 100.0);
        let kernel = Demand::kernel(&machine, &[], 1.0, 8.0);
        let copy = |cores| Demand::copy(SLOW, FAST, 10e9, cores);
        let shares = Shares::new(&machine);
        assert_eq!(shares.divide(&[kernel.clone(), copy(2.0)]), [0.8, 0.8]);
        assert_eq!(shares.divide(&[kernel.clone(), copy(0.0)]), [1.0, 1.0]);
        // Two directions with as many cores as there are leave each a third.
        assert_eq!(shares.divide(&[kernel, copy(8.0), copy(8.0)]), [1.0 / 3.0; 3]);
        // What nobody computes beside has all of them.
        assert_eq!(shares.divide(&[copy(8.0)]), [1.0]);
    }

    #[test]
    fn what_one_flow_cannot_use_goes_to_the_others() {
        let machine = machine(1.0);
        let writes = Traffic { tier: SLOW, read: Bytes::ZERO, write: Bytes(10_000_000_000) };
        let kernel = Demand::kernel(&machine, &[writes], 1.0, 0.0);
        let flows = [Demand::copy(FAST, SLOW, 10e9, 0.0), kernel, Demand::copy(SLOW, FAST, 20e9, 0.0)];
        assert_eq!(Shares::new(&machine).divide(&flows), [0.5, 0.5, 1.0]);
    }
}

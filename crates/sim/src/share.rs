//! Divides the tiers' bandwidths among the copies and the kernel that want them.
//!
//! All flows are raised together until one resource (a tier's read, write or combined bandwidth, the turns that its
//! directions take, a link or a bus that several copies go over, or the cores that compute and copy) is used up; the
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
    Link(TierId, TierId),
    Bus(usize),
    Cores,
}

impl Demand {
    /// A copy at full speed over a link of the machine, by so many cores. Where it goes through other tiers, it takes from
    /// the links on the way and from the memory in between as copies there do.
    pub(super) fn copy(machine: &Machine, from: TierId, to: TierId, speed: f64, cores: f64) -> Demand {
        let mut draws = Vec::new();
        if machine.shares_links() {
            for link in machine.way(from, to) {
                draws.extend([(Resource::Read(link.from), speed), (Resource::Write(link.to), speed)]);
                draws.push((Resource::Link(link.from, link.to), speed));
                draws.extend(link.bus.map(|bus| (Resource::Bus(bus), speed)));
            }
        }
        if draws.is_empty() {
            draws.extend([(Resource::Read(from), speed), (Resource::Write(to), speed)]);
        }
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

/// A limit on what flows draw.
#[derive(Clone, Copy, Debug)]
enum Limit {
    /// On what is read from and what is written to a tier: what a byte a second of either uses of it.
    Memory { tier: TierId, read: f64, write: f64 },
    /// On one resource alone.
    Of(Resource),
}

impl Limit {
    fn weight(self, resource: Resource) -> f64 {
        match (self, resource) {
            (Limit::Memory { tier, read, .. }, Resource::Read(of)) if of == tier => read,
            (Limit::Memory { tier, write, .. }, Resource::Write(of)) if of == tier => write,
            (Limit::Of(limited), of) if of == limited => 1.0,
            _ => 0.0,
        }
    }
}

impl Shares {
    pub(super) fn new(machine: &Machine) -> Shares {
        let mut limits = Vec::new();
        for (id, tier) in machine.tier_ids().zip(&machine.tiers) {
            let limit = |read, write| Limit::Memory { tier: id, read, write };
            limits.push((tier.read.0, limit(1.0, 0.0)));
            limits.push((tier.write.0, limit(0.0, 1.0)));
            limits.extend(tier.combined.map(|both| (both.0, limit(1.0, 1.0))));
            limits.extend(tier.duplex.map(|turns| (turns, limit(1.0 / tier.read.0, 1.0 / tier.write.0))));
        }
        limits.extend(machine.cores().map(|count| (count, Limit::Of(Resource::Cores))));
        if machine.shares_links() {
            let direct = machine.links.iter().filter(|link| link.via.is_none());
            limits.extend(direct.map(|l| (l.speed().0, Limit::Of(Resource::Link(l.from, l.to)))));
            let buses = machine.buses.iter().enumerate();
            limits.extend(buses.map(|(at, bus)| (bus.bandwidth.0, Limit::Of(Resource::Bus(at)))));
        }
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

    fn pair(contention: f64) -> Machine {
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
        let machine = pair(1.0);
        let shares = Shares::new(&machine);
        assert_eq!(shares.divide(&[Demand::copy(&machine, SLOW, FAST, 40e9, 0.0)]), [1.0]);
    }

    #[test]
    fn both_directions_share_what_the_tier_can_do_at_once() {
        let machine = pair(1.0);
        let shares = Shares::new(&machine);
        let both =
            [Demand::copy(&machine, SLOW, FAST, 40e9, 0.0), Demand::copy(&machine, FAST, SLOW, 10e9, 0.0)];
        assert_eq!(shares.divide(&both), [0.8, 0.8]);
    }

    #[test]
    fn directions_that_take_turns_are_slower_together_and_not_alone() {
        let mut machine = pair(1.0);
        machine.tiers[1].combined = None;
        let (up, down) =
            (Demand::copy(&machine, SLOW, FAST, 40e9, 0.0), Demand::copy(&machine, FAST, SLOW, 10e9, 0.0));
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
            let machine = pair(contention);
            let reads = Traffic { tier: SLOW, read: Bytes(40_000_000_000), write: Bytes::ZERO };
            let kernel = Demand::kernel(&machine, &[reads], 1.0, 0.0);
            let copy = Demand::copy(&machine, SLOW, FAST, 40e9, 0.0);
            assert_eq!(Shares::new(&machine).divide(&[copy, kernel]), expected);
        }
    }

    #[test]
    fn cores_that_copy_are_taken_from_the_kernel_and_engines_are_not() {
        let mut machine = pair(0.0);
        machine.compute = tiercel_core::Compute::new(8, 100.0);
        let kernel = Demand::kernel(&machine, &[], 1.0, 8.0);
        let copy = |cores| Demand::copy(&machine, SLOW, FAST, 10e9, cores);
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
        let machine = pair(1.0);
        let writes = Traffic { tier: SLOW, read: Bytes::ZERO, write: Bytes(10_000_000_000) };
        let kernel = Demand::kernel(&machine, &[writes], 1.0, 0.0);
        let flows = [
            Demand::copy(&machine, FAST, SLOW, 10e9, 0.0),
            kernel,
            Demand::copy(&machine, SLOW, FAST, 20e9, 0.0),
        ];
        assert_eq!(Shares::new(&machine).divide(&flows), [0.5, 0.5, 1.0]);
    }

    /// Three tiers in a row, with a bus for the links between the first two where it is named.
    fn row(bus: &str) -> Machine {
        let tier = |name: &str| {
            format!(
                "[[tier]]\nname = \"{name}\"\ncapacity = \"1 GiB\"\nread = \"50 GB/s\"\nwrite = \"50 GB/s\"\n"
            )
        };
        let link = |from: &str, to: &str, speed: u32| {
            let bus = if bus.is_empty() || from == "c" || to == "c" {
                String::new()
            } else {
                format!("bus = \"{bus}\"\n")
            };
            format!(
                "[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nthreads = 1\nbandwidth = {{ 1 = \"{speed} GB/s\" }}\n{bus}"
            )
        };
        let buses = if bus.is_empty() {
            String::new()
        } else {
            format!("[[bus]]\nname = \"{bus}\"\nbandwidth = \"12 GB/s\"\n")
        };
        let links = [link("a", "b", 10), link("b", "a", 10), link("b", "c", 10), link("c", "b", 10)].concat();
        let tiers = [tier("a"), tier("b"), tier("c")].concat();
        Machine::parse(&format!("name = \"row\"\n{tiers}{links}{buses}")).unwrap()
    }

    #[test]
    fn copies_through_a_tier_share_the_links_on_the_way() {
        let machine = row("");
        let copy = |from, to| Demand::copy(&machine, TierId(from), TierId(to), 10e9, 0.0);
        let shares = Shares::new(&machine);
        assert_eq!(shares.divide(&[copy(0, 2)]), [1.0]);
        assert_eq!(shares.divide(&[copy(0, 2), copy(0, 1)]), [0.5; 2]);
        assert_eq!(shares.divide(&[copy(0, 2), copy(1, 2), copy(1, 0)]), [0.5, 0.5, 1.0]);
    }

    #[test]
    fn links_on_one_bus_share_it() {
        let machine = row("upi");
        let copy = |from, to| Demand::copy(&machine, TierId(from), TierId(to), 10e9, 0.0);
        let shares = Shares::new(&machine);
        assert_eq!(shares.divide(&[copy(0, 1), copy(1, 0)]), [0.6; 2]);
        assert_eq!(shares.divide(&[copy(0, 1), copy(1, 2)]), [1.0; 2]);
        assert_eq!(shares.divide(&[copy(0, 2), copy(1, 0)]), [0.6; 2]);
    }
}

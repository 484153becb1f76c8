//! Data locality (ReDL section IV-D): how much of what kernels ask for they find in fast memory, under any policy.
//!
//! [`Watched`] lets a policy decide and counts beside it. The paper counts objects; bytes are counted as well,
//! because an operating system moves pages and a single object may lie on both sides. Where pages or cache lines
//! decide, the share of the bytes stands for both.

use tiercel_core::{Bytes, Error, Hint, Manager, ObjectId, Operand, Policy, Step, TierId, Traffic};

/// What was asked for, and how much of it was found in the fastest tier.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Locality {
    /// Operands of kernels.
    pub requests: u64,
    /// Those of them that were in the fastest tier.
    pub found: f64,
    /// Bytes that kernels moved.
    pub bytes: Bytes,
    /// Those of them that they moved in the fastest tier.
    pub found_bytes: Bytes,
}

impl Locality {
    /// The share of requested objects that were in the fastest tier.
    pub fn of_objects(&self) -> f64 {
        share(self.found, self.requests)
    }

    /// The share of requested bytes that were in the fastest tier.
    pub fn of_bytes(&self) -> f64 {
        share(self.found_bytes.0 as f64, self.bytes.0)
    }
}

fn share(part: f64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { part / whole as f64 }
}

/// A policy with its locality counted.
pub struct Watched {
    policy: Box<dyn Policy>,
    now: Locality,
    last: Locality,
}

impl Watched {
    /// Counts what kernels find under this policy.
    pub fn new(policy: Box<dyn Policy>) -> Watched {
        Watched { policy, now: Locality::default(), last: Locality::default() }
    }

    /// The locality of the last iteration.
    pub fn locality(&self) -> Locality {
        self.last
    }

    fn count(&mut self, m: &Manager, operands: &[Operand], cached: Option<&[Traffic]>) {
        const FAST: TierId = TierId(0);
        let is_fast = |operand: &&Operand| m.home(operand.object) == Some(FAST);
        let all: u64 = operands.iter().map(moved).sum();
        let found = match cached {
            // What goes to other tiers, be it to serve the kernel or to keep the cache, was not found.
            Some(traffic) => {
                let elsewhere = traffic.iter().filter(|t| t.tier != FAST).map(|t| t.read.0 + t.write.0);
                all.saturating_sub(elsewhere.sum())
            }
            None => operands.iter().filter(is_fast).map(moved).sum(),
        };
        self.now.requests += operands.len() as u64;
        self.now.found += match cached {
            Some(_) => operands.len() as f64 * share(found as f64, all),
            None => operands.iter().filter(is_fast).count() as f64,
        };
        self.now.bytes += Bytes(all);
        self.now.found_bytes += Bytes(found);
    }
}

/// The bytes that a kernel moves for one operand.
fn moved(operand: &Operand) -> u64 {
    operand.bytes.0 * (u64::from(operand.access.reads()) + u64::from(operand.access.writes()))
}

impl Policy for Watched {
    fn name(&self) -> &str {
        self.policy.name()
    }

    fn coming(&mut self, m: &mut Manager, step: Step, op: &str) -> Result<(), Error> {
        self.policy.coming(m, step, op)
    }

    fn layer_ended(&mut self, m: &mut Manager) -> Result<(), Error> {
        self.policy.layer_ended(m)
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        self.policy.place(m, object)
    }

    fn hint(&mut self, m: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error> {
        self.policy.hint(m, object, hint)
    }

    fn before(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        self.policy.before(m, step, operands)
    }

    fn after(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        self.policy.after(m, step, operands)
    }

    fn iteration_ended(&mut self, m: &mut Manager) -> Result<(), Error> {
        self.last = std::mem::take(&mut self.now);
        self.policy.iteration_ended(m)
    }

    fn traffic(&mut self, m: &mut Manager, operands: &[Operand]) -> Option<Vec<Traffic>> {
        let traffic = self.policy.traffic(m, operands);
        self.count(m, operands, traffic.as_deref());
        traffic
    }

    fn settled(&self) -> bool {
        self.policy.settled()
    }
}

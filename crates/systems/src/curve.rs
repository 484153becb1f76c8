//! What fast memory is worth: its price beside the speed that it buys, and the least of it that is enough.
//!
//! AutoTM (section 6.3) holds the price of the memory that a training run uses against the price of using fast memory
//! alone, and that against the speed: where the one falls by more than the other, slow memory pays.

use tiercel_core::{Bytes, Machine, Nanos, TierId};
use tiercel_workload::Lifetimes;

use crate::{Fast, Run, Setting, System, SystemError, WarmStarts, simulate};

/// What memory costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// The memory that the run used, at the machine's prices.
    pub used: f64,
    /// The same amount of data in fast memory alone.
    pub all_fast: f64,
}

impl Price {
    /// The price of a run's memory; `None` where a tier that it used has none. Fast memory counts as far as it was used.
    pub fn of(run: &Run, peak: Bytes) -> Option<Price> {
        let gb = |bytes: Bytes| bytes.0 as f64 / 1e9;
        let mut used = 0.0;
        for (tier, bytes) in run.machine.tiers.iter().zip(&run.totals.peak).filter(|(_, b)| **b > Bytes::ZERO)
        {
            used += tier.price_per_gb? * gb(*bytes);
        }
        Some(Price { used, all_fast: run.machine.tiers[0].price_per_gb? * gb(peak) })
    }

    /// The price as a share of that of fast memory alone.
    pub fn share(&self) -> f64 {
        self.used / self.all_fast
    }
}

/// The least fast memory with which an iteration takes no more than `1 + within` times as long as with everything fast,
/// to a hundredth of the peak, and the run that shows it; `None` where not even room for everything, or all that the machine has, is enough.
///
/// More memory is taken to help. Where it does not, as by an accident of layout, there may be less that is enough.
pub fn least_fast(
    system: &System,
    setting: &Setting<'_>,
    fast_only: Nanos,
    within: f64,
    iterations: u32,
    mut tick: impl FnMut(),
) -> Result<Option<Run>, SystemError> {
    let grain = setting.machine.grain();
    let peak = Lifetimes::new(setting.trace).peak().1;
    let limit = fast_only.0 as f64 * (1.0 + within);
    let warm_starts = WarmStarts::default();
    let setting = Setting { warm_starts: Some(&warm_starts), ..*setting };
    let mut attempt = |fast: Bytes| {
        let machine: Machine = setting.machine.clone().with_capacity(TierId(0), fast);
        let run = simulate(system, &Setting { machine: &machine, ..setting }, iterations);
        tick();
        run
    };
    // Memory comes in pieces: a little more than the peak holds everything in one.
    let most = Fast::Share(1.25).bytes(peak, grain).min(setting.machine.tiers[0].capacity);
    let mut best = attempt(most)?;
    if best.time().0 as f64 > limit {
        return Ok(None);
    }
    let (mut too_little, mut enough) = (0, most.0);
    while enough - too_little > (peak.0 / 100).max(grain.0) {
        let middle = Fast::Amount(Bytes(too_little + (enough - too_little) / 2)).bytes(peak, grain);
        match attempt(middle) {
            Ok(run) if run.time().0 as f64 <= limit => (enough, best) = (middle.0, run),
            _ => too_little = middle.0,
        }
    }
    Ok(Some(best))
}

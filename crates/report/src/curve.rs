//! The time of an iteration against how much fast memory there is, and what the memory costs (AutoTM section 6.3).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tiercel_core::{Bytes, Machine};

use crate::comparison::{Comparison, Row};

/// How the time of an iteration depends on the amount of fast memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The network.
    pub net: String,
    /// Samples in a batch, where that is known.
    #[serde(default)]
    pub batch: Option<u64>,
    /// The machine.
    #[serde(default)]
    pub machine: String,
    /// Who decided where objects live.
    pub system: String,
    /// Whether times were read off a clock on the wall.
    #[serde(default)]
    pub measured: bool,
    /// The points, least fast memory first.
    pub points: Vec<Point>,
    /// The time of an iteration with everything in the fastest tier.
    #[serde(default)]
    pub fast_only_ns: Option<u64>,
    /// What memory costs by how much of it is fast.
    #[serde(default)]
    pub price: Option<Price>,
}

/// One amount of fast memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// How much fast memory there is.
    pub fast_bytes: Bytes,
    /// The same as a share of the peak.
    #[serde(default)]
    pub fast_fraction: Option<f64>,
    /// The time of an iteration.
    pub iteration_ns: u64,
    /// No plan takes less, where that has been proven.
    #[serde(default)]
    pub bound_ns: Option<u64>,
}

/// The price of memory for a workload: what is not fast lies on the slowest tier. A straight line over fast memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// With everything on the slowest tier.
    pub all_slow: f64,
    /// What each gigabyte (10⁹ bytes) of fast memory adds.
    pub per_fast_gb: f64,
}

impl Price {
    /// The price for a workload with this peak, from what a gigabyte of either memory costs.
    pub fn new(fast_per_gb: f64, slow_per_gb: f64, peak: Bytes) -> Price {
        Price { all_slow: slow_per_gb * peak.0 as f64 / 1e9, per_fast_gb: fast_per_gb - slow_per_gb }
    }

    /// The price on a machine for a workload with this peak, where the machine file has prices.
    pub fn on(machine: &Machine, peak: Bytes) -> Option<Price> {
        let (fast, slow) = (machine.tiers.first()?.price_per_gb?, machine.tiers.last()?.price_per_gb?);
        Some(Price::new(fast, slow, peak))
    }

    /// The price with this much fast memory.
    pub fn at(&self, fast: Bytes) -> Option<f64> {
        let price = self.all_slow + self.per_fast_gb * fast.0 as f64 / 1e9;
        price.is_finite().then_some(price)
    }

    /// The straight line through what rows say; having all memory fast has one price however much was asked for.
    fn through(rows: &[&Row]) -> Option<Price> {
        let known = |row: &&Row| Some((row.fast_bytes.0 as f64 / 1e9, row.memory_price?));
        let rows = rows.iter().filter(|row| row.system != "fast-only").filter_map(known);
        let least = rows.clone().min_by(|a, b| a.0.total_cmp(&b.0))?;
        let most = rows.max_by(|a, b| a.0.total_cmp(&b.0))?;
        if most.0 <= least.0 {
            return None;
        }
        let per_fast_gb = (most.1 - least.1) / (most.0 - least.0);
        Some(Price { all_slow: least.1 - per_fast_gb * least.0, per_fast_gb })
    }
}

impl Curve {
    /// The curves that a comparison contains: one for each system that ran with several amounts of fast memory.
    pub fn all(comparison: &Comparison) -> Vec<Curve> {
        type Key<'r> = (&'r str, Option<u64>, &'r str, bool);
        let mut order: Vec<(Key<'_>, &str)> = Vec::new();
        let mut groups: BTreeMap<Key<'_>, Vec<&Row>> = BTreeMap::new();
        for row in &comparison.rows {
            let key = (row.net.as_str(), row.batch, row.machine.as_str(), row.measured);
            groups.entry(key).or_default().push(row);
            if !order.contains(&(key, row.system.as_str())) {
                order.push((key, row.system.as_str()));
            }
        }
        let prices: BTreeMap<Key<'_>, Option<Price>> =
            groups.iter().map(|(key, rows)| (*key, Price::through(rows))).collect();
        let curves = order.into_iter().filter_map(|(key, system)| {
            let rows: Vec<&Row> = groups[&key].iter().copied().filter(|row| row.system == system).collect();
            let mut points: Vec<Point> = rows.iter().filter_map(|row| row.point()).collect();
            points.sort_by_key(|point| point.fast_bytes);
            points.dedup_by_key(|point| point.fast_bytes);
            (points.len() > 1 && system != "fast-only").then(|| Curve {
                net: key.0.to_string(),
                batch: key.1,
                machine: key.2.to_string(),
                system: system.to_string(),
                measured: key.3,
                points,
                fast_only_ns: rows.iter().find_map(|row| row.fast_only_ns),
                price: prices[&key],
            })
        });
        curves.collect()
    }
}

//! DAMON's profiler: regions of any size with one sampled page each, split by chance and merged where they look alike.
//!
//! Every region is split into two at a random place after each interval while there are less than the most that the limit on
//! the overhead allows, and neighbours whose counts differ by no more than a tenth of the scans are merged.

use crate::placement::Placement;
use crate::watch::{Heat, Profiler, Setting, Sight, Watch};

/// Scans in an interval: 20 of its sampling intervals are one of its aggregation intervals.
const SCANS: usize = 12;

/// The fewest regions.
const FEWEST: usize = 10;

/// The profiler.
pub struct Damon {
    setting: Setting,
    random: fastrand::Rng,
    /// First page, pages, times seen.
    regions: Vec<(u32, u32, u32)>,
    most: usize,
}

impl Damon {
    /// The profiler.
    pub fn new(setting: Setting) -> Damon {
        let look = setting.costs.bit_ns * SCANS as f64;
        // 1000 regions are its default; a machine that is smaller has fewer spans and pays less for each.
        let most = (setting.interval_ns * setting.overhead / look) as usize;
        let most = most.clamp(FEWEST, 1000);
        let step = setting.pages.div_ceil(FEWEST as u32).max(1);
        let regions = (0..setting.pages)
            .step_by(step as usize)
            .map(|first| (first, step.min(setting.pages - first), 0));
        let random = fastrand::Rng::with_seed(setting.seed ^ 0x6461_6d6f);
        Damon { random, regions: regions.collect(), most, setting }
    }
}

impl Profiler for Damon {
    fn scans(&self) -> usize {
        SCANS
    }

    fn watch(&mut self, _placement: &Placement) -> Watch {
        let random = &mut self.random;
        Watch::Bits(self.regions.iter().map(|(first, pages, _)| first + random.u32(..*pages)).collect())
    }

    fn seen(&mut self, sights: &[Sight]) {
        for (region, sight) in self.regions.iter_mut().zip(sights) {
            region.2 += sight.seen.min(1);
        }
    }

    fn close(&mut self, _placement: &Placement) -> Vec<Heat> {
        let heats: Vec<Heat> = self
            .regions
            .iter()
            .map(|(first, pages, seen)| {
                let now = f64::from(*seen) * 3.0 / SCANS as f64;
                Heat { first: *first, pages: *pages, now, mean: now, error: 0.0, hot: now >= 1.5, lines: 0.0 }
            })
            .collect();
        let near = (SCANS as u32).div_ceil(10);
        let largest = self.setting.pages / FEWEST as u32;
        let mut merged: Vec<(u32, u32, u32)> = Vec::with_capacity(self.regions.len());
        for region in self.regions.drain(..) {
            match merged.last_mut() {
                Some(left) if left.2.abs_diff(region.2) <= near && left.1 + region.1 <= largest.max(1) => {
                    left.2 = (left.2 * left.1 + region.2 * region.1) / (left.1 + region.1);
                    left.1 += region.1;
                }
                _ => merged.push(region),
            }
        }
        if merged.len() <= self.most / 2 {
            for (first, pages, _) in merged {
                if pages > 1 {
                    let cut = 1 + self.random.u32(..pages - 1);
                    self.regions.extend([(first, cut, 0), (first + cut, pages - cut, 0)]);
                } else {
                    self.regions.push((first, pages, 0));
                }
            }
        } else {
            self.regions.extend(merged.into_iter().map(|(first, pages, _)| (first, pages, 0)));
        }
        heats
    }

    fn spans(&self) -> usize {
        self.regions.len()
    }
}

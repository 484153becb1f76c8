//! HeMem's profiler (SOSP 2021, as Section 8.8.2 has it): the processor picks loads that were waited
//! for and stores, spans count them and cool down.

use crate::placement::Placement;
use crate::watch::{Heat, Profiler, Setting, Sight, Watch};

/// A span with so many counted accesses is hot.
const HOT: u32 = 8;

/// When a span has so many, all are halved.
const COOL: u32 = 18;

/// The profiler.
pub struct Counters {
    setting: Setting,
    counts: Vec<u32>,
    samples: usize,
}

impl Counters {
    /// The profiler; it picks as many accesses as the limit on the overhead allows.
    pub fn new(setting: Setting) -> Counters {
        let samples = setting.interval_ns * setting.overhead / setting.costs.sample_ns;
        let spans = setting.pages.div_ceil(setting.span) as usize;
        Counters { setting, counts: vec![0; spans], samples: samples as usize }
    }
}

impl Profiler for Counters {
    fn scans(&self) -> usize {
        1
    }

    fn watch(&mut self, _placement: &Placement) -> Watch {
        Watch::Samples(self.samples)
    }

    fn seen(&mut self, sights: &[Sight]) {
        for sight in sights {
            let count = &mut self.counts[(sight.page / self.setting.span) as usize];
            *count += sight.seen + sight.stored;
            if *count >= COOL {
                self.counts.iter_mut().for_each(|count| *count /= 2);
            }
        }
    }

    fn close(&mut self, _placement: &Placement) -> Vec<Heat> {
        let span = self.setting.span;
        let heat = |(at, count): (usize, &u32)| {
            let first = at as u32 * span;
            let seen = f64::from(*count);
            let pages = span.min(self.setting.pages - first);
            Heat { first, pages, now: seen, mean: seen, error: 0.0, hot: *count >= HOT, lines: 0.0 }
        };
        self.counts.iter().enumerate().map(heat).collect()
    }
}

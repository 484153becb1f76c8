//! Profilers that pick pages blindly: AutoNUMA's window of 256 MB, Thermostat's page of every span, Memory-optimizer's pages
//! by chance (Sections 8.2.2 and 8.8.3).

use std::collections::HashMap;

use crate::placement::{NOWHERE, Placement};
use crate::watch::{Heat, Profiler, Setting, Sight, Watch};

/// A window of pages, elsewhere in every interval; the first access to each page of it faults (AutoNUMA, Memory-tiering,
/// AutoTiering).
pub struct Window {
    setting: Setting,
    random: fastrand::Rng,
    seen: Vec<u32>,
    /// How many of the last looks at a page found it accessed, as AutoTiering keeps it.
    history: HashMap<u32, u8>,
}

impl Window {
    /// The profiler; `pages` is the size of the window.
    pub fn new(setting: Setting) -> Window {
        let random = fastrand::Rng::with_seed(setting.seed ^ 0x77_69_6e);
        Window { setting, random, seen: Vec::new(), history: HashMap::new() }
    }
}

impl Profiler for Window {
    fn scans(&self) -> usize {
        1
    }

    fn watch(&mut self, _placement: &Placement) -> Watch {
        let window = self.setting.window.min(self.setting.pages);
        let first = self.random.u32(..self.setting.pages - window + 1);
        for page in first..first + window {
            let history = self.history.entry(page).or_default();
            *history >>= 1;
        }
        Watch::Faults((first..first + window).collect())
    }

    fn seen(&mut self, sights: &[Sight]) {
        self.seen.clear();
        for sight in sights.iter().filter(|sight| sight.seen > 0) {
            self.seen.push(sight.page);
            *self.history.entry(sight.page).or_default() |= 0x80;
        }
    }

    fn close(&mut self, placement: &Placement) -> Vec<Heat> {
        self.seen.sort_unstable();
        let mut heats: Vec<Heat> = self
            .history
            .iter()
            .filter(|(page, _)| placement.tier(**page) != NOWHERE)
            .map(|(page, history)| {
                let now = if self.seen.binary_search(page).is_ok() { 1.0 } else { 0.0 };
                let mean = f64::from(*history) / 255.0;
                Heat { first: *page, pages: 1, now, mean, error: 0.0, hot: mean > 0.4, lines: 0.0 }
            })
            .collect();
        heats.sort_by_key(|heat| heat.first);
        heats
    }
}

/// One page of every span at a time, each with a protection and a handler of its own (Thermostat). With more spans than the
/// limit on the overhead allows, they take turns.
pub struct Thermostat {
    setting: Setting,
    random: fastrand::Rng,
    turn: usize,
    spans: Vec<Heat>,
}

impl Thermostat {
    /// The profiler.
    pub fn new(setting: Setting) -> Thermostat {
        let spans = (0..setting.pages).step_by(setting.span as usize).map(|first| Heat {
            first,
            pages: setting.span.min(setting.pages - first),
            now: 0.0,
            mean: 0.0,
            error: 0.0,
            hot: false,
            lines: 0.0,
        });
        let random = fastrand::Rng::with_seed(setting.seed ^ 0x7468_6572);
        Thermostat { random, turn: 0, spans: spans.collect(), setting }
    }
}

impl Profiler for Thermostat {
    fn watch(&mut self, _placement: &Placement) -> Watch {
        let limit = self.setting.interval_ns * self.setting.overhead / self.setting.costs.trap_ns / 3.0;
        let count = (limit as usize).clamp(1, self.spans.len());
        let mut pages = Vec::with_capacity(count);
        for _ in 0..count {
            let span = &self.spans[self.turn % self.spans.len()];
            pages.push(span.first + self.random.u32(..span.pages));
            self.turn += 1;
        }
        Watch::Traps(pages)
    }

    fn seen(&mut self, sights: &[Sight]) {
        for sight in sights {
            let span = &mut self.spans[(sight.page / self.setting.span) as usize];
            span.now = f64::from(sight.seen.min(1)) * 3.0;
            span.mean = 0.5 * span.now + 0.5 * span.mean;
            span.hot = span.mean >= 2.0;
        }
    }

    fn close(&mut self, _placement: &Placement) -> Vec<Heat> {
        self.spans.clone()
    }
}

/// Pages by chance, their bits read at every scan (Memory-optimizer).
pub struct Chance {
    setting: Setting,
    random: fastrand::Rng,
    asked: Vec<u32>,
    seen: HashMap<u32, u32>,
    scan: usize,
}

impl Chance {
    /// The profiler.
    pub fn new(setting: Setting) -> Chance {
        let random = fastrand::Rng::with_seed(setting.seed ^ 0x6d65_6d6f);
        Chance { setting, random, asked: Vec::new(), seen: HashMap::new(), scan: 0 }
    }
}

impl Profiler for Chance {
    fn watch(&mut self, _placement: &Placement) -> Watch {
        if self.scan == 0 {
            // Blind sampling has no spans that share a sample: it pays for single pages, 256 MB of them at most.
            let count = self.setting.window.min(self.setting.pages);
            self.asked = (0..count).map(|_| self.random.u32(..self.setting.pages)).collect();
            self.seen.clear();
        }
        self.scan = (self.scan + 1) % 3;
        Watch::Bits(self.asked.clone())
    }

    fn seen(&mut self, sights: &[Sight]) {
        for sight in sights {
            *self.seen.entry(sight.page).or_default() += sight.seen.min(1);
        }
    }

    fn close(&mut self, _placement: &Placement) -> Vec<Heat> {
        let mut heats: Vec<Heat> = self
            .seen
            .iter()
            .map(|(page, seen)| {
                let seen = f64::from(*seen);
                Heat {
                    first: *page,
                    pages: 1,
                    now: seen,
                    mean: seen,
                    error: 0.0,
                    hot: seen >= 3.0,
                    lines: 0.0,
                }
            })
            .collect();
        heats.sort_by_key(|heat| heat.first);
        heats
    }
}

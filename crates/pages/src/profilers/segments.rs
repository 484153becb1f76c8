//! Our profiler: counts per page over several memories, and runs of pages that a test on these counts cannot tell apart.
//!
//! What it changes beside hm-keeper (Sections 8.4 and 8.5):
//! - Neighbours merge when their counts could come from one rate (a likelihood ratio test), not by a fixed difference; runs
//!   are found anew in every interval, so they end where the hotness changes and not in the middle of a span.
//! - Inside a run whose counts scatter more than chance explains, every page keeps an estimate of its own, drawn towards
//!   the run's as far as the scatter says.
//! - Averages over 2, 8 and 32 intervals are kept side by side; the one that foretold the last intervals best is believed,
//!   instead of a constant α. It also says how long what is hot may be expected to stay so.
//! - The budget is a limit, not a duty: while nothing is to be moved, it shrinks, down to a sixteenth.
//!
//! - Stores that are picked but that nobody waits for are counted apart: where bandwidth is short, they are what takes it.
//!
//! It looks at accesses that the processor picks, where the machine has that, and at accessed bits where not. Bits saturate:
//! so there are more scans of fewer pages, and a rate follows from how often a page was not accessed.

use crate::placement::Placement;
use crate::watch::{Heat, Profiler, Setting, Sight, Watch};

/// Over how many intervals the memories reach.
const REACH: [f64; 3] = [2.0, 8.0, 32.0];

/// How much two runs of pages may differ before they stay apart: twice the logarithm of the likelihood ratio.
const APART: f64 = 9.0;

/// What it looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Accesses that the processor picks.
    Samples,
    /// Accessed bits.
    Bits,
}

/// How often pages were seen, and for how long they were watched, fading over so many intervals.
struct Memory {
    fade: f64,
    seen: Vec<f32>,
    /// How long each was watched, in intervals; one figure for all where all are watched alike.
    watched: Vec<f32>,
    /// How well it foretold the last intervals.
    score: f64,
}

/// What was counted of every page, over several memories.
struct Counts {
    memories: [Memory; 3],
    new_seen: Vec<f32>,
    new_watched: Vec<f32>,
}

/// The profiler.
pub struct Segments {
    setting: Setting,
    source: Source,
    /// Accesses that were waited for, or bits.
    accesses: Counts,
    /// Stores that nobody waited for, once there were any: most programs have few.
    stores: Option<Counts>,
    /// Whether less than the limit is used while nothing moves, and which share of it is.
    thrifty: bool,
    share: f64,
    /// Intervals that have passed without anything to move.
    quiet: u32,
    turn: u32,
    stride: u32,
    asked: usize,
    runs: usize,
}

/// A run of pages, as it grows.
#[derive(Clone, Copy)]
struct Run {
    first: u32,
    pages: u32,
    seen: f64,
    watched: f64,
}

/// A rate and how far it may be off, of pages side by side.
#[derive(Clone, Copy)]
struct Rate {
    first: u32,
    pages: u32,
    mean: f64,
    error: f64,
}

impl Run {
    fn surprise(seen: f64, watched: f64) -> f64 {
        if seen > 0.0 { seen * (seen / watched).ln() } else { 0.0 }
    }

    /// Twice the logarithm of how much likelier two rates are than one.
    fn apart(&self, other: &Run) -> f64 {
        let one = Run::surprise(self.seen + other.seen, self.watched + other.watched);
        2.0 * (Run::surprise(self.seen, self.watched) + Run::surprise(other.seen, other.watched) - one)
    }
}

impl Counts {
    fn new(pages: usize) -> Counts {
        let memory = |reach: f64| Memory {
            fade: 0.5f64.powf(1.0 / reach),
            seen: vec![0.0; pages],
            watched: vec![0.0; pages],
            score: 0.0,
        };
        Counts { memories: REACH.map(memory), new_seen: vec![0.0; pages], new_watched: vec![0.0; pages] }
    }

    /// The memory that foretells best.
    fn best(&self) -> usize {
        let mut best = 1;
        for at in [0, 2] {
            if self.memories[at].score > self.memories[best].score {
                best = at;
            }
        }
        best
    }

    /// How well each memory foretells what was just seen, then takes it in.
    fn learn(&mut self) {
        for memory in &mut self.memories {
            let (seen, watched): (f64, f64) = (sum(&memory.seen), sum(&memory.watched));
            if watched > 0.0 && seen > 0.0 {
                let mean = seen / watched;
                let prior = 0.5;
                let mut score = 0.0;
                let mut all = 0.0;
                for at in 0..memory.seen.len() {
                    let exposure = f64::from(self.new_watched[at]);
                    if exposure > 0.0 {
                        let (s, w) = (f64::from(memory.seen[at]), f64::from(memory.watched[at]));
                        let expected = (s + prior * mean) / (w + prior) * exposure;
                        let got = f64::from(self.new_seen[at]);
                        score += got * expected.max(1e-9).ln() - expected;
                        all += got;
                    }
                }
                memory.score = 0.6 * memory.score + 0.4 * score / all.max(1.0);
            }
            let fade = memory.fade as f32;
            for at in 0..memory.seen.len() {
                memory.seen[at] = memory.seen[at] * fade + self.new_seen[at];
                memory.watched[at] = memory.watched[at] * fade + self.new_watched[at];
            }
        }
        self.new_seen.fill(0.0);
        self.new_watched.fill(0.0);
    }

    /// Runs that a test on counts cannot tell apart: those most alike merge first.
    fn runs(memory: &Memory) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for page in 0..memory.seen.len() as u32 {
            let at = page as usize;
            let (seen, watched) = (f64::from(memory.seen[at]), f64::from(memory.watched[at]));
            match runs.last_mut() {
                // What was never seen, and what was never watched, goes with what is before it.
                Some(last) if watched == 0.0 || (last.seen == 0.0 && seen == 0.0) => {
                    last.pages += 1;
                    last.watched += watched;
                    last.seen += seen;
                }
                _ => runs.push(Run { first: page, pages: 1, seen, watched: watched.max(1e-6) }),
            }
        }
        for limit in [0.05, 0.2, 0.6, 1.5, 3.0, 5.0, APART, APART] {
            for _ in 0..3 {
                let before = runs.len();
                let mut kept: Vec<Run> = Vec::with_capacity(before);
                for run in runs.drain(..) {
                    match kept.last_mut() {
                        Some(last) if last.apart(&run) < limit => {
                            last.pages += run.pages;
                            last.seen += run.seen;
                            last.watched += run.watched;
                        }
                        _ => kept.push(run),
                    }
                }
                runs = kept;
                if runs.len() == before {
                    break;
                }
            }
        }
        runs
    }

    /// Rates of a run: one for all of it, or one a page where its pages differ by more than chance.
    fn rates(memory: &Memory, run: &Run, out: &mut Vec<Rate>) {
        let rate = run.seen / run.watched;
        let range = run.first as usize..(run.first + run.pages) as usize;
        let mut scatter = 0.0;
        let mut chance = 0.0;
        for at in range.clone() {
            let (s, w) = (f64::from(memory.seen[at]), f64::from(memory.watched[at]));
            let expected = rate * w;
            scatter += (s - expected) * (s - expected);
            // Faded counts scatter less than whole ones.
            chance += expected * 0.75;
        }
        let exposure = run.watched / f64::from(run.pages);
        let beyond = (scatter - chance) / f64::from(run.pages);
        let noise = chance / f64::from(run.pages) * (2.0 / f64::from(run.pages)).sqrt();
        if run.pages > 1 && beyond > 3.0 * noise && beyond > 0.0 {
            // Rates of pages scatter by this much around the run's: an average of both, weighted by how sure each is.
            let spread = beyond / (exposure * exposure);
            let weight = rate / spread;
            for at in range {
                let (s, w) = (f64::from(memory.seen[at]), f64::from(memory.watched[at]));
                let mean = (s + rate * weight) / (w + weight);
                let error = (mean / (w + weight)).sqrt();
                out.push(Rate { first: at as u32, pages: 1, mean, error });
            }
        } else {
            let error = (run.seen + 0.5).sqrt() / run.watched.max(exposure);
            out.push(Rate { first: run.first, pages: run.pages, mean: rate, error });
        }
    }

    /// An interval is over: rates of all pages, in order, and how many runs there are.
    fn close(&mut self) -> (Vec<Rate>, usize) {
        self.learn();
        let memory = &self.memories[self.best()];
        let runs = Counts::runs(memory);
        let mut rates = Vec::new();
        runs.iter().for_each(|run| Counts::rates(memory, run, &mut rates));
        (rates, runs.len())
    }
}

impl Segments {
    /// The profiler.
    pub fn new(setting: Setting, source: Source) -> Segments {
        // A stride without a common divisor visits every page once a round, far from where it was.
        let mut stride = (f64::from(setting.pages) * 0.618) as u32 | 1;
        while gcd(stride, setting.pages) != 1 {
            stride += 2;
        }
        Segments {
            source,
            accesses: Counts::new(setting.pages as usize),
            stores: None,
            thrifty: true,
            share: 1.0,
            quiet: 0,
            turn: (setting.seed % u64::from(setting.pages.max(1))) as u32,
            stride,
            asked: 0,
            runs: 0,
            setting,
        }
    }

    /// The same, with the whole limit used in every interval.
    pub fn unsparing(setting: Setting, source: Source) -> Segments {
        Segments { thrifty: false, ..Segments::new(setting, source) }
    }

    fn budget(&self, cost: f64) -> usize {
        let ns = self.setting.interval_ns * self.setting.overhead * self.share;
        ((ns / cost) as usize).max(1)
    }
}

/// Rates of accesses and of stores over the same pages as heats: a new one wherever either changes.
fn together(accesses: &[Rate], stores: &[Rate]) -> Vec<Heat> {
    let mut heats = Vec::with_capacity(accesses.len());
    let mut next = 0;
    for rate in accesses {
        let (mut first, end) = (rate.first, rate.first + rate.pages);
        while first < end {
            let store = stores.get(next);
            let to = store.map_or(end, |store| (store.first + store.pages).min(end));
            let lines = store.map_or(0.0, |store| store.mean);
            heats.push(Heat {
                first,
                pages: to - first,
                now: rate.mean,
                mean: rate.mean,
                error: rate.error,
                hot: false,
                lines,
            });
            if store.is_some_and(|store| store.first + store.pages == to) {
                next += 1;
            }
            first = to;
        }
    }
    heats
}

fn sum(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value)).sum()
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Calls those hot whose rate stands out: the threshold that parts the pages best into two kinds (Otsu's, over logarithms).
pub(crate) fn mark_hot(heats: &mut [Heat]) {
    let mut order: Vec<(f64, f64)> =
        heats.iter().map(|h| ((h.mean + 1e-3).ln(), f64::from(h.pages))).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: f64 = order.iter().map(|(_, n)| n).sum();
    let sum: f64 = order.iter().map(|(x, n)| x * n).sum();
    let (mut n, mut s, mut best, mut cut) = (0.0, 0.0, 0.0, f64::INFINITY);
    for pair in order.windows(2) {
        n += pair[0].1;
        s += pair[0].0 * pair[0].1;
        let distance = (sum - s) / (all - n) - s / n;
        let between = n * (all - n) * distance * distance;
        if between > best {
            best = between;
            cut = (pair[0].0 + pair[1].0) / 2.0;
        }
    }
    heats.iter_mut().for_each(|heat| heat.hot = (heat.mean + 1e-3).ln() > cut);
}

impl Profiler for Segments {
    fn scans(&self) -> usize {
        match self.source {
            Source::Samples => 1,
            Source::Bits => 12,
        }
    }

    fn watch(&mut self, _placement: &Placement) -> Watch {
        match self.source {
            Source::Samples => {
                self.asked = self.budget(self.setting.costs.sample_ns);
                Watch::Samples(self.asked)
            }
            Source::Bits => {
                let count = self.budget(self.setting.costs.bit_ns * self.scans() as f64);
                let count = (count as u32).min(self.setting.pages);
                let pages = self.setting.pages;
                let list = (0..count).map(|_| {
                    self.turn = ((u64::from(self.turn) + u64::from(self.stride)) % u64::from(pages)) as u32;
                    self.turn
                });
                Watch::Bits(list.collect())
            }
        }
    }

    fn seen(&mut self, sights: &[Sight]) {
        match self.source {
            Source::Samples => {
                // Fewer picks watch all pages for less.
                let full = self.setting.interval_ns * self.setting.overhead / self.setting.costs.sample_ns;
                let watched = (self.asked as f64 / full.max(1.0)) as f32;
                for sight in sights {
                    self.accesses.new_seen[sight.page as usize] += sight.seen as f32;
                }
                self.accesses.new_watched.fill(watched);
                if self.stores.is_none() && sights.iter().any(|sight| sight.stored > 0) {
                    self.stores = Some(Counts::new(self.setting.pages as usize));
                }
                if let Some(stores) = &mut self.stores {
                    for sight in sights {
                        stores.new_seen[sight.page as usize] += sight.stored as f32;
                    }
                    stores.new_watched.fill(watched);
                }
            }
            Source::Bits => {
                let part = 1.0 / self.scans() as f32;
                for sight in sights {
                    self.accesses.new_watched[sight.page as usize] += part;
                    self.accesses.new_seen[sight.page as usize] += sight.seen.min(1) as f32;
                }
            }
        }
    }

    fn close(&mut self, _placement: &Placement) -> Vec<Heat> {
        let (accesses, runs) = self.accesses.close();
        let stores = self.stores.as_mut().map(|stores| stores.close().0).unwrap_or_default();
        let mut heats = together(&accesses, &stores);
        if self.source == Source::Bits {
            // A bit says "at least once": from the share of scans without an access follows how many there were.
            let scans = self.scans() as f64;
            for heat in &mut heats {
                let share = (heat.mean / scans).clamp(0.0, 0.98);
                let error = heat.error / scans;
                heat.mean = -(1.0 - share).ln() * scans;
                heat.error = error / (1.0 - share) * scans;
                heat.now = heat.mean;
            }
        }
        self.runs = runs;
        mark_hot(&mut heats);
        heats
    }

    fn told(&mut self, moved: usize) {
        // What is moved is worth watching closely; after a while in which nothing was, less will do.
        if !self.thrifty {
            return;
        }
        if moved as f64 > f64::from(self.setting.pages) * 0.001 {
            self.share = (self.share * 4.0).min(1.0);
            self.quiet = 0;
        } else {
            self.quiet += 1;
            if self.quiet > 3 {
                self.share = (self.share / 2.0).max(1.0 / 16.0);
            }
        }
    }

    fn horizon(&self) -> f64 {
        REACH[self.accesses.best()] * 2.0
    }

    fn spans(&self) -> usize {
        self.runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{setting, tiers};

    fn play(segments: &mut Segments, rate: &dyn Fn(u32) -> f64, intervals: usize) -> Vec<Heat> {
        let pages = segments.setting.pages;
        let placement = Placement::new(pages as usize, &tiers());
        let mut random = fastrand::Rng::with_seed(7);
        let all: f64 = (0..pages).map(rate).sum();
        let mut heats = Vec::new();
        for _ in 0..intervals {
            for _ in 0..segments.scans() {
                let sights: Vec<Sight> = match segments.watch(&placement) {
                    Watch::Samples(count) => {
                        let mut sights = Vec::new();
                        while sights.len() < count {
                            let page = random.u32(..pages);
                            if random.f64() * 10.0 < rate(page) {
                                sights.push(Sight { page, seen: 1, stored: 0 });
                            }
                        }
                        sights
                    }
                    Watch::Bits(list) => {
                        // 10 accesses a page and interval on average.
                        let expected = |page: u32| rate(page) / all * f64::from(pages) * 10.0 / 12.0;
                        let mut hit = |page: u32| u32::from(random.f64() > (-expected(page)).exp());
                        list.iter().map(|page| Sight { page: *page, seen: hit(*page), stored: 0 }).collect()
                    }
                    other => panic!("not asked for: {other:?}"),
                };
                segments.seen(&sights);
            }
            heats = segments.close(&placement);
            let mut next = 0;
            for heat in &heats {
                assert_eq!(heat.first, next);
                assert!(heat.mean.is_finite() && heat.error.is_finite());
                next += heat.pages;
            }
            assert_eq!(next, pages);
        }
        heats
    }

    #[test]
    fn runs_end_where_the_hotness_changes() {
        let rate = |page: u32| if (1003..1530).contains(&page) { 10.0 } else { 0.5 };
        for source in [Source::Samples, Source::Bits] {
            let mut segments = Segments::new(setting(4096), source);
            let heats = play(&mut segments, &rate, 40);
            let found: Vec<u32> = heats.iter().filter(|heat| heat.hot).flat_map(Heat::range).collect();
            let right = found.iter().filter(|page| rate(**page) > 1.0).count();
            assert!(right >= 500 && found.len() <= right + 40, "{source:?}: {right} of {}", found.len());
        }
    }

    #[test]
    fn single_pages_stand_out_of_their_neighbours() {
        let rate = |page: u32| if page.is_multiple_of(8) { 10.0 } else { 0.3 };
        let mut segments = Segments::new(setting(2048), Source::Samples);
        let heats = play(&mut segments, &rate, 60);
        let found: Vec<u32> = heats.iter().filter(|heat| heat.hot).flat_map(Heat::range).collect();
        let right = found.iter().filter(|page| rate(**page) > 1.0).count();
        assert!(right >= 230 && found.len() <= right + 30, "{right} of 256, {} found", found.len());
    }

    #[test]
    fn a_change_shortens_memory_and_quiet_shrinks_the_budget() {
        let mut segments = Segments::new(setting(2048), Source::Samples);
        play(&mut segments, &|page| if page < 256 { 10.0 } else { 0.3 }, 60);
        assert!(segments.horizon() >= 16.0, "what stays is believed to stay");
        play(&mut segments, &|page| if page >= 1792 { 10.0 } else { 0.3 }, 4);
        assert!(segments.horizon() <= 4.0 * 4.0, "what changed is believed to change");
        for _ in 0..12 {
            segments.told(0);
        }
        assert!(segments.share < 0.1);
        segments.told(1000);
        segments.told(1000);
        assert_eq!(segments.share, 1.0);
    }
}

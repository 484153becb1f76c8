//! hm-keeper's profiler (dissertation, Section 8.4): spans that merge and split by how hot their sampled pages are.
//!
//! Every span begins as 2 MiB with one sampled page: the bits of all its pages are read once, and one of those that were
//! accessed is taken by chance (8.4.2). A page's bit is read several times an interval; a span is as hot as its samples on
//! average (8.4.1). At the end of an interval neighbours that differ by less than τ1 merge and keep half of their samples,
//! spans whose samples differ by more than τ2 split in the middle, and samples that merging saved go to the five spans
//! whose hotness changed most (8.4.2). How many samples there are follows from the limit on the overhead (Equation 8.1);
//! while there are more spans than samples τ1 rises (8.4.3).
//!
//! Two things that the paper leaves open: reading all bits of all spans in one interval would take far more than the limit,
//! so a fifth of the samples is given to it each interval, span after span, and the others watch a page picked blindly
//! until it is their turn; and a span merges with at most one neighbour an interval.

use crate::placement::Placement;
use crate::watch::{Heat, Profiler, Setting, Sight, Watch};

/// How many scans an interval has (Section 8.4.3).
const SCANS: usize = 3;

/// The weight of the last interval in the average (Equation 8.2).
const ALPHA: f64 = 0.5;

/// To how many spans samples are given that merging saved.
const TOP: usize = 5;

/// Which parts of the profiler are in use, for the ablations of Section 8.8.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// All of them.
    All,
    /// Spans keep their first size.
    FixedRegions,
    /// Samples that were saved go anywhere.
    BlindSamples,
    /// Neither merging nor splitting nor a limit: a sample in every span.
    Unlimited,
}

#[derive(Clone, Debug)]
struct Span {
    first: u32,
    pages: u32,
    /// How many samples it may have.
    quota: usize,
    /// The sampled pages and how often each was seen accessed in this interval.
    samples: Vec<(u32, u32)>,
    /// Hotness in the last interval, in the one before, and over time (HI and WHI).
    now: f64,
    before: f64,
    mean: f64,
    /// Whether its first sample has been chosen among accessed pages.
    settled: bool,
}

/// The profiler.
pub struct Regions {
    setting: Setting,
    parts: Parts,
    spans: Vec<Span>,
    tau1: f64,
    tau2: f64,
    /// The next span whose first sample is to be chosen.
    turn: usize,
    /// Spans of which all pages are looked at in this scan.
    whole: Vec<usize>,
    asked: Vec<(usize, usize)>,
    scan: usize,
    random: fastrand::Rng,
}

impl Regions {
    /// Spans of the first size over all pages.
    pub fn new(setting: Setting, parts: Parts) -> Regions {
        let spans = (0..setting.pages).step_by(setting.span as usize).map(|first| Span {
            first,
            pages: setting.span.min(setting.pages - first),
            quota: 1,
            samples: Vec::new(),
            now: 0.0,
            before: 0.0,
            mean: 0.0,
            settled: false,
        });
        Regions {
            parts,
            spans: spans.collect(),
            tau1: SCANS as f64 / 3.0,
            tau2: SCANS as f64 * 2.0 / 3.0,
            turn: 0,
            whole: Vec::new(),
            asked: Vec::new(),
            scan: 0,
            random: fastrand::Rng::with_seed(setting.seed ^ 0x6b65_6570),
            setting,
        }
    }

    /// Equation 8.1.
    pub fn limit(&self) -> usize {
        if self.parts == Parts::Unlimited {
            return usize::MAX;
        }
        let scan = self.setting.costs.bit_ns * SCANS as f64;
        ((self.setting.interval_ns * self.setting.overhead / scan) as usize).max(1)
    }

    /// How many samples all spans may have together.
    pub fn quota(&self) -> usize {
        self.spans.iter().map(|span| span.quota).sum()
    }

    /// The threshold for merging, which rises while there are too many spans.
    pub fn tau1(&self) -> f64 {
        self.tau1
    }

    fn draw(&mut self) {
        let limit = self.limit();
        let mut left = limit;
        // Where there are more spans than samples, those that are watched change from interval to interval.
        let offset = if self.quota() > limit { self.random.usize(..self.spans.len()) } else { 0 };
        let count = self.spans.len();
        for at in 0..count {
            let random = &mut self.random;
            let span = &mut self.spans[(at + offset) % count];
            let wanted = span.quota.min(span.pages as usize);
            if left < wanted {
                span.samples.clear();
                continue;
            }
            left -= wanted;
            span.samples.iter_mut().for_each(|sample| sample.1 = 0);
            while span.samples.len() > wanted {
                let at = random.usize(..span.samples.len());
                span.samples.swap_remove(at);
            }
            let mut tries = 0;
            while span.samples.len() < wanted && tries < 8 * wanted {
                let page = span.first + random.u32(..span.pages);
                tries += 1;
                if span.samples.iter().all(|(known, _)| *known != page) {
                    span.samples.push((page, 0));
                }
            }
        }
    }

    /// The spans of which all pages are to be looked at in this interval: as many as a fifth of the samples pay for.
    fn choose_whole(&mut self) {
        self.whole.clear();
        let mut left = (self.limit() / 5).min(self.setting.pages as usize);
        let count = self.spans.len();
        for _ in 0..count {
            let at = self.turn % count;
            let span = &self.spans[at];
            if span.settled {
                self.turn += 1;
                continue;
            }
            // A scan of all pages costs one look each, where a sample costs one in every scan.
            let cost = (span.pages as usize).div_ceil(SCANS);
            if cost > left {
                break;
            }
            left -= cost;
            self.whole.push(at);
            self.turn += 1;
        }
    }

    fn merge(&mut self) -> usize {
        let mut saved = 0;
        let mut kept: Vec<Span> = Vec::with_capacity(self.spans.len());
        let mut merged_last = false;
        for span in std::mem::take(&mut self.spans) {
            match kept.last_mut() {
                Some(left) if !merged_last && (left.now - span.now).abs() < self.tau1 => {
                    let (a, b) = (f64::from(left.pages), f64::from(span.pages));
                    let quota = ((left.quota + span.quota) / 2).max(1);
                    saved += left.quota + span.quota - quota;
                    left.now = (left.now * a + span.now * b) / (a + b);
                    left.before = (left.before * a + span.before * b) / (a + b);
                    left.mean = (left.mean * a + span.mean * b) / (a + b);
                    left.pages += span.pages;
                    left.quota = quota;
                    left.samples.extend(span.samples);
                    left.settled &= span.settled;
                    merged_last = true;
                }
                _ => {
                    kept.push(span);
                    merged_last = false;
                }
            }
        }
        self.spans = kept;
        saved
    }

    fn split(&mut self) {
        let limit = self.limit();
        let mut count = self.spans.len();
        let mut kept: Vec<Span> = Vec::with_capacity(count);
        for mut span in std::mem::take(&mut self.spans) {
            let seen = span.samples.iter().map(|(_, seen)| *seen);
            let spread = seen.clone().max().unwrap_or(0) - seen.min().unwrap_or(0);
            // More spans than samples would leave some unwatched.
            let splits = f64::from(spread) > self.tau2 && span.pages > 1 && count < limit;
            if !splits {
                kept.push(span);
                continue;
            }
            count += 1;
            let middle = span.first + span.pages / 2;
            let mean = |samples: &[(u32, u32)], other: f64| match samples.len() {
                0 => other,
                n => samples.iter().map(|(_, seen)| f64::from(*seen)).sum::<f64>() / n as f64,
            };
            let (low, high): (Vec<_>, Vec<_>) = span.samples.iter().partition(|(page, _)| *page < middle);
            let upper = Span {
                first: middle,
                pages: span.pages - span.pages / 2,
                quota: (span.quota / 2).max(1),
                now: mean(&high, span.now),
                samples: high,
                ..span.clone()
            };
            span.pages /= 2;
            span.quota = (span.quota - span.quota / 2).max(1);
            span.now = mean(&low, span.now);
            span.samples = low;
            kept.push(span);
            kept.push(upper);
        }
        self.spans = kept;
    }

    /// Gives out samples that nobody has, so that there are as many as the limit allows.
    fn give(&mut self) {
        let limit = self.limit().min(self.setting.pages as usize);
        let mut spare = limit.saturating_sub(self.quota());
        if spare == 0 {
            return;
        }
        let mut order: Vec<usize> = (0..self.spans.len()).collect();
        if self.parts == Parts::BlindSamples {
            self.random.shuffle(&mut order);
        } else {
            let change = |at: &usize| (self.spans[*at].now - self.spans[*at].before).abs();
            order.sort_by(|a, b| change(b).total_cmp(&change(a)));
        }
        let chosen = if self.parts == Parts::BlindSamples { order.len() } else { TOP };
        while spare > 0 {
            let mut given = false;
            for at in order.iter().take(chosen) {
                let span = &mut self.spans[*at];
                if spare > 0 && span.quota < span.pages as usize {
                    span.quota += 1;
                    spare -= 1;
                    given = true;
                }
            }
            if !given {
                break;
            }
        }
    }
}

impl Profiler for Regions {
    fn scans(&self) -> usize {
        SCANS
    }

    fn watch(&mut self, _placement: &Placement) -> Watch {
        if self.scan == 0 {
            self.draw();
            self.choose_whole();
        }
        self.asked.clear();
        let mut pages = Vec::new();
        for (at, span) in self.spans.iter().enumerate() {
            for (which, (page, _)) in span.samples.iter().enumerate() {
                self.asked.push((at, which));
                pages.push(*page);
            }
        }
        if self.scan == 0 {
            for at in &self.whole {
                let span = &self.spans[*at];
                pages.extend(span.first..span.first + span.pages);
            }
        }
        Watch::Bits(pages)
    }

    fn seen(&mut self, sights: &[Sight]) {
        for ((span, sample), sight) in self.asked.iter().zip(sights) {
            self.spans[*span].samples[*sample].1 += sight.seen.min(1);
        }
        let mut rest = &sights[self.asked.len().min(sights.len())..];
        if self.scan == 0 {
            for at in &self.whole {
                let span = &mut self.spans[*at];
                let (mine, others) = rest.split_at((span.pages as usize).min(rest.len()));
                rest = others;
                span.settled = true;
                let accessed: Vec<u32> = mine.iter().filter(|s| s.seen > 0).map(|s| s.page).collect();
                if let (Some(page), Some(sample)) = (self.random.choice(accessed), span.samples.first_mut()) {
                    // Watched from the next scan on; the look just taken counts.
                    *sample = (page, 1);
                }
            }
        }
        self.scan = (self.scan + 1) % SCANS;
    }

    fn close(&mut self, _placement: &Placement) -> Vec<Heat> {
        for span in &mut self.spans {
            if !span.samples.is_empty() {
                let seen: f64 = span.samples.iter().map(|(_, seen)| f64::from(*seen)).sum();
                span.before = span.now;
                span.now = seen / span.samples.len() as f64;
                span.mean = ALPHA * span.now + (1.0 - ALPHA) * span.mean;
            }
        }
        let hot = SCANS as f64 * 2.0 / 3.0;
        let heats = self.spans.iter().map(|span| Heat {
            first: span.first,
            pages: span.pages,
            now: span.now,
            mean: span.mean,
            error: 0.0,
            hot: span.mean >= hot,
            lines: 0.0,
        });
        let heats = heats.collect();
        match self.parts {
            Parts::All | Parts::BlindSamples => {
                self.merge();
                self.split();
            }
            Parts::FixedRegions | Parts::Unlimited => {}
        }
        if self.parts != Parts::Unlimited {
            self.give();
        }
        if self.spans.len() > self.limit() {
            self.tau1 = (self.tau1 * 1.1).min(SCANS as f64);
        } else {
            self.tau1 = SCANS as f64 / 3.0;
        }
        heats
    }

    fn spans(&self) -> usize {
        self.spans.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{setting, tiers};

    /// Plays intervals in which exactly these pages are accessed all the time.
    fn play(regions: &mut Regions, hot: &dyn Fn(u32) -> bool, intervals: usize) -> Vec<Heat> {
        let placement = Placement::new(regions.setting.pages as usize, &tiers());
        let mut heats = Vec::new();
        for _ in 0..intervals {
            for _ in 0..SCANS {
                let Watch::Bits(pages) = regions.watch(&placement) else { panic!("it looks at bits") };
                let sights: Vec<Sight> = pages
                    .iter()
                    .map(|page| Sight { page: *page, seen: u32::from(hot(*page)), stored: 0 })
                    .collect();
                regions.seen(&sights);
            }
            heats = regions.close(&placement);
            // Spans cover all pages, in order, and samples keep to the limit.
            let mut next = 0;
            for heat in &heats {
                assert_eq!(heat.first, next);
                next += heat.pages;
            }
            assert_eq!(next, regions.setting.pages);
        }
        heats
    }

    #[test]
    fn the_number_of_samples_follows_from_the_limit() {
        let setting = Setting { interval_ns: 1e6, overhead: 0.05, ..setting(4096) };
        // 50 µs of 1 ms, three scans of 40 ns each.
        assert_eq!(Regions::new(setting, Parts::All).limit(), 416);
    }

    #[test]
    fn spans_find_what_is_hot_and_keep_within_their_samples() {
        let hot = |page: u32| (1000..1500).contains(&page);
        let mut regions = Regions::new(setting(4096), Parts::All);
        let heats = play(&mut regions, &hot, 30);
        let found: Vec<u32> = heats.iter().filter(|heat| heat.hot).flat_map(Heat::range).collect();
        let right = found.iter().filter(|page| hot(**page)).count();
        assert!(right > 450, "{right} of 500 pages were found");
        assert!(found.len() < right + 100, "{} pages were called hot", found.len());
        assert!(regions.spans.len() < 4096 / 16 / 2, "{} spans are left", regions.spans.len());
    }

    #[test]
    fn too_many_spans_raise_the_threshold_until_they_fit() {
        // 256 spans and samples for 50 of them.
        let few = Setting { overhead: 0.05 * 50.0 / 416.0, interval_ns: 1e6, ..setting(4096) };
        let mut regions = Regions::new(few, Parts::All);
        assert!(regions.limit() < 60);
        let odd = |page: u32| (page / 16).is_multiple_of(2);
        play(&mut regions, &odd, 2);
        assert!(regions.tau1() > 1.0);
        play(&mut regions, &odd, 40);
        assert!(regions.spans.len() <= regions.limit() || regions.tau1() >= 1.0);
        assert!(regions.quota() <= regions.limit().max(regions.spans.len()));
    }
}

//! How many threads should copy, where cores do it and so cannot compute meanwhile: one answer for all who copy.
//!
//! It depends on what is known of what goes on beside. Nothing does, kernels wait: [`Link::swiftest`]. Kernels run, of which no more
//! is known: [`Link::sparing`]. What an interval of them computes and copies is known: the model of WarpX-PM
//! (section 7.4.2, equations 7.1 to 7.7), [`Hardware::choose`].
//!
//! While one interval computes, the data of the next comes in and that of the one before goes out. Too few threads do not
//! get done in time; too many take cores and bandwidth from the computation. The model takes the smallest number with which
//! copies are done in time (7.3), without taking bandwidth that the computation uses (7.4), on threads that are there
//! (7.6): then an interval takes as long as it does alone, and nothing can be faster (7.7). Where no number satisfies everything,
//! the paper says nothing; then it is the number with which an interval is shortest.

use crate::link::Link;
use crate::units::Bandwidth;

/// A copy thread is worth its core as long as it moves this part of what a lone one does.
pub const WORTHWHILE: f64 = 0.8;

impl Link {
    /// Its number of copy threads for copies beside kernels: the most of its curve with which a core that copies still moves
    /// nearly as much as one that copies alone ([`WORTHWHILE`]). What copies take from kernels is bytes by what a core moves,
    /// so fewer threads would take no less, and more would take more. Engines take nothing, and keep what they have.
    pub fn sparing(&self) -> u32 {
        let each = |(threads, speed): &(u32, Bandwidth)| speed.0 / f64::from(*threads);
        let best = self.curve.iter().map(each).fold(0.0, f64::max);
        let worthwhile = |point: &&(u32, Bandwidth)| each(point) >= WORTHWHILE * best;
        let most = self.curve.iter().rev().find(worthwhile).map_or(self.threads, |(threads, _)| *threads);
        if self.busy > 0.0 { most } else { self.threads }
    }

    /// Its number of copy threads for copies that kernels wait for: the fewest that are as fast as it gets, and no more than
    /// there are cores.
    pub fn swiftest(&self, cores: u32) -> u32 {
        let there = |point: &&(u32, Bandwidth)| point.0 <= cores.max(1);
        let most = self.curve.iter().filter(there).map(|(_, speed)| speed.0).fold(0.0, f64::max);
        let found = self.curve.iter().filter(there).find(|(_, speed)| speed.0 >= most);
        found.filter(|_| self.busy > 0.0).map_or(self.threads, |(threads, _)| *threads)
    }
}

/// What there is to copy in an interval, beside what computation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The bytes that must come in for the next interval.
    pub bytes_in: f64,
    /// The bytes that must go out from the one before.
    pub bytes_out: f64,
    /// How long the computation takes when all its data is there, in seconds.
    pub compute: f64,
    /// The bandwidth that the computation uses meanwhile, in bytes a second.
    pub compute_bandwidth: f64,
}

/// What the hardware can do.
#[derive(Clone, Copy, Debug)]
pub struct Hardware<'m> {
    /// Copies in: to fast memory.
    pub inward: &'m Link,
    /// Copies out.
    pub outward: &'m Link,
    /// How many threads there are, for computing and copying together.
    pub threads: usize,
    /// How many processes share the bandwidth.
    pub ranks: usize,
}

/// What a number of threads that copy would mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prospect {
    /// The threads that copy.
    pub threads: usize,
    /// How long copies take: the slower direction (7.1, 7.2).
    pub copy: f64,
    /// Whether copies are done before the computation is (7.3).
    pub in_time: bool,
    /// Whether computation and copies together stay within the bandwidth (7.4, 7.5).
    pub within_bandwidth: bool,
    /// How long an interval takes: what is longer, with bandwidth that is too little stretching both.
    pub interval: f64,
}

/// Why there is no number of threads.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// No thread could be spared for copies.
    #[error("{threads} threads in all leave none for copies beside the computation")]
    NoThreads {
        /// How many there are.
        threads: usize,
    },
    /// No bandwidth was measured.
    #[error("the bandwidth of copies by threads is not known: measure it for one thread at least")]
    Unmeasured,
    /// A figure that is no amount.
    #[error("`{what}` is {is}, and must be a finite number, zero or more")]
    Figure {
        /// Which.
        what: &'static str,
        /// What it is.
        is: f64,
    },
}

/// How many threads the computation can spare without losing more than a tenth: the paper found two (section 7.4.2).
pub const SPARE: usize = 2;

impl Hardware<'_> {
    /// The most that either direction reaches (7.5), for one of the processes.
    pub fn most(&self) -> f64 {
        let peak = |link: &Link| link.curve.iter().map(|(_, speed)| speed.0).fold(0.0, f64::max);
        peak(self.inward).max(peak(self.outward)) / self.ranks.max(1) as f64
    }

    /// What so many threads would mean for an interval.
    pub fn prospect(&self, interval: &Interval, threads: usize) -> Prospect {
        let time = |bytes: f64, bandwidth: f64| if bytes > 0.0 { bytes / bandwidth } else { 0.0 };
        let at = |link: &Link| link.bandwidth(threads as u32).0;
        let (inward, outward) = (at(self.inward), at(self.outward));
        let copy = time(interval.bytes_in, inward).max(time(interval.bytes_out, outward));
        // A direction in which nothing is copied takes no bandwidth.
        let used = |bytes: f64, bandwidth: f64| if bytes > 0.0 { bandwidth } else { 0.0 };
        let wanted =
            interval.compute_bandwidth + used(interval.bytes_in, inward) + used(interval.bytes_out, outward);
        let most = self.most();
        let within_bandwidth = wanted <= most * (1.0 + 1e-9);
        let stretch = if within_bandwidth || most <= 0.0 { 1.0 } else { wanted / most };
        let in_time = copy <= interval.compute;
        Prospect { threads, copy, in_time, within_bandwidth, interval: copy.max(interval.compute) * stretch }
    }

    /// The smallest number of threads that satisfies all constraints; or, where none does, the one with which an interval
    /// is shortest, fewer threads first.
    pub fn choose(&self, interval: &Interval) -> Result<Prospect, ModelError> {
        if self.inward.curve.is_empty() || self.outward.curve.is_empty() {
            return Err(ModelError::Unmeasured);
        }
        let figures = [
            ("bytes_in", interval.bytes_in),
            ("bytes_out", interval.bytes_out),
            ("compute", interval.compute),
            ("compute_bandwidth", interval.compute_bandwidth),
        ];
        let bad = |is: f64| !is.is_finite() || is < 0.0;
        let curves = self.inward.curve.iter().chain(&self.outward.curve).map(|(_, is)| ("bandwidth", is.0));
        if let Some((what, is)) = figures.into_iter().chain(curves).find(|(_, is)| bad(*is)) {
            return Err(ModelError::Figure { what, is });
        }
        let most = self.threads.saturating_sub(1).min(SPARE);
        let prospects: Vec<Prospect> = (1..=most).map(|threads| self.prospect(interval, threads)).collect();
        let good = prospects.iter().find(|prospect| prospect.in_time && prospect.within_bandwidth);
        let shortest = || prospects.iter().min_by(|a, b| a.interval.total_cmp(&b.interval));
        good.or_else(shortest).copied().ok_or(ModelError::NoThreads { threads: self.threads })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Nanos, TierId};

    const GB: f64 = 1e9;

    fn link(speeds: &[f64]) -> Link {
        let curve = speeds.iter().enumerate().map(|(at, speed)| (at as u32 + 1, Bandwidth(*speed))).collect();
        let (from, to) = (TierId(0), TierId(1));
        Link {
            from,
            to,
            latency: Nanos::ZERO,
            spacing: None,
            curve,
            threads: 1,
            busy: 1.0,
            bus: None,
            via: Default::default(),
        }
    }

    /// Like a socket with persistent memory: writing peaks at few threads, reading scales. In, and out.
    fn links() -> [Link; 2] {
        [link(&[6.0, 11.0, 16.0, 20.0].map(|x| x * GB)), link(&[3.0, 5.5, 7.5, 9.0].map(|x| x * GB))]
    }

    fn socket([inward, outward]: &[Link; 2]) -> Hardware<'_> {
        Hardware { inward, outward, threads: 24, ranks: 1 }
    }

    fn interval(bytes: f64, compute: f64, bandwidth: f64) -> Interval {
        Interval { bytes_in: bytes, bytes_out: bytes, compute, compute_bandwidth: bandwidth }
    }

    #[test]
    fn one_thread_where_one_is_enough_and_two_where_it_is_not() {
        // 0.5 GB out by one thread takes 167 ms, by two 91 ms.
        let chosen = |compute| socket(&links()).choose(&interval(0.5 * GB, compute, 0.0)).expect("a number");
        assert_eq!((chosen(0.2).threads, chosen(0.2).in_time), (1, true));
        assert_eq!((chosen(0.1).threads, chosen(0.1).in_time), (2, true));
        assert!((chosen(0.2).copy - 0.5 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn no_more_threads_than_the_computation_can_spare() {
        // Neither one nor two are in time: two are the shorter.
        let chosen = socket(&links()).choose(&interval(0.5 * GB, 0.01, 0.0)).expect("a number");
        assert_eq!((chosen.threads, chosen.in_time), (SPARE, false));
    }

    #[test]
    fn copies_leave_the_computation_its_bandwidth() {
        // Two threads take 16.5 GB/s of the 20 that there are: beside a computation that uses 8 that is too much, and not in
        // time either way; one thread takes 9.
        let busy =
            Interval { bytes_in: 0.5 * GB, bytes_out: 0.5 * GB, compute: 0.2, compute_bandwidth: 8.0 * GB };
        assert!(!socket(&links()).prospect(&busy, 2).within_bandwidth);
        let chosen = socket(&links()).choose(&busy).expect("a number");
        assert_eq!((chosen.threads, chosen.within_bandwidth), (1, true));
    }

    #[test]
    fn a_direction_without_bytes_takes_nothing() {
        let only_in =
            Interval { bytes_in: 0.5 * GB, bytes_out: 0.0, compute: 0.1, compute_bandwidth: 13.0 * GB };
        let prospect = socket(&links()).prospect(&only_in, 1);
        assert!(prospect.within_bandwidth && (prospect.copy - 0.5 / 6.0).abs() < 1e-12);
    }

    #[test]
    fn ranks_share_the_bandwidth() {
        let links = links();
        let shared = Hardware { ranks: 4, ..socket(&links) };
        assert!((shared.most() - 5.0 * GB).abs() < 1.0);
        assert!(!shared.prospect(&interval(0.1 * GB, 1.0, 0.0), 1).within_bandwidth);
    }

    /// The choice is the first of all numbers that satisfies everything, or the best if none does: against trying them all.
    #[test]
    fn the_choice_is_what_trying_all_finds() {
        let mut chance = fastrand::Rng::with_seed(11);
        for _ in 0..20_000 {
            let mut curve = || {
                let mut sum = 0.0;
                (0..4)
                    .map(|_| {
                        sum += chance.f64() * 8.0 * GB + 1.0;
                        sum
                    })
                    .collect::<Vec<_>>()
            };
            let links = [link(&curve()), link(&curve())];
            let hardware =
                Hardware { threads: chance.usize(2..6), ranks: chance.usize(1..3), ..socket(&links) };
            let some = Interval {
                bytes_in: chance.f64() * GB,
                bytes_out: if chance.bool() { 0.0 } else { chance.f64() * GB },
                compute: chance.f64() * 0.3,
                compute_bandwidth: chance.f64() * 8.0 * GB,
            };
            let chosen = hardware.choose(&some).expect("a thread is left");
            let all: Vec<_> =
                (1..hardware.threads.min(SPARE + 1)).map(|n| hardware.prospect(&some, n)).collect();
            let fits = |p: &Prospect| p.in_time && p.within_bandwidth;
            match all.iter().find(|p| fits(p)) {
                Some(first) => assert_eq!(chosen, *first),
                None => assert!(all.iter().all(|p| chosen.interval <= p.interval)),
            }
        }
    }

    #[test]
    fn figures_that_are_none_are_refused() {
        let links = links();
        let one = Hardware { threads: 1, ..socket(&links) };
        assert_eq!(one.choose(&interval(1.0, 1.0, 0.0)), Err(ModelError::NoThreads { threads: 1 }));
        let unknown = link(&[]);
        let none = Hardware { inward: &unknown, ..socket(&links) };
        assert_eq!(none.choose(&interval(1.0, 1.0, 0.0)), Err(ModelError::Unmeasured));
        let odd = socket(&links).choose(&interval(f64::NAN, 1.0, 0.0)).expect_err("no number");
        assert!(odd.to_string().contains("bytes_in"));
    }
}

//! What is possible: the least time that an iteration can take with so much fast memory before so much slow memory.
//!
//! An iteration passes over all particles, and changes all of them. Those for which fast memory has no room cross over once in each
//! direction, whoever decides: a pass in any order finds at most what fast memory held before. So an iteration takes at least
//! as long as everything in fast memory does, as those bytes take to be read, as they take to be written, and as the
//! processors take to compute and, where they move the bytes themselves, to copy. Nothing can be below all of these; to reach
//! the largest of them everything else must hide behind it.

use std::time::Instant;

use tiercel_core::{Backing, Bandwidth, Bytes, Machine};

use crate::error::PicError;
use crate::rates;
use crate::system::Needs;

/// Optane's bandwidths over those of the DRAM beside it, reading and writing: 39 and 13 GB/s to 104 and 80 (section 7.2).
pub const OPTANE: [f64; 2] = [39.0 / 104.0, 13.0 / 80.0];

/// The least time of an iteration, in seconds, by what takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Roofline {
    /// Bytes that must cross in each direction.
    pub crossing: Bytes,
    /// Everything in fast memory, as measured.
    pub compute: f64,
    /// Slow memory is read.
    pub read: f64,
    /// Slow memory is written.
    pub write: f64,
    /// Both at once, where directions are in each other's way; zero where they are not.
    pub both: f64,
    /// All processors compute and copy without a pause.
    pub processors: f64,
}

impl Roofline {
    /// The least time.
    pub fn floor(&self) -> f64 {
        [self.compute, self.read, self.write, self.both, self.processors].into_iter().fold(0.0, f64::max)
    }

    /// What it is that an iteration cannot be faster than.
    pub fn bound(&self) -> &'static str {
        let all = [
            ("computing", self.compute),
            ("reading slow memory", self.read),
            ("writing slow memory", self.write),
            ("reading and writing slow memory", self.both),
            ("processors that compute and copy", self.processors),
        ];
        // Of equals the first.
        all.into_iter().rev().max_by(|a, b| a.1.total_cmp(&b.1)).map_or("", |(name, _)| name)
    }
}

/// How fast slow memory is, and what copying takes of the processors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slow {
    /// Bytes a second to fast memory.
    pub read: f64,
    /// Bytes a second from it.
    pub write: f64,
    /// Bytes a second of both together while both are under way; none where directions do not meet.
    pub both: Option<f64>,
    /// Bytes a second that a processor copies; none where devices move them.
    pub copies: Option<f64>,
}

impl Slow {
    /// Of a machine's slow tier: what it is throttled to, or what it is measured to do.
    pub fn measured(machine: &Machine, threads: u32) -> Result<Slow, PicError> {
        let tier = machine.tier(machine.slowest());
        let mut plain = machine.clone();
        let device = matches!(tier.backing, Backing::File(_));
        plain.tiers.iter_mut().for_each(|tier| tier.backing = Backing::Dram);
        let copies = if device { None } else { Some(peak(&rates::copies(&plain)?)) };
        if tier.backing == Backing::Throttled {
            return Ok(Slow { read: tier.read.0, write: tier.write.0, both: None, copies });
        }
        let mut here = machine.clone();
        here.links.iter_mut().for_each(|link| link.threads = threads.max(1));
        let [read, write, both] = rates::copies(&here)?;
        let both = device.then_some(both);
        Ok(Slow { read, write, both, copies })
    }

    /// The roofline of a run that needs this much, with so much fast memory, so many of the cores computing, and an iteration of
    /// so many seconds when everything is fast. Of what is needed only what is used counts: `used` of the particles' bytes.
    pub fn roofline(
        &self,
        (needs, used): (&Needs, Bytes),
        fast: Bytes,
        (compute, threads, cores): (f64, usize, usize),
    ) -> Roofline {
        let room = fast.saturating_sub(needs.temporaries + needs.metadata);
        let crossing = (used + needs.fields).saturating_sub(room);
        let bytes = crossing.0 as f64;
        let copying = self.copies.map_or(0.0, |rate| 2.0 * bytes / rate);
        Roofline {
            crossing,
            compute,
            read: bytes / self.read,
            write: bytes / self.write,
            both: self.both.map_or(0.0, |rate| 2.0 * bytes / rate),
            processors: (compute * threads as f64 + copying) / cores.max(1) as f64,
        }
    }
}

fn peak(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(0.0, f64::max)
}

/// What is read and written to measure memory, for each thread: more than caches hold.
const SPAN: usize = 64 << 20;

/// What so many threads read of this machine's memory in a second, and what they write.
pub fn memory(threads: usize) -> [Bandwidth; 2] {
    let threads = threads.max(1);
    let mut spans: Vec<Vec<u64>> = (0..threads).map(|_| vec![1; SPAN / 8]).collect();
    let mut best = [f64::INFINITY; 2];
    for round in 0..5u64 {
        let clock = Instant::now();
        std::thread::scope(|scope| {
            for span in &spans {
                scope.spawn(|| std::hint::black_box(span.iter().fold(0u64, |sum, x| sum.wrapping_add(*x))));
            }
        });
        best[0] = best[0].min(clock.elapsed().as_secs_f64());
        let clock = Instant::now();
        std::thread::scope(|scope| {
            for span in &mut spans {
                scope.spawn(move || std::hint::black_box(span).fill(round));
            }
        });
        best[1] = best[1].min(clock.elapsed().as_secs_f64());
    }
    best.map(|seconds| Bandwidth((SPAN * threads) as f64 / seconds))
}

/// This machine's memory slowed down as Optane is beside DRAM.
pub fn optane(threads: usize) -> (Bandwidth, Bandwidth) {
    let [read, write] = memory(threads);
    (Bandwidth(read.0 * OPTANE[0]), Bandwidth(write.0 * OPTANE[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 1000 bytes of particles and 100 of fields before 400 of fast memory, 100 of them taken: 800 cross.
    #[test]
    fn what_must_cross_bounds_an_iteration() {
        let slow = Slow { read: 400.0, write: 100.0, both: None, copies: Some(1600.0) };
        let needs = Needs {
            particles: Bytes(1200),
            fields: Bytes(100),
            temporaries: Bytes(60),
            metadata: Bytes(40),
            ..Needs::default()
        };
        let found = slow.roofline((&needs, Bytes(1000)), Bytes(400), (5.0, 1, 2));
        assert_eq!((found.crossing, found.read, found.write), (Bytes(800), 2.0, 8.0));
        assert_eq!((found.processors, found.floor()), (3.0, 8.0));
        assert_eq!(found.bound(), "writing slow memory");
        // With room for everything nothing crosses, and computing is all.
        let found = slow.roofline((&needs, Bytes(1000)), Bytes(1300), (5.0, 1, 1));
        assert_eq!((found.crossing, found.floor(), found.bound()), (Bytes::ZERO, 5.0, "computing"));
        let device = Slow { both: Some(100.0), copies: None, ..slow };
        assert_eq!(device.roofline((&needs, Bytes(1000)), Bytes(400), (5.0, 1, 2)).floor(), 16.0);
    }
}

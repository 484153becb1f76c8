//! Memory mode: the program's own DRAM as a direct-mapped cache of its persistent memory, managed by the processor.
//!
//! All data lies on the slower kind of the program's own socket. A place in the cache is shared by the pages that map to it;
//! which of them a line of it belongs to goes by how often each was accessed lately, as lines are accessed at random. A miss
//! reads from the slow tier, writes into the cache and, where what makes room was written, writes that back: the write
//! amplification of Section 8.8.2.

use super::{Outcome, STREAM_NS};
use crate::programs::Recording;
use crate::strategies::pools::Pools;
use crate::tiers::Tiers;

/// How quickly accesses long past stop to count.
const FADE: f64 = 0.7;

const LINE: f64 = 64.0;

/// Plays a recording with DRAM as a cache.
pub fn memory_mode(recording: &Recording, tiers: &Tiers, threads: f64) -> Outcome {
    let slow = Pools::slow(tiers) as usize;
    let places = tiers.list[0].pages.max(1);
    let pages = recording.pages as usize;
    let mut lately = vec![0.0f64; pages];
    let mut dirty = vec![0.0f64; pages];
    // What all pages of a place had lately, and how much of that was written.
    let mut place = vec![(0.0f64, 0.0f64); places];
    let mut out = Outcome { accesses: vec![0.0; tiers.len()], ..Outcome::default() };
    let (fast_tier, slow_tier) = (&tiers.list[0], &tiers.list[slow]);
    for window in &recording.windows {
        for (page, (count, written)) in lately.iter_mut().zip(&mut dirty).enumerate() {
            let at = &mut place[page % places];
            at.0 -= *count * (1.0 - FADE);
            at.1 -= *written * (1.0 - FADE);
            *count *= FADE;
            *written *= FADE;
        }
        let (mut waited, mut fast, mut read, mut back) = (0.0, 0.0, 0.0, 0.0);
        for touch in window.iter() {
            let page = touch.page as usize;
            let (random, stream) = (f64::from(touch.random), f64::from(touch.stream));
            let lines = random + stream;
            let at = &mut place[page % places];
            at.0 += lines;
            at.1 += f64::from(touch.written);
            lately[page] += lines;
            dirty[page] += f64::from(touch.written);
            // The line was accessed before, and nobody else's took its place since.
            let share = (lately[page] - 0.5 * lines) / (at.0 - 0.5 * lines).max(1e-9);
            // Below an access a line, some lines have not been seen lately at all; the cache keeps them if it is alone.
            let hit = share.clamp(0.0, 1.0);
            let miss = lines * (1.0 - hit);
            let written = (at.1 / at.0.max(1e-9)).clamp(0.0, 1.0);
            waited +=
                random * (recording.compute_ns + fast_tier.latency_ns + (1.0 - hit) * slow_tier.latency_ns);
            waited += stream * STREAM_NS;
            fast += lines * LINE + miss * LINE;
            read += miss * LINE;
            back += miss * written * LINE;
            out.accesses[0] += lines * hit;
            out.accesses[slow] += miss;
        }
        let busiest = (fast / fast_tier.read).max(read / slow_tier.read + back / slow_tier.write);
        out.promoted += read as u64;
        out.demoted += back as u64;
        out.ns += (waited / threads).max(busiest);
    }
    out
}

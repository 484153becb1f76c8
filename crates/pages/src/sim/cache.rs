//! Memory mode: the program's own DRAM as a direct-mapped cache of its persistent memory, managed by the processor.
//!
//! All data lies on the slower kind of the program's own socket. A place in the cache is shared by the pages that map to it.
//! What each of them has in it is kept as a share of the place's lines: touching lines that are not there brings them in and
//! drives those of the others out, however long ago these were used. A miss reads from the slow tier, writes into the cache
//! and, where what makes room was written, writes that back: the write amplification of Section 8.8.2.

use super::{Outcome, STREAM_NS};
use crate::programs::Recording;
use crate::strategies::pools::Pools;
use crate::tiers::{PAGE, Tiers};

const LINE: f64 = 64.0;

/// Lines of a page.
const LINES: f64 = PAGE as f64 / LINE;

/// Which part of a page's lines so many accesses touch: those in order one after another, those at random wherever.
fn covered(random: f64, stream: f64) -> f64 {
    1.0 - (1.0 - stream / LINES).max(0.0) * (-random / LINES).exp()
}

/// What the cache holds.
struct Cache {
    /// Which share of its place's lines each page has.
    share: Vec<f64>,
    /// Which share of a place's lines was written since it came.
    dirty: Vec<f64>,
    places: usize,
}

impl Cache {
    /// Touches a part of a page's lines; which part of the page's lines missed.
    fn touch(&mut self, page: usize, part: f64, written: f64) -> f64 {
        let missed = part * (1.0 - self.share[page]);
        let mut other = page % self.places;
        while other < self.share.len() {
            self.share[other] *= 1.0 - part;
            other += self.places;
        }
        // Its own lines among those driven out are those that it touched.
        self.share[page] += part;
        let dirty = &mut self.dirty[page % self.places];
        *dirty *= 1.0 - missed;
        *dirty += (1.0 - *dirty) * written;
        missed
    }
}

/// Plays a recording with DRAM as a cache.
pub fn memory_mode(recording: &Recording, tiers: &Tiers, threads: f64) -> Outcome {
    let slow = Pools::slow(tiers) as usize;
    let places = tiers.list[0].pages.max(1);
    let pages = recording.pages as usize;
    let mut cache = Cache { share: vec![0.0; pages], dirty: vec![0.0; places], places };
    for page in &recording.loaded {
        cache.touch(*page as usize, 1.0, 1.0);
    }
    // What all pages of a place have in this window.
    let mut together = vec![0.0f64; places];
    let mut out = Outcome { accesses: vec![0.0; tiers.len()], ..Outcome::default() };
    let (fast_tier, slow_tier) = (&tiers.list[0], &tiers.list[slow]);
    for window in &recording.windows {
        for touch in window.iter() {
            together[touch.page as usize % places] += f64::from(touch.random) + f64::from(touch.stream);
        }
        let (mut waited, mut fast, mut read, mut back) = (0.0, 0.0, 0.0, 0.0);
        for touch in window.iter() {
            let page = touch.page as usize;
            let (random, stream) = (f64::from(touch.random), f64::from(touch.stream));
            let lines = random + stream;
            let part = covered(random, stream);
            let written = covered(0.0, f64::from(touch.written).min(LINES));
            let dirty = cache.dirty[page % places];
            let first = LINES * cache.touch(page, part, written);
            // Accesses to lines touched before in this window miss where another page came between them.
            let repeated = (lines - LINES * part).max(0.0);
            let all = together[page % places];
            let again = repeated * (all - lines).max(0.0) / all;
            let miss = (first + again).min(lines);
            waited += random * (recording.compute_ns + fast_tier.latency_ns);
            waited += random * (miss / lines) * slow_tier.latency_ns + stream * STREAM_NS;
            fast += lines * LINE + miss * LINE;
            read += miss * LINE;
            back += miss * dirty * LINE;
            out.accesses[0] += lines - miss;
            out.accesses[slow] += miss;
        }
        for touch in window.iter() {
            together[touch.page as usize % places] = 0.0;
        }
        let busiest = (fast / fast_tier.read).max(read / slow_tier.read + back / slow_tier.write);
        out.promoted += read as u64;
        out.demoted += back as u64;
        out.ns += (waited / threads).max(busiest);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Touch;
    use crate::tests::tiers;

    /// Passes in order over so many pages, again and again.
    fn passes(pages: u32) -> Outcome {
        let line = |page| Touch { page, random: 0, stream: LINES as u16, written: 0 };
        let windows = (0..8 * pages / 32).map(|at| {
            (at * 32 % pages..at * 32 % pages + 32).map(line).collect::<Vec<_>>().into_boxed_slice()
        });
        let recording = Recording {
            name: "passes",
            pages,
            loaded: (0..pages).collect(),
            windows: windows.collect(),
            compute_ns: 0.0,
            hot: Vec::new(),
        };
        memory_mode(&recording, &tiers(), 8.0)
    }

    #[test]
    fn what_fits_hits_and_what_is_passed_over_in_turn_never_does() {
        let within = passes(128);
        assert_eq!(within.promoted, 0, "all of it is in the cache");
        let beyond = passes(256);
        assert!(beyond.accesses[0] < 1e-6, "each page was driven out by its twin: {:?}", beyond.accesses);
        assert!(beyond.ns > 1.2 * 2.0 * within.ns);
    }

    #[test]
    fn pages_that_share_a_place_at_random_hit_as_often_as_they_are_used() {
        let touch = |page, random| Touch { page, random, stream: 0, written: 0 };
        let window = || vec![touch(0, 3), touch(128, 1)].into_boxed_slice();
        let recording = Recording {
            name: "pair",
            pages: 256,
            loaded: Vec::new(),
            windows: (0..4000).map(|_| window()).collect(),
            compute_ns: 0.0,
            hot: Vec::new(),
        };
        let out = memory_mode(&recording, &tiers(), 8.0);
        // Nine of sixteen and one of sixteen: 5/8.
        let hits = out.accesses[0] / out.accesses.iter().sum::<f64>();
        assert!((hits - 0.625).abs() < 0.03, "{hits}");
    }
}

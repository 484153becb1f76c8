//! GUPS with a hot set: random updates of a table, nine tenths of them on an eighth of it (as HeMem's, Section 8.8.2).
//!
//! The hot set is three runs of pages that begin and end anywhere, as objects do, not where spans end.

use std::ops::Range;

use super::Recorder;

/// One hot set for good.
pub(super) fn steady(recorder: &mut Recorder, bytes: u64, seed: u64) {
    run(recorder, bytes, seed, 1);
}

/// Another hot set in the second half.
pub(super) fn moving(recorder: &mut Recorder, bytes: u64, seed: u64) {
    run(recorder, bytes, seed, 2);
}

fn run(recorder: &mut Recorder, bytes: u64, seed: u64, sets: usize) {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x6775_7073);
    let words = (bytes / 8) as usize;
    let base = recorder.room(bytes);
    let mut table: Vec<u64> = (0..words as u64).collect();
    recorder.stream_write(base, bytes);
    recorder.begin(20.0);
    // An eighth of the table: runs of a half, a third and the rest of it, away from where it begins, which is filled first.
    let places = [[(0.31, 0.5), (0.58, 0.3), (0.83, 0.2)], [(0.45, 0.3), (0.68, 0.5), (0.93, 0.2)]];
    for (set, places) in places.iter().take(sets).enumerate() {
        let run = |(at, share): &(f64, f64)| {
            let first = (at * words as f64) as usize;
            first..first + (share * 0.125 * words as f64) as usize
        };
        let hot: Vec<Range<usize>> = places.iter().map(run).collect();
        let bytes = |r: &Range<usize>| base + r.start as u64 * 8..base + r.end as u64 * 8;
        recorder.hot(&hot.iter().map(bytes).collect::<Vec<_>>());
        let all: usize = hot.iter().map(Range::len).sum();
        while !recorder.full() && recorder.done() < (set + 1) as f64 / sets as f64 {
            let at = if random.u32(..10) < 9 {
                let mut at = random.usize(..all);
                hot.iter()
                    .find_map(|range| {
                        if at < range.len() {
                            return Some(range.start + at);
                        }
                        at -= range.len();
                        None
                    })
                    .unwrap_or(0)
            } else {
                random.usize(..words)
            };
            table[at] ^= at as u64;
            recorder.write(base + at as u64 * 8);
        }
    }
}

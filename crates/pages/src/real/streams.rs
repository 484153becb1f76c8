//! Which parts of a program's memory come back from the slow tier one after another, and what follows: what will be wanted
//! next, and what was passed and will not be wanted soon. Pure: it is told what came back and says what to do.
//!
//! A program that passes over more memory than it has room for defeats every order of "longest unused": each page is
//! written out just before it is wanted again. Read ahead of it in large pieces, and written out behind it, it waits less,
//! and what other data it has stays.
//!
//! Where pages are wanted at random and many come back between two looks, pieces of them lie side by side by chance, and what
//! is written out behind such a "stream" is wanted again at once. So nothing is done where a piece would continue another as
//! often by chance, where a look is too long to tell, and, for longer each time, where what was written out came back.

use std::ops::Range;

use super::state::within;

/// Pieces that come back with a gap of no more than this belong together.
const GAP: u64 = 256 << 10;

/// A piece smaller than this says nothing.
const LEAST: u64 = 128 << 10;

/// How often a piece must have continued another before it counts as a stream.
const SURE: u32 = 2;

/// A stream that has not moved for so many looks is over; what comes back within so many was written out wrongly.
const PATIENCE: u32 = 8;

/// How far from where a stream is a piece may begin that continues it.
const REACH: u64 = GAP * 4;

/// Of which part of the address space all streams together may say what continues them: one in so many.
const CHANCE: u64 = 8;

/// The longest time, in looks, for which nothing is done after what was done proved wrong.
const ASIDE: u32 = 4096;

/// A program passing over its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Where it began.
    pub start: u64,
    /// How far it has come.
    pub at: u64,
    /// How far it was read ahead.
    ahead: u64,
    /// How far it was written out behind.
    behind: u64,
    /// How often it went on.
    steps: u32,
    idle: u32,
    /// Bytes it passes in a look, smoothed.
    pace: u64,
}

/// What to do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// To be read in.
    pub ahead: Vec<Range<u64>>,
    /// To be written out.
    pub behind: Vec<Range<u64>>,
}

/// All streams of a program.
#[derive(Clone, Debug)]
pub struct Streams {
    list: Vec<Stream>,
    /// How much may be read ahead of one stream.
    pub most_ahead: u64,
    /// How much is kept behind one that has passed over more than there is room for.
    pub kept: u64,
    /// How far a stream must have come before anything is written out behind it.
    pub long: u64,
    /// Bytes that may come back between two looks; where more do, their order is lost.
    pub most_back: u64,
    /// What was written out lately, and how many looks ago.
    out: Vec<(Range<u64>, u32)>,
    /// For how many looks nothing is done, and for how many the next time.
    aside: u32,
    doubt: u32,
}

/// Ranges that are nearly side by side, as one.
fn pieces(ranges: &[Range<u64>]) -> Vec<(Range<u64>, u64)> {
    let mut found: Vec<(Range<u64>, u64)> = Vec::new();
    for range in ranges {
        let bytes = range.end - range.start;
        match found.last_mut() {
            Some((last, sum)) if range.start <= last.end + GAP => {
                last.end = last.end.max(range.end);
                *sum += bytes;
            }
            _ => found.push((range.clone(), bytes)),
        }
    }
    found
}

impl Streams {
    /// For a program with so much room.
    pub fn new(room: u64) -> Streams {
        Streams {
            list: Vec::new(),
            most_ahead: (room / 16).clamp(1 << 20, 64 << 20),
            kept: room / 8,
            long: room / 2,
            most_back: room / 2,
            out: Vec::new(),
            aside: 0,
            doubt: PATIENCE,
        }
    }

    /// Streams that are known well enough.
    pub fn known(&self) -> usize {
        self.list.iter().filter(|stream| stream.steps >= SURE).count()
    }

    /// Whether a good part of what was written out lately came back.
    fn regrets(&mut self, came_back: &[Range<u64>]) -> bool {
        self.out.iter_mut().for_each(|(_, age)| *age += 1);
        self.out.retain(|(_, age)| *age <= PATIENCE);
        let written: u64 = self.out.iter().map(|(range, _)| range.end - range.start).sum();
        let returned: u64 = self
            .out
            .iter()
            .flat_map(|(range, _)| within(came_back, range))
            .map(|range| range.end - range.start)
            .sum();
        returned * 4 > written
    }

    /// Takes in what came back since the last look, in order of addresses, of so many bytes in all, and says what to do.
    pub fn look(&mut self, came_back: &[Range<u64>], all: u64) -> Steps {
        let mut steps = Steps::default();
        if self.regrets(came_back) {
            self.aside = self.doubt;
            self.doubt = (self.doubt * 4).min(ASIDE);
            self.out.clear();
        }
        let back: u64 = came_back.iter().map(|range| range.end - range.start).sum();
        if self.aside > 0 || back > self.most_back {
            self.aside = self.aside.saturating_sub(1);
            self.list.clear();
            return steps;
        }
        self.list.iter_mut().for_each(|stream| stream.idle += 1);
        for (piece, bytes) in pieces(came_back) {
            // A piece that came back only here and there is no stream.
            if bytes < LEAST || bytes * 2 < piece.end - piece.start {
                continue;
            }
            let goes_on = self.list.iter_mut().find(|stream| {
                piece.end > stream.at && piece.start <= stream.at + REACH && piece.start + REACH >= stream.at
            });
            match goes_on {
                Some(stream) => {
                    let passed = piece.end - stream.at;
                    stream.pace = (stream.pace + passed) / 2;
                    stream.at = piece.end;
                    stream.steps += 1;
                    stream.idle = 0;
                }
                None => self.list.push(Stream {
                    start: piece.start,
                    at: piece.end,
                    ahead: piece.end,
                    behind: piece.start,
                    steps: 0,
                    idle: 0,
                    pace: bytes,
                }),
            }
        }
        self.list.retain(|stream| stream.idle < PATIENCE);
        // With so many ends of pieces any piece would continue some other.
        if self.list.len() as u64 * 2 * REACH * CHANCE > all.max(CHANCE * 4 * REACH) {
            return steps;
        }
        for stream in self.list.iter_mut().filter(|stream| stream.steps >= SURE && stream.idle == 0) {
            // Three looks ahead of it, so that what it wants next has come when it comes there.
            let want = stream.at + (3 * stream.pace).clamp(LEAST, self.most_ahead);
            let from = stream.ahead.max(stream.at);
            if want > from && want - from >= LEAST.min(self.most_ahead / 2) {
                steps.ahead.push(from..want);
                stream.ahead = want;
            }
            let keep_from = stream.at.saturating_sub(self.kept);
            if stream.at - stream.start > self.long && keep_from > stream.behind + LEAST {
                steps.behind.push(stream.behind..keep_from);
                self.out.push((stream.behind..keep_from, 0));
                stream.behind = keep_from;
            }
        }
        steps
    }
}

/// What is in one list of ranges and in no other, both in order.
pub fn without(these: &[Range<u64>], those: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    let mut at = 0;
    for range in these {
        let mut start = range.start;
        while at < those.len() && those[at].end <= start {
            at += 1;
        }
        let mut next = at;
        while start < range.end {
            match those.get(next) {
                Some(other) if other.start < range.end => {
                    if other.start > start {
                        left.push(start..other.start);
                    }
                    start = start.max(other.end);
                    next += 1;
                }
                _ => {
                    left.push(start..range.end);
                    start = range.end;
                }
            }
        }
    }
    left
}

#[cfg(test)]
// Lists of ranges, of which some have one.
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_pass_over_memory_is_read_ahead_and_written_out_behind() {
        let mut streams = Streams::new(64 * MIB);
        let mut ahead = 0;
        let mut behind = 0;
        for step in 0..100 {
            let steps = streams.look(&[step * MIB..(step + 1) * MIB], 256 * MIB);
            for range in steps.ahead {
                assert!(range.start >= (step + 1) * MIB, "what it has passed is not read");
                assert!(range.end <= (step + 1) * MIB + streams.most_ahead);
                assert!(range.start >= ahead, "nothing is read twice");
                ahead = range.end;
            }
            for range in steps.behind {
                assert_eq!(range.start, behind, "all of it, once");
                assert!(range.end <= (step + 1) * MIB - streams.kept);
                behind = range.end;
            }
        }
        assert!(ahead > 100 * MIB, "it is ahead of the program: {ahead}");
        assert!(behind > 80 * MIB, "what was passed is written out: {behind}");
        assert_eq!(streams.known(), 1);
    }

    #[test]
    fn pages_here_and_there_are_no_stream() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut streams = Streams::new(64 * MIB);
        for _ in 0..200 {
            let mut pages: Vec<u64> = (0..500).map(|_| random.u64(..262_144) * 4096).collect();
            pages.sort_unstable();
            pages.dedup();
            let ranges: Vec<Range<u64>> = pages.iter().map(|page| *page..page + 4096).collect();
            assert_eq!(streams.look(&ranges, 1024 * MIB), Steps::default());
        }
        assert_eq!(streams.known(), 0);
    }

    #[test]
    fn random_pages_that_come_back_in_large_pieces_are_no_stream() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut streams = Streams::new(128 * MIB);
        for _ in 0..400 {
            // What the kernel reads around each miss makes pieces that are dense enough.
            let mut starts: Vec<u64> = (0..40).map(|_| random.u64(..1024) * MIB / 4).collect();
            starts.sort_unstable();
            starts.dedup();
            let mut ranges: Vec<Range<u64>> = Vec::new();
            for start in starts {
                let range = start..start + MIB / 4;
                match ranges.last_mut() {
                    Some(last) if last.end >= range.start => last.end = range.end,
                    _ => ranges.push(range),
                }
            }
            assert_eq!(streams.look(&ranges, 256 * MIB), Steps::default());
        }
    }

    #[test]
    fn what_was_written_out_and_came_back_is_not_written_out_again_soon() {
        let mut streams = Streams::new(16 * MIB);
        let pass = |streams: &mut Streams| {
            let mut written: Vec<Range<u64>> = Vec::new();
            for step in 0..40 {
                written.extend(streams.look(&[step * MIB..(step + 1) * MIB], 256 * MIB).behind);
            }
            written
        };
        assert!(!pass(&mut streams).is_empty());
        let last = |streams: &Streams| -> Vec<Range<u64>> {
            streams.out.iter().rev().take(4).rev().map(|(range, _)| range.clone()).collect()
        };
        let wrong = last(&streams);
        assert_eq!(streams.look(&wrong, 256 * MIB), Steps::default());
        assert!(streams.aside > 0 && streams.known() == 0);
        let aside = streams.doubt;
        assert!(!pass(&mut streams).is_empty(), "later it is tried again");
        let wrong = last(&streams);
        streams.look(&wrong, 256 * MIB);
        assert!(streams.doubt > aside, "and given up for longer");
        // More comes back than a look can tell apart.
        let mut streams = Streams::new(16 * MIB);
        (0..20).for_each(|at| {
            assert_eq!(streams.look(&[at * 9 * MIB..(at + 1) * 9 * MIB], 256 * MIB), Steps::default())
        });
    }

    #[test]
    fn a_stream_that_stops_is_forgotten() {
        let mut streams = Streams::new(64 * MIB);
        (0..5).for_each(|step| drop(streams.look(&[step * MIB..(step + 1) * MIB], 256 * MIB)));
        assert_eq!(streams.known(), 1);
        for _ in 0..PATIENCE {
            assert_eq!(streams.look(&[], 256 * MIB), Steps::default());
        }
        assert_eq!(streams.known(), 0);
    }

    #[test]
    fn taking_ranges_away_is_what_a_set_of_pages_does() {
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..300 {
            let draw = |random: &mut fastrand::Rng| -> Vec<bool> { (0..40).map(|_| random.bool()).collect() };
            let (a, b) = (draw(&mut random), draw(&mut random));
            let ranges = |set: &[bool]| -> Vec<Range<u64>> {
                let mut list: Vec<Range<u64>> = Vec::new();
                for (at, _) in set.iter().enumerate().filter(|(_, is)| **is) {
                    let at = at as u64;
                    match list.last_mut() {
                        Some(last) if last.end == at => last.end += 1,
                        _ => list.push(at..at + 1),
                    }
                }
                list
            };
            let expected: Vec<bool> = a.iter().zip(&b).map(|(a, b)| *a && !b).collect();
            let got: Vec<u64> = without(&ranges(&a), &ranges(&b)).into_iter().flatten().collect();
            let wanted: Vec<u64> = (0..40).filter(|at| expected[*at as usize]).collect();
            assert_eq!(got, wanted);
        }
    }
}

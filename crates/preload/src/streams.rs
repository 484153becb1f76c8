//! Which faults follow one another, upwards or downwards: what comes next is brought with them, and what was passed may go
//! first. Pure.

use crate::sys::PAGE;

const MOST: usize = 16;

/// Pages that come with one that is wanted, where nothing says what comes next.
const FEW: u32 = 4;

/// A fault that misses the expected place by no more than this still goes on.
const REACH: u64 = 64 << 10;

/// A program passing over its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stream {
    /// What was brought for it, from here…
    low: u64,
    /// … to here: the next fault is expected at one of the ends.
    high: u64,
    /// Whether it goes downwards.
    down: bool,
    /// How many pages were brought last.
    window: u32,
    /// How far it was taken away behind.
    behind: u64,
    last: u32,
}

/// What is to be brought with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Whether the fault goes on where an earlier one ended.
    pub goes_on: bool,
    /// How many pages, this one included.
    pub window: u32,
    /// Whether those below it.
    pub down: bool,
}

/// All streams of a program.
#[derive(Default)]
pub struct Streams {
    list: [Stream; MOST],
    clock: u32,
    most: u32,
}

impl Streams {
    /// None yet; no more than so many pages are brought at once.
    pub fn new(most: u32) -> Streams {
        Streams { most, ..Streams::default() }
    }

    /// A page is missed.
    pub fn fault(&mut self, page: u64) -> Ahead {
        self.clock = self.clock.wrapping_add(1);
        let (clock, most) = (self.clock, self.most.max(1));
        let up = |stream: &Stream| page >= stream.high && page - stream.high <= REACH;
        let down = |stream: &Stream| page < stream.low && stream.low - page <= REACH;
        let goes_on = self.list.iter_mut().find(|stream| stream.window > 0 && (up(stream) || down(stream)));
        if let Some(stream) = goes_on {
            let turns = down(stream) != stream.down;
            if turns {
                (stream.down, stream.window) = (!stream.down, FEW);
                stream.behind = if stream.down { stream.high } else { stream.low };
            }
            stream.last = clock;
            stream.window = (stream.window * 2).min(most);
            return Ahead { goes_on: true, window: stream.window, down: stream.down };
        }
        let oldest = self.list.iter_mut().max_by_key(|stream| match stream.window {
            0 => u32::MAX,
            _ => clock.wrapping_sub(stream.last),
        });
        if let Some(oldest) = oldest {
            *oldest = Stream { low: page, high: page, down: false, window: FEW, behind: page, last: clock };
        }
        Ahead { goes_on: false, window: FEW.min(most), down: false }
    }

    /// Notes what was really brought for the last fault.
    pub fn brought(&mut self, from: u64, to: u64) {
        let clock = self.clock;
        if let Some(stream) = self.list.iter_mut().find(|stream| stream.window > 0 && stream.last == clock) {
            (stream.low, stream.high) = (stream.low.min(from), stream.high.max(to));
        }
    }

    /// Whether a page was brought ahead of a stream just now.
    pub fn expects(&self, page: u64) -> bool {
        self.list.iter().any(|stream| {
            let near = 2 * u64::from(stream.window) * PAGE;
            let ahead = match stream.down {
                true => page >= stream.low && page < stream.low + near,
                false => page < stream.high && page >= stream.high.saturating_sub(near),
            };
            stream.window > FEW && ahead
        })
    }

    /// A piece behind a stream that has passed over more than `long`, `kept` bytes after it: it is told once.
    pub fn behind(&mut self, long: u64, kept: u64, most: u64) -> Option<(u64, u64)> {
        for stream in self.list.iter_mut().filter(|stream| stream.window > FEW) {
            let passed = stream.high - stream.low;
            if passed <= long || passed <= kept {
                continue;
            }
            let piece = if stream.down {
                let from = (stream.low + kept).max(stream.behind.saturating_sub(most));
                (from, stream.behind)
            } else {
                (stream.behind, (stream.high - kept).min(stream.behind + most))
            };
            if piece.0 < piece.1 {
                stream.behind = if stream.down { piece.0 } else { piece.1 };
                return Some(piece);
            }
        }
        None
    }

    /// Streams that are known well enough.
    pub fn known(&self) -> u64 {
        self.list.iter().filter(|stream| stream.window > 2 * FEW).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_brought_in_growing_pieces_and_taken_away_behind() {
        let mut streams = Streams::new(256);
        let (start, mut faults) = (1u64 << 30, 0);
        let (mut at, mut behind) = (start, start);
        while at < start + (64 << 20) {
            let ahead = streams.fault(at);
            assert_eq!((ahead.goes_on, ahead.down), (faults > 0, false));
            let to = at + u64::from(ahead.window) * PAGE;
            streams.brought(at, to);
            at = to;
            assert!(faults < 6 || streams.expects(at - PAGE));
            assert!(!streams.expects(at) && (faults < 20 || !streams.expects(start)));
            while let Some((from, to)) = streams.behind(8 << 20, 4 << 20, 1 << 20) {
                assert!(from == behind && to <= at - (4 << 20), "all of it, once");
                behind = to;
            }
            faults += 1;
            // Others fault elsewhere.
            streams.fault(faults << 40);
            streams.brought(faults << 40, (faults << 40) + PAGE);
        }
        assert!(faults < 100 && behind > start + (48 << 20), "{faults} {behind:#x}");
        assert_eq!(streams.known(), 1);
    }

    #[test]
    fn a_pass_downwards_is_one_too() {
        let mut streams = Streams::new(256);
        let top = 1u64 << 30;
        let (mut at, mut faults, mut behind) = (top, 0, None);
        while at > top - (64 << 20) {
            let page = at - PAGE;
            let ahead = streams.fault(page);
            at = page - u64::from(if ahead.down { ahead.window - 1 } else { 0 }) * PAGE;
            streams.brought(at, page + PAGE);
            while let Some((from, to)) = streams.behind(8 << 20, 4 << 20, 1 << 20) {
                assert!(from >= at + (4 << 20) && behind.is_none_or(|last| last == to), "all of it, once");
                behind = Some(from);
            }
            faults += 1;
        }
        assert!(faults < 100, "{faults}");
        assert!(behind.is_some_and(|behind| behind < top - (48 << 20)), "{behind:?}");
    }

    #[test]
    fn faults_here_and_there_are_no_stream() {
        let mut streams = Streams::new(256);
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..10_000 {
            let page = random.u64(1..1 << 20) * PAGE;
            let ahead = streams.fault(page);
            streams.brought(page, page + u64::from(ahead.window) * PAGE);
            assert!(streams.behind(64 << 20, 0, 1 << 20).is_none());
        }
    }
}

//! Programs that really run, at a small size, and note which pages they touch.
//!
//! Each keeps its data for real and computes with it; what it reads and writes goes by its address into a [`Recorder`], which
//! counts cache lines per page over short windows of work. A recording does not depend on any tier: a simulator plays it on
//! any machine, under any policy.

mod graph;
mod gups;
mod orders;
mod sort;
mod store;

use std::ops::Range;

use crate::tiers::PAGE;

/// A cache line.
const LINE: u64 = 64;

/// What one window of work touched of one page, in cache lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touch {
    /// The page.
    pub page: u32,
    /// Lines that were waited for, one after another.
    pub random: u16,
    /// Lines read or written in order, which processors fetch ahead.
    pub stream: u16,
    /// How many lines of both were written.
    pub written: u16,
}

/// A program as it was recorded.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Its name.
    pub name: &'static str,
    /// How many pages it has.
    pub pages: u32,
    /// Pages in the order in which they were first touched while data was loaded.
    pub loaded: Vec<u32>,
    /// What each window touched, in the order of pages.
    pub windows: Vec<Box<[Touch]>>,
    /// What a program computes for each line that it waits for.
    pub compute_ns: f64,
    /// From which window on which pages are hot, where that is known ahead.
    pub hot: Vec<(usize, Vec<Range<u32>>)>,
}

impl Recording {
    /// Whether a page is hot in a window, where that is known.
    pub fn hot_at(&self, window: usize) -> Option<&[Range<u32>]> {
        self.hot.iter().rev().find(|(from, _)| *from <= window).map(|(_, ranges)| &ranges[..])
    }
}

/// How large a program is to be and how long it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// By how much its memory, and the machine, are smaller than in the paper.
    pub scale: u64,
    /// How many windows of work.
    pub windows: usize,
    /// How many accesses a window has.
    pub window: u32,
    /// Where chance starts.
    pub seed: u64,
}

impl Size {
    /// 4096 times smaller, and 100 intervals if memory is fast.
    pub const DEFAULT: Size = Size { scale: 4096, windows: 1200, window: 16_000, seed: 0 };
}

/// A program and the memory that it has in the paper, in bytes.
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// What it stands for.
    pub like: &'static str,
    /// The memory that it has in the paper.
    pub bytes: u64,
    run: fn(&mut Recorder, u64, u64),
}

/// Every program.
pub static ALL: [Program; 7] = [
    Program { name: "gups", like: "GUPS with a hot set", bytes: 512_000_000_000, run: gups::steady },
    Program { name: "phases", like: "GUPS whose hot set moves", bytes: 512_000_000_000, run: gups::moving },
    Program { name: "store", like: "Cassandra under YCSB A", bytes: 400_000_000_000, run: store::run },
    Program { name: "orders", like: "VoltDB under TPC-C", bytes: 300_000_000_000, run: orders::run },
    Program { name: "bfs", like: "BFS", bytes: 525_000_000_000, run: graph::bfs },
    Program { name: "sssp", like: "SSSP", bytes: 525_000_000_000, run: graph::sssp },
    Program { name: "sort", like: "Spark's TeraSort", bytes: 350_000_000_000, run: sort::run },
];

impl Program {
    /// Runs it and notes what it touches.
    pub fn record(&self, size: Size) -> Recording {
        let mut recorder = Recorder::new(self.name, size);
        (self.run)(&mut recorder, self.bytes / size.scale, size.seed);
        recorder.finish()
    }
}

/// Notes what a program touches.
pub struct Recorder {
    recording: Recording,
    size: Size,
    next: u64,
    counts: Vec<Touch>,
    touched: Vec<u32>,
    /// Accesses of this window so far, in quarters: a line read in order costs a quarter of one that is waited for.
    quarters: u32,
    loading: bool,
    known: Vec<bool>,
}

impl Recorder {
    fn new(name: &'static str, size: Size) -> Recorder {
        Recorder {
            recording: Recording {
                name,
                pages: 0,
                loaded: Vec::new(),
                windows: Vec::new(),
                compute_ns: 50.0,
                hot: Vec::new(),
            },
            size,
            next: 0,
            counts: Vec::new(),
            touched: Vec::new(),
            quarters: 0,
            loading: true,
            known: Vec::new(),
        }
    }

    /// Room for so many bytes: the address of the first.
    pub(crate) fn room(&mut self, bytes: u64) -> u64 {
        let base = self.next;
        self.next += bytes.div_ceil(PAGE) * PAGE;
        let pages = (self.next / PAGE) as usize;
        self.counts.resize(pages, Touch::default());
        self.known.resize(pages, false);
        base
    }

    /// Loading is over: from now on work is noted.
    pub(crate) fn begin(&mut self, compute_ns: f64) {
        self.recording.compute_ns = compute_ns;
        self.loading = false;
    }

    /// Whether enough is recorded.
    pub(crate) fn full(&self) -> bool {
        self.recording.windows.len() >= self.size.windows
    }

    /// How much of the recording is done.
    pub(crate) fn done(&self) -> f64 {
        self.recording.windows.len() as f64 / self.size.windows as f64
    }

    /// From now on these bytes are hot, as whoever wrote the program knows.
    pub(crate) fn hot(&mut self, ranges: &[Range<u64>]) {
        let pages = ranges.iter().map(|r| (r.start / PAGE) as u32..r.end.div_ceil(PAGE) as u32).collect();
        self.recording.hot.push((self.recording.windows.len(), pages));
    }

    /// A line that is waited for.
    pub(crate) fn read(&mut self, at: u64) {
        self.touch(at, 1, false, true);
    }

    /// A line that is waited for, and written.
    pub(crate) fn write(&mut self, at: u64) {
        self.touch(at, 1, true, true);
    }

    /// Bytes read in order.
    pub(crate) fn stream_read(&mut self, at: u64, bytes: u64) {
        self.stream(at, bytes, false);
    }

    /// Bytes written in order.
    pub(crate) fn stream_write(&mut self, at: u64, bytes: u64) {
        self.stream(at, bytes, true);
    }

    fn stream(&mut self, at: u64, bytes: u64, write: bool) {
        let mut at = at;
        let end = at + bytes;
        while at < end {
            let next = ((at / PAGE + 1) * PAGE).min(end);
            self.touch(at, (next - at).div_ceil(LINE) as u16, write, false);
            at = next;
        }
    }

    fn touch(&mut self, at: u64, lines: u16, write: bool, waited: bool) {
        let page = (at / PAGE) as usize;
        if !self.known[page] && self.loading {
            self.known[page] = true;
            self.recording.loaded.push(page as u32);
        }
        if self.loading {
            return;
        }
        let touch = &mut self.counts[page];
        if touch.random == 0 && touch.stream == 0 {
            touch.page = page as u32;
            self.touched.push(page as u32);
        }
        let kind = if waited { &mut touch.random } else { &mut touch.stream };
        *kind = kind.saturating_add(lines);
        if write {
            touch.written = touch.written.saturating_add(lines);
        }
        self.quarters += u32::from(lines) * if waited { 4 } else { 1 };
        if self.quarters >= self.size.window * 4 {
            self.close();
        }
    }

    fn close(&mut self) {
        self.quarters = 0;
        if self.full() {
            return;
        }
        self.touched.sort_unstable();
        let counts = &mut self.counts;
        let take = |page: &u32| std::mem::take(&mut counts[*page as usize]);
        let window: Box<[Touch]> = self.touched.iter().map(take).collect();
        self.recording.windows.push(window);
        self.touched.clear();
    }

    fn finish(mut self) -> Recording {
        self.recording.pages = (self.next / PAGE) as u32;
        self.recording
    }
}

/// Numbers with a Zipf distribution: rank 0 is the commonest.
pub(crate) struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(count: usize, skew: f64) -> Zipf {
        let mut sum = 0.0;
        let cumulative = (1..=count).map(|rank| {
            sum += (rank as f64).powf(-skew);
            sum
        });
        Zipf { cumulative: cumulative.collect() }
    }

    pub(crate) fn draw(&self, random: &mut fastrand::Rng) -> usize {
        let at = random.f64() * self.cumulative.last().copied().unwrap_or(1.0);
        self.cumulative.partition_point(|sum| *sum < at).min(self.cumulative.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_record_what_they_touch_and_nothing_else() {
        for program in &ALL {
            let size = Size { scale: 1 << 17, windows: 20, window: 2000, seed: 3 };
            let recording = program.record(size);
            assert_eq!(recording.windows.len(), 20, "{}", program.name);
            let wanted = program.bytes / size.scale / PAGE;
            let pages = u64::from(recording.pages);
            assert!(
                pages * 10 >= wanted * 8 && pages * 10 <= wanted * 12,
                "{}: {pages} of {wanted}",
                program.name
            );
            for window in &recording.windows {
                assert!(window.windows(2).all(|pair| pair[0].page < pair[1].page));
                assert!(window.iter().all(|touch| touch.page < recording.pages));
                assert!(window.iter().all(|touch| touch.random > 0 || touch.stream > 0));
                let quarters: u32 =
                    window.iter().map(|t| u32::from(t.random) * 4 + u32::from(t.stream)).sum();
                assert!((8000..8300).contains(&quarters), "{}: {quarters}", program.name);
            }
            let again = program.record(size);
            assert_eq!(again.windows, recording.windows, "{}", program.name);
        }
    }

    #[test]
    fn the_first_of_a_zipf_distribution_come_most_often() {
        let zipf = Zipf::new(1000, 0.99);
        let mut random = fastrand::Rng::with_seed(1);
        let mut counts = vec![0; 1000];
        (0..100_000).for_each(|_| counts[zipf.draw(&mut random)] += 1);
        assert!(counts[0] > 10_000 && counts[0] < 15_000, "{}", counts[0]);
        assert!(counts[0] > counts[9] * 7 && counts[9] > counts[99] * 7);
    }
}

//! What the machine can do at this moment: its memory's bandwidth and its multiply-adds, measured as kernels are.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::Instant;

use tiercel_kernels::simd;

/// The size of a huge page.
const HUGE: usize = 2 << 20;

/// Memory in huge pages where the system has them, as regions are.
pub struct Pages {
    all: Vec<u64>,
    first: usize,
    len: usize,
}

impl Pages {
    /// So many bytes of it. All are written once: what never was is one page of zeros to the system, and in a cache.
    pub fn new(len: usize) -> Pages {
        let all = vec![0u64; (len + 2 * HUGE) / 8];
        let first = all.as_ptr().cast::<u8>().align_offset(HUGE);
        // SAFETY: advice about pages of the vector, which has room for two more.
        unsafe {
            let start = all.as_ptr().cast::<u8>().add(first);
            libc::madvise(start.cast_mut().cast(), len.next_multiple_of(HUGE), libc::MADV_HUGEPAGE);
        }
        let mut pages = Pages { all, first, len };
        pages.bytes().fill(0);
        pages
    }

    /// All of it.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.all)[self.first..self.first + self.len]
    }
}

/// A clock: of this thread's own time where one thread works, so that others on the machine do not count, and of the
/// wall otherwise.
#[derive(Clone, Copy)]
pub struct Clock {
    own: bool,
    began: Instant,
}

impl Clock {
    /// The clock for so many threads.
    pub fn new(threads: usize) -> Clock {
        Clock { own: threads == 1, began: Instant::now() }
    }

    /// Seconds on it.
    pub fn seconds(self) -> f64 {
        if !self.own {
            return self.began.elapsed().as_secs_f64();
        }
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the system writes the time to where it may.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    }
}

/// Runs something on all threads at once, some rounds, and returns the seconds of the best. One thread reads its own
/// clock.
fn best(threads: usize, rounds: usize, work: impl Fn(usize) + Sync) -> f64 {
    let clock = Clock::new(threads);
    let round = |_| {
        let start = clock.seconds();
        std::thread::scope(|s| {
            (1..threads).for_each(|index| {
                drop(s.spawn({
                    let work = &work;
                    move || work(index)
                }))
            });
            work(0);
        });
        clock.seconds() - start
    };
    (0..rounds).map(round).fold(f64::INFINITY, f64::min)
}

/// What the machine can do at this moment.
pub struct Machine {
    threads: usize,
    memory: Vec<Mutex<[Pages; 2]>>,
}

/// Bytes that are read and written, at least, to find the bandwidth of memory.
const MUCH: usize = 128 << 20;

impl Machine {
    /// With memory for so many threads.
    pub fn new(threads: usize) -> Machine {
        let mut machine = Machine { threads, memory: Vec::new() };
        machine.have(MUCH);
        machine
    }

    /// Sees to it that the bandwidth is that of so many bytes: far more than caches hold come more slowly than a little more.
    pub fn have(&mut self, bytes: usize) {
        let each = bytes.max(MUCH).next_multiple_of(2 * 64 * self.threads) / 2 / self.threads;
        if self.each() != each {
            self.take(each);
        }
    }

    /// Takes as much memory anew: what there was goes back to the system.
    pub fn renew(&mut self) {
        self.take(self.each());
    }

    /// Bytes of either array of a thread.
    fn each(&self) -> usize {
        self.memory.first().map_or(0, |one| one.lock().expect("nobody else")[0].len)
    }

    fn take(&mut self, each: usize) {
        self.memory.clear();
        self.memory.extend((0..self.threads).map(|_| Mutex::new([0; 2].map(|_| Pages::new(each)))));
    }

    /// The best multiply-adds of all threads in some rounds, in operations a second.
    pub fn peak(&self, rounds: usize) -> f64 {
        const TIMES: usize = 1000;
        let tile = simd::Tile::here();
        let a = vec![0.5f32; 256 * tile.rows];
        let b = vec![0.5f32; 256 * tile.columns()];
        let seconds = best(self.threads, rounds, |_| {
            let mut out = [0f32; simd::Tile::MOST];
            for _ in 0..TIMES {
                simd::product(256, tile.rows, 2, black_box(&a), black_box(&b), &mut out);
            }
            black_box(out);
        });
        (self.threads * TIMES * 2 * 256 * tile.rows * tile.columns()) as f64 / seconds
    }

    /// The best bandwidth of all threads in some rounds: bytes read and written by y = 2 x over much memory.
    pub fn bandwidth(&self, rounds: usize) -> f64 {
        let seconds = best(self.threads, rounds, |index| {
            let [x, y] = &mut *self.memory[index].lock().expect("one thread each");
            let [x, y]: [&mut [f32]; 2] = [x, y].map(|pages| bytemuck::cast_slice_mut(pages.bytes()));
            y.iter_mut().zip(&*x).for_each(|(y, x)| *y = 2.0 * x);
            black_box(y);
        });
        let all = self.memory.iter().map(|one| 2 * one.lock().expect("nobody else")[0].len).sum::<usize>();
        all as f64 / seconds
    }
}

//! The page lists against ones that are kept in the simplest way.

use tiercel_policies::pages::{Exchange, Frame, Pages};
use tiercel_testbed::for_seeds;

/// One page: where it lies, and whether it was touched or moves.
#[derive(Clone, Copy, PartialEq)]
struct Page {
    frame: Frame,
    touched: bool,
    moving: bool,
}

/// Lists as vectors, the oldest first.
struct Naive {
    size: u64,
    frames: usize,
    taken: usize,
    pages: Vec<Page>,
    fast: [Vec<u32>; 2],
    slow: [Vec<u32>; 2],
}

impl Naive {
    fn touch(&mut self, address: u64, bytes: u64) -> u64 {
        let mut fast = 0;
        for byte in address..address + bytes {
            let at = (byte / self.size) as usize;
            if self.pages[at].frame == Frame::Unmapped {
                let free = self.taken < self.frames;
                self.taken += usize::from(free);
                self.pages[at].frame = if free { Frame::Fast } else { Frame::Slow };
                (if free { &mut self.fast } else { &mut self.slow })[1].push(at as u32);
            }
            self.pages[at].touched = true;
            fast += u64::from(self.pages[at].frame == Frame::Fast);
        }
        fast
    }

    fn scan(&mut self) -> Vec<Exchange> {
        let touched = |pages: &[Page], page: u32| pages[page as usize].touched;
        let cold: Vec<u32> = self.fast[0].iter().copied().filter(|p| !touched(&self.pages, *p)).collect();
        let hot: Vec<u32> = self.slow[1].iter().copied().filter(|p| touched(&self.pages, *p)).collect();
        for [inactive, active] in [&mut self.fast, &mut self.slow] {
            let (back, rest): (Vec<u32>, Vec<u32>) =
                inactive.iter().copied().partition(|page| touched(&self.pages, *page));
            *inactive = rest;
            active.extend(back);
            while active.len() > inactive.len() {
                inactive.push(active.remove(0));
            }
            for page in active.iter().chain(inactive.iter()) {
                self.pages[*page as usize].touched = false;
            }
        }
        let still = |page: &u32| !self.pages[*page as usize].moving;
        let mut places = vec![None; self.frames - self.taken];
        places.extend(cold.into_iter().filter(still).map(Some));
        hot.into_iter().filter(still).zip(places).map(|(up, down)| Exchange { up, down }).collect()
    }

    fn finish(&mut self, exchange: Exchange) {
        for list in self.fast.iter_mut().chain(&mut self.slow) {
            list.retain(|page| *page != exchange.up && Some(*page) != exchange.down);
        }
        self.pages[exchange.up as usize] =
            Page { frame: Frame::Fast, moving: false, ..self.pages[exchange.up as usize] };
        self.fast[1].push(exchange.up);
        if let Some(down) = exchange.down {
            self.pages[down as usize] =
                Page { frame: Frame::Slow, moving: false, ..self.pages[down as usize] };
            self.slow[0].push(down);
        }
    }

    fn moving(&mut self, exchange: Exchange, moving: bool) {
        self.pages[exchange.up as usize].moving = moving;
        match exchange.down {
            Some(down) => self.pages[down as usize].moving = moving,
            None if moving => self.taken += 1,
            None => self.taken -= 1,
        }
    }
}

#[test]
fn lists_behave_like_vectors() {
    for_seeds(300, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let (size, count) = (random.u64(1..20), random.u64(1..60));
        let frames = random.u64(0..count);
        let unmapped = Page { frame: Frame::Unmapped, touched: false, moving: false };
        let mut naive = Naive {
            size,
            frames: frames as usize,
            taken: 0,
            pages: vec![unmapped; count as usize],
            fast: [Vec::new(), Vec::new()],
            slow: [Vec::new(), Vec::new()],
        };
        let mut pages = Pages::new(size, frames * size);
        let mut flying: Vec<Exchange> = Vec::new();
        for _ in 0..300 {
            match random.u8(0..10) {
                0..6 => {
                    let address = random.u64(0..count * size);
                    let bytes = random.u64(0..=(count * size - address).min(3 * size));
                    assert_eq!(pages.touch(address, bytes), naive.touch(address, bytes));
                }
                6 | 7 => {
                    let found = pages.scan();
                    assert_eq!(found, naive.scan());
                    for exchange in found.into_iter().take(random.usize(0..5)) {
                        pages.begin(exchange);
                        naive.moving(exchange, true);
                        flying.push(exchange);
                    }
                }
                _ if flying.is_empty() => {}
                8 => {
                    let exchange = flying.swap_remove(random.usize(0..flying.len()));
                    pages.finish(exchange);
                    naive.finish(exchange);
                }
                _ => {
                    let exchange = flying.swap_remove(random.usize(0..flying.len()));
                    pages.give_up(exchange);
                    naive.moving(exchange, false);
                }
            }
            for page in 0..count as u32 {
                assert_eq!(pages.frame(page), naive.pages[page as usize].frame);
            }
        }
    });
}

//! Pages of one flat memory over two kinds of memory, with an operating system's active and inactive lists.
//!
//! The program sees addresses; a page of them lies in a fast or a slow frame, and the operating system sees no more
//! of its use than one bit that says whether anything touched it since it last looked. Each kind of memory has an
//! active and an inactive list, first in, first out, as Linux has them: the oldest active pages become inactive when
//! there are few inactive ones; an inactive page that was touched becomes active again; one that was not is cold.

const NONE: u32 = u32::MAX;

/// Where a page lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Nothing has touched it yet.
    Unmapped,
    /// In fast memory.
    Fast,
    /// In slow memory.
    Slow,
}

#[derive(Clone, Copy, Debug)]
struct Page {
    frame: Frame,
    active: bool,
    touched: bool,
    moving: bool,
    older: u32,
    newer: u32,
}

const UNMAPPED: Page =
    Page { frame: Frame::Unmapped, active: false, touched: false, moving: false, older: NONE, newer: NONE };

#[derive(Clone, Copy, Debug)]
struct List {
    oldest: u32,
    newest: u32,
    length: usize,
}

const EMPTY: List = List { oldest: NONE, newest: NONE, length: 0 };

/// A page that should change places with another one, or with an empty frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The hot page in slow memory.
    pub up: u32,
    /// The cold page in fast memory; `None` where a frame is free.
    pub down: Option<u32>,
}

/// The pages of one flat memory.
#[derive(Clone, Debug)]
pub struct Pages {
    size: u64,
    /// Fast frames in all, and taken ones.
    frames: usize,
    taken: usize,
    pages: Vec<Page>,
    /// For fast and slow memory, the inactive and the active list.
    lists: [[List; 2]; 2],
}

impl Pages {
    /// A memory of pages of this size, with room for so many bytes in fast memory.
    pub fn new(size: u64, fast: u64) -> Pages {
        let frames = (fast / size) as usize;
        Pages { size, frames, taken: 0, pages: Vec::new(), lists: [[EMPTY; 2]; 2] }
    }

    /// The size of a page.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// How many fast frames there are.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Where a page lies.
    pub fn frame(&self, page: u32) -> Frame {
        self.pages.get(page as usize).map_or(Frame::Unmapped, |page| page.frame)
    }

    /// Something touches a stretch: pages that were never touched get a frame, a fast one while there is one. Returns
    /// how many of the bytes lie in fast memory.
    pub fn touch(&mut self, address: u64, bytes: u64) -> u64 {
        let end = address + bytes;
        let mut fast = 0;
        let mut at = address;
        while at < end {
            let page = at / self.size;
            let next = ((page + 1) * self.size).min(end);
            if self.reach(page as usize) == Frame::Fast {
                fast += next - at;
            }
            at = next;
        }
        fast
    }

    fn reach(&mut self, at: usize) -> Frame {
        if at >= self.pages.len() {
            self.pages.resize(at + 1, UNMAPPED);
        }
        if self.pages[at].frame == Frame::Unmapped {
            let fast = self.taken < self.frames;
            self.taken += usize::from(fast);
            self.pages[at].frame = if fast { Frame::Fast } else { Frame::Slow };
            self.add(at as u32, true);
        }
        self.pages[at].touched = true;
        self.pages[at].frame
    }

    /// The operating system looks at all pages, and forgets what was touched. Returns what should change places: hot
    /// pages of slow memory with free frames, and then with cold pages of fast memory, the oldest first.
    pub fn scan(&mut self) -> Vec<Exchange> {
        let cold: Vec<u32> =
            self.walk(Frame::Fast, false).filter(|page| !self.pages[*page as usize].touched).collect();
        let hot: Vec<u32> =
            self.walk(Frame::Slow, true).filter(|page| self.pages[*page as usize].touched).collect();
        for frame in [Frame::Fast, Frame::Slow] {
            self.age(frame);
        }
        let free = self.frames - self.taken;
        let still = |page: &u32| !self.pages[*page as usize].moving;
        let places = std::iter::repeat_n(None, free).chain(cold.into_iter().filter(still).map(Some));
        hot.into_iter().filter(still).zip(places).map(|(up, down)| Exchange { up, down }).collect()
    }

    /// Moves pages between the lists of one memory.
    fn age(&mut self, frame: Frame) {
        let inactive: Vec<u32> = self.walk(frame, false).collect();
        for page in inactive {
            if std::mem::take(&mut self.pages[page as usize].touched) {
                self.remove(page);
                self.add(page, true);
            }
        }
        let list =
            |pages: &Pages, active: bool| pages.lists[usize::from(frame == Frame::Slow)][usize::from(active)];
        let all = list(self, true).length + list(self, false).length;
        // Linux: as many active pages for each inactive one as the square root of ten times the gigabytes.
        let gigabytes = (all as u64 * self.size) >> 30;
        let ratio = (10 * gigabytes).isqrt().max(1) as usize;
        while list(self, true).length > ratio * list(self, false).length {
            let oldest = list(self, true).oldest;
            self.remove(oldest);
            self.add(oldest, false);
            self.pages[oldest as usize].touched = false;
        }
        let active: Vec<u32> = self.walk(frame, true).collect();
        for page in active {
            self.pages[page as usize].touched = false;
        }
    }

    /// An exchange begins: its pages are not chosen again until it ends, and a free frame is taken.
    pub fn begin(&mut self, exchange: Exchange) {
        let Exchange { up, down } = exchange;
        self.pages[up as usize].moving = true;
        match down {
            Some(down) => self.pages[down as usize].moving = true,
            None => self.taken += 1,
        }
    }

    /// The bytes of an exchange have arrived: the hot page is fast and active now, the cold one slow and inactive.
    pub fn finish(&mut self, exchange: Exchange) {
        for (page, frame) in [(Some(exchange.up), Frame::Fast), (exchange.down, Frame::Slow)] {
            let Some(page) = page else { continue };
            self.remove(page);
            let entry = &mut self.pages[page as usize];
            (entry.frame, entry.moving) = (frame, false);
            self.add(page, frame == Frame::Fast);
        }
    }

    /// An exchange that has begun will not happen.
    pub fn give_up(&mut self, exchange: Exchange) {
        self.pages[exchange.up as usize].moving = false;
        match exchange.down {
            Some(down) => self.pages[down as usize].moving = false,
            None => self.taken -= 1,
        }
    }

    fn list(&mut self, page: u32) -> &mut List {
        let Page { frame, active, .. } = self.pages[page as usize];
        &mut self.lists[usize::from(frame == Frame::Slow)][usize::from(active)]
    }

    /// The pages of a list, the oldest first.
    fn walk(&self, frame: Frame, active: bool) -> impl Iterator<Item = u32> + '_ {
        let list = self.lists[usize::from(frame == Frame::Slow)][usize::from(active)];
        let start = Some(list.oldest).filter(|page| *page != NONE);
        std::iter::successors(start, |page| {
            Some(self.pages[*page as usize].newer).filter(|page| *page != NONE)
        })
    }

    /// Makes a page the newest of a list of its memory.
    fn add(&mut self, page: u32, active: bool) {
        self.pages[page as usize].active = active;
        let list = self.list(page);
        list.length += 1;
        let older = std::mem::replace(&mut list.newest, page);
        if older == NONE {
            list.oldest = page;
        } else {
            self.pages[older as usize].newer = page;
        }
        (self.pages[page as usize].older, self.pages[page as usize].newer) = (older, NONE);
    }

    fn remove(&mut self, page: u32) {
        let Page { older, newer, .. } = self.pages[page as usize];
        self.list(page).length -= 1;
        match newer {
            NONE => self.list(page).newest = older,
            newer => self.pages[newer as usize].older = older,
        }
        match older {
            NONE => self.list(page).oldest = newer,
            older => self.pages[older as usize].newer = newer,
        }
    }
}

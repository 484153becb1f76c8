//! What the kernel tells: pages that are missed, and memory that is unmapped, moved, given up or forked.

use crate::server::{PIECE, Server};
use crate::sys::{self, EAGAIN, EEXIST, ESRCH, Errno, File, PAGE, guard};
use crate::table::{Place, SPAN};

const FAULT: u64 = 0x12;
const FORK: u64 = 0x13;
const REMAP: u64 = 0x14;
const REMOVE: u64 = 0x15;
const UNMAP: u64 = 0x16;

/// What was told too early.
#[derive(Clone, Copy)]
pub(crate) enum Late {
    /// From where to where, and how many bytes.
    Moved(u64, u64, u64),
    /// From where to where pages were given up.
    GivenUp(u64, u64),
}

impl Late {
    /// The addresses that it is about.
    fn place(self) -> (u64, u64) {
        match self {
            Late::Moved(_, to, bytes) => (to, to + bytes),
            Late::GivenUp(start, end) => (start, end),
        }
    }
}

/// Faults that are held until events have been heard; who finds no place tries again.
const HELD: usize = 64;

/// No program has addresses above this.
const TOP: u64 = 1 << 47;

impl Server {
    /// Hears all that the kernel has to tell and serves faults; whether the doorbell was rung.
    pub(crate) fn listen(&mut self) -> bool {
        let mut faults = [(0u64, false); HELD];
        let mut count = 0;
        let mut bytes = [0u8; 32 * 16];
        // Faults are read before events, and may be about what events say: events first.
        while let Ok(length) = sys::read(self.guard, &mut bytes) {
            for message in bytes[..length.min(bytes.len())].chunks_exact(32) {
                let word = |at: usize| {
                    let mut word = [0u8; 8];
                    word.copy_from_slice(&message[at * 8..at * 8 + 8]);
                    u64::from_le_bytes(word)
                };
                match word(0) & 0xff {
                    FAULT if count < HELD => {
                        faults[count] = (word(2) & !(PAGE - 1), word(1) & 1 == 1);
                        count += 1;
                    }
                    FAULT => guard::wake(self.guard, word(2) & !(PAGE - 1), PAGE),
                    FORK => self.make_child_whole(File(word(1) as u32)),
                    REMAP => self.heard(Late::Moved(word(1), word(2), word(3))),
                    REMOVE => self.heard(Late::GivenUp(word(1), word(2))),
                    UNMAP => {
                        self.unmapped(word(1), word(2));
                        self.catch_up();
                    }
                    _ => {}
                }
            }
        }
        if let Some(what) = self.late[0]
            && !guard::is_changing(self.guard, self.room.range().1 - PAGE)
        {
            // All has been told, and what is known of the place is of nobody any more.
            let (start, end) = what.place();
            self.unmapped(start, end);
            self.catch_up();
        }
        let (first, bell) = (self.room.range().0, self.room.range().1 - PAGE);
        let mut rung = false;
        for (page, write) in &faults[..count] {
            match *page {
                page if page == bell => rung = true,
                // Nobody else knows of the room.
                page if page >= first && page < bell => guard::wake(self.guard, page, PAGE),
                page => self.serve(page, *write),
            }
        }
        rung
    }

    fn serve(&mut self, page: u64, write: bool) {
        self.counts.faults += 1;
        if self.late.iter().flatten().any(|late| late.place().0 <= page && page < late.place().1) {
            guard::wake(self.guard, page, PAGE);
            return;
        }
        if !self.ranges.has(page) {
            // A watched mapping that has grown.
            self.ranges.add(page, page + PAGE);
        }
        let ahead = self.streams.fault(page);
        let away = self.table.get(page).is_away();
        if away {
            self.table.warm(page, |heat| (heat + 1).min(8));
        }
        // Pages that were never touched come with others only where they are written one after another.
        let most = match (away, ahead.goes_on && write) {
            (true, _) => ahead.window,
            (false, true) => ahead.window.min(64),
            (false, false) => 1,
        };
        // What is brought begins with the page itself, or ends with it.
        let first = if ahead.down { self.down_from(page, most) } else { page };
        let window = if ahead.down { ((page - first) / PAGE) as u32 + 1 } else { most };
        let mut one = |first: u64, window: u32| match away {
            true => self.bring(first, window),
            false => self.fresh(first, write, window),
        };
        let done = match one(first, window) {
            // Something in between was there already.
            Ok(bytes) if first + bytes > page => Ok((first, bytes)),
            _ if first < page => one(page, 1).map(|bytes| (page, bytes)),
            other => other.map(|bytes| (first, bytes)),
        };
        match done {
            Ok((first, bytes)) => self.streams.brought(first, first + bytes),
            // It is there, or events must be heard first: who waits tries again.
            Err(_) => guard::wake(self.guard, page, PAGE),
        }
    }

    /// The first page that can be brought together with one above it.
    fn down_from(&self, page: u64, window: u32) -> u64 {
        let start = self.ranges.from(page).map_or(page, |range| range.start);
        let belongs = |below: u64| match (self.table.get(page - below * PAGE), self.table.get(page)) {
            (Place::File(one), Place::File(top)) => u64::from(one) + below == u64::from(top),
            (Place::Waiting(one), Place::Waiting(top)) => u64::from(one) + below == u64::from(top),
            (Place::Here | Place::Leaving, Place::Here | Place::Leaving) => true,
            _ => false,
        };
        let below = (1..u64::from(window))
            .take_while(|below| page - below * PAGE >= start && belongs(*below))
            .count();
        page - below as u64 * PAGE
    }

    /// A page that was never touched, or was given up: zeros.
    fn fresh(&mut self, page: u64, write: bool, window: u32) -> Result<u64, Errno> {
        self.make_room(u64::from(window) * PAGE);
        let mut pages = 1;
        while pages < u64::from(window)
            && self.ranges.has(page + pages * PAGE)
            && !self.table.get(page + pages * PAGE).is_away()
        {
            pages += 1;
        }
        let (done, error) = if write {
            let zeros = self.zeros.as_ptr() as u64;
            self.fill(page, zeros, pages * PAGE)
        } else {
            guard::zero(self.guard, page, PAGE)
        };
        for at in (0..done).step_by(PAGE as usize) {
            self.table.set(page + at, Place::Here);
        }
        if done > 0 { Ok(done) } else { Err(error.unwrap_or(EAGAIN)) }
    }

    /// Brings a page that is away, and those behind it that lie behind it there, too.
    pub(crate) fn bring(&mut self, page: u64, window: u32) -> Result<u64, Errno> {
        self.make_room(u64::from(window) * PAGE);
        match self.table.get(page) {
            Place::Here | Place::Leaving => Err(EEXIST),
            Place::Waiting(first) => {
                let pages = self.run(page, window, |at| Place::Waiting(first + at));
                let (done, error) = self.fill(page, self.room.address(first), pages * PAGE);
                self.back(page, done, error)
            }
            Place::File(first) => {
                let pages = self.run(page, window, |at| Place::File(first + at));
                let bytes = (pages * PAGE).min(PIECE) as usize;
                let got = loop {
                    match sys::read_at(self.file, &mut self.buffer[..bytes], u64::from(first) * PAGE) {
                        Err(sys::EINTR) => {}
                        other => break other,
                    }
                };
                let whole = got.map(|bytes| bytes as u64 / PAGE * PAGE);
                let Some(bytes) = whole.ok().filter(|bytes| *bytes > 0) else {
                    // The disk has lost it: the program is told as it would be by the kernel's own swap.
                    guard::poison(self.guard, page, PAGE)?;
                    self.table.set(page, Place::Here);
                    self.away -= 1;
                    return Ok(PAGE);
                };
                let (done, error) = self.fill(page, self.buffer.as_ptr() as u64, bytes);
                self.counts.came_back += PAGE.min(done);
                self.counts.ahead += done.saturating_sub(PAGE);
                self.back(page, done, error)
            }
        }
    }

    /// How many pages from one on are where a rule has them, and watched.
    fn run(&self, page: u64, most: u32, place: impl Fn(u32) -> Place) -> u64 {
        let end = self.ranges.from(page).map_or(page + PAGE, |range| range.end);
        let there = |at: u32| {
            let next = page + u64::from(at) * PAGE;
            next < end && self.table.get(next) == place(at)
        };
        (1..most).take_while(|at| there(*at)).count() as u64 + 1
    }

    /// Notes that pages came back.
    fn back(&mut self, page: u64, done: u64, error: Option<Errno>) -> Result<u64, Errno> {
        // What is there already is newer than what we have.
        let there = if done == 0 && error == Some(EEXIST) { PAGE } else { done };
        for at in (0..there).step_by(PAGE as usize) {
            if let Place::Waiting(_) = self.table.get(page + at) {
                self.counts.rescued += PAGE;
            }
            self.drop_page(page + at);
        }
        if done > 0 { Ok(done) } else { Err(error.unwrap_or(EAGAIN)) }
    }

    /// Forgets what we have of a page.
    fn drop_page(&mut self, page: u64) {
        match self.table.get(page) {
            Place::Here => return,
            Place::Leaving => {}
            Place::Waiting(at) => {
                self.room.give_to(at, 0);
                self.away -= 1;
            }
            Place::File(at) => {
                self.space.give(at);
                self.away -= 1;
            }
        }
        self.table.set(page, Place::Here);
    }

    fn for_pages(&mut self, start: u64, end: u64, mut each: impl FnMut(&mut Server, u64)) {
        let mut page = start;
        while page < end {
            let Some(noted) = self.table.noted(page, end) else { return };
            let stop = (noted / (1 << 30) + 1) * (1 << 30);
            page = noted;
            while page < stop.min(end) {
                each(self, page);
                page += PAGE;
            }
        }
    }

    fn unmapped(&mut self, start: u64, end: u64) {
        if start < end {
            self.for_pages(start, end, Server::drop_page);
            self.ranges.remove(start, end);
        }
    }

    /// The program gives pages up: they are zero from the next touch on. The kernel takes those that are there a moment
    /// after we have heard of it, so they must not be taken away before that, or they would come back.
    fn given_up(&mut self, start: u64, end: u64) {
        let mut page = start;
        while page < end {
            match self.table.get(page) {
                Place::Here if self.ranges.has(page) => {
                    self.table.set(page, Place::Leaving);
                }
                _ => self.drop_page(page),
            }
            if page == start || page.is_multiple_of(SPAN) {
                self.table.note_given_up(page, self.turn.max(1));
            }
            page += PAGE;
        }
    }

    /// Threads tell what they have done a moment after it is done, so that one may overtake another: memory that goes to where
    /// something is known of waits until that is told to have gone, and so does what is said of it meanwhile. Pages cannot
    /// be moved before all has been told, so nobody sees the difference.
    fn heard(&mut self, what: Late) {
        let (start, end) = what.place();
        let taken =
            matches!(what, Late::Moved(..)) && self.ranges.from(start).is_some_and(|range| range.start < end);
        let waits =
            taken || self.late.iter().flatten().any(|other| other.place().0 < end && other.place().1 > start);
        match self.late.iter_mut().find(|free| free.is_none()) {
            Some(free) if waits => *free = Some(what),
            _ => self.apply(what),
        }
        self.catch_up();
    }

    fn apply(&mut self, what: Late) {
        match what {
            Late::Moved(from, to, bytes) => self.moved(from, to, bytes),
            Late::GivenUp(start, end) => self.given_up(start, end),
        }
    }

    /// Does what has waited and can be done now, in order.
    fn catch_up(&mut self) {
        while let Some(what) = self.late[0] {
            let (start, end) = what.place();
            let taken = self.ranges.from(start).is_some_and(|range| range.start < end);
            if taken && matches!(what, Late::Moved(..)) {
                return;
            }
            self.late.rotate_left(1);
            *self.late.last_mut().unwrap_or(&mut None) = None;
            self.apply(what);
        }
    }

    fn moved(&mut self, from: u64, to: u64, bytes: u64) {
        let mut at = 0;
        while at < bytes {
            let place = self.table.get(from + at);
            if place != Place::Here {
                // Without a place to note it the page would be lost: it takes memory, and memory comes.
                while !self.table.set(to + at, place) {
                    sys::sleep_while(&self.start.shared.ready, 1, 10_000_000);
                }
                if let Place::Waiting(waiting) = place {
                    self.room.give_to(waiting, to + at);
                }
                if place == Place::Leaving {
                    self.table.note_given_up(to + at, self.turn.max(1));
                }
                self.table.set(from + at, Place::Here);
            }
            at += PAGE;
        }
        // It is told of watched mappings alone, whatever we knew of it.
        self.ranges.remove(from, from + bytes);
        self.ranges.add(to, to + bytes);
    }

    /// Brings everything back, whatever the limit; nothing is taken away until it has been let go.
    pub(crate) fn bring_all_back(&mut self) {
        self.all_back = true;
        self.room.hand_over();
        let mut page = 0;
        while self.away > 0 {
            let Some(noted) = self.table.noted(page, TOP) else {
                // Somebody's memory was moved to where we had been.
                page = 0;
                continue;
            };
            page = noted;
            if !self.table.get(page).is_away() {
                page += PAGE;
                continue;
            }
            match self.bring(page, (PIECE / PAGE) as u32) {
                Ok(bytes) => page += bytes,
                Err(_) => {
                    self.listen();
                }
            }
        }
        while !self.room.is_empty() {
            if !self.recycle() {
                self.room.wait(1_000_000);
                self.listen();
            }
        }
    }

    /// A child that was forked behind the C library's back gets all that is away, and is on its own then.
    fn make_child_whole(&mut self, child: File) {
        let mut page = 0;
        while let Some(noted) = self.table.noted(page, TOP) {
            page = noted;
            let most = (PIECE / PAGE) as u32;
            let (pages, from) = match self.table.get(page) {
                Place::Here | Place::Leaving => {
                    page += PAGE;
                    continue;
                }
                Place::Waiting(first) => {
                    (self.run(page, most, |at| Place::Waiting(first + at)), self.room.address(first))
                }
                Place::File(first) => {
                    let pages = self.run(page, most, |at| Place::File(first + at));
                    let piece = &mut self.buffer[..(pages * PAGE) as usize];
                    match sys::read_at(self.file, piece, u64::from(first) * PAGE) {
                        Ok(bytes) if bytes as u64 >= PAGE => {
                            (bytes as u64 / PAGE, self.buffer.as_ptr() as u64)
                        }
                        Err(sys::EINTR) => continue,
                        _ => {
                            // As above; where it has ended meanwhile nobody minds.
                            let _ = guard::poison(child, page, PAGE);
                            page += PAGE;
                            continue;
                        }
                    }
                }
            };
            match guard::copy(child, page, from, pages * PAGE) {
                (0, Some(ESRCH)) => break,
                // One that the child has, or no longer has a place for.
                (0, Some(error)) if error != EAGAIN => page += PAGE,
                (done, _) => page += done,
            }
        }
        self.start.slot.raw_forks.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        // Closed, its memory is its own, and who waits for a page that we do not have gets zeros.
        sys::close(child);
    }
}

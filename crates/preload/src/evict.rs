//! Taking pages away: first what was passed by streams, then in turn what was not missed lately.

use core::sync::atomic::Ordering;

use crate::server::Server;
use crate::sys::{self, EAGAIN, EBUSY, EEXIST, PAGE, Run, guard};
use crate::table::{Place, SPAN};

/// The least that is taken at once.
const LEAST: u64 = 32;

/// Turns after which pages that the program gave up are surely gone, or in use again.
const SETTLED: u32 = 1000;

impl Server {
    /// Makes room for so many more bytes, before they are needed where that is possible.
    pub(crate) fn make_room(&mut self, need: u64) {
        if self.all_back {
            return;
        }
        let (goal, room) = (self.goal, self.room.capacity());
        let mut rounds = 0;
        self.refusals = 0;
        // The room itself is full of what may be given up at once, and that is part of the limit.
        while self.pause == 0 && rounds < 8 {
            let over = (self.resident + need + room).saturating_sub(goal + self.room.held());
            if over == 0 || (self.room.left() == 0 && !self.recycle()) {
                break;
            }
            let wanted = (over / PAGE).clamp(LEAST, u64::from(crate::room::BATCH));
            if self.take_away(wanted) == 0 {
                // Nothing can be taken now: asked again a little later.
                self.pause = self.pause.max(1);
                break;
            }
            rounds += 1;
        }
        while self.resident + need + goal / 64 > goal {
            if !self.recycle() {
                break;
            }
        }
        // Whoever is faster than the disk waits for it, but not for ever.
        let mut waits = 0;
        while self.pause == 0 && self.resident + need > goal + goal / 32 && waits < 25 {
            self.room.hand_over();
            if !self.recycle() {
                if !self.room.is_writing() {
                    break;
                }
                self.room.wait(2_000_000);
                waits += 1;
            }
        }
    }

    /// Takes up to so many pages from the program; how many it were.
    fn take_away(&mut self, wanted: u64) -> u64 {
        let mut taken = 0;
        let long = self.goal / 2;
        while taken < wanted {
            let kept = (self.goal / 8).max(4 << 20);
            let Some((from, to)) = self.streams.behind(long, kept, wanted * PAGE) else { break };
            let from = from.next_multiple_of(PAGE);
            let (pages, stop) = self.take_from(from, to & !(PAGE - 1), wanted - taken);
            self.counts.behind += pages * PAGE;
            taken += pages;
            if stop {
                return taken;
            }
        }
        let mut tries = self.ranges.bytes() / SPAN * 4 + 2 * self.ranges.all().len() as u64;
        while taken < wanted && tries > 0 {
            tries -= 1;
            let Some(range) = self.ranges.from(self.hand).or_else(|| self.ranges.from(0)) else { break };
            let start = if range.end > self.hand { self.hand.max(range.start) } else { range.start };
            let end = ((start / SPAN + 1) * SPAN).min(range.end);
            self.hand = end;
            if self.table.heat(start) > 0 {
                // Another chance for what was missed lately.
                self.table.warm(start, |heat| heat.saturating_sub(1));
                continue;
            }
            let (pages, stop) = self.take_from(start, end, wanted - taken);
            taken += pages;
            if stop || taken >= wanted {
                // There may be more in this span.
                self.hand = start;
                return taken;
            }
        }
        taken
    }

    /// Takes pages from a range; how many, and whether no more can be taken now.
    fn take_from(&mut self, start: u64, end: u64, wanted: u64) -> (u64, bool) {
        let mut runs = [Run::default(); 64];
        let Ok(count) = sys::present(self.pagemap, start, end, &mut runs) else { return (0, false) };
        let mut taken = 0;
        for run in &runs[..count] {
            let mut page = run.start;
            while page < run.end {
                if taken >= wanted {
                    return (taken, false);
                }
                let pages = self.takeable(page, run.end.min(page + (wanted - taken) * PAGE));
                if pages == 0 {
                    page += PAGE;
                    continue;
                }
                match self.carry(page, pages) {
                    Some(0) => page += PAGE,
                    Some(pages) => {
                        taken += pages;
                        page += pages * PAGE;
                    }
                    None => return (taken, true),
                }
            }
        }
        (taken, false)
    }

    /// How many pages from one on may be taken away.
    fn takeable(&self, from: u64, end: u64) -> u64 {
        let may = |page: u64| match self.table.get(page) {
            Place::Here => self.ranges.has(page) && !self.streams.expects(page),
            Place::Leaving => {
                let since = self.turn.wrapping_sub(self.table.given_up(page));
                self.ranges.has(page) && since > SETTLED
            }
            // It is there and we have it, too: never both.
            Place::Waiting(_) | Place::File(_) => false,
        };
        (from..end).step_by(PAGE as usize).take_while(|page| may(*page)).count() as u64
    }

    /// Carries pages into the room; how many, or nothing where no more can be taken now.
    fn carry(&mut self, page: u64, pages: u64) -> Option<u64> {
        let wanted = pages.min(u64::from(self.room.left()));
        if wanted == 0 || !self.table.can_note(page) || !self.table.can_note(page + (pages - 1) * PAGE) {
            return None;
        }
        let (file, length) = match self.space.take(wanted as u32) {
            Some(run) => run,
            None => {
                // The file has all that it may have.
                self.start.slot.write_error.store(28, Ordering::Relaxed);
                self.pause = 100;
                return None;
            }
        };
        let to = self.room.address(self.room.next());
        let (mut done, error) = guard::carry(self.guard, to, page, u64::from(length) * PAGE);
        if done == 0 && error == Some(EBUSY) && self.table.given_up(page) == 0 {
            // After a fork pages are shared until they are written to: these are made ours alone.
            let bytes = u64::from(length) * PAGE;
            done = sys::own_pages(page, bytes).map_or(0, |()| guard::carry(self.guard, to, page, bytes).0);
        }
        if done == 0 && error == Some(EBUSY) {
            // A device uses it, or others do: no use in asking for thousands of them.
            self.refusals += 1;
            if self.refusals > 64 {
                self.pause = 10;
            }
        }
        let pages = done / PAGE;
        for at in 0..pages {
            self.table.set(page + at * PAGE, Place::Waiting(self.room.next()));
            self.room.enter(page + at * PAGE, file + at as u32);
        }
        (pages as u32..length).for_each(|at| self.space.give(file + at));
        self.away += pages;
        self.counts.went_out += done;
        if pages == 0 && (error == Some(EAGAIN) || self.pause > 0) { None } else { Some(pages) }
    }

    /// Frees the oldest batch of the room, where it has been written; whether there was one.
    pub(crate) fn recycle(&mut self) -> bool {
        let Some(done) = self.room.done() else { return false };
        let pages = done.pages.clone();
        for page in pages.clone() {
            let (owner, file) = (self.room.owner(page), self.room.file(page));
            if done.error.is_some() && owner != 0 {
                // It cannot be written: back to the program with it.
                match self.fill(owner, self.room.address(page), PAGE) {
                    (PAGE, _) | (_, Some(EEXIST)) => {
                        self.table.set(owner, Place::Here);
                        self.room.give_to(page, 0);
                        self.away -= 1;
                    }
                    // Events must be heard first.
                    _ => return false,
                }
                self.space.give(file);
            } else if owner != 0 {
                self.table.set(owner, Place::File(file));
            } else if done.error.is_none() {
                self.space.give(file);
            }
        }
        if let Some(error) = done.error {
            self.start.slot.write_error.store(error.0 as u32, Ordering::Relaxed);
            // The disk may have room again in a second.
            self.pause = 200;
        }
        let bytes = u64::from(pages.end - pages.start) * PAGE;
        // Forgotten while it is not watched, so that we need not tell ourselves of it.
        let _ = guard::unregister(self.guard, done.base, bytes);
        let _ = sys::forget(done.base, bytes);
        let _ = guard::register(self.guard, done.base, bytes);
        self.resident = self.resident.saturating_sub(bytes);
        self.room.recycle();
        true
    }
}

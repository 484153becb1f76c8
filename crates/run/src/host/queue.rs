//! The bookkeeping of copies: who waits for whom, whose turn it is on each lane, which chunk comes next.
//!
//! A lane is one direction between two tiers. Copies whose predecessors have ended stand in line there, first come
//! first served; all threads of the lane take chunks of the copy at the head, and when it has none left to hand
//! out, of the next. Nothing here locks, blocks or moves a byte, and nothing allocates unless more copies are
//! outstanding than ever before: [`super::engine`] adds the threads.

use std::collections::{HashMap, VecDeque};
use std::mem;

use tiercel_core::{Bytes, CopyError, CopyOrder, Nanos, Place, Span, Ticket};

/// A part of a copy that one thread moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    slot: u32,
    /// The lane that the copy is on.
    pub(crate) lane: usize,
    /// Where the bytes of this chunk are.
    pub(crate) from: Place,
    /// Where they go.
    pub(crate) to: Place,
    /// How many there are in this chunk.
    pub(crate) bytes: Bytes,
    /// How many there are in the whole copy.
    pub(crate) whole: Bytes,
    /// When the copy became ready to run.
    pub(crate) since: Nanos,
}

/// One copy, from its start until it is forgotten.
#[derive(Debug)]
struct Job {
    ticket: u64,
    lane: usize,
    from: Place,
    to: Place,
    bytes: u64,
    chunk: u64,
    /// Whether a chunk is handed out only when the one before it has been moved.
    in_turn: bool,
    /// How many bytes have been handed out.
    handed: u64,
    /// How many chunks are being moved.
    flying: u32,
    /// How many copies must still end before this one may begin.
    pending: u32,
    since: Nanos,
    /// When its lane took it up, once it has.
    began: Option<Nanos>,
    /// When it ended, once it has.
    over: Nanos,
    /// The copies that had to end first, by ticket.
    after: Vec<u64>,
    /// The copies that wait for this one, by slot.
    followers: Vec<u32>,
    error: Option<CopyError>,
    ended: bool,
    cancelled: bool,
    forgotten: bool,
    /// Whether a thread sleeps until this copy ends.
    awaited: bool,
}

/// One direction between two tiers.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// How many threads may move chunks at once.
    pub(crate) threads: u32,
    /// Whether each of them keeps a core busy, so that one more is worth waking only after a while.
    pub(crate) patient: bool,
    /// How many do.
    pub(crate) active: u32,
    /// How many bytes they move at the moment, and how many they may where there is more than one chunk.
    flight: u64,
    window: Option<u64>,
    /// How many of the lane's own threads sleep for want of work.
    pub(crate) idle: u32,
    /// Whether one of them has been called and has not looked yet.
    pub(crate) called: bool,
    /// How many threads the lane has of its own, once they have been started.
    pub(crate) staff: Option<u32>,
    /// When it last had moved a chunk.
    moved: Nanos,
    /// The copies that have chunks to hand out, by slot and ticket; some may have been cancelled meanwhile.
    line: VecDeque<(u32, u64)>,
}

/// Every copy that has not been forgotten, and every lane.
#[derive(Debug)]
pub(crate) struct Queue {
    jobs: Vec<Job>,
    free: Vec<u32>,
    slots: HashMap<u64, u32>,
    last: u64,
    lanes: Vec<Lane>,
    /// Copies that are about to end; empty between calls.
    ending: Vec<u32>,
    /// Lanes that may have work for one more of their threads.
    stirred: Vec<usize>,
    /// Whether an awaited copy has ended since last asked.
    news: bool,
}

/// Room for this many copies is made at the start.
const COPIES: usize = 256;

impl Queue {
    /// An empty queue with lanes of so many threads each, patient or not.
    pub(crate) fn new(lanes: &[(u32, bool)]) -> Queue {
        let lane = |&(threads, patient): &(u32, bool)| Lane { threads, patient, ..Lane::default() };
        let lanes: Vec<Lane> = lanes.iter().map(lane).collect();
        Queue {
            jobs: Vec::with_capacity(COPIES),
            free: Vec::with_capacity(COPIES),
            slots: HashMap::with_capacity(COPIES),
            last: 0,
            ending: Vec::with_capacity(COPIES),
            stirred: Vec::with_capacity(lanes.len().min(COPIES)),
            lanes,
            news: false,
        }
    }

    /// No more than so many bytes of this lane are in flight from now on, but for a chunk that is alone, and only half as
    /// many where they are of several copies.
    pub(crate) fn limit(&mut self, lane: usize, window: u64) {
        self.lanes[lane].window = Some(window);
    }

    /// So many threads may move chunks of this lane at once from now on, of those that it began with.
    pub(crate) fn allow(&mut self, lane: usize, threads: u32) {
        self.lanes[lane].threads = threads;
    }

    /// Adds a copy that moves in chunks of so many bytes, one after the other if so said.
    pub(crate) fn add(
        &mut self,
        order: &CopyOrder<'_>,
        lane: usize,
        (chunk, in_turn): (u64, bool),
        now: Nanos,
    ) -> Ticket {
        assert!(chunk > 0, "a chunk has at least one byte");
        self.last += 1;
        let ticket = self.last;
        let slot = self.fresh();
        let job = &mut self.jobs[slot as usize];
        (job.ticket, job.lane, job.bytes, job.chunk) = (ticket, lane, order.bytes.0, chunk);
        (job.from, job.to, job.in_turn) = (order.from, order.to, in_turn);
        self.slots.insert(ticket, slot);
        for earlier in order.after {
            let Some(&before) = self.slots.get(&earlier.0).filter(|&&s| s != slot) else { continue };
            let [before, job] =
                self.jobs.get_disjoint_mut([before as usize, slot as usize]).expect("two copies");
            match (before.ended, &before.error) {
                (false, _) => {
                    before.followers.push(slot);
                    job.after.push(earlier.0);
                    job.pending += 1;
                }
                (true, Some(error)) => {
                    job.error = Some(job.error.take().unwrap_or(inherited(earlier.0, error)))
                }
                (true, None) => {}
            }
        }
        if self.jobs[slot as usize].pending == 0 {
            self.ready(slot, now);
            self.settle(now);
        }
        Ticket(ticket)
    }

    /// A slot for a new copy, cleared but for the room of its lists.
    fn fresh(&mut self) -> u32 {
        let nowhere = Place { tier: Default::default(), offset: Bytes::ZERO };
        let (slot, after, followers) = match self.free.pop() {
            Some(slot) => {
                let job = &mut self.jobs[slot as usize];
                (slot, mem::take(&mut job.after), mem::take(&mut job.followers))
            }
            None => (self.jobs.len() as u32, Vec::with_capacity(4), Vec::with_capacity(4)),
        };
        let job = Job {
            ticket: 0,
            lane: 0,
            from: nowhere,
            to: nowhere,
            bytes: 0,
            chunk: 0,
            in_turn: false,
            handed: 0,
            flying: 0,
            pending: 0,
            since: Nanos::ZERO,
            began: None,
            over: Nanos::ZERO,
            after,
            followers,
            error: None,
            ended: false,
            cancelled: false,
            forgotten: false,
            awaited: false,
        };
        match self.jobs.get_mut(slot as usize) {
            Some(old) => *old = job,
            None => self.jobs.push(job),
        }
        slot
    }

    /// Takes the next chunk of a lane, unless as many threads as it may have are at work.
    pub(crate) fn take(&mut self, lane: usize) -> Option<Chunk> {
        let at = &mut self.lanes[lane];
        if at.active >= at.threads {
            return None;
        }
        while let Some(&(slot, ticket)) = at.line.front() {
            let job = &mut self.jobs[slot as usize];
            if job.ticket != ticket || job.handed == job.bytes {
                at.line.pop_front();
                continue;
            }
            if job.in_turn && job.flying > 0 {
                return None;
            }
            let bytes = job.chunk.min(job.bytes - job.handed);
            let alone = job.flying == at.active;
            let full = |window: u64| at.flight + bytes > if alone { window } else { window / 2 };
            if at.active > 0 && at.window.is_some_and(full) {
                return None;
            }
            let chunk = Chunk {
                slot,
                lane,
                from: Place { offset: job.from.offset + Bytes(job.handed), ..job.from },
                to: Place { offset: job.to.offset + Bytes(job.handed), ..job.to },
                bytes: Bytes(bytes),
                whole: Bytes(job.bytes),
                since: job.since,
            };
            // No clock is read for that: it was ready, and what stood in line before it had been moved.
            job.began.get_or_insert(job.since.max(at.moved));
            job.handed += bytes;
            job.flying += 1;
            at.active += 1;
            at.flight += bytes;
            if job.handed == job.bytes {
                at.line.pop_front();
            }
            return Some(chunk);
        }
        None
    }

    /// Takes note that a chunk has been moved, or not.
    pub(crate) fn finish(&mut self, chunk: &Chunk, result: Result<(), CopyError>, now: Nanos) {
        let lane = &mut self.lanes[chunk.lane];
        lane.active -= 1;
        lane.flight -= chunk.bytes.0;
        lane.moved = now.max(lane.moved);
        let job = &mut self.jobs[chunk.slot as usize];
        job.flying -= 1;
        if let Err(error) = result
            && !job.cancelled
        {
            job.handed = job.bytes;
            job.error.get_or_insert(error);
        }
        if job.flying == 0 && job.handed == job.bytes {
            self.ending.push(chunk.slot);
            self.settle(now);
        }
    }

    /// Gives up what a copy has not moved yet.
    ///
    /// It still ends after everything it had to wait for, so that whoever waits for it waits for those too.
    pub(crate) fn cancel(&mut self, ticket: Ticket, now: Nanos) {
        let Some(&slot) = self.slots.get(&ticket.0) else { return };
        let job = &mut self.jobs[slot as usize];
        job.cancelled = true;
        job.error = None;
        job.handed = job.bytes;
        if !job.ended && job.pending == 0 && job.flying == 0 {
            self.ending.push(slot);
            self.settle(now);
        }
    }

    /// Drops what is known of a copy, now or as soon as it ends.
    pub(crate) fn forget(&mut self, ticket: Ticket) {
        let Some(&slot) = self.slots.get(&ticket.0) else { return };
        self.jobs[slot as usize].forgotten = true;
        if self.jobs[slot as usize].ended {
            self.release(slot);
        }
    }

    /// The copies that have not been forgotten, or have not ended, oldest first.
    pub(crate) fn known(&self) -> Vec<Ticket> {
        let mut tickets: Vec<Ticket> = self.slots.keys().map(|ticket| Ticket(*ticket)).collect();
        tickets.sort_unstable();
        tickets
    }

    /// How a copy ended, or `None` while it has not. A copy that nobody knows has ended well.
    pub(crate) fn outcome(&self, ticket: Ticket) -> Option<Result<(), CopyError>> {
        let Some(&slot) = self.slots.get(&ticket.0) else { return Some(Ok(())) };
        let job = &self.jobs[slot as usize];
        match (job.ended, &job.error) {
            (false, _) => None,
            (true, None) => Some(Ok(())),
            (true, Some(error)) => Some(Err(error.clone())),
        }
    }

    /// When the bytes of a copy that has ended moved.
    pub(crate) fn span(&self, ticket: Ticket) -> Option<Span> {
        let job = &self.jobs[*self.slots.get(&ticket.0)? as usize];
        let began = job.began.filter(|_| job.ended)?;
        Some(Span { began, ended: job.over })
    }

    /// The lane where a thread could hasten the end of a copy: its own, or one where a copy waits that it waits
    /// for. `None` where nothing is left to take.
    pub(crate) fn bottleneck(&self, ticket: Ticket) -> Option<usize> {
        let mut ticket = ticket.0;
        loop {
            let job = &self.jobs[*self.slots.get(&ticket)? as usize];
            if job.pending == 0 {
                return (!job.ended && job.handed < job.bytes).then_some(job.lane);
            }
            let running = |t: &&u64| self.slots.get(t).is_some_and(|s| !self.jobs[*s as usize].ended);
            ticket = *job.after.iter().find(running)?;
        }
    }

    /// The lane of a copy that has nothing left to hand out and has not ended yet.
    pub(crate) fn last_chunks(&self, ticket: Ticket) -> Option<usize> {
        let job = &self.jobs[*self.slots.get(&ticket.0)? as usize];
        (!job.ended && job.pending == 0 && job.handed == job.bytes).then_some(job.lane)
    }

    /// Says that a thread sleeps until this copy ends.
    pub(crate) fn await_end(&mut self, ticket: Ticket) {
        if let Some(&slot) = self.slots.get(&ticket.0) {
            self.jobs[slot as usize].awaited = true;
        }
    }

    /// Whether an awaited copy has ended since last asked.
    pub(crate) fn take_news(&mut self) -> bool {
        mem::take(&mut self.news)
    }

    /// Says that a lane may have work for one more of its threads.
    pub(crate) fn stir(&mut self, lane: usize) {
        if !self.stirred.contains(&lane) {
            self.stirred.push(lane);
        }
    }

    /// One of the lanes that may have work for one more of their threads.
    pub(crate) fn take_stirred(&mut self) -> Option<usize> {
        self.stirred.pop()
    }

    /// Says that a lane has got so many threads of its own.
    pub(crate) fn staff(&mut self, lane: usize, threads: u32) {
        self.lanes[lane].staff = Some(threads);
        self.lanes[lane].line.reserve(COPIES);
    }

    /// A lane.
    pub(crate) fn lane(&mut self, lane: usize) -> &mut Lane {
        &mut self.lanes[lane]
    }

    /// Whether another of the lane's own threads should be called: there is work, room at work, and one asleep. A
    /// patient lane that is being worked on calls only when it is `urgent`.
    pub(crate) fn call(&mut self, lane: usize, urgent: bool) -> bool {
        let at = &mut self.lanes[lane];
        let wanted = urgent || !at.patient || at.active == 0;
        let call = wanted && !at.called && at.idle > 0 && at.active < at.threads && !at.line.is_empty();
        at.called |= call;
        call
    }

    /// Puts a copy that waits for nothing any more in line, or ends it where there is nothing to move.
    fn ready(&mut self, slot: u32, now: Nanos) {
        let job = &mut self.jobs[slot as usize];
        job.since = now;
        if job.error.is_some() || job.cancelled || job.bytes == 0 {
            job.handed = job.bytes;
            self.ending.push(slot);
        } else {
            self.lanes[job.lane].line.push_back((slot, job.ticket));
            let lane = job.lane;
            self.stir(lane);
        }
    }

    /// Ends the copies that are about to, and those that end because of it.
    fn settle(&mut self, now: Nanos) {
        while let Some(slot) = self.ending.pop() {
            let job = &mut self.jobs[slot as usize];
            debug_assert!(!job.ended && job.flying == 0 && job.pending == 0);
            job.ended = true;
            job.over = now;
            self.news |= mem::take(&mut job.awaited);
            let ticket = job.ticket;
            let error = job.error.as_ref().map(|error| inherited(ticket, error));
            let mut followers = mem::take(&mut job.followers);
            for follower in followers.drain(..) {
                let next = &mut self.jobs[follower as usize];
                next.pending -= 1;
                if let Some(error) = &error
                    && !next.cancelled
                {
                    next.error.get_or_insert_with(|| error.clone());
                }
                if next.pending == 0 {
                    self.ready(follower, now);
                }
            }
            let job = &mut self.jobs[slot as usize];
            job.followers = followers;
            job.after.clear();
            if job.forgotten {
                self.release(slot);
            }
        }
    }

    fn release(&mut self, slot: u32) {
        let job = &mut self.jobs[slot as usize];
        self.slots.remove(&job.ticket);
        job.ticket = 0;
        self.free.push(slot);
    }
}

/// What a copy says that could not begin because one that it waited for failed.
fn inherited(ticket: u64, error: &CopyError) -> CopyError {
    match error.0.starts_with(INHERITED) {
        true => error.clone(),
        false => CopyError(format!("{INHERITED} (copy {ticket}) failed: {error}")),
    }
}

const INHERITED: &str = "a copy that this one had to wait for";

#[cfg(test)]
mod tests {
    use super::*;
    use tiercel_core::TierId;

    const NOW: Nanos = Nanos::ZERO;

    fn order(bytes: u64, after: &[Ticket]) -> CopyOrder<'_> {
        let place = |tier| Place { tier: TierId(tier), offset: Bytes::ZERO };
        CopyOrder { from: place(0), to: place(1), bytes: Bytes(bytes), after }
    }

    fn ends(queue: &Queue, tickets: &[Ticket]) -> Vec<bool> {
        tickets.iter().map(|t| queue.outcome(*t).is_some()).collect()
    }

    #[test]
    fn a_window_bounds_what_is_in_flight() {
        let mut queue = Queue::new(&[(4, false)]);
        queue.limit(0, 200);
        let many = queue.add(&order(400, &[]), 0, (100, false), NOW);
        let large = queue.add(&order(300, &[]), 0, (300, false), NOW);
        let small: Vec<Ticket> = (0..4).map(|_| queue.add(&order(40, &[]), 0, (100, false), NOW)).collect();
        let mut flying: VecDeque<Chunk> = VecDeque::new();
        let mut moved = Vec::new();
        loop {
            flying.extend(std::iter::from_fn(|| queue.take(0)));
            let Some(chunk) = flying.front().copied() else { break };
            let bytes: u64 = flying.iter().map(|chunk| chunk.bytes.0).sum();
            let most = if flying.iter().all(|other| other.slot == chunk.slot) { 200 } else { 140 };
            assert!(bytes <= most || flying.len() == 1, "{bytes} in {}", flying.len());
            moved.push(chunk.bytes.0);
            queue.finish(&chunk, Ok(()), NOW);
            flying.pop_front();
        }
        assert_eq!(moved, [100, 100, 100, 100, 300, 40, 40, 40, 40]);
        assert_eq!(ends(&queue, &[many, large]), [true, true]);
        assert!(ends(&queue, &small).iter().all(|ended| *ended));
    }

    #[test]
    fn a_copy_by_page_hands_out_one_page_after_the_other() {
        let mut queue = Queue::new(&[(4, false)]);
        let paged = queue.add(&order(250, &[]), 0, (100, true), NOW);
        let next = queue.add(&order(10, &[]), 0, (100, false), NOW);
        for bytes in [100, 100, 50] {
            let chunk = queue.take(0).expect("its turn");
            assert_eq!(chunk.bytes, Bytes(bytes));
            // Nothing else of this copy; what stands behind it begins when its last page is under way.
            assert!(queue.take(0).is_none_or(|other| bytes == 50 && other.bytes == Bytes(10)));
            queue.finish(&chunk, Ok(()), NOW);
        }
        assert!(queue.outcome(paged).is_some_and(|outcome| outcome.is_ok()));
        assert!(queue.outcome(next).is_none());
    }

    #[test]
    fn the_next_copy_begins_when_the_head_has_nothing_left_to_hand_out() {
        let mut queue = Queue::new(&[(3, false)]);
        let a = queue.add(&order(150, &[]), 0, (100, false), NOW);
        let b = queue.add(&order(10, &[]), 0, (100, false), NOW);
        let chunks: Vec<Chunk> = std::iter::from_fn(|| queue.take(0)).collect();
        assert_eq!(
            chunks.iter().map(|c| (c.from.offset.0, c.bytes.0)).collect::<Vec<_>>(),
            [(0, 100), (100, 50), (0, 10)]
        );
        queue.finish(&chunks[2], Ok(()), NOW);
        queue.finish(&chunks[0], Ok(()), NOW);
        assert_eq!(ends(&queue, &[a, b]), [false, true]);
        queue.finish(&chunks[1], Ok(()), NOW);
        assert_eq!(ends(&queue, &[a, b]), [true, true]);
    }

    #[test]
    fn a_copy_that_must_wait_is_passed_over() {
        let mut queue = Queue::new(&[(1, false), (1, false)]);
        let a = queue.add(&order(10, &[]), 1, (100, false), NOW);
        let b = queue.add(&order(20, &[a, a, Ticket(99)]), 0, (100, false), NOW);
        let c = queue.add(&order(30, &[]), 0, (100, false), NOW);
        assert_eq!((queue.bottleneck(b), queue.bottleneck(c)), (Some(1), Some(0)));
        let chunk = queue.take(0).unwrap();
        assert_eq!(chunk.bytes.0, 30);
        queue.finish(&chunk, Ok(()), NOW);
        assert_eq!(queue.take(0), None);
        let chunk = queue.take(1).unwrap();
        queue.finish(&chunk, Ok(()), NOW);
        assert_eq!(queue.take(0).unwrap().bytes.0, 20);
        assert_eq!(ends(&queue, &[a, b, c]), [true, false, true]);
    }

    #[test]
    fn failure_passes_down_and_moves_nothing() {
        let mut queue = Queue::new(&[(1, false)]);
        let a = queue.add(&order(300, &[]), 0, (100, false), NOW);
        let b = queue.add(&order(20, &[a]), 0, (100, false), NOW);
        let c = queue.add(&order(30, &[b]), 0, (100, false), NOW);
        let chunk = queue.take(0).unwrap();
        queue.finish(&chunk, Err(CopyError("no".to_string())), NOW);
        assert_eq!(queue.take(0), None, "neither the rest of the copy nor those after it move");
        let d = queue.add(&order(30, &[c]), 0, (100, false), NOW);
        assert_eq!(queue.outcome(a), Some(Err(CopyError("no".to_string()))));
        for follower in [b, c, d] {
            let error = queue.outcome(follower).unwrap().unwrap_err().0;
            assert_eq!(error, "a copy that this one had to wait for (copy 1) failed: no");
        }
        queue.forget(c);
        let e = queue.add(&order(30, &[c]), 0, (100, false), NOW);
        assert_eq!((queue.outcome(c), queue.outcome(e)), (Some(Ok(())), None));
    }

    #[test]
    fn a_cancelled_copy_ends_well_but_not_before_what_it_waits_for() {
        let mut queue = Queue::new(&[(2, false)]);
        let a = queue.add(&order(200, &[]), 0, (100, false), NOW);
        let b = queue.add(&order(200, &[a]), 0, (100, false), NOW);
        let c = queue.add(&order(200, &[b]), 0, (100, false), NOW);
        let chunk = queue.take(0).unwrap();
        queue.cancel(a, NOW);
        queue.cancel(b, NOW);
        queue.forget(b);
        assert_eq!((ends(&queue, &[a, b, c]), queue.take(0)), (vec![false, false, false], None));
        queue.finish(&chunk, Err(CopyError("no".to_string())), NOW);
        assert_eq!(
            (queue.outcome(a), queue.outcome(b), queue.outcome(c)),
            (Some(Ok(())), Some(Ok(())), None)
        );
        queue.cancel(c, NOW);
        assert_eq!((queue.outcome(c), queue.take(0)), (Some(Ok(())), None));
    }

    #[test]
    fn slots_are_used_again_and_a_stale_place_in_line_is_skipped() {
        let mut queue = Queue::new(&[(1, false)]);
        for _ in 0..1000 {
            let a = queue.add(&order(10, &[]), 0, (100, false), NOW);
            let b = queue.add(&order(20, &[]), 0, (100, false), NOW);
            queue.cancel(b, NOW);
            queue.forget(b);
            let c = queue.add(&order(0, &[]), 0, (100, false), NOW);
            let chunk = queue.take(0).unwrap();
            assert_eq!(chunk.bytes.0, 10);
            queue.finish(&chunk, Ok(()), NOW);
            assert_eq!(ends(&queue, &[a, b, c]), [true, true, true]);
            queue.forget(a);
            queue.forget(c);
        }
        assert!(queue.jobs.len() <= 3 && queue.lanes[0].line.len() <= 3);
    }
}

//! What comes to fast memory and what leaves it, kernel by kernel (Sentinel, section IV-D).
//!
//! A long-lived object stays in fast memory from one use to the next if that is in the same interval or the one after
//! it; else it leaves right after the use, in the middle of the interval. What an interval needs is fetched from the
//! beginning of the interval before it, the most accessed first, and where there is no room yet, as soon as others have
//! left. The profile says who is there when, so room is worked out ahead (`addresses.rs`): the reserved zone comes first, then
//! what kernels make, then what is fetched. What finds no room stays in slow memory for that time (the paper's Case 2).
//!
//! Small objects that share pages come and go together, as pages do: a [`Unit`] is one object, or all of such a group.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use tiercel_core::Bytes;
use tiercel_profile::sharing::Layout;
use tiercel_workload::intervals::Interval;

use super::addresses::{Addresses, Claim};
use super::interval::intervals;
use crate::recording::Recording;

/// Objects that come and go together.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// The objects, by their positions in the recording, and where in the unit's memory they lie.
    pub items: Vec<(usize, Bytes)>,
    /// Its memory, in whole pages.
    pub size: Bytes,
    /// How often each of its pages is accessed.
    pub passes: f64,
    /// The kernels that use it.
    uses: Vec<u32>,
    /// The kernels that write it.
    writes: Vec<u32>,
    birth: Option<u32>,
    retired: Option<u32>,
}

/// The long-lived objects of a recording as units: alone, or as the layout has them on the same pages.
pub fn units(recording: &Recording, layout: &Layout, page: Bytes) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    let mut groups = vec![None; layout.extents.len()];
    for (at, item) in recording.items.iter().enumerate().filter(|(_, item)| !item.is_short()) {
        let group = layout.groups[at].map(|group| group as usize);
        let known = group.and_then(|group| groups[group]);
        let unit: &mut Unit = match known {
            Some(known) => &mut units[known],
            None => {
                if let Some(group) = group {
                    groups[group] = Some(units.len());
                }
                let own = Bytes(item.size.0.max(1).next_multiple_of(page.0));
                units.push(Unit {
                    items: Vec::new(),
                    size: group.map_or(own, |group| layout.extents[group].1),
                    passes: 0.0,
                    uses: Vec::new(),
                    writes: Vec::new(),
                    birth: item.birth,
                    retired: item.retired,
                });
                units.last_mut().expect("just pushed")
            }
        };
        let start = group.map_or(layout.offsets[at], |group| layout.extents[group].0);
        unit.items.push((at, layout.offsets[at] - start));
        unit.passes = unit.passes.max(item.passes());
        unit.uses.extend(&item.uses);
        unit.writes.extend(&item.writes);
        unit.birth = unit.birth.min(item.birth);
        unit.retired = unit.retired.max(item.retired);
    }
    for unit in &mut units {
        for steps in [&mut unit.uses, &mut unit.writes] {
            steps.sort_unstable();
            steps.dedup();
        }
    }
    units
}

/// Something to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Which unit.
    pub unit: usize,
    /// Where in fast memory it goes.
    pub offset: Bytes,
    /// The interval that needs it.
    pub interval: usize,
    /// The kernel before which there is no point any more.
    pub until: usize,
}

/// From when to when a unit is in fast memory, and where; kernels of the iteration before and after count on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stay {
    from: i64,
    last: i64,
    offset: Bytes,
    claim: Claim,
    /// Whether it is copied away when it leaves.
    copied: bool,
}

/// When an object leaves fast memory that the rest of an interval and the next one do not need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leaving {
    /// At once, whoever wants its room: the words of section IV-D.
    #[default]
    AtOnce,
    /// Where its room is wanted: the shorter it is away, the sooner it stays.
    ForOthers,
}

/// Who is in fast memory when.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    /// The units.
    pub units: Vec<Unit>,
    /// The unit of each object; short-lived ones have none.
    pub unit_of: Vec<Option<usize>>,
    /// The intervals.
    pub intervals: Vec<Interval>,
    /// The interval of each kernel.
    pub interval_of: Vec<usize>,
    /// How much is reserved for short-lived objects at each kernel.
    pub reserved: Vec<Bytes>,
    /// What to fetch before each kernel, in this order.
    pub fetches: Vec<Vec<Fetch>>,
    /// Which units leave after each kernel.
    pub leaves: Vec<Vec<usize>>,
    /// For each interval, how many units that it needs find no room.
    pub left_out: Vec<u32>,
    /// For each unit, when it is in fast memory.
    stays: Vec<Vec<Stay>>,
}

/// How often room is worked out anew where kernels must find everything in fast memory.
const ROUNDS: usize = 6;

/// One wish to be in fast memory.
#[derive(Clone, Copy, Debug)]
struct Wish {
    unit: usize,
    first: i64,
    last: i64,
    /// Made there by the kernel `first`, and not fetched.
    born: bool,
    /// For one kernel alone.
    piece: bool,
    /// Whether it must be copied away when it leaves.
    copied: bool,
}

impl Schedule {
    /// Works the schedule out for intervals of so many visits of layers. `waits`: kernels cannot work on slow memory, so
    /// what comes late is still worth fetching.
    pub fn new(
        recording: &Recording,
        units: Vec<Unit>,
        reach: &[Bytes],
        length: u32,
        fast: Bytes,
        waits: bool,
        leaving: Leaving,
    ) -> Schedule {
        let intervals = intervals(recording, length);
        let steps = recording.moments.len();
        let mut unit_of = vec![None; recording.items.len()];
        for (at, unit) in units.iter().enumerate() {
            unit.items.iter().for_each(|(item, _)| unit_of[*item] = Some(at));
        }
        let mut schedule = Schedule {
            stays: vec![Vec::new(); units.len()],
            units,
            unit_of,
            interval_of: vec![0; steps],
            reserved: reach.to_vec(),
            fetches: vec![Vec::new(); steps],
            leaves: vec![Vec::new(); steps],
            left_out: vec![0; intervals.len()],
            intervals,
        };
        for (at, interval) in schedule.intervals.iter().enumerate() {
            let (start, end) = (interval.start.0 as usize, interval.end.0 as usize);
            schedule.interval_of[start..end].fill(at);
            // It shrinks as soon as nothing later in the interval needs it.
            for step in (start + 1..end).rev() {
                schedule.reserved[step - 1] = schedule.reserved[step].max(schedule.reserved[step - 1]);
            }
        }
        // Where kernels must find everything in fast memory, those that found no room come first in the next round.
        let mut urgent = BTreeSet::new();
        for _ in 0..if waits { ROUNDS } else { 0 } {
            let before = urgent.len();
            urgent.extend(schedule.clone().admit(fast, waits, &urgent).0);
            if urgent.len() == before {
                break;
            }
        }
        let (_, mut room) = schedule.admit(fast, waits, &urgent);
        if leaving == Leaving::ForOthers {
            schedule.stay_on(&mut room);
        }
        schedule
    }

    /// Finds room for as many wishes as possible, use by use for the urgent ones; says which found none, and what room is left.
    fn admit(&mut self, fast: Bytes, waits: bool, urgent: &BTreeSet<usize>) -> (Vec<usize>, Addresses) {
        let mut room = Addresses::new(fast, &self.reserved);
        let wishes: Vec<Wish> = (0..self.units.len()).flat_map(|unit| self.wishes(unit)).collect();
        for wish in &wishes {
            if wish.last - wish.first < self.steps() - 1 {
                self.leaves(wish.unit, wish.last);
            }
        }
        let mut order: Vec<usize> = (0..wishes.len()).collect();
        order.sort_by(|a, b| {
            let class = |at: &usize| (!urgent.contains(at), !wishes[*at].born);
            let (a, b, classes) = (&wishes[*a], &wishes[*b], class(a).cmp(&class(b)));
            let interval = |wish: &Wish| self.interval_of[wish.first as usize];
            let passes = |wish: &Wish| self.units[wish.unit].passes;
            let when = if a.born { a.first.cmp(&b.first) } else { interval(a).cmp(&interval(b)) };
            let hottest = if a.born { Ordering::Equal } else { passes(b).total_cmp(&passes(a)) };
            classes.then(when).then(hottest).then(a.unit.cmp(&b.unit))
        });
        let mut failed = Vec::new();
        for at in order {
            let wish = &wishes[at];
            if !urgent.contains(&at) && self.grant(wish, &mut room, waits) {
                continue;
            }
            self.left_out[self.interval_of[wish.first as usize]] += 1;
            if waits && !self.grant_parts(wish, &self.uses(wish), &mut room, urgent.contains(&at)) {
                failed.push(at);
            }
        }
        (failed, room)
    }

    /// Lets units stay between two stays where there is room for it, those first that would be away for the fewest kernels.
    fn stay_on(&mut self, room: &mut Addresses) {
        let steps = self.steps();
        let mut pauses: Vec<(i64, usize, i64)> = Vec::new();
        for (unit, stays) in self.stays.iter_mut().enumerate() {
            stays.sort_by_key(|stay| stay.from);
            let following = stays.iter().skip(1).map(|stay| stay.from);
            // What outlives the iteration comes back in the next one.
            let again =
                stays.first().map(|stay| stay.from + steps).filter(|_| self.units[unit].birth.is_none());
            for (stay, next) in stays.iter().zip(following.chain(again)) {
                if next > stay.last + 1 {
                    pauses.push((next - stay.last, unit, stay.last));
                }
            }
        }
        pauses.sort_unstable();
        for (_, unit, last) in pauses {
            self.stay_through(unit, last, room);
        }
    }

    /// Makes one stay of the one that ends with this kernel and the one after it, if there is room.
    fn stay_through(&mut self, unit: usize, last: i64, room: &mut Addresses) {
        let (steps, size) = (self.steps(), self.units[unit].size);
        let stays = &self.stays[unit];
        let same = |stay: &Stay| (stay.last - last).rem_euclid(steps) == 0;
        let Some(at) = stays.iter().position(same) else { return };
        let (next, only) = ((at + 1) % stays.len(), stays.len() == 1);
        let (early, late) = (stays[at], stays[next]);
        let end = match () {
            _ if only => early.from + steps - 1,
            _ if next > at => late.last,
            _ => late.last + steps,
        };
        // Of one that would hold its place for longer than an iteration there are two at once.
        if end - early.from >= steps {
            return;
        }
        room.set_gone(early.claim, true);
        room.set_gone(late.claim, true);
        let Some((offset, claim)) = room.take(early.from, end, size, late.copied) else {
            room.set_gone(early.claim, false);
            room.set_gone(late.claim, false);
            return;
        };
        let step = |kernel: i64| kernel.rem_euclid(steps) as usize;
        self.leaves[step(early.last)].retain(|other| *other != unit);
        if !only {
            let comes = |fetch: &Fetch| fetch.unit == unit && fetch.offset == late.offset;
            self.fetches[step(late.from)].retain(|fetch| !comes(fetch));
        }
        let first = self.fetches[step(early.from)].iter_mut();
        for fetch in first.filter(|fetch| fetch.unit == unit && fetch.offset == early.offset) {
            fetch.offset = offset;
        }
        let stays = &mut self.stays[unit];
        stays[at] = Stay { last: end, offset, claim, ..late };
        stays[at].from = early.from;
        if !only {
            stays.remove(next);
        }
        stays.sort_by_key(|stay| stay.from);
    }

    /// The kernels of a wish, counted as the wish counts them.
    fn uses(&self, wish: &Wish) -> Vec<i64> {
        let uses = self.units[wish.unit].uses.iter().map(|step| i64::from(*step));
        let all = uses.clone().chain(uses.map(|step| step + self.steps()));
        all.filter(|step| wish.first <= *step && *step <= wish.last).collect()
    }

    /// Finds room for a wish in parts, between which the unit leaves and comes back: as few as possible, or one for each use.
    /// Says whether every kernel finds it there.
    fn grant_parts(&mut self, wish: &Wish, uses: &[i64], room: &mut Addresses, single: bool) -> bool {
        if uses.len() < 2 {
            return self.grant(&Wish { piece: true, ..*wish }, room, true);
        }
        if !single && self.grant(wish, room, true) {
            return true;
        }
        // It leaves for the longest pause.
        let pause = |at: &usize| (uses[*at] - uses[at - 1], std::cmp::Reverse(*at));
        let at = (1..uses.len()).max_by_key(pause).expect("there are two uses");
        let (early, late) = uses.split_at(at);
        let shift = late[0].div_euclid(self.steps()) * self.steps();
        let late: Vec<i64> = late.iter().map(|step| step - shift).collect();
        let front = Wish { last: early[at - 1], ..*wish };
        let back = Wish { first: late[0], last: wish.last - shift, born: false, ..*wish };
        self.leaves(wish.unit, front.last);
        let front = self.grant_parts(&front, early, room, single);
        self.grant_parts(&back, &late, room, single) && front
    }

    /// Notes that a unit leaves after a kernel, unless it ends there.
    fn leaves(&mut self, unit: usize, last: i64) {
        let last = last.rem_euclid(self.steps()) as usize;
        let leaves = &mut self.leaves[last];
        if self.units[unit].retired != Some(last as u32) && !leaves.contains(&unit) {
            leaves.push(unit);
        }
    }

    /// When a unit should be in fast memory.
    fn wishes(&self, at: usize) -> Vec<Wish> {
        let unit = &self.units[at];
        let interval = |step: i64| self.interval_of[step as usize];
        let mut spans: Vec<(i64, i64)> = Vec::new();
        for step in unit.uses.iter().map(|step| i64::from(*step)) {
            match spans.last_mut() {
                Some((_, last)) if interval(step) <= interval(*last) + 1 => *last = step,
                _ => spans.push((step, step)),
            }
        }
        let (Some(&(first, first_end)), Some(&(_, last))) = (spans.first(), spans.last()) else {
            return Vec::new();
        };
        let mut born = false;
        match unit.birth {
            Some(birth) if interval(first) <= interval(i64::from(birth)) + 1 => {
                born = true;
                spans[0].0 = i64::from(birth);
            }
            Some(_) => {}
            // From the end of one iteration into the next.
            None if interval(first) + self.intervals.len() <= interval(last) + 1 => {
                if spans.len() == 1 {
                    spans[0].1 = first + self.steps() - 1;
                } else {
                    spans.remove(0);
                    spans.last_mut().expect("there were two").1 = first_end + self.steps();
                }
            }
            None => {}
        }
        let written = |first: i64, last: i64| {
            let inside = |step: i64| first <= step && step <= last;
            let mut writes = unit.writes.iter().map(|step| i64::from(*step));
            writes.any(|step| inside(step) || inside(step + self.steps()))
        };
        let ends = |last: i64| unit.retired.is_some_and(|retired| i64::from(retired) == last);
        let wish = |(turn, (first, last)): (usize, (i64, i64))| Wish {
            unit: at,
            first,
            last,
            born: born && turn == 0,
            piece: false,
            copied: !ends(last) && written(first, last),
        };
        spans.into_iter().enumerate().map(wish).collect()
    }

    /// Finds room for a wish: from its birth on, or from the earliest moment at which it can be fetched.
    fn grant(&mut self, wish: &Wish, room: &mut Addresses, waits: bool) -> bool {
        let size = self.units[wish.unit].size;
        let (earliest, until) = if wish.born { (wish.first, wish.first) } else { self.window(wish, waits) };
        let found = room.earliest(earliest, until.max(earliest), wish.last, size);
        let placed = found.and_then(|from| Some((from, room.take(from, wish.last, size, wish.copied)?)));
        let Some((from, (offset, claim))) = placed else { return false };
        self.stays[wish.unit].push(Stay { from, last: wish.last, offset, claim, copied: wish.copied });
        if !wish.born {
            let until = (until + 1).rem_euclid(self.steps()) as usize;
            let from = from.rem_euclid(self.steps()) as usize;
            let interval = self.interval_of[wish.first as usize];
            self.fetches[from].push(Fetch { unit: wish.unit, offset, interval, until });
        }
        true
    }

    /// From when to when a unit may come: while the interval before the one that needs it runs, and if kernels must wait for
    /// it, until the first that does.
    fn window(&self, wish: &Wish, waits: bool) -> (i64, i64) {
        let interval = self.interval_of[wish.first as usize];
        let start = |at: usize| i64::from(self.intervals[at].start.0);
        let earliest = match interval {
            // One that comes for each use does not stay long before it.
            _ if wish.piece => wish.first - 1,
            0 => start(self.intervals.len() - 1) - self.steps(),
            interval => start(interval - 1),
        };
        // Somebody who never leaves is there whenever it comes, and nobody comes before it has left.
        let earliest = earliest.max(wish.last - self.steps() + 1);
        let left = self.stays[wish.unit].iter().map(|stay| stay.last).filter(|last| *last < wish.first).max();
        let earliest = left.map_or(earliest, |left| earliest.max(left + 1));
        (earliest, if waits { wish.first } else { start(interval) - 1 })
    }

    fn steps(&self) -> i64 {
        self.interval_of.len() as i64
    }

    /// Where in fast memory an object is to be at a kernel, if it is to be there.
    pub fn offset(&self, item: usize, step: usize) -> Option<Bytes> {
        let unit = self.unit_of[item]?;
        let stay = self.stay(unit, step)?;
        self.units[unit].items.iter().find(|(at, _)| *at == item).map(|(_, offset)| stay.offset + *offset)
    }

    fn stay(&self, unit: usize, step: usize) -> Option<&Stay> {
        let step = step as i64;
        let holds = |stay: &&Stay| {
            [step - self.steps(), step, step + self.steps()]
                .iter()
                .any(|s| stay.from <= *s && *s <= stay.last)
        };
        self.stays[unit].iter().find(holds)
    }

    /// What must be fetched at once for an iteration to begin, most accessed first.
    pub fn first(&self) -> Vec<Fetch> {
        let there =
            |unit: usize| Some(Fetch { unit, offset: self.stay(unit, 0)?.offset, interval: 0, until: 0 });
        let outlives = |unit: &usize| self.units[*unit].birth.is_none();
        let mut fetches: Vec<Fetch> = (0..self.units.len()).filter(outlives).filter_map(there).collect();
        fetches.sort_by(|a, b| self.units[b.unit].passes.total_cmp(&self.units[a.unit].passes));
        fetches
    }
}

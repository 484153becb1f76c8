//! How Sentinel follows its schedule: which program is running, what its next kernel wants, and what to do where something is
//! in the way.

use tiercel_core::{Bytes, Error, Manager, Operand, Step, TierId};

use super::Sentinel;
use super::flow::Profiled;
use super::trial::Late;
use super::zone::{FAST, whole};
use crate::gather::gather;

impl Sentinel {
    /// A kernel of the running program comes: gives the reserved zone its size for it.
    pub(super) fn enter(&mut self, m: &mut Manager, known: &Profiled, step: usize) -> Result<(), Error> {
        if self.entered == Some(step) || step >= known.schedule.reserved.len() {
            return Ok(());
        }
        self.entered = Some(step);
        let (wanted, page) = (known.schedule.reserved[step], self.page(m));
        if self.reserve.resize(m, wanted, page) || wanted <= self.reserve.size(m) {
            return Ok(());
        }
        // It cannot grow: first those make way that this interval does not need, then it takes what there is.
        let interval = known.schedule.interval_of[step];
        let needs = |item: usize| {
            let uses = &known.recording.items[item].uses;
            uses.iter().any(|step| known.schedule.interval_of[*step as usize] == interval)
        };
        let mut stay = None;
        for object in self.reserve.in_the_way(m, wanted) {
            if self.item(known, object).is_some_and(needs) || m.in_use(object) {
                let start = m.region_on(object, FAST).map(|region| m.place_of(region).offset);
                stay = stay.into_iter().chain(start).min();
            } else {
                self.clear(m, object)?;
            }
        }
        if !self.reserve.resize(m, wanted, page) {
            self.deviations += 1;
            if let Some(stay) = stay {
                self.reserve.resize(m, Bytes(stay.0 / page.0 * page.0), page);
            }
        }
        Ok(())
    }

    /// An interval begins: looks what of its objects is there.
    pub(super) fn open(&mut self, m: &mut Manager, known: &Profiled, interval: usize) {
        m.settle();
        let mut late = Late::default();
        for (_, unit) in self.fetched.extract_if(.., |(wanted, _)| *wanted == interval) {
            let items = known.schedule.units[unit].items.iter();
            let objects =
                items.filter_map(|(item, _)| self.recorder.object(known.recording.items[*item].key));
            let under_way = objects.filter(|object| m.is_arriving(*object) && m.home(*object) == Some(FAST));
            let bytes: Bytes = under_way.filter_map(|object| m.size(object).ok()).sum();
            if bytes > Bytes::ZERO {
                late.units.insert(unit);
                late.bytes += bytes;
            }
        }
        let waiting = self.pending.iter().any(|fetch| fetch.interval == interval);
        if !late.units.is_empty() {
            self.counting.late += 1;
            let slow_works = m.machine().tiers.iter().all(|tier| tier.computable);
            if slow_works && !self.frozen {
                self.late.insert(interval, late);
            }
        } else if waiting || known.schedule.left_out[interval] > 0 {
            self.counting.no_room += 1;
        } else {
            self.counting.ready += 1;
        }
    }

    /// Fetches what the schedule has for this kernel, and what found no room before.
    pub(super) fn fetch(&mut self, m: &mut Manager, known: &Profiled, step: usize) -> Result<(), Error> {
        let Some(now) = self.now else { return Ok(()) };
        let mut wanted = std::mem::take(&mut self.pending);
        let due = wanted.extract_if(.., |fetch| fetch.until == step).count();
        self.deviations += due as u64;
        wanted.extend(&known.schedule.fetches[step]);
        for fetch in wanted {
            let left = self.flows.get(now).trials.leaves(fetch.interval, fetch.unit);
            if !left && !self.bring_unit(m, known, &fetch)? {
                self.pending.push(fetch);
            }
        }
        Ok(())
    }

    /// Prepares fast memory for a program that begins to run: others' objects leave, its own come.
    pub(super) fn begin(&mut self, m: &mut Manager) -> Result<(), Error> {
        self.pending.clear();
        self.fetched.clear();
        (self.entered, self.prepared) = (None, self.now);
        let Some(known) = self.known() else { return Ok(()) };
        let step = self.recorder.steps().saturating_sub(1);
        for object in m.objects_on(FAST) {
            let item = self.item(&known, object);
            let place = item.and_then(|item| known.schedule.offset(item, step));
            let short = item.is_some_and(|item| known.recording.items[item].is_short());
            let lies = m.place(object).filter(|place| place.tier == FAST).map(|place| place.offset);
            if !short && (place.is_none() || place != lies) && !m.in_use(object) {
                self.clear(m, object)?;
            }
        }
        self.deviations += u64::from(known.lower_bound > m.space(FAST).capacity());
        if self.recorder.steps() <= 1 {
            self.enter(m, &known, 0)?;
            for fetch in known.schedule.first() {
                self.bring_unit(m, &known, &fetch)?;
            }
        }
        Ok(())
    }

    /// Finds out which program is running, now that one more kernel is known.
    pub(super) fn recognise(&mut self, m: &mut Manager) -> Result<(), Error> {
        let step = self.recorder.steps() - 1;
        let same = self.now.is_some_and(|now| {
            let moments = &self.flows.get(now).known.recording.moments;
            step > 0 && moments.get(step).is_some_and(|moment| moment.operands == self.recorder.line(step))
        });
        if same {
            return Ok(());
        }
        // Whoever has lost its program in the middle of an iteration profiles to the end of it.
        let found = if self.now.is_some() || step == 0 {
            self.flows.matching(&self.recorder, self.now)
        } else {
            None
        };
        self.now = found;
        if let Some(found) = found {
            self.flows.touch(found);
        }
        if self.prepared == self.now { Ok(()) } else { self.begin(m) }
    }

    /// Brings operands that a kernel cannot work on where they are to the end of fast memory, where they are least in the
    /// way of what is scheduled.
    pub(super) fn bring_unscheduled(&mut self, m: &mut Manager, operands: &[Operand]) -> Result<(), Error> {
        for operand in operands {
            let computable = |tier: TierId| m.machine().tier(tier).computable;
            let Some(x) = m.primary(operand.object).filter(|x| !computable(m.tier(*x))) else { continue };
            self.clear(m, operand.object)?;
            let (size, page) = (m.size_of(x), self.page(m));
            if let Some(y) = whole(m, FAST, size, page) {
                self.settle_in(m, operand.object, x, y)?;
            }
        }
        Ok(())
    }

    /// Brings a kernel's operands to where it can work on them. Where memory that is set aside stands in the way, it is
    /// given up.
    pub(super) fn gather(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        self.bring_unscheduled(m, operands)?;
        match gather(m, &self.recency, step, operands) {
            Err(Error::Full { .. } | Error::WorkingSet { .. }) => {
                self.deviations += 1;
                self.reserve.dissolve(m);
                gather(m, &self.recency, step, operands)
            }
            result => result,
        }
    }
}

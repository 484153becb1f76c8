//! Swapping in the manner of Capuchin (Peng and others, ASPLOS 2020, as Sentinel section VII-C uses it): one measured
//! iteration decides which tensors leave between which two of their uses.
//!
//! While nothing is known, tensors come on demand and the least recently used leave. Then every gap between two uses
//! of a tensor is a candidate, ranked by its free time: how long the tensor could stay away after it has been copied
//! out and before it must be copied back. Those with the most are taken until what is left fits in fast memory at
//! every step. A tensor leaves right after the use that opens its gap, and its return is triggered by the step at
//! which the copy must begin to be back in time, with all returns one after the other on the link. A return that is
//! late is triggered a step earlier from then on.
//!
//! Capuchin also drops tensors and computes them again where no gap is long enough; this does not, so gaps without
//! free time are taken too where memory asks for it, those first that make kernels wait least for what they save.
//! What still does not fit comes on demand, as in the first iteration.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tiercel_core::{Error, Hint, Machine, Manager, Nanos, ObjectId, Operand, Policy, Step, TierId};
use tiercel_workload::TensorId;
use tiercel_workload::lifetimes::Class;

use crate::gather::gather;
use crate::moves::{Pricing, evict, place, prefetch};
use crate::notebook::{Ended, Notebook, SeenIteration};
use crate::recency::Recency;

const FAST: TierId = TierId(0);

/// A stretch of the iteration in which a tensor is not used. A gap around the iteration's end has `back` before
/// `out`.
#[derive(Clone, Copy, Debug)]
struct Gap {
    tensor: TensorId,
    /// The step after which it leaves.
    out: usize,
    /// The step that triggers its return, and the step that uses it again.
    trigger: usize,
    back: usize,
    /// The step before which its return is never triggered.
    soonest: usize,
}

/// Which tensors leave and return in one known iteration.
#[derive(Clone, Debug)]
struct Swaps {
    gaps: Vec<Gap>,
    /// For each step, the gaps that open after it, and those whose return it triggers.
    leave: Vec<Vec<usize>>,
    come: Vec<Vec<usize>>,
}

/// The iteration as Capuchin measures it.
struct Timeline<'k> {
    known: &'k SeenIteration,
    /// When each step begins, and when the last ends, in seconds.
    starts: Vec<f64>,
    /// Bytes a second towards slow memory, and back.
    out: f64,
    back: f64,
}

impl Timeline<'_> {
    fn new<'k>(known: &'k SeenIteration, machine: &Machine) -> Timeline<'k> {
        let mut clock = 0.0;
        let mut starts = vec![0.0];
        for time in &known.times {
            clock += Nanos::seconds(*time);
            starts.push(clock);
        }
        let slow = machine.slowest();
        let speed = |from, to| machine.link(from, to).map_or(machine.tier(slow).write, |link| link.speed()).0;
        Timeline { known, starts, out: speed(FAST, slow), back: speed(slow, FAST) }
    }

    fn length(&self) -> f64 {
        self.starts[self.starts.len() - 1]
    }

    fn bytes(&self, tensor: TensorId) -> f64 {
        self.known.trace.tensor(tensor).bytes.0 as f64
    }

    /// Every gap, the most free time first; among those without, the least waiting for a byte first.
    fn candidates(&self) -> Vec<Gap> {
        let mut found = Vec::new();
        for tensor in (0..self.known.trace.tensors.len() as u32).map(TensorId) {
            let uses = self.known.lifetimes.uses(tensor);
            let ends = uses.windows(2).map(|pair| (pair[0].0 as usize, pair[1].0 as usize));
            let lasting = self.known.lifetimes.of(tensor).is_some_and(|l| l.class == Class::Persistent);
            let around = uses.first().zip(uses.last()).filter(|_| lasting);
            for (out, back) in ends.chain(around.map(|(first, last)| (last.0 as usize, first.0 as usize))) {
                let away = self.starts[back] - self.starts[out + 1];
                let away = if back > out { away } else { away + self.length() };
                let free = away - self.bytes(tensor) * (1.0 / self.out + 1.0 / self.back);
                let rank = if free > 0.0 { free } else { free / self.bytes(tensor).max(1.0) };
                if back != out + 1 {
                    found.push((free > 0.0, rank, Gap { tensor, out, trigger: back, back, soonest: back }));
                }
            }
        }
        found.sort_by(|(free, rank, gap), (other_free, other_rank, other)| {
            let ranks = other_free.cmp(free).then(other_rank.total_cmp(rank));
            ranks.then((gap.tensor, gap.out).cmp(&(other.tensor, other.out)))
        });
        found.into_iter().map(|(.., gap)| gap).collect()
    }

    /// Lets returns begin as late as they can and still end in time, one after the other. Where the link has no time
    /// left for that, a return is late: it begins as if it were alone.
    fn trigger(&self, gaps: &mut [Gap]) {
        gaps.sort_by_key(|gap| (std::cmp::Reverse(gap.back), gap.tensor));
        let mut busy = f64::INFINITY;
        for gap in gaps {
            let (due, takes) = (self.starts[gap.back], self.bytes(gap.tensor) / self.back);
            let gone = self.starts[gap.out + 1] + self.bytes(gap.tensor) / self.out;
            let gone = if gap.back > gap.out { gone } else { gone - self.length() };
            busy = if busy.min(due) - takes < gone { due - takes } else { busy.min(due) - takes };
            let step_at = |time: f64| self.starts.partition_point(|start| *start <= time).saturating_sub(1);
            let earliest = if gap.back > gap.out { gap.out + 1 } else { 0 };
            gap.trigger = step_at(busy).clamp(earliest, gap.back);
            gap.soonest = step_at(due - 2.0 * takes).clamp(earliest, gap.trigger);
        }
    }
}

/// The steps at which a gap's tensor is away, of so many.
fn away(gap: &Gap, steps: usize) -> impl Iterator<Item = usize> {
    let (first, second) = if gap.back > gap.out {
        (gap.out + 1..gap.trigger, 0..0)
    } else {
        (gap.out + 1..steps, 0..gap.trigger)
    };
    first.chain(second)
}

impl Swaps {
    fn new(known: &SeenIteration, machine: &Machine) -> Swaps {
        let timeline = Timeline::new(known, machine);
        let (steps, capacity) = (known.trace.kernels.len(), machine.tier(FAST).capacity);
        let live = known.lifetimes.live_bytes();
        let mut over: Vec<u64> = live.iter().map(|bytes| bytes.saturating_sub(capacity).0).collect();
        let mut gaps: Vec<Gap> = Vec::new();
        for gap in timeline.candidates() {
            if away(&gap, steps).any(|step| over[step] > 0) {
                let bytes = known.trace.tensor(gap.tensor).bytes.0;
                away(&gap, steps).for_each(|step| over[step] = over[step].saturating_sub(bytes));
                gaps.push(gap);
            }
        }
        timeline.trigger(&mut gaps);
        let mut swaps = Swaps { leave: vec![Vec::new(); steps], come: vec![Vec::new(); steps], gaps };
        for (at, gap) in swaps.gaps.iter().enumerate() {
            swaps.leave[gap.out].push(at);
            swaps.come[gap.trigger].push(at);
        }
        swaps
    }

    /// Triggers a return one step earlier from now on, but not so early that it cannot be the link's time that it
    /// lacks.
    fn hurry(&mut self, gap: usize) {
        let Gap { trigger, soonest, .. } = self.gaps[gap];
        if trigger > soonest {
            self.come[trigger].retain(|other| *other != gap);
            self.come[trigger - 1].push(gap);
            self.gaps[gap].trigger -= 1;
        }
    }
}

/// The policy in the manner of Capuchin.
#[derive(Clone, Debug, Default)]
pub struct Capuchin {
    notebook: Notebook,
    swaps: BTreeMap<u32, Swaps>,
    recency: RefCell<Recency>,
}

impl Capuchin {
    /// The policy before its first iteration.
    pub fn new() -> Capuchin {
        Capuchin::default()
    }

    fn plan(&self) -> Option<&Swaps> {
        self.swaps.get(&self.notebook.page()?.id)
    }

    /// Brings back what this step triggers, where there is room.
    fn come(&mut self, m: &mut Manager) -> Result<(), Error> {
        let Some(swaps) = self.plan() else { return Ok(()) };
        let due = swaps.come.get(self.notebook.step().0 as usize).into_iter().flatten();
        let objects = due.filter_map(|gap| self.notebook.object(swaps.gaps[*gap].tensor));
        for object in objects.collect::<Vec<_>>() {
            prefetch(m, Pricing { recency: &self.recency, keep: &[] }, object, FAST, false)?;
        }
        Ok(())
    }

    /// Remembers which returns are late.
    fn feed_back(&mut self, m: &Manager, operands: &[Operand]) {
        let step = self.notebook.step().0 as usize;
        let Some(id) = self.notebook.page().map(|known| known.id) else { return };
        let Some(swaps) = self.swaps.get_mut(&id) else { return };
        for operand in operands.iter().filter(|operand| m.is_arriving(operand.object)) {
            let tensor = self.notebook.tensor(operand.object);
            let late = swaps.gaps.iter().position(|gap| Some(gap.tensor) == tensor && gap.back == step);
            if let Some(late) = late {
                swaps.hurry(late);
            }
        }
    }

    /// Sends away what this step uses last before a gap.
    fn leave(&mut self, m: &mut Manager, step: usize) -> Result<(), Error> {
        let Some(swaps) = self.plan() else { return Ok(()) };
        let due = swaps.leave.get(step).into_iter().flatten();
        let objects = due.filter_map(|gap| self.notebook.object(swaps.gaps[*gap].tensor));
        for object in objects.collect::<Vec<_>>() {
            if m.home(object) == Some(FAST) && !m.in_use(object) {
                match evict(m, Pricing { recency: &self.recency, keep: &[] }, object) {
                    Ok(()) | Err(Error::Full { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

impl Policy for Capuchin {
    fn name(&self) -> &str {
        "capuchin"
    }

    fn coming(&mut self, _: &mut Manager, _: Step, op: &str) -> Result<(), Error> {
        self.notebook.coming(op);
        Ok(())
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        self.notebook.placed(m, object);
        place(m, &self.recency, object)
    }

    fn hint(&mut self, m: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error> {
        if hint == Hint::Retire && m.contains(object) {
            self.notebook.retired(object);
            self.recency.get_mut().remove(object);
            m.retire(object)?;
        }
        Ok(())
    }

    fn before(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        m.settle();
        if step != Step::LOAD {
            self.come(m)?;
            self.feed_back(m, operands);
        }
        self.notebook.before(m, step, operands);
        let keep: Vec<ObjectId> = operands.iter().map(|operand| operand.object).collect();
        for &object in &keep {
            if let Some(home) = m.home(object) {
                self.recency.get_mut().touch(object, home);
            }
        }
        for &object in &keep {
            prefetch(m, Pricing { recency: &self.recency, keep: &keep }, object, FAST, true)?;
        }
        gather(m, &self.recency, step, operands)
    }

    fn after(&mut self, m: &mut Manager, step: Step, _: &[Operand]) -> Result<(), Error> {
        let at = self.notebook.step().0 as usize;
        self.notebook.after(m, step);
        if step == Step::LOAD { Ok(()) } else { self.leave(m, at) }
    }

    fn layer_ended(&mut self, _: &mut Manager) -> Result<(), Error> {
        self.notebook.layer_ended();
        Ok(())
    }

    fn iteration_ended(&mut self, m: &mut Manager) -> Result<(), Error> {
        if let Ended::Learned(id) = self.notebook.ended() {
            self.swaps.retain(|id, _| self.notebook.known(*id).is_some());
            if let Some(known) = self.notebook.known(id) {
                self.swaps.insert(id, Swaps::new(known, m.machine()));
            }
        }
        Ok(())
    }

    fn settled(&self) -> bool {
        self.plan().is_some()
    }
}

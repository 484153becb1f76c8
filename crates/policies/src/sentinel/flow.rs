//! The programs that Sentinel has profiled: which of them is running, and what was decided for each (section IV-E).
//!
//! A framework that builds its graph anew for every input size has few graphs for many sizes, so sizes are put into at most
//! ten buckets and each is profiled once. A graph with branches has a new dataflow now and then; the first kernel that
//! is not as profiled tells, and if no other known dataflow begins so, the iteration is profiled.

use std::sync::Arc;

use tiercel_core::{Bytes, Manager};
use tiercel_profile::sharing::{Piece, reorganised};

use super::interval::{self, Terms, bandwidth};
use super::need;
use super::schedule::{Leaving, Schedule, units};
use super::trial::Trials;
use super::zone::FAST;
use crate::recording::{Item, Recorder, Recording};

/// Different input sizes that are told apart at most.
pub const BUCKETS: usize = 10;

/// Dataflows that are remembered at most.
const REMEMBERED: usize = 24;

/// Sizes within a quarter of each other are in one bucket.
fn alike(a: Bytes, b: Bytes) -> bool {
    a.0.max(b.0) <= a.0.min(b.0).saturating_mul(5).div_ceil(4)
}

/// All that is known of one program, and decided for it.
#[derive(Clone, Debug)]
pub struct Profiled {
    /// What it does.
    pub recording: Recording,
    /// Who is in fast memory when.
    pub schedule: Schedule,
    /// What the equations say of the length of its intervals.
    pub terms: Terms,
    /// The least fast memory that it should have.
    pub lower_bound: Bytes,
}

impl Profiled {
    fn new(recording: Recording, m: &Manager, page: Bytes, ways: Ways) -> Profiled {
        let (machine, fast) = (m.machine(), m.space(FAST).capacity());
        let reach = need::reach(&recording, page);
        let terms = match ways.length {
            Some(length) => interval::terms(&recording, &reach, length, fast, bandwidth(machine)),
            None => interval::choose(&recording, &reach, fast, bandwidth(machine)),
        };
        let waits = machine.tiers.iter().any(|tier| !tier.computable);
        // Behind a link that is slow beside the kernels, copies that nobody needs cost more than they can save.
        let leaving = ways.leaving.unwrap_or(if waits { Leaving::ForOthers } else { Leaving::AtOnce });
        let piece = |item: &Item| Piece { bytes: item.size, passes: item.passes(), life: item.life };
        let pieces: Vec<Piece> = recording.items.iter().map(piece).collect();
        let units = units(&recording, &reorganised(&pieces, page), page);
        let schedule = Schedule::new(&recording, units, &reach, terms.length, fast, waits, leaving);
        let lower_bound = need::lower_bound_of(&recording, &reach);
        Profiled { recording, schedule, terms, lower_bound }
    }
}

/// What is decided for every program alike.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ways {
    /// Layers in an interval, where the equations are not asked.
    pub length: Option<u32>,
    /// When objects leave, where that is not as the machine has it.
    pub leaving: Option<Leaving>,
}

/// One program and its trials.
#[derive(Clone, Debug)]
pub struct Flow {
    /// What is known of it.
    pub known: Arc<Profiled>,
    /// What is tried.
    pub trials: Trials,
    used: u64,
}

/// The programs that have been profiled.
#[derive(Clone, Debug, Default)]
pub struct Flows {
    flows: Vec<Flow>,
    uses: u64,
}

impl Flows {
    /// A program by its position.
    pub fn get(&self, at: usize) -> &Flow {
        &self.flows[at]
    }

    /// A program by its position, to note how it went.
    pub fn get_mut(&mut self, at: usize) -> &mut Flow {
        &mut self.flows[at]
    }

    /// Says that a program runs.
    pub fn touch(&mut self, at: usize) {
        self.uses += 1;
        self.flows[at].used = self.uses;
    }

    /// How many input sizes are told apart.
    fn buckets(&self) -> usize {
        let fed = |at: usize| self.flows[at].known.recording.fed();
        (0..self.flows.len()).filter(|at| (0..*at).all(|other| !alike(fed(*at), fed(other)))).count()
    }

    /// A program that does what this iteration has done so far, with inputs of a size like this iteration's: `now`, if it
    /// is one, else the one used last.
    pub fn matching(&self, recorder: &Recorder, now: Option<usize>) -> Option<usize> {
        let full = self.buckets() >= BUCKETS;
        let fed = recorder.fed();
        let begins_so = |at: &usize| {
            let moments = &self.flows[*at].known.recording.moments;
            recorder.steps() <= moments.len()
                && (0..recorder.steps()).rev().all(|step| moments[step].operands == recorder.line(step))
        };
        let distance = |at: &usize| {
            let size = self.flows[*at].known.recording.fed();
            let near = alike(fed, size);
            (near || full).then(|| if near { 0 } else { fed.0.abs_diff(size.0) })
        };
        let candidates = (0..self.flows.len()).filter(begins_so);
        let found = candidates.filter_map(|at| Some((distance(&at)?, at)));
        let key =
            |(distance, at): &(u64, usize)| (*distance, now != Some(*at), u64::MAX - self.flows[*at].used);
        found.min_by_key(key).map(|(_, at)| at)
    }

    /// Adds a program; returns its position.
    pub fn learn(&mut self, recording: Recording, m: &Manager, page: Bytes, ways: Ways) -> usize {
        let known = Arc::new(Profiled::new(recording, m, page, ways));
        let flow = Flow { known, trials: Trials::default(), used: 0 };
        if self.flows.len() < REMEMBERED {
            self.flows.push(flow);
            return self.flows.len() - 1;
        }
        let oldest = (0..self.flows.len()).min_by_key(|at| self.flows[*at].used).expect("there are some");
        self.flows[oldest] = flow;
        oldest
    }

    /// Works out anew what is decided for a program, whose recording has changed.
    pub fn revise(&mut self, at: usize, recording: Recording, m: &Manager, page: Bytes, ways: Ways) {
        self.flows[at].known = Arc::new(Profiled::new(recording, m, page, ways));
        self.flows[at].trials = Trials::default();
    }
}

//! How often the memory of each tensor is accessed in one iteration (Sentinel, section III-A).
//!
//! An access is one page read or written once. In a simulation the trace says how many bytes each kernel moves, and
//! [`Accesses::of_trace`] adds them up. On real memory nothing has to be believed: [`Counting`] wraps the kernels and
//! watches the pages of their operands, which the system takes away and gives back at every access (`faults.rs`). For
//! that no page may hold two tensors, so objects must lie in whole pages, as Sentinel's policy puts them while it
//! profiles. The two agree on kernels that pass over their operands as often as the trace says; a kernel that reads and
//! writes a tensor in the same pass has it once where the trace has it twice.

mod faults;

use std::collections::HashMap;

use tiercel_core::{Access, Bytes};
use tiercel_run::{Failure, Kernels, Turn, View};
use tiercel_sim::Work;
use tiercel_workload::{Tensor, TensorId, Trace};

/// The size of a page, in which accesses are counted.
pub const PAGE: Bytes = Bytes(4096);

/// The accesses to one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// The tensor's name.
    pub name: String,
    /// Its size.
    pub bytes: Bytes,
    /// How often one of its pages was accessed, all pages together.
    pub accesses: u64,
}

impl Count {
    /// How many pages it has.
    pub fn pages(&self) -> u64 {
        self.bytes.0.div_ceil(PAGE.0).max(1)
    }

    /// How often each page was accessed, on average: how many passes there were over it.
    pub fn passes(&self) -> f64 {
        self.accesses as f64 / self.pages() as f64
    }
}

/// The page accesses of one use: all the pages that so many bytes are, when reading and when writing.
pub fn accesses_of(access: Access, bytes: Bytes) -> u64 {
    let pages = bytes.0.div_ceil(PAGE.0).max(1);
    pages * (u64::from(access.reads()) + u64::from(access.writes()))
}

/// The accesses to every tensor of a trace in one iteration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    counts: Vec<Count>,
}

impl Accesses {
    /// No accesses yet to the tensors of a trace.
    pub fn none(trace: &Trace) -> Accesses {
        let count = |t: &Tensor| Count { name: t.name.clone(), bytes: t.bytes, accesses: 0 };
        Accesses { counts: trace.tensors.iter().map(count).collect() }
    }

    /// What the bytes that the trace states amount to.
    pub fn of_trace(trace: &Trace) -> Accesses {
        let mut accesses = Accesses::none(trace);
        for kernel in &trace.kernels {
            let reads = kernel.reads.iter().map(|used| (used, Access::Read));
            for (used, access) in reads.chain(kernel.writes.iter().map(|used| (used, Access::Write))) {
                accesses.counts[used.tensor.0 as usize].accesses += accesses_of(access, used.bytes);
            }
        }
        accesses
    }

    /// The accesses to one tensor.
    pub fn of(&self, tensor: TensorId) -> &Count {
        &self.counts[tensor.0 as usize]
    }

    /// Every tensor, in the order of the trace.
    pub fn iter(&self) -> impl Iterator<Item = &Count> {
        self.counts.iter()
    }

    /// Every tensor by its name.
    pub fn by_name(&self) -> HashMap<&str, &Count> {
        self.counts.iter().map(|count| (count.name.as_str(), count)).collect()
    }
}

/// As many pages as are left open before the one opened first is watched again: what a second-level cache or a TLB
/// would keep from memory. A pass over fewer pages than that is counted once a kernel, however often it is repeated.
pub const OPEN_PAGES: usize = 64;

/// Kernels whose accesses to memory are counted, for as long as there is something to count into.
pub struct Counting<K> {
    kernels: K,
    open: usize,
    counted: Option<Accesses>,
}

impl<K> Counting<K> {
    /// Counts nothing until told to.
    pub fn new(kernels: K) -> Counting<K> {
        Counting { kernels, open: OPEN_PAGES, counted: None }
    }

    /// The same with another number of pages that stay open, at least [`faults::LEAST_OPEN`].
    pub fn open_pages(mut self, pages: usize) -> Counting<K> {
        self.open = pages.max(faults::LEAST_OPEN);
        self
    }

    /// Counts from now on, from zero, for the kernels of this trace.
    pub fn start(&mut self, trace: &Trace) {
        self.counted = Some(Accesses::none(trace));
    }

    /// Counts no longer, and hands over what was counted.
    pub fn stop(&mut self) -> Option<Accesses> {
        self.counted.take()
    }

    /// The kernels.
    pub fn kernels(&self) -> &K {
        &self.kernels
    }

    /// The kernels, to tell them something between iterations.
    pub fn kernels_mut(&mut self) -> &mut K {
        &mut self.kernels
    }
}

impl<K: Kernels> Kernels for Counting<K> {
    fn turn(&mut self, turn: Turn) {
        self.kernels.turn(turn);
    }

    fn load(&mut self, tensor: &Tensor, bytes: &mut [u8]) -> Result<(), Failure> {
        self.kernels.load(tensor, bytes)
    }

    fn save(&mut self, tensor: &Tensor, bytes: &[u8]) -> Result<(), Failure> {
        self.kernels.save(tensor, bytes)
    }

    fn run(&mut self, work: &Work<'_>, views: &mut [View<'_>]) -> Result<(), Failure> {
        let Counting { kernels, open, counted } = self;
        let Some(counted) = counted else { return kernels.run(work, views) };
        let (done, touched) = faults::count(views, *open, |views| kernels.run(work, views))
            .map_err(|why| format!("{}: accesses cannot be counted: {why}", work.kernel.name))?;
        let uses = work.kernel.reads.iter().chain(&work.kernel.writes);
        let mut seen = vec![false; touched.len()];
        for (used, slot) in uses.zip(work.slots) {
            if !std::mem::replace(&mut seen[*slot], true) {
                counted.counts[used.tensor.0 as usize].accesses += touched[*slot];
            }
        }
        done
    }
}

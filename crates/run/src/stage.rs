//! Real memory with kernels that work on it: the host as a world for the executor.

use std::error::Error;
use std::ptr::NonNull;

use tiercel_core::{
    Backend, Bytes, CopyError, CopyOrder, Locked, Manager, Nanos, Operand, Place, Span, Ticket,
};
use tiercel_workload::Tensor;

use crate::host::{Host, Job, Key};
use crate::profile::Profile;
use tiercel_sim::world::{Work, World};

/// The bytes of one operand.
#[derive(Debug)]
pub enum View<'a> {
    /// To look at.
    Read(&'a [u8]),
    /// To look at and to change.
    Write(&'a mut [u8]),
}

/// What changes from one iteration to the next beside the contents of tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// What first contents and whatever kernels do by chance follow from.
    pub seed: u64,
    /// Iterations before this one, since the weights were new; what is random, and what corrects for the first
    /// iterations, follows from it.
    pub iteration: u64,
    /// What the learning rate of every update is multiplied by.
    pub rate: f32,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn { seed: 0, iteration: 0, rate: 1.0 }
    }
}

/// Why a kernel did not run: an error of whoever computes, told with the kernel's name.
pub type Failure = Box<dyn Error + Send + Sync>;

/// A kernel that runs by itself, on operands in the order of `work.operands`.
pub type Detached = Box<dyn FnOnce(&mut [View<'_>]) -> Result<(), Failure> + Send>;

/// Arithmetic on memory that the manager owns.
pub trait Kernels {
    /// Says which iteration comes next.
    fn turn(&mut self, turn: Turn) {
        let _ = turn;
    }

    /// Gives a tensor that no kernel makes its first contents.
    fn load(&mut self, tensor: &Tensor, bytes: &mut [u8]) -> Result<(), Failure>;

    /// Takes the contents of a tensor that outlives iterations, between two of them.
    fn save(&mut self, tensor: &Tensor, bytes: &[u8]) -> Result<(), Failure> {
        let _ = (tensor, bytes);
        Ok(())
    }

    /// Runs a kernel on its operands, in the order of `work.operands`.
    fn run(&mut self, work: &Work<'_>, views: &mut [View<'_>]) -> Result<(), Failure>;

    /// Hands out a kernel that is to run beside those that follow; `None` where it should be run at once after all.
    fn detach(&mut self, work: &Work<'_>) -> Option<Detached> {
        let _ = work;
        None
    }

    /// Whether the weights that the last kernel has changed are known to be finite numbers, so that nobody needs to look.
    fn finite(&self) -> bool {
        false
    }
}

/// Real memory and the kernels that work on it.
pub struct Stage<K> {
    host: Host,
    kernels: K,
    profile: Option<Profile>,
    /// Kept between kernels so that none of them allocates.
    views: Vec<View<'static>>,
}

impl<K: Kernels> Stage<K> {
    /// A world of these memories and these kernels.
    pub fn new(host: Host, kernels: K) -> Stage<K> {
        Stage { host, kernels, profile: None, views: Vec::new() }
    }

    /// The times of kernels by placement, of the stage that a manager has: recorded while there is a profile here.
    pub fn times(manager: &mut Manager<Stage<K>>) -> &mut Option<Profile> {
        // SAFETY: nothing but the profile is reached.
        &mut manager.backend_mut(unsafe { Key::new() }).profile
    }

    /// The memories.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The kernels.
    pub fn kernels(&self) -> &K {
        &self.kernels
    }

    /// The kernels of the stage that a manager has, to tell them something between iterations.
    pub fn kernels_of(manager: &mut Manager<Stage<K>>) -> &mut K {
        // SAFETY: nothing but the kernels is reached.
        &mut manager.backend_mut(unsafe { Key::new() }).kernels
    }
}

/// Lists the bytes of a kernel's operands.
///
/// # Safety
/// The manager has begun a kernel with just these operands, each object named once or only read, and the views are
/// gone before it ends: then no copy writes to the regions, none reads those that the kernel writes, and regions of
/// different objects do not overlap.
pub unsafe fn views<'h>(
    host: &'h Host,
    operands: &[Operand],
    places: &[(Place, Bytes)],
    views: &mut Vec<View<'h>>,
) -> Result<(), String> {
    for (operand, &(place, size)) in operands.iter().zip(places) {
        let slice = host.slice(place, size);
        let mut slice = slice.ok_or_else(|| format!("kernels cannot work on {}", place.tier))?;
        views.push(if operand.access.writes() {
            // SAFETY: the caller promises that nothing else refers to these bytes.
            View::Write(unsafe { slice.as_mut() })
        } else {
            // SAFETY: the caller promises that nothing writes these bytes.
            View::Read(unsafe { slice.as_ref() })
        });
    }
    Ok(())
}

/// The bytes of the operands of a kernel that runs beside others, with whether it writes them.
struct Lent(Vec<(NonNull<[u8]>, bool)>);

// SAFETY: the addresses are of mappings that live as long as the host, whose threads are the only ones to use them; that
// nobody else does meanwhile is what the manager sees to between `leave` and the end of the ticket.
unsafe impl Send for Lent {}

impl Lent {
    /// Runs a kernel on the operands.
    fn run(self, detached: Detached) -> Result<(), Failure> {
        let view = |(mut bytes, writes): (NonNull<[u8]>, bool)| match writes {
            // SAFETY: until the ticket has ended, the manager lets nobody else read or write what the kernel writes, nor
            // frees the memory for others to use; operands are named once, so no two of them overlap.
            true => View::Write(unsafe { bytes.as_mut() }),
            // SAFETY: until then nobody writes what it reads.
            false => View::Read(unsafe { bytes.as_ref() }),
        };
        let mut views: Vec<View<'_>> = self.0.into_iter().map(view).collect();
        detached(&mut views)
    }
}

/// A failure as a world tells it.
fn told(failure: Failure) -> String {
    failure.to_string()
}

/// The same allocation, empty, for views that live elsewhere.
pub fn recycle<'b>(mut views: Vec<View<'_>>) -> Vec<View<'b>> {
    views.clear();
    // Nothing is left to map; the standard library keeps the allocation.
    views.into_iter().map(|_| View::Read(&[])).collect()
}

impl<K> Backend for Stage<K> {
    fn copy(&mut self, order: CopyOrder<'_>) -> Ticket {
        self.host.copy(order)
    }

    fn copy_paged(&mut self, order: CopyOrder<'_>, pages: u64) -> Ticket {
        self.host.copy_paged(order, pages)
    }

    fn done(&mut self, ticket: Ticket) -> Result<bool, CopyError> {
        self.host.done(ticket)
    }

    fn wait(&mut self, ticket: Ticket) -> Result<(), CopyError> {
        self.host.wait(ticket)
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.host.cancel(ticket);
    }

    fn span(&self, ticket: Ticket) -> Option<Span> {
        self.host.span(ticket)
    }

    fn forget(&mut self, ticket: Ticket) {
        self.host.forget(ticket);
    }

    fn now(&self) -> Nanos {
        self.host.now()
    }

    fn settle(&mut self) {
        self.host.settle();
    }
}

impl<K> Locked for Stage<K> {
    type Key = Key;
}

impl<K: Kernels> World for Stage<K> {
    unsafe fn key() -> Key {
        // SAFETY: the caller makes no copies with it.
        unsafe { Key::new() }
    }

    unsafe fn load(&mut self, tensor: &Tensor, place: Place) -> Result<(), String> {
        let slice = self.host.slice(place, tensor.bytes);
        let mut slice = slice.ok_or_else(|| format!("kernels cannot work on {}", place.tier))?;
        // SAFETY: the caller has begun a kernel that writes this object: the manager has waited for every copy
        // that touches the region and no other region overlaps it.
        self.kernels.load(tensor, unsafe { slice.as_mut() }).map_err(told)
    }

    unsafe fn save(&mut self, tensor: &Tensor, place: Place) -> Result<(), String> {
        let slice = self.host.slice(place, tensor.bytes);
        let slice = slice.ok_or_else(|| format!("kernels cannot work on {}", place.tier))?;
        // SAFETY: the caller has begun a kernel that reads this object: the manager has waited for the copy that
        // fills the region, and nothing writes to it until the kernel ends.
        self.kernels.save(tensor, unsafe { slice.as_ref() }).map_err(told)
    }

    unsafe fn compute(&mut self, work: &Work<'_>) -> Result<(), String> {
        let started = self.host.now();
        let mut slices: Vec<View<'_>> = std::mem::take(&mut self.views);
        // SAFETY: the caller is between `begin` and `end` of just this kernel.
        let found = unsafe { views(&self.host, work.operands, work.places, &mut slices) };
        let done = found.and_then(|()| self.kernels.run(work, &mut slices).map_err(told));
        self.views = recycle(slices);
        done?;
        self.host.charge(work.traffic, started);
        if let Some(profile) = &mut self.profile {
            profile.add(work, self.host.now() - started);
        }
        Ok(())
    }

    unsafe fn launch(&mut self, work: &Work<'_>) -> Result<Option<Ticket>, String> {
        let detached = if self.host.runs_detached() { self.kernels.detach(work) } else { None };
        let Some(detached) = detached else {
            // SAFETY: the caller promises the same.
            return unsafe { self.compute(work) }.map(|()| None);
        };
        let slice = |(operand, &(place, size)): (&Operand, &(Place, Bytes))| {
            let slice =
                self.host.slice(place, size).ok_or_else(|| format!("kernels cannot work on {}", place.tier));
            Ok((slice?, operand.access.writes()))
        };
        let lent = Lent(work.operands.iter().zip(work.places).map(slice).collect::<Result<_, String>>()?);
        let traffic = work.traffic.to_vec();
        Ok(Some(self.host.submit(Job { work: Box::new(move || lent.run(detached).map_err(told)), traffic })))
    }

    fn measured(&self) -> bool {
        true
    }
}

//! A world that kernels run in: a backend that moves bytes, and computes beside.

use tiercel_core::{Backend, Bytes, Locked, Manager, Operand, Place, Step, Ticket, Traffic};
use tiercel_workload::{Kernel, Tensor};

/// A kernel that has all its operands in place.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// When in the trace it runs.
    pub step: Step,
    /// What it is.
    pub kernel: &'a Kernel,
    /// The objects that it uses, each once.
    pub operands: &'a [Operand],
    /// Where each operand is, and its size.
    pub places: &'a [(Place, Bytes)],
    /// For each of the kernel's reads, then for each of its writes, which operand it is.
    pub slots: &'a [usize],
    /// The bytes that it moves on each tier.
    pub traffic: &'a [Traffic],
    /// Whether those bytes are what a cache below the level of objects makes of it.
    pub cached: bool,
}

/// A backend in which kernels run.
///
/// Where memory is real a kernel works on the bytes at its places: a call that no manager stands behind would race with copies,
/// or hand out the same bytes twice. So these calls are unsafe, and the executor makes them.
pub trait World: Locked {
    /// The key to this world.
    ///
    /// # Safety
    /// It is used for nothing but the calls below, each under its own conditions.
    unsafe fn key() -> Self::Key;

    /// Gives a tensor that no kernel makes its first contents.
    ///
    /// # Safety
    /// This world's manager has begun, and not ended, a kernel that writes the object at this place.
    unsafe fn load(&mut self, tensor: &Tensor, place: Place) -> Result<(), String>;

    /// Hands the contents of a tensor that outlives iterations to whoever keeps them, between two iterations.
    ///
    /// # Safety
    /// This world's manager has begun, and not ended, a kernel that reads the object at this place.
    unsafe fn save(&mut self, tensor: &Tensor, place: Place) -> Result<(), String> {
        let _ = (tensor, place);
        Ok(())
    }

    /// Runs a kernel and returns when it has ended.
    ///
    /// # Safety
    /// This world's manager has begun, and not ended, a kernel with just these operands, which are at these places.
    unsafe fn compute(&mut self, work: &Work<'_>) -> Result<(), String>;

    /// Starts a kernel that runs beside those that follow, and returns its ticket; or runs it and returns none, where there is
    /// nothing to run it beside the others.
    ///
    /// # Safety
    /// As for [`compute`](World::compute); and where there is a ticket, the manager is told to `leave` the kernel to it.
    unsafe fn launch(&mut self, work: &Work<'_>) -> Result<Option<Ticket>, String>;

    /// Whether times are read off a clock on the wall.
    fn measured(&self) -> bool;
}

/// The bytes that a kernel moves on each tier when every operand is used where its primary is.
pub fn traffic_of<B: Backend + ?Sized>(manager: &Manager<B>, operands: &[Operand], out: &mut Vec<Traffic>) {
    out.clear();
    for operand in operands {
        let Some(tier) = manager.home(operand.object) else { continue };
        let at = out.iter().position(|t| t.tier == tier).unwrap_or_else(|| {
            out.push(Traffic { tier, read: Bytes::ZERO, write: Bytes::ZERO });
            out.len() - 1
        });
        if operand.access.reads() {
            out[at].read += operand.bytes;
        }
        if operand.access.writes() {
            out[at].write += operand.bytes;
        }
    }
}

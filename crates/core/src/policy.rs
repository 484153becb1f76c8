//! Decides which objects live where, while the program runs.
//!
//! A policy sees hints and kernels and calls the manager; it never touches bytes and cannot tell a simulated world
//! from a real one (CachedArrays section III-B). A planner's plan is played by a policy too, so the executor
//! knows nothing else.

use crate::error::Error;
use crate::hint::{Access, Hint};
use crate::manager::Manager;
use crate::object::ObjectId;
use crate::units::{Bytes, Step, TierId};

/// One object that a kernel uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The object.
    pub object: ObjectId,
    /// What the kernel does with it.
    pub access: Access,
    /// The bytes that the kernel moves between the object and the processor, reads and writes each counted once.
    pub bytes: Bytes,
}

impl Operand {
    /// How much of an object the kernel at a step wants at once: whoever fills it from outside, or hands it out, goes row by
    /// row.
    pub fn wanted(&self, step: Step) -> Bytes {
        if step == Step::LOAD { Bytes::ZERO } else { self.bytes }
    }
}

/// Bytes that a kernel moves to and from one tier while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The tier.
    pub tier: TierId,
    /// Bytes read from it.
    pub read: Bytes,
    /// Bytes written to it.
    pub write: Bytes,
}

/// Decides which objects live where, while the program runs.
///
/// Every method may start copies and change primaries through the manager. None has to wait: a kernel waits for
/// the bytes that it needs, and only for those.
pub trait Policy: Send {
    /// What the policy is called on the command line.
    fn name(&self) -> &str;

    /// A kernel of this type (such as `conv` or `batch-norm.backward`) comes next; nothing has been made for it yet.
    fn coming(&mut self, manager: &mut Manager, step: Step, op: &str) -> Result<(), Error> {
        let _ = (manager, step, op);
        Ok(())
    }

    /// Gives a new object its first region.
    fn place(&mut self, manager: &mut Manager, object: ObjectId) -> Result<(), Error>;

    /// Reacts to what the application says of an object's future.
    fn hint(&mut self, manager: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error>;

    /// A kernel is about to run: the last chance to bring its operands to where it can work on them.
    fn before(&mut self, manager: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error>;

    /// A kernel has ended.
    fn after(&mut self, manager: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        let _ = (manager, step, operands);
        Ok(())
    }

    /// A layer of the program has ended, and all that the program had to say of its objects is said (the mark that
    /// Sentinel, section VI, asks programs for).
    fn layer_ended(&mut self, manager: &mut Manager) -> Result<(), Error> {
        let _ = manager;
        Ok(())
    }

    /// One pass over the trace has ended.
    fn iteration_ended(&mut self, manager: &mut Manager) -> Result<(), Error> {
        let _ = manager;
        Ok(())
    }

    /// The bytes that the coming kernel moves on each tier, where that does not follow from its operands' primaries
    /// (a cache that works below the level of objects). The default says that it does follow.
    fn traffic(&mut self, manager: &mut Manager, operands: &[Operand]) -> Option<Vec<Traffic>> {
        let _ = (manager, operands);
        None
    }

    /// Whether the policy has learned what it wants to know of the program. Comparisons leave out the iterations
    /// before.
    fn settled(&self) -> bool {
        true
    }
}

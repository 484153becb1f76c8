//! What can go wrong with objects and tiers: each error names the thing, the amount wanted and the amount there.
//!
//! What can happen (a full tier, a failed disk, an object in use) is an error; what only a bug can cause (a block
//! freed twice) is an assertion.

use crate::backend::CopyError;
use crate::units::{Bytes, Step, TierId};

/// A tier has no free piece that is large enough; a cheap answer for policies that then make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// The tier that was asked.
    pub tier: TierId,
    /// How much was wanted.
    pub wanted: Bytes,
}

/// Why the manager refused, or what failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A tier has no free piece that is large enough, and no room could be made.
    #[error("{tier}: {what} needs {wanted}; {free} free, largest piece {largest}")]
    Full {
        /// The tier's name.
        tier: String,
        /// Who needs it.
        what: String,
        /// How much was wanted.
        wanted: Bytes,
        /// How much is free in all.
        free: Bytes,
        /// The largest free piece.
        largest: Bytes,
    },
    /// No tier could hold the object even if it were empty.
    #[error("{what} needs {wanted}; the largest tier, {tier}, holds {capacity}")]
    TooLarge {
        /// The object.
        what: String,
        /// Its size.
        wanted: Bytes,
        /// The largest tier.
        tier: String,
        /// What that tier holds.
        capacity: Bytes,
    },
    /// A kernel needs more memory than all tiers that it can work on have.
    #[error("{step} works on {wanted} at once; the tiers that kernels can work on hold {capacity}")]
    WorkingSet {
        /// The kernel's step.
        step: Step,
        /// The sum of its operands.
        wanted: Bytes,
        /// What the tiers hold.
        capacity: Bytes,
    },
    /// The object has been retired, or never existed.
    #[error("{what} does not exist; it may have been retired")]
    Unknown {
        /// The object's or region's id.
        what: String,
    },
    /// The object is between `begin` and `end` of a kernel.
    #[error("{what} is in use by a kernel: it cannot be {action}")]
    InUse {
        /// The object.
        what: String,
        /// What was asked.
        action: &'static str,
    },
    /// The object has no region yet.
    #[error("{what} has not been placed on any tier")]
    Unplaced {
        /// The object.
        what: String,
    },
    /// A kernel would work on a tier that kernels cannot reach.
    #[error("{step} uses {what}, which lies on {tier}; kernels cannot work there")]
    NotComputable {
        /// The kernel's step.
        step: Step,
        /// The object.
        what: String,
        /// The tier's name.
        tier: String,
    },
    /// A kernel would read bytes that nothing has written.
    #[error("{step} reads {what}, which nothing has written")]
    Unwritten {
        /// The kernel's step.
        step: Step,
        /// The object.
        what: String,
    },
    /// A kernel names an object twice.
    #[error("{step} names {what} twice: what it reads and writes of an object is said at once")]
    Repeated {
        /// The kernel's step.
        step: Step,
        /// The object.
        what: String,
    },
    /// The step would lose data or mix objects up.
    #[error("{what}: {why}")]
    Refused {
        /// The object or region.
        what: String,
        /// Why not.
        why: &'static str,
    },
    /// A copy failed; the object is back where it was.
    #[error("copy of {what} ({bytes}) from {from} to {to} failed: {cause}")]
    Copy {
        /// The object.
        what: String,
        /// Its size.
        bytes: Bytes,
        /// The tier it was copied from.
        from: String,
        /// The tier it was copied to.
        to: String,
        /// What the backend said.
        cause: CopyError,
    },
    /// A copy failed and no other region holds the object's bytes.
    #[error("{what} was lost when a copy of it failed")]
    Lost {
        /// The object.
        what: String,
    },
    /// A kernel's own work failed.
    #[error("{step}: {why}")]
    Kernel {
        /// The kernel's step.
        step: Step,
        /// What went wrong.
        why: String,
    },
}

/// What is wrong with a state that should be sound: a defect of ours, never of whoever uses it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsound(pub String);

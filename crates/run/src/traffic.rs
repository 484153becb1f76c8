//! The bytes that a kernel moves between itself and a tier, which every world charges for in its own way.

use tiercel_core::{Bytes, TierId};

/// What one kernel reads from and writes to one tier while it works there directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The tier.
    pub tier: TierId,
    /// Bytes that the kernel reads from it.
    pub read: Bytes,
    /// Bytes that the kernel writes to it.
    pub write: Bytes,
}

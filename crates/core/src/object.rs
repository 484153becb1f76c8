//! The movable unit of data, with a stable id: a tensor, a block of vectors, a batch of particles.
//!
//! An object has a size and regions that hold its bytes: one primary, and replicas that may be valid or stale
//! (CachedArrays section III-C). Its version counts the kernels that have written it; a region holds the current
//! bytes if it carries that version.

use std::sync::Arc;

use crate::region::RegionId;
use crate::slab::key;
use crate::units::Bytes;

key!(
    /// The stable name of an object.
    ObjectId,
    "object"
);

/// What the manager knows of an object.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) size: Bytes,
    /// The region that holds the current bytes; none before the policy has placed the object.
    pub(crate) primary: Option<RegionId>,
    /// The first of all its regions, which form a list.
    pub(crate) regions: Option<RegionId>,
    /// How often it has been written; at 0 its bytes have no meaning yet.
    pub(crate) version: u32,
    /// Kernels that use it right now.
    pub(crate) pins: u32,
    /// Kernels that write it right now.
    pub(crate) writers: u32,
    /// The last kernel that named it, by the manager's count.
    pub(crate) named: u64,
    /// A copy failed and no region holds its bytes any more.
    pub(crate) lost: bool,
}

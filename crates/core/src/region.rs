//! One slice of one heap that holds one object's bytes.
//!
//! A region is loose until it is linked to another region or made an object's primary. Copies in flight hold it:
//! while one fills it or reads it, or while its memory is still read by a copy of the region that was there before,
//! whoever needs it waits for that copy and for no other.

use crate::heap::BlockId;
use crate::manager::FlightId;
use crate::object::ObjectId;
use crate::slab::key;
use crate::units::{Bytes, TierId};
use crate::zone::ZoneId;

key!(
    /// The name of a region while it exists.
    RegionId,
    "region"
);

/// What the manager knows of a region.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    /// The object that it belongs to; none while it is loose.
    pub(crate) object: Option<ObjectId>,
    /// The object whose bytes it holds; kept while loose.
    pub(crate) contents: Option<ObjectId>,
    /// The next region of the same object.
    pub(crate) sibling: Option<RegionId>,
    /// Which version of the object's bytes it holds, or will hold once `fill` has landed; 0 means nothing of use.
    pub(crate) version: u32,
    pub(crate) tier: TierId,
    pub(crate) zone: ZoneId,
    pub(crate) block: BlockId,
    pub(crate) offset: Bytes,
    pub(crate) size: Bytes,
    /// The copy that fills it.
    pub(crate) fill: Option<FlightId>,
    /// How many copies read it.
    pub(crate) readers: u32,
    /// Copies of earlier regions that still use its memory.
    pub(crate) space: Vec<FlightId>,
}

impl Region {
    /// The first byte after it, rounding not counted.
    pub(crate) fn end(&self) -> Bytes {
        self.offset + self.size
    }
}

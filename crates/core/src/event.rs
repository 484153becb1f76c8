//! What happened: one event for everything that changes or waits, and running totals.
//!
//! Reports, tests and traces for other tools read events only. Recording is off unless asked for; totals are
//! always kept, because they cost a few additions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::backend::{Place, Span, Ticket};
use crate::hint::Hint;
use crate::object::ObjectId;
use crate::region::RegionId;
use crate::units::{Bytes, Nanos, Step, TierId};
use crate::zone::ZoneId;

/// How a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every byte arrived.
    Done,
    /// Nobody needed the bytes any more.
    Cancelled,
    /// The backend could not do it.
    Failed,
}

/// What a kernel waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The object's bytes were still on their way.
    Arrival,
    /// A copy still read the bytes that the kernel is about to change.
    Departure,
    /// A copy still used the memory that the object was given.
    Space,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs)] // the fields say what they are
pub enum Event {
    /// The application made an object.
    Created { object: ObjectId, name: Option<Arc<str>>, bytes: Bytes },
    /// The application said something of an object's future.
    Hinted { object: ObjectId, hint: Hint },
    /// The application gave an object up.
    Retired { object: ObjectId },
    /// A region was taken from a heap.
    Allocated { region: RegionId, place: Place, bytes: Bytes },
    /// A region was given back.
    Freed { region: RegionId, place: Place, bytes: Bytes },
    /// A region became one of an object's.
    Linked { object: ObjectId, region: RegionId },
    /// A region left its object.
    Unlinked { object: ObjectId, region: RegionId },
    /// An object's current bytes are now in this region.
    Primary { object: ObjectId, region: RegionId, tier: TierId },
    /// A copy was handed to the backend.
    CopyStarted { ticket: Ticket, object: ObjectId, from: Place, to: Place, bytes: Bytes },
    /// A copy was seen to have ended; `span` is when its bytes moved, where the backend knows.
    CopyEnded { ticket: Ticket, object: ObjectId, outcome: Outcome, span: Option<Span> },
    /// A cache below the level of objects moved bytes for the kernel that runs.
    Cached { fetched: Bytes, evicted: Bytes },
    /// A zone is this stretch of memory from now on; none at all once it is dissolved.
    Zoned { zone: ZoneId, name: Arc<str>, place: Place, bytes: Bytes },
    /// A kernel has all it needs and runs.
    KernelBegan { step: Step },
    /// A kernel has ended.
    KernelEnded { step: Step },
    /// A kernel goes on beside those that come next.
    KernelLeft { step: Step, ticket: Ticket },
    /// A kernel beside others was seen to have ended; `span` is when it ran, where the backend knows.
    KernelReturned { step: Step, ticket: Ticket, span: Option<Span> },
    /// A kernel waited.
    Stalled { step: Step, object: ObjectId, ticket: Ticket, cause: Cause, time: Nanos },
    /// One pass over the trace begins.
    IterationBegan { iteration: u32 },
    /// One pass over the trace has ended.
    IterationEnded { iteration: u32 },
}

/// An event and when it happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stamped {
    /// The time since the start of the run.
    pub at: Nanos,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// Sums over a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Bytes that copies moved towards faster tiers; a copy counts whole when it starts.
    pub fetched: Bytes,
    /// Bytes that copies moved towards slower tiers; a copy counts whole when it starts.
    pub evicted: Bytes,
    /// Copies started.
    pub copies: u64,
    /// Time that kernels waited for copies.
    pub stall: Nanos,
    /// The most bytes that each tier has held at once.
    pub peak: Vec<Bytes>,
}

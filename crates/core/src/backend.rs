//! What a world must do for the manager: move bytes and tell the time.
//!
//! There is a simulated world (a virtual clock, no bytes) and there are real ones (memory and copy threads). The
//! manager, the policies and the executor cannot tell which they live in; that is what makes a simulation a test
//! of the real thing.

use crate::units::{Bytes, Nanos, TierId};

/// A copy that has been started; later copies have larger numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Ticket(pub u64);

/// A stretch of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Place {
    /// The tier.
    pub tier: TierId,
    /// Where in the tier it starts.
    pub offset: Bytes,
}

/// When the bytes of a copy moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Span {
    /// When its link took it up.
    pub began: Nanos,
    /// When the last byte had arrived, or the copy was given up.
    pub ended: Nanos,
}

/// Bytes to move, and what must have happened before the first of them moves.
#[derive(Clone, Copy, Debug)]
pub struct CopyOrder<'a> {
    /// Where the bytes are.
    pub from: Place,
    /// Where they go.
    pub to: Place,
    /// How many.
    pub bytes: Bytes,
    /// Copies that must end first: they fill the source, or still use the destination.
    pub after: &'a [Ticket],
}

/// Why a copy could not be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CopyError(pub String);

/// Moves bytes between tiers in the background and tells the time.
pub trait Backend {
    /// Starts a copy and returns at once.
    ///
    /// The source stays unchanged and the destination unread until the copy has ended; the manager sees to it.
    fn copy(&mut self, order: CopyOrder<'_>) -> Ticket;

    /// Starts a copy that is asked for page by page, as by page faults: one of its `pages` after the other, and each takes
    /// the link's latency.
    fn copy_paged(&mut self, order: CopyOrder<'_>, pages: u64) -> Ticket;

    /// Whether a copy has ended, well or not. A failed copy tells why, each time it is asked, until it is
    /// forgotten.
    fn done(&mut self, ticket: Ticket) -> Result<bool, CopyError>;

    /// Returns when a copy has ended.
    fn wait(&mut self, ticket: Ticket) -> Result<(), CopyError>;

    /// Says that nobody needs the bytes of this copy any more: what has not moved yet need not. The copy still
    /// ends, and counts as done well.
    fn cancel(&mut self, ticket: Ticket);

    /// When the bytes of a copy that has ended moved, for whoever records it; `None` where none moved or nobody knows.
    fn span(&self, ticket: Ticket) -> Option<Span> {
        let _ = ticket;
        None
    }

    /// Says that nobody will ask about this copy again; it has ended.
    fn forget(&mut self, ticket: Ticket);

    /// The time since the start of the run.
    fn now(&self) -> Nanos;

    /// Returns when nothing is under way any more: whatever was started before a manager took over.
    fn settle(&mut self) {}
}

/// A backend that can be reached through its manager by whoever holds its key.
///
/// Behind the manager's back one could start a copy that it does not wait for. Where no bytes move that is a wrong figure at
/// most, and the key is `()`; where they do it would be a race, and only code that answers for it can make a key. A policy,
/// which does not know what moves the bytes, cannot reach them at all:
///
/// ```compile_fail
/// fn policy(manager: &mut tiercel_core::Manager) {
///     manager.backend_mut(());
/// }
/// ```
pub trait Locked: Backend {
    /// What has to be shown.
    type Key;
}

//! What can go wrong with a simulation.

use std::path::PathBuf;

use tiercel_core::Bytes;

/// What can go wrong with a simulation.
#[derive(Debug, thiserror::Error)]
pub enum PicError {
    /// Memory and its management.
    #[error(transparent)]
    Memory(#[from] tiercel_core::Error),
    /// The machine's memories.
    #[error(transparent)]
    Host(#[from] tiercel_run::HostError),
    /// Fast memory that cannot hold what a single step works on.
    #[error(
        "{fast} of fast memory is too little: {what} works on {wanted} at once; --fast {}KiB would do, or smaller tiles (`tile` in [grid])",
        enough.0.div_ceil(1024)
    )]
    TooLittle {
        /// How much there is.
        fast: Bytes,
        /// What wants more.
        what: &'static str,
        /// How much it wants.
        wanted: Bytes,
        /// With how much it would run.
        enough: Bytes,
    },
    /// A deck that is larger than this machine.
    #[error(
        "{what} want {wanted} of memory, and {there} could be had: fewer `cells` in [grid] or a smaller `per_cell` would do{more}"
    )]
    TooLarge {
        /// What of it.
        what: &'static str,
        /// How much it wants, or as much of it as it took to see that.
        wanted: Bytes,
        /// How much there is.
        there: Bytes,
        /// What would help beside.
        more: &'static str,
    },
    /// A system that cannot be used here.
    #[error("{system}: {why}")]
    Unusable {
        /// Which.
        system: crate::system::System,
        /// Why not.
        why: &'static str,
    },
    /// A comparison in which nobody could take part.
    #[error("there is nothing to compare: {why}")]
    Nothing {
        /// Why the first could not.
        why: String,
    },
    /// Other ranks that cannot be reached, or a deck that they cannot share.
    #[error("several ranks: {why}")]
    Team {
        /// Why not.
        why: String,
    },
    /// A file that cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A checkpoint that is damaged or of another run.
    #[error("{}: {why}", path.display())]
    Checkpoint {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Numbers that are none any more.
    #[error(
        "iteration {iteration}: the energy is no number any more; a shorter step or a finer grid may help"
    )]
    NotFinite {
        /// When it was noticed.
        iteration: u64,
    },
}

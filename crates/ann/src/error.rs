//! What can go wrong with an index, each with the thing, the amount wanted and the amount there.

use std::io;
use std::path::{Path, PathBuf};

use tiercel_core::Bytes;

use crate::element::Dtype;

/// Why something could not be done with vectors or an index of them.
#[derive(Debug, thiserror::Error)]
pub enum AnnError {
    /// Vectors of another length.
    #[error("vectors of {found} numbers for an index of {wanted}")]
    Dimension {
        /// What the index holds.
        wanted: usize,
        /// What came.
        found: usize,
    },
    /// A number of dimensions that no index has.
    #[error("an index cannot have {0} dimensions; there may be 1 to {MAX_DIM}")]
    NoSuchDimension(usize),
    /// A parameter out of its range.
    #[error("{what} cannot be {found}; it may be {low} to {high}")]
    Parameter {
        /// Which.
        what: &'static str,
        /// What was asked for.
        found: u64,
        /// The least.
        low: u64,
        /// The most.
        high: u64,
    },
    /// A number that is not finite.
    #[error("vector {row} has a number that is not finite, at {column}")]
    NotFinite {
        /// Which vector.
        row: usize,
        /// Which of its numbers.
        column: usize,
    },
    /// A number that the index's elements cannot hold.
    #[error("vector {row} has {value} at {column}, which {dtype} cannot hold")]
    NotHeld {
        /// Which vector.
        row: usize,
        /// Which of its numbers.
        column: usize,
        /// The number.
        value: f64,
        /// What the index holds.
        dtype: Dtype,
    },
    /// As many labels as vectors are needed.
    #[error("{labels} labels for {vectors} vectors")]
    Labels {
        /// How many labels came.
        labels: usize,
        /// How many vectors.
        vectors: usize,
    },
    /// The same label twice in one call.
    #[error("label {0} comes twice among the vectors to add")]
    Twice(u64),
    /// Labels cannot be numbered on from the highest there is.
    #[error("vectors without labels are numbered on, and behind label {0} there are too few numbers")]
    Numbers(u64),
    /// No vector of this label.
    #[error("the index holds no vector with the label {0}")]
    NoSuchLabel(u64),
    /// More vectors than ids.
    #[error("an index holds at most {most} vectors; {wanted} were wanted")]
    TooMany {
        /// How many there would be.
        wanted: usize,
        /// How many there may be.
        most: usize,
    },
    /// A file that is no index, or not a whole one.
    #[error("{}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The system refused something about a file.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Fast memory is too small for the least that a search needs.
    #[error("fast memory of {there} cannot hold {what}, which takes {wanted}")]
    FastMemory {
        /// What does not fit.
        what: &'static str,
        /// What it takes.
        wanted: Bytes,
        /// What there is.
        there: Bytes,
    },
    /// The machine's memories refused.
    #[cfg(feature = "tiers")]
    #[error(transparent)]
    Host(#[from] tiercel_run::HostError),
    /// Bookkeeping of tiers refused.
    #[error(transparent)]
    Tiers(#[from] tiercel_core::Error),
    /// Reading the slow tier failed while searching.
    #[error("reading {bytes} at {offset} of the slow tier: {source}")]
    Slow {
        /// How much.
        bytes: Bytes,
        /// Where.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// A page of the slow tier is not what was written.
    #[error(
        "page {page} of the slow tier is damaged: its checksum is {found:08x} and should be {wanted:08x}"
    )]
    Page {
        /// Which page.
        page: u64,
        /// What its contents give.
        found: u32,
        /// What it says.
        wanted: u32,
    },
    /// No setting reaches what was asked for.
    #[error("no setting reaches a recall of {wanted}; the best tried reaches {best}")]
    Unreachable {
        /// The recall asked for.
        wanted: f64,
        /// The best found.
        best: f64,
    },
    /// Something that needs vectors was asked of an index without any.
    #[error("the index is empty")]
    Empty,
    /// Something that this kind of file or index cannot do.
    #[error("{0}")]
    Unsupported(&'static str),
}

/// The most dimensions: integer distances stay within 32 bits.
pub const MAX_DIM: usize = 32_768;

impl AnnError {
    /// A file that is not what it should be.
    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> AnnError {
        AnnError::Damaged { path: path.to_path_buf(), what: what.into() }
    }

    /// What the system said of a file.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> AnnError + '_ {
        |source| AnnError::File { path: path.to_path_buf(), source }
    }
}

//! What can end a training run, and where.

use tiercel_core::{Error, Step};

use super::checkpoint::CheckpointError;
use super::data::DataError;
use tiercel_run::host::HostError;

/// Why training cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The memories could not be opened.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The data does not fit the network.
    #[error(transparent)]
    Data(#[from] DataError),
    /// There is no arithmetic for the network.
    #[error("{0}")]
    Kernels(String),
    /// A checkpoint cannot be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// An iteration failed.
    #[error("iteration {iteration}{}: {error}", .kernel.as_ref().map(|k| format!(", kernel {k}")).unwrap_or_default())]
    Run {
        /// Iterations before it.
        iteration: u64,
        /// The kernel, where it was one.
        kernel: Option<String>,
        /// What went wrong.
        error: Box<Error>,
    },
    /// A loss or a gradient is no number, and this is where that began.
    #[error(
        "iteration {iteration}, {step} ({kernel}): `{tensor}` has {value} at element {element}{}; \
         it is the first tensor that has such a number",
        if *given { " before the kernel" } else { "" }
    )]
    NotFinite {
        /// Iterations before it.
        iteration: u64,
        /// The kernel's step.
        step: Step,
        /// The kernel.
        kernel: String,
        /// The first tensor that has such a number.
        tensor: String,
        /// Which element is the first.
        element: u64,
        /// What stands there.
        value: f32,
        /// Whether the kernel was given it rather than made it: the data or the weights had it already.
        given: bool,
    },
}

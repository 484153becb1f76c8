//! What can be wrong with a session, from whichever part it comes.

use std::io;

use tiercel_plan::{Flaw, Mismatch};
use tiercel_profile::machines::NamedError;
use tiercel_profile::probe::ProbeError;
use tiercel_profile::{ModelError, ProfileError};
use tiercel_systems::{FastError, SystemError};
use tiercel_train::{CheckpointError, DataError, TrainError};
use tiercel_workload::{OpenError, TierError};

use crate::machine::MachineError;

/// Why a session cannot do what was asked of it.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// There is no such network, or the file is none.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no such machine, or its file is wrong.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// Not so much fast memory.
    #[error(transparent)]
    Fast(#[from] FastError),
    /// A system cannot be wired up, or does not run.
    #[error(transparent)]
    System(#[from] SystemError),
    /// A plan from a file does not fit what it is to be played on.
    #[error("{error}{}", remedy(.error, .planned_for, .machine))]
    Plan {
        /// What does not fit.
        error: Box<SystemError>,
        /// The machine that the plan was made for.
        planned_for: String,
        /// The machine that it was to be played on.
        machine: String,
    },
    /// Kernels cannot be measured.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// This machine cannot be measured.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The machine says too little of itself for kernel times.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Training cannot start or go on.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// Data to learn from cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A checkpoint cannot be written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// There is no kernel.
    #[error("{0}: there is nothing to run: no kernel")]
    Empty(String),
    /// A measured time speaks of a tier that the machine does not have.
    #[error("{net}: {error}")]
    Tiers {
        /// The trace.
        net: String,
        /// Which kernel, and which tier.
        error: TierError,
    },
    /// A trace where a network is needed.
    #[error("{net}: a trace says what is computed on, not how; {needs}")]
    TraceOnly {
        /// The trace.
        net: String,
        /// What would need a network.
        needs: &'static str,
    },
    /// Real memory of another machine.
    #[error("{0}")]
    Elsewhere(String),
    /// Fast memory in which the largest kernel has no room.
    #[error(
        "--fast {asked}: {whole} of fast memory is too little: kernels cannot work on {slow}, and {kernel} works on {least} at \
         once; --fast {}KiB would do", .least.0.div_ceil(1024)
    )]
    TooLittle {
        /// What was asked for.
        asked: tiercel_systems::Fast,
        /// That in bytes.
        whole: tiercel_core::Bytes,
        /// What is behind the slow tier.
        slow: String,
        /// The kernel that wants most.
        kernel: String,
        /// What it wants.
        least: tiercel_core::Bytes,
    },
    /// A system has no plan to write down.
    #[error("{system} {why}")]
    NoPlan {
        /// The system.
        system: &'static str,
        /// Why it has none.
        why: &'static str,
    },
    /// No amount of fast memory is enough.
    #[error(
        "{system} is never within {within} of fast-only ({fast_only}), not even with {most} of fast memory"
    )]
    NeverWithin {
        /// The system.
        system: &'static str,
        /// The share that was asked for.
        within: String,
        /// An iteration with all memory fast.
        fast_only: tiercel_core::Nanos,
        /// The most fast memory that was tried.
        most: tiercel_core::Bytes,
    },
    /// One of several amounts of fast memory does not do.
    #[error("with {fast} of fast memory: {error}")]
    With {
        /// The amount.
        fast: tiercel_systems::Fast,
        /// What is wrong with it.
        error: SystemError,
    },
    /// A file with a plan cannot be read.
    #[error("cannot read `{path}`: {error}")]
    Read {
        /// The file.
        path: String,
        /// What the system says.
        error: io::Error,
    },
    /// A file has no plan in it.
    #[error("{path}: not a plan: {error}")]
    NotAPlan {
        /// The file.
        path: String,
        /// What is wrong, and where.
        error: serde_json::Error,
    },
    /// Systems that must come to the same bits did not.
    #[error("losses differ between systems, which must not be")]
    Differ,
}

impl SessionError {
    /// Whether the request named something that does not exist, so that no work was begun.
    pub fn unknown_name(&self) -> bool {
        match self {
            SessionError::Open(error) => matches!(error, OpenError::Unknown { .. }),
            SessionError::Machine(error) => error.unknown_name(),
            SessionError::System(error) => matches!(error, SystemError::Unknown { .. }),
            _ => false,
        }
    }
}

impl From<NamedError> for SessionError {
    fn from(error: NamedError) -> SessionError {
        SessionError::Machine(error.into())
    }
}

/// What may be behind a plan that does not fit.
fn remedy(error: &SystemError, planned_for: &str, machine: &str) -> String {
    if planned_for != machine {
        return format!("; the plan is for the machine `{planned_for}`, this is `{machine}`");
    }
    let SystemError::Flaw(flaw) = error else { return String::new() };
    match flaw.as_ref() {
        Flaw::Other(Mismatch::Size { scratch: true, .. } | Mismatch::Missing { scratch: true, .. }) => {
            "; kernels have this scratch memory with `--times measured` and on the host, for so many `--threads`"
                .to_string()
        }
        _ => String::new(),
    }
}

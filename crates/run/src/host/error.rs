//! Why this machine cannot be the machine of a file: what was wanted, and what is there.

use std::io;
use std::path::PathBuf;

use tiercel_core::{Bytes, MachineError};

/// Why the memories of a machine could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The machine itself makes no sense.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// There is less memory than the tier wants.
    #[error("tier `{tier}` ({backing}) wants {wanted} of memory; {available} available")]
    Memory {
        /// The tier's name.
        tier: String,
        /// The memory behind it.
        backing: String,
        /// The tier's capacity.
        wanted: Bytes,
        /// What could be had.
        available: Bytes,
    },
    /// The tier is bound to a NUMA node that this machine does not have.
    #[error("tier `{tier}` wants NUMA node {node}; this machine has {nodes}")]
    Node {
        /// The tier's name.
        tier: String,
        /// The node wanted.
        node: u32,
        /// The nodes there, as people write them: `0-3`.
        nodes: String,
    },
    /// The tier's file is there already, and may be somebody's.
    #[error("tier `{tier}`: {path} is not a folder; name the folder that the tier's file is to be in")]
    Exists {
        /// The tier's name.
        tier: String,
        /// The file.
        path: PathBuf,
    },
    /// The folder for the tier's file is not there.
    #[error("tier `{tier}`: there is no folder `{path}`")]
    Folder {
        /// The tier's name.
        tier: String,
        /// The folder.
        path: PathBuf,
    },
    /// The file system has less room than the tier wants.
    #[error("tier `{tier}` wants {wanted} in {path}; {available} available ({reason})")]
    Room {
        /// The tier's name.
        tier: String,
        /// The directory or file.
        path: PathBuf,
        /// The tier's capacity.
        wanted: Bytes,
        /// What could be had.
        available: Bytes,
        /// What the system said.
        reason: String,
    },
    /// The system refused something else.
    #[error("tier `{tier}`: {what}: {source}")]
    System {
        /// The tier's name.
        tier: String,
        /// What was tried, and on what.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

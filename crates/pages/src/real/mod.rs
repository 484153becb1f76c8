//! Real pages of real programs: what this machine offers, the kernel's swap steered from outside, and NUMA nodes.

pub mod calls;
pub mod daemon;
pub mod doctor;
mod faults;
pub mod group;
pub mod kept;
pub mod leftovers;
pub mod nodes;
mod patience;
#[cfg(target_arch = "x86_64")]
pub mod preload;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_preload.rs"]
pub mod preload;
pub mod process;
pub mod session;
pub mod state;
pub mod streams;
pub mod swapfile;
pub mod trackers;

use std::io;
use std::path::PathBuf;

use tiercel_core::Bytes;

/// Why a program cannot be kept.
///
/// Where it is that swap cannot be had, [`KeepError::is_for_want_of_swap`] says so.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// There is no such process.
    #[error("no process {0}")]
    NoProcess(u32),
    /// The process belongs to somebody else.
    #[error(
        "process {pid} cannot be managed: {error}; it takes its owner or CAP_SYS_PTRACE, and CAP_SYS_NICE to advise on its pages"
    )]
    NotOurs {
        /// The process.
        pid: u32,
        /// What the kernel said.
        error: io::Error,
    },
    /// A command could not be started.
    #[error("cannot start `{command}`: {error}")]
    Command {
        /// The command.
        command: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// There are no memory cgroups.
    #[error("this machine has no memory cgroups, which limit how much of a program is in DRAM")]
    NoGroups,
    /// A group cannot be made.
    #[error("cannot make a memory cgroup below {}: {error}; it takes root or a delegated group", .folder.display())]
    Group {
        /// Where it was to be.
        folder: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// A folder is no memory cgroup.
    #[error("{} is no memory cgroup", .0.display())]
    NotAGroup(PathBuf),
    /// A group has no processes.
    #[error("no process is in {}", .0.display())]
    EmptyGroup(PathBuf),
    /// A limit cannot be set.
    #[error("cannot limit {} to {}: {error}", .folder.display(), Bytes(*.bytes))]
    Limit {
        /// The group.
        folder: PathBuf,
        /// The limit.
        bytes: u64,
        /// What the kernel said.
        error: io::Error,
    },
    /// The limit is above what the machine has.
    #[error("{} of fast memory are asked for; this machine has {}", Bytes(*.wanted), Bytes(*.there))]
    TooMuch {
        /// What was asked for.
        wanted: u64,
        /// What there is.
        there: u64,
    },
    /// The limit is too small for any program.
    #[error("{} of fast memory are too little for a program: give it {} or more", Bytes(*.wanted), Bytes(*.least))]
    TooLittle {
        /// What was asked for.
        wanted: u64,
        /// The least.
        least: u64,
    },
    /// No swap is on.
    #[error("no swap is on, so `--slow swap` has nothing to use: give a place with `--slow file:/path`")]
    NoSwap,
    /// Swap may not be turned on.
    #[error(
        "turning a swap file on takes CAP_SYS_ADMIN, which this process lacks; `--slow swap` uses swap that is on already"
    )]
    MaySwap,
    /// A swap file cannot be made.
    #[error("cannot make the swap file {}: {error}", .path.display())]
    SwapFile {
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// A library cannot be given to the program.
    #[error("no preloaded library here: {0}")]
    NoPreload(String),
    /// Neither swap nor a library.
    #[error("programs cannot be kept here: {swap}; and no library can be preloaded: {preload}")]
    Neither {
        /// Why there is no swap.
        swap: String,
        /// Why there is no library.
        preload: String,
    },
    /// A file for pages cannot be made.
    #[error("cannot make files at {}: {error}", .path.display())]
    SlowFile {
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// The disk is too full.
    #[error(
        "the file {} needs {} and {} are left alone; the disk has {} free",
        .path.display(), Bytes(*.wanted), Bytes(*.left), Bytes(*.free)
    )]
    DiskFull {
        /// Where.
        path: PathBuf,
        /// How many bytes it should have.
        wanted: u64,
        /// How many there are.
        free: u64,
        /// How many are left alone.
        left: u64,
    },
    /// Only one tier.
    #[error(
        "this machine has one kind of memory (node {node}) and nothing was named as slower: give `--fast SIZE --slow swap` or `--slow file:/path`"
    )]
    OneTier {
        /// The node.
        node: u32,
    },
    /// A node that is not there.
    #[error("no node {wanted} on this machine, which has {there}")]
    NoNode {
        /// What was asked for.
        wanted: u32,
        /// The nodes.
        there: String,
    },
    /// Nothing says which pages are accessed.
    #[error("nothing on this machine says which pages a program accesses: {0}")]
    NoTracker(String),
    /// Something was not there any more.
    #[error("{what}: {error}")]
    System {
        /// What was done.
        what: String,
        /// What the kernel said.
        error: io::Error,
    },
}

impl KeepError {
    /// Whether it is the kernel's swap, or a limit for it, that cannot be had here; what is wrong otherwise is wrong anyway.
    pub fn is_for_want_of_swap(&self) -> bool {
        match self {
            KeepError::MaySwap | KeepError::NoGroups | KeepError::Group { .. } | KeepError::Limit { .. } => {
                true
            }
            // A file system that cannot hold swap, or a machine that allows none.
            KeepError::SwapFile { error, .. } => matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported
            ),
            _ => false,
        }
    }
}

//! Processors for which there is no library to be preloaded.

use std::io;
use std::path::Path;

use super::KeepError;
use super::kept::Kept;
use super::session::Options;

fn none() -> KeepError {
    KeepError::NoPreload("it is there for x86-64 alone".to_string())
}

/// Why programs cannot be given a library here.
pub fn usable() -> Result<(), KeepError> {
    Err(none())
}

/// Nobody uses a folder that is never made.
pub fn users(_: &Path) -> Vec<u32> {
    Vec::new()
}

/// There is nothing to remove.
pub fn remove(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Never there.
pub enum Preloaded {}

impl Preloaded {
    /// Says why not.
    pub fn open(_: &Options) -> Result<Box<dyn Kept>, KeepError> {
        Err(none())
    }
}

//! Where vectors are that are not in fast memory.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use tiercel_core::Backing;

/// The slow tier of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Slow {
    /// The index file itself, which is read past the system's cache.
    #[default]
    Index,
    /// A memory of the machine, or a file on another disk, which the vectors are copied to when the index is opened.
    Tier(Backing),
}

impl Slow {
    /// Whether it is plain memory that is slowed down.
    pub fn emulated(&self) -> bool {
        *self == Slow::Tier(Backing::Throttled)
    }

    /// What it is, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Slow::Index => "the index file",
            Slow::Tier(Backing::File(_)) => "a file",
            Slow::Tier(Backing::Throttled) => "throttled memory",
            Slow::Tier(Backing::Numa(_)) => "memory of a node",
            Slow::Tier(Backing::Dax(_)) => "a DAX file",
            Slow::Tier(Backing::Dram) => "plain memory",
        }
    }

    /// The folder of another disk that vectors go to.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        match self {
            Slow::Tier(Backing::File(path)) => Some(PathBuf::from(path)),
            _ => None,
        }
    }
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slow::Index => f.write_str("index"),
            Slow::Tier(backing) => backing.fmt(f),
        }
    }
}

impl FromStr for Slow {
    type Err = String;

    fn from_str(text: &str) -> Result<Slow, String> {
        if text == "index" {
            Ok(Slow::Index)
        } else {
            text.parse::<Backing>().map(Slow::Tier).map_err(|error| error.to_string())
        }
    }
}

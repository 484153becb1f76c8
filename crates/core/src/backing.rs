//! What is behind a tier on this machine, as a person writes it: `dram`, `numa:1`, `dax:/path`, `file:/path` or `throttled`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The real memory behind a tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// Plain memory of this process.
    #[default]
    Dram,
    /// Memory bound to one NUMA node: CXL, or persistent memory in system-ram mode.
    Numa(u32),
    /// A mapped file on a DAX file system, or a DAX device.
    Dax(String),
    /// A file read and written with direct I/O; kernels cannot work on it.
    File(String),
    /// Plain memory slowed down to the tier's bandwidths: an emulation.
    Throttled,
}

/// A text that names no backing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a backing; there are dram, numa:NODE, dax:PATH, file:PATH and throttled")]
pub struct BackingError(pub String);

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Backing::Dram => f.write_str("dram"),
            Backing::Numa(node) => write!(f, "numa:{node}"),
            Backing::Dax(path) => write!(f, "dax:{path}"),
            Backing::File(path) => write!(f, "file:{path}"),
            Backing::Throttled => f.write_str("throttled"),
        }
    }
}

impl FromStr for Backing {
    type Err = BackingError;

    fn from_str(text: &str) -> Result<Backing, BackingError> {
        let unknown = || BackingError(text.to_string());
        match text.split_once(':') {
            None if text == "dram" => Ok(Backing::Dram),
            None if text == "throttled" => Ok(Backing::Throttled),
            Some(("numa", node)) => node.parse().map(Backing::Numa).map_err(|_| unknown()),
            Some(("dax", path)) if !path.is_empty() => Ok(Backing::Dax(path.to_string())),
            Some(("file", path)) if !path.is_empty() => Ok(Backing::File(path.to_string())),
            _ => Err(unknown()),
        }
    }
}

impl Serialize for Backing {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Backing {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Backing, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

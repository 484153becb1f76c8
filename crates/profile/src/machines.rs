//! The machines that ship with Tiercel, by name: the files in `machines/`.

use tiercel_core::{Machine, MachineError};
use tiercel_workload::spelling::nearest;

/// Every shipped machine: its name, and its file.
pub const ALL: [(&str, &str); 19] = [
    ("optane-autotm", include_str!("../machines/optane-autotm.toml")),
    ("optane-cachedarrays", include_str!("../machines/optane-cachedarrays.toml")),
    ("optane-sentinel", include_str!("../machines/optane-sentinel.toml")),
    ("redl", include_str!("../machines/redl.toml")),
    ("optane-4tier", include_str!("../machines/optane-4tier.toml")),
    ("optane-4tier-emulated", include_str!("../machines/optane-4tier-emulated.toml")),
    ("v100", include_str!("../machines/v100.toml")),
    ("rtx6000", include_str!("../machines/rtx6000.toml")),
    ("h200", include_str!("../machines/h200.toml")),
    ("h100", include_str!("../machines/h100.toml")),
    ("a100-80gb", include_str!("../machines/a100-80gb.toml")),
    ("a100-40gb", include_str!("../machines/a100-40gb.toml")),
    ("rtx3090", include_str!("../machines/rtx3090.toml")),
    ("rtx4090", include_str!("../machines/rtx4090.toml")),
    ("rtx5090", include_str!("../machines/rtx5090.toml")),
    ("l40s", include_str!("../machines/l40s.toml")),
    ("a10g", include_str!("../machines/a10g.toml")),
    ("cxl", include_str!("../machines/cxl.toml")),
    ("dram-throttled", include_str!("../machines/dram-throttled.toml")),
];

/// Why there is no machine of a name.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NamedError {
    /// No machine has this name.
    #[error("no machine `{name}`; {}", .nearest.map_or_else(known, |n| format!("did you mean `{n}`?")))]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The machine whose name is most like it.
        nearest: Option<&'static str>,
    },
    /// The machine's file is wrong.
    #[error(transparent)]
    File(#[from] MachineError),
}

/// The names of the shipped machines.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

/// The shipped machine of this name.
pub fn named(name: &str) -> Result<Machine, NamedError> {
    if let Some((_, file)) = ALL.iter().find(|(known, _)| *known == name) {
        return Ok(Machine::parse(file)?);
    }
    Err(NamedError::Unknown { name: name.to_string(), nearest: nearest(name, names()) })
}

fn known() -> String {
    format!("there are {}", names().collect::<Vec<_>>().join(", "))
}

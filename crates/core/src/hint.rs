//! What the application says of an object's future (CachedArrays section III-D, Table II).
//!
//! A wrong hint costs time, never correctness. Only `Retire` gives data up.

/// What the application says it will do with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hint {
    /// It will read or write it soon.
    WillUse,
    /// It will read it soon.
    WillRead,
    /// It will write it soon, in part or whole.
    WillWrite,
    /// It will not use it for some time.
    Archive,
    /// It will never use it again; its bytes may be dropped.
    Retire,
}

/// How a kernel uses an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Reads it and leaves it as it is.
    Read,
    /// Writes every byte of it without looking at what was there.
    Write,
    /// Reads it and changes it, or changes only a part of it.
    ReadWrite,
}

impl Access {
    /// Whether the kernel looks at what is there.
    pub fn reads(self) -> bool {
        self != Access::Write
    }

    /// Whether the kernel changes it.
    pub fn writes(self) -> bool {
        self != Access::Read
    }
}

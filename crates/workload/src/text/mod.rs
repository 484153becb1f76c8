//! The text form of a trace: one that a person can read, write and diff, and that any program can produce.
//!
//! `docs/trace-format.md` is the reference. [`write`](write()) writes the canonical form, which [`parse`] reads back
//! to the very same trace; errors name the line and the column.

mod lexer;
mod parse;
mod write;

use std::fmt;

use crate::trace::{Phase, Role, Trace};

/// Why a text is not a trace, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The line, counted from 1.
    pub line: u32,
    /// The character in the line, counted from 1.
    pub column: u32,
    /// What is wrong there.
    pub message: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for TextError {}

/// Reads a trace.
pub fn parse(text: &str) -> Result<Trace, TextError> {
    parse::parse(text)
}

/// Reads a trace from the bytes of a file.
pub fn parse_bytes(bytes: &[u8]) -> Result<Trace, TextError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => parse(text),
        Err(error) => {
            let good = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            let line = good.matches('\n').count() as u32 + 1;
            let column = good.rsplit('\n').next().map_or(0, |l| l.chars().count()) as u32 + 1;
            Err(TextError { line, column, message: "this is not UTF-8 text".to_string() })
        }
    }
}

/// Writes a trace in the canonical form.
pub fn write(trace: &Trace) -> String {
    write::write(trace)
}

/// The first word of every trace file.
const MAGIC: &str = "tiercel-trace";
/// The version of the format that this program reads and writes.
const VERSION: &str = "1";

/// The roles and their words.
const ROLES: [(&str, Role); 6] = [
    ("weight", Role::Weight),
    ("gradient", Role::Gradient),
    ("state", Role::State),
    ("input", Role::Input),
    ("activation", Role::Activation),
    ("workspace", Role::Workspace),
];

/// The phases and their words.
const PHASES: [(&str, Phase); 3] =
    [("forward", Phase::Forward), ("backward", Phase::Backward), ("update", Phase::Update)];

impl Role {
    /// The word for it in files and tables.
    pub fn name(self) -> &'static str {
        ROLES.iter().find(|(_, role)| *role == self).map_or("", |(name, _)| name)
    }
}

impl Phase {
    /// The word for it in files and tables.
    pub fn name(self) -> &'static str {
        PHASES.iter().find(|(_, phase)| *phase == self).map_or("", |(name, _)| name)
    }
}

//! Why a verb did not do what was asked, and the exit status that says so to programs.

use std::fmt;

use tiercel_profile::machines::NamedError;
use tiercel_session::SessionError;
use tiercel_session::machine::MachineError;
use tiercel_systems::SystemError;
use tiercel_systems::reproduce::UnknownPaper;
use tiercel_workload::OpenError;

/// A failure with an exit status of its own.
#[derive(Debug)]
pub struct Failure {
    /// What is wrong.
    pub message: String,
    /// The exit status.
    pub status: u8,
    /// What there is to say on standard output all the same.
    pub out: Option<String>,
}

impl Failure {
    /// The command line or a file that it names cannot be used.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), status: 2, out: None }
    }

    /// Somebody interrupted; this is what there is by then.
    pub fn interrupted(message: impl Into<String>, out: Option<String>) -> Failure {
        Failure { message: message.into(), status: 130, out }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure { message, status: 1, out: None }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        let told =
            |error: anyhow::Error| Failure { message: told(&error), status: status(&error), out: None };
        error.downcast().unwrap_or_else(told)
    }
}

/// What is wrong, with what is behind it where that is not said yet.
pub fn told(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text += &format!(": {cause}");
        }
    }
    text
}

/// The exit status of an error: 2 for a name that does not exist, which is bad usage, and no work was begun.
pub fn status(error: &anyhow::Error) -> u8 {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.status;
    }
    let unknown = error.downcast_ref::<SessionError>().is_some_and(SessionError::unknown_name)
        || error.downcast_ref::<MachineError>().is_some_and(MachineError::unknown_name)
        || matches!(error.downcast_ref(), Some(OpenError::Unknown { .. }))
        || matches!(error.downcast_ref(), Some(SystemError::Unknown { .. }))
        || matches!(error.downcast_ref(), Some(NamedError::Unknown { .. }))
        || error.downcast_ref::<UnknownPaper>().is_some();
    if unknown { 2 } else { 1 }
}

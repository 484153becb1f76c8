//! The machine that a user names: a shipped one, a file, or this very one.

use std::path::Path;

use tiercel_core::Machine;
use tiercel_profile::probe::here;
use tiercel_profile::{Model, machines};
use tiercel_systems::Times;
use tiercel_workload::spelling::nearest;

use crate::progress::Notes;

/// The machine behind `--machine`.
pub fn open(name: &str) -> Result<Machine, String> {
    let path = Path::new(name);
    if name.contains('/') || path.extension().is_some_and(|extension| extension == "toml") {
        let text = std::fs::read(path).map_err(|error| format!("cannot read `{name}`: {error}"))?;
        let text = String::from_utf8(text).map_err(|_| format!("{name}: machine file: it is not text"))?;
        return Machine::parse(&text).map_err(|error| format!("{name}: {}", error.to_string().trim_end()));
    }
    if name == "here" {
        return this_machine();
    }
    machines::named(name).map_err(|error| match nearest(name, machines::names().chain(["here"])) {
        Some("here") => format!("no machine `{name}`; did you mean `here`?"),
        _ => error.to_string(),
    })
}

/// This machine as it was measured; measured now where it has not been.
fn this_machine() -> Result<Machine, String> {
    let notes = Notes::new();
    if !here::path().exists() {
        eprintln!("tiercel: measuring this machine for the first time, which takes some seconds");
    }
    here::machine(|what| notes.say(what)).map_err(|error| error.to_string())
}

/// How long kernels take on a machine.
pub fn times(machine: &Machine) -> Result<Times, String> {
    Model::new(machine).map(Times::new).map_err(|error| error.to_string())
}

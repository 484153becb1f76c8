//! The machine that a user names: a shipped one, a file, or this very one.

use std::io;
use std::path::Path;

use tiercel_core::{Backing, Bytes, Compute, Link, Machine, MachineError as FileError, TierId};
use tiercel_profile::machines::{self, NamedError};
use tiercel_profile::probe::here;
use tiercel_systems::Fast;
use tiercel_train::{Task, room};
use tiercel_workload::spelling::nearest;

use crate::{SessionError, Watch};

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// No machine has this name.
    #[error(transparent)]
    Named(#[from] NamedError),
    /// None has, and this very machine was probably meant.
    #[error("no machine `{0}`; did you mean `here`?")]
    Here(String),
    /// The file cannot be read.
    #[error("cannot read `{path}`: {error}")]
    Read {
        /// The file.
        path: String,
        /// What the system says.
        error: io::Error,
    },
    /// The file is not text.
    #[error("{0}: machine file: it is not text")]
    NotText(String),
    /// The file is wrong.
    #[error("{path}: {}", .error.to_string().trim_end())]
    File {
        /// The file.
        path: String,
        /// What is wrong, and where.
        error: FileError,
    },
}

impl MachineError {
    /// Whether a name was given that no machine has.
    pub fn unknown_name(&self) -> bool {
        matches!(self, MachineError::Here(_) | MachineError::Named(NamedError::Unknown { .. }))
    }
}

/// The machine of this name, or in this file, or this very one (`here`), which is measured where it has not been.
pub fn open(name: &str, watch: &dyn Watch) -> Result<Machine, SessionError> {
    let path = Path::new(name);
    if name.contains('/') || path.extension().is_some_and(|extension| extension == "toml") {
        return Ok(read(name, path)?);
    }
    if name == "here" {
        return this_machine(watch);
    }
    machines::named(name).map_err(|error| match nearest(name, machines::names().chain(["here"])) {
        Some("here") => MachineError::Here(name.to_string()).into(),
        _ => error.into(),
    })
}

fn read(name: &str, path: &Path) -> Result<Machine, MachineError> {
    let text = tiercel_workload::open::read(path)
        .map_err(|error| MachineError::Read { path: name.to_string(), error })?;
    let text = String::from_utf8(text).map_err(|_| MachineError::NotText(name.to_string()))?;
    Machine::parse(&text).map_err(|error| MachineError::File { path: name.to_string(), error })
}

/// This machine as it was measured; measured now where it has not been.
fn this_machine(watch: &dyn Watch) -> Result<Machine, SessionError> {
    if !here::path().exists() {
        watch.remark("measuring this machine for the first time, which takes some seconds");
    }
    let notes = watch.begin("measuring this machine", None);
    let known = here::machine(|what| notes.say(what))?;
    drop(notes);
    Ok(told(known, watch))
}

/// This machine with another slow memory behind its own.
pub fn with_slow(slow: &Backing, watch: &dyn Watch) -> Result<Machine, SessionError> {
    let notes = watch.begin("measuring this machine", None);
    let known = here::machine_with(slow, |what| notes.say(what))?;
    drop(notes);
    Ok(told(known, watch))
}

/// The machine, whether or not it could be kept; whoever waits for it again learns why.
fn told(known: here::ThisMachine, watch: &dyn Watch) -> Machine {
    if let Some(why) = known.unkept {
        watch.remark(&format!("what was measured of this machine is not kept for the next time: {why}"));
    }
    if let Some(text) = disturbed(&known.machine) {
        watch.remark(&text);
    }
    known.machine
}

/// Says that other programs were in the way when this machine was measured, where they were.
pub fn disturbed(machine: &Machine) -> Option<String> {
    let share = machine.compute.others?;
    Some(format!(
        "other programs had {:.0} % of the processors while this machine was measured: it is faster than the figures that \
         plans go by; `tiercel probe` measures it again",
        share * 100.0
    ))
}

/// Says of simulated figures that they go by a processor which nobody stated, where they do.
pub fn assumed(machine: &Machine) -> Option<String> {
    let Compute { threads, gflops, assumed, .. } = machine.compute;
    let threads = if threads == 1 { "1 thread".to_string() } else { format!("{threads} threads") };
    assumed.then(|| {
        format!(
            "machine `{}` states no [compute]: {threads} and {gflops} GFLOP/s are assumed, and times of kernels are no \
             better than that",
            machine.name,
        )
    })
}

/// A machine of two tiers with the speeds and links that its memories have here, where it said what was not known yet.
pub fn as_probed(mut machine: Machine, watch: &dyn Watch) -> Result<Machine, SessionError> {
    let found = with_slow(&machine.tiers[1].backing, watch)?;
    machine.name = "here".to_string();
    machine.compute = found.compute;
    let slow = found.tier(found.slowest());
    let tier = &mut machine.tiers[1];
    (tier.read, tier.write) = (slow.read, slow.write);
    (tier.combined, tier.duplex, tier.latency) = (slow.combined, slow.duplex, slow.latency);
    for link in &mut machine.links {
        let there = |id: TierId| if id == TierId(0) { id } else { found.slowest() };
        if let Some(known) = found.link(there(link.from), there(link.to)) {
            *link = Link { from: link.from, to: link.to, via: None, bus: None, ..known.clone() };
        }
    }
    Ok(machine)
}

/// Whether a machine is this very one, or stands for it: real memory is behind its tiers.
pub fn is_here(machine: &Machine) -> bool {
    machine.name == "here" || machine.tiers.iter().any(|tier| tier.backing != Backing::Dram)
}

/// For a task: a fast tier of the size that was asked for, and a slow one with this behind it that holds everything.
///
/// Where kernels cannot work on the slow tier, there must be room in the fast one for the largest.
pub fn for_task(task: &Task, peak: Bytes, asked: Fast, slow: Backing) -> Result<Machine, SessionError> {
    let trace = &task.training.trace;
    let machine = room::machine(trace, peak, slow);
    let whole = match asked {
        Fast::All => room::ample(trace, Bytes::kib(4)),
        _ => asked.bytes(peak, machine.grain()),
    };
    let machine = machine.with_capacity(TierId(0), whole);
    let programs = [Some(&task.training), task.evaluation.as_ref()];
    let largest = programs
        .into_iter()
        .flatten()
        .map(|program| (program, room::working_set(&program.trace, machine.grain())))
        .max_by_key(|(_, (_, bytes))| *bytes);
    match largest {
        Some((program, (step, least))) if least > whole && !machine.tier(TierId(1)).computable => {
            Err(SessionError::TooLittle {
                asked,
                whole,
                slow: machine.tier(TierId(1)).backing.to_string(),
                kernel: program.node(step).name.clone(),
                least,
            })
        }
        _ => Ok(machine),
    }
}

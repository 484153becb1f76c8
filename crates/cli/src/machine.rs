//! The machine that a user names: a shipped one, a file, or this very one.

use std::path::Path;
use std::sync::Once;

use tiercel_core::{Backing, Compute, Link, Machine, TierId};
use tiercel_profile::probe::{ProbeError, here};
use tiercel_profile::{Model, machines};
use tiercel_systems::Times;
use tiercel_workload::spelling::nearest;

use crate::figures::counted;
use crate::files;
use crate::progress::Notes;

/// The machine behind `--machine`.
pub fn open(name: &str) -> Result<Machine, String> {
    let path = Path::new(name);
    if name.contains('/') || path.extension().is_some_and(|extension| extension == "toml") {
        let text = files::read(path)?;
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
    told(here::machine(|what| notes.say(what)))
}

/// This machine with another slow memory behind its own.
pub fn beside(slow: &Backing) -> Result<Machine, String> {
    let notes = Notes::new();
    told(here::machine_with(slow, |what| notes.say(what)))
}

/// The machine, whether or not it could be kept; whoever waits for it again learns why.
fn told(known: Result<here::Known, ProbeError>) -> Result<Machine, String> {
    let known = known.map_err(|error| error.to_string())?;
    if let Some(why) = known.unkept {
        eprintln!("tiercel: what was measured of this machine is not kept for the next time: {why}");
    }
    warn(&known.machine);
    Ok(known.machine)
}

/// Says, once, that other programs were in the way when this machine was measured.
pub fn warn(machine: &Machine) {
    static ONCE: Once = Once::new();
    if let Some(share) = machine.compute.others {
        ONCE.call_once(|| {
            eprintln!(
                "tiercel: other programs had {:.0} % of the processors while this machine was measured: it is faster than \
                 the figures that plans go by; `tiercel probe` measures it again",
                share * 100.0
            );
        });
    }
}

/// A machine of two tiers with the speeds and links that its memories have here, where it said what was not known yet.
pub fn as_probed(mut machine: Machine) -> Result<Machine, String> {
    let found = beside(&machine.tiers[1].backing)?;
    machine.name = "here".to_string();
    machine.compute = found.compute;
    let slow = found.tier(found.slowest());
    let tier = &mut machine.tiers[1];
    (tier.read, tier.write) = (slow.read, slow.write);
    (tier.combined, tier.duplex, tier.latency) = (slow.combined, slow.duplex, slow.latency);
    for link in &mut machine.links {
        let there = |id: TierId| if id == TierId(0) { id } else { found.slowest() };
        if let Some(known) = found.link(there(link.from), there(link.to)) {
            *link = Link { from: link.from, to: link.to, ..known.clone() };
        }
    }
    Ok(machine)
}

/// Whether a machine is this very one, or stands for it: real memory is behind its tiers.
pub fn is_here(machine: &Machine) -> bool {
    machine.name == "here" || machine.tiers.iter().any(|tier| tier.backing != Backing::Dram)
}

/// How long kernels take on a machine.
pub fn times(machine: &Machine) -> Result<Times, String> {
    Model::new(machine).map(Times::new).map_err(|error| error.to_string())
}

/// Says of simulated figures that they go by a processor which nobody stated.
pub fn tell_assumed(machine: &Machine) {
    let Compute { threads, gflops, assumed, .. } = machine.compute;
    if assumed {
        eprintln!(
            "tiercel: machine `{}` states no [compute]: {} and {gflops} GFLOP/s are assumed, and times of kernels are no \
             better than that",
            machine.name,
            counted(threads.into(), "thread"),
        );
    }
}

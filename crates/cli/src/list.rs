//! `tiercel list`: networks, machines and systems, with a line each.

use std::fmt::Write;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tiercel_core::Machine;
use tiercel_profile::machines;
use tiercel_workload::nets;

use crate::answer::Answer;

const EXAMPLES: &str = "\
Examples:
  tiercel list
      everything that other verbs know by name
  tiercel list systems --json
      the systems alone, for another program to read";

/// List networks, machines and systems.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Only these
    #[arg(value_enum)]
    what: Option<What>,
    #[command(flatten)]
    answer: Answer,
}

/// What can be listed.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum What {
    Networks,
    Machines,
    Systems,
}

/// The text to print, or what is wrong.
pub fn run(arguments: &Arguments) -> anyhow::Result<String> {
    let wanted = |what: What| arguments.what.is_none_or(|only| only == what);
    let shipped = machines::names().map(machines::named);
    let shipped = shipped.collect::<Result<Vec<Machine>, _>>()?;
    if arguments.answer.json {
        let mut all = serde_json::Map::new();
        if wanted(What::Networks) {
            let net = |net: &nets::Net| json!({ "name": net.name, "about": net.about, "batch": net.batch });
            all.insert("networks".into(), nets::all().iter().map(net).collect());
        }
        if wanted(What::Machines) {
            all.insert("machines".into(), shipped.iter().map(machine).collect());
        }
        if wanted(What::Systems) {
            let system =
                |s: &tiercel_systems::System| json!({ "name": s.name, "about": s.about, "paper": s.paper });
            all.insert("systems".into(), tiercel_systems::ALL.iter().map(system).collect());
        }
        return Ok(format!("{:#}\n", Value::Object(all)));
    }
    let mut page = String::new();
    let mut section = |title: &str, rows: Vec<(String, String)>| {
        let gap = if page.is_empty() { "" } else { "\n" };
        // Writing to a string never fails.
        let _ = writeln!(page, "{gap}{title}");
        for (name, about) in rows {
            let _ = writeln!(page, "  {name:<20} {about}");
        }
    };
    if wanted(What::Networks) {
        let rows = nets::all().iter().map(|net| (net.name.to_string(), net.about.to_string()));
        section("networks (or a file: ONNX, or a trace)", rows.collect());
    }
    if wanted(What::Machines) {
        let here = ("here".to_string(), "this machine, as `tiercel probe` measures it".to_string());
        let rows = shipped.iter().map(|machine| (machine.name.clone(), tiers(machine)));
        section("machines (or a file)", std::iter::once(here).chain(rows).collect());
    }
    if wanted(What::Systems) {
        let rows = tiercel_systems::ALL.iter().map(|system| {
            let paper = format!(" ({})", system.paper);
            (system.name.to_string(), format!("{}{}", system.about, paper))
        });
        section("systems", rows.collect());
    }
    Ok(page)
}

fn machine(machine: &Machine) -> Value {
    let tiers = machine.tiers.iter().map(|tier| json!({ "name": tier.name, "bytes": tier.capacity.0 }));
    json!({ "name": machine.name, "source": machine.source, "tiers": tiers.collect::<Vec<_>>() })
}

/// The tiers of a machine in a line.
fn tiers(machine: &Machine) -> String {
    let tier = |tier: &tiercel_core::Tier| {
        let reach = match (tier.computable, tier.rows) {
            (true, _) => "",
            (false, true) => ", copies and single rows only",
            (false, false) => ", copies only",
        };
        format!("{} of {} ({} read, {} write{reach})", tier.capacity, tier.name, tier.read, tier.write)
    };
    machine.tiers.iter().map(tier).collect::<Vec<_>>().join("; ")
}

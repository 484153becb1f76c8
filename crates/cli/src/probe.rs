//! `tiercel probe`: measures this machine's tiers and links.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::{Value, json};
use tiercel_core::{Backing, Bandwidth, Machine};
use tiercel_profile::probe::{Found, Settings, here, probe};
use tiercel_session::{Watch, machine};

use crate::answer::Answer;
use crate::files::{self, end_when_interrupted};
use crate::progress::Notes;
use crate::terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  tiercel probe
      measure this machine; other verbs then know it as `--machine here`
  tiercel probe --file /mnt/nvme --out workstation.toml
      the same with a file on another disk as the slowest tier, and the machine file to keep";

/// Measure this machine's memories, the disk, and copies between them.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The folder of the file that is the slowest tier; nothing is left there [default: the user's cache folder]
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Measure memory alone
    #[arg(long, conflicts_with = "file")]
    no_file: bool,
    /// Write the machine file here too; it is always kept for `--machine here`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    answer: Answer,
}

/// The text to print, or what is wrong.
pub fn run(arguments: &Arguments) -> anyhow::Result<String> {
    end_when_interrupted();
    arguments.out.as_deref().map_or(Ok(()), files::check)?;
    let folder = here::folder();
    let file = match (&arguments.file, arguments.no_file) {
        (_, true) => None,
        (Some(path), false) if !path.is_dir() => {
            bail!("--file: there is no folder `{}`", path.display());
        }
        (Some(path), false) => Some(path.clone()),
        (None, false) => {
            std::fs::create_dir_all(&folder)
                .with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
            Some(folder)
        }
    };
    let slow = file.map(|path| Backing::File(path.display().to_string()));
    let notes = Notes::new();
    let found = probe(&Settings { slow }, |what| notes.say(what))?;
    drop(notes);
    if let Some(text) = machine::disturbed(&found.machine) {
        Terminal::new().remark(&text);
    }
    let kept = here::keep(&found)?;
    if let Some(path) = &arguments.out {
        files::replace(path, found.machine.to_toml())?;
    }
    if arguments.answer.json {
        return Ok(format!("{:#}\n", document(&found, &kept)));
    }
    let mut page = String::new();
    // Writing to a string never fails.
    let _ = table(&mut page, &found, &kept);
    Ok(page)
}

fn document(found: &Found, kept: &std::path::Path) -> Value {
    let machine = &found.machine;
    let curve = |points: &[(u32, Bandwidth)]| {
        let point = |(threads, speed): &(u32, Bandwidth)| json!({ "threads": threads, "bytes_per_second": speed.0.round() });
        points.iter().map(point).collect::<Vec<_>>()
    };
    let tiers = machine.tiers.iter().map(|tier| {
        let rates = found.rates.iter().find(|rates| rates.tier == tier.name);
        json!({
            "name": tier.name,
            "backing": tier.backing.to_string(),
            "bytes": tier.capacity.0,
            "computable": tier.computable,
            "latency_ns": tier.latency.0,
            "read_bytes_per_second": tier.read.0.round(),
            "write_bytes_per_second": tier.write.0.round(),
            "read": rates.map(|rates| curve(&rates.read)),
            "write": rates.map(|rates| curve(&rates.write)),
        })
    });
    let name = |tier| machine.tier(tier).name.as_str();
    let links = machine.links.iter().map(|link| {
        json!({
            "from": name(link.from),
            "to": name(link.to),
            "threads": link.threads,
            "latency_ns": link.latency.0,
            "copy": curve(&link.curve),
        })
    });
    json!({
        "machine": machine.name,
        "source": machine.source,
        "measured": true,
        "file": kept.display().to_string(),
        "took_ms": found.took.as_millis() as u64,
        "buffered": found.buffered,
        "threads": machine.compute.threads,
        "gflops": machine.compute.gflops,
        "others_share": machine.compute.others,
        "tiers": tiers.collect::<Vec<_>>(),
        "links": links.collect::<Vec<_>>(),
    })
}

fn table(out: &mut String, found: &Found, kept: &std::path::Path) -> std::fmt::Result {
    let machine: &Machine = &found.machine;
    let Found { took, buffered, .. } = found;
    let threads = machine.compute.threads;
    writeln!(out, "this machine, measured in {:.1} s\n", took.as_secs_f64())?;
    let others = machine.compute.others.map_or(String::new(), |share| {
        format!(", while other programs had {:.0} % of the processors", share * 100.0)
    });
    writeln!(
        out,
        "  processor  {threads} threads, {:.0} GFLOP/s in matrix products{others}\n",
        machine.compute.gflops
    )?;
    writeln!(
        out,
        "  {:<10} {:>10} {:>12} {:>12} {:>10}  behind it",
        "tier", "holds", "read", "write", "latency"
    )?;
    for tier in &machine.tiers {
        writeln!(
            out,
            "  {:<10} {:>10} {:>12} {:>12} {:>10}  {}",
            tier.name,
            tier.capacity.to_string(),
            tier.read.to_string(),
            tier.write.to_string(),
            tier.latency.to_string(),
            tier.backing
        )?;
    }
    let points = |curve: &[(u32, Bandwidth)]| {
        let point = |(threads, speed): &(u32, Bandwidth)| format!("{threads}: {speed}");
        curve.iter().map(point).collect::<Vec<_>>().join(", ")
    };
    writeln!(out, "\n  by threads")?;
    for rates in &found.rates {
        writeln!(out, "  {:<20} {}", format!("read {}", rates.tier), points(&rates.read))?;
        writeln!(out, "  {:<20} {}", format!("write {}", rates.tier), points(&rates.write))?;
    }
    for link in &machine.links {
        let name = |tier| machine.tier(tier).name.as_str();
        let what = format!("copy {} to {}", name(link.from), name(link.to));
        writeln!(out, "  {what:<20} {}; {} will do", points(&link.curve), link.threads)?;
    }
    if *buffered {
        writeln!(
            out,
            "\n  The file system refuses direct I/O: the system's cache is in the way of the file."
        )?;
    }
    writeln!(out, "\n  kept in {}: other verbs know it as `--machine here`", kept.display())
}

//! `tiercel keep`: programs that nobody changes, on less fast memory than they have.

mod doctor;
mod events;
mod nodes;
mod swap;
mod top;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;
use tiercel_core::{Bandwidth, Bytes};
use tiercel_pages::real::session::{Slow, Target};
use tiercel_pages::systems;
use tiercel_workload::spelling::nearest;

use crate::amounts::{duration, share};
use crate::answer::Answer;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  tiercel keep --doctor
      what this machine offers, what is missing, and what will be used
  tiercel keep --fast 2GiB --slow file:/var/tmp/slow -- sort large.txt -o sorted.txt
      the command with 2 GiB of DRAM, the rest of its memory on that disk
  tiercel keep --fast 4GiB --slow swap --pid 1234 --top
      a process that runs, behind it the swap that is on; how it stands, live
  tiercel keep --fast 2GiB --slow file:/var/tmp/slow --mechanism preload -- ./a-program
      without the kernel's swap: a library is loaded into the command
  tiercel keep --pid 1234 --tiers 0,2,3 --rate 500MB/s
      a machine with several NUMA nodes: hot pages to node 0, no faster than that

Exit status: that of the command, where one is given.";

/// Keep a program that nobody changes on less fast memory than it has.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Say what this machine offers, and do nothing
    #[arg(long)]
    doctor: bool,
    /// The process to keep, with those that it started
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// The memory cgroup to keep, as a folder
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// How much fast memory the program may have
    #[arg(long, value_name = "2GiB")]
    fast: Option<Bytes>,
    /// What is behind it: `swap` that is on, or `file:PATH` for a swap file, made there and removed afterwards
    #[arg(long, value_name = "swap|file:PATH", value_parser = slow)]
    slow: Option<Slow>,
    /// What moves the bytes: the kernel's swap, or a library that is loaded into the command [default: swap where it can be
    /// had]
    #[arg(long, value_name = "swap|preload", value_parser = ["swap", "preload"])]
    mechanism: Option<String>,
    /// How large the swap file, or each process's file, may be [default: four times the fast memory, and no more than half of what the disk has free]
    #[arg(long, value_name = "SIZE")]
    slow_size: Option<Bytes>,
    /// NUMA nodes as tiers, from the fastest on [default: in the kernel's order]
    #[arg(long, value_name = "0,1,…", value_delimiter = ',')]
    tiers: Option<Vec<u32>>,
    /// Which policy decides between NUMA nodes: tiercel, hm-keeper or damon
    #[arg(long, value_name = "NAME", default_value = "tiercel")]
    policy: String,
    /// How accesses are seen: idle, damon, hint-faults, soft-dirty or clear-refs [default: the best that this machine offers]
    #[arg(long, value_name = "NAME")]
    tracker: Option<String>,
    /// The time between two decisions about NUMA nodes
    #[arg(long, value_name = "5s", default_value = "5s", value_parser = duration)]
    interval: Duration,
    /// How fast pages may move between NUMA nodes
    #[arg(long, value_name = "1GB/s", default_value = "1GB/s")]
    rate: Bandwidth,
    /// Which share of a processor's time the keeper may take
    #[arg(long, value_name = "5%", default_value = "5%", value_parser = share, allow_hyphen_values = true)]
    overhead: f64,
    /// Leave the kernel alone with the limit: what the keeper adds is what differs
    #[arg(long)]
    unsteered: bool,
    /// Show how it stands, live, on standard error
    #[arg(long)]
    top: bool,
    /// Write what happens to a file, a line of JSON each
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    #[command(flatten)]
    answer: Answer,
    /// The command to run, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn slow(text: &str) -> Result<Slow, String> {
    match text.strip_prefix("file:") {
        Some("") => Err("`file:` needs a path".to_string()),
        Some(path) => Ok(Slow::File(PathBuf::from(path))),
        None if text == "swap" => Ok(Slow::Swap),
        None => Err(format!("`{text}` is neither `swap` nor `file:PATH`")),
    }
}

/// How often somebody asked us to end.
pub(crate) type Interrupts = Arc<AtomicUsize>;

fn interrupts() -> Interrupts {
    let count = Interrupts::default();
    let counted = count.clone();
    // Without a handler we end at once, and the next keeper cleans up.
    let _ = ctrlc::set_handler(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    count
}

/// The text to print, or what is wrong.
pub fn run(arguments: &Arguments) -> anyhow::Result<String> {
    if arguments.doctor {
        return Ok(doctor::run(arguments.answer.json));
    }
    let chosen = [arguments.pid.is_some(), arguments.cgroup.is_some(), !arguments.command.is_empty()];
    match chosen.iter().filter(|chosen| **chosen).count() {
        0 => {
            let message = "what is to be kept? give --pid N, --cgroup PATH or -- COMMAND (or --doctor)";
            return Err(Failure::usage(message).into());
        }
        1 => {}
        _ => {
            let message = "--pid, --cgroup and -- COMMAND exclude each other";
            return Err(Failure::usage(message).into());
        }
    }
    if let Some(path) = &arguments.events {
        crate::files::check(path)?;
    }
    check_policy(&arguments.policy)?;
    let slow = match (&arguments.slow, arguments.fast) {
        (None, _) if arguments.mechanism.is_some() => {
            let message = "--mechanism is for DRAM and a disk: give --fast SIZE and --slow swap|file:PATH";
            return Err(Failure::usage(message.to_string()).into());
        }
        (None, _) => return nodes::run(arguments),
        (Some(_), None) => {
            let message = "how much fast memory? give --fast SIZE beside --slow";
            return Err(Failure::usage(message).into());
        }
        (Some(slow), Some(_)) => slow.clone(),
    };
    if arguments.tiers.is_some() {
        let message = "--tiers names NUMA nodes; with --slow there is one node and a disk";
        return Err(Failure::usage(message).into());
    }
    if arguments.mechanism.as_deref() == Some("preload") {
        let wrong = match (&slow, arguments.command.is_empty(), arguments.unsteered) {
            (_, true, _) => {
                Some("a library can be preloaded into a command that is started: give -- COMMAND")
            }
            (Slow::Swap, ..) => Some("a preloaded library writes to a file: give --slow file:PATH"),
            (.., true) => Some("--unsteered leaves the kernel's swap alone; a preloaded library has none"),
            _ => None,
        };
        if let Some(wrong) = wrong {
            return Err(Failure::usage(wrong.to_string()).into());
        }
    }
    let target = match (arguments.pid, &arguments.cgroup) {
        (Some(pid), _) => Target::Process(pid),
        (None, Some(path)) => Target::Group(path.clone()),
        (None, None) => Target::Command(arguments.command.clone()),
    };
    swap::run(arguments, target, slow)
}

fn check_policy(name: &str) -> Result<(), Failure> {
    const POLICIES: [&str; 4] = ["tiercel", "tiercel-bits", "hm-keeper", "damon"];
    if POLICIES.contains(&name) && systems::named(name).is_some() {
        return Ok(());
    }
    Err(Failure::usage(match nearest(name, POLICIES.into_iter()) {
        Some(near) => format!("no policy `{name}` for real pages; did you mean `{near}`?"),
        None => format!("no policy `{name}` for real pages; there are {}", POLICIES.join(", ")),
    }))
}

/// Bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

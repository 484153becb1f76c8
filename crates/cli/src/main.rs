//! The command line of Tiercel: one file a verb, and nothing but presentation in them.
//!
//! Exit status: 0 for success, 1 for a request that cannot be met (no such network, a bad file), 2 for a command line
//! that cannot be read (and a bad file, for `layout`, whose 1 says that nothing fits). Results go to standard output,
//! everything else to standard error.

mod amounts;
mod ann;
mod answer;
mod compare;
mod completions;
mod describe;
mod figures;
mod files;
mod keep;
mod layout;
mod list;
mod machine;
mod outcome;
mod pic;
mod plan;
mod probe;
mod profile;
mod progress;
mod report;
mod reproduce;
mod run;
mod scene;
mod search;
mod sizes;
mod staged;
mod timing;
mod torch;
mod train;
mod trial;
mod wired;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Run programs that want a lot of fast memory on a little of it.
#[derive(Parser)]
#[command(name = "tiercel", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    List(list::Arguments),
    Probe(probe::Arguments),
    Describe(describe::Arguments),
    Profile(profile::Arguments),
    Layout(layout::Arguments),
    Plan(plan::Arguments),
    Run(run::Arguments),
    Compare(compare::Arguments),
    Reproduce(reproduce::Arguments),
    Report(report::Arguments),
    Train(Box<train::Arguments>),
    Ann(Box<ann::Arguments>),
    Keep(Box<keep::Arguments>),
    Pic(pic::Arguments),
    Completions(completions::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.verb {
        Verb::List(arguments) => list::run(&arguments).map_err(Failure::from),
        Verb::Probe(arguments) => probe::run(&arguments).map_err(Failure::from),
        Verb::Describe(arguments) => describe::run(&arguments).map_err(Failure::from),
        Verb::Profile(arguments) => profile::run(&arguments),
        Verb::Plan(arguments) => plan::run(&arguments).map_err(Failure::from),
        Verb::Run(arguments) => run::run(&arguments).map_err(Failure::from),
        Verb::Compare(arguments) => compare::run(&arguments).map_err(Failure::from),
        Verb::Reproduce(arguments) => reproduce::run(&arguments).map_err(Failure::from),
        Verb::Train(arguments) => train::run(&arguments),
        Verb::Keep(arguments) => keep::run(&arguments),
        Verb::Pic(arguments) => pic::run(&arguments),
        Verb::Layout(arguments) => layout::run(&arguments),
        Verb::Ann(arguments) => ann::run(&arguments).map_err(Failure::from),
        Verb::Completions(arguments) => {
            completions::run(&arguments, Arguments::command()).map_err(Failure::from)
        }
        Verb::Report(arguments) => report::run(&arguments).map_err(Failure::from),
    };
    match result.and_then(|text| show(&text).map_err(Failure::from)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let shown = failure.out.map_or(Ok(()), |text| show(&text));
            let _ = writeln!(io::stderr(), "tiercel: {}", failure.message);
            shown.map_or(ExitCode::FAILURE, |()| ExitCode::from(failure.status))
        }
    }
}

/// Why a verb did not do what was asked.
struct Failure {
    message: String,
    /// The exit status.
    status: u8,
    /// What there is to say on standard output all the same.
    out: Option<String>,
}

/// How messages begin that speak of a name which does not exist: that is bad usage, and no work was begun.
const UNKNOWN: [&str; 5] = ["no network `", "no machine `", "no system `", "no paper `", "no size `"];

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        let unknown = UNKNOWN.iter().any(|start| message.starts_with(start));
        Failure { message, status: if unknown { 2 } else { 1 }, out: None }
    }
}

impl Failure {
    /// The command line or a file that it names cannot be used.
    fn usage(message: String) -> Failure {
        Failure { message, status: 2, out: None }
    }
}

/// Prints a result; whoever reads us may stop early, and that is no failure of ours.
fn show(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write: {error}")),
        _ => Ok(()),
    }
}

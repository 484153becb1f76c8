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
mod effort;
mod explain;
mod failure;
mod figures;
mod files;
mod keep;
mod layout;
mod list;
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
mod sizes;
mod terminal;
mod torch;
mod train;
mod trial;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::Failure;

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
    Explain(explain::Arguments),
    Report(report::Arguments),
    Train(Box<train::Arguments>),
    Ann(Box<ann::Arguments>),
    Keep(Box<keep::Arguments>),
    Pic(pic::Arguments),
    Completions(completions::Arguments),
}

fn main() -> ExitCode {
    match answer(Arguments::parse().verb).and_then(|text| show(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let partial = error.downcast_ref::<Failure>().and_then(|failure| failure.out.as_deref());
            let shown = partial.map_or(Ok(()), show);
            let _ = writeln!(io::stderr(), "tiercel: {}", failure::told(&error));
            shown.map_or(ExitCode::FAILURE, |()| ExitCode::from(failure::status(&error)))
        }
    }
}

/// The text to print, or why there is none.
fn answer(verb: Verb) -> anyhow::Result<String> {
    match verb {
        Verb::List(arguments) => list::run(&arguments),
        Verb::Probe(arguments) => probe::run(&arguments),
        Verb::Describe(arguments) => describe::run(&arguments),
        Verb::Profile(arguments) => profile::run(&arguments),
        Verb::Plan(arguments) => plan::run(&arguments),
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Compare(arguments) => compare::run(&arguments),
        Verb::Reproduce(arguments) => reproduce::run(&arguments),
        Verb::Explain(arguments) => explain::run(&arguments),
        Verb::Train(arguments) => train::run(&arguments),
        Verb::Keep(arguments) => keep::run(&arguments),
        Verb::Pic(arguments) => pic::run(&arguments),
        Verb::Layout(arguments) => layout::run(&arguments),
        Verb::Ann(arguments) => ann::run(&arguments),
        Verb::Completions(arguments) => completions::run(&arguments, Arguments::command()),
        Verb::Report(arguments) => report::run(&arguments),
    }
}

/// Prints a result; whoever reads us may stop early, and that is no failure of ours.
fn show(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("cannot write"),
        _ => Ok(()),
    }
}

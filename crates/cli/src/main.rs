//! The command line of Tiercel: one file a verb, and nothing but presentation in them.
//!
//! Exit status: 0 for success, 1 for a request that cannot be met (no such network, a bad file), 2 for a command line
//! that cannot be read. Results go to standard output, everything else to standard error.

mod amounts;
mod compare;
mod completions;
mod describe;
mod figures;
mod list;
mod machine;
mod outcome;
mod plan;
mod probe;
mod progress;
mod reproduce;
mod run;
mod save;
mod scene;
mod sizes;
mod staged;
mod train;

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
    Plan(plan::Arguments),
    Run(run::Arguments),
    Compare(compare::Arguments),
    Reproduce(reproduce::Arguments),
    Train(Box<train::Arguments>),
    Completions(completions::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.verb {
        Verb::List(arguments) => list::run(&arguments),
        Verb::Probe(arguments) => probe::run(&arguments),
        Verb::Describe(arguments) => describe::run(&arguments),
        Verb::Plan(arguments) => plan::run(&arguments),
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Compare(arguments) => compare::run(&arguments),
        Verb::Reproduce(arguments) => reproduce::run(&arguments),
        Verb::Train(arguments) => train::run(&arguments),
        Verb::Completions(arguments) => completions::run(&arguments, Arguments::command()),
    };
    match result.and_then(|text| show(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = writeln!(io::stderr(), "tiercel: {message}");
            ExitCode::FAILURE
        }
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

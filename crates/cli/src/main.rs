//! The command line of Tiercel: one file a verb, and nothing but presentation in them.
//!
//! Exit status: 0 for success, 1 for a request that cannot be met (no such network, a bad file), 2 for a command line
//! that cannot be read. Results go to standard output, everything else to standard error.

mod describe;
mod figures;
mod outcome;
mod report;
mod train;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Run programs that want a lot of fast memory on a little of it.
#[derive(Parser)]
#[command(name = "tiercel", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Describe(describe::Arguments),
    Report(report::Arguments),
    Train(Box<train::Arguments>),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.verb {
        Verb::Describe(arguments) => describe::run(&arguments),
        Verb::Report(arguments) => report::run(&arguments),
        Verb::Train(arguments) => train::run(&arguments),
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

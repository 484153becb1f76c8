//! Where kernel times come from: the model of a machine file, or the clock of this very machine.

use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use tiercel_core::Machine;
use tiercel_kernels::prepare;
use tiercel_profile::{Kept, Measured, ProfileError, Survey};
use tiercel_workload::{Program, Workload};

use crate::figures::counted;
use crate::machine;
use crate::progress::Progress;

/// Where kernel times come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
pub enum Source {
    /// From the figures of the machine file
    #[default]
    Modelled,
    /// From running each kernel on this machine, once; what was measured is kept
    Measured,
}

/// What was measured of a program, and what it took.
pub struct Outcome {
    /// The times.
    pub times: Measured,
    /// Distinct kernels in the placements that are measured.
    pub wanted: usize,
    /// Those that were known before.
    pub known: usize,
    /// Those that were measured now; fewer than were missing when somebody interrupted.
    pub measured: usize,
    /// Those that are known from a time when other programs were busy.
    pub disturbed: usize,
    /// Why what was measured now could not be kept for the next time.
    pub unkept: Option<String>,
    /// The signature of every kernel.
    pub signatures: Vec<String>,
}

impl Outcome {
    /// The times, whether or not they could be kept; whoever waits for them again learns why.
    pub fn told(self) -> Measured {
        if let Some(why) = self.unkept {
            eprintln!("tiercel: what was measured of kernels is not kept for the next time: {why}");
        }
        self.times
    }
}

/// The network behind a workload with the workspace that so many threads need, or why nothing can be measured of it.
pub fn program(what: &str, workload: Workload, threads: usize) -> Result<(Program, u64), String> {
    match workload {
        Workload::Program { program, batch } => Ok((prepare(program, threads), batch)),
        _ => {
            Err(format!("{what}: a trace says what is computed on, not how; only a network can be measured"))
        }
    }
}

/// A workload with what its kernels need to run, and their times on this machine: as they are kept, or measured now.
pub fn measured(
    what: &str,
    workload: Workload,
    machine: &Machine,
    threads: usize,
) -> Result<(Workload, Measured), String> {
    let (program, batch) = program(what, workload, threads)?;
    let times = measure(&program, machine, threads, &mut Kept::open(threads), (false, false))?.told();
    Ok((Workload::Program { program, batch }, times))
}

/// Whether somebody wants to stop.
static STOP: AtomicBool = AtomicBool::new(false);

/// From now on an interrupt ends [`measure`] with everything kept; a second one ends the program at once.
pub fn stop_when_interrupted() {
    // Without a handler the program ends at once, and what was written by then is kept all the same.
    let _ = ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) {
            tiercel_run::files::discard();
            std::process::exit(130);
        }
    });
}

/// Whether there was an interrupt.
pub fn stopped() -> bool {
    STOP.load(Ordering::SeqCst)
}

/// From so many times on somebody who waits is told what for: it takes a second or more.
const MANY: usize = 20;

/// Measures what is not known of a prepared program's kernels on this machine, and `again` what was measured while other
/// programs were busy; in all placements that are worth it where it is to be `thorough`.
pub fn measure(
    program: &Program,
    machine: &Machine,
    threads: usize,
    kept: &mut Kept,
    (again, thorough): (bool, bool),
) -> Result<Outcome, String> {
    if !machine::is_here(machine) {
        return Err(format!(
            "kernels can be measured on this machine alone, and `{}` is another; give `--machine here`",
            machine.name
        ));
    }
    if let Some(complaint) = kept.complaint() {
        eprintln!("tiercel: {complaint}");
    }
    let survey = Survey::new(program, machine, threads).again(again);
    let survey = if thorough { survey.thorough() } else { survey };
    let (wanted, known) = (survey.len(), survey.known(kept));
    if wanted - known >= MANY {
        eprintln!(
            "tiercel: measuring {} on this machine's memory, once: they are kept",
            counted((wanted - known) as u64, "kernel time")
        );
    }
    let progress = Progress::new(wanted - known, "measuring kernels");
    let mut measured = 0;
    let done = survey.measure(kept, || {
        progress.tick();
        measured += 1;
        !stopped()
    });
    drop(progress);
    let unkept = match done {
        Err(error @ ProfileError::Keep { .. }) => Some(error.to_string()),
        other => other.map(|_| None).map_err(|error| error.to_string())?,
    };
    let signatures = survey.kernels().iter().map(|signature| signature.text.clone()).collect();
    let disturbed = survey.disturbed(kept);
    Ok(Outcome { times: survey.times(kept), wanted, known, measured, disturbed, unkept, signatures })
}

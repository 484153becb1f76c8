//! Kernel times by the clock of this very machine, measured once and kept.

use tiercel_core::Machine;
use tiercel_kernels::prepare;
use tiercel_profile::{Kept, Measured, ProfileError, Survey};
use tiercel_workload::trace::Timing;
use tiercel_workload::{Program, Trace, Workload};

use crate::machine::is_here;
use crate::{SessionError, Watch};

/// What was measured of a program, and what it took.
pub struct Timed {
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

impl Timed {
    /// A trace with the times that were measured of its kernels, as text that plans and simulations go by.
    pub fn annotated(&self, trace: &Trace) -> Trace {
        let mut trace = trace.clone();
        for kernel in &mut trace.kernels {
            let known = self.times.of(kernel).iter();
            kernel.timings =
                known.map(|(tiers, time)| Timing { tiers: tiers.clone(), time: *time }).collect();
        }
        trace
    }

    /// The times, whether or not they could be kept; whoever waits for them again learns why.
    pub fn told(self, watch: &dyn Watch) -> Measured {
        if let Some(why) = self.unkept {
            watch.remark(&format!("what was measured of kernels is not kept for the next time: {why}"));
        }
        self.times
    }
}

/// What is measured once more, and how closely one looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Care {
    /// What was measured while other programs were busy is measured again.
    pub again: bool,
    /// All placements that are worth it are measured, not only those that tell most.
    pub thorough: bool,
}

/// The network behind a workload with the workspace that so many threads need; a trace has none.
pub fn program(what: &str, workload: Workload, threads: usize) -> Result<(Program, u64), SessionError> {
    match workload {
        Workload::Program { program, batch } => Ok((prepare(program, threads), batch)),
        Workload::Trace(_) => {
            let needs = "only a network can be measured";
            Err(SessionError::TraceOnly { net: what.to_string(), needs })
        }
    }
}

/// A workload with what its kernels need to run, and their times on this machine: as they are kept, or measured now.
pub fn measured(
    what: &str,
    workload: Workload,
    machine: &Machine,
    threads: usize,
    watch: &dyn Watch,
) -> Result<(Workload, Measured), SessionError> {
    let (program, batch) = program(what, workload, threads)?;
    let timed = measure(&program, machine, threads, &mut Kept::open(threads), Care::default(), watch)?;
    Ok((Workload::Program { program, batch }, timed.told(watch)))
}

/// From so many times on somebody who waits is told what for: it takes a second or more.
const MANY: usize = 20;

/// Measures what is not known of a prepared program's kernels on this machine.
pub fn measure(
    program: &Program,
    machine: &Machine,
    threads: usize,
    kept: &mut Kept,
    care: Care,
    watch: &dyn Watch,
) -> Result<Timed, SessionError> {
    if !is_here(machine) {
        return Err(SessionError::Elsewhere(format!(
            "kernels can be measured on this machine alone, and `{}` is another; give `--machine here`",
            machine.name
        )));
    }
    if let Some(complaint) = kept.complaint() {
        watch.remark(complaint);
    }
    let survey = Survey::new(program, machine, threads).again(care.again);
    let survey = if care.thorough { survey.thorough() } else { survey };
    let (wanted, known) = (survey.len(), survey.known(kept));
    if wanted - known >= MANY {
        watch.remark(&format!(
            "measuring {} kernel times on this machine's memory, once: they are kept",
            wanted - known
        ));
    }
    let steps = watch.begin("measuring kernels", Some(wanted - known));
    let mut measured = 0;
    let done = survey.measure(kept, || {
        steps.tick();
        measured += 1;
        !watch.stop()
    });
    drop(steps);
    let unkept = match done {
        Err(error @ ProfileError::Keep { .. }) => Some(error.to_string()),
        other => other.map(|_| None)?,
    };
    let signatures = survey.kernels().iter().map(|signature| signature.text.clone()).collect();
    let disturbed = survey.disturbed(kept);
    Ok(Timed { times: survey.times(kept), wanted, known, measured, disturbed, unkept, signatures })
}

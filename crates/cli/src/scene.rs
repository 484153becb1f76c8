//! What `plan`, `run` and `compare` have in common: what a workload is played on, and what a simulated run of it amounts to.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use tiercel_core::Bytes;
use tiercel_session::{Run, Session, machine};

use crate::sizes::Subject;
use crate::terminal::Terminal;
use crate::torch;

/// Where kernel times come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
pub enum Source {
    /// From the figures of the machine file
    #[default]
    Modelled,
    /// From running each kernel on this machine, once; what was measured is kept
    Measured,
}

/// What a workload is played on.
#[derive(Args)]
pub struct Ground {
    /// A machine (`tiercel list` names them), a machine file, or `here` [default: here; h200 with --torch]
    #[arg(long, value_name = "M")]
    pub machine: Option<String>,
    /// Where kernel times come from; measuring takes a network and this machine
    #[arg(long, value_enum, default_value_t = Source::Modelled)]
    pub times: Source,
}

impl Ground {
    /// The machine's name.
    pub fn machine(&self) -> &str {
        self.machine.as_deref().unwrap_or("here")
    }

    /// The machine's name for a subject: steps of PyTorch programs are for GPUs.
    pub fn machine_for(&self, subject: &Subject) -> &str {
        if subject.torch.is_meant() {
            self.machine.as_deref().unwrap_or(torch::MACHINE)
        } else {
            self.machine()
        }
    }
}

/// Opens what the user names, with kernel times from where the user wants them.
pub fn open(
    subject: &Subject,
    machine_name: &str,
    source: Source,
    threads: usize,
    watch: &Arc<Terminal>,
) -> anyhow::Result<Session> {
    let (workload, what) = (subject.open(machine_name)?, subject.what());
    let machine = machine::open(machine_name, watch.as_ref())?;
    let session = Session::new(what, workload, machine)?.watched(watch.clone()).threads(threads);
    Ok(match source {
        Source::Modelled => session,
        Source::Measured => session.measured()?,
    })
}

/// The workload and the machine in a line.
pub fn title(session: &Session) -> String {
    let (net, machine) = (session.net(), &session.machine().name);
    match session.workload().batch() {
        Some(batch) => format!("{net}, batch {batch}, on {machine}"),
        None => format!("{net} on {machine}"),
    }
}

/// The document of a simulated run, for verbs to add to.
pub fn document(run: &Run, peak: Bytes, seed: u64) -> Map<String, Value> {
    let fast = run.machine.tiers[0].capacity;
    let planned = run.planned.as_ref();
    let fields = json!({
        "system": run.system,
        "on": "sim",
        "measured": false,
        "machine": run.machine.name,
        "compute_assumed": run.machine.compute.assumed,
        "seed": seed,
        "iterations": run.iterations.len(),
        "warmup_iterations": run.warmup,
        "iteration_ns": run.iterations.iter().map(|i| i.time.0).collect::<Vec<_>>(),
        "stall_ns": run.stall().0,
        "kernels_fast_ns": run.split.fast.0,
        "slow_memory_ns": run.split.slow.0,
        "contention_ns": run.split.contention.0,
        "recomputed_ns": run.split.again.0,
        "fetched_bytes": run.fetched().0,
        "evicted_bytes": run.evicted().0,
        "peak_bytes": peak.0,
        "fast_bytes": fast.0,
        "fast_fraction": fraction(fast, peak),
        "peak_fast_bytes": run.peak_fast().0,
        "memory_price": memory_price(run, peak),
        "planned_ns": planned.map(|p| p.plan.iteration_ns.round() as u64),
    });
    let Value::Object(fields) = fields else { unreachable!("it is written as one") };
    fields
}

/// What the memory costs that a run was given, at the machine's prices: so much fast memory, and slow memory for the rest.
fn memory_price(run: &Run, peak: Bytes) -> Option<f64> {
    let price = tiercel_report::curve::Price::on(&run.machine, peak)?;
    price.at(run.machine.tiers[0].capacity.min(peak))
}

/// A share, to six digits: what a person chose, without the noise of whole grains.
pub fn fraction(part: Bytes, whole: Bytes) -> f64 {
    let share = part.0 as f64 / whole.0.max(1) as f64;
    (share * 1e6).round() / 1e6
}

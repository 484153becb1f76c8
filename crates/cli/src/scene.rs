//! What `plan`, `run` and `compare` have in common: a workload on a machine, and what a simulated run of it amounts to.

use clap::Args;
use serde_json::{Map, Value, json};
use tiercel_core::{Bytes, Machine, TierId};
use tiercel_systems::{Fast, Options, Run, Setting, Times};
use tiercel_workload::{Lifetimes, Trace, Workload};

use crate::machine;
use crate::sizes::Subject;
use crate::timing::{self, Source};
use crate::torch;

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

/// Whether a trace can be played on a machine at all.
pub fn playable(what: &str, trace: &Trace, machine: &Machine) -> Result<(), String> {
    if trace.kernels.is_empty() {
        return Err(format!("{what}: there is nothing to run: no kernel"));
    }
    trace.check_tiers(machine.tiers.len()).map_err(|why| format!("{what}: {why}"))
}

/// A workload on a machine.
pub struct Scene {
    /// The network's name, or the file's.
    pub net: String,
    /// What runs.
    pub workload: Workload,
    /// Its number format, where it has one.
    pub dtype: &'static str,
    /// The most bytes that it keeps at once.
    pub peak: Bytes,
    /// On what.
    pub machine: Machine,
    /// How long kernels take there.
    pub times: Times,
}

impl Scene {
    /// Opens what the user names, with kernel times from where the user wants them.
    pub fn open(
        subject: &Subject,
        machine_name: &str,
        source: Source,
        threads: usize,
    ) -> Result<Scene, String> {
        let (workload, what) = (subject.open(machine_name)?, subject.what());
        let machine = machine::open(machine_name)?;
        let (workload, times) = match source {
            Source::Modelled => (workload, machine::times(&machine)?),
            Source::Measured => {
                let (workload, times) = timing::measured(what, workload, &machine, threads)?;
                (workload, Times::new(times))
            }
        };
        let peak = Lifetimes::new(workload.trace()).peak().1;
        playable(what, workload.trace(), &machine)?;
        Ok(Scene {
            net: net_name(what, workload.trace()),
            workload,
            dtype: subject.sizes.dtype(),
            peak,
            machine,
            times,
        })
    }

    /// What runs.
    pub fn trace(&self) -> &Trace {
        self.workload.trace()
    }

    /// The machine with so much fast memory, which it must have.
    pub fn with_fast(&self, fast: Fast) -> Result<Machine, String> {
        let bytes = fast.on(&self.machine, self.peak).map_err(|error| error.to_string())?;
        tell_less(fast, &self.machine, self.peak);
        Ok(self.machine.clone().with_capacity(TierId(0), bytes))
    }

    /// What a system is set up for.
    pub fn setting<'a>(&'a self, machine: &'a Machine, options: Options) -> Setting<'a> {
        let program = self.workload.program();
        Setting { program, options, ..Setting::new(self.trace(), machine, &self.times) }
    }

    /// The workload and the machine in a line.
    pub fn title(&self) -> String {
        match self.workload.batch() {
            Some(batch) => format!("{}, batch {batch}, on {}", self.net, self.machine.name),
            None => format!("{} on {}", self.net, self.machine.name),
        }
    }
}

/// Says that a share of the peak is more than the machine has.
pub fn tell_less(fast: Fast, machine: &Machine, peak: Bytes) {
    let (tier, wanted) = (&machine.tiers[0], fast.bytes(peak, machine.grain()));
    if matches!(fast, Fast::Share(_)) && wanted > tier.capacity {
        eprintln!(
            "tiercel: {fast} of the peak are {wanted}; {} of `{}` has {}, and that is what is used",
            tier.name, machine.name, tier.capacity
        );
    }
}

/// What a workload is called: by its trace, or by what the user wrote.
pub fn net_name(what: &str, trace: &Trace) -> String {
    if trace.name.is_empty() { what.to_string() } else { trace.name.clone() }
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
        "contention_ns": run.split.beside.0,
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

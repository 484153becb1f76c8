//! A workload on a machine: planned, predicted, run.

use std::sync::Arc;

use tiercel_core::{Bytes, Machine, Nanos, TierId};
use tiercel_kernels::prepare;
use tiercel_plan::recompute::fastest;
use tiercel_plan::{Outline, Plan};
use tiercel_profile::Model;
use tiercel_report::Header;
use tiercel_systems::{
    Fast, Options, Recording, Run, Setting, System, SystemError, Times, named, simulate_prepared,
    simulate_recorded,
};
use tiercel_train::{Settings, Synthetic, Task, room};
use tiercel_workload::{Lifetimes, Trace, Workload, nets, open};

use crate::ready::{Ready, emulated, trainer};
use crate::{Choice, Outcome, SessionError, Silent, Watch, machine, measure};

/// One thread for each core.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether a trace can be played on a machine at all.
pub fn playable(what: &str, trace: &Trace, machine: &Machine) -> Result<(), SessionError> {
    if trace.kernels.is_empty() {
        return Err(SessionError::Empty(what.to_string()));
    }
    let tiers = trace.check_tiers(machine.tiers.len());
    tiers.map_err(|error| SessionError::Tiers { net: what.to_string(), error })
}

/// What a workload is called: by its trace, or by what the user wrote.
pub fn net_name(what: &str, trace: &Trace) -> String {
    if trace.name.is_empty() { what.to_string() } else { trace.name.clone() }
}

/// A workload on a machine.
pub struct Session {
    /// What the user wrote, for errors: a name or a file.
    what: String,
    net: String,
    workload: Workload,
    machine: Machine,
    times: Times,
    peak: Bytes,
    threads: usize,
    watch: Arc<dyn Watch>,
}

impl Session {
    /// A network by its name, an ONNX file or a trace, on a machine by its name (`here` for this very one) or its file.
    ///
    /// Kernel times are those of the machine's figures; [`measured`](Session::measured) takes this machine's clock instead.
    pub fn open(what: &str, sizes: &nets::NetOptions, machine: &str) -> Result<Session, SessionError> {
        Session::new(what, open(what, sizes)?, machine::open(machine, &Silent)?)
    }

    /// A workload that is at hand.
    pub fn new(what: &str, workload: Workload, machine: Machine) -> Result<Session, SessionError> {
        playable(what, workload.trace(), &machine)?;
        let times = Times::new(Model::new(&machine)?);
        Ok(Session::with_times(what, workload, machine, times))
    }

    fn with_times(what: &str, workload: Workload, machine: Machine, times: Times) -> Session {
        let peak = Lifetimes::new(workload.trace()).peak().1;
        let net = net_name(what, workload.trace());
        let (what, watch) = (what.to_string(), Arc::new(Silent));
        Session { what, net, workload, machine, times, peak, threads: cores(), watch }
    }

    /// The same with somebody who is told what goes on.
    pub fn watched(self, watch: Arc<dyn Watch>) -> Session {
        Session { watch, ..self }
    }

    /// The same with so many threads that compute.
    pub fn threads(self, threads: usize) -> Session {
        Session { threads, ..self }
    }

    /// The same with kernel times measured on this machine, once; they are kept.
    pub fn measured(self) -> Result<Session, SessionError> {
        let Session { what, workload, machine, threads, watch, .. } = self;
        let (workload, times) = measure::measured(&what, workload, &machine, threads, watch.as_ref())?;
        playable(&what, workload.trace(), &machine)?;
        let session = Session::with_times(&what, workload, machine, Times::new(times));
        Ok(Session { threads, watch, ..session })
    }

    /// The network's name, or the file's.
    pub fn net(&self) -> &str {
        &self.net
    }

    /// What runs.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Its trace.
    pub fn trace(&self) -> &Trace {
        self.workload.trace()
    }

    /// The most bytes that it keeps at once.
    pub fn peak(&self) -> Bytes {
        self.peak
    }

    /// On what.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// How long kernels take there.
    pub fn times(&self) -> &Times {
        &self.times
    }

    pub(crate) fn watch(&self) -> &dyn Watch {
        self.watch.as_ref()
    }

    /// The machine with so much fast memory, which it must have.
    pub fn with_fast(&self, fast: Fast) -> Result<Machine, SessionError> {
        let bytes = fast.on(&self.machine, self.peak)?;
        let (tier, wanted) = (&self.machine.tiers[0], fast.bytes(self.peak, self.machine.grain()));
        if matches!(fast, Fast::Share(_)) && wanted > tier.capacity {
            self.watch.remark(&format!(
                "{fast} of the peak are {wanted}; {} of `{}` has {}, and that is what is used",
                tier.name, self.machine.name, tier.capacity
            ));
        }
        Ok(self.machine.clone().with_capacity(TierId(0), bytes))
    }

    /// What a system is set up for.
    pub fn setting<'a>(&'a self, machine: &'a Machine, options: Options) -> Setting<'a> {
        let program = self.workload.program();
        Setting { program, options, ..Setting::new(self.trace(), machine, &self.times) }
    }

    /// Plans for so much fast memory.
    pub fn plan(&self, system: &str, fast: Fast, options: Options) -> Result<Plan, SessionError> {
        let system = named(system)?;
        let run = self.simulate(&Choice::System(system), fast, options, 1, Recording::Off)?;
        self.plan_of(system, &run)
    }

    /// The plan of a run, with what it takes to know what it is for.
    pub fn plan_of(&self, system: &System, run: &Run) -> Result<Plan, SessionError> {
        let Some(planned) = &run.planned else {
            let why = match system.plans {
                true => {
                    "plays best without a plan here, deciding while it runs; `--system autotm-async` makes a plan in any case"
                }
                false => "does not plan ahead: there is no plan",
            };
            return Err(SessionError::NoPlan { system: system.name, why });
        };
        let outline = Outline::new(run.trace(self.trace()), self.workload.batch());
        Ok(Plan { outline: Some(outline), ..planned.plan.clone() })
    }

    /// The time that kernels take which a run's plan lets run again, with everything in fast memory.
    pub fn recomputed(&self, run: &Run) -> Nanos {
        let kernels = &run.trace(self.trace()).kernels;
        let times = fastest(kernels, &run.machine, &self.times).into_iter();
        let again = times.zip(kernels).filter(|(_, kernel)| kernel.derived.again);
        Nanos(again.map(|(time, _)| time).sum::<f64>().round() as u64)
    }

    /// What so many iterations will take, by simulation.
    pub fn predict(
        &self,
        choice: &Choice,
        fast: Fast,
        options: Options,
        iterations: u32,
    ) -> Result<Run, SessionError> {
        self.simulate(choice, fast, options, iterations, Recording::Off)
    }

    /// The same, with what happens where that is to be recorded.
    pub fn simulate(
        &self,
        choice: &Choice,
        fast: Fast,
        options: Options,
        iterations: u32,
        recording: Recording,
    ) -> Result<Run, SessionError> {
        let machine = self.with_fast(fast)?;
        match choice {
            Choice::System(system) => {
                let setting = self.setting(&machine, options);
                let _simulating = self.watch.begin("planning and simulating", None);
                Ok(simulate_recorded(system, &setting, iterations, recording)?)
            }
            Choice::Plan(plan) => {
                self.check(plan)?;
                let setting = self.setting(&machine, options);
                let prepared = choice.prepare(&setting, self.watch())?;
                Ok(simulate_prepared(choice.name(), prepared, &setting, iterations, recording)?)
            }
        }
    }

    /// What a simulated run was, for whoever writes down what happened in it.
    pub fn header(&self, run: &Run) -> Header {
        let mut header = Header::simulated(run.trace(self.trace()), &run.machine, &run.system);
        header.net = self.net.clone();
        (header.batch, header.peak_bytes) = (self.workload.batch(), Some(self.peak));
        header.warmup_iterations = run.warmup;
        header
    }

    /// Whether a plan is for this network in this size.
    fn check(&self, plan: &Plan) -> Result<(), SessionError> {
        let meant = plan.meant_for(&self.trace().name, self.workload.batch());
        Ok(meant.map_err(SystemError::from)?)
    }

    /// Runs so many iterations on this machine's memory with real arithmetic, on data made up for it. All of them count:
    /// what they compute must not depend on who decides.
    pub fn run(
        &self,
        choice: &Choice,
        fast: Fast,
        options: Options,
        iterations: u32,
    ) -> Result<Outcome, SessionError> {
        self.run_recorded(choice, fast, options, iterations, Recording::Off)
    }

    /// The same, with what happens where that is to be recorded.
    pub fn run_recorded(
        &self,
        choice: &Choice,
        fast: Fast,
        options: Options,
        iterations: u32,
        recording: Recording,
    ) -> Result<Outcome, SessionError> {
        if let Some(plan) = choice.plan() {
            self.check(plan)?;
        }
        let machine = self.with_fast(fast)?;
        if !machine::is_here(&machine) {
            return Err(SessionError::Elsewhere(format!(
                "`{}` is another machine; on the host runs `--machine here`, or one that stands for it, such as dram-throttled",
                machine.name
            )));
        }
        let Workload::Program { program, batch } = &self.workload else {
            let needs = "`--on host` needs a network";
            return Err(SessionError::TraceOnly { net: self.what.clone(), needs });
        };
        let threads = self.threads;
        let task = Task::new(program.clone(), *batch, |program| prepare(program, threads));
        let machine = fitted(&task.training.trace, choice, &machine);
        let setting = Setting::of(&task.training, &machine, &self.times).with(options);
        let peak = Lifetimes::new(&task.training.trace).peak().1;
        let ready = Ready::new(&task, &machine, choice.prepare(&setting, self.watch())?);
        let Ready { task, machine, prepared, outlook } = ready;
        let settings = Settings { seed: options.seed, ..Settings::default() };
        let mut trainer = trainer(&task, &machine, prepared, Box::new(Synthetic), settings, threads)?;
        if recording == Recording::On {
            trainer.record_events();
        }
        let steps = self.watch.begin("iterations", Some(iterations as usize));
        let mut lessons = Vec::new();
        for _ in 0..iterations {
            lessons.push(trainer.iterate()?);
            steps.tick();
        }
        drop(steps);
        let events = (recording == Recording::On).then(|| {
            let emulated = |tier| trainer.emulated(tier);
            let mut header = Header::measured(&task.training.trace, &machine, choice.name(), emulated);
            header.net = self.net.clone();
            (header.batch, header.peak_bytes) = (Some(*batch), Some(peak));
            (header, trainer.take_events())
        });
        Ok(Outcome {
            net: self.net.clone(),
            batch: *batch,
            data: trainer.about_data(),
            system: choice.name().to_string(),
            threads,
            seed: options.seed,
            peak,
            fast: machine.tier(TierId(0)).capacity,
            slow: machine.tier(machine.slowest()).backing.to_string(),
            emulated: emulated(&trainer, &machine),
            outlook,
            lessons,
            totals: trainer.totals().clone(),
            score: None,
            hash: trainer.digest()?,
            resumed: None,
            interrupted: false,
            iterations: trainer.iteration(),
            checkpoint: None,
            events,
        })
    }
}

/// The machine with no more of each slower tier than the trace could ever use: what a tier has is taken at once.
fn fitted(trace: &Trace, choice: &Choice, machine: &Machine) -> Machine {
    let mut machine = choice.system().map_or(machine.clone(), |system| system.machine(trace, machine));
    let ample = room::ample(trace, machine.grain());
    for tier in machine.tiers.iter_mut().skip(1) {
        tier.capacity = tier.capacity.min(ample);
    }
    machine
}

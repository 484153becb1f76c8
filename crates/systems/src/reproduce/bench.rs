//! The simulations behind a paper's figures: each network under each system once, over all cores.

use std::time::Duration;

use tiercel_core::{Bytes, Machine, TierId};
use tiercel_profile::{Model, machines};
use tiercel_workload::graph::Optimizer;
use tiercel_workload::{Lifetimes, Program, Trace, nets};

use super::{Claim, Row};
use crate::{Fast, Options, Run, Setting, System, Times, each, simulate};

/// A network at a batch.
pub(super) type Net = (&'static str, u64);

/// A machine on which systems are tried.
pub struct Bench<'a> {
    machine: Machine,
    times: Times,
    options: Options,
    threads: usize,
    tick: &'a (dyn Fn() + Sync),
}

/// One simulation to do: a network, a system, and how much fast memory, where that is not the machine's own.
#[derive(Clone, Copy)]
pub(super) struct Job {
    pub(super) net: Net,
    pub(super) system: System,
    pub(super) fast: Option<Fast>,
}

/// A simulation that was done.
struct Played {
    job: Job,
    peak: Bytes,
    run: Result<Run, String>,
}

impl<'a> Bench<'a> {
    /// A bench on a shipped machine.
    pub(super) fn new(
        machine: &str,
        options: Options,
        threads: usize,
        tick: &'a (dyn Fn() + Sync),
    ) -> Bench<'a> {
        let machine = machines::named(machine).expect("a paper names a shipped machine");
        let times = Times::new(Model::new(&machine).expect("shipped machines have models"));
        Bench { machine, times, options, threads, tick }
    }

    /// The same on another machine.
    pub(super) fn on(&self, machine: &str) -> Bench<'a> {
        Bench::new(machine, self.options, self.threads, self.tick)
    }

    /// The same with plans that are searched no longer than this.
    pub(super) fn within(mut self, time: Duration) -> Bench<'a> {
        self.options.time = self.options.time.min(time);
        self
    }

    /// The machine with so much fast memory for a trace, or with its own.
    pub(super) fn machine(&self, trace: &Trace, fast: Option<Fast>) -> Machine {
        fast.map_or(self.machine.clone(), |fast| fast.machine(trace, &self.machine))
    }

    /// The memory of a tier.
    pub(super) fn capacity(&self, tier: TierId) -> Bytes {
        self.machine.tier(tier).capacity
    }

    /// Bytes a second of the fastest memory, from it to the next tier, and back.
    pub(super) fn device(&self) -> (f64, f64, f64) {
        let link = |from, to| self.machine.link(TierId(from), TierId(to)).expect("neighbours have links");
        let rate = |link: &tiercel_core::Link| link.speed().0;
        (self.machine.tier(TierId(0)).read.0, rate(link(0, 1)), rate(link(1, 0)))
    }

    /// What was chosen.
    pub(super) fn options(&self) -> Options {
        self.options
    }

    /// How long kernels take.
    pub(super) fn times(&self) -> &Times {
        &self.times
    }

    /// Does something of one's own with each of these, over all cores; it counts as a simulation.
    pub(super) fn each<J: Sync, R: Send>(&self, jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
        each(jobs, self.threads, |job| {
            let result = work(job);
            (self.tick)();
            result
        })
    }

    /// The networks, which train with plain SGD as AutoTM's code has it.
    pub(super) fn programs(&self, nets: &[Net]) -> Vec<(Net, Program)> {
        nets.iter().map(|net| (*net, program(*net))).collect()
    }

    /// Does all jobs.
    pub(super) fn play(&self, programs: &[(Net, Program)], jobs: &[Job]) -> Results {
        let played = self.each(jobs, |job| {
            let program = programs.iter().find(|(net, _)| *net == job.net).map(|(_, program)| program);
            let program = program.expect("jobs are of the networks given");
            let trace = &program.trace;
            let machine = self.machine(trace, job.fast);
            let setting = Setting::of(program, &machine, &self.times).with(self.options);
            let run = simulate(&job.system, &setting, 2).map_err(|error| error.to_string());
            Played { job: *job, peak: Lifetimes::new(trace).peak().1, run }
        });
        Results(played)
    }
}

/// A network at a batch.
pub(super) fn program((name, batch): Net) -> Program {
    let options = nets::NetOptions {
        batch: Some(batch),
        optimizer: Some(Optimizer::SGD),
        ..nets::NetOptions::default()
    };
    let net = nets::find(name).expect("a built-in network");
    net.build(&options).expect("a size that the paper used")
}

/// Simulations that were done, to be asked for figures.
pub(super) struct Results(Vec<Played>);

impl Results {
    /// One of them.
    pub(super) fn get(&self, net: Net, system: &System, fast: Option<Fast>) -> Result<&Run, String> {
        let same = |played: &&Played| {
            let job = &played.job;
            job.net == net && job.system.name == system.name && (job.fast == fast || system.ignores_fast())
        };
        let played = self.0.iter().find(same).ok_or("it was not simulated")?;
        played.run.as_ref().map_err(Clone::clone)
    }

    /// The most that a network keeps at once.
    pub(super) fn peak(&self, net: Net) -> Option<Bytes> {
        self.0.iter().find(|played| played.job.net == net).map(|played| played.peak)
    }

    /// The seconds of an iteration.
    pub(super) fn seconds(&self, net: Net, system: &System, fast: Option<Fast>) -> Result<f64, String> {
        Ok(self.get(net, system, fast)?.time().seconds())
    }
}

/// A row of one figure.
pub(super) fn row(
    what: impl Into<String>,
    place: &'static str,
    paper: Claim,
    ours: Result<f64, String>,
    unit: &'static str,
) -> Row {
    Row { what: what.into(), place, paper, ours, unit, note: None, fitted: false }
}

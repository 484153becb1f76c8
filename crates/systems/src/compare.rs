//! Many networks under many systems with many amounts of fast memory, over all cores, always in the same order.

use tiercel_core::{Bytes, Machine, Nanos, TierId};
use tiercel_workload::{Lifetimes, Workload};

use crate::{
    Fast, Options, Run, Setting, System, SystemError, Times, WarmStarts, each, named, simulate,
    with_best_lookahead,
};

/// What is compared.
#[derive(Clone, Copy)]
pub struct Grid<'a> {
    /// What runs, each with a name.
    pub works: &'a [(String, Workload)],
    /// On what.
    pub machine: &'a Machine,
    /// How long kernels take there.
    pub times: &'a Times,
    /// Under which systems.
    pub systems: &'a [&'static System],
    /// With how much fast memory.
    pub fast: &'a [Fast],
    /// What can be chosen of the systems.
    pub options: Options,
    /// Iterations that count.
    pub iterations: u32,
    /// Simulations at a time.
    pub threads: usize,
}

/// One network under one system with one amount of fast memory.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The network, as a position in [`Grid::works`].
    pub work: usize,
    /// The system's name.
    pub system: &'static str,
    /// The fast memory that there is.
    pub fast: Bytes,
    /// That as a share of the network's peak.
    pub fraction: f64,
    /// What came of it.
    pub run: Result<Run, SystemError>,
    /// The iteration with everything in fast memory, where that is possible.
    pub fast_only: Option<Nanos>,
    /// The same for the program that the system made of the one it was given, where it did.
    pub rewritten: Option<Nanos>,
}

impl Cell {
    /// How many times longer an iteration takes than with everything in fast memory.
    pub fn slowdown(&self) -> Option<f64> {
        let (run, fast_only) = (self.run.as_ref().ok()?, self.fast_only?);
        Some(run.time().0 as f64 / fast_only.0.max(1) as f64)
    }

    /// The same of what the system made of the program, with everything in fast memory.
    pub fn slowdown_of_rewritten(&self) -> Option<f64> {
        Some(self.rewritten?.0 as f64 / self.fast_only?.0.max(1) as f64)
    }
}

impl Grid<'_> {
    /// How many simulations it takes.
    pub fn len(&self) -> usize {
        self.works.len() * (1 + self.fast.len() * self.systems.len())
    }

    /// Whether there is nothing to compare.
    pub fn is_empty(&self) -> bool {
        self.works.is_empty()
    }

    /// Simulates everything; `tick` is called after each simulation. The cells come by network, then by fast memory,
    /// then by system.
    pub fn run(&self, tick: impl Fn() + Sync) -> Vec<Cell> {
        let fast_only = named("fast-only").expect("it is listed");
        let play = |system: &System, work: &Workload, machine: &Machine, warm_starts: &WarmStarts| {
            let setting = Setting {
                program: work.program(),
                options: self.options,
                warm_starts: Some(warm_starts),
                ..Setting::new(work.trace(), machine, self.times)
            };
            let best = with_best_lookahead(system, &setting);
            let run = best.and_then(|options| simulate(system, &setting.with(options), self.iterations));
            tick();
            run
        };
        let goals = each(self.works, self.threads, |(_, work)| {
            play(fast_only, work, self.machine, &WarmStarts::default())
        });
        let peaks: Vec<Bytes> =
            self.works.iter().map(|(_, work)| Lifetimes::new(work.trace()).peak().1).collect();
        let all = |work: usize| self.systems.iter().map(move |system| (work, *system));
        let jobs: Vec<(usize, &System)> = (0..self.works.len()).flat_map(all).collect();
        // From little memory to much, so that planners begin with what they have learned.
        let columns = each(&jobs, self.threads, |&(work, system)| {
            let warm_starts = WarmStarts::default();
            let mut amounts: Vec<(usize, Bytes)> = self
                .fast
                .iter()
                .map(|fast| fast.machine(self.works[work].1.trace(), self.machine).tiers[0].capacity)
                .enumerate()
                .collect();
            amounts.sort_by_key(|(_, fast)| *fast);
            let mut column: Vec<(usize, Cell)> = Vec::new();
            for (at, fast) in amounts {
                let machine = self.machine.clone().with_capacity(TierId(0), fast);
                let run = if system.ignores_fast() {
                    tick();
                    goals[work].clone()
                } else {
                    play(system, &self.works[work].1, &machine, &warm_starts)
                };
                let rewritten =
                    run.as_ref().ok().and_then(|run| run.rewritten.as_ref()).and_then(|program| {
                        let setting = Setting {
                            options: self.options,
                            ..Setting::of(program, self.machine, self.times)
                        };
                        Some(simulate(fast_only, &setting, 1).ok()?.time())
                    });
                let cell = Cell {
                    work,
                    system: system.name,
                    fast,
                    fraction: fast.0 as f64 / peaks[work].0.max(1) as f64,
                    run,
                    fast_only: goals[work].as_ref().ok().map(Run::time),
                    rewritten,
                };
                column.push((at, cell));
            }
            column
        });
        let order = |job: usize, amount: usize| (job / self.systems.len(), amount, job % self.systems.len());
        let numbered = columns.into_iter().enumerate();
        let mut cells: Vec<((usize, usize, usize), Cell)> = numbered
            .flat_map(|(job, column)| {
                column.into_iter().map(move |(amount, cell)| (order(job, amount), cell))
            })
            .collect();
        cells.sort_by_key(|(order, _)| *order);
        cells.into_iter().map(|(_, cell)| cell).collect()
    }
}

/// The geometric mean; `None` of nothing.
pub fn geometric_mean(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0);
    for figure in figures {
        sum += figure.ln();
        count += 1;
    }
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

//! WarpX-PM (dissertation, chapter 7): problems A to F on the paper's machine, by simulation.
//!
//! Placements, zones and the sizes of batches come from the code that runs particles for real (`tiercel_pic`: `System::wire`
//! and its placements), the number of copy threads from its model (`copiers`); what is simulated is how long kernels and copies take. An
//! iteration is what the chapter describes: the pusher passes over all particles, the deposit does again, the solver over all
//! fields. Everything is 1024 times smaller than the paper's and takes 1024 times less time.

use tiercel_core::{Access, Bytes, Machine, Manager, Nanos, ObjectId, Operand, Step, TierId, Traffic};
use tiercel_pic::Passes;
use tiercel_pic::copiers::{Hardware, Interval};
use tiercel_pic::store::{Housed, Kind, Placement};
use tiercel_pic::system::{Needs, System};
use tiercel_policies::Ial;
use tiercel_profile::machines;
use tiercel_sim::{EMULATED_OVERLAP, KernelTime, Sim, Work, together};
use tiercel_workload::Kernel;
use tiercel_workload::trace::Phase;

use super::bench::{Bench, row};
use super::{Claim, Paper, Row};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    name: "warpx-pm",
    title: "WarpX-PM: Optimizing Large-Scale Plasma Simulations on Big Memory System (dissertation, chapter 7)",
    machine: "optane-sentinel",
    remarks: &[
        "One socket of the paper's two, with half of each problem: the same parts as Sentinel's machine.",
        "How long phases compute for a particle and a cell is fitted to Table 7.3, the phases of problem B in memory mode, read as \
         seconds an iteration: as the sum of ten iterations the deposit would read persistent memory faster than it can be read. Nothing else \
         is fitted.",
        "Assumed: 64 bytes a particle and 94 a cell, a tenth of the peak short-lived and passed over twice, four ranks a socket, each with \
         its helper threads.",
        "One or two helper threads of a rank take 5 and 10 % from the computation, three and four 25 and 35 %: section 7.4.2 says less than \
         10 and more than 20.",
        "Loads and stores of kernels reach 28 and 3.1 GB/s on persistent memory, as fitted for AutoTM's machine; copies and the cache of \
         memory mode reach what the memory can. This was chosen after a first simulation, in which they all did, and so is no prediction.",
        "Memory is modelled by bandwidths alone: what latency costs pointers and small objects on \
         persistent memory is not in here, nor traffic between sockets.",
        "Placement, zones and batches are the decisions of the code that runs for real (`crates/pic`); helper threads are those of its model \
         (equations 7.1 to 7.7), too.",
    ],
    reasons: &[
        (
            "IAL",
            "the paper ran three of its problems under IAL and does not say how its lists were tuned; here looking at pages \
             costs nothing",
        ),
        (
            "helper threads of a process",
            "copies take a tenth of the time that a pusher of Table 7.3 computes, so one thread is enough; the paper's intervals \
             must have been shorter or their copies slower than the parts say",
        ),
        (
            "",
            "with the phases of Table 7.3 memory is busy for a small part of an iteration (as in the paper's Figure 7.2), and a model of \
             bandwidths cannot lose more on it; the paper's baselines lose what latency and the other socket cost, too",
        ),
    ],
    rows,
};

/// How much smaller everything is.
const SCALE: f64 = 1024.0;

/// Processes on a socket.
const RANKS: u32 = 4;

/// Bytes of a particle: place, momentum, weight, and a number.
const PARTICLE: f64 = 64.0;

/// Bytes of a cell: nine components in double precision, and the guard cells of boxes of 32.
const CELL: f64 = 94.0;

/// A problem of Table 7.5.
#[derive(Clone, Copy)]
struct Problem {
    name: &'static str,
    cells: f64,
    particles: f64,
    /// Its peak consumption.
    peak: f64,
}

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// Problems that are larger than fast memory.
const PROBLEMS: [Problem; 6] = [
    Problem { name: "A", cells: 512.0 * 512.0 * 4096.0, particles: 1.1e9, peak: 228.5 * GIB },
    Problem { name: "B", cells: 704.0 * 704.0 * 5664.0, particles: 8.4e9, peak: 1228.8 * GIB },
    Problem { name: "C", cells: 512.0 * 512.0 * 4096.0, particles: 2.1e9, peak: 306.0 * GIB },
    Problem { name: "D", cells: 864.0 * 864.0 * 7200.0, particles: 10.7e9, peak: 960.0 * GIB },
    Problem { name: "E", cells: 384.0 * 384.0 * 3104.0, particles: 3.7e9, peak: 525.0 * GIB },
    Problem { name: "F", cells: 512.0 * 512.0 * 4096.0, particles: 8.6e9, peak: 1228.8 * GIB },
];

/// The problem that fits.
const SMALL: Problem =
    Problem { name: "G", cells: 256.0 * 256.0 * 2048.0, particles: 134.2e6, peak: 19.2 * GIB };

/// Table 7.3, in seconds an iteration: pusher and gather, deposit, solver.
const PHASES: [f64; 3] = [326.0, 132.0, 47.2];

/// What phases compute: nanoseconds for a particle, twice, and for a cell, on one socket.
type Costs = [f64; 3];

/// Who decides.
#[derive(Clone, Copy, PartialEq)]
enum Who {
    Pic(System),
    Ial,
}

/// The paper's socket, with so many helper threads in each of its processes.
fn machine(helpers: usize, ample: bool) -> Machine {
    let mut machine = machines::named("optane-sentinel").expect("a shipped machine");
    for (tier, more) in machine.tiers.iter_mut().zip([if ample { 20.0 } else { 1.0 }, 2.0]) {
        tier.capacity = Bytes((tier.capacity.0 as f64 * more / SCALE) as u64 / 4096 * 4096);
    }
    for link in &mut machine.links {
        (link.threads, link.latency) = (helpers as u32 * RANKS, Nanos::ZERO);
    }
    machine
}

/// What helper threads take from the computation.
fn slower(helpers: usize) -> f64 {
    [1.0, 1.05, 1.1, 1.25, 1.35][helpers.min(4)]
}

/// Kernels take what they compute and what they move, which hide each other as on persistent memory. Loads and stores of
/// kernels reach what the machine's file says of them; where the hardware fills a cache, memory reaches what it can.
struct Both {
    cache: bool,
}

impl KernelTime for Both {
    fn time(&self, machine: &Machine, kernel: &Kernel, _: &[TierId]) -> Nanos {
        self.cached(machine, kernel, &[])
    }

    fn cached(&self, machine: &Machine, kernel: &Kernel, traffic: &[Traffic]) -> Nanos {
        let of = |t: &Traffic| {
            let mut tier = machine.tier(t.tier).clone();
            let known = machine.kernels.as_ref().and_then(|kernels| kernels.tiers.get(&tier.name));
            if let Some(known) = known.filter(|_| !self.cache) {
                (tier.read, tier.write) =
                    (known.read.unwrap_or(tier.read), known.write.unwrap_or(tier.write));
            }
            tier.flow(t.read.0 as f64, t.write.0 as f64)
        };
        let moves = traffic.iter().map(of).sum::<f64>() * 1e9;
        Nanos(together(kernel.flops as f64, moves, EMULATED_OVERLAP).round() as u64)
    }
}

/// A simulation of one problem under one system.
struct World {
    manager: Manager<Sim>,
    placement: Box<dyn Placement>,
    passes: Passes,
    batch: Option<Bytes>,
    particles: Vec<ObjectId>,
    fields: Vec<ObjectId>,
    /// Where the placement puts what is short-lived; none where it has fast memory set aside for it.
    short: Option<ObjectId>,
    short_bytes: Bytes,
    steps: u32,
}

/// Objects that particles and fields are cut into.
const TILES: u64 = 2048;
const LAYERS: u64 = 64;

fn scaled(bytes: f64) -> Bytes {
    Bytes((bytes / 2.0 / SCALE) as u64)
}

impl World {
    fn new(problem: &Problem, who: Who, helpers: usize) -> Result<World, String> {
        let machine = machine(helpers, who == Who::Pic(System::AllFast));
        let page = |bytes: Bytes| bytes.round_up(Bytes(4096)).unwrap_or(bytes);
        let tile = page(Bytes(scaled(problem.particles * PARTICLE).0 / TILES));
        let layer = page(Bytes(scaled(problem.cells * CELL).0 / LAYERS));
        let short = scaled(problem.peak * 0.1);
        let needs = Needs {
            particles: Bytes(tile.0 * TILES),
            fields: Bytes(layer.0 * LAYERS),
            temporaries: short,
            metadata: scaled(problem.peak * 0.005),
            tile,
        };
        let (placement, passes, batch): (Box<dyn Placement>, _, _) = match who {
            Who::Pic(system) => {
                let wired = system.wire(&needs, &machine).map_err(|error| error.to_string())?;
                (wired.placement, wired.passes, wired.batch)
            }
            Who::Ial => {
                let period = Nanos((5e9 / SCALE) as u64);
                (Box::new(Housed(Box::new(Ial::new(period)))), Passes::Two, None)
            }
        };
        let sim = Sim::with_times(machine.clone(), Both { cache: who == Who::Pic(System::MemoryMode) });
        let mut world = World {
            manager: Manager::new(machine, sim),
            placement,
            passes,
            batch,
            particles: Vec::new(),
            fields: Vec::new(),
            short: None,
            short_bytes: short,
            steps: 0,
        };
        // Particles are made before fields, as WarpX does, and what is short-lived last.
        for _ in 0..TILES {
            let object = world.create(Kind::Particles, tile)?;
            world.particles.push(object);
        }
        for _ in 0..LAYERS {
            let object = world.create(Kind::Fields, layer)?;
            world.fields.push(object);
        }
        if !matches!(who, Who::Pic(System::Static | System::WarpxPm | System::Tiercel)) {
            world.short = Some(world.create(Kind::Fields, short)?);
        }
        Ok(world)
    }

    fn create(&mut self, kind: Kind, size: Bytes) -> Result<ObjectId, String> {
        let object = self.manager.create(None, size).map_err(|error| error.to_string())?;
        let placed = self.placement.place(&mut self.manager, object, kind);
        placed.map_err(|error| error.to_string())?;
        self.kernel(&[(object, Access::Write, size)], 0.0)?;
        self.placement.passed(&mut self.manager, object).map_err(|error| error.to_string())?;
        Ok(object)
    }

    /// One kernel that computes for so many nanoseconds.
    fn kernel(&mut self, uses: &[(ObjectId, Access, Bytes)], compute: f64) -> Result<(), String> {
        let step = Step(self.steps);
        self.steps = (self.steps + 1) % Step::LOAD.0;
        let operand = |(object, access, bytes): &(ObjectId, Access, Bytes)| Operand {
            object: *object,
            access: *access,
            bytes: *bytes,
        };
        let operands: Vec<Operand> = uses.iter().map(operand).collect();
        let text = |error: tiercel_core::Error| error.to_string();
        self.placement.before(&mut self.manager, step, &operands).map_err(text)?;
        self.manager.begin(step, &operands).map_err(text)?;
        let mut all = Vec::new();
        tiercel_sim::world::traffic_of(&self.manager, &operands, &mut all);
        let traffic = self.placement.traffic(&mut self.manager, &operands).unwrap_or(all);
        let kernel = Kernel {
            name: String::new(),
            op: String::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            flops: compute.round() as u64,
            layer: 0,
            phase: Phase::Forward,
            timings: Vec::new(),
            alternatives: Vec::new(),
            beside: false,
            factor: 1.0,
            repeat: None,
            derived: Default::default(),
        };
        let work = Work {
            step,
            kernel: &kernel,
            operands: &operands,
            places: &[],
            slots: &[],
            traffic: &traffic,
            cached: true,
        };
        self.manager.backend_mut(()).compute(&work);
        self.manager.end(step, &operands);
        Ok(())
    }

    /// A pass over all particles, batch by batch, with the next one on its way; and over a part of the fields beside it.
    fn pass(&mut self, compute: f64, writes: bool, fields: (f64, Access)) -> Result<(), String> {
        let text = |error: tiercel_core::Error| error.to_string();
        let size = self.manager.size(self.particles[0]).map_err(text)?;
        let each = self.batch.map_or(TILES / LAYERS, |batch| (batch.0 / size.0.max(1)).max(1)) as usize;
        let groups: Vec<Vec<ObjectId>> = self.particles.chunks(each).map(<[_]>::to_vec).collect();
        let layer = self.manager.size(self.fields[0]).map_err(text)?;
        let access = if writes { Access::ReadWrite } else { Access::Read };
        let share = 1.0 / groups.len() as f64;
        for (at, group) in groups.iter().enumerate() {
            let soon = if at == 0 {
                &groups[..groups.len().min(2)]
            } else {
                groups.get(at + 1..at + 2).unwrap_or(&[])
            };
            for object in soon.iter().flatten() {
                self.placement.soon(&mut self.manager, *object).map_err(text)?;
            }
            let mut uses: Vec<_> = group.iter().map(|object| (*object, access, size)).collect();
            // The layers beside these particles: each passes by once.
            let span = LAYERS as f64 * share;
            let first = at as f64 * span;
            for number in first as usize..((first + span).ceil() as usize).min(LAYERS as usize) {
                let part = (first + span).min(number as f64 + 1.0) - first.max(number as f64);
                let bytes = Bytes((layer.0 as f64 * part * fields.0) as u64);
                uses.push((self.fields[number], fields.1, bytes));
            }
            let part = group.len() as f64 / TILES as f64;
            self.kernel(&uses, compute * part)?;
            for object in group {
                self.placement.passed(&mut self.manager, *object).map_err(text)?;
            }
        }
        self.short_lived()
    }

    /// What is short-lived is written once and read once.
    fn short_lived(&mut self) -> Result<(), String> {
        let bytes = self.short_bytes;
        match self.short {
            Some(object) => self.kernel(&[(object, Access::ReadWrite, bytes)], 0.0),
            // In its own zone of fast memory.
            None => {
                let tier = self.manager.machine().tier(TierId(0));
                let time = tier.flow(bytes.0 as f64, bytes.0 as f64) * 1e9;
                self.kernel(&[], time)
            }
        }
    }

    /// One iteration: when each of its phases ended.
    fn iterate(&mut self, problem: &Problem, costs: Costs, helpers: usize) -> Result<[f64; 3], String> {
        let (particles, cells) = (problem.particles / 2.0 / SCALE, problem.cells / 2.0 / SCALE);
        let slower = if self.batch.is_some() { slower(helpers) } else { 1.0 };
        let [push, deposit, solve] =
            [costs[0] * particles * slower, costs[1] * particles * slower, costs[2] * cells * slower];
        let mut ends = [0.0; 3];
        if self.passes == Passes::One {
            // Six components are read and three changed: as many bytes as six that are changed.
            self.pass(push + deposit, true, (2.0 / 3.0, Access::ReadWrite))?;
            ends[0] = self.manager.now().0 as f64;
        } else {
            self.pass(push, true, (2.0 / 3.0, Access::Read))?;
            ends[0] = self.manager.now().0 as f64;
            self.pass(deposit, false, (1.0 / 3.0, Access::ReadWrite))?;
        }
        ends[1] = self.manager.now().0 as f64;
        let layer = self.manager.size(self.fields[0]).map_err(|error| error.to_string())?;
        for object in self.fields.clone() {
            self.kernel(&[(object, Access::ReadWrite, layer)], solve / LAYERS as f64)?;
        }
        ends[2] = self.manager.now().0 as f64;
        self.steps = 0;
        self.placement.iteration_ended(&mut self.manager, Bytes::ZERO).map_err(|error| error.to_string())?;
        Ok(ends)
    }
}

/// The seconds of each phase of an iteration, once it is what it stays; of the paper's ten the first ones are left out, where
/// placement is still settling.
fn phases(problem: &Problem, who: Who, helpers: usize, costs: Costs) -> Result<[f64; 3], String> {
    let mut world = World::new(problem, who, helpers)?;
    let (mut before, mut ends) = (0.0, [0.0; 3]);
    for _ in 0..4 {
        before = world.manager.now().0 as f64;
        ends = world.iterate(problem, costs, helpers)?;
    }
    let seconds = |nanos: f64| nanos * SCALE / 1e9;
    Ok([seconds(ends[0] - before), seconds(ends[1] - ends[0]), seconds(ends[2] - ends[1])])
}

fn iteration(problem: &Problem, who: Who, helpers: usize, costs: Costs) -> Result<f64, String> {
    phases(problem, who, helpers, costs).map(|all| all.iter().sum())
}

/// What phases compute, so that those of problem B take in memory mode what Table 7.3 says.
fn fit() -> Result<Costs, String> {
    let b = &PROBLEMS[1];
    let mut costs = [0.0; 3];
    let count = [b.particles, b.particles, b.cells].map(|count| count / 2.0);
    // A phase does not depend on the others' costs: each is found by halving, all at once.
    let (mut low, mut high): (Costs, Costs) =
        ([0.0; 3], std::array::from_fn(|at| PHASES[at] * 1e9 / count[at]));
    for _ in 0..12 {
        costs = std::array::from_fn(|at| 0.5 * (low[at] + high[at]));
        let found = phases(b, Who::Pic(System::MemoryMode), 1, costs)?;
        for at in 0..3 {
            if found[at] > PHASES[at] { high[at] = costs[at] } else { low[at] = costs[at] }
        }
    }
    Ok(costs)
}

/// The number of helper threads that the model chooses for the pusher's intervals, from what the second iteration shows: the
/// time and the traffic of an interval whose particles are in fast memory, with nothing copied beside.
fn chosen(problem: &Problem, costs: Costs) -> Result<usize, String> {
    let machine = machine(1, false);
    let (fast, slow) = (TierId(0), TierId(1));
    let curve = |from, to| -> Vec<f64> {
        let link = machine.link(from, to);
        (1..=machine.compute.threads).filter_map(|n| link.map(|link| link.bandwidth(n).0)).collect()
    };
    let hardware = Hardware {
        bandwidth_in: curve(slow, fast),
        bandwidth_out: curve(fast, slow),
        threads: (machine.compute.threads / RANKS) as usize,
        ranks: RANKS as usize,
    };
    let scale = |bytes: f64| bytes / 2.0 / SCALE;
    let (particles, fields) = (scale(problem.particles * PARTICLE), scale(problem.cells * CELL));
    // Fields that fast memory has no room for are read where they are.
    let room = machine.tier(fast).capacity.0 as f64 - scale(problem.peak * 0.105);
    let behind = (fields - room.max(0.0)).max(0.0) * 2.0 / 3.0;
    let traffic =
        |tier, read: f64, write: f64| Traffic { tier, read: Bytes(read as u64), write: Bytes(write as u64) };
    let all = [traffic(fast, particles + fields * 2.0 / 3.0 - behind, particles), traffic(slow, behind, 0.0)];
    let moves = all.iter().map(|t| machine.tier(t.tier).flow(t.read.0 as f64, t.write.0 as f64)).sum::<f64>();
    let computes = costs[0] * scale(problem.particles) / 1e9;
    let seconds = together(computes, moves, EMULATED_OVERLAP);
    let ranks = f64::from(RANKS);
    let interval = Interval {
        bytes_in: particles / ranks,
        bytes_out: particles / ranks,
        compute: seconds,
        compute_bandwidth: behind / seconds / ranks,
    };
    hardware.choose(&interval).map(|found| found.threads).map_err(|error| error.to_string())
}

/// One simulation to do.
#[derive(Clone, Copy)]
struct Job {
    problem: Problem,
    who: Who,
    helpers: usize,
}

/// What was simulated, in seconds an iteration.
struct Results(Vec<(Job, Result<f64, String>)>);

impl Results {
    fn get(&self, problem: &str, who: Who, helpers: usize) -> Result<f64, String> {
        let same = |job: &Job| {
            job.problem.name == problem && job.who == who && (job.helpers == helpers || !helped(job.who))
        };
        let found = self.0.iter().find(|(job, _)| same(job));
        found.map_or_else(|| Err("it was not simulated".to_string()), |(_, result)| result.clone())
    }

    /// By how many percent WarpX-PM is ahead of another, as a mean over problems.
    fn ahead(
        &self,
        problems: &[&'static str],
        choices: &[usize],
        winner: Who,
        other: Who,
    ) -> Result<f64, String> {
        let mut sum = 0.0;
        for name in problems {
            let helpers = number(name, choices);
            sum += (self.get(name, other, helpers)? / self.get(name, winner, helpers)? - 1.0) * 100.0;
        }
        Ok(sum / problems.len() as f64)
    }
}

/// Whether helper threads matter to it.
fn helped(who: Who) -> bool {
    matches!(who, Who::Pic(System::WarpxPm | System::Tiercel))
}

/// The helper threads that were chosen for a problem.
fn number(name: &str, choices: &[usize]) -> usize {
    let at = PROBLEMS.iter().position(|problem| problem.name == name);
    at.and_then(|at| choices.get(at).copied()).unwrap_or(1)
}

const SIX: [&str; 6] = ["A", "B", "C", "D", "E", "F"];

fn rows(bench: &Bench<'_>) -> Vec<Row> {
    let costs = match fit() {
        Ok(costs) => costs,
        Err(error) => {
            return vec![row("problem B in memory mode", "Table 7.3", Claim::Silent, Err(error), "s")];
        }
    };
    let others = [System::AllFast, System::SlowOnly, System::FirstTouch, System::MemoryMode, System::Static];
    let mut jobs = Vec::new();
    for problem in PROBLEMS.into_iter().chain([SMALL]) {
        jobs.extend(others.map(|system| Job { problem, who: Who::Pic(system), helpers: 1 }));
        jobs.push(Job { problem, who: Who::Ial, helpers: 1 });
        for helpers in 1..=4 {
            let of = [System::WarpxPm, System::Tiercel];
            jobs.extend(of.map(|system| Job { problem, who: Who::Pic(system), helpers }));
        }
    }
    let outcomes = bench.each(&jobs, |job| iteration(&job.problem, job.who, job.helpers, costs));
    let results = Results(jobs.into_iter().zip(outcomes).collect());
    let choices: Result<Vec<usize>, String> = PROBLEMS.iter().map(|problem| chosen(problem, costs)).collect();
    let choices = match choices {
        Ok(choices) => choices,
        Err(error) => return vec![row("helper threads", "Figure 7.8", Claim::Silent, Err(error), "threads")],
    };
    let mut rows = fitted(costs);
    rows.extend(overall(&results, &choices));
    rows.extend(helpers(&results, &choices));
    rows.extend(ours(&results, &choices));
    rows
}

/// Table 7.3: what the model was made with.
fn fitted(costs: Costs) -> Vec<Row> {
    let found = phases(&PROBLEMS[1], Who::Pic(System::MemoryMode), 1, costs);
    let names = ["pusher and gather", "deposit", "solver"];
    (0..3)
        .map(|at| {
            let ours = found.clone().map(|found| found[at]);
            let what = format!("problem B in memory mode: {}", names[at]);
            row(what, "Table 7.3", Claim::About(PHASES[at]), ours, "s an iteration").fitted()
        })
        .collect()
}

/// Figures 7.4 to 7.6: averages.
fn overall(results: &Results, choices: &[usize]) -> Vec<Row> {
    let ours = Who::Pic(System::WarpxPm);
    let place = "Figure 7.4: WarpX-PM ahead of";
    let mut rows = Vec::new();
    for (name, other, claim) in [
        ("persistent memory alone, mean of A to F", System::SlowOnly, 64.6),
        ("memory mode, mean of A to F", System::MemoryMode, 34.4),
        ("first-touch, mean of A to F", System::FirstTouch, 41.0),
    ] {
        let found = results.ahead(&SIX, choices, ours, Who::Pic(other));
        rows.push(row(name, place, Claim::About(claim), found, "% of the speed"));
    }
    let found = results.ahead(&["G"], choices, ours, Who::Pic(System::FirstTouch)).map(f64::abs);
    rows.push(row(
        "first-touch on G, which fits: at most",
        place,
        Claim::AtMost(5.0),
        found,
        "% of the speed",
    ));
    let statics = Who::Pic(System::Static);
    let place = "Section 7.5.2, Figure 7.5";
    let found = results.ahead(&["B", "D"], choices, statics, Who::Pic(System::MemoryMode));
    rows.push(row(
        "static placement ahead of memory mode, B and D",
        place,
        Claim::About(29.0),
        found,
        "% of the speed",
    ));
    let found = results.ahead(&SIX, choices, ours, statics);
    rows.push(row("WarpX-PM ahead of static placement", place, Claim::About(41.0), found, "% of the speed"));
    let found = results.ahead(&SIX, choices, ours, Who::Ial);
    let place = "Figure 7.6: WarpX-PM ahead of";
    rows.push(row(
        "IAL, mean of A to F (the paper: of three)",
        place,
        Claim::About(83.3),
        found,
        "% of the speed",
    ));
    rows
}

/// Figure 7.8: how many helper threads.
fn helpers(results: &Results, choices: &[usize]) -> Vec<Row> {
    let who = Who::Pic(System::WarpxPm);
    let place = "Figure 7.8";
    let mut rows = Vec::new();
    let mut worst = Ok(0.0f64);
    let mut many = Ok(f64::INFINITY);
    for (at, (name, paper)) in SIX.into_iter().zip([2.0, 2.0, 2.0, 1.0, 2.0, 1.0]).enumerate() {
        let times: Result<Vec<f64>, String> = (1..=4).map(|n| results.get(name, who, n)).collect();
        let best =
            times.clone().map(|times| (0..4).min_by(|a, b| times[*a].total_cmp(&times[*b])).unwrap_or(0));
        if let (Ok(times), Ok(best)) = (&times, &best) {
            let loss = (times[choices[at] - 1] / times[*best] - 1.0) * 100.0;
            worst = worst.map(|worst| worst.max(loss));
            many = many.map(|many: f64| many.min((times[2].min(times[3]) / times[*best] - 1.0) * 100.0));
        } else if let Err(error) = &times {
            (worst, many) = (Err(error.clone()), Err(error.clone()));
        }
        let what = format!("{name}: best number of helper threads of a process");
        rows.push(row(what, place, Claim::About(paper), best.map(|best| best as f64 + 1.0), "threads"));
        let what = format!("{name}: number that the model chooses");
        rows.push(row(what, place, Claim::About(paper), Ok(choices[at] as f64), "threads"));
    }
    rows.push(row(
        "most that the model's number loses to the best",
        place,
        Claim::AtMost(5.0),
        worst,
        "% of the speed",
    ));
    let note = "most of this follows from what helper threads are assumed to take from the computation";
    let found = row(
        "least that three or four helper threads lose",
        place,
        Claim::AtLeast(30.0),
        many,
        "% of the speed",
    );
    rows.push(found.note(note));
    rows
}

/// What the paper says nothing of.
fn ours(results: &Results, choices: &[usize]) -> Vec<Row> {
    let place = "ours";
    let tiercel = Who::Pic(System::Tiercel);
    let ahead = |other| results.ahead(&SIX, choices, tiercel, Who::Pic(other));
    vec![
        row(
            "tiercel ahead of WarpX-PM, mean of A to F",
            place,
            Claim::Silent,
            ahead(System::WarpxPm),
            "% of the speed",
        ),
        row(
            "all in fast memory ahead of tiercel, mean of A to F",
            place,
            Claim::Silent,
            results.ahead(&SIX, choices, Who::Pic(System::AllFast), tiercel),
            "% of the speed",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiercel_pic::copiers::SPARE;

    /// Order, not figures: fast memory alone is fastest, ours is not behind WarpX-PM, and that not behind persistent memory.
    #[test]
    fn systems_stand_in_their_order() {
        let costs = fit().expect("memory mode");
        for problem in [PROBLEMS[0], PROBLEMS[4]] {
            let of =
                |system, helpers| iteration(&problem, Who::Pic(system), helpers, costs).expect("it runs");
            let helpers = chosen(&problem, costs).expect("a number");
            assert!((1..=SPARE).contains(&helpers));
            let (warpx, ours) = (of(System::WarpxPm, helpers), of(System::Tiercel, helpers));
            assert!(of(System::AllFast, 1) <= ours * 1.001, "{}", problem.name);
            assert!(ours <= warpx * 1.001, "{}: {ours} {warpx}", problem.name);
            assert!(warpx < of(System::SlowOnly, 1), "{}", problem.name);
        }
    }
}

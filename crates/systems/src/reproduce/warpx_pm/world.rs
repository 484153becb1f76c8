//! The simulated iteration: what of a problem is where, what each phase computes and moves, and what is fitted.

use tiercel_core::copiers::{Hardware, Interval};
use tiercel_core::{
    Access, Bandwidth, Bytes, Machine, Manager, Nanos, ObjectId, Operand, Step, TierId, Traffic,
};
use tiercel_pic::Passes;
use tiercel_pic::store::{Housed, Kind, Placement};
use tiercel_pic::system::{Needs, System};
use tiercel_policies::Ial;
use tiercel_profile::machines;
use tiercel_sim::{EMULATED_OVERLAP, KernelTime, Sim, Work, together};
use tiercel_workload::Kernel;
use tiercel_workload::trace::Phase;

/// How much smaller everything is.
const SCALE: f64 = 1024.0;

/// Processes on a socket.
const RANKS: u32 = 4;

/// Bytes of a particle, by Table 7.2: 840.3 GiB of long-lived small objects are the 8.4 billion particles of problem B. So many are
/// place, momentum, weight, a number, and the fields at it.
const PARTICLE: f64 = 840.3 * GIB / 8.4e9;

/// Bytes of a cell, by Table 7.2: 285.5 GiB of long-lived objects of 2 to 4 MiB, boxes of one component, for those of problem B.
const CELL: f64 = 285.5 * GIB / (704.0 * 704.0 * 5664.0);

/// What is short-lived at once, as a part of the peak, by Table 7.2: 10.4 + 10.8 + 66 and 1.7 GiB of 1228.8.
const SHORT: f64 = 88.9 / 1228.8;

/// What is short-lived in a whole iteration, over what is at once, by Table 7.2: 897.7 + 34.3 + 262.5 and 1.6 GiB.
const REUSE: f64 = 1196.1 / 88.9;

/// Metadata, as a part of the peak.
const METADATA: f64 = 0.005;

/// A problem of Table 7.5.
#[derive(Clone, Copy)]
pub(super) struct Problem {
    pub(super) name: &'static str,
    cells: f64,
    particles: f64,
    /// Its peak consumption.
    peak: f64,
}

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

impl Problem {
    /// Its fields.
    fn fields(&self) -> f64 {
        self.cells * CELL
    }

    /// Its particles: as large as Table 7.2 has them, or as its peak leaves room for.
    fn particles(&self) -> f64 {
        let left = self.peak * (1.0 - SHORT - METADATA) - self.fields();
        (self.particles * PARTICLE).min(left)
    }
}

/// Problems that are larger than fast memory.
pub(super) const PROBLEMS: [Problem; 6] = [
    Problem { name: "A", cells: 512.0 * 512.0 * 4096.0, particles: 1.1e9, peak: 228.5 * GIB },
    Problem { name: "B", cells: 704.0 * 704.0 * 5664.0, particles: 8.4e9, peak: 1228.8 * GIB },
    Problem { name: "C", cells: 512.0 * 512.0 * 4096.0, particles: 2.1e9, peak: 306.0 * GIB },
    Problem { name: "D", cells: 864.0 * 864.0 * 7200.0, particles: 10.7e9, peak: 960.0 * GIB },
    Problem { name: "E", cells: 384.0 * 384.0 * 3104.0, particles: 3.7e9, peak: 525.0 * GIB },
    Problem { name: "F", cells: 512.0 * 512.0 * 4096.0, particles: 8.6e9, peak: 1228.8 * GIB },
];

/// The problem that fits.
pub(super) const SMALL: Problem =
    Problem { name: "G", cells: 256.0 * 256.0 * 2048.0, particles: 134.2e6, peak: 19.2 * GIB };

/// Table 7.3, in seconds an iteration: pusher and gather, deposit, solver.
pub(super) const PHASES: [f64; 3] = [326.0, 132.0, 47.2];

/// What phases compute: nanoseconds for a particle, twice, and for a cell, on one socket.
pub(super) type Costs = [f64; 3];

/// Who decides.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Who {
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

/// What the cache of memory mode writes back in a second, by CachedArrays' Figures 5 and 6, which come to 6 to 12 GB/s: conflicts evict
/// lines in no order, faster than kernels' own stores and slower than copies.
const CACHE_WRITES: Bandwidth = Bandwidth(9e9);

/// Kernels take what they compute and what they move, which hide each other as on persistent memory. Loads and stores of
/// kernels reach what the machine's file says of them.
struct Both {
    /// Whether what is written to persistent memory are lines of the cache.
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
            if let Some(known) = known {
                (tier.read, tier.write) =
                    (known.read.unwrap_or(tier.read), known.write.unwrap_or(tier.write));
            }
            if self.cache && t.tier == machine.slowest() {
                tier.write = CACHE_WRITES;
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
    short: Vec<ObjectId>,
    /// The bytes of it that a pass uses, and where in it the next kernel begins.
    short_bytes: Bytes,
    next: usize,
    steps: u32,
}

/// Objects that particles and fields are cut into.
const TILES: u64 = 2048;
const LAYERS: u64 = 64;
/// Objects that what is short-lived is cut into: it is used in turns.
const PARTS: u64 = 64;

fn scaled(bytes: f64) -> Bytes {
    Bytes((bytes / 2.0 / SCALE) as u64)
}

impl World {
    fn new(problem: &Problem, who: Who, helpers: usize) -> Result<World, String> {
        let machine = machine(helpers, who == Who::Pic(System::AllFast));
        let page = |bytes: Bytes| bytes.round_up(Bytes(4096)).unwrap_or(bytes);
        let tile = page(Bytes(scaled(problem.particles()).0 / TILES));
        let layer = page(Bytes(scaled(problem.fields()).0 / LAYERS));
        let short = scaled(problem.peak * SHORT);
        let needs = Needs {
            particles: Bytes(tile.0 * TILES),
            fields: Bytes(layer.0 * LAYERS),
            temporaries: short,
            metadata: scaled(problem.peak * METADATA),
            tile,
            layer,
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
            short: Vec::new(),
            // Both passes use the same.
            short_bytes: Bytes((short.0 as f64 * REUSE / 2.0) as u64),
            next: 0,
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
            for _ in 0..PARTS {
                let object = world.create(Kind::Fields, page(Bytes(short.0 / PARTS)))?;
                world.short.push(object);
            }
        }
        Ok(world)
    }

    fn create(&mut self, kind: Kind, size: Bytes) -> Result<ObjectId, String> {
        let object = self.manager.create(None, size).map_err(|error| error.to_string())?;
        let placed = self.placement.place(&mut self.manager, object, kind);
        placed.map_err(|error| error.to_string())?;
        self.kernel(&[(object, Access::Write, size)], 0.0, Bytes::ZERO)?;
        self.placement.passed(&mut self.manager, object).map_err(|error| error.to_string())?;
        Ok(object)
    }

    /// One kernel that computes for so many nanoseconds, and uses so much of what is short-lived.
    fn kernel(
        &mut self,
        uses: &[(ObjectId, Access, Bytes)],
        compute: f64,
        short: Bytes,
    ) -> Result<(), String> {
        let step = Step(self.steps);
        self.steps = (self.steps + 1) % Step::LOAD.0;
        let operand = |(object, access, bytes): &(ObjectId, Access, Bytes)| Operand {
            object: *object,
            access: *access,
            bytes: *bytes,
        };
        let mut operands: Vec<Operand> = uses.iter().map(operand).collect();
        operands.extend(self.short_lived(short));
        let text = |error: tiercel_core::Error| error.to_string();
        self.placement.before(&mut self.manager, step, &operands).map_err(text)?;
        self.manager.begin(step, &operands).map_err(text)?;
        let mut all = Vec::new();
        tiercel_sim::world::traffic_of(&self.manager, &operands, &mut all);
        let mut traffic = self.placement.traffic(&mut self.manager, &operands).unwrap_or(all);
        if self.short.is_empty() {
            // In its own zone of fast memory.
            traffic.push(Traffic { tier: TierId(0), read: short, write: short });
        }
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
            detached: false,
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
            let short = Bytes((self.short_bytes.0 as f64 * part) as u64);
            self.kernel(&uses, compute * part, short)?;
            for object in group {
                self.placement.passed(&mut self.manager, *object).map_err(text)?;
            }
        }
        Ok(())
    }

    /// What a kernel uses of the short-lived, each part written and read: those that were given back longest ago.
    fn short_lived(&mut self, bytes: Bytes) -> Vec<Operand> {
        let (mut left, mut operands) = (bytes.0, Vec::new());
        while left > 0 && operands.len() < self.short.len() {
            let object = self.short[self.next % self.short.len()];
            let size = self.manager.size(object).map_or(0, |size| size.0);
            let part = left.min(size);
            operands.push(Operand { object, access: Access::ReadWrite, bytes: Bytes(part) });
            (left, self.next) = (left - part, self.next + 1);
        }
        operands
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
            self.kernel(&[(object, Access::ReadWrite, layer)], solve / LAYERS as f64, Bytes::ZERO)?;
        }
        ends[2] = self.manager.now().0 as f64;
        self.steps = 0;
        self.placement.iteration_ended(&mut self.manager, Bytes::ZERO).map_err(|error| error.to_string())?;
        Ok(ends)
    }
}

/// The seconds of each phase of an iteration, once it is what it stays; of the paper's ten the first ones are left out, where
/// placement is still settling.
pub(super) fn phases(problem: &Problem, who: Who, helpers: usize, costs: Costs) -> Result<[f64; 3], String> {
    let mut world = World::new(problem, who, helpers)?;
    let (mut before, mut ends) = (0.0, [0.0; 3]);
    for _ in 0..4 {
        before = world.manager.now().0 as f64;
        ends = world.iterate(problem, costs, helpers)?;
    }
    let seconds = |nanos: f64| nanos * SCALE / 1e9;
    Ok([seconds(ends[0] - before), seconds(ends[1] - ends[0]), seconds(ends[2] - ends[1])])
}

pub(super) fn iteration(problem: &Problem, who: Who, helpers: usize, costs: Costs) -> Result<f64, String> {
    phases(problem, who, helpers, costs).map(|all| all.iter().sum())
}

/// What phases compute, so that those of problem B take in memory mode what Table 7.3 says.
pub(super) fn fit() -> Result<Costs, String> {
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
pub(super) fn chosen(problem: &Problem, costs: Costs) -> Result<usize, String> {
    let machine = machine(1, false);
    let (fast, slow) = (TierId(0), TierId(1));
    let link = |from, to| machine.link(from, to).ok_or_else(|| "no link between the tiers".to_string());
    let hardware = Hardware {
        inward: link(slow, fast)?,
        outward: link(fast, slow)?,
        threads: (machine.compute.threads / RANKS) as usize,
        ranks: RANKS as usize,
    };
    let scale = |bytes: f64| bytes / 2.0 / SCALE;
    let (particles, fields) = (scale(problem.particles()), scale(problem.fields()));
    // Fields that fast memory has no room for are read where they are.
    let room = machine.tier(fast).capacity.0 as f64 - scale(problem.peak * (SHORT + METADATA));
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

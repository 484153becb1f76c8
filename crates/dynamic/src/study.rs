//! A workload on the ground with every rival: what the figures of `docs/dynamic.md` come from.
//!
//! Everything here is simulated, on generated samples; only the times of predictors are read off a clock, by whoever calls.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tiercel_core::{Bytes, Machine};
use tiercel_profile::Model;
use tiercel_workload::{Kernel, Lifetimes, Trace};

use crate::blocks::{self, Blocks, Cut, Representation};
use crate::ground::{
    Blocked, Demand, Dtr, Ground, LayerByLayer, Outcome, Plan, Planned, Rival, Short, ZeroOffload,
};
use crate::guess::Guess;
use crate::learned::{FEATURES, Known, by_ids};
use crate::operator::GlobalIds;
use crate::plans::{self, Care, Costs, Unused};
use crate::structure::Structure;
use crate::tape::Taped;
use crate::trie::{Limits, NodeId, Symbol, Trie};
use crate::workloads::samples::Vectors;
use crate::workloads::{Sample, Scale, Source, Workload};

/// A path of a workload in one bucket of sizes.
pub struct Course {
    /// The path, as a position in the workload's ways.
    pub way: usize,
    /// The bucket.
    pub bucket: u32,
    /// What it does, at the bucket's largest size.
    pub taped: Taped,
    /// Its execution blocks.
    pub blocks: Blocks,
    trace: Arc<Trace>,
}

/// A workload with all that is known of its paths.
pub struct Study {
    /// The workload.
    pub workload: &'static Workload,
    /// The card's memory.
    pub limit: Bytes,
    /// The most bytes that its largest path has alive at once.
    pub peak: Bytes,
    /// The paths.
    pub courses: Vec<Course>,
    /// The structure, merged from all of them.
    pub structure: Structure,
    machine: Machine,
    model: Model,
    plans: HashMap<usize, Arc<Plan>>,
    costs: Option<Costs>,
    /// What becomes of unused parameters, once it has been decided.
    unused: Option<Unused>,
    traces: HashMap<(usize, u64), Arc<Trace>>,
    care: Care,
}

/// What several steps took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// The steps.
    pub steps: usize,
    /// Their mean time, in seconds.
    pub seconds: f64,
    /// Of it, kernels once, kernels again, and waiting.
    pub compute: f64,
    /// Kernels that ran again.
    pub again: f64,
    /// Waiting for copies.
    pub stall: f64,
    /// Steps whose path was not the one that was believed at first.
    pub misses: usize,
}

impl Sum {
    fn add(&mut self, outcome: Outcome, missed: bool) {
        self.steps += 1;
        self.seconds += outcome.time.seconds();
        self.compute += outcome.compute.seconds();
        self.again += outcome.again.seconds();
        self.stall += outcome.stall.seconds();
        self.misses += usize::from(missed);
    }

    fn mean(mut self) -> Sum {
        let n = self.steps.max(1) as f64;
        for sum in [&mut self.seconds, &mut self.compute, &mut self.again, &mut self.stall] {
            *sum /= n;
        }
        self
    }
}

/// An operation as the trie knows it.
fn symbol(kernel: &Kernel) -> Symbol {
    let mut hasher = DefaultHasher::new();
    kernel.op.hash(&mut hasher);
    kernel.reads.iter().for_each(|used| used.tensor.0.hash(&mut hasher));
    u64::MAX.hash(&mut hasher);
    kernel.writes.iter().for_each(|used| used.tensor.0.hash(&mut hasher));
    hasher.finish() & (u64::MAX >> 1)
}

impl Study {
    /// A workload on a machine with a share of what its largest path wants.
    pub fn new(
        workload: &'static Workload,
        machine: &Machine,
        model: &Model,
        share: f64,
        care: Care,
    ) -> Study {
        let mut structure = Structure::default();
        let mut courses = Vec::new();
        let buckets = if workload.varies { 3 } else { 1 };
        for (way, known) in workload.ways().iter().enumerate() {
            for bucket in 0..buckets {
                let taped = workload.run(&known.path, plans::largest(bucket, workload.rows), Scale::Full);
                structure.add(&taped.events).expect("a workload says where it branches");
                let trace = Arc::new(taped.trace.clone());
                courses.push(Course { way, bucket, taped, blocks: Vec::new(), trace });
            }
        }
        let peak = courses.iter().map(|c| Lifetimes::new(&c.trace).peak().1).max().unwrap_or_default();
        let limit = Bytes((peak.0 as f64 * share) as u64);
        for course in &mut courses {
            // A buffer is half of the memory.
            let buffer = Bytes(limit.0 / 2);
            course.blocks = blocks::cut(&course.trace, machine, model, buffer, Cut::Sentinel);
        }
        Study {
            workload,
            limit,
            peak,
            courses,
            structure,
            machine: machine.clone(),
            model: model.clone(),
            plans: HashMap::new(),
            costs: None,
            unused: None,
            traces: HashMap::new(),
            care,
        }
    }

    /// The course of a sample.
    pub fn course(&self, sample: &Sample) -> usize {
        self.at(sample.way, self.bucket(sample))
    }

    fn at(&self, way: usize, bucket: u32) -> usize {
        let same = |course: &Course| course.way == way && course.bucket == bucket;
        self.courses.iter().position(same).expect("every bucket has its courses")
    }

    /// The bucket of a sample's sizes, which are known before it runs.
    pub fn bucket(&self, sample: &Sample) -> u32 {
        plans::bucket(sample.rows, self.workload.rows)
    }

    /// What the learned model is told of the network.
    pub fn known(&self, how: Representation, ids: &mut GlobalIds) -> Known {
        let record =
            |course: &Course| blocks::record(&course.taped.operators, &course.blocks, (how, &mut *ids));
        let mut record = record;
        let records: Vec<Vec<f32>> = self.courses.iter().map(&mut record).collect();
        let buckets: Vec<u32> = self.courses.iter().map(|course| course.bucket).collect();
        match how {
            Representation::Idioms => Known::new(&self.structure.matrix(), records, buckets),
            Representation::GlobalIds => {
                let mut counts = HashMap::new();
                for operator in self.courses.iter().flat_map(|course| &course.taped.operators) {
                    *counts.entry(ids.of(operator)).or_insert(0) += 1;
                }
                Known::new(&by_ids(&counts), records, buckets)
            }
        }
    }

    /// What a sample really does.
    fn trace(&mut self, sample: &Sample) -> Arc<Trace> {
        let workload = self.workload;
        let make = || {
            let path = &workload.ways()[sample.way].path;
            Arc::new(workload.run(path, sample.rows, Scale::Full).trace)
        };
        Arc::clone(self.traces.entry((sample.way, sample.rows)).or_insert_with(make))
    }

    /// The plan of a course; made when it is first wanted.
    pub fn plan(&mut self, course: usize) -> Result<Arc<Plan>, Short> {
        if let Some(plan) = self.plans.get(&course) {
            return Ok(Arc::clone(plan));
        }
        let trace = Arc::clone(&self.courses[course].trace);
        let unused = self.unused.unwrap_or(Unused::Leave);
        let made = plans::plan(trace, &self.machine, &self.model, self.limit, (self.care, unused));
        let plan = made.map_err(|why| Short { kernel: why, lacks: Bytes::ZERO })?;
        Ok(Arc::clone(self.plans.entry(course).or_insert(Arc::new(plan))))
    }

    /// Decides what becomes of unused parameters: what takes less over some steps, by simulation.
    fn decide(&mut self) {
        if self.unused.is_some() {
            return;
        }
        let samples = Source::new(self.workload, 999).take(WARM + 12);
        let mut best: Option<(f64, Unused, HashMap<usize, Arc<Plan>>)> = None;
        for unused in [Unused::Leave, Unused::Stay] {
            self.unused = Some(unused);
            self.plans.clear();
            if let Ok(sum) = self.oracle(&samples)
                && best.as_ref().is_none_or(|(seconds, ..)| sum.seconds < *seconds)
            {
                best = Some((sum.seconds, unused, std::mem::take(&mut self.plans)));
            }
        }
        self.unused = Some(Unused::Leave);
        if let Some((_, unused, plans)) = best {
            (self.unused, self.plans) = (Some(unused), plans);
        }
    }

    /// The courses of one bucket, by way, with the costs of each plan on each path.
    pub fn costs(&mut self) -> Result<&Costs, Short> {
        if self.costs.is_none() {
            self.decide();
            let of: Vec<usize> = (0..self.courses.len()).filter(|at| self.courses[*at].bucket == 0).collect();
            let plans: Result<Vec<_>, _> = of.into_iter().map(|at| self.plan(at)).collect();
            self.costs = Some(Costs::of(&plans?, &self.machine, &self.model, self.limit)?);
        }
        Ok(self.costs.as_ref().expect("just made"))
    }

    fn ground(&self) -> Ground {
        Ground::new(&self.machine, &self.model, self.limit)
    }

    /// Plays samples under a rival that knows nothing of paths. The first steps, which bring the parameters, do not count.
    fn blind(&mut self, samples: &[Sample], rival: &mut dyn Rival) -> Result<Sum, Short> {
        let mut ground = self.ground();
        let mut sum = Sum::default();
        for (at, sample) in samples.iter().enumerate() {
            let trace = self.trace(sample);
            let outcome = ground.step(&trace, rival)?;
            if at >= WARM {
                sum.add(outcome, false);
            }
        }
        Ok(sum.mean())
    }

    /// On demand.
    pub fn on_demand(&mut self, samples: &[Sample]) -> Result<Sum, Short> {
        self.blind(samples, &mut Demand { paged: false })
    }

    /// Unified memory.
    pub fn unified(&mut self, samples: &[Sample]) -> Result<Sum, Short> {
        self.blind(samples, &mut Demand { paged: true })
    }

    /// DTR.
    pub fn dtr(&mut self, samples: &[Sample]) -> Result<Sum, Short> {
        self.blind(samples, &mut Dtr)
    }

    /// L2L.
    pub fn layers(&mut self, samples: &[Sample]) -> Result<Sum, Short> {
        self.blind(samples, &mut LayerByLayer::default())
    }

    /// ZeRO-Offload.
    pub fn zero(&mut self, samples: &[Sample]) -> Result<Sum, Short> {
        self.blind(samples, &mut ZeroOffload)
    }

    /// Everything fits: the kernels alone.
    pub fn roomy(&mut self, samples: &[Sample]) -> Result<Sum, Short> {
        let limit = std::mem::replace(&mut self.limit, Bytes(self.peak.0 * 2));
        let sum = self.on_demand(samples);
        self.limit = limit;
        sum
    }

    /// Whoever knows the path: the joint plan of each sample's own course.
    pub fn oracle(&mut self, samples: &[Sample]) -> Result<Sum, Short> {
        self.decide();
        let mut ground = self.ground();
        let mut sum = Sum::default();
        for (at, sample) in samples.iter().enumerate() {
            let trace = self.trace(sample);
            let plan = self.plan(self.course(sample))?;
            let outcome = ground.step(&trace, &mut Planned::new(Some(plan), |_, _| None))?;
            if at >= WARM {
                sum.add(outcome, false);
            }
        }
        Ok(sum.mean())
    }

    /// DyNN-Offload: `predict` says which course a sample will take; blocks are cut as `cut` says.
    pub fn dynn_offload(
        &mut self,
        samples: &[Sample],
        cut: Cut,
        predict: &mut dyn FnMut(&Sample) -> usize,
    ) -> Result<Sum, Short> {
        let mut ground = self.ground();
        let mut sum = Sum::default();
        for (at, sample) in samples.iter().enumerate() {
            let trace = self.trace(sample);
            let said = &self.courses[predict(sample)];
            let blocks = match cut {
                Cut::Sentinel => said.blocks.clone(),
                _ => blocks::cut(&said.trace, &self.machine, &self.model, Bytes(self.limit.0 / 2), cut),
            };
            let mut rival = Blocked::new(Arc::clone(&said.trace), blocks);
            let outcome = ground.step(&trace, &mut rival)?;
            if at >= WARM {
                sum.add(outcome, !rival.agrees());
            }
        }
        Ok(sum.mean())
    }

    /// Ours: what has been seen decides what is likely; the plan that is expected to take least is begun with, and where the
    /// sample does something else the most probable plan of those that did the same so far goes on. A path that has no plan yet
    /// is served on demand, and has one the next time.
    pub fn ours(&mut self, samples: &[Sample], seen: &mut Seen) -> Result<Sum, Short> {
        self.costs()?;
        let mut ground = self.ground();
        let mut sum = Sum::default();
        for (at, sample) in samples.iter().enumerate() {
            let trace = self.trace(sample);
            let bucket = self.bucket(sample);
            let likely: Vec<(usize, f32)> = seen.likely(self, sample);
            for (course, _) in &likely {
                self.plan(*course)?;
            }
            let ways: Vec<(usize, f32)> =
                likely.iter().map(|(course, p)| (self.courses[*course].way, *p)).collect();
            let way = self.costs.as_ref().and_then(|costs| costs.choose(&ways));
            let begun =
                way.and_then(|way| likely.iter().find(|(c, _)| self.courses[*c].way == way).map(|(c, _)| *c));
            let plan = begun.map(|course| Arc::clone(&self.plans[&course]));
            let others: Vec<(&Plan, f32)> = likely
                .iter()
                .filter(|(c, _)| Some(*c) != begun)
                .map(|(c, p)| (&*self.plans[c], *p))
                .collect();
            let fetches = plan.as_ref().map(|plan| plans::hedge(plan, &others)).unwrap_or_default();
            let plans = &self.plans;
            let courses: Vec<usize> =
                (0..self.workload.ways().len()).map(|way| self.at(way, bucket)).collect();
            let mut fed = 0;
            let mut rival = Planned::new(plan, |trace: &Trace, step| {
                while fed <= step {
                    seen.trie.step(symbol(&trace.kernels[fed]));
                    fed += 1;
                }
                let crate::trie::Here::Known(node) = seen.trie.here() else { return None };
                let leaf = seen.guess.likely(&seen.trie, node, &seen.features, 1).first()?.0;
                plans.get(&courses[*seen.ways.get(&leaf)?]).cloned()
            })
            .hedged(fetches);
            let outcome = ground.step(&trace, &mut rival)?;
            let missed = begun != Some(self.course(sample));
            drop(rival);
            trace.kernels[fed..].iter().for_each(|kernel| {
                seen.trie.step(symbol(kernel));
            });
            seen.ended(sample.way);
            if at >= WARM {
                sum.add(outcome, missed);
            }
        }
        Ok(sum.mean())
    }
}

/// Steps that do not count.
const WARM: usize = 4;
/// Paths that are thought of.
const THOUGHT: usize = 4;

/// What ours has seen of a program: the trie, the predictor, and which leaf is which way.
/// Sizes are no part of it: sequences are the same in every bucket.
pub struct Seen {
    /// The recorded sequences.
    pub trie: Trie,
    /// The predictor.
    pub guess: Guess,
    ways: HashMap<NodeId, usize>,
    vectors: Vectors,
    features: Vec<f32>,
    symbols: HashMap<usize, Vec<Symbol>>,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen::new(3)
    }
}

impl Seen {
    /// Nothing seen yet.
    pub fn new(seed: u64) -> Seen {
        Seen {
            trie: Trie::new(Limits::default()),
            guess: Guess::new(FEATURES, seed),
            ways: HashMap::new(),
            vectors: Vectors::new(),
            features: Vec::new(),
            symbols: HashMap::new(),
        }
    }

    fn read(&mut self, sample: &Sample) {
        self.features.clear();
        self.vectors.embed(sample, &mut self.features);
        self.features.resize(FEATURES, 0.0);
    }

    /// Inference and mapping in one: the courses that a sample may take, by probability.
    pub fn likely(&mut self, study: &Study, sample: &Sample) -> Vec<(usize, f32)> {
        self.read(sample);
        let bucket = study.bucket(sample);
        let leaves = self.guess.likely(&self.trie, self.trie.root(), &self.features, THOUGHT);
        leaves
            .into_iter()
            .filter_map(|(leaf, p)| Some((study.at(*self.ways.get(&leaf)?, bucket), p)))
            .collect()
    }

    /// The iteration under way has ended, and went this way.
    fn ended(&mut self, way: usize) {
        let (leaf, _, gone) = self.trie.end();
        for leaf in &gone {
            self.ways.remove(leaf);
        }
        if let Some(leaf) = leaf {
            self.ways.insert(leaf, way);
            self.guess.learn(&self.trie, &self.features, leaf, &gone);
        }
    }

    /// Sees a sample without playing it: what training is.
    pub fn see(&mut self, study: &Study, sample: &Sample) {
        self.read(sample);
        let course = study.course(sample);
        let kernels = || study.courses[course].trace.kernels.iter().map(symbol).collect();
        let symbols = self.symbols.entry(course).or_insert_with(kernels).clone();
        symbols.into_iter().for_each(|symbol| {
            self.trie.step(symbol);
        });
        self.ended(sample.way);
    }
}

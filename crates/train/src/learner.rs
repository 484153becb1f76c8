//! Stands between the stage and the kernels: fills what no kernel makes, and looks at what kernels have made.
//!
//! Contents come from the network's own description, from a checkpoint or from data. After a kernel that computes a
//! loss the loss is read where it lies, and the gradients that updates will use are searched for numbers that are
//! none, and so are weights whose update has not looked itself; that costs one look at small tensors and moves nothing.
//! When an iteration is played again to find where such a number came from, every operand of every kernel is searched.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tiercel_core::Step;
use tiercel_workload::graph::{Op, ValueId};
use tiercel_workload::trace::{Phase, Role, Tensor};
use tiercel_workload::{Program, TensorId};

use super::checkpoint::Checkpoint;
use super::data::{Data, Part, Request, Split};
use super::digest::Digest;
use super::norm;
use super::safetensors::Writer;
use super::task::Task;
use tiercel_kernels::finite::first_bad;
use tiercel_kernels::narrow;
use tiercel_run::stage::{Detached, Failure, Kernels, Turn, View, recycle};
use tiercel_sim::world::Work;

/// Which pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Forward, backward and update.
    Training,
    /// The same, with every operand of every kernel searched for numbers that are none.
    Searching,
    /// Forward only, on the samples to be judged by; so many of the batch count.
    Evaluation { counted: u64 },
}

/// What is to be looked at after a kernel, as the position of an operand.
#[derive(Clone, Copy, Debug)]
enum Watch {
    /// A loss.
    Loss(usize),
    /// A gradient that an update will use, or a weight that one has changed.
    Finite(usize, ValueId),
    /// Probabilities and the labels that they should favour.
    Guess { probabilities: usize, labels: usize },
}

/// A number that is none, and where.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub step: Step,
    pub tensor: String,
    pub element: u64,
    pub value: f32,
    /// Whether the kernel was given it rather than made it.
    pub given: bool,
}

/// How many guesses were right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Guesses {
    pub right: u64,
    pub all: u64,
}

/// Where saved tensors go.
pub(crate) enum Sink {
    /// Nowhere.
    None,
    /// To a checkpoint.
    File(Writer),
    /// Into a checksum.
    Digest(Digest),
}

/// A program, the kernels that run it, and what to look at.
struct Side<K> {
    program: Arc<Program>,
    kernels: K,
    watches: Vec<Vec<Watch>>,
    /// Kept between kernels so that none of them allocates.
    views: Vec<View<'static>>,
}

/// Kernels that learn: they are fed, and watched.
pub(crate) struct Learner<K> {
    training: Side<K>,
    evaluation: Option<Side<K>>,
    values: HashMap<String, ValueId>,
    parts: HashMap<String, Part>,
    time_first: bool,
    batch: u64,
    data: Box<dyn Data>,
    mode: Mode,
    seed: u64,
    position: u64,
    pub checkpoint: Option<Checkpoint>,
    pub sink: Sink,
    pub losses: Vec<f32>,
    pub guesses: Guesses,
    pub fault: Option<Fault>,
}

impl<K: Kernels> Learner<K> {
    pub fn new<E: Into<String>>(
        task: &Task,
        data: Box<dyn Data>,
        mut kernels: impl FnMut(&Program) -> Result<K, E>,
    ) -> Result<Learner<K>, String> {
        let mut side = |program: &Arc<Program>| {
            let watches = watches(program);
            Ok::<_, String>(Side {
                program: program.clone(),
                kernels: kernels(program).map_err(Into::into)?,
                watches,
                views: Vec::new(),
            })
        };
        let training = side(&task.training)?;
        let evaluation = task.evaluation.as_ref().map(side).transpose()?;
        let graph = &task.training.graph;
        let values = (0..).map(ValueId).zip(&graph.values).map(|(id, v)| (v.name.clone(), id)).collect();
        Ok(Learner {
            training,
            evaluation,
            values,
            parts: task.parts(),
            time_first: task.time_first(),
            batch: task.batch,
            data,
            mode: Mode::Training,
            seed: 0,
            position: 0,
            checkpoint: None,
            sink: Sink::None,
            losses: Vec::new(),
            guesses: Guesses::default(),
            fault: None,
        })
    }

    /// How many samples there are of a split.
    pub fn samples(&self, split: Split) -> Option<u64> {
        self.data.samples(split)
    }

    /// What the learner learns from, in a few words.
    pub fn about_data(&self) -> String {
        self.data.about()
    }

    /// Prepares for a pass.
    pub fn begin(&mut self, mode: Mode, position: u64, turn: Turn) {
        self.mode = mode;
        self.seed = turn.seed;
        self.position = position;
        self.losses.clear();
        self.fault = None;
        match (mode, &mut self.evaluation) {
            (Mode::Evaluation { .. }, Some(side)) => side.kernels.turn(turn),
            _ => self.training.kernels.turn(turn),
        }
    }

    /// The first number that is none among these operands of a node.
    fn search(&self, side: &Side<K>, step: Step, views: &[View<'_>], given: bool) -> Option<Fault> {
        let node = side.program.node(step);
        for id in if given { &node.inputs } else { &node.outputs } {
            let operand = operand(&side.program, step, *id)?;
            if let Some(fault) = fault(&side.program, step, *id, bytes(&views[operand]), given) {
                return Some(fault);
            }
        }
        None
    }
}

impl<K: Kernels> Kernels for Learner<K> {
    fn load(&mut self, tensor: &Tensor, bytes: &mut [u8]) -> Result<(), Failure> {
        let (split, kernels) = match (self.mode, &mut self.evaluation) {
            (Mode::Evaluation { .. }, Some(side)) => (Split::Test, &mut side.kernels),
            _ => (Split::Train, &mut self.training.kernels),
        };
        if tensor.persistent {
            let Whole { name, skipped, .. } = Whole::of(&self.training.program, &self.values, tensor);
            let loaded = self.checkpoint.as_mut().map(|saved| saved.load(name, skipped, bytes));
            return match loaded.transpose()? {
                Some(true) => Ok(()),
                _ => kernels.load(tensor, bytes),
            };
        }
        let id = self.values.get(&tensor.name).ok_or_else(|| format!("no value `{}`", tensor.name))?;
        let value = self.training.program.graph.value(*id);
        let request = Request {
            value,
            part: self.parts.get(&tensor.name).copied().unwrap_or(Part::Other),
            batch: self.batch,
            time_first: self.time_first,
            split,
            position: self.position,
            seed: self.seed,
        };
        if !self.data.fill(&request, bytes)? {
            return kernels.load(tensor, bytes);
        }
        Ok(())
    }

    fn save(&mut self, tensor: &Tensor, bytes: &[u8]) -> Result<(), Failure> {
        let Whole { name, skipped, size } = Whole::of(&self.training.program, &self.values, tensor);
        match &mut self.sink {
            Sink::None => Ok(()),
            Sink::Digest(digest) => {
                if skipped == 0 {
                    digest.add(name.as_bytes());
                }
                digest.more(bytes);
                if skipped + bytes.len() as u64 == size {
                    digest.end();
                }
                Ok(())
            }
            Sink::File(writer) => Ok(writer.add(name, bytes)?),
        }
    }

    /// Whether weights that are updated beside other kernels are finite shows in the next loss; the gradients have been
    /// searched.
    fn detach(&mut self, work: &Work<'_>) -> Option<Detached> {
        match self.mode {
            Mode::Training => self.training.kernels.detach(work),
            Mode::Searching | Mode::Evaluation { .. } => None,
        }
    }

    fn run(&mut self, work: &Work<'_>, views: &mut [View<'_>]) -> Result<(), Failure> {
        if self.mode == Mode::Searching {
            self.fault = self.search(&self.training, work.step, views, true);
            if self.fault.is_some() {
                return Err(FAULT.into());
            }
        }
        let counted = match self.mode {
            Mode::Evaluation { counted } => Some(counted),
            _ => None,
        };
        let side = match (counted, &mut self.evaluation) {
            (Some(_), Some(side)) => side,
            _ => &mut self.training,
        };
        let node = side.program.node(work.step);
        match (counted, &node.op) {
            (Some(_), Op::BatchNorm { epsilon, .. }) => {
                norm::infer(&side.program, work.step, *epsilon, views)?
            }
            _ => {
                // Kernels may take the slices out of their views, and these are to be looked at afterwards.
                let mut lent: Vec<View<'_>> = recycle(std::mem::take(&mut side.views));
                lent.extend(views.iter_mut().map(|view| match view {
                    View::Read(bytes) => View::Read(bytes),
                    View::Write(bytes) => View::Write(bytes),
                }));
                let done = side.kernels.run(work, &mut lent);
                side.views = recycle(lent);
                done?;
            }
        }
        if self.mode == Mode::Searching {
            self.fault = self.search(&self.training, work.step, views, false);
            return if self.fault.is_some() { Err(FAULT.into()) } else { Ok(()) };
        }
        for watch in &side.watches[work.step.0 as usize] {
            match *watch {
                Watch::Loss(at) => {
                    let loss = loss(bytes(&views[at]));
                    self.losses.push(loss);
                    if !loss.is_finite() && counted.is_none() {
                        let tensor = side.program.graph.value(node.outputs[0]).name.clone();
                        let step = work.step;
                        self.fault = Some(Fault { step, tensor, element: 0, value: loss, given: false });
                        return Err(FAULT.into());
                    }
                }
                Watch::Finite(at, id) if counted.is_none() && !side.kernels.finite() => {
                    self.fault = fault(&side.program, work.step, id, bytes(&views[at]), false);
                    if self.fault.is_some() {
                        return Err(FAULT.into());
                    }
                }
                Watch::Guess { probabilities, labels } => {
                    let Some(counted) = counted else { continue };
                    let [guessed, labels] = [probabilities, labels].map(|at| bytes(&views[at]));
                    judge(&side.program, work.step, guessed, labels, counted, self.batch, &mut self.guesses);
                }
                Watch::Finite(..) => {}
            }
        }
        Ok(())
    }
}

/// What a tensor is a part of, as checkpoints know it: most are all of it.
struct Whole<'a> {
    name: &'a str,
    /// Bytes that come before the part.
    skipped: u64,
    /// Bytes in all.
    size: u64,
}

impl<'a> Whole<'a> {
    fn of(program: &'a Program, values: &HashMap<String, ValueId>, tensor: &'a Tensor) -> Whole<'a> {
        let Some(id) = values.get(&tensor.name) else {
            return Whole { name: &tensor.name, skipped: 0, size: tensor.bytes.0 };
        };
        let (whole, start) = program.graph.whole(*id);
        let value = program.graph.value(whole);
        let size = value.shape.bytes(value.dtype).0;
        Whole { name: &value.name, skipped: start * value.dtype.size(), size }
    }
}

/// What a kernel that met a number that is none returns; the fault has the rest.
const FAULT: &str = "a number that is none";

/// The bytes of an operand.
pub(crate) fn bytes<'v>(view: &'v View<'_>) -> &'v [u8] {
    match view {
        View::Read(bytes) => bytes,
        View::Write(bytes) => bytes,
    }
}

/// A loss is always stored in full.
fn loss(bytes: &[u8]) -> f32 {
    bytes.first_chunk().map_or(f32::NAN, |four| f32::from_le_bytes(*four))
}

/// Whether a value has a number that is none. Of a tensor that it is only a stretch of, the rest may be yet to be made.
fn fault(program: &Program, step: Step, id: ValueId, bytes: &[u8], given: bool) -> Option<Fault> {
    let value = program.graph.value(id);
    let (size, all) = (value.dtype.size(), value.shape.elements());
    let (row, pitch) = value.pitch.map_or((all, all), |pitch| (value.shape.last(), pitch));
    let (row, pitch) = (row.max(1), pitch.max(1));
    (0..all / row).find_map(|at| {
        let bytes = bytes.get(((value.start + at * pitch) * size) as usize..)?;
        let (element, found) = first_bad(value.dtype, bytes.get(..(row * size) as usize)?)?;
        Some(Fault { step, tensor: value.name.clone(), element: at * row + element, value: found, given })
    })
}

/// Which operand of a kernel holds the bytes of a value: operands are the kernel's tensors, each once, reads first.
pub(crate) fn operand(program: &Program, step: Step, id: ValueId) -> Option<usize> {
    let wanted = program.tensor(id)?;
    let kernel = program.trace.kernel(step);
    let mut seen: Vec<TensorId> = Vec::new();
    for u in kernel.reads.iter().chain(&kernel.writes) {
        if u.tensor == wanted {
            return Some(seen.len());
        }
        if !seen.contains(&u.tensor) {
            seen.push(u.tensor);
        }
    }
    None
}

/// Works out what to look at after every kernel.
fn watches(program: &Program) -> Vec<Vec<Watch>> {
    let graph = &program.graph;
    // What updates work with: found while nothing has been updated yet, an iteration can be played again.
    let mut used: BTreeSet<TensorId> = BTreeSet::new();
    for node in &graph.nodes {
        let gradient = match node.op {
            Op::Update(_) => node.inputs.get(1),
            Op::UpdateRows { .. } => node.inputs.get(2),
            _ => None,
        };
        used.extend(gradient.and_then(|id| program.tensor(*id)));
    }
    let steps = graph.nodes.iter().zip((0..).map(Step));
    steps
        .map(|(node, step)| {
            let mut watches = Vec::new();
            let at = |id: ValueId| operand(program, step, id);
            for id in &node.outputs {
                let (value, Some(at)) = (graph.value(*id), at(*id)) else { continue };
                let update = node.op.optimizer().is_some() && value.role == Role::Weight;
                let gradient =
                    node.phase == Phase::Backward && program.tensor(*id).is_some_and(|t| used.contains(&t));
                match node.op {
                    // Of a loss that is computed in parts only the mean of all is one.
                    Op::CrossEntropy if value.view_of.is_some() => {}
                    Op::CrossEntropy | Op::BinaryCrossEntropy | Op::Mean if *id == node.outputs[0] => {
                        watches.push(Watch::Loss(at));
                    }
                    _ if update || gradient => watches.push(Watch::Finite(at, *id)),
                    _ => {}
                }
            }
            if let (Op::CrossEntropy, [_, labels, ..], [_, probabilities, ..]) =
                (&node.op, &node.inputs[..], &node.outputs[..])
                && let (Some(probabilities), Some(labels)) = (at(*probabilities), at(*labels))
            {
                watches.push(Watch::Guess { probabilities, labels });
            }
            watches
        })
        .collect()
}

/// Counts the rows of a cross-entropy's probabilities whose largest one is that of the label.
fn judge(
    program: &Program,
    step: Step,
    probabilities: &[u8],
    labels: &[u8],
    counted: u64,
    batch: u64,
    guesses: &mut Guesses,
) {
    let node = program.node(step);
    let (logits, label) = (program.graph.value(node.inputs[0]), program.graph.value(node.inputs[1]));
    let (classes, size) = (logits.shape.last() as usize, logits.dtype.size() as usize);
    // Several labels of a sample lie together, so the samples that count are the first rows.
    let rows = label.shape.elements() / batch.max(1) * counted;
    let number = |at: &[u8]| match *at {
        [a, b] => narrow::widen(u16::from_le_bytes([a, b])),
        [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
        _ => f32::NAN,
    };
    let rows = probabilities
        .chunks_exact(classes * size)
        .zip(labels.chunks_exact(label.dtype.size() as usize))
        .take(rows as usize);
    for (row, label) in rows {
        let mut best = (0, f32::NEG_INFINITY);
        for (class, at) in row.chunks_exact(size).enumerate() {
            let p = number(at);
            if p > best.1 {
                best = (class, p);
            }
        }
        let label = label.first_chunk().map_or(u32::MAX, |four| u32::from_le_bytes(*four));
        guesses.right += u64::from(best.0 as u32 == label);
        guesses.all += 1;
    }
}

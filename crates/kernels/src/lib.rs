//! Real arithmetic on memory that the manager owns: one family of kernels a file, forward, backward and update.
//!
//! A [`Library`] runs the kernels of one program. Each works on its operands wherever they lie; what it needs beside
//! them is an object of the trace like any other, which [`prepare`] adds, so no kernel allocates memory. Work is
//! shared out over a fixed number of threads, in such a way that no result depends on that number, on the policy, or
//! on time. Random numbers follow from a seed, the iteration and the position.
//!
//! All arithmetic is in f32. bf16 operands are widened into the workspace and results are rounded at the end.
//!
//! | file | what |
//! |---|---|
//! | `lib.rs` | the library of kernels for a program, and its dispatch |
//! | `args.rs` | what a kernel function gets |
//! | `error.rs` | why a kernel cannot run |
//! | `gemm.rs` | matrix products |
//! | `linear.rs` | linear layers; with `small_batch.rs`, `medium_batch.rs` (few samples) and `shallow.rs` (little depth) |
//! | `conv/` | convolutions, as products or straight from the image |
//! | `pooling/` | maxima and means of windows |
//! | `norm/` | batch norm and layer norm |
//! | `attention.rs` | attention; with the softmax of its scores in `scores.rs` |
//! | `recurrent.rs` | the LSTM cell |
//! | `embedding.rs` | rows of tables |
//! | `interaction/` | DLRM's interaction |
//! | `activation.rs` | element-wise functions |
//! | `elementwise.rs` | loops over elements |
//! | `arrange.rs` | kernels that only move numbers |
//! | `response.rs` | local response normalisation |
//! | `loss.rs` | losses |
//! | `update.rs` | optimizers |
//! | `fused.rs` | gradient and update of a linear layer's weights in one kernel |
//! | `samples.rs` | a batch whose samples lie in several places |
//! | `initial.rs` | first contents of what no kernel makes |
//! | `random.rs` | random numbers that follow from where they stand |
//! | `finite.rs` | looks for NaN |
//! | `math.rs` | functions of one number, for vectors |
//! | `narrow.rs` | bf16 |
//! | `pool.rs` | threads, with a fixed split of the work |
//! | `shares.rs` | the parts that threads write, which cannot overlap |
//! | `simd/` | what depends on the processor: the only intrinsics |

mod activation;
mod args;
mod arrange;
mod attention;
mod conv;
mod elementwise;
mod embedding;
mod error;
pub mod finite;
mod fused;
pub mod gemm;
mod initial;
mod interaction;
mod linear;
mod loss;
pub mod math;
mod medium_batch;
pub mod narrow;
mod norm;
pub mod pool;
mod pooling;
pub mod random;
mod recurrent;
mod response;
mod samples;
mod scores;
mod shallow;
pub mod shares;
pub mod simd;
mod small_batch;
mod update;

use std::sync::Arc;

use tiercel_core::Bytes;
use tiercel_workload::graph::{DType, Graph, Node, Op, Value};
use tiercel_workload::trace::Role;
use tiercel_workload::{Program, Tensor};

use args::{Args, Call, Moment, Places};
pub use error::KernelError;
use initial::Starts;
use pool::Pool;
use tiercel_run::stage::{Detached, Failure, Kernels, Turn, View, recycle};
use tiercel_sim::world::Work;

/// Gives tensors contents from outside: data, or weights of a checkpoint. It gets the value, the number of the
/// iteration and the bytes, and returns whether it has filled them; those that it has not get what their
/// [`Init`](tiercel_workload::graph::Init) says.
pub type Source = Box<dyn FnMut(&Value, u64, &mut [u8]) -> Result<bool, Failure> + Send>;

/// The scratch memory that a node needs with this many threads.
pub fn workspace(graph: &Graph, node: &Node, threads: usize) -> Bytes {
    let call = Call::new(graph, node);
    let numbers = scratch(&call, threads.max(1)) + widened(&call);
    Bytes(numbers as u64 * 4)
}

/// A program whose kernels have the workspace that this library needs with this many threads.
pub fn prepare(program: Program, threads: usize) -> Program {
    program.with_workspace(|graph, node| workspace(graph, node, threads))
}

/// Numbers that the f32 copies of a call's bf16 operands need.
fn widened(call: &Call) -> usize {
    let narrow = call.inputs.iter().chain(&call.outputs).filter(|form| form.dtype == DType::Bf16);
    narrow.map(|form| room(form.shape.elements() as usize)).sum()
}

/// A length that keeps the next slice aligned.
fn room(numbers: usize) -> usize {
    numbers.next_multiple_of(16)
}

/// One kernel of a program.
struct Entry {
    call: Call,
    /// The same with f32 in place of bf16, where there is any.
    wide: Option<Call>,
    /// For every operand and result, its position among the reads and writes of the trace's kernel.
    uses: Places,
    /// The position of the workspace there.
    workspace: Option<usize>,
    name: String,
}

/// Runs the kernels of one program.
pub struct Library {
    entries: Arc<[Entry]>,
    starts: Starts,
    values: Vec<Value>,
    pool: Pool,
    moment: Moment,
    source: Option<Source>,
    /// Whether what the last kernel changed is known to be finite.
    finite: bool,
    /// Kept between kernels so that none of them allocates.
    places: Places,
    views: Vec<View<'static>>,
}

impl Library {
    /// A library for a program that was [prepared](prepare) for as many threads, or a word on what is missing.
    pub fn new(program: &Program, threads: usize) -> Result<Library, KernelError> {
        simd::asked()?;
        let threads = threads.max(1);
        let pool = Pool::new(threads);
        if pool.threads() < threads {
            return Err(KernelError::Threads { wanted: threads, there: pool.threads() });
        }
        let entries = (0..program.graph.nodes.len()).map(|at| entry(program, at, threads));
        let most = program.trace.kernels.iter().map(|k| k.reads.len() + k.writes.len()).max().unwrap_or(0);
        let places = Places { inputs: Vec::with_capacity(most), outputs: Vec::with_capacity(most) };
        Ok(Library {
            entries: entries.collect::<Result<_, _>>()?,
            starts: Starts::new(program),
            values: program.graph.values.iter().filter(|v| v.view_of.is_none()).cloned().collect(),
            pool,
            moment: Moment { seed: 0, iteration: 0, rate: 1.0 },
            source: None,
            finite: false,
            places,
            views: Vec::with_capacity(most),
        })
    }

    /// With this seed of initial weights, synthetic data and dropouts; 0 unless set.
    pub fn seed(mut self, seed: u64) -> Library {
        self.moment.seed = seed;
        self
    }

    /// With this source of data and weights.
    pub fn source(mut self, source: Source) -> Library {
        self.source = Some(source);
        self
    }

    /// Says how many iterations came before: after a resume. Dropouts and AdamW depend on it.
    pub fn set_iteration(&mut self, iteration: u64) {
        self.moment.iteration = iteration;
    }

    /// The iterations that have ended.
    pub fn iteration(&self) -> u64 {
        self.moment.iteration
    }

    /// Multiplies the learning rate of every update by this from now on.
    pub fn set_rate(&mut self, factor: f32) {
        self.moment.rate = factor;
    }

    /// Counts an iteration after its last kernel.
    fn count(&mut self, at: usize) {
        if at + 1 == self.entries.len() {
            self.moment.iteration += 1;
        }
    }

    /// How many threads compute.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }
}

/// Works out where the operands of node `at` are.
fn entry(program: &Program, at: usize, threads: usize) -> Result<Entry, KernelError> {
    let (node, kernel) = (&program.graph.nodes[at], &program.trace.kernels[at]);
    let call = Call::new(&program.graph, node);
    let need = workspace(&program.graph, node, threads);
    let reads = kernel.reads.len();
    let find = |uses: &[tiercel_workload::Use], value| {
        let tensor = program.tensor(value);
        uses.iter()
            .position(|u| Some(u.tensor) == tensor)
            .ok_or_else(|| KernelError::Tensor { kernel: node.name.clone() })
    };
    let mut uses = Places::default();
    for input in &node.inputs {
        uses.inputs.push(find(&kernel.reads, *input)?);
    }
    for output in &node.outputs {
        uses.outputs.push(reads + find(&kernel.writes, *output)?);
    }
    let scratch = kernel.writes.iter().position(|u| program.trace.tensor(u.tensor).role == Role::Workspace);
    let there = scratch.map_or(Bytes::ZERO, |s| program.trace.tensor(kernel.writes[s].tensor).bytes);
    if there < need {
        return Err(KernelError::Workspace { kernel: node.name.clone(), need, there, threads });
    }
    let narrow = call.inputs.iter().chain(&call.outputs).any(|form| form.dtype == DType::Bf16);
    let wide = narrow.then(|| {
        let mut wide = call.clone();
        let forms = wide.inputs.iter_mut().chain(&mut wide.outputs);
        forms.filter(|f| f.dtype == DType::Bf16).for_each(|f| f.dtype = DType::F32);
        wide
    });
    Ok(Entry { call, wide, uses, workspace: scratch.map(|s| reads + s), name: node.name.clone() })
}

impl Kernels for Library {
    fn turn(&mut self, turn: Turn) {
        self.moment = Moment { seed: turn.seed, iteration: turn.iteration, rate: turn.rate };
    }

    fn load(&mut self, tensor: &Tensor, bytes: &mut [u8]) -> Result<(), Failure> {
        if let Some(source) = &mut self.source {
            let value = self.values.iter().find(|v| v.name == tensor.name);
            let value = value.ok_or_else(|| KernelError::Value(tensor.name.clone()))?;
            if source(value, self.moment.iteration, bytes)? {
                return Ok(());
            }
        }
        Ok(self.starts.fill(&tensor.name, self.moment.seed, self.moment.iteration, bytes)?)
    }

    fn run(&mut self, work: &Work<'_>, views: &mut [View<'_>]) -> Result<(), Failure> {
        let at = work.step.0 as usize;
        let entry = self.entries.get(at).ok_or(KernelError::Kernel(at))?;
        let Library { places, pool, moment, .. } = self;
        for (places, uses) in
            [(&mut places.inputs, &entry.uses.inputs), (&mut places.outputs, &entry.uses.outputs)]
        {
            places.clear();
            places.extend(uses.iter().map(|u| work.slots[*u]));
        }
        let scratch = scratch_of(entry.workspace.map(|w| work.slots[w]), views)?;
        let done = match &entry.wide {
            None => {
                let done = compute(Args { call: &entry.call, places, views, scratch, pool, moment: *moment });
                self.finite = done == Ok(true);
                done.map(drop)
            }
            Some(wide) => {
                let spare = std::mem::take(&mut self.views);
                let node = (&entry.call, wide, &*places);
                let (spare, done) = narrowly(node, views, spare, scratch, pool, *moment);
                self.views = spare;
                // Rounding may yet make a large number infinite.
                self.finite = false;
                done
            }
        };
        let done = done.map_err(|why| why.of(&entry.name));
        self.count(at);
        Ok(done?)
    }

    fn detach(&mut self, work: &Work<'_>) -> Option<Detached> {
        let at = work.step.0 as usize;
        let entries = Arc::clone(&self.entries);
        // What is widened needs more than this thread has at hand.
        let entry = entries.get(at).filter(|entry| entry.wide.is_none())?;
        let slots = |uses: &[usize]| uses.iter().map(|u| work.slots[*u]).collect();
        let places = Places { inputs: slots(&entry.uses.inputs), outputs: slots(&entry.uses.outputs) };
        let workspace = entry.workspace.map(|w| work.slots[w]);
        let moment = self.moment;
        self.count(at);
        Some(Box::new(move |views| {
            let entry = &entries[at];
            let scratch = scratch_of(workspace, views)?;
            let pool = &mut Pool::new(1);
            let done = compute(Args { call: &entry.call, places: &places, views, scratch, pool, moment });
            Ok(done.map(drop).map_err(|why| why.of(&entry.name))?)
        }))
    }

    fn finite(&self) -> bool {
        self.finite
    }
}

/// The workspace among the views, as numbers.
fn scratch_of<'v>(workspace: Option<usize>, views: &mut [View<'v>]) -> Result<&'v mut [f32], KernelError> {
    match workspace.map(|at| &mut views[at]) {
        Some(View::Write(bytes)) => bytemuck::try_cast_slice_mut(std::mem::take(bytes))
            .map_err(|error| KernelError::Cast { what: "workspace".to_string(), error }),
        _ => Ok(&mut []),
    }
}

/// The elements of view `at`, and whether it is an operand, where it is bf16.
fn bf16_len(call: &Call, places: &Places, at: usize) -> Option<(usize, bool)> {
    let find = |places: &[usize], forms: &[args::Form]| {
        let at = places.iter().position(|p| *p == at)?;
        (forms[at].dtype == DType::Bf16).then(|| forms[at].shape.elements() as usize)
    };
    match find(&places.inputs, &call.inputs) {
        Some(len) => Some((len, true)),
        None => find(&places.outputs, &call.outputs).map(|len| (len, false)),
    }
}

/// Runs a call whose bf16 operands are widened into scratch memory and whose results are rounded back.
fn narrowly(
    (call, wide, places): (&Call, &Call, &Places),
    views: &mut [View<'_>],
    spare: Vec<View<'static>>,
    scratch: &mut [f32],
    pool: &mut Pool,
    moment: Moment,
) -> (Vec<View<'static>>, Result<(), KernelError>) {
    let mut copies: Vec<View<'_>> = spare;
    let mut rest = &mut *scratch;
    for (at, view) in views.iter_mut().enumerate() {
        let Some((len, operand)) = bf16_len(call, places, at) else {
            copies.push(std::mem::replace(view, View::Read(&[])));
            continue;
        };
        let (chunk, more) = rest.split_at_mut(room(len));
        rest = more;
        let chunk = &mut chunk[..len];
        if operand {
            let bytes: &[u8] = match view {
                View::Read(bytes) => bytes,
                View::Write(bytes) => bytes,
            };
            narrow::widen_all(pool, &bytemuck::cast_slice(bytes)[..len], chunk);
        }
        copies.push(match view {
            View::Read(_) => View::Read(bytemuck::cast_slice(chunk)),
            View::Write(_) => View::Write(bytemuck::cast_slice_mut(chunk)),
        });
    }
    let done = compute(Args { call: wide, places, views: &mut copies, scratch: rest, pool, moment });
    let (spare, done) = (recycle(copies), done.map(drop));
    let mut rest = &*scratch;
    for (at, view) in views.iter_mut().enumerate() {
        let Some((len, _)) = bf16_len(call, places, at) else { continue };
        let (chunk, more) = rest.split_at(room(len));
        rest = more;
        if let View::Write(bytes) = view {
            narrow::round_all(pool, &chunk[..len], &mut bytemuck::cast_slice_mut(bytes)[..len]);
        }
    }
    (spare, done)
}

/// Scratch numbers that a call needs beside the copies of bf16 operands.
fn scratch(call: &Call, threads: usize) -> usize {
    match &call.op {
        Op::Linear | Op::LinearBackwardData | Op::LinearBackwardWeight | Op::MatMul { .. } => {
            linear::scratch(call, threads)
        }
        Op::LinearBackwardUpdate { .. } => fused::scratch(call, threads),
        Op::Conv(_) | Op::ConvBackwardData(_) | Op::ConvBackwardWeight(_) => conv::scratch(call, threads),
        Op::CrossEntropy if call.outputs[0].shape.elements() as usize != call.len(1) => call.len(1),
        Op::BinaryCrossEntropy | Op::MeanSquare => call.len(0).div_ceil(loss::PIECE),
        Op::ResponseNormBackward(_) => response::scratch(call, threads),
        Op::Attention(a) => attention::scratch(call, *a, threads),
        Op::AttentionBackward(a) => attention::scratch_backward(call, *a, threads),
        Op::LstmCell | Op::LstmCellBackwardData | Op::LstmCellBackwardWeight => {
            recurrent::scratch(call, threads)
        }
        Op::UpdateRows { .. } => embedding::scratch(call, threads),
        Op::DotInteraction => interaction::scratch(call, threads),
        Op::DotInteractionBackward => interaction::scratch_backward(call, threads),
        _ => 0,
    }
}

/// Runs a call on f32 operands; returns whether what it changed is known to be finite, as updates find out by the way.
fn compute(args: Args<'_, '_>) -> Result<bool, KernelError> {
    let done = match &args.call.op {
        Op::Update(optimizer) => return update::whole(args, *optimizer),
        Op::LinearBackwardUpdate { optimizer, data, bias } => {
            return fused::change(args, *optimizer, *data, *bias);
        }
        Op::UpdateRows { optimizer, bag } => return embedding::update_rows(args, *optimizer, *bag),
        Op::Conv(_) => conv::forward(args),
        Op::ConvBackwardData(_) => conv::backward_data(args),
        Op::ConvBackwardWeight(_) => conv::backward_weight(args),
        Op::Linear => linear::forward(args),
        Op::LinearBackwardData => linear::backward_data(args),
        Op::LinearBackwardWeight => linear::backward_weight(args),
        Op::MatMul { .. } => linear::product(args),
        Op::Activate(kind) => activation::forward(args, *kind),
        Op::ActivateBackward(kind) => activation::backward(args, *kind),
        Op::Softmax => loss::softmax(args),
        Op::SoftmaxBackward => loss::softmax_backward(args),
        Op::CrossEntropy => loss::cross_entropy(args),
        Op::CrossEntropyBackward { rows } => loss::cross_entropy_backward(args, *rows),
        Op::Mean => loss::mean_of(args),
        Op::BinaryCrossEntropy => loss::binary(args),
        Op::BinaryCrossEntropyBackward => loss::binary_backward(args),
        Op::MeanSquare => loss::mean_square(args),
        Op::MeanSquareBackward => loss::mean_square_backward(args),
        Op::Fill { value } => elementwise::fill(args, *value),
        Op::Scale { factor } => elementwise::scale(args, *factor),
        Op::BatchNorm { epsilon, momentum } => norm::batch(args, *epsilon, *momentum),
        Op::BatchNormBackward => norm::batch_backward(args),
        Op::LayerNorm { epsilon } => norm::layer(args, *epsilon),
        Op::LayerNormBackward => norm::layer_backward(args),
        Op::ResponseNorm(n) => response::forward(args, *n),
        Op::ResponseNormBackward(n) => response::backward(args, *n),
        Op::Pool(form) => pooling::forward(args, *form),
        Op::PoolBackward(form) => pooling::backward(args, *form),
        Op::GlobalPool => pooling::global(args),
        Op::GlobalPoolBackward => pooling::global_backward(args),
        Op::Add => elementwise::combine(args, |a, b| a + b),
        Op::Mul => elementwise::combine(args, |a, b| a * b),
        Op::SumTo => elementwise::sum_to(args),
        Op::Concat { axis } => arrange::concat(args, *axis),
        Op::Slice { axis, start, .. } => arrange::split(args, *axis, *start),
        Op::Split { axis, .. } => arrange::split(args, *axis, 0),
        Op::Pad { axis, before, .. } => arrange::pad(args, *axis, *before),
        Op::Transpose { order } => arrange::transpose(args, order),
        Op::Attention(a) => attention::forward(args, *a),
        Op::AttentionBackward(a) => attention::backward(args, *a),
        Op::Embedding { bag } => embedding::forward(args, *bag),
        Op::EmbeddingBackward { bag, .. } => embedding::backward(args, *bag),
        Op::Dropout { rate, seed } | Op::DropoutBackward { rate, seed } => {
            elementwise::dropout(args, *rate, *seed)
        }
        Op::LstmCell => recurrent::forward(args),
        Op::LstmCellBackwardData => recurrent::backward_data(args),
        Op::LstmCellBackwardWeight => recurrent::backward_weight(args),
        Op::DotInteraction => interaction::forward(args),
        Op::DotInteractionBackward => interaction::backward(args),
    };
    done.map(|()| false)
}

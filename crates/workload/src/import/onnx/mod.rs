//! ONNX: inference graphs that other frameworks exported, as training programs.
//!
//! ```text
//! bytes ──► model ──► plan ──► lower (and fold) ──► loss ──► autodiff, schedule
//! ```
//!
//! `wire` and `model` read the file in place, `plan` decides what belongs together and where the losses go, `fold` evaluates
//! shape arithmetic, `lower` has one rule an operator, `loss` adds what an inference graph lacks. What is supported, and
//! how the loss is chosen, is in `docs/onnx.md`.
//!
//! A file is not trusted: nothing is decoded before it is needed, all lists and all unrolling are bounded, sizes are computed
//! with care for overflow, and the trace is checked like one from a text file.

mod constant;
mod fold;
mod loss;
mod lower;
mod model;
mod plan;
mod shapes;
mod wire;

use crate::graph::{Builder, DType, GraphError, Init, Optimizer, Shape, ValueId};
use crate::nets::NetOptions;
use crate::schedule::Program;
use crate::trace::Phase;
use constant::{Format, shape_of};
use lower::{Item, Lowering, Past, short};
use model::{Extent, Input, Model};
use plan::Plan;

/// A network from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// Its training iteration.
    pub program: Program,
    /// Samples in a batch.
    pub batch: u64,
}

/// The operators that are supported, in alphabetical order.
pub fn operators() -> Vec<&'static str> {
    lower::supported()
}

/// Reads an ONNX file and makes one training iteration of it, called `name`.
pub fn read(bytes: &[u8], name: &str, options: &NetOptions) -> Result<Imported, GraphError> {
    let fail = |message: String| GraphError { place: name.to_string(), message };
    let model = Model::read(bytes)
        .map_err(|error| GraphError { place: format!("byte {}", error.at), message: error.message })?;
    if model.opset < 1 {
        return Err(fail("the file does not say which version of ONNX's operators it uses".to_string()));
    }
    let plan = plan::plan(&model);
    let sizes = Sizes::new(&model, options).map_err(fail)?;
    let file = File { model: &model, plan: &plan, sizes: &sizes, name, bytes: bytes.len() };
    // Stated shapes carry the file's own batch; where another is wanted, a first pass finds out where.
    let past = match sizes.stated {
        Some(stated) if stated != sizes.batch => {
            let reshapes = file.lower(stated, options.dtype, None)?.reshapes;
            Some(Past { batch: stated, reshapes })
        }
        _ => None,
    };
    let lowered = file.lower(sizes.batch, options.dtype, past.as_ref()).map_err(|error| {
        match (&past, sizes.stated) {
            (Some(_), Some(stated)) => GraphError {
                message: format!("{}; the file is for batch {stated}, not {}", error.message, sizes.batch),
                ..error
            },
            _ => error,
        }
    })?;
    let program = file.train(lowered, options)?;
    Ok(Imported { program, batch: sizes.batch })
}

/// A file that was read and planned.
struct File<'a> {
    model: &'a Model<'a>,
    plan: &'a Plan<'a>,
    sizes: &'a Sizes,
    name: &'a str,
    bytes: usize,
}

impl<'a> File<'a> {
    /// Lowers every node, for this batch.
    fn lower(&self, batch: u64, dtype: DType, past: Option<&'a Past>) -> Result<Lowering<'a>, GraphError> {
        let builder = Builder::new(self.name, dtype);
        let mut low = Lowering::new(builder, self.model, self.plan, past, self.bytes);
        for input in outside(self.model) {
            if self.plan.uses.contains_key(input.name) {
                let place = format!("input `{}`", short(input.name));
                let value = self.input(&mut low, input, batch);
                let value = value.map_err(|message| GraphError { place: place.clone(), message })?;
                if let Some(error) = low.builder.error() {
                    return Err(GraphError { place, message: error.message.clone() });
                }
                low.bind(input.name, Item::Data(value));
            }
        }
        for (node, step) in self.model.nodes.iter().zip(&self.plan.steps) {
            low.step(node, *step).map_err(|message| {
                let name =
                    if node.name.is_empty() { String::new() } else { format!(" `{}`", short(node.name)) };
                GraphError { place: format!("node {}{name}", node.at), message }
            })?;
        }
        Ok(low)
    }

    fn input(&self, low: &mut Lowering<'a>, input: &Input<'a>, batch: u64) -> Result<ValueId, String> {
        let shape = self.sizes.shape(input, batch)?;
        let (dtype, init) = match Format::of(input.format)? {
            Format::Float => (low.builder.dtype(), Init::Normal(1.0)),
            Format::Int => (DType::I64, Init::Below(1)),
        };
        Ok(low.builder.outside(short(input.name), shape, dtype, init))
    }

    /// Adds losses, gradients and updates, and schedules it all.
    fn train(&self, mut low: Lowering<'a>, options: &NetOptions) -> Result<Program, GraphError> {
        let fail = |message: String| GraphError { place: self.name.to_string(), message };
        let mut losses = Vec::new();
        for end in &self.plan.ends {
            let loss = loss::add(&mut low, self.model, *end);
            let place = || format!("output `{}`", short(end.output));
            losses.extend(loss.map_err(|message| GraphError { place: place(), message })?);
            if let Some(error) = low.builder.error() {
                return Err(GraphError { place: place(), message: error.message.clone() });
            }
        }
        let mut builder = low.builder;
        builder.train(&losses, options.optimizer.unwrap_or(Optimizer::MOMENTUM));
        let graph = builder.finish()?;
        if !graph.nodes.iter().any(|node| node.phase == Phase::Update) {
            return Err(fail(
                "no result of the graph depends on a weight, so there is nothing to train".to_string(),
            ));
        }
        let program = Program::new(graph, options.schedule);
        program.trace.check().map_err(|fault| fail(fault.message))?;
        Ok(program)
    }
}

/// What comes from outside: the inputs that have no data in the file.
fn outside<'m, 'a>(model: &'m Model<'a>) -> impl Iterator<Item = &'m Input<'a>> {
    model.inputs.iter().filter(|input| !model.initializers.contains_key(input.name))
}

/// The sizes that the file leaves open or that are chosen anew.
struct Sizes {
    batch: u64,
    /// The batch that the file states.
    stated: Option<u64>,
    image: Option<u64>,
    sequence: Option<u64>,
}

/// What an extent of an input is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Axis {
    Batch,
    Image,
    Sequence,
    Channels,
}

impl Sizes {
    fn new(model: &Model<'_>, options: &NetOptions) -> Result<Sizes, String> {
        for (name, value) in [("depth", options.depth), ("width", options.width)] {
            if value.is_some() {
                return Err(format!("a file has its layers already; `--{name}` does not apply"));
            }
        }
        let limits = [
            ("batch", options.batch, 1 << 32),
            ("image", options.image, 1 << 16),
            ("sequence", options.sequence, 1 << 20),
        ];
        for (name, value, limit) in limits {
            if let Some(value) = value.filter(|v| !(1..=limit).contains(v)) {
                return Err(format!("{name} {value} is not between 1 and {limit}"));
            }
        }
        // The first input that has a batch says which one the file was made for.
        let stated = outside(model).find_map(|input| extent(input, batch_axis(input)));
        let stated = stated.and_then(|extent| match extent {
            Extent::Fixed(n) if n > 0 => Some(n as u64),
            _ => None,
        });
        let batch = options.batch.or(stated).unwrap_or(1);
        let open = |wanted: Axis| {
            outside(model).any(|input| {
                let dims = input.dims.iter().flatten().enumerate();
                dims.into_iter().any(|(at, e)| is_open(*e) && axis(input, at) == wanted)
            })
        };
        for (name, value, kind) in
            [("image", options.image, Axis::Image), ("sequence", options.sequence, Axis::Sequence)]
        {
            if value.is_some() && !open(kind) {
                return Err(format!(
                    "the file states all sizes of its inputs but the batch; `--{name}` does not apply"
                ));
            }
        }
        Ok(Sizes { batch, stated, image: options.image, sequence: options.sequence })
    }

    /// The extents of an input, for this batch.
    fn shape(&self, input: &Input<'_>, batch: u64) -> Result<Shape, String> {
        let Some(extents) = &input.dims else { return Err("the file does not state its shape".to_string()) };
        let mut dims = Vec::with_capacity(extents.len());
        for (at, extent) in extents.iter().enumerate() {
            let kind = axis(input, at);
            let batch = i64::try_from(batch).unwrap_or(i64::MAX);
            let missing = |option: &str| {
                let hint = if option.is_empty() { String::new() } else { format!("; `--{option}` gives it") };
                format!("axis {at} has no size in the file{hint}")
            };
            dims.push(match (*extent, kind) {
                (Extent::Fixed(n), Axis::Batch) if n > 0 && self.stated == Some(n as u64) => batch,
                (Extent::Fixed(n), _) if n > 0 => n,
                (_, Axis::Batch) => batch,
                (_, Axis::Image) => self.image.ok_or_else(|| missing("image"))? as i64,
                (_, Axis::Sequence) => self.sequence.ok_or_else(|| missing("sequence"))? as i64,
                (_, Axis::Channels) => return Err(missing("")),
            });
        }
        shape_of(&dims)
    }
}

fn extent<'a>(input: &Input<'a>, at: usize) -> Option<Extent<'a>> {
    input.dims.as_ref()?.get(at).copied()
}

/// Whether the file leaves an extent open; some write 0 or −1 for that.
fn is_open(extent: Extent<'_>) -> bool {
    !matches!(extent, Extent::Fixed(n) if n > 0)
}

/// The axis of the batch: the one that is called so, or else the first.
fn batch_axis(input: &Input<'_>) -> usize {
    let named =
        |e: &Extent<'_>| matches!(e, Extent::Named(name) if name.to_ascii_lowercase().contains("batch"));
    input.dims.iter().flatten().position(named).unwrap_or(0)
}

/// What an axis of an input is: images have four axes, and the others' open axes are positions.
fn axis(input: &Input<'_>, at: usize) -> Axis {
    let rank = input.dims.as_ref().map_or(0, Vec::len);
    match (rank, at) {
        _ if at == batch_axis(input) => Axis::Batch,
        (4, 2 | 3) => Axis::Image,
        (4, _) => Axis::Channels,
        _ => Axis::Sequence,
    }
}

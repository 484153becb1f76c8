//! A program that runs operator by operator, as PyTorch's do, and what it leaves behind: the events of its forward pass and
//! the trace of the whole iteration.
//!
//! Parameters are declared first, whether the sample uses them or not, so that they have the same numbers in the traces of
//! all samples. The backward pass goes over the tape in reverse; the optimizer changes the parameters that were used. Two
//! samples that go the same way so far have the same kernels and the same numbers of tensors so far.

use std::sync::Arc;

use tiercel_core::Bytes;
use tiercel_workload::repeat::Repeat;
use tiercel_workload::trace::{Phase, Role};
use tiercel_workload::{Kernel, Tensor, TensorId, Trace, Use};

use crate::operator::Operator;
use crate::structure::Event;

/// What one number takes.
const ELEMENT: u64 = 4;

/// A value of the program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    tensor: TensorId,
    /// Its shape; unused dimensions are 1.
    pub dims: [u64; 3],
}

/// A parameter with what the optimizer remembers of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    weight: TensorId,
    elements: u64,
    dims: [u64; 3],
}

/// What an operator is.
#[derive(Clone, Copy, Debug)]
pub struct Form<'a> {
    /// Its name in ATen.
    pub aten: &'a str,
    /// The kind of kernel whose time stands for its own (`crates/profile/src/kinds.rs`).
    pub kernel: &'a str,
    /// Its parameter.
    pub parameter: Option<Parameter>,
    /// The shape of what it makes.
    pub out: [u64; 3],
    /// Its operations, a multiply-add counted as two.
    pub flops: u64,
    /// What the backward pass wants of it.
    pub keeps: Keeps,
}

/// What the backward pass of an operator wants of its forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// What it read.
    Inputs,
    /// What it made.
    Output,
    /// Nothing.
    Nothing,
}

/// One operator of the forward pass, for the way back.
struct Step {
    kernel: String,
    inputs: Vec<Value>,
    parameter: Option<Parameter>,
    output: Value,
    flops: u64,
    keeps: Keeps,
    layer: u32,
}

/// What a sample did.
#[derive(Clone, Debug)]
pub struct Taped {
    /// The iteration.
    pub trace: Trace,
    /// Its forward pass, branches included.
    pub events: Vec<Event>,
    /// For each kernel of the trace, its operator.
    pub operators: Vec<Arc<Operator>>,
    /// How many of the trace's first kernels are of the forward pass.
    pub forward: usize,
}

/// The tape.
pub struct Tape {
    trace: Trace,
    events: Vec<Event>,
    operators: Vec<Arc<Operator>>,
    steps: Vec<Step>,
    parameters: Vec<Parameter>,
    gradients: Vec<Option<TensorId>>,
    fed: Vec<TensorId>,
}

impl Tape {
    /// An empty tape of a program of this name.
    pub fn new(name: &str) -> Tape {
        let trace = Trace { name: name.to_string(), ..Trace::default() };
        Tape {
            trace,
            events: Vec::new(),
            operators: Vec::new(),
            steps: Vec::new(),
            parameters: Vec::new(),
            gradients: Vec::new(),
            fed: Vec::new(),
        }
    }

    fn tensor(&mut self, name: String, elements: u64, role: Role, persistent: bool) -> TensorId {
        let bytes = Bytes(elements.max(1) * ELEMENT);
        self.trace.tensors.push(Tensor { name, bytes, role, persistent });
        TensorId(self.trace.tensors.len() as u32 - 1)
    }

    /// Declares a parameter; all of them come before the first operator.
    pub fn parameter(&mut self, name: &str, dims: [u64; 3]) -> Parameter {
        assert!(self.steps.is_empty(), "parameters are declared first");
        let elements = dims.iter().product();
        let name = format!("{}.{name}", self.parameters.len());
        let weight = self.tensor(format!("{name}.weight"), elements, Role::Weight, true);
        self.tensor(format!("{name}.momentum"), elements, Role::State, true);
        self.tensor(format!("{name}.variance"), elements, Role::State, true);
        let parameter = Parameter { weight, elements, dims };
        self.parameters.push(parameter);
        parameter
    }

    /// Data from outside.
    pub fn input(&mut self, name: &str, dims: [u64; 3]) -> Value {
        let tensor = self.tensor(name.to_string(), dims.iter().product(), Role::Input, false);
        self.fed.push(tensor);
        Value { tensor, dims }
    }

    /// What follows belongs to a layer of this name.
    pub fn layer(&mut self, name: &str) {
        self.trace.layers.push(name.to_string());
    }

    /// The program goes this way; [`Tape::join`] ends the arm.
    pub fn branch(&mut self, site: u32, arm: u16) {
        self.events.push(Event::Branch { site, arm });
    }

    /// The ways of the branch meet.
    pub fn join(&mut self) {
        self.events.push(Event::Join);
    }

    /// Runs an operator.
    pub fn run(&mut self, inputs: &[Value], form: Form<'_>) -> Value {
        if self.trace.layers.is_empty() {
            self.layer("network");
        }
        let layer = self.trace.layers.len() as u32 - 1;
        let name = format!("{}.{}", self.trace.layers[layer as usize], self.steps.len());
        let tensor = self.tensor(format!("{name}.out"), form.out.iter().product(), Role::Activation, false);
        let output = Value { tensor, dims: form.out };
        let mut shapes: Vec<&[u64]> = inputs.iter().map(|input| &input.dims[..]).collect();
        if let Some(parameter) = &form.parameter {
            shapes.push(&parameter.dims[..]);
        }
        let operator = Arc::new(Operator::new(form.aten, &shapes, &[&form.out[..]]));
        self.events.push(Event::Operator(Arc::clone(&operator)));
        let reads: Vec<TensorId> =
            inputs.iter().map(|i| i.tensor).chain(form.parameter.map(|p| p.weight)).collect();
        self.kernel(&name, form.kernel, &reads, &[tensor], form.flops, (layer, Phase::Forward), operator);
        self.steps.push(Step {
            kernel: form.kernel.to_string(),
            inputs: inputs.to_vec(),
            parameter: form.parameter,
            output,
            flops: form.flops,
            keeps: form.keeps,
            layer,
        });
        output
    }

    #[expect(clippy::too_many_arguments, reason = "all that a kernel is")]
    fn kernel(
        &mut self,
        name: &str,
        op: &str,
        reads: &[TensorId],
        writes: &[TensorId],
        flops: u64,
        (layer, phase): (u32, Phase),
        operator: Arc<Operator>,
    ) {
        let used = |id: &TensorId| Use { tensor: *id, bytes: self.trace.tensors[id.0 as usize].bytes };
        let mut once: Vec<TensorId> = Vec::new();
        reads.iter().for_each(|id| {
            if !once.contains(id) {
                once.push(*id);
            }
        });
        let kernel = Kernel {
            name: name.to_string(),
            op: op.to_string(),
            reads: once.iter().map(used).collect(),
            writes: writes.iter().map(used).collect(),
            flops,
            layer,
            phase,
            timings: Vec::new(),
            alternatives: Vec::new(),
            detached: false,
            factor: 1.0,
            repeat: Some(if phase == Phase::Update { Repeat::Once } else { Repeat::Pure }),
            derived: Default::default(),
        };
        self.trace.kernels.push(kernel);
        self.operators.push(operator);
    }

    /// The gradient of a value: made now, or there already and then read as well.
    fn gradient(&mut self, of: TensorId, reads: &mut Vec<TensorId>, role: Role) -> TensorId {
        if self.gradients.len() < self.trace.tensors.len() {
            self.gradients.resize(self.trace.tensors.len(), None);
        }
        if let Some(known) = self.gradients[of.0 as usize] {
            reads.push(known);
            return known;
        }
        let (name, bytes) = {
            let tensor = &self.trace.tensors[of.0 as usize];
            (format!("{}.grad", tensor.name), tensor.bytes)
        };
        let made = self.tensor(name, bytes.0 / ELEMENT, role, false);
        self.gradients[of.0 as usize] = Some(made);
        made
    }

    fn elements(&self, id: TensorId) -> u64 {
        self.trace.tensors[id.0 as usize].bytes.0 / ELEMENT
    }

    /// The operator of the backward pass or of an update, by the tensors' sizes.
    fn mirrored(&self, name: &str, reads: &[TensorId], writes: &[TensorId]) -> Arc<Operator> {
        let flat = |ids: &[TensorId]| ids.iter().map(|id| [self.elements(*id)]).collect::<Vec<[u64; 1]>>();
        let (reads, writes) = (flat(reads), flat(writes));
        let r: Vec<&[u64]> = reads.iter().map(|shape| &shape[..]).collect();
        let w: Vec<&[u64]> = writes.iter().map(|shape| &shape[..]).collect();
        let known = match name.split_once('.') {
            Some(("conv", _)) => "convolution_backward".to_string(),
            Some(("linear" | "matmul", _)) => "mm".to_string(),
            Some((kind, _)) => format!("{}_backward", kind.replace('-', "_")),
            None => name.to_string(),
        };
        Arc::new(Operator::new(&known, &r, &w))
    }

    /// Goes back from the loss and changes the parameters; what ran, as events and as a trace.
    pub fn finish(mut self) -> Taped {
        let forward = self.trace.kernels.len();
        let steps = std::mem::take(&mut self.steps);
        let mut touched: Vec<(Parameter, TensorId, u32)> = Vec::new();
        for (at, step) in steps.iter().enumerate().rev() {
            let mut seed = Vec::new();
            let own = self.gradient(step.output.tensor, &mut seed, Role::Activation);
            // Nothing has made the last one's gradient: its backward kernel does both.
            let last = seed.is_empty();
            let name = format!("{}.{at}", self.trace.layers[step.layer as usize]);
            let saved: Vec<TensorId> = match step.keeps {
                Keeps::Output => vec![step.output.tensor],
                Keeps::Inputs => step.inputs.iter().map(|input| input.tensor).collect(),
                Keeps::Nothing => Vec::new(),
            };
            let place = (step.layer, Phase::Backward);
            let mut reads: Vec<TensorId> = if last { vec![step.output.tensor] } else { vec![own] };
            reads.extend(step.parameter.map(|p| p.weight));
            reads.extend(saved.iter().filter(|_| step.parameter.is_none()));
            let mut writes = if last { vec![own] } else { Vec::new() };
            let mut inputs: Vec<TensorId> = step.inputs.iter().map(|input| input.tensor).collect();
            inputs.sort_unstable();
            inputs.dedup();
            for input in inputs.into_iter().filter(|input| !self.fed.contains(input)).collect::<Vec<_>>() {
                let gradient = self.gradient(input, &mut reads, Role::Activation);
                writes.push(gradient);
            }
            if !writes.is_empty() {
                let kind = match step.parameter {
                    Some(_) => format!("{}.backward-data", step.kernel),
                    None => format!("{}.backward", step.kernel),
                };
                let operator = self.mirrored(&kind, &reads, &writes);
                self.kernel(&format!("{name}.back"), &kind, &reads, &writes, step.flops, place, operator);
            }
            if let Some(parameter) = step.parameter {
                let mut reads = vec![own];
                reads.extend(&saved);
                let gradient = self.gradient(parameter.weight, &mut reads, Role::Gradient);
                let kind = format!("{}.backward-weight", step.kernel);
                let operator = self.mirrored(&kind, &reads, &[gradient]);
                self.kernel(
                    &format!("{name}.wgrad"),
                    &kind,
                    &reads,
                    &[gradient],
                    step.flops,
                    place,
                    operator,
                );
                if touched.iter().all(|(known, ..)| known.weight != parameter.weight) {
                    touched.push((parameter, gradient, step.layer));
                }
            }
        }
        for (parameter, gradient, layer) in touched {
            let states =
                [parameter.weight, TensorId(parameter.weight.0 + 1), TensorId(parameter.weight.0 + 2)];
            let name = format!("{}.update", self.trace.tensors[parameter.weight.0 as usize].name);
            let reads = [gradient, states[0], states[1], states[2]];
            let operator = self.mirrored("_fused_adamw", &reads, &states);
            let flops = parameter.elements * 12;
            self.kernel(&name, "adamw", &reads, &states, flops, (layer, Phase::Update), operator);
        }
        Taped { trace: self.trace, events: self.events, operators: self.operators, forward }
    }
}

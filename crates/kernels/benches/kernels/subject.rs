//! What is timed: a kernel of a program, with memory for its operands, and what it must at least compute and move.

use std::collections::HashSet;

use tiercel_kernels::{Library, prepare};
use tiercel_run::{Kernels, View};
use tiercel_sim::Work;
use tiercel_workload::graph::{Activation, Builder, DType, Init, Op, Optimizer, ValueId, cost};
use tiercel_workload::nets::{self, Net};
use tiercel_workload::trace::Role;
use tiercel_workload::{Program, schedule};

use super::cases::{Case, Value};
use super::machine::Pages;

/// How programs are written for the benchmark: results never take the place of operands.
const SCHEDULE: fn() -> schedule::ScheduleOptions =
    || schedule::ScheduleOptions { in_place: false, ..Default::default() };

/// A program whose kernels can be timed.
pub struct Subject {
    library: Library,
    program: Program,
}

impl Subject {
    fn new(program: Program, threads: usize) -> Subject {
        let program = prepare(program, threads);
        Subject { library: Library::new(&program, threads).expect("a prepared program"), program }
    }

    /// A program that differentiates one operation, and the kernel in it that is meant.
    pub fn of_case(case: &Case, threads: usize) -> (Subject, usize) {
        let Case { op, operands, kernel: wanted, .. } = case;
        let mut b = Builder::new("bench", DType::F32);
        b.layer("op");
        let ids: Vec<ValueId> = operands
            .iter()
            .enumerate()
            .map(|(i, operand)| match operand {
                Value::Number(shape) => b.weight(&format!("x{i}"), *shape, Init::Normal(1.0)),
                Value::Id(shape, below) => b.ids(&format!("x{i}"), *shape, *below),
                Value::State(shape) => b.state(&format!("x{i}"), *shape, Init::Constant(1.0)),
            })
            .collect();
        let results = b.apply_all(op.clone(), &ids);
        let mut loss = results[0];
        if !matches!(op, Op::CrossEntropy) {
            let shape = b.shape(loss);
            let targets = b.outside("targets", shape, DType::F32, Init::Constant(0.5));
            loss = b.apply(Op::BinaryCrossEntropy, &[loss, targets]);
        }
        b.train(&[loss], if wanted.starts_with("adamw") { Optimizer::ADAMW } else { Optimizer::MOMENTUM });
        let graph = b.finish().unwrap_or_else(|e| panic!("{e}"));
        let subject = Subject::new(Program::new(graph, SCHEDULE()), threads);
        // The largest of that type: of all updates, the one of the operand that is meant.
        let kernels = subject.program.trace.kernels.iter().enumerate().filter(|(_, k)| k.op == *wanted);
        let step = kernels.max_by_key(|(_, k)| k.writes.iter().map(|u| u.bytes.0).sum::<u64>());
        let step = step.unwrap_or_else(|| panic!("no kernel {wanted}")).0;
        (subject, step)
    }

    /// A network as it is trained.
    pub fn of_network(net: &Net, options: nets::NetOptions, threads: usize) -> Result<Subject, String> {
        let options = nets::NetOptions { schedule: SCHEDULE(), ..options };
        Ok(Subject::new(net.build(&options).map_err(|e| e.to_string())?, threads))
    }

    /// The kernels whose operands have so many bytes together, of each type and shape one, with what it is.
    pub fn kernels(&self, least: f64) -> Vec<(usize, String)> {
        let (graph, mut seen) = (&self.program.graph, HashSet::new());
        let shapes = |ids: &[ValueId]| -> Vec<String> {
            ids.iter().map(|id| graph.value(*id).shape.to_string()).collect()
        };
        let steps = graph.nodes.iter().zip(&self.program.trace.kernels).enumerate();
        let distinct = steps.filter_map(|(step, (node, kernel))| {
            let (inputs, outputs) = (shapes(&node.inputs), shapes(&node.outputs));
            let name =
                format!("{} {}", kernel.op, inputs.iter().take(2).cloned().collect::<Vec<_>>().join(" "));
            let new = seen.insert((format!("{:?}", node.op), inputs, outputs));
            (new && self.bytes(step) >= least).then_some((step, name))
        });
        distinct.collect()
    }

    /// Products with their sums count as two, and so does what functions are made of, because it keeps the same units
    /// busy.
    pub fn flops(&self, step: usize) -> f64 {
        let (graph, node) = (&self.program.graph, &self.program.graph.nodes[step]);
        let macs = cost::macs(graph, node) as f64;
        let extent = |axis| node.inputs.first().map_or(0, |id| graph.value(*id).shape.dim(axis)) as f64;
        if let Op::Attention(attention) | Op::AttentionBackward(attention) = &node.op {
            // Products, and forward an exponential of every score; where positions see only those before them, of half
            // of the square with its diagonal.
            let positions = extent(1);
            let exponentials =
                if matches!(node.op, Op::Attention(_)) { functions(&Op::Softmax) } else { 0.0 };
            let all = macs + exponentials * extent(0) * attention.heads as f64 * positions * positions;
            let seen = if attention.causal { (positions + 1.0) / (2.0 * positions) } else { 1.0 };
            return 2.0 * seen * all;
        }
        let elements = node.inputs.first().map_or(0, |id| graph.value(*id).shape.elements());
        2.0 * macs.max(functions(&node.op) * elements as f64)
    }

    /// Every operand once, and of a table the rows that are asked for.
    pub fn bytes(&self, step: usize) -> f64 {
        let graph = &self.program.graph;
        let node = &graph.nodes[step];
        let once = |(id, bytes): (ValueId, tiercel_core::Bytes)| {
            let value = graph.value(id);
            bytes.min(value.shape.bytes(value.dtype)).0 as f64
        };
        cost::reads(graph, node).map(once).sum::<f64>() + cost::writes(graph, node).map(once).sum::<f64>()
    }
}

/// One kernel of a program with memory for its operands.
pub struct Bench<'s> {
    subject: &'s mut Subject,
    step: usize,
    memory: Pages,
    /// The bytes of every operand, which lie one behind the other.
    sizes: Vec<usize>,
}

/// The bytes that an operand has to itself.
fn room(bytes: usize) -> usize {
    bytes.next_multiple_of(64)
}

impl Bench<'_> {
    /// The kernel, with contents for what it reads.
    pub fn new(subject: &mut Subject, step: usize) -> Bench<'_> {
        let Subject { library, program } = &mut *subject;
        let kernel = &program.trace.kernels[step];
        let operands = || kernel.reads.iter().chain(&kernel.writes).map(|u| program.trace.tensor(u.tensor));
        let sizes: Vec<usize> = operands().map(|tensor| tensor.bytes.0 as usize).collect();
        let mut memory = Pages::new(sizes.iter().map(|size| room(*size)).sum());
        let mut start = 0;
        for (tensor, size) in operands().zip(&sizes) {
            let bytes = &mut memory.bytes()[start..start + size];
            start += room(*size);
            if tensor.role != Role::Workspace {
                let value = program.graph.values.iter().find(|v| v.name == tensor.name);
                if value.is_some_and(|v| v.init == Init::Computed) {
                    let numbers: &mut [f32] = bytemuck::cast_slice_mut(bytes);
                    numbers
                        .iter_mut()
                        .enumerate()
                        .for_each(|(i, n)| *n = ((i * 7919) % 1013) as f32 / 1013.0 - 0.4);
                } else {
                    library.load(tensor, bytes).expect("it has contents");
                }
            }
        }
        Bench { subject, step, memory, sizes }
    }

    /// Runs the kernel once.
    pub fn run(&mut self) {
        let kernel = &self.subject.program.trace.kernels[self.step];
        let mut slots: Vec<usize> = Vec::new();
        let mut distinct: Vec<(u32, usize, bool)> = Vec::new();
        for (i, u) in kernel.reads.iter().chain(&kernel.writes).enumerate() {
            let writes = i >= kernel.reads.len();
            match distinct.iter_mut().position(|(t, ..)| *t == u.tensor.0) {
                Some(at) => {
                    distinct[at].2 |= writes;
                    slots.push(at);
                }
                None => {
                    distinct.push((u.tensor.0, i, writes));
                    slots.push(distinct.len() - 1);
                }
            }
        }
        let (mut memory, mut rest) = (Vec::new(), self.memory.bytes());
        for size in &self.sizes {
            let (own, more) = rest.split_at_mut(room(*size));
            memory.push(Some(&mut own[..*size]));
            rest = more;
        }
        let mut views: Vec<View<'_>> = distinct
            .iter()
            .map(|(_, at, writes)| {
                let bytes = memory[*at].take().expect("each once");
                if *writes { View::Write(bytes) } else { View::Read(bytes) }
            })
            .collect();
        let work = Work {
            step: tiercel_core::Step(self.step as u32),
            kernel,
            operands: &[],
            places: &[],
            slots: &slots,
            traffic: &[],
            cached: false,
        };
        self.subject.library.run(&work, &mut views).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// The multiplications, with or without a sum, that functions of an element take: no instruction computes an exponential
/// or a logarithm, so a kernel that needs one cannot be as fast as memory. Counted in `math.rs`, whose polynomials are as
/// short as an error of a few units in the last place allows; additions, comparisons and divisions are left out, which
/// other units do meanwhile.
fn functions(op: &Op) -> f64 {
    const EXP: f64 = 11.0;
    const LN: f64 = 15.0;
    match op {
        Op::Softmax | Op::CrossEntropy => EXP + 1.0,
        Op::BinaryCrossEntropy => EXP + LN + 1.0,
        Op::BinaryCrossEntropyBackward => EXP + 1.0,
        // Squares of a window, their factor, the power, and what it is multiplied with. Of the usual power two roots and a
        // quotient are taken instead, for which this floor may be too low.
        Op::ResponseNorm(norm) => norm.size as f64 + EXP + LN + 3.0,
        // Beside that the pulls of a window, and what they take away.
        Op::ResponseNormBackward(norm) => norm.size as f64 + EXP + LN + 7.0,
        Op::Activate(Activation::Sigmoid | Activation::Exp) => EXP,
        // A polynomial near zero, and another function elsewhere; both are computed for every element.
        Op::Activate(Activation::Tanh) => EXP + 7.0,
        Op::Activate(Activation::GeluTanh) => EXP + 5.0,
        // The normal distribution: a polynomial of ten numbers, and an exponential.
        Op::Activate(Activation::Gelu | Activation::Erf) => EXP + 12.0,
        // Their derivatives, times the gradient of the result.
        Op::ActivateBackward(Activation::Gelu) => EXP + 15.0,
        Op::ActivateBackward(Activation::GeluTanh) => EXP + 11.0,
        Op::ActivateBackward(Activation::Erf) => EXP + 3.0,
        _ => 0.0,
    }
}

//! Runs programs with given contents in plain fast memory, for tests of kernels.
#![allow(dead_code)]

mod lesser;

use std::collections::HashMap;
use std::sync::Arc;

use tiercel_core::{Bytes, Error, Hint, Machine, Manager, ObjectId, Operand, Policy, Step, TierId};
use tiercel_kernels::simd::{Level, VARIABLE, level};
use tiercel_kernels::{Library, narrow, prepare};
use tiercel_run::{Executor, Host, Stage};
use tiercel_workload::graph::{Builder, DType, Init, Op, Shape, ValueId};
use tiercel_workload::{Program, TensorId, schedule};

/// Numbers by the names of the values that hold them.
pub type Numbers = HashMap<String, Vec<f32>>;

/// Everything in the first tier.
pub struct AllFast;

impl Policy for AllFast {
    fn name(&self) -> &str {
        "all-fast"
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        let size = m.size(object)?;
        let region = m.allocate(TierId(0), size).map_err(|_| m.no_room(object, TierId(0)))?;
        m.set_primary(object, region)
    }

    fn hint(&mut self, m: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error> {
        if hint == Hint::Retire { m.retire(object) } else { Ok(()) }
    }

    fn before(&mut self, _: &mut Manager, _: Step, _: &[Operand]) -> Result<(), Error> {
        Ok(())
    }
}

/// A machine of one tier that holds all tensors of a program at once.
pub fn machine(program: &Program) -> Machine {
    let all: u64 = program.trace.tensors.iter().map(|t| t.bytes.0.next_multiple_of(64)).sum();
    let toml = "name = 'test'\n[[tier]]\nname = 'fast'\ncapacity = '1 MiB'\nread = '9 GB/s'\nwrite = '9 GB/s'\nbacking = 'dram'";
    Machine::parse(toml)
        .expect("a machine")
        .with_capacity(TierId(0), Bytes(all.next_multiple_of(4096) + (1 << 16)))
}

fn write(dtype: DType, numbers: &[f32], bytes: &mut [u8]) {
    match dtype {
        DType::F32 => bytes.copy_from_slice(bytemuck::cast_slice(numbers)),
        DType::Bf16 => {
            let to: &mut [u16] = bytemuck::cast_slice_mut(bytes);
            to.iter_mut().zip(numbers).for_each(|(to, n)| *to = narrow::round(*n));
        }
        DType::I32 => {
            let to: &mut [i32] = bytemuck::cast_slice_mut(bytes);
            to.iter_mut().zip(numbers).for_each(|(to, n)| *to = *n as i32);
        }
        DType::I64 => {
            let to: &mut [i64] = bytemuck::cast_slice_mut(bytes);
            to.iter_mut().zip(numbers).for_each(|(to, n)| *to = *n as i64);
        }
    }
}

fn read(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        DType::F32 => bytemuck::cast_slice(bytes).to_vec(),
        DType::Bf16 => bytemuck::cast_slice(bytes).iter().map(|n| narrow::widen(*n)).collect(),
        _ => Vec::new(),
    }
}

/// Runs some iterations with these contents, and returns all that outlives them. What `given` lacks has what its
/// initialisation says.
pub fn run(program: &Program, given: &Arc<Numbers>, threads: usize, iterations: usize) -> Numbers {
    let machine = machine(program);
    let given = Arc::clone(given);
    let library = Library::new(program, threads).expect("a prepared program").source(Box::new(
        move |value, _, bytes| match given.get(&value.name) {
            Some(numbers) => {
                assert_eq!(numbers.len() as u64, value.shape.elements(), "{}", value.name);
                write(value.dtype, numbers, bytes);
                Ok(true)
            }
            None => Ok(false),
        },
    ));
    let mut manager =
        Manager::new(machine.clone(), Stage::new(Host::open(&machine).expect("memory"), library));
    let mut executor = Executor::new(&program.trace);
    for _ in 0..iterations {
        executor.iterate(&mut manager, &mut AllFast).unwrap_or_else(|e| panic!("{e}"));
    }
    let mut kept = Numbers::new();
    for (at, tensor) in program.trace.tensors.iter().enumerate().filter(|(_, t)| t.persistent) {
        let value = program.graph.values.iter().find(|v| v.name == tensor.name).expect("a tensor is a value");
        let object = executor.object(TensorId(at as u32)).expect("it persists");
        let place = manager.place(object).expect("it is placed");
        let slice = manager.backend().host().slice(place, tensor.bytes).expect("plain memory");
        // SAFETY: no copy flies and no kernel runs.
        kept.insert(tensor.name.clone(), read(value.dtype, unsafe { slice.as_ref() }));
    }
    kept
}

/// Random numbers of deviation 1.
pub fn normal(random: &mut fastrand::Rng, n: usize) -> Vec<f32> {
    let mut one = || {
        let (a, b) = (random.f64().max(1e-12), random.f64());
        ((-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()) as f32
    };
    (0..n).map(|_| one()).collect()
}

/// One operand of an operation under test.
#[derive(Clone, Debug)]
pub enum Operand_ {
    /// Numbers, by which the gradient is wanted.
    Weight(Shape),
    /// Whole numbers below a bound.
    Ids(Shape, u64),
    /// State that the operation changes.
    State(Shape),
}

/// A program of one operation and a smooth loss behind each of its results.
pub struct Single {
    pub program: Program,
    pub given: Arc<Numbers>,
    /// The operands, in order.
    pub operands: Vec<String>,
    /// The results, in order.
    pub results: Vec<String>,
    /// The gradients of operands that are weights: the operand's name and the gradient's.
    pub gradients: Vec<(String, String)>,
    /// The losses: the result's name and the targets.
    pub losses: Vec<(String, String)>,
}

impl Single {
    /// A program with random contents; `losses` says behind how many of the results a loss stands.
    pub fn new(
        op: Op,
        operands: &[Operand_],
        losses: usize,
        in_place: bool,
        seed: u64,
        threads: usize,
    ) -> Single {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut given = Numbers::new();
        let mut b = Builder::new("single", DType::F32);
        b.layer("op");
        let mut ids = Vec::new();
        for (i, operand) in operands.iter().enumerate() {
            let id = match operand {
                Operand_::Weight(shape) => b.weight(&format!("x{i}"), *shape, Init::Constant(0.0)),
                Operand_::Ids(shape, below) => b.ids(&format!("op.x{i}"), *shape, *below),
                Operand_::State(shape) => b.state(&format!("x{i}"), *shape, Init::Constant(0.5)),
            };
            let numbers = match operand {
                Operand_::Weight(shape) => normal(&mut random, shape.elements() as usize),
                Operand_::Ids(shape, below) => {
                    (0..shape.elements()).map(|_| random.u64(..below) as f32).collect()
                }
                Operand_::State(shape) => vec![0.5; shape.elements() as usize],
            };
            given.insert(format!("op.x{i}"), numbers);
            ids.push(id);
        }
        let is_loss = matches!(op, Op::CrossEntropy | Op::BinaryCrossEntropy | Op::MeanSquare);
        let mut inputs = ids.clone();
        if let (Op::Embedding { .. }, Operand_::Weight(_)) = (&op, &operands[0]) {
            // The gradient of a weight that is a table is left in rows; of anything else it is whole.
            inputs[0] = b.apply(Op::Scale { factor: 1.0 }, &inputs[..1]);
        }
        let results = b.apply_all(op, &inputs);
        let mut ends = Vec::new();
        let mut names = Vec::new();
        for (i, result) in results.iter().take(losses).enumerate() {
            if is_loss {
                b.keep(*result);
                ends.push(*result);
                continue;
            }
            let shape = b.shape(*result);
            let name = format!("targets{i}");
            let targets = b.outside(&name, shape, DType::F32, Init::Constant(0.0));
            given.insert(name.clone(), (0..shape.elements()).map(|_| random.f32()).collect());
            let loss = b.apply(Op::BinaryCrossEntropy, &[*result, targets]);
            names.push((b.graph().value(*result).name.clone(), name));
            ends.push(loss);
        }
        let weights = b.weights();
        let found = b.backward(&ends, &weights);
        let mut gradients = Vec::new();
        for (weight, gradient) in found {
            let tiercel_workload::autodiff::Gradient::Dense(gradient) = gradient else { continue };
            gradients.push((weight, gradient));
        }
        let everything = results.iter().chain(gradients.iter().map(|(_, g)| g)).copied();
        for value in everything.collect::<Vec<ValueId>>() {
            let root = b.graph().root(value);
            b.keep(root);
        }
        let name = |v: ValueId| b.graph().value(b.graph().root(v)).name.clone();
        let single = (
            ids.iter().map(|v| name(*v)).collect(),
            results.iter().map(|v| name(*v)).collect(),
            gradients.iter().map(|(w, g)| (name(*w), name(*g))).collect(),
        );
        let options = schedule::ScheduleOptions { in_place, ..schedule::ScheduleOptions::default() };
        let program = Program::new(b.finish().unwrap_or_else(|e| panic!("{e}")), options);
        let program = prepare(program, threads);
        program.trace.check().expect("a sound trace");
        let (operands, results, gradients) = single;
        Single { program, given: Arc::new(given), operands, results, gradients, losses: names }
    }

    /// The contents of operand `at`.
    pub fn operand(&self, at: usize) -> &[f32] {
        &self.given[&self.operands[at]]
    }

    /// The sum of the losses in f64, from the results of a run.
    pub fn loss(&self, numbers: &Numbers) -> f64 {
        if self.losses.is_empty() {
            return f64::from(numbers[&self.results[0]][0]);
        }
        let one = |(result, targets): &(String, String)| {
            let (y, t) = (&numbers[result], &self.given[targets]);
            let each = y.iter().zip(t).map(|(y, t)| {
                let (y, t) = (f64::from(*y), f64::from(*t));
                y.max(0.0) - y * t + (-y.abs()).exp().ln_1p()
            });
            each.sum::<f64>() / y.len() as f64
        };
        self.losses.iter().map(one).sum()
    }
}

/// Every file that has this module runs all its other tests again, with every kind of vectors that is less than what the
/// processor has.
#[test]
fn lesser_vectors_do_as_well() {
    let names = Level::ALL.iter().filter(|(_, one)| *one < level()).map(|(name, _)| *name);
    lesser::pass(VARIABLE, names, "lesser_vectors_do_as_well", None);
}

//! What every family of kernels reaches of its floor: of the memory's bandwidth or of the processor's multiply-adds,
//! both measured here, and of PyTorch where it can be imported.
//!
//! `cargo bench -p tiercel-run --bench kernels -- [FILTER] [--threads N] [--torch]`. Rounds of all alternatives
//! alternate with the measuring of the floors, because a machine that is shared is not the same for long, and the best round
//! of each counts. With one thread it is that thread's own time that counts, so that the figures mean something on a busy
//! machine. Operands lie one behind the other in huge pages, as in a region. PyTorch runs in a subprocess (`scripts/torch_bench.py`) that times
//! one round for each line that it is sent.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use tiercel_run::kernels::{Library, prepare, simd};
use tiercel_run::{Kernels, View, Work};
use tiercel_workload::graph::{Activation, Builder, DType, Init, Op, Optimizer, ValueId, cost};
use tiercel_workload::{Program, schedule};

mod cases;

use cases::{Case, Value, cases};

/// The size of a huge page.
const HUGE: usize = 2 << 20;

/// Memory in huge pages where the system has them, as regions are.
struct Pages {
    all: Vec<u64>,
    first: usize,
    len: usize,
}

impl Pages {
    fn new(len: usize) -> Pages {
        let all = vec![0u64; (len + 2 * HUGE) / 8];
        let first = all.as_ptr().cast::<u8>().align_offset(HUGE);
        // SAFETY: advice about pages of the vector, which has room for two more.
        unsafe {
            let start = all.as_ptr().cast::<u8>().add(first);
            libc::madvise(start.cast_mut().cast(), len.next_multiple_of(HUGE), libc::MADV_HUGEPAGE);
        }
        Pages { all, first, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.all)[self.first..self.first + self.len]
    }
}

/// One node of a program with memory for its operands.
struct Bench {
    library: Library,
    program: Program,
    step: usize,
    memory: Pages,
    /// The bytes of every operand, which lie one behind the other.
    sizes: Vec<usize>,
}

/// The bytes that an operand has to itself.
fn room(bytes: usize) -> usize {
    bytes.next_multiple_of(64)
}

impl Bench {
    /// The kernel of this type in a program that differentiates one operation.
    fn new(case: &Case, threads: usize) -> Bench {
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
        let program = prepare(
            Program::new(graph, schedule::Options { in_place: false, ..Default::default() }),
            threads,
        );
        // The largest of that type: of all updates, the one of the operand that is meant.
        let kernels = program.trace.kernels.iter().enumerate().filter(|(_, k)| k.op == *wanted);
        let step = kernels.max_by_key(|(_, k)| k.writes.iter().map(|u| u.bytes.0).sum::<u64>());
        let step = step.unwrap_or_else(|| panic!("no kernel {wanted}")).0;
        let mut library = Library::new(&program, threads).expect("a prepared program");
        let kernel = &program.trace.kernels[step];
        let operands = || kernel.reads.iter().chain(&kernel.writes).map(|u| program.trace.tensor(u.tensor));
        let sizes: Vec<usize> = operands().map(|tensor| tensor.bytes.0 as usize).collect();
        let mut memory = Pages::new(sizes.iter().map(|size| room(*size)).sum());
        let mut start = 0;
        for (tensor, size) in operands().zip(&sizes) {
            let bytes = &mut memory.bytes()[start..start + size];
            start += room(*size);
            if tensor.role != tiercel_workload::trace::Role::Workspace {
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
        Bench { library, program, step, memory, sizes }
    }

    fn run(&mut self) {
        let kernel = &self.program.trace.kernels[self.step];
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
        self.library.run(&work, &mut views).unwrap_or_else(|e| panic!("{e}"));
    }

    /// Products with their sums count as two, and so does what functions are made of, because it keeps the same units
    /// busy.
    fn flops(&self) -> f64 {
        let (graph, node) = (&self.program.graph, &self.program.graph.nodes[self.step]);
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
    fn bytes(&self) -> f64 {
        let graph = &self.program.graph;
        let node = &graph.nodes[self.step];
        let once = |(id, bytes): (ValueId, tiercel_core::Bytes)| {
            let value = graph.value(id);
            bytes.min(value.shape.bytes(value.dtype)).0 as f64
        };
        cost::reads(graph, node).map(once).sum::<f64>() + cost::writes(graph, node).map(once).sum::<f64>()
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

/// PyTorch in a subprocess: it is sent a case a line, and answers with the seconds of one round.
struct Torch {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Torch {
    fn start(threads: usize) -> Option<Torch> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/torch_bench.py");
        for python in ["python3", "/usr/bin/python3"] {
            let mut process = Command::new(python)
                .args([script, &threads.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .ok()?;
            let (to, from) = (process.stdin.take()?, BufReader::new(process.stdout.take()?));
            let mut torch = Torch { process, to, from };
            let mut line = String::new();
            if torch.from.read_line(&mut line).is_ok() && line.starts_with("ready") {
                eprintln!("PyTorch {}", line.trim_start_matches("ready").trim());
                return Some(torch);
            }
            let _ = torch.process.wait();
        }
        eprintln!("PyTorch cannot be imported; no ratios against it");
        None
    }

    fn round(&mut self, case: &str) -> Option<f64> {
        writeln!(self.to, "{case}").ok()?;
        let mut line = String::new();
        self.from.read_line(&mut line).ok()?;
        line.trim().parse().ok()
    }
}

/// A clock: of this thread's own time where one thread works, so that others on the machine do not count, and of the
/// wall otherwise.
#[derive(Clone, Copy)]
struct Clock {
    own: bool,
    began: Instant,
}

impl Clock {
    fn seconds(self) -> f64 {
        if !self.own {
            return self.began.elapsed().as_secs_f64();
        }
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the system writes the time to where it may.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    }
}

/// Runs something on all threads at once, some rounds, and returns the seconds of the best. One thread reads its own
/// clock.
fn best(threads: usize, rounds: usize, work: impl Fn(usize) + Sync) -> f64 {
    let clock = Clock { own: threads == 1, began: Instant::now() };
    let round = |_| {
        let start = clock.seconds();
        std::thread::scope(|s| {
            (1..threads).for_each(|index| {
                drop(s.spawn({
                    let work = &work;
                    move || work(index)
                }))
            });
            work(0);
        });
        clock.seconds() - start
    };
    (0..rounds).map(round).fold(f64::INFINITY, f64::min)
}

/// What the machine can do at this moment.
struct Machine {
    threads: usize,
    memory: Vec<Mutex<[Pages; 2]>>,
}

impl Machine {
    fn new(threads: usize) -> Machine {
        let memory = (0..threads).map(|_| Mutex::new([0; 2].map(|_| Pages::new((64 << 20) / threads))));
        Machine { threads, memory: memory.collect() }
    }

    /// The best multiply-adds of all threads in some rounds, in operations a second.
    fn peak(&self, rounds: usize) -> f64 {
        const TIMES: usize = 1000;
        let tile = simd::Tile::here();
        let a = vec![0.5f32; 256 * tile.rows];
        let b = vec![0.5f32; 256 * tile.columns()];
        let seconds = best(self.threads, rounds, |_| {
            let mut out = [0f32; simd::Tile::MOST];
            for _ in 0..TIMES {
                simd::product(256, tile.rows, 2, black_box(&a), black_box(&b), &mut out);
            }
            black_box(out);
        });
        (self.threads * TIMES * 2 * 256 * tile.rows * tile.columns()) as f64 / seconds
    }

    /// The best bandwidth of all threads in some rounds: bytes read and written by y = 2 x over much memory.
    fn bandwidth(&self, rounds: usize) -> f64 {
        let seconds = best(self.threads, rounds, |index| {
            let [x, y] = &mut *self.memory[index].lock().expect("one thread each");
            let [x, y]: [&mut [f32]; 2] = [x, y].map(|pages| bytemuck::cast_slice_mut(pages.bytes()));
            y.iter_mut().zip(&*x).for_each(|(y, x)| *y = 2.0 * x);
            black_box(y);
        });
        (2 * self.memory.len() * ((64 << 20) / self.threads)) as f64 / seconds
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let after = |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1));
    let threads: usize = after("--threads").and_then(|t| t.parse().ok()).unwrap_or(2);
    let filter = arguments.first().filter(|a| !a.starts_with("--")).cloned().unwrap_or_default();
    let mut torch = arguments.iter().any(|a| a == "--torch").then(|| Torch::start(threads)).flatten();
    let machine = Machine::new(threads);
    let (peak, bandwidth) = (machine.peak(40), machine.bandwidth(12));
    println!(
        "{threads} threads, {:?}: {:.0} GFLOP/s, {:.1} GB/s",
        simd::level(),
        peak / 1e9,
        bandwidth / 1e9
    );
    println!("{:42} {:>9} {:>9} {:>8} {:>9}", "kernel", "µs", "of floor", "by", "PyTorch ×");
    for case in cases().into_iter().filter(|c| c.name.contains(&filter)) {
        let mut bench = Bench::new(&case, threads);
        let (mut best, mut theirs) = (f64::INFINITY, f64::INFINITY);
        let (mut peak, mut bandwidth) = (0f64, 0f64);
        bench.run();
        let clock = Clock { own: threads == 1, began: Instant::now() };
        for _ in 0..8 {
            (peak, bandwidth) = (peak.max(machine.peak(2)), bandwidth.max(machine.bandwidth(1)));
            let start = clock.seconds();
            let mut runs = 0;
            while runs < 2 || clock.seconds() - start < 0.02 {
                let start = clock.seconds();
                bench.run();
                best = best.min(clock.seconds() - start);
                runs += 1;
            }
            if let (Some(torch), false) = (&mut torch, case.torch.is_empty()) {
                theirs = torch.round(&case.torch).map_or(theirs, |t| theirs.min(t));
            }
        }
        let (compute, memory) = (bench.flops() / peak, bench.bytes() / bandwidth);
        let (floor, by) = if compute > memory { (compute, "compute") } else { (memory, "memory") };
        let ratio = if theirs.is_finite() { format!("{:.2}", theirs / best) } else { "-".into() };
        println!("{:42} {:9.1} {:8.0}% {by:>8} {ratio:>9}", case.name, best * 1e6, 100.0 * floor / best);
    }
    if let Some(mut torch) = torch {
        let _ = writeln!(torch.to, "end");
        let _ = torch.process.wait();
    }
}

//! What every family of kernels reaches of its floor: of the memory's bandwidth or of the processor's multiply-adds,
//! both measured here, and of PyTorch where it can be imported.
//!
//! `cargo bench -p tiercel-run --bench kernels -- [FILTER] [--threads N] [--torch]`. Rounds of all alternatives
//! alternate, and the best round of each counts. With one thread it is that thread's own time that counts, so that the
//! figures mean something on a busy machine. PyTorch runs in a subprocess (`scripts/torch_bench.py`) that times
//! one round for each line that it is sent.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use tiercel_run::kernels::{Library, prepare, simd};
use tiercel_run::{Kernels, View, Work};
use tiercel_workload::graph::{
    Activation, Attention, Builder, Conv, DType, Init, Op, Optimizer, Pool, PoolKind, Shape, ValueId, cost,
};
use tiercel_workload::{Program, schedule};

/// One node of a program with memory for its operands.
struct Bench {
    library: Library,
    program: Program,
    step: usize,
    memory: Vec<Vec<u64>>,
}

impl Bench {
    /// The kernel of this type in a program that differentiates one operation.
    fn new(op: &Op, operands: &[Value], wanted: &str, threads: usize) -> Bench {
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
        b.train(&[loss], if wanted == "adamw" { Optimizer::ADAMW } else { Optimizer::MOMENTUM });
        let graph = b.finish().unwrap_or_else(|e| panic!("{e}"));
        let program = prepare(
            Program::new(graph, schedule::Options { in_place: false, ..Default::default() }),
            threads,
        );
        // The largest of that type: of all updates, the one of the operand that is meant.
        let kernels = program.trace.kernels.iter().enumerate().filter(|(_, k)| k.op == wanted);
        let step = kernels.max_by_key(|(_, k)| k.writes.iter().map(|u| u.bytes.0).sum::<u64>());
        let step = step.unwrap_or_else(|| panic!("no kernel {wanted}")).0;
        let mut library = Library::new(&program, threads).expect("a prepared program");
        let kernel = &program.trace.kernels[step];
        let mut memory = Vec::new();
        for u in kernel.reads.iter().chain(&kernel.writes) {
            let tensor = program.trace.tensor(u.tensor);
            let mut numbers = vec![0u64; tensor.bytes.0.div_ceil(8) as usize + 8];
            let bytes = &mut bytemuck::cast_slice_mut(&mut numbers)[..tensor.bytes.0 as usize];
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
            memory.push(numbers);
        }
        Bench { library, program, step, memory }
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
        let mut memory: Vec<Option<&mut Vec<u64>>> = self.memory.iter_mut().map(Some).collect();
        let mut views: Vec<View<'_>> = distinct
            .iter()
            .map(|(tensor, at, writes)| {
                let len = self.program.trace.tensors[*tensor as usize].bytes.0 as usize;
                let numbers = memory[*at].take().expect("each once");
                let all: &mut [u8] = bytemuck::cast_slice_mut(numbers);
                let skip = all.as_ptr().align_offset(64);
                let bytes = &mut all[skip..skip + len];
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
        };
        self.library.run(&work, &mut views).unwrap_or_else(|e| panic!("{e}"));
    }

    fn flops(&self) -> f64 {
        let node = &self.program.graph.nodes[self.step];
        2.0 * cost::macs(&self.program.graph, node) as f64
    }

    fn bytes(&self) -> f64 {
        let node = &self.program.graph.nodes[self.step];
        let values = node.inputs.iter().chain(&node.outputs);
        let of = |v: &ValueId| {
            let value = self.program.graph.value(*v);
            value.shape.bytes(value.dtype).0 as f64
        };
        values.map(of).sum()
    }
}

#[derive(Clone, Copy)]
enum Value {
    Number(Shape),
    Id(Shape, u64),
    State(Shape),
}

fn n<const N: usize>(dims: [u64; N]) -> Value {
    Value::Number(Shape::from(dims))
}

/// What is measured: a name, what PyTorch calls it, the operation, its operands and the kernel's type.
struct Case {
    name: String,
    torch: String,
    op: Op,
    operands: Vec<Value>,
    kernel: &'static str,
}

/// The three kernels of a convolution: batch, channels from and to, side of the image, window, stride, groups.
fn conv_cases(cases: &mut Vec<Case>, [batch, from, to, side, window, stride, groups]: [u64; 7]) {
    let conv = Conv { padding: [window / 2; 4], stride: [stride; 2], groups, ..Conv::default() };
    let operands = vec![n([batch, from, side, side]), n([to, from / groups, window, window])];
    for (kernel, torch) in
        [("conv", "conv"), ("conv.backward-data", "conv_data"), ("conv.backward-weight", "conv_weight")]
    {
        cases.push(Case {
            name: format!("{kernel} {from}→{to} {side}² {window}x{window}/{stride} g{groups} b{batch}"),
            torch: format!("{torch} {batch} {from} {to} {side} {window} {stride} {groups}"),
            op: Op::Conv(conv),
            operands: operands.clone(),
            kernel,
        });
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for shape in [
        [16, 64, 64, 32, 3, 1, 1],
        [16, 128, 128, 16, 3, 1, 1],
        [16, 256, 256, 8, 3, 1, 1],
        [16, 512, 512, 4, 3, 1, 1],
        [16, 512, 512, 2, 3, 1, 1],
        [4, 64, 64, 56, 3, 1, 1],
        [16, 256, 64, 16, 1, 1, 1],
        [16, 64, 256, 16, 1, 1, 1],
        [16, 1024, 512, 4, 1, 1, 1],
        [16, 128, 128, 16, 3, 2, 1],
        [16, 3, 64, 64, 7, 2, 1],
        [16, 128, 128, 32, 3, 1, 128],
    ] {
        conv_cases(&mut cases, shape);
    }
    let mut add = |name: &str, torch: &str, op: Op, operands: Vec<Value>, kernel: &'static str| {
        cases.push(Case { name: name.into(), torch: torch.into(), op, operands, kernel });
    };
    let linear = vec![n([512, 1024]), n([1024, 1024]), n([1024])];
    add("linear 512x1024x1024", "linear 512 1024 1024", Op::Linear, linear.clone(), "linear");
    add(
        "linear.backward-data",
        "linear_data 512 1024 1024",
        Op::Linear,
        linear.clone(),
        "linear.backward-data",
    );
    add(
        "linear.backward-weight",
        "linear_weight 512 1024 1024",
        Op::Linear,
        linear,
        "linear.backward-weight",
    );
    let small = vec![n([32, 4096]), n([4096, 4096]), n([4096])];
    add("linear 32x4096x4096", "linear 32 4096 4096", Op::Linear, small, "linear");
    let product = Op::MatMul { transpose_a: false, transpose_b: false };
    add("matmul 1024³", "matmul 1024", product, vec![n([1024, 1024]), n([1024, 1024])], "matmul");
    let c = [n([64]), n([64]), Value::State(Shape::from([64])), Value::State(Shape::from([64]))];
    let image = n([16, 64, 56, 56]);
    let norm = Op::BatchNorm { epsilon: 1e-5, momentum: 0.1 };
    let all = [vec![image], c.to_vec()].concat();
    add("batch-norm 16x64x56²", "batch_norm 16 64 56", norm.clone(), all.clone(), "batch-norm");
    add("batch-norm.backward", "batch_norm_back 16 64 56", norm.clone(), all, "batch-norm.backward");
    let c = [n([512]), n([512]), Value::State(Shape::from([512])), Value::State(Shape::from([512]))];
    let all = [vec![n([64, 512, 4, 4])], c.to_vec()].concat();
    add("batch-norm 64x512x4²", "batch_norm 64 512 4", norm.clone(), all.clone(), "batch-norm");
    add("batch-norm.backward 64x512x4²", "batch_norm_back 64 512 4", norm, all, "batch-norm.backward");
    let rows = vec![n([2048, 1024]), n([1024]), n([1024])];
    add(
        "layer-norm 2048x1024",
        "layer_norm 2048 1024",
        Op::LayerNorm { epsilon: 1e-5 },
        rows.clone(),
        "layer-norm",
    );
    add(
        "layer-norm.backward",
        "layer_norm_back 2048 1024",
        Op::LayerNorm { epsilon: 1e-5 },
        rows,
        "layer-norm.backward",
    );
    for (kind, kernel, back, torch) in [
        (Activation::Relu, "relu", "relu.backward", "relu"),
        (Activation::Sigmoid, "sigmoid", "sigmoid.backward", "sigmoid"),
        (Activation::Tanh, "tanh", "tanh.backward", "tanh"),
        (Activation::Gelu, "gelu", "gelu.backward", "gelu"),
        (Activation::GeluTanh, "gelu-tanh", "gelu-tanh.backward", "gelu_tanh"),
    ] {
        add(kernel, &format!("{torch} 16 64 56"), Op::Activate(kind), vec![image], kernel);
        add(back, &format!("{torch}_back 16 64 56"), Op::Activate(kind), vec![image], back);
    }
    let pool = |kind, window, stride, padding| {
        Op::Pool(Pool { kind, window: [window; 2], stride: [stride; 2], padding: [padding; 4], ceil: false })
    };
    add("max-pool 2/2", "max_pool 16 64 56 2 2 0", pool(PoolKind::Max, 2, 2, 0), vec![image], "max-pool");
    add("max-pool 3/2", "max_pool 16 64 56 3 2 1", pool(PoolKind::Max, 3, 2, 1), vec![image], "max-pool");
    add(
        "max-pool.backward 2/2",
        "max_pool_back 16 64 56 2 2 0",
        pool(PoolKind::Max, 2, 2, 0),
        vec![image],
        "max-pool.backward",
    );
    add(
        "max-pool.backward 3/2",
        "max_pool_back 16 64 56 3 2 1",
        pool(PoolKind::Max, 3, 2, 1),
        vec![image],
        "max-pool.backward",
    );
    let mean = PoolKind::Average { count_padding: false };
    add("average-pool 2/2", "avg_pool 16 64 56 2 2 0", pool(mean, 2, 2, 0), vec![image], "average-pool");
    add("average-pool.backward 2/2", "", pool(mean, 2, 2, 0), vec![image], "average-pool.backward");
    add("global-pool", "global_pool 16 64 56", Op::GlobalPool, vec![image], "global-pool");
    add("global-pool.backward", "", Op::GlobalPool, vec![image], "global-pool.backward");
    add("add", "add 16 64 56", Op::Add, vec![image, image], "add");
    add("mul stretched", "mul_stretched 16 64 56", Op::Mul, vec![image, n([16, 64, 1, 1])], "mul");
    add("scale", "", Op::Scale { factor: 2.0 }, vec![image], "scale");
    add("concat", "concat 16 64 56", Op::Concat { axis: 1 }, vec![image, image], "concat");
    add("slice", "", Op::Slice { axis: 1, start: 16, length: 40 }, vec![image], "slice");
    add("split", "", Op::Split { axis: 2, sizes: vec![1024; 3] }, vec![n([4, 256, 3072])], "split");
    add("pad", "", Op::Pad { axis: 1, before: 8, after: 8 }, vec![image], "pad");
    add(
        "transpose 0213",
        "transpose0213 8 256 16 64",
        Op::Transpose { order: vec![0, 2, 1, 3] },
        vec![n([8, 256, 16, 64])],
        "transpose",
    );
    add(
        "transpose 01",
        "transpose01 2048 2048",
        Op::Transpose { order: vec![1, 0] },
        vec![n([2048, 2048])],
        "transpose",
    );
    add("softmax 2048x1024", "softmax 2048 1024", Op::Softmax, vec![n([2048, 1024])], "softmax");
    add("softmax.backward", "softmax_back 2048 1024", Op::Softmax, vec![n([2048, 1024])], "softmax.backward");
    let logits = vec![n([256, 10_000]), Value::Id(Shape::from([256]), 10_000)];
    add(
        "cross-entropy 256x10000",
        "cross_entropy 256 10000",
        Op::CrossEntropy,
        logits.clone(),
        "cross-entropy",
    );
    add("cross-entropy.backward", "", Op::CrossEntropy, logits, "cross-entropy.backward");
    let attention = Op::Attention(Attention { heads: 12, causal: true, dropout: 0.0, seed: 1 });
    let qkv = vec![n([4, 256, 768]); 3];
    add("attention 4x256x768 causal", "attention 4 256 768 12", attention.clone(), qkv.clone(), "attention");
    add("attention.backward", "attention_back 4 256 768 12", attention, qkv, "attention.backward");
    let table = vec![n([50_000, 256]), Value::Id(Shape::from([8192]), 50_000)];
    add(
        "embedding 8192 of 50000x256",
        "embedding 50000 256 8192",
        Op::Embedding { bag: false },
        table.clone(),
        "embedding",
    );
    add("sgd-rows", "", Op::Embedding { bag: false }, table, "sgd-rows");
    add("dropout", "dropout 16 64 56", Op::Dropout { rate: 0.1, seed: 1 }, vec![image], "dropout");
    let cell = vec![n([64, 650]), n([64, 650]), n([64, 650]), n([2600, 650]), n([2600, 650]), n([2600])];
    add("lstm-cell 64x650", "lstm 64 650", Op::LstmCell, cell.clone(), "lstm-cell");
    add("lstm-cell.backward-data", "", Op::LstmCell, cell.clone(), "lstm-cell.backward-data");
    add("lstm-cell.backward-weight", "", Op::LstmCell, cell, "lstm-cell.backward-weight");
    add("dot-interaction 2048x27x16", "", Op::DotInteraction, vec![n([2048, 16]); 27], "dot-interaction");
    add(
        "dot-interaction.backward",
        "",
        Op::DotInteraction,
        vec![n([2048, 16]); 27],
        "dot-interaction.backward",
    );
    add("sgd with momentum", "sgd 2048 2048", Op::Linear, vec![n([1, 2048]), n([2048, 2048])], "sgd");
    add("adamw", "adamw 2048 2048", Op::Linear, vec![n([1, 2048]), n([2048, 2048])], "adamw");
    cases
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

/// The best multiply-adds of all threads, in operations a second.
fn peak(threads: usize) -> f64 {
    let tile = simd::Tile::here();
    let a = vec![0.5f32; 256 * tile.rows];
    let b = vec![0.5f32; 256 * tile.columns()];
    let one = || {
        let mut out = [0f32; simd::Tile::MOST];
        let start = Instant::now();
        for _ in 0..200 {
            simd::product(256, tile.rows, 2, black_box(&a), black_box(&b), &mut out);
        }
        black_box(out);
        200.0 * 2.0 * 256.0 * (tile.rows * tile.columns()) as f64 / start.elapsed().as_secs_f64()
    };
    let best = || (0..400).map(|_| one()).fold(0.0, f64::max);
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..threads).map(|_| s.spawn(best)).collect();
        workers.into_iter().map(|w| w.join().expect("no panic")).sum::<f64>()
    })
}

/// The best bandwidth of all threads: bytes read and written by y = 2 x over much memory.
fn bandwidth(threads: usize) -> f64 {
    let len = 16 << 20;
    let x = vec![1f32; len];
    let mut y = vec![0f32; len];
    let mut best = 0.0;
    for _ in 0..6 {
        let start = Instant::now();
        std::thread::scope(|s| {
            for (x, y) in x.chunks(len / threads).zip(y.chunks_mut(len / threads)) {
                s.spawn(move || y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x));
            }
        });
        black_box(&mut y);
        best = f64::max(best, 8.0 * len as f64 / start.elapsed().as_secs_f64());
    }
    best
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let after = |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1));
    let threads: usize = after("--threads").and_then(|t| t.parse().ok()).unwrap_or(2);
    let filter = arguments.first().filter(|a| !a.starts_with("--")).cloned().unwrap_or_default();
    let mut torch = arguments.iter().any(|a| a == "--torch").then(|| Torch::start(threads)).flatten();
    let (peak, bandwidth) = (peak(threads), bandwidth(threads));
    println!(
        "{threads} threads, {:?}: {:.0} GFLOP/s, {:.1} GB/s",
        simd::level(),
        peak / 1e9,
        bandwidth / 1e9
    );
    println!("{:42} {:>9} {:>9} {:>8} {:>9}", "kernel", "µs", "of floor", "by", "PyTorch ×");
    for case in cases().into_iter().filter(|c| c.name.contains(&filter)) {
        let mut bench = Bench::new(&case.op, &case.operands, case.kernel, threads);
        let (mut best, mut theirs) = (f64::INFINITY, f64::INFINITY);
        bench.run();
        let clock = Clock { own: threads == 1, began: Instant::now() };
        for _ in 0..8 {
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

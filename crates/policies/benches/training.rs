//! Whole training iterations against PyTorch, and where the time goes by family of kernels.
//!
//! `cargo bench -p tiercel-policies --bench training -- [--threads N] [--rounds N]`. ResNet-50 on 64x64 images and VGG-16
//! on 32x32 ones, f32, everything in fast memory. Iterations of both take turns in one run, so that whatever else the
//! machine does hits them alike; the ratio is the median over rounds. PyTorch runs in a subprocess
//! (`scripts/torch_train.py`); without it our own times are printed alone.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use tiercel_core::{Backing, Bytes};
use tiercel_kernels::{Library, prepare};
use tiercel_policies::by_name;
use tiercel_train::{Schedule, Settings, Synthetic, Task, Trainer, room};
use tiercel_workload::{Workload, nets, open};

const BACKWARD: &str = "convolution backward";

/// PyTorch's momentum is made of additions and products, so they cannot be told apart there.
const UPDATE: &str = "add and update";

/// The family that PyTorch's script files a kernel of ours under.
fn family(kind: &str) -> &'static str {
    match kind {
        k if k.starts_with("conv") && (k.contains("backward") || k.contains("grad")) => BACKWARD,
        k if k.starts_with("conv") => "convolution",
        k if k.contains("norm") => "norm",
        k if k.starts_with("linear") || k.starts_with("matmul") => "linear",
        k if k.starts_with("relu") => "activation",
        k if k.contains("pool") => "pooling",
        k if k.starts_with("add") || k.starts_with("accumulate") => UPDATE,
        k if k.starts_with("dropout") => "dropout",
        k if k.contains("entropy") || k.contains("softmax") => "loss",
        "sgd" | "momentum" | "adamw" => UPDATE,
        _ => "other",
    }
}

/// PyTorch in a subprocess: it is told a word a line, and answers with a line.
struct Torch {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Torch {
    fn start(threads: usize) -> Option<Torch> {
        // From the root of the project where the program was built elsewhere.
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/torch_train.py");
        let script = if Path::new(here).exists() { here } else { "scripts/torch_train.py" };
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
            match torch.line() {
                Some(line) if line.starts_with("ready") => {
                    println!("PyTorch {}", line.trim_start_matches("ready").trim());
                    return Some(torch);
                }
                _ => drop(torch.process.wait()),
            }
        }
        println!("PyTorch cannot be imported; no ratios against it");
        None
    }

    fn ask(&mut self, question: &str) -> Option<String> {
        writeln!(self.to, "{question}").ok()?;
        self.line()
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.from.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        Some(line.trim().to_string())
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn race(net: &str, batch: u64, image: u64, threads: usize, rounds: usize, torch: &mut Option<Torch>) {
    let options = nets::NetOptions { batch: Some(batch), image: Some(image), ..nets::NetOptions::default() };
    let Ok(Workload::Program { program, batch }) = open(net, &options) else { panic!("{net} is built in") };
    let task = Task::new(program, batch, |program| prepare(program, threads));
    let trace = &task.training.trace;
    let machine = room::machine(trace, room::ample(trace, Bytes::kib(4)), Backing::Dram);
    let policy = by_name("fast-only").expect("built in");
    let settings = Settings { seed: 0, schedule: Schedule::Constant, lookahead: 0 };
    let library = |program: &_| Library::new(program, threads);
    let mut trainer =
        Trainer::new(&task, &machine, policy, Box::new(Synthetic), settings, library).expect("room for it");
    let mut step = || {
        let start = Instant::now();
        trainer.iterate().expect("it trains");
        start.elapsed().as_secs_f64()
    };
    if let Some(torch) = torch {
        let parameters = torch.ask(&format!("{net} {batch}"));
        println!(
            "\n{net}, batch {batch}, {image}x{image}: {} parameters there",
            parameters.expect("PyTorch lives")
        );
    }
    let mut theirs = || torch.as_mut().and_then(|t| t.ask("step")).and_then(|t| t.parse::<f64>().ok());
    let (mut ours, mut others, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let (mine, other) = (step(), theirs());
        // The first round warms up.
        if round > 0 {
            ours.push(mine);
            others.extend(other);
            ratios.extend(other.map(|other| other / mine));
        }
    }
    print!("{net}: {:.1} samples/s", batch as f64 / median(&mut ours));
    match ratios.is_empty() {
        true => println!(),
        false => println!(
            ", PyTorch {:.1}; throughput {:.0} % of PyTorch's",
            batch as f64 / median(&mut others),
            100.0 * median(&mut ratios)
        ),
    }
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    trainer.record_times();
    for _ in 0..3 {
        trainer.iterate().expect("it trains");
    }
    for line in trainer.take_times().iter() {
        sums.entry(family(&trace.kernel(line.step).op)).or_default().0 += line.least.0 as f64 / 1e9;
    }
    let rows: BTreeMap<String, f64> = (0..3)
        .filter_map(|_| torch.as_mut()?.ask("families"))
        .filter_map(|line| serde_json::from_str(&line).ok())
        .next_back()
        .unwrap_or_default();
    for (name, seconds) in &rows {
        let known =
            ["convolution", BACKWARD, "norm", "linear", "activation", "pooling", "dropout", "loss", UPDATE];
        let name = known.into_iter().find(|k| k == name).unwrap_or("other");
        sums.entry(name).or_default().1 += seconds;
    }
    println!("{:22} {:>9} {:>9} {:>7}", "family", "ms", "PyTorch", "ratio");
    for (family, (mine, other)) in sums {
        println!("{family:22} {:9.2} {:9.2} {:7.2}", mine * 1e3, other * 1e3, other / mine);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: usize| {
        let at = arguments.iter().position(|a| a == name);
        at.and_then(|at| arguments.get(at + 1)).and_then(|n| n.parse().ok()).unwrap_or(default)
    };
    let (threads, rounds) = (number("--threads", 2), number("--rounds", 9));
    let mut torch = Torch::start(threads);
    race("resnet50", 32, 64, threads, rounds, &mut torch);
    race("vgg16", 32, 32, threads, rounds, &mut torch);
    if let Some(mut torch) = torch {
        let _ = writeln!(torch.to, "end");
        let _ = torch.process.wait();
    }
}

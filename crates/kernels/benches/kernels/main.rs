//! What every family of kernels reaches of its floor: of the memory's bandwidth or of the processor's multiply-adds,
//! both measured here, and of PyTorch where it can be imported.
//!
//! `cargo bench -p tiercel-kernels --bench kernels -- [FILTER] [--threads N] [--torch]` times the cases of `cases.rs`;
//! `… --network NET [--batch N] [--image N]` every kernel of a network whose operands have a MiB together, each type and
//! shape once. Rounds of all alternatives alternate with the measuring of the floors, because a machine that is shared
//! is not the same for long: every round has a ratio, and their median counts, beside the best time. Where a kernel seems far
//! from its floor there are more of them, in other memory. With one thread it is that thread's own time that counts, so
//! that the figures mean something on a busy machine. Operands lie one behind the other in huge pages, as in a region.
//! PyTorch runs in a subprocess (`scripts/torch_bench.py`) that times one round for each line that it is sent.

use std::process::ExitCode;

use tiercel_kernels::simd;
use tiercel_workload::nets;

mod cases;
mod machine;
mod subject;
mod torch;

use cases::cases;
use machine::{Clock, Machine};
use subject::{Bench, Subject};
use torch::Torch;

/// Bytes of all operands from which a kernel of a network is timed.
const LEAST: f64 = (1 << 20) as f64;

/// Rounds of a kernel and its floors, and the most where it has not come near: a busy moment lasts longer than a few.
const ROUNDS: usize = 8;
const MOST: usize = 40;
const GOOD: f64 = 0.55;

/// What is asked for on the command line.
struct Asked(Vec<String>);

impl Asked {
    fn after(&self, name: &str) -> Option<&str> {
        let at = self.0.iter().position(|a| a == name)?;
        self.0.get(at + 1).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.after(name)?.parse().ok()
    }

    fn filter(&self) -> &str {
        self.0.first().filter(|a| !a.starts_with("--")).map_or("", String::as_str)
    }
}

/// Times a kernel and prints what it reaches; `theirs` is a case for PyTorch.
fn time(
    (subject, step, name): (&mut Subject, usize, &str),
    (machine, threads): (&mut Machine, usize),
    mut theirs: Option<(&mut Torch, &str)>,
) {
    let (flops, bytes) = (subject.flops(step), subject.bytes(step));
    let mut bench = Bench::new(subject, step);
    machine.have(bytes as usize);
    let (mut best, mut other) = (f64::INFINITY, f64::INFINITY);
    // What every round reaches of either floor.
    let mut reached: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    bench.run();
    let clock = Clock::new(threads);
    for round in 0..MOST {
        if round >= ROUNDS && reached.iter().any(|some| median(some) > GOOD) {
            break;
        }
        if round > 0 && round.is_multiple_of(ROUNDS) {
            // Some memory is faster than other memory, and the floors may have been given the faster: now others have it.
            drop(bench);
            machine.renew();
            bench = Bench::new(subject, step);
            bench.run();
        }
        let floors = [flops / machine.peak(2), bytes / machine.bandwidth(1)];
        let (start, mut runs, mut time) = (clock.seconds(), 0, f64::INFINITY);
        while runs < 2 || clock.seconds() - start < 0.02 {
            let start = clock.seconds();
            bench.run();
            time = time.min(clock.seconds() - start);
            runs += 1;
        }
        best = best.min(time);
        reached.iter_mut().zip(floors).for_each(|(reached, floor)| reached.push(floor / time));
        if let Some((torch, case)) = &mut theirs {
            other = torch.round(case).map_or(other, |t| other.min(t));
        }
    }
    let [compute, memory] = reached.each_ref().map(|some| median(some));
    let (most, by) = if compute > memory { (compute, "compute") } else { (memory, "memory") };
    let ratio = if other.is_finite() { format!("{:.2}", other / best) } else { "-".into() };
    println!("{name:42} {:9.1} {:8.0}% {by:>8} {ratio:>9}", best * 1e6, 100.0 * most);
}

/// The middle of some figures: neither a busy moment of the kernel nor one of the floors counts.
fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn main() -> ExitCode {
    let asked = Asked(std::env::args().skip(1).filter(|a| a != "--bench").collect());
    let threads = asked.number("--threads").unwrap_or(2) as usize;
    let mut machine = Machine::new(threads);
    let (peak, bandwidth) = (machine.peak(40), machine.bandwidth(12));
    println!(
        "{threads} threads, {:?}: {:.0} GFLOP/s, {:.1} GB/s",
        simd::level(),
        peak / 1e9,
        bandwidth / 1e9
    );
    println!("{:42} {:>9} {:>9} {:>8} {:>9}", "kernel", "µs", "of floor", "by", "PyTorch ×");
    if let Some(name) = asked.after("--network") {
        let Some(net) = nets::find(name) else {
            eprintln!("there is no network {name}");
            return ExitCode::FAILURE;
        };
        let options = nets::NetOptions {
            batch: asked.number("--batch"),
            image: asked.number("--image"),
            ..Default::default()
        };
        let mut subject = match Subject::of_network(net, options, threads) {
            Ok(subject) => subject,
            Err(error) => {
                eprintln!("{name}: {error}");
                return ExitCode::FAILURE;
            }
        };
        for (step, name) in subject.kernels(LEAST) {
            if name.contains(asked.filter()) {
                time((&mut subject, step, &name), (&mut machine, threads), None);
            }
        }
        return ExitCode::SUCCESS;
    }
    let mut torch = asked.0.iter().any(|a| a == "--torch").then(|| Torch::start(threads)).flatten();
    for case in cases().into_iter().filter(|c| c.name.contains(asked.filter())) {
        let (mut subject, step) = Subject::of_case(&case, threads);
        let theirs = torch.as_mut().filter(|_| !case.torch.is_empty()).map(|torch| (torch, &*case.torch));
        time((&mut subject, step, &case.name), (&mut machine, threads), theirs);
    }
    if let Some(torch) = torch {
        torch.end();
    }
    ExitCode::SUCCESS
}

//! Training with the slow tier on a disk: how long kernels wait for it, and how much of that no overlap could avoid.
//!
//! `cargo run --release -p tiercel-policies --example spill -- [FOLDER] [PERCENT] [NET]...`. Every network trains under
//! several policies with so little fast memory, the rest in a file in the folder. The disk's speed is measured with both
//! directions at once; what the bytes of an iteration take at that speed beyond the time of its kernels is the wait that
//! is due to bandwidth alone.

use std::time::Duration;

use tiercel_core::{Backend, Backing, Bandwidth, Bytes, CopyOrder, Machine, Nanos, Place, Policy, TierId};
use tiercel_kernels::{Library, prepare};
use tiercel_plan::{Effort, Formulation, arranged};
use tiercel_policies::{Follow, by_name};
use tiercel_profile::Measured;
use tiercel_run::{Host, Iteration, Profile};
use tiercel_train::{Settings, Synthetic, Task, Trainer, room};
use tiercel_workload::{Lifetimes, nets};

const THREADS: usize = 2;

/// Policies, and how many kernels ahead they hear of reads and writes.
const AHEAD: [(&str, usize); 3] = [("cachedarrays-lm", 0), ("cachedarrays-lmp", 4), ("cachedarrays-lmp", 16)];

/// Iterations of which the median counts; one more warms up.
const ROUNDS: usize = 5;

/// The networks by default: a CNN and a GPT, with options that take seconds on two cores.
fn options(net: &str) -> nets::NetOptions {
    let none = nets::NetOptions::default();
    match net {
        "gpt2" => nets::NetOptions {
            batch: Some(8),
            sequence: Some(256),
            depth: Some(6),
            width: Some(384),
            words: Some(256),
            ..none
        },
        _ => nets::NetOptions { batch: Some(16), image: Some(64), ..none },
    }
}

/// Bytes a second from the file and to it, while the other direction is busy too.
fn disk(machine: &Machine) -> [f64; 2] {
    let size = Bytes(machine.tiers[0].capacity.0.min(machine.tiers[1].capacity.0) / 2 / 4096 * 4096);
    let mut host = Host::open(machine).expect("room in memory and on the disk");
    let place = |tier, half: u64| Place { tier: TierId(tier), offset: Bytes(half * size.0) };
    let mut speeds = [0f64; 2];
    let order = |from, to| CopyOrder { from, to, bytes: size, after: &[] };
    // What has never been written is not read from the disk.
    for half in [0, 1] {
        let ticket = host.copy(order(place(0, half), place(1, half)));
        host.wait(ticket).expect("the disk works");
    }
    for _ in 0..4 {
        let began = host.now();
        let there = [order(place(1, 0), place(0, 0)), order(place(0, 1), place(1, 1))].map(|o| host.copy(o));
        for (speed, ticket) in speeds.iter_mut().zip(there) {
            host.wait(ticket).expect("the disk works");
            let span = host.span(ticket).expect("it has moved");
            *speed = speed.max(size.0 as f64 / (span.ended.0 - began.0) as f64 * 1e9);
            host.forget(ticket);
        }
    }
    speeds
}

/// The median iteration under a policy.
fn train(
    task: &Task,
    machine: &Machine,
    policy: Box<dyn Policy>,
    lookahead: usize,
) -> (Iteration, Nanos, Profile) {
    let settings = Settings { lookahead, ..Settings::default() };
    let library = |program: &_| Library::new(program, THREADS);
    let mut trainer =
        Trainer::new(task, machine, policy, Box::new(Synthetic), settings, library).expect("room for it");
    trainer.iterate().expect("it trains");
    trainer.record_times();
    let mut all: Vec<Iteration> =
        (0..ROUNDS).map(|_| trainer.iterate().expect("it trains").figures).collect();
    all.sort_by_key(|figures| figures.time);
    let times = trainer.take_times();
    let kernels = Nanos(times.iter().map(|line| line.total.0).sum::<u64>() / ROUNDS as u64);
    (all[ROUNDS / 2], kernels, times)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or("/tmp".into());
    let percent: u64 = arguments.next().and_then(|p| p.parse().ok()).unwrap_or(20);
    let mut nets: Vec<String> = arguments.collect();
    if nets.is_empty() {
        nets = ["resnet50", "gpt2"].map(String::from).to_vec();
    }
    for name in nets {
        let (net, options) = (nets::find(&name).expect("built in"), options(&name));
        let program = net.build(&options).expect("its own sizes are sound");
        let task = Task::new(program, net.batch(&options), |program| prepare(program, THREADS));
        let trace = &task.training.trace;
        let peak = Lifetimes::new(trace).peak().1;
        let mut machine = room::machine(trace, Bytes::mib(1), Backing::File(folder.clone()));
        let least = room::working_set(trace, machine.grain()).1;
        let fast = Bytes(peak.0 * percent / 100).round_up(machine.grain()).expect("it fits").max(least);
        machine = machine.with_capacity(TierId(0), fast);
        let [read, write] = disk(&machine);
        machine.links[0].curve = vec![(1, Bandwidth(write))];
        machine.links[1].curve = vec![(1, Bandwidth(read))];
        println!(
            "{name}: peak {peak}, fast {fast} ({:.0} %), disk reads {:.2} and writes {:.2} GB/s at once",
            fast.0 as f64 / peak.0 as f64 * 100.0,
            read / 1e9,
            write / 1e9
        );
        println!(
            "  {:24} {:>9} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9}",
            "policy", "iteration", "kernels", "stalled", "fetched", "evicted", "disk", "due"
        );
        let row = |what: &str, (figures, kernels): (Iteration, Nanos)| {
            let time = figures.time.0 as f64;
            let disk = (figures.fetched.0 as f64 / read).max(figures.evicted.0 as f64 / write) * 1e9;
            let due = (disk - kernels.0 as f64).max(0.0);
            println!(
                "  {what:24} {:7.0}ms {:7.0}ms {:7.1}% {:>9} {:>9} {:7.0}ms {:7.1}%",
                time / 1e6,
                kernels.0 as f64 / 1e6,
                figures.stall.0 as f64 / time * 100.0,
                figures.fetched.to_string(),
                figures.evicted.to_string(),
                disk / 1e6,
                due / (due + kernels.0 as f64) * 100.0
            );
        };
        let ample = machine.clone().with_capacity(TierId(0), room::ample(trace, machine.grain()));
        let policy = |name: &str| by_name(name).expect("built in");
        let (figures, kernels, profile) = train(&task, &ample, policy("fast-only"), 0);
        row("fast-only", (figures, kernels));
        for (name, lookahead) in AHEAD {
            let (figures, kernels, _) = train(&task, &machine, policy(name), lookahead);
            row(&format!("{name}, {lookahead} ahead"), (figures, kernels));
        }
        let times = Measured::of_run(trace, &profile);
        let effort = Effort { time: Duration::from_secs(5), ..Effort::default() };
        match arranged(trace, &machine, &times, Formulation::Asynchronous, &effort) {
            Err(error) => println!("  no plan: {error}"),
            Ok(arranged) => match Follow::new(&arranged.plan, trace, &machine) {
                Err(error) => println!("  the plan cannot be played: {error}"),
                Ok(policy) => {
                    let (figures, kernels, _) = train(&task, &machine, Box::new(policy), 0);
                    row("planned", (figures, kernels));
                }
            },
        }
    }
}

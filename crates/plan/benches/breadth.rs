//! How far the default solver gets on networks, machines and amounts of fast memory beyond AutoTM's.
//!
//! `cargo bench -p tiercel-plan --bench breadth -- [SECONDS [MACHINE [NETWORK]]]`
//!
//! Every case is solved to a gap of 1 % or for the seconds given (10). A line is printed for each, and at the end how
//! many closed within a second, within the time, and not. With `exact` for SECONDS the solver is HiGHS, for a minute.

use std::time::Duration;

use tiercel_core::{Bytes, TierId};
use tiercel_plan::{Effort, Formulation, Plan, Problem, solver, verify};
use tiercel_profile::{Model, machines};
use tiercel_sim::KernelTime;
use tiercel_workload::{Lifetimes, nets};

const NETS: [(&str, Option<u64>); 17] = [
    ("vgg16", Some(1024)),
    ("vgg19", Some(2048)),
    ("vgg116", Some(64)),
    ("resnet50", Some(1024)),
    ("resnet152", Some(512)),
    ("resnet32", None),
    ("mobilenet", Some(1024)),
    ("inception-v3", Some(512)),
    ("densenet264", Some(256)),
    ("gpt2", None),
    ("bert-large", None),
    ("dcgan", None),
    ("lstm", None),
    ("dlrm", None),
    ("mlp", None),
    ("cnn", None),
    ("vgg416", Some(64)),
];
const MACHINES: [&str; 6] = ["optane-autotm", "optane-sentinel", "redl", "cxl", "h200", "optane-4tier"];
/// The fastest tier's part of what lives at the peak, in percent.
const PERCENT: [u64; 5] = [5, 11, 20, 33, 50];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let first = words.first().map_or("10", String::as_str);
    let solver = solver::named(if first == "exact" { "exact" } else { "fast" }).expect("it is there");
    let seconds = first.parse().unwrap_or(60.0);
    let wanted = |at: usize, name: &str| words.get(at).is_none_or(|word| word == "all" || word == name);
    println!(
        "machine          network        plan           fast  tensors  seconds   of CPU     gap    cost"
    );
    let (mut quick, mut slow, mut open) = (0, 0, 0);
    for name in MACHINES.into_iter().filter(|name| wanted(1, name)) {
        let machine = machines::named(name).expect("it ships with the project");
        let times = Model::new(&machine).expect("the machine has fitted kernels");
        for (net, batch) in NETS.into_iter().filter(|(net, _)| wanted(2, net)) {
            let options = nets::NetOptions { batch, ..nets::NetOptions::default() };
            let program = nets::find(net).expect("built in").build(&options).expect("sound sizes");
            let trace = &program.trace;
            let (_, peak) = Lifetimes::new(trace).peak();
            for formulation in [Formulation::Static, Formulation::Synchronous] {
                for percent in PERCENT {
                    let mut machine = machine.clone().with_capacity(TierId(0), Bytes(peak.0 * percent / 100));
                    // What is to be planned must fit somewhere.
                    let last = TierId(machine.tiers.len() as u8 - 1);
                    let there = machine.tier(last).capacity;
                    machine = machine.with_capacity(last, there.max(Bytes(2 * peak.0)));
                    let Ok(problem) = Problem::new(trace, &machine, &times as &dyn KernelTime, formulation)
                    else {
                        continue;
                    };
                    let effort = Effort { time: Duration::from_secs_f64(seconds), ..Effort::default() };
                    let kind = formulation.to_string();
                    let head = format!("{name:16} {net:14} {kind:14} {percent:3} %");
                    let before = processor_seconds();
                    let solution = match solver.solve(&problem, &effort) {
                        Ok(solution) => solution,
                        Err(error) => {
                            println!("{head} {error}");
                            open += 1;
                            continue;
                        }
                    };
                    let busy = processor_seconds() - before;
                    let plan = Plan::new(trace, &machine, &problem, &solution);
                    verify(&plan, trace, &machine).unwrap_or_else(|flaw| panic!("{head}: {flaw}"));
                    let fast = Problem::uniform(trace, &machine, &times, TierId(0));
                    let took = solution.time.as_secs_f64();
                    println!(
                        "{head} {:8} {took:8.3} {busy:8.3} {:6.2} % {:7.3}",
                        problem.decisions(),
                        100.0 * solution.gap(),
                        solution.cost / fast
                    );
                    *match (solution.met, took <= 1.0) {
                        (true, true) => &mut quick,
                        (true, false) => &mut slow,
                        (false, _) => &mut open,
                    } += 1;
                }
            }
        }
    }
    println!("{quick} within a second, {slow} within {seconds} seconds, {open} not");
}

/// Seconds that this thread has run on a processor, where the system says so.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}

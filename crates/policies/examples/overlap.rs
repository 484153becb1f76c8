//! How near asynchronous plans come to having all memory fast: planned and simulated, on a paper's machine.
//!
//! `cargo run --release -p tiercel-policies --example overlap -- [MACHINE] [PERCENT] [NET[:BATCH]]...`

use std::time::{Duration, Instant};

use tiercel_core::{Bytes, Manager, TierId};
use tiercel_plan::{Effort, Formulation, Problem, arranged};
use tiercel_policies::Follow;
use tiercel_profile::{Model, machines};
use tiercel_run::Executor;
use tiercel_sim::Sim;
use tiercel_workload::{Lifetimes, nets};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let machine = arguments.next().unwrap_or("optane-autotm".into());
    let percent: u64 = arguments.next().and_then(|p| p.parse().ok()).unwrap_or(20);
    let mut cases: Vec<String> = arguments.collect();
    if cases.is_empty() {
        let own =
            ["vgg19:2048", "inception-v4-autotm:1024", "resnet200-autotm:512", "densenet264-autotm:512"];
        cases = own.map(String::from).to_vec();
    }
    let machine = machines::named(&machine).expect("a machine that ships with the project");
    let times = Model::new(&machine).expect("the machine has fitted kernels");
    println!(
        "{:24} {:>9} {:>9} {:>9} {:>8} {:>9} {:>8}",
        "network", "all fast", "planned", "simulated", "bound", "deviates", "s"
    );
    let mut product = 1.0;
    for case in &cases {
        let (name, batch) = case.split_once(':').map_or((case.as_str(), None), |(n, b)| (n, b.parse().ok()));
        let options = nets::NetOptions { batch, ..nets::NetOptions::default() };
        let program = nets::find(name).expect("built in").build(&options).expect("its own sizes are sound");
        let trace = &program.trace;
        let (_, peak) = Lifetimes::new(trace).peak();
        let fast = Problem::uniform(trace, &machine, &times, TierId(0));
        let machine = machine.clone().with_capacity(TierId(0), Bytes(peak.0 * percent / 100));
        let began = Instant::now();
        let effort = Effort { time: Duration::from_secs(10), ..Effort::default() };
        let plan =
            arranged(trace, &machine, &times, Formulation::Asynchronous, &effort).expect("a plan").plan;
        let took = began.elapsed();
        let mut policy = Follow::new(&plan, trace, &machine).expect("the plan can be played");
        let sim = Sim::with_times(machine.clone(), times.clone());
        let mut manager = Manager::new(machine.clone(), sim);
        let link = |from, to| machine.link(TierId(from), TierId(to)).expect("there is a link").speed().0;
        let mut executor = Executor::new(trace);
        executor.iterate(&mut manager, &mut policy).expect("the first iteration");
        let figures = executor.iterate(&mut manager, &mut policy).expect("the second iteration");
        let simulated = figures.time.0 as f64 / fast;
        product *= simulated;
        println!(
            "{name:24} {:8.2}s {:9.3} {:9.3} {:8.3} {:9} {:8.2} {:7.3} {:7.3} {:7.3}",
            fast / 1e9,
            plan.iteration_ns / fast,
            simulated,
            plan.bound_ns / fast,
            policy.deviations(),
            took.as_secs_f64(),
            figures.stall.0 as f64 / fast,
            figures.fetched.0 as f64 / link(1, 0) * 1e9 / fast,
            figures.evicted.0 as f64 / link(0, 1) * 1e9 / fast,
        );
    }
    println!("geometric mean {:.3}", product.powf(1.0 / cases.len() as f64));
}

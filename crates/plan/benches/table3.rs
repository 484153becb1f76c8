//! AutoTM's Table 3: solving time and gap on the modelled machine of the paper, ours beside the paper's time.
//!
//! `cargo bench -p tiercel-plan --bench table3`
//!
//! The paper's times are Gurobi's, to a gap of 1 %, all solves of a case together; ours is one solve on one thread, to
//! the same gap or ten seconds; on a busy machine the seconds of processor time say more. *Cost* is the planned iteration over one with all tensors in fast memory.

use std::time::Duration;

use tiercel_core::{Bytes, TierId};
use tiercel_plan::{Effort, Formulation, Plan, Problem, solve, verify};
use tiercel_profile::{Model, machines};
use tiercel_workload::{Lifetimes, nets};

/// Network, batch, and the paper's seconds at 8:1, 4:1 and 1:1, static and synchronous.
const CASES: [(&str, u64, [[f64; 3]; 2]); 4] = [
    ("vgg19", 2048, [[0.40, 0.70, 0.82], [2.5, 1.7, 0.94]]),
    ("inception-v4-autotm", 1024, [[37.9, 16.4, 13.7], [50.3, 15.3, 16.4]]),
    ("resnet200-autotm", 512, [[2846.0, 3105.0, 91.9], [710.0, 571.0, 79.9]]),
    ("densenet264-autotm", 512, [[3307.0, 2727.0, 2582.0], [1448.0, 2021.0, 1404.0]]),
];

fn main() {
    let machine = machines::named("optane-autotm").expect("it ships with the project");
    let times = Model::new(&machine).expect("the machine has fitted kernels");
    println!("network              plan           ratio   paper s    ours s    of CPU     gap    cost");
    for (name, batch, paper) in CASES {
        let options = nets::NetOptions { batch: Some(batch), ..nets::NetOptions::default() };
        let program = nets::find(name).expect("built in").build(&options).expect("its own sizes are sound");
        let trace = &program.trace;
        let (_, peak) = Lifetimes::new(trace).peak();
        let fast = Problem::uniform(trace, &machine, &times, TierId(0));
        for (formulation, paper) in [Formulation::Static, Formulation::Synchronous].into_iter().zip(paper) {
            for (ratio, paper) in [8, 4, 1].into_iter().zip(paper) {
                let machine = machine.clone().with_capacity(TierId(0), Bytes(peak.0 / (ratio + 1)));
                let problem = Problem::new(trace, &machine, &times, formulation).expect("all tiers compute");
                let effort = Effort { time: Duration::from_secs(10), ..Effort::default() };
                let before = processor_seconds();
                let solution = solve(&problem, &effort).expect("the slow tier holds everything");
                let busy = processor_seconds() - before;
                let plan = Plan::new(trace, &machine, &problem, &solution);
                verify(&plan, trace, &machine).unwrap_or_else(|flaw| panic!("{flaw}"));
                println!(
                    "{name:20} {formulation:14} {ratio}:1 {paper:11.2} {:9.3} {busy:9.3} {:6.2} % {:7.3}",
                    solution.time.as_secs_f64(),
                    100.0 * solution.gap(),
                    solution.cost / fast,
                    formulation = formulation.to_string(),
                );
            }
        }
    }
}

/// Seconds that this thread has run on a processor, where the system says so.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}

//! Temporary.
use std::time::Duration;
use tiercel_core::{Bytes, TierId};
use tiercel_plan::{Effort, Formulation, Plan, Problem, solver};
use tiercel_profile::{Model, machines};
use tiercel_workload::{Lifetimes, TensorId, nets};
fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let percent: u64 = words[0].parse().unwrap();
    let machine = machines::named("optane-autotm").unwrap();
    let times = Model::new(&machine).unwrap();
    let options = nets::Options { batch: Some(2048), ..nets::Options::default() };
    let program = nets::find("vgg19").unwrap().build(&options).unwrap();
    let trace = &program.trace;
    let life = Lifetimes::new(trace);
    let (_, peak) = life.peak();
    let machine = machine.with_capacity(TierId(0), Bytes(peak.0 * percent / 100));
    println!("peak {} fast {} kernels {}", peak, machine.tiers[0].capacity, trace.kernels.len());
    let problem = Problem::new(trace, &machine, &times, Formulation::Static).unwrap();
    let plans: Vec<Plan> = ["fast", "exact"].iter().map(|s| {
        let effort = Effort { gap: 0.0001, time: Duration::from_secs(1), ..Effort::default() };
        let s = solver::named(s).unwrap().solve(&problem, &effort).unwrap();
        println!("{:.5e} {:.5e}", s.cost, s.bound);
        Plan::new(trace, &machine, &problem, &s)
    }).collect();
    for (at, t) in trace.tensors.iter().enumerate() {
        let l = life.of(TensorId(at as u32)).unwrap();
        let _ = 0;
        let slow: Vec<bool> = plans.iter().map(|p| p.births.iter().any(|b| b.tensor == t.name)).collect();
        if slow[0] != slow[1] { println!("{:40} {:>8.4} GB {:3}..{:3} {} {} {}", t.name, t.bytes.0 as f64/1e9, l.birth.0, l.last.0, if slow[0] {"-"} else {"FAST"}, if slow[1] {"-"} else {"FAST"}, if slow[0]!=slow[1] {"<<<"} else {""}); }
    }
}

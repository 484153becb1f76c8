use std::time::Duration;
use tiercel_core::Bytes;
use tiercel_profile::{Model, machines};
use tiercel_systems::planning::Planner;
use tiercel_systems::{Fast, Options, Setting, Times, named, simulate, simulate_prepared, Recording};
use tiercel_workload::{Lifetimes, nets};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let machine = machines::named("optane-autotm").unwrap();
    let times = Times::new(Model::new(&machine).unwrap());
    let program = nets::find(&a[1]).unwrap().build(&nets::Options::default()).unwrap();
    let fast: Fast = a[2].parse().unwrap();
    let little = fast.machine(&program.trace, &machine);
    let goal = simulate(named("fast-only").unwrap(), &Setting::of(&program, &machine, &times), 1).unwrap().time().0 as f64;
    let early = program.updating_early();
    for (n, p) in [("plain", &program), ("early", &early)] {
        let f = little.tiers[0].capacity.0;
        println!("{n}: fast {f} peak {}", Lifetimes::new(&p.trace).peak().1);
        for share in [0u64, 2, 4, 6, 8, 12, 16, 24] {
            let q = if share == 0 { Some(p.clone()) } else { p.in_parts(Bytes((f / share).max(2 << 20))) };
            let Some(q) = q else { println!("  1/{share}: none"); continue };
            let options = Options { time: Duration::MAX, rounds: 2, ..Options::default() };
            let setting = Setting::of(&q, &little, &times).with(options);
            let work: f64 = tiercel_plan::recompute::fastest(&q.trace.kernels, &machine, &times).iter().sum();
            match Planner::Asynchronous.plan(&setting) {
                Ok(planned) => {
                    let (c, b) = (planned.plan.iteration_ns, planned.plan.bound_ns);
                    let prepared = tiercel_systems::planning::play(planned, &q.trace, &little).unwrap();
                    let run = simulate_prepared("x", prepared, &setting, 1, Recording::Off).unwrap();
                    println!("  1/{share}: kernels {} work {:.3} bound {:.3} planned {:.3} played {:.3} peak {}", q.trace.kernels.len(), work / goal, b / goal, c / goal, run.time().0 as f64 / goal, Lifetimes::new(&q.trace).peak().1);
                }
                Err(e) => println!("  1/{share}: {e}"),
            }
        }
    }
}

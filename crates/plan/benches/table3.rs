//! AutoTM's Table 3: solving time and gap, ours beside the paper's.
//!
//! `cargo bench -p tiercel-plan --bench table3`

use tiercel_core::{Bytes, Machine, TierId};
use tiercel_plan::{Effort, Formulation, Problem, solve};
use tiercel_run::Roofline;
use tiercel_workload::{Lifetimes, nets};

const MACHINE: &str = r#"
name = "optane"
[compute]
threads = 24
gflops = 2500.0
[[tier]]
name = "dram"
capacity = "384 GiB"
read = "104 GB/s"
write = "80 GB/s"
[[tier]]
name = "pmm"
capacity = "4 TiB"
read = "39 GB/s"
write = "13 GB/s"
[[link]]
from = "dram"
to = "pmm"
threads = 1
bandwidth = { 1 = "12 GB/s" }
[[link]]
from = "pmm"
to = "dram"
threads = 1
bandwidth = { 1 = "29 GB/s" }
"#;

fn main() {
    let machine = Machine::parse(MACHINE).expect("a sound machine");
    let networks = [
        ("vgg19", 2048),
        ("inception-v4-autotm", 1024),
        ("resnet200-autotm", 512),
        ("densenet264-autotm", 512),
    ];
    for (name, batch) in networks {
        let options = nets::Options { batch: Some(batch), ..nets::Options::default() };
        let program = nets::find(name).expect("built in").build(&options).expect("sound");
        let (_, peak) = Lifetimes::new(&program.trace).peak();
        let fast = Problem::uniform(&program.trace, &machine, &Roofline, TierId(0));
        let slow = Problem::uniform(&program.trace, &machine, &Roofline, TierId(1));
        println!("{name}: all fast {:.1} s, all slow {:.1} s", fast / 1e9, slow / 1e9);
        for formulation in [Formulation::Static, Formulation::Synchronous] {
            for ratio in [8, 4, 1] {
                let machine = machine.clone().with_capacity(TierId(0), Bytes(peak.0 / (ratio + 1)));
                let began = std::time::Instant::now();
                let problem = Problem::new(&program.trace, &machine, &Roofline, formulation).expect("sound");
                let building = began.elapsed();
                match solve(
                    &problem,
                    &Effort { time: std::time::Duration::from_secs(2), ..Effort::default() },
                ) {
                    None => println!("  {formulation:?} {ratio}:1 no plan"),
                    Some(s) => println!(
                        "  {formulation:?} {ratio}:1 build {:.3} s solve {:.3} s gap {:.2} % cost {:.2} of all fast",
                        building.as_secs_f64(),
                        s.time.as_secs_f64(),
                        s.gap() * 100.0,
                        s.cost / fast
                    ),
                }
            }
        }
    }
}

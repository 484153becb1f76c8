//! Temporary.
use std::time::Duration;
use tiercel_core::{Bytes, TierId};
use tiercel_plan::{Effort, Formulation, Problem, solve};
use tiercel_profile::{Model, machines};
use tiercel_workload::{Lifetimes, nets};
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}
fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let seeds: u64 = words[1].parse().unwrap();
    let which = words.get(2).map_or("both", String::as_str);
    let machine = machines::named(words.get(3).map_or("optane-autotm", String::as_str)).unwrap();
    let times = Model::new(&machine).unwrap();
    for net in words[0].split(',') {
        let (net, batch) = net.split_once(':').map_or((net, None), |(n, b)| (n, b.parse().ok()));
        let options = nets::Options { batch, ..nets::Options::default() };
        let program = nets::find(net).unwrap().build(&options).unwrap();
        let trace = &program.trace;
        let (_, peak) = Lifetimes::new(trace).peak();
        for f in [Formulation::Static, Formulation::Synchronous] {
            if which != "both" && !f.to_string().contains(which) {
                continue;
            }
            for r in [8, 4, 1] {
                let machine = machine.clone().with_capacity(TierId(0), Bytes(peak.0 / (r + 1)));
                let Ok(problem) = Problem::new(trace, &machine, &times, f) else { continue };
                let mut ts: Vec<f64> = (0..seeds)
                    .map(|seed| {
                        let b = cpu();
                        let s = solve(&problem, &Effort { gap: 0.01, time: Duration::from_secs(20), seed })
                            .unwrap();
                        let t = cpu() - b;
                        if s.met { t } else { 99.0 }
                    })
                    .collect();
                ts.sort_by(f64::total_cmp);
                println!(
                    "{net:20} {f:14} {r}:1 mean {:.3} median {:.3} max {:.3}",
                    ts.iter().sum::<f64>() / seeds as f64,
                    ts[ts.len() / 2],
                    ts[ts.len() - 1]
                );
            }
        }
    }
}

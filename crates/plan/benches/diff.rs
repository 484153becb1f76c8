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
    // net:batch,... ; mode dual|seeds=N ; static|sync|both ; percents ; machine
    let mode = words[1].as_str();
    let which = words.get(2).map_or("both", String::as_str);
    let percents: Vec<u64> =
        words.get(3).map_or("11,20,50", String::as_str).split(',').map(|p| p.parse().unwrap()).collect();
    let machine = machines::named(words.get(4).map_or("optane-autotm", String::as_str)).unwrap();
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
            for r in &percents {
                let machine = machine.clone().with_capacity(TierId(0), Bytes(peak.0 * r / 100));
                let Ok(problem) = Problem::new(trace, &machine, &times, f) else { continue };
                let f = f.to_string();
                if mode == "dual" {
                    let key = format!("/tmp/exact-hb/best-{}-{net}-{f}-{r}", machine.name);
                    let known: f64 = std::fs::read_to_string(&key)
                        .ok()
                        .and_then(|t| t.parse().ok())
                        .unwrap_or_else(|| {
                            let s = solve(
                                &problem,
                                &Effort { gap: 0.005, time: Duration::from_secs(6), seed: 0 },
                            )
                            .unwrap();
                            std::fs::write(&key, format!("{}", s.cost)).unwrap();
                            s.cost
                        });
                    let b = cpu();
                    let gaps =
                        tiercel_plan::knob::dual_only(&problem, known, &[40, 100, 200, 400, 800, 1600]);
                    let t = (cpu() - b) / 1600.0;
                    let gaps: Vec<String> =
                        gaps.iter().map(|b| format!("{:6.2}", 100.0 * (known - b) / known)).collect();
                    println!("{net:20} {f:14} {r:3} % gaps {} ({:.0} us)", gaps.join(" "), t * 1e6);
                    continue;
                }
                if mode == "lp" {
                    let key = format!("/tmp/exact-hb/best-{}-{net}-{f}-{r}", machine.name);
                    eprintln!("{net} {f} {r} known {}", std::fs::read_to_string(&key).unwrap_or_default());
                    let b = cpu();
                    let _ = tiercel_plan::solver::named("exact")
                        .unwrap()
                        .solve(&problem, &Effort { gap: 0.0, time: Duration::from_secs(100), seed: 0 });
                    eprintln!("{:.2} s", cpu() - b);
                    continue;
                }
                let seeds: u64 = mode.parse().unwrap();
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
                    "{net:20} {f:14} {r:3} % mean {:.3} median {:.3} max {:.3}",
                    ts.iter().sum::<f64>() / seeds as f64,
                    ts[ts.len() / 2],
                    ts[ts.len() - 1]
                );
            }
        }
    }
}

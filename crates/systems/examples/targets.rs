//! Tiercel's own system over every built-in network: how much slower than with all memory fast, and than the best of
//! the others.
//!
//! `cargo run --release -p tiercel-systems --example targets -- [MACHINE] [20%,10%] [NET,NET] [SYSTEM,SYSTEM|none] [SYSTEM] [ROUNDS]`

use std::time::{Duration, Instant};

use tiercel_profile::{Model, machines};
use tiercel_systems::compare::geometric_mean;
use tiercel_systems::{ALL, Fast, Options, Setting, System, Times, each, named, simulate};
use tiercel_workload::nets;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given = |at: usize, else_: &str| arguments.get(at).cloned().unwrap_or(else_.to_string());
    let machine = machines::named(&given(0, "optane-autotm"))?;
    let times = Times::new(Model::new(&machine)?);
    let shares: Result<Vec<Fast>, _> = given(1, "20%,10%").split(',').map(str::parse).collect();
    let shares = shares?;
    let names = match given(2, "all").as_str() {
        "all" => nets::all().iter().map(|net| net.name.to_string()).collect(),
        some => some.split(',').map(str::to_string).collect::<Vec<_>>(),
    };
    let rivals: Vec<&System> = match given(3, "all").as_str() {
        "all" => ALL.iter().filter(|s| !["tiercel", "fast-only", "slow-only"].contains(&s.name)).collect(),
        "none" => Vec::new(),
        some => some.split(',').map(named).collect::<Result<_, _>>()?,
    };
    let rounds = given(5, "2").parse()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let system = named(&given(4, "tiercel"))?;
    println!("times as long as fast-only on {}", machine.name);
    println!(
        "{:24} {:>7} {:>8} {:>8}  {:>8}  {:20} {:>6}",
        "network", "memory", "tiercel", "bound", "others", "best other", "s"
    );
    let jobs: Vec<(&String, Fast)> = shares.iter().flat_map(|f| names.iter().map(move |n| (n, *f))).collect();
    let found = each(&jobs, threads, |(name, fast)| {
        let Some(Ok(program)) = nets::find(name).map(|net| net.build(&nets::NetOptions::default())) else {
            return (f64::NAN, f64::NAN, "no such network", 0.0);
        };
        let options = Options { time: Duration::MAX, rounds, ..Options::default() };
        let little = fast.machine(&program.trace, &machine);
        let run = |system: &System, machine| {
            let setting = Setting::of(&program, machine, &times).with(options);
            simulate(system, &setting, 1).ok()
        };
        let time =
            |system: &System, machine| run(system, machine).map_or(f64::INFINITY, |run| run.time().0 as f64);
        let goal = time(named("fast-only").expect("listed"), &machine);
        let began = Instant::now();
        let run = run(system, &little);
        let ours = run.as_ref().map_or(f64::INFINITY, |run| run.time().0 as f64 / goal);
        let plan = run.as_ref().and_then(|run| run.planned.as_ref());
        let bound = plan.map_or(f64::NAN, |planned| planned.plan.bound_ns / goal);
        let again = run.as_ref().is_some_and(|run| run.rewritten.is_some());
        let took = began.elapsed().as_secs_f64();
        let others = rivals.iter().map(|system| (time(system, &little) / goal, system.name));
        let (best, who) = others.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, "-"));
        let mark = if ours > 1.01 * best { " <" } else { "" };
        println!(
            "{name:24} {fast:>7} {ours:8.3} {bound:8.3}{} {best:8.3}  {who:20} {took:6.1}{mark}",
            if again { "*" } else { " " },
            fast = fast.to_string()
        );
        (ours, best, who, took)
    });
    for (at, share) in shares.iter().enumerate() {
        let row = &found[at * names.len()..(at + 1) * names.len()];
        let ours = row.iter().map(|r| r.0).filter(|s| s.is_finite());
        let failed: Vec<&str> =
            row.iter().zip(&names).filter(|(r, _)| !r.0.is_finite()).map(|(_, name)| name.as_str()).collect();
        println!(
            "{share}: geometric mean {:.4} and worst {:.3} of the {} that run, at most 1 % behind the best other in {} of {}",
            geometric_mean(ours.clone()).unwrap_or(f64::NAN),
            ours.clone().fold(0.0, f64::max),
            ours.count(),
            row.iter().filter(|r| r.0 <= 1.01 * r.1).count(),
            row.len(),
        );
        if !failed.is_empty() {
            println!(
                "{share}: {} of {} failed, and are in no mean: {}",
                failed.len(),
                row.len(),
                failed.join(", ")
            );
        }
    }
    Ok(())
}

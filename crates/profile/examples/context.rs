//! temp
use tiercel_core::*;
use tiercel_profile::*;
use tiercel_run::KernelTime;
use tiercel_run::kernels::{Library, prepare};
use tiercel_run::train::*;
use tiercel_workload::nets;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    for (net, batch, image) in [
        ("cnn", 256, Some(32)),
        ("resnet32", 64, Some(32)),
        ("vgg16", 16, Some(32)),
        ("mlp", 256, None),
        ("lstm", 16, None),
    ] {
        if args.len() > 1 && !args[1..].iter().any(|a| a == net) {
            continue;
        }
        let options = nets::Options { batch: Some(batch), image, ..nets::Options::default() };
        let program = nets::find(net).expect("net").build(&options).expect("builds");
        let task = Task::new(program, batch, |p| prepare(p, 2));
        let trace = &task.training.trace;
        let machine = room::machine(trace, room::ample(trace, Bytes::kib(4)), Backing::Throttled);
        let policy = tiercel_policies::by_name("fast-only").unwrap();
        let mut t = Trainer::new(&task, &machine, policy, Box::new(Synthetic), Settings::default(), |p| {
            Library::new(p, 2)
        })
        .unwrap();
        t.iterate().unwrap();
        t.record_times();
        let mut its = vec![];
        for _ in 0..6 {
            its.push(t.iterate().unwrap().figures.time.0);
        }
        its.sort();
        let profile = t.take_times();
        let run = Measured::of_run(trace, &profile);
        drop(t);
        let dir = std::path::PathBuf::from(format!("/tmp/ex/{}", std::process::id()));
        let mut kept = Kept::open_in(&dir, 2);
        let mut one = machine.clone();
        one.tiers.truncate(1);
        one.links.clear();
        let s = Survey::new(&task.training, &one, 2);
        let began = std::time::Instant::now();
        s.measure(&mut kept, || true).unwrap();
        let took = began.elapsed();
        let iso = s.times(&kept);
        let least: std::collections::HashMap<_, _> = profile.iter().map(|l| (l.step.0, l.least.0)).collect();
        let mut by: std::collections::BTreeMap<String, (u64, u64, u64, u32)> = Default::default();
        for (at, k) in trace.kernels.iter().enumerate() {
            let fast = vec![TierId(0); k.reads.len() + k.writes.len()];
            let e = by.entry(k.op.clone()).or_default();
            e.0 += run.time(&machine, k, &fast).0;
            e.1 += iso.time(&machine, k, &fast).0;
            e.2 += least[&(at as u32)];
            e.3 += 1;
        }
        let sum = by.values().fold((0, 0, 0), |a, v| (a.0 + v.0, a.1 + v.1, a.2 + v.2));
        println!(
            "{net}: iteration median {} min {} sum-of-kernels mean {} least {} isolated {} ({:+.1}% of mean) {} distinct {:?}",
            Nanos(its[3]),
            Nanos(its[0]),
            Nanos(sum.0),
            Nanos(sum.2),
            Nanos(sum.1),
            100.0 * (sum.1 as f64 / sum.0 as f64 - 1.0),
            s.len(),
            took
        );
        for (op, v) in by {
            println!(
                "   {op:28} {:4} run {:>10} least {:>10} isolated {:>10} {:+.0}%",
                v.3,
                Nanos(v.0).to_string(),
                Nanos(v.2).to_string(),
                Nanos(v.1).to_string(),
                100.0 * (v.1 as f64 / v.0 as f64 - 1.0)
            );
        }
    }
}

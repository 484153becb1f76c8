//! The baselines beside ReDL, by simulation: iterations at a fifth of the peak, over all in fast memory.
//!
//! `cargo run --release -p tiercel-policies --example baselines -- [machine] [net …]`
//!
//! Everything is played until the policy has settled (and IAL has looked at its pages some times), then the mean of a
//! few iterations counts. *loc* is the share of kernels' bytes that were found in fast memory, *moved* the bytes
//! moved either way in an iteration over the peak.

use tiercel_core::{Bytes, Machine, Manager, Nanos, Policy, TierId};
use tiercel_policies::{Watched, by_name};
use tiercel_profile::{Model, machines};
use tiercel_run::{Executor, Iteration};
use tiercel_sim::Sim;
use tiercel_workload::{Lifetimes, Program, Trace, nets};

const POLICIES: [&str; 10] = [
    "fast-only",
    "slow-only",
    "first-touch",
    "memory-mode",
    "cachedarrays-lm",
    "ial",
    "unified-memory",
    "vdnn",
    "capuchin",
    "redl",
];

/// The networks of a paper with its batches, and the peak in 10⁹ bytes that it gives for them, where ours is far off:
/// Sentinel's TensorFlow took many times the memory that the same batch takes here, so batches are raised until the
/// peak is the same. Images have the networks' own sizes: ReDL names small ones, but gives the models' sizes (and,
/// for ResNet-50, the memory) of large ones.
fn networks(machine: &str) -> Vec<(&'static str, u64, Option<f64>)> {
    match machine {
        "redl" => vec![
            ("resnet50", 128, None),
            ("lstm", 20, Some(11.12)),
            ("vgg19", 64, None),
            ("inception-v3", 64, None),
        ],
        _ => vec![
            ("resnet32", 128, Some(14.10)),
            ("bert-large", 32, Some(35.39)),
            ("lstm", 20, Some(11.12)),
            ("dcgan", 128, Some(15.68)),
            ("mobilenet", 128, Some(14.15)),
        ],
    }
}

fn build(net: &str, batch: u64) -> Program {
    let options = nets::NetOptions { batch: Some(batch), ..nets::NetOptions::default() };
    nets::find(net).expect("built in").build(&options).expect("its sizes are sound")
}

/// Iterations that count, after at least so much time and until the policy has settled.
const COUNTED: u32 = 10;
const WARM_UP: Nanos = Nanos(200_000_000_000);
const PATIENCE: u32 = 3000;

struct Outcome {
    time: f64,
    locality: f64,
    moved: u64,
    iterations: u32,
}

fn play(trace: &Trace, machine: &Machine, model: Model, policy: &str) -> Result<Outcome, String> {
    let mut manager = Manager::new(machine.clone(), Sim::with_times(machine.clone(), model));
    let mut policy = Watched::new(by_name(policy).expect("it is listed"));
    let mut executor = Executor::new(trace);
    let mut iterations = 0;
    let mut iterate = |policy: &mut Watched, manager: &mut Manager<Sim>| -> Result<Iteration, String> {
        executor.iterate(manager, policy).map_err(|error| error.to_string())
    };
    while iterations < 10
        || !policy.settled()
        || (tiercel_policies::kind(policy.name()).is_some_and(|kind| kind.is_timed())
            && manager.now() < WARM_UP)
    {
        iterate(&mut policy, &mut manager)?;
        iterations += 1;
        if iterations == PATIENCE {
            break;
        }
    }
    let (mut time, mut moved) = (0.0, 0);
    for _ in 0..COUNTED {
        let iteration = iterate(&mut policy, &mut manager)?;
        time += iteration.time.seconds() / f64::from(COUNTED);
        moved += (iteration.fetched.0 + iteration.evicted.0) / u64::from(COUNTED);
    }
    Ok(Outcome { time, locality: policy.locality().of_bytes(), moved, iterations })
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "redl".to_string());
    let only: Vec<String> = arguments.collect();
    let machine = machines::named(&name).unwrap_or_else(|error| panic!("{error}"));
    let model = Model::new(&machine).unwrap_or_else(|error| panic!("{error}"));
    println!("machine {name}, 20 % of the peak");
    println!("network         policy            ms/iter  over fast   loc  moved/peak  warm-up");
    for (net, batch, peak) in networks(&name) {
        if !only.is_empty() && !only.iter().any(|o| o == net) {
            continue;
        }
        let (batch, program) = match peak {
            Some(peak) => (0..)
                .map(|n| batch + batch * n / 8)
                .map(|batch| (batch, build(net, batch)))
                .find(|(_, p)| Lifetimes::new(&p.trace).peak().1.0 as f64 >= peak * 1e9)
                .expect("some batch is large enough"),
            None => (batch, build(net, batch)),
        };
        let lifetimes = Lifetimes::new(&program.trace);
        let (_, peak) = lifetimes.peak();
        println!(
            "{net}-{batch}: peak {peak}, short-lived {}, {} kernels, {} layers",
            lifetimes.short_lived_peak(),
            program.trace.kernels.len(),
            tiercel_workload::lifetimes::visits(&program.trace).last().map_or(0, |v| v + 1),
        );
        let mut fast_only = None;
        for policy in POLICIES {
            let fast = if policy == "fast-only" { peak.0 * 2 } else { peak.0 / 5 };
            let machine = machine
                .clone()
                .with_capacity(TierId(0), Bytes(fast))
                .with_capacity(TierId(1), Bytes(peak.0 * 4));
            let began = std::time::Instant::now();
            match play(&program.trace, &machine, model.clone(), policy) {
                Ok(outcome) => {
                    let base = *fast_only.get_or_insert(outcome.time);
                    println!(
                        "{:15} {policy:16} {:9.1} {:8.1} % {:5.2} {:9.2} {:9}   ({:.1} s)",
                        "",
                        outcome.time * 1e3,
                        100.0 * (outcome.time / base - 1.0),
                        outcome.locality,
                        outcome.moved as f64 / peak.0 as f64,
                        outcome.iterations,
                        began.elapsed().as_secs_f64(),
                    );
                }
                Err(error) => println!("{:15} {policy:16} {error}", ""),
            }
        }
    }
}

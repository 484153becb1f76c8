//! Sentinel on the machine of its paper, simulated: the networks of its Table III with a fifth of their peak as fast memory.
//!
//! `cargo run --release -p tiercel-policies --example sentinel [FRACTION] [NETWORK [BATCH]]`; with `--lengths` after the
//! network, every length of intervals beside the one that the equations choose (the paper's Figure 5); with `--gpu`, on the
//! paper's V100, whose kernels cannot work on slow memory.

use std::error::Error;

use tiercel_core::{Bytes, Machine, Manager, Nanos, Policy, TierId};
use tiercel_policies::{Sentinel, by_name, sentinel};
use tiercel_profile::{Model, machines};
use tiercel_run::{Executor, Iteration};
use tiercel_sim::Sim;
use tiercel_workload::{Lifetimes, Trace, nets};

/// Network, batch, image side: as in Table III.
const NETWORKS: [(&str, u64, Option<u64>); 10] = [
    ("resnet32", 128, None),
    ("bert-large", 32, None),
    ("lstm", 20, None),
    ("dcgan", 128, None),
    ("mobilenet", 128, Some(32)),
    ("resnet200", 4096, Some(32)),
    ("bert-large", 128, None),
    ("lstm", 4096, None),
    ("dcgan", 10_000, None),
    ("mobilenet", 4096, Some(32)),
];

/// Iterations after which a policy that has not settled is taken as it is.
const PATIENCE: usize = 60;

/// A program in a simulated machine.
struct Run<'t> {
    manager: Manager<Sim>,
    executor: Executor<'t>,
}

impl<'t> Run<'t> {
    fn new(trace: &'t Trace, machine: &Machine, fast: Bytes) -> Result<Run<'t>, Box<dyn Error>> {
        let machine = machine.clone().with_capacity(TierId(0), fast);
        let sim = Sim::with_times(machine.clone(), Model::new(&machine)?);
        Ok(Run { manager: Manager::new(machine, sim), executor: Executor::new(trace) })
    }

    fn iterate(&mut self, policy: &mut dyn Policy) -> Result<Iteration, Box<dyn Error>> {
        Ok(self.executor.iterate(&mut self.manager, policy)?)
    }
}

/// The time of an iteration under a policy that needs no time to settle.
fn fixed(name: &str, trace: &Trace, machine: &Machine, fast: Bytes) -> Result<Nanos, Box<dyn Error>> {
    let mut policy = by_name(name).ok_or("no such policy")?;
    let mut run = Run::new(trace, machine, fast)?;
    run.iterate(policy.as_mut())?;
    Ok(run.iterate(policy.as_mut())?.time)
}

/// An iteration under Sentinel when it has settled.
fn settled(
    policy: &mut Sentinel,
    trace: &Trace,
    machine: &Machine,
    fast: Bytes,
) -> Result<Iteration, Box<dyn Error>> {
    let mut run = Run::new(trace, machine, fast)?;
    for _ in 0..PATIENCE {
        run.iterate(policy)?;
        if policy.settled() {
            break;
        }
    }
    run.iterate(policy)
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (flags, words): (Vec<&str>, Vec<&str>) =
        words.iter().map(String::as_str).partition(|word| word.starts_with("--"));
    let lengths = flags.contains(&"--lengths");
    let fraction: f64 = words.first().map_or(Ok(0.2), |word| word.parse())?;
    let machine = machines::named(if flags.contains(&"--gpu") { "v100" } else { "optane-sentinel" })?;
    println!(
        "{:12} {:>6} {:>7} {:>9} {:>6} {:>8} {:>7} {:>4} {:>9} {:>9} {:>6} {:>7} {:>7} {:>6}",
        "network",
        "batch",
        "peak GB",
        "fast-only",
        "slow x",
        "sentinel",
        "bound",
        "len",
        "intervals",
        "cases",
        "tried",
        "in GB",
        "out GB",
        "stall"
    );
    let mut product = (1.0, 0);
    for (net, batch, image) in NETWORKS {
        if words.get(1).is_some_and(|name| *name != net)
            || words.get(2).is_some_and(|b| b.parse() != Ok(batch))
        {
            continue;
        }
        let options = nets::NetOptions { batch: Some(batch), image, ..nets::NetOptions::default() };
        let trace = nets::find(net).ok_or("no such network")?.build(&options)?.trace;
        let peak = Lifetimes::new(&trace).peak().1;
        let fast = Bytes((peak.0 as f64 * fraction) as u64);
        let machine = machine.clone().with_capacity(TierId(1), Bytes(peak.0 * 4));
        let only = fixed("fast-only", &trace, &machine, Bytes(peak.0 * 3))?;
        let slow = fixed("slow-only", &trace, &machine, fast)?;
        let row = |policy: &mut Sentinel| -> Result<f64, Box<dyn Error>> {
            let iteration = settled(policy, &trace, &machine, fast)?;
            let ratio = iteration.time.0 as f64 / only.0 as f64;
            let terms = policy.terms().ok_or("nothing was profiled")?;
            let cases = policy.cases();
            let giga = |bytes: Bytes| bytes.0 as f64 / 1e9;
            println!(
                "{net:12} {batch:>6} {:>7.2} {:>7.1}ms {:>6.2} {ratio:>8.3} {:>6.0}% {:>4} {:>9} {:>9} {:>6} {:>7.2} {:>7.2} {:>5.1}%{}",
                giga(peak),
                only.seconds() * 1e3,
                slow.0 as f64 / only.0 as f64,
                100.0 * sentinel::lower_bound(&trace).0 as f64 / fast.0 as f64,
                terms.length,
                cases.ready + cases.no_room + cases.late,
                format!("{}/{}/{}", cases.ready, cases.no_room, cases.late),
                policy.steps().tried,
                giga(iteration.fetched),
                giga(iteration.evicted),
                100.0 * iteration.stall.0 as f64 / iteration.time.0 as f64,
                if policy.settled() { "" } else { " not settled" },
            );
            Ok(ratio)
        };
        // A kernel's operands may be more than there is, where all of them must be in fast memory.
        match row(&mut Sentinel::new()) {
            Ok(ratio) => product = (product.0 * ratio, product.1 + 1),
            Err(error) => println!("{net:12} {batch:>6} {error}"),
        }
        if lengths {
            for length in [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64] {
                row(&mut Sentinel::new().interval(length))?;
            }
        }
    }
    println!("geometric mean {:.3}", product.0.powf(1.0 / f64::from(product.1.max(1))));
    Ok(())
}

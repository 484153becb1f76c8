//! The policy that is simulated is the policy that runs: the same trace gives the same decisions in both worlds, and
//! the same results as all-fast memory.

use tiercel_core::{Bandwidth, Bytes, Detached, Event, Machine, Manager, TierId};
use tiercel_policies::{by_name, kind, names};
use tiercel_run::{Executor, Host, Stage};
use tiercel_sim::{Sim, World};
use tiercel_testbed::{Scramble, for_seeds, machine, random_trace};
use tiercel_workload::Trace;
use tiercel_workload::trace::Phase;

/// Plays a trace and returns what was decided, without what only time decides.
fn play<W: World + 'static>(
    trace: &Trace,
    machine: &Machine,
    world: W,
    policy: &str,
    lookahead: usize,
) -> (Vec<Event>, Manager<W>) {
    let mut manager = Manager::new(machine.clone(), world);
    manager.record();
    let mut policy = by_name(policy).expect("it is listed");
    let mut executor = Executor::new(trace).lookahead(lookahead);
    for _ in 0..3 {
        executor.iterate(&mut manager, policy.as_mut()).unwrap_or_else(|e| panic!("{}: {e}", policy.name()));
    }
    manager.drain().expect("no copy fails");
    manager.check().expect("the state is sound");
    let events = manager.take_events().into_iter().map(|stamped| stamped.event);
    let decided = events.filter(|e| {
        !matches!(e, Event::Stalled { .. } | Event::CopyEnded { .. } | Event::KernelReturned { .. })
    });
    (decided.collect(), manager)
}

/// The smallest fast memory that any policy needs for this trace, and twice that and so on.
fn tight_machine(trace: &Trace, random: &mut fastrand::Rng) -> Machine {
    let kernel = |k: &tiercel_workload::Kernel| -> u64 {
        k.reads.iter().chain(&k.writes).map(|u| trace.tensor(u.tensor).bytes.0.next_multiple_of(64)).sum()
    };
    let working_set = trace.kernels.iter().map(kernel).max().expect("it has kernels");
    let all: u64 = trace.tensors.iter().map(|t| t.bytes.0.next_multiple_of(64)).sum();
    let tiers = random.usize(2..=4);
    let mut capacities = vec![working_set * random.u64(1..3)];
    capacities.resize(tiers - 1, working_set);
    capacities.push(all * 2);
    machine(&capacities, random.usize(1..=tiers))
}

#[test]
fn decisions_are_the_same_in_both_worlds_and_results_as_in_fast_memory() {
    for_seeds(12, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let layers = random.u32(2..12);
        let mut trace = random_trace(&mut random, layers, 4000);
        let mut tight = tight_machine(&trace, &mut random);
        // Some updates run beside what follows, where there is something to run them.
        for kernel in trace.kernels.iter_mut().filter(|kernel| kernel.phase == Phase::Update) {
            kernel.detached = random.bool();
        }
        tight.detached = random.bool().then_some(Detached { bandwidth: Bandwidth::gb(1.0), threads: 0 });
        let roomy = tight.clone().with_capacity(TierId(0), Bytes::mib(1));
        let stage = |machine: &Machine| {
            Stage::new(Host::open(machine).expect("a little memory"), Scramble::default())
        };
        let (_, fast) = play(&trace, &roomy, stage(&roomy), "fast-only", 0);
        let expected = fast.backend().kernels().digest;
        for name in names().filter(|name| *name != "fast-only") {
            if kind(name).is_some_and(|kind| kind.is_below()) && !tight.tier(tight.slowest()).computable {
                continue;
            }
            for lookahead in [0, 2] {
                let (simulated, _) = play(&trace, &tight, Sim::new(tight.clone()), name, lookahead);
                let (real, host) = play(&trace, &tight, stage(&tight), name, lookahead);
                // Whoever decides by the clock decides by another one here.
                assert!(
                    kind(name).is_some_and(|kind| kind.is_timed()) || simulated == real,
                    "{name} decides otherwise"
                );
                assert_eq!(host.backend().kernels().digest, expected, "{name} computes something else");
            }
        }
    });
}

#[test]
fn a_simulation_repeats_itself_to_the_nanosecond() {
    let trace = random_trace(&mut fastrand::Rng::with_seed(7), 10, 1 << 20);
    let machine = machine(&[4 << 20, 64 << 20], 2);
    let run = || {
        let (_, manager) = play(&trace, &machine, Sim::new(machine.clone()), "cachedarrays-lmp", 1);
        (manager.now(), manager.totals().clone())
    };
    assert_eq!(run(), run());
}

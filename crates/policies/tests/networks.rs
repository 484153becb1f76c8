//! Real networks under every policy: they run to the end in a quarter of their memory, and what must follow from the
//! policies' definitions does.

use std::collections::BTreeMap;

use tiercel_core::{Bytes, Machine, Manager, TierId};
use tiercel_policies::{by_name, names};
use tiercel_run::{Executor, Host, Iteration, Stage};
use tiercel_sim::{Sim, World};
use tiercel_testbed::Scramble;
use tiercel_workload::{Lifetimes, Program, nets};

fn machine(fast: Bytes, slow: Bytes) -> Machine {
    let toml = include_str!("../../../machines/dram-throttled.toml");
    let machine = Machine::parse(toml).expect("it ships with the project");
    machine.with_capacity(TierId(0), fast).with_capacity(TierId(1), slow)
}

/// The last of three iterations.
fn play<W: World + 'static>(
    program: &Program,
    machine: Machine,
    world: W,
    policy: &str,
) -> (Iteration, Manager<W>) {
    let mut manager = Manager::new(machine, world);
    let mut policy = by_name(policy).expect("it is listed");
    let mut executor = Executor::new(&program.trace);
    let mut last = Iteration::default();
    for _ in 0..3 {
        last = executor
            .iterate(&mut manager, policy.as_mut())
            .unwrap_or_else(|e| panic!("{}, {}: {e}", program.trace.name, policy.name()));
    }
    manager.check().expect("the state is sound");
    (last, manager)
}

#[test]
fn every_network_in_a_quarter_of_its_memory() {
    for net in nets::all() {
        let options = nets::NetOptions { batch: Some(4), ..nets::NetOptions::default() };
        let program = net.build(&options).expect("its own sizes are sound");
        let (_, peak) = Lifetimes::new(&program.trace).peak();
        let mut times = BTreeMap::new();
        for name in names() {
            let fast = if name == "fast-only" { Bytes(peak.0 * 2) } else { Bytes(peak.0 / 4) };
            let machine = machine(fast, Bytes(peak.0 * 4));
            let (iteration, manager) = play(&program, machine.clone(), Sim::new(machine), name);
            assert!(manager.totals().peak[0] <= fast);
            times.insert(name, iteration.time);
            let moves = iteration.fetched + iteration.evicted > Bytes::ZERO;
            let fixed = ["fast-only", "slow-only", "first-touch"].contains(&name);
            assert!(!(fixed && moves), "{name} moved something of {}", net.name);
        }
        assert!(times["fast-only"] < times["slow-only"], "{}: {times:?}", net.name);
        for (name, time) in &times {
            assert!(*time >= times["fast-only"], "{}: {name} beats fast-only", net.name);
        }
        assert!(times["first-touch"] <= times["slow-only"], "{}: {times:?}", net.name);
    }
}

#[test]
fn small_networks_compute_the_same_on_real_memory() {
    for (name, options) in [
        ("mlp", nets::NetOptions { batch: Some(8), ..nets::NetOptions::default() }),
        ("resnet32", nets::NetOptions { batch: Some(1), ..nets::NetOptions::default() }),
    ] {
        let program = nets::find(name).expect("it is built in").build(&options).expect("a small network");
        let (_, peak) = Lifetimes::new(&program.trace).peak();
        let digest = |policy: &str, fast: u64| {
            let mut machine = machine(Bytes(fast), Bytes(peak.0 * 4));
            machine.tiers[1].backing = tiercel_core::Backing::Dram;
            let stage = Stage::new(Host::open(&machine).expect("a little memory"), Scramble::default());
            play(&program, machine, stage, policy).1.backend().kernels().digest
        };
        let expected = digest("fast-only", peak.0 * 2);
        for policy in names().filter(|policy| *policy != "fast-only") {
            assert_eq!(digest(policy, peak.0 / 4), expected, "{name} under {policy}");
        }
    }
}

//! Plans that are played: the simulated iteration takes what the plan says, and nothing goes elsewhere.

use std::time::Duration;

use tiercel_core::{Bytes, Machine, Manager, TierId};
use tiercel_plan::{Effort, Formulation, Plan, Problem, arranged, solve};
use tiercel_policies::Follow;
use tiercel_run::Executor;
use tiercel_sim::{Roofline, Sim};
use tiercel_workload::{Lifetimes, nets};

fn machine(fast: Bytes) -> Machine {
    let toml = include_str!("../../../machines/dram-throttled.toml");
    let machine = Machine::parse(toml).expect("it ships with the project");
    machine.with_capacity(TierId(0), fast).with_capacity(TierId(1), Bytes::gib(64))
}

#[test]
fn a_simulated_iteration_takes_what_the_plan_says() {
    for name in ["mlp", "resnet32", "lstm", "vgg16"] {
        let options = nets::NetOptions { batch: Some(4), ..nets::NetOptions::default() };
        let program = nets::find(name).expect("it is built in").build(&options).expect("a small network");
        let trace = &program.trace;
        let (_, peak) = Lifetimes::new(trace).peak();
        for formulation in [Formulation::Static, Formulation::Synchronous] {
            let machine = machine(Bytes(peak.0 / 3));
            let problem = Problem::new(trace, &machine, &Roofline, formulation).expect("all tiers compute");
            let effort = Effort { time: std::time::Duration::from_millis(300), ..Effort::default() };
            let solution = solve(&problem, &effort).expect("the slow tier holds everything");
            let plan = Plan::new(trace, &machine, &problem, &solution);
            let mut policy = Follow::new(&plan, trace, &machine).expect("the plan can be played");
            // The plan counts bytes; room to spare keeps memory in pieces out of this test.
            let machine = machine.clone().with_capacity(TierId(0), Bytes(peak.0 / 2));
            let mut manager = Manager::new(machine.clone(), Sim::new(machine));
            let mut executor = Executor::new(trace);
            executor.iterate(&mut manager, &mut policy).expect("the first iteration");
            let second = executor.iterate(&mut manager, &mut policy).expect("the second iteration");
            manager.check().expect("the state is sound");
            let ratio = second.time.0 as f64 / plan.iteration_ns;
            assert_eq!(policy.deviations(), 0, "{name} {formulation}");
            assert!((0.99..1.01).contains(&ratio), "{name} {formulation}: {ratio}");
        }
    }
}

/// Iterations of a plan on links of which so much is left, the last of them, with the state checked after each.
fn on_slower_links(name: &str, share: f64, adapts: bool) -> u64 {
    let options = nets::NetOptions { batch: Some(8), ..nets::NetOptions::default() };
    let program = nets::find(name).expect("it is built in").build(&options).expect("a small network");
    let trace = &program.trace;
    let (_, peak) = Lifetimes::new(trace).peak();
    let machine = machine(Bytes(peak.0 / 4 / 4096 * 4096));
    // A search that ends by itself: the same plan each time.
    let effort = Effort { time: Duration::MAX, rounds: 4, ..Effort::default() };
    let arranged = arranged(trace, &machine, &Roofline, Formulation::Asynchronous, &effort).expect("a plan");
    let mut policy = Follow::new(&arranged.plan, trace, &machine).expect("the plan can be played");
    if adapts {
        policy = policy.adapting(&arranged.plan, trace, &machine).expect("as before");
    }
    let mut real = machine.clone();
    for (_, speed) in real.links.iter_mut().flat_map(|link| &mut link.curve) {
        speed.0 *= share;
    }
    let mut manager = Manager::new(real.clone(), Sim::new(real));
    let mut executor = Executor::new(trace);
    let mut last = 0;
    for _ in 0..25 {
        last = executor.iterate(&mut manager, &mut policy).expect("an iteration").time.0;
        manager.check().expect("the state is sound");
    }
    last
}

#[test]
fn moves_that_come_late_begin_earlier_where_the_world_is_slower_than_the_plan() {
    let mut gained = false;
    for name in ["mlp", "resnet32", "vgg16"] {
        for share in [1.0, 0.5, 0.25] {
            let [without, with] = [false, true].map(|adapts| on_slower_links(name, share, adapts));
            assert!(with <= without + without / 100, "{name} at {share}: {with} and {without}");
            gained |= with < without - without / 200;
        }
    }
    assert!(gained, "some plan is played better");
}

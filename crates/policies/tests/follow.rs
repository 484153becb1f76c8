//! Plans that are played: the simulated iteration takes what the plan says, and nothing goes elsewhere.

use tiercel_core::{Bytes, Machine, Manager, TierId};
use tiercel_plan::{Effort, Formulation, Plan, Problem, solve};
use tiercel_policies::Follow;
use tiercel_run::{Executor, Roofline, Sim};
use tiercel_workload::{Lifetimes, nets};

fn machine(fast: Bytes) -> Machine {
    let toml = include_str!("../../../machines/dram-throttled.toml");
    let machine = Machine::parse(toml).expect("it ships with the project");
    machine.with_capacity(TierId(0), fast).with_capacity(TierId(1), Bytes::gib(64))
}

#[test]
fn a_simulated_iteration_takes_what_the_plan_says() {
    for name in ["mlp", "resnet32", "lstm", "vgg16"] {
        let options = nets::Options { batch: Some(4), ..nets::Options::default() };
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

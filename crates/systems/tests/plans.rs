//! Plans that are damaged in all ways that one can think of are refused or played, and never end in a panic.

use tiercel_plan::Plan;
use tiercel_profile::{Model, machines};
use tiercel_systems::planning::{Planned, Planner, play};
use tiercel_systems::{Fast, Options, Recording, Setting, Times, simulate_prepared};
use tiercel_workload::nets;

#[test]
fn damaged_plans_are_refused_or_played() {
    let machine = machines::named("optane-autotm").expect("it ships");
    let times = Times::new(Model::new(&machine).expect("it has a model"));
    let options = nets::NetOptions { batch: Some(4), ..nets::NetOptions::default() };
    let trace = nets::find("resnet32").expect("built in").build(&options).expect("small").trace;
    let machine = Fast::Share(0.3).machine(&trace, &machine);
    let options = Options { time: std::time::Duration::MAX, rounds: 2, ..Options::default() };
    let setting = Setting::new(&trace, &machine, &times).with(options);
    for planner in [Planner::Static, Planner::Synchronous, Planner::Asynchronous] {
        let sound = planner.plan(&setting).expect("it can be planned").plan;
        let mut random = fastrand::Rng::with_seed(7);
        let (mut played, mut refused) = (0, 0);
        for _ in 0..150 {
            let plan = damaged(&sound, &mut random);
            let planned = Planned { plan, solve: None, met: true, adaptive: false };
            let Ok(prepared) = play(planned, &trace, &machine) else {
                refused += 1;
                continue;
            };
            simulate_prepared("plan", prepared, &setting, 1, Recording::Off).expect("a verified plan plays");
            played += 1;
        }
        assert!(played > 5 && refused > 5, "{planner:?}: {played} played, {refused} refused");
    }
}

/// The plan with one thing changed.
fn damaged(plan: &Plan, random: &mut fastrand::Rng) -> Plan {
    let mut plan = plan.clone();
    let number = |random: &mut fastrand::Rng| match random.u8(0..4) {
        0 => u32::MAX,
        1 => 0,
        _ => random.u32(0..300),
    };
    if plan.moves.is_empty() || random.u8(0..4) == 0 {
        match random.u8(0..5) {
            0 if !plan.births.is_empty() => {
                plan.births.remove(random.usize(0..plan.births.len()));
            }
            1 if !plan.births.is_empty() => {
                let at = random.usize(0..plan.births.len());
                plan.births[at].tier = "dram".to_string();
            }
            2 => plan.fast_bytes = random.u64(..),
            3 => plan.iteration_ns = f64::NAN,
            _ => plan.net = "another".to_string(),
        }
        return plan;
    }
    let at = random.usize(0..plan.moves.len());
    match random.u8(0..9) {
        0 => {
            plan.moves.remove(at);
        }
        1 => plan.moves.push(plan.moves[at].clone()),
        2 => plan.moves[at].start = number(random),
        3 => plan.moves[at].done = number(random),
        4 => plan.moves[at].tensor = "no such tensor".to_string(),
        5 => plan.moves[at].to = "nowhere".to_string(),
        6 => {
            let m = &mut plan.moves[at];
            std::mem::swap(&mut m.from, &mut m.to);
        }
        7 => plan.moves.reverse(),
        _ => {
            let other = random.usize(0..plan.moves.len());
            plan.moves[at].action = plan.moves[other].action;
            plan.moves.swap(at, other);
        }
    }
    plan
}

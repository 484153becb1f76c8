//! Moves that begin as early as they could still make a sound plan, one of them or all.

use std::time::Duration;

use tiercel_core::{Bytes, TierId};
use tiercel_plan::{Effort, Formulation, Plan, arranged, leeway, verify};
use tiercel_profile::machines;
use tiercel_sim::Roofline;
use tiercel_workload::{Lifetimes, nets};

#[test]
fn a_plan_whose_moves_begin_as_early_as_they_can_is_sound() {
    let mut earlier = 0;
    for (name, batch) in [("mlp", 64), ("resnet32", 8), ("lstm", 4), ("vgg16", 2), ("inception-v3", 2)] {
        let options = nets::NetOptions { batch: Some(batch), ..nets::NetOptions::default() };
        let program = nets::find(name).expect("built in").build(&options).expect("sound");
        let trace = &program.trace;
        let peak = Lifetimes::new(trace).peak().1;
        for part in [3, 5] {
            let machine = machines::named("dram-throttled").expect("it ships");
            let machine = machine.with_capacity(TierId(0), Bytes(peak.0 / part / 4096 * 4096));
            let machine = machine.with_capacity(TierId(1), Bytes(peak.0 * 4));
            let effort = Effort { time: Duration::MAX, rounds: 1, ..Effort::default() };
            let plan = arranged(trace, &machine, &Roofline, Formulation::Asynchronous, &effort);
            let Ok(plan) = plan.map(|arranged| arranged.plan) else { continue };
            let first = leeway(&plan, trace, &machine).expect("the plan is sound");
            let begun = |some: &dyn Fn(usize) -> bool| {
                let mut moves = plan.moves.clone();
                for (index, m) in moves.iter_mut().enumerate().filter(|(index, _)| some(*index)) {
                    assert!(first[index] <= m.start);
                    m.start = first[index];
                }
                moves.sort_by_key(|m| m.start);
                Plan { moves, ..plan.clone() }
            };
            verify(&begun(&|_| true), trace, &machine).expect("all as early as they can");
            let can = (0..plan.moves.len()).filter(|index| first[*index] < plan.moves[*index].start);
            for index in can.take(40) {
                earlier += 1;
                verify(&begun(&|at| at == index), trace, &machine).expect("one as early as it can");
            }
        }
    }
    assert!(earlier > 20, "{earlier} moves could begin earlier");
}

//! Plans for one amount of memory after another, each beginning with what the ones before have taught.

use std::time::Duration;

use tiercel_core::{Bytes, TierId};
use tiercel_plan::{Effort, Formulation, WarmStart, arranged_anew, verify};
use tiercel_profile::{Model, machines};
use tiercel_workload::{Lifetimes, nets};

#[test]
fn a_curve_does_not_rise() {
    let options = nets::NetOptions { batch: Some(16), ..nets::NetOptions::default() };
    let program = nets::find("resnet32").expect("built in").build(&options).expect("its own sizes are sound");
    let all = machines::named("optane-autotm").expect("it ships with the project");
    let peak = Lifetimes::new(&program.trace).peak().1;
    let model = Model::new(&all).expect("the machine has fitted kernels");
    for formulation in [Formulation::Static, Formulation::Synchronous, Formulation::Asynchronous] {
        let mut known = WarmStart::default();
        let mut plan = |percent: u64| {
            let machine = all.clone().with_capacity(TierId(0), Bytes(peak.0 * percent / 100));
            let effort = Effort { time: Duration::from_secs(30), rounds: 3, ..Effort::default() };
            let arranged = arranged_anew(&program.trace, &machine, &model, formulation, &effort, &mut known);
            let plan = arranged.expect("slow memory holds everything").plan;
            assert_eq!(verify(&plan, &program.trace, &machine), Ok(()));
            assert!(plan.bound_ns <= plan.iteration_ns * 1.000_001);
            assert_eq!(plan.fast_bytes, machine.tiers[0].capacity.0);
            plan
        };
        let up: Vec<f64> = [10, 15, 25, 40, 60].map(|percent| plan(percent).iteration_ns).to_vec();
        // A thousandth more is allowed where less has to move.
        assert!(up.is_sorted_by(|less, more| *more <= less * 1.001), "{formulation:?}: {up:?}");
        // Less memory again: what is known from more does no harm.
        let down = plan(12);
        assert!(down.iteration_ns <= up[0] && down.bound_ns <= up[0]);
    }
}

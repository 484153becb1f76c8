//! Activations that are dropped and computed again, and weights that are updated early, give the same losses and the same
//! weights, bit for bit.

mod ample_training;

use std::collections::HashSet;

use ample_training::train;
use tiercel_kernels::prepare;
use tiercel_workload::graph::{DType, ValueId};
use tiercel_workload::recompute::candidates;
use tiercel_workload::{Program, nets};

fn programs() -> impl Iterator<Item = (&'static str, Program)> {
    let cases = [
        ("resnet32", None, None),
        ("gpt2", Some(2), Some(64)),
        ("mlp", None, None),
        ("lstm", None, Some(32)),
        ("dcgan", None, Some(8)),
    ];
    cases.into_iter().map(|(name, depth, width)| {
        let sequence = ["gpt2", "lstm"].contains(&name).then_some(16);
        let options =
            nets::NetOptions { batch: Some(4), depth, width, sequence, ..nets::NetOptions::default() };
        (name, nets::find(name).expect("built in").build(&options).expect("sound"))
    })
}

/// What only one layer uses, and every other value of all.
fn sets(program: &Program) -> [HashSet<ValueId>; 2] {
    let all = candidates(&program.graph);
    let inside = all.iter().filter(|c| !c.leaves_layer).map(|c| c.value).collect();
    [inside, all.iter().step_by(2).map(|c| c.value).collect()]
}

#[test]
fn bits_do_not_depend_on_what_is_computed_again_and_when_weights_are_updated() {
    for (name, program) in programs() {
        let expected = train(program.clone());
        let early = program.updating_early();
        assert_ne!(early.trace, program.trace, "{name}: nothing is updated early");
        assert_eq!(train(early.clone()), expected, "{name}, updated early");
        for dropped in sets(&program).into_iter().filter(|dropped| !dropped.is_empty()) {
            let again = program.recomputing(&dropped);
            assert!(again.trace.kernels.len() > program.trace.kernels.len(), "{name}: nothing runs again");
            assert_eq!(train(again), expected, "{name}");
            assert_eq!(train(early.recomputing(&dropped)), expected, "{name}, updated early");
        }
    }
}

/// A system rewrites a program that has its workspace, and plans what comes of it: nothing may be missing there.
#[test]
fn a_program_that_is_rewritten_keeps_its_workspace() {
    for dtype in [DType::F32, DType::Bf16] {
        for net in nets::all() {
            let options = nets::NetOptions { batch: Some(4), dtype, ..nets::NetOptions::default() };
            let Ok(program) = net.build(&options) else { continue };
            if program.trace.kernels.len() > 2000 {
                continue;
            }
            let (plain, ready) = (program.updating_early(), prepare(program, 2).updating_early());
            for dropped in sets(&plain) {
                let expected = prepare(plain.recomputing(&dropped), 2);
                assert_eq!(ready.recomputing(&dropped).trace, expected.trace, "{} {dtype:?}", net.name);
            }
            assert_eq!(ready.trace, prepare(plain, 2).trace, "{} {dtype:?}", net.name);
        }
    }
}

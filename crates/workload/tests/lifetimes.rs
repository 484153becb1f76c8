//! Lifetimes, live bytes and intervals against the definitions, applied naively.

mod arbitrary;

use expect_test::expect;
use proptest::prelude::*;
use tiercel_core::{Bytes, Step};
use tiercel_workload::lifetimes::{Class, Lifetimes, visits};
use tiercel_workload::trace::Role;
use tiercel_workload::{TensorId, Trace, intervals, text};

/// Whether a tensor must exist at a step, by the definition.
fn lives(trace: &Trace, tensor: TensorId, step: u32) -> bool {
    let uses = |k: usize| {
        let kernel = &trace.kernels[k];
        kernel.reads.iter().chain(&kernel.writes).any(|u| u.tensor == tensor)
    };
    let here = step as usize;
    let before = (0..=here).any(uses) || trace.tensor(tensor).role == Role::Input;
    let after = (here..trace.kernels.len()).any(uses);
    trace.tensor(tensor).persistent || (before && after)
}

proptest! {
    #[test]
    fn live_bytes_are_those_of_the_definition(trace in arbitrary::trace()) {
        let lifetimes = Lifetimes::new(&trace);
        let ids: Vec<TensorId> = (0..trace.tensors.len() as u32).map(TensorId).collect();
        let live = lifetimes.live_bytes();
        prop_assert_eq!(live.len(), trace.kernels.len());
        let visit = visits(&trace);
        for step in 0..trace.kernels.len() as u32 {
            let naive: Bytes =
                ids.iter().filter(|t| lives(&trace, **t, step)).map(|t| trace.tensor(*t).bytes).sum();
            prop_assert_eq!(live[step as usize], naive);
        }
        prop_assert_eq!(lifetimes.peak().1, live.iter().copied().max().unwrap_or(Bytes(0)));
        for id in ids {
            let uses = lifetimes.uses(id);
            prop_assert!(uses.is_sorted());
            let Some(life) = lifetimes.of(id) else { prop_assert!(uses.is_empty()); continue };
            prop_assert!(uses.iter().all(|u| life.birth <= *u && *u <= life.last));
            let one_visit = visit[life.birth.0 as usize] == visit[life.last.0 as usize];
            let passing = !trace.tensor(id).persistent && trace.tensor(id).role != Role::Input;
            prop_assert_eq!(life.class == Class::Short, one_visit && passing);
            for step in 0..trace.kernels.len() as u32 {
                let next = uses.iter().copied().find(|u| u.0 > step);
                prop_assert_eq!(lifetimes.next_use(id, Step(step)), next);
                let previous = uses.iter().copied().rfind(|u| u.0 < step);
                prop_assert_eq!(lifetimes.previous_use(id, Step(step)), previous);
            }
        }
    }

    #[test]
    fn intervals_cover_every_step_once(trace in arbitrary::trace(), n in 0u32..5) {
        let visit = visits(&trace);
        for cuts in [intervals::by_steps(&trace, n), intervals::by_layers(&trace, n)] {
            let mut next = 0;
            for cut in &cuts {
                prop_assert_eq!(cut.start, Step(next));
                prop_assert!(cut.steps() > 0);
                next = cut.end.0;
            }
            prop_assert_eq!(next as usize, trace.kernels.len());
        }
        for cut in intervals::by_layers(&trace, n) {
            let layers = visit[cut.end.0 as usize - 1] - visit[cut.start.0 as usize] + 1;
            prop_assert!(layers <= n.max(1));
        }
    }
}

#[test]
fn the_example_of_the_reference() {
    let document = include_str!("../../../docs/trace-format.md");
    let example = document.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("one");
    let trace = text::parse(example).expect("sound");
    let lifetimes = Lifetimes::new(&trace);
    let mut table = String::new();
    for (at, tensor) in trace.tensors.iter().enumerate() {
        let id = TensorId(at as u32);
        let life = lifetimes.of(id).expect("used");
        table += &format!(
            "{}: {}..={} {:?} distances {:?}\n",
            tensor.name,
            life.birth.0,
            life.last.0,
            life.class,
            lifetimes.distances(id)
        );
    }
    table += &format!("live {:?}\n", lifetimes.live_bytes().iter().map(|b| b.0).collect::<Vec<_>>());
    let cuts = intervals::by_layers(&trace, 2);
    let bytes: Vec<u64> = cuts.iter().map(|c| c.bytes(&trace).0).collect();
    table += &format!("intervals of two layers use {bytes:?}\n");
    expect![[r#"
        x: 0..=2 Long distances [2]
        labels: 0..=1 Long distances []
        fc.weight: 0..=3 Persistent distances [3, 1]
        out: 0..=2 Long distances [1, 1]
        fc.weight.grad: 2..=3 Long distances [1]
        live [17872, 17872, 21664, 7840]
        intervals of two layers use [17872, 21664]
    "#]]
    .assert_eq(&table);
}

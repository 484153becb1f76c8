//! When training breaks down, the error says where that began: iteration, kernel, tensor.

mod training_runs;

use std::sync::Arc;

use tiercel_core::Bytes;
use tiercel_train::data::{Part, Request};
use tiercel_train::{Data, DataError, Settings, Split, Synthetic, Task, TrainError};
use tiercel_workload::graph::{Builder, DType, Init, Op, Optimizer, ValueId};
use tiercel_workload::{Program, schedule};
use training_runs::{Home, task, trainer};

/// A network with something in its middle.
fn network(rate: f32, middle: impl Fn(&mut Builder, ValueId) -> ValueId) -> Task {
    let mut b = Builder::new("fragile", DType::F32);
    let x = b.input("x", [8, 16]);
    b.layer("one");
    let x = b.linear(x, 16);
    b.layer("middle");
    let x = middle(&mut b, x);
    b.layer("two");
    let x = b.linear(x, 16);
    b.layer("classes");
    let logits = b.linear(x, 4);
    let loss = b.cross_entropy(logits, "labels");
    b.train(&[loss], Optimizer::Sgd { rate, momentum: 0.0, decay: 0.0 });
    task(Program::new(b.finish().expect("it fits"), schedule::ScheduleOptions::default()), 8)
}

/// Trains until it breaks down, under a policy that moves and one that does not; both say the same.
fn breakdown(task: &Task, data: impl Data + Clone + 'static) -> (u64, String, String, String) {
    let found = [Home::fast(), Home::tight("cachedarrays-lm")].map(|home| {
        let mut run = trainer(task, &home, data.clone(), Settings::default());
        for _ in 0..100 {
            match run.iterate() {
                Ok(_) => {}
                Err(error) => {
                    let text = error.to_string();
                    let TrainError::NotFinite { iteration, kernel, tensor, .. } = error else {
                        panic!("{text}");
                    };
                    return (iteration, kernel, tensor, text);
                }
            }
        }
        panic!("nothing broke down");
    });
    assert_eq!(found[0], found[1]);
    found.into_iter().next().expect("there are two")
}

#[test]
fn a_forward_kernel_that_overflows_is_named() {
    let task = network(0.01, |b, x| {
        let x = b.apply(Op::Scale { factor: 1e30 }, &[x]);
        b.apply(Op::Scale { factor: 1e30 }, &[x])
    });
    let (iteration, kernel, tensor, text) = breakdown(&task, Synthetic);
    assert_eq!((iteration, kernel.as_str(), tensor.as_str()), (0, "middle.scale.2", "middle.scale.2"));
    assert!(text.starts_with("iteration 0, step "), "{text}");
    assert!(text.contains("(middle.scale.2): `middle.scale.2` has "), "{text}");
    assert!(text.contains("inf at element 0; it is the first tensor that has such a number"), "{text}");
}

#[test]
fn a_backward_kernel_that_overflows_is_named_before_weights_are_spoilt() {
    // Forward, the large factor meets what a small one has made small; backward it comes first.
    let task = network(0.01, |b, x| {
        let x = b.apply(Op::Scale { factor: 1e-30 }, &[x]);
        let x = b.apply(Op::Scale { factor: 1e-15 }, &[x]);
        let x = b.apply(Op::Scale { factor: 1e38 }, &[x]);
        b.apply(Op::Scale { factor: 1e4 }, &[x])
    });
    let (iteration, kernel, tensor, _) = breakdown(&task, Synthetic);
    assert_eq!(iteration, 0);
    assert_eq!(kernel, "middle.scale.3.scale", "the one behind the kernel of that factor");
    assert!(tensor.contains(".grad"), "{tensor}");
}

#[test]
fn a_weight_that_an_update_spoils_is_named() {
    let task = network(f32::MAX, |_, x| x);
    let (iteration, kernel, tensor, _) = breakdown(&task, Synthetic);
    assert_eq!(iteration, 0);
    assert_eq!(kernel, format!("{tensor}.update"));
}

/// Where a weight changes without a gradient, in parts, the part is named that is spoilt.
#[test]
fn a_part_of_a_weight_that_changes_at_once_is_named() {
    let mut b = Builder::new("fragile", DType::F32);
    let x = b.input("x", [16, 40]);
    b.layer("one");
    let x = b.linear(x, 600);
    b.layer("classes");
    let logits = b.linear(x, 10);
    let loss = b.cross_entropy(logits, "labels");
    b.train(&[loss], Optimizer::Sgd { rate: f32::MAX, momentum: 0.0, decay: 1e3 });
    let whole = task(Program::new(b.finish().expect("it fits"), schedule::ScheduleOptions::default()), 16);
    let parts = whole.training.updating_early().in_parts(Bytes::kib(50)).expect("a large weight");
    let (iteration, kernel, tensor, text) = breakdown(&whole.played_as(Arc::new(parts)), Synthetic);
    assert_eq!(iteration, 0, "{text}");
    // The kernel that changes just that: `one.linear.backward-sgd.part1` for `one.weight.part1`.
    let (layer, part) = tensor.split_once('.').expect("a layer's");
    let part = part.strip_prefix("weight").or(part.strip_prefix("bias")).expect("a weight or a bias");
    assert_eq!(kernel, format!("{layer}.linear.backward-sgd{part}"), "{text}");
}

/// Data that is sound for a while.
#[derive(Clone)]
struct Rotten;

impl Data for Rotten {
    fn about(&self) -> String {
        "rotten data".to_string()
    }

    fn samples(&self, _: Split) -> Option<u64> {
        None
    }

    fn fill(&mut self, request: &Request<'_>, bytes: &mut [u8]) -> Result<bool, DataError> {
        if request.part != Part::Features {
            return Ok(false);
        }
        bytes.fill(0);
        if request.position == 3 * 8 {
            bytes[4 * 37..4 * 38].copy_from_slice(&f32::NAN.to_le_bytes());
        }
        Ok(true)
    }
}

#[test]
fn data_that_is_no_number_is_named() {
    let task = network(0.01, |_, x| x);
    let (iteration, kernel, tensor, text) = breakdown(&task, Rotten);
    assert_eq!((iteration, kernel.as_str(), tensor.as_str()), (3, "one.linear", "x"));
    assert!(text.contains("`x` has NaN at element 37 before the kernel"), "{text}");
}

#[test]
fn a_weight_that_begins_as_no_number_is_named() {
    let task = network(0.01, |b, x| {
        let weight = b.weight("crooked", [16, 16], Init::Constant(f32::INFINITY));
        b.apply(Op::Linear, &[x, weight])
    });
    let (iteration, kernel, tensor, _) = breakdown(&task, Synthetic);
    assert_eq!((iteration, kernel.as_str(), tensor.as_str()), (0, "middle.linear", "middle.crooked"));
}

//! Activations and weights that are worked on in parts give the same losses and the same weights, bit for bit, and take
//! less memory at a time.

mod ample_training;

use std::sync::Arc;

use ample_training::{lessons, train};
use tiercel_core::Bytes;
use tiercel_kernels::{Library, prepare};
use tiercel_train::Task;
use tiercel_workload::graph::Optimizer;
use tiercel_workload::recompute::candidates;
use tiercel_workload::trace::Role;
use tiercel_workload::{Lifetimes, Program, nets};

fn programs() -> impl Iterator<Item = (&'static str, Program)> {
    let cases = [
        ("vgg16", Some(32), 6),
        ("resnet32", None, 5),
        ("mobilenet", Some(64), 7),
        ("dcgan", None, 6),
        ("cnn", None, 20),
        ("inception-v3", Some(96), 3),
    ];
    cases.into_iter().map(|(name, image, batch)| {
        let options = nets::NetOptions { batch: Some(batch), image, ..nets::NetOptions::default() };
        (name, nets::find(name).expect("built in").build(&options).expect("sound"))
    })
}

/// The size of the largest activation, in so many shares.
fn share(program: &Program, shares: u64) -> Bytes {
    share_of(program, Role::Activation, shares)
}

/// The size of the largest tensor of a role, in so many shares.
fn share_of(program: &Program, role: Role, shares: u64) -> Bytes {
    let all = program.trace.tensors.iter().filter(|t| t.role == role);
    Bytes(all.map(|tensor| tensor.bytes.0).max().unwrap_or(0) / shares)
}

#[test]
fn bits_do_not_depend_on_the_parts_that_a_batch_is_worked_on_in() {
    for (name, program) in programs() {
        let expected = train(program.clone());
        for shares in [3, 16] {
            let limit = share(&program, shares);
            let parts = program.in_parts(limit).unwrap_or_else(|| panic!("{name}: nothing is in parts"));
            assert!(parts.trace.kernels.len() > program.trace.kernels.len(), "{name}: no kernel is in parts");
            assert_eq!(train(parts), expected, "{name} in parts of {limit}");
        }
        let early = program.updating_early();
        let dropped = candidates(&early.graph).iter().step_by(3).map(|c| c.value).collect();
        let again = early.recomputing(&dropped).in_parts(share(&program, 4)).expect("something is in parts");
        assert_eq!(train(again), expected, "{name}, computed again, updated early, in parts");
    }
}

/// Few samples and many, all optimizers, rows that are no multiple of what a part has: layers of 1024, 700 and 300.
#[test]
fn bits_do_not_depend_on_the_parts_that_weights_are_in() {
    let cases = [
        (20, 1024, Optimizer::SGD),
        (70, 700, Optimizer::MOMENTUM),
        (33, 1300, Optimizer::ADAMW),
        (200, 300, Optimizer::SGD),
    ];
    for (batch, width, optimizer) in cases {
        let options = nets::NetOptions {
            batch: Some(batch),
            width: Some(width),
            optimizer: Some(optimizer),
            ..nets::NetOptions::default()
        };
        let program = nets::find("mlp").expect("built in").build(&options).expect("sound");
        let expected = train(program.clone());
        for shares in [2, 5] {
            let limit = share_of(&program, Role::Weight, shares);
            for program in [program.clone(), program.updating_early()] {
                let parts = program.in_parts(limit).expect("something is in parts");
                let weights = |program: &Program| {
                    program.trace.tensors.iter().filter(|t| t.role == Role::Weight).count()
                };
                assert!(weights(&parts) > weights(&program), "{width}: no weight is in parts");
                assert_eq!(parts.graph.parameters(), program.graph.parameters());
                // Where updates are early, the gradient of a weight in parts is never there.
                let is_part = |name: &str| name.contains(".weight.grad.part");
                let gradients = parts.trace.tensors.iter().filter(|tensor| is_part(&tensor.name)).count();
                let early = parts.rewriting().early_updates;
                assert!(gradients == 0 || !early, "{width} wide: {gradients} gradients in parts");
                assert_eq!(train(parts), expected, "{width} wide, {batch} samples, parts of {limit}");
            }
        }
    }
}

/// Logits of a vocabulary: a part of the batch goes through the layer, the loss and their gradients before the next.
#[test]
fn bits_do_not_depend_on_the_parts_that_logits_are_in() {
    let of = |name: &str, batch, sequence, width, depth| {
        let options = nets::NetOptions {
            batch: Some(batch),
            sequence: Some(sequence),
            width: Some(width),
            depth: Some(depth),
            ..nets::NetOptions::default()
        };
        nets::find(name).expect("built in").build(&options).expect("sound")
    };
    let cases = [
        (of("gpt2", 6, 128, 16, 1), 3),
        (of("gpt2", 5, 256, 16, 1), 16),
        (of("lstm", 20, 35, 16, 1), 2),
        (of("lstm", 12, 50, 16, 1), 9),
    ];
    for (program, shares) in cases {
        let name = program.graph.name.clone();
        let parts =
            program.updating_early().in_parts(share(&program, shares)).expect("something is in parts");
        assert!(share(&parts, 1) < share(&program, 1), "{name}: the logits are still there as a whole");
        assert_eq!(train(parts), train(program), "{name}");
    }
    // Rows of a sample that are no whole blocks.
    let odd = of("gpt2", 2, 300, 16, 1);
    assert!(odd.in_parts(share(&odd, 4)).is_none());
}

/// What one run saves with weights in parts, another goes on from with whole ones, and the other way round; and the network
/// is judged by the weights that it has learnt.
#[test]
fn weights_in_parts_are_saved_resumed_and_judged_as_if_they_were_whole() {
    let options = nets::NetOptions { batch: Some(20), width: Some(600), ..nets::NetOptions::default() };
    let program = nets::find("mlp").expect("built in").build(&options).expect("sound");
    let limit = share_of(&program, Role::Weight, 3);
    let whole = Task::new(program, 20, |program| prepare(program, 2));
    let parts = whole.played_as(Arc::new(whole.training.updating_early().in_parts(limit).expect("in parts")));
    let folder = std::env::temp_dir().join(format!("tiercel-parts-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = |name: &str| folder.join(name);
    let mut results = Vec::new();
    for (name, first, second) in [("ww", &whole, &whole), ("wp", &whole, &parts), ("pw", &parts, &whole)] {
        let (losses, score) = lessons(first, None, &file(name));
        results.push((losses, score, lessons(second, Some(&file(name)), &file("end"))));
        assert_eq!(std::fs::read(file("ww")).ok(), std::fs::read(file(name)).ok(), "{name}: other bytes");
    }
    assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
    std::fs::remove_dir_all(&folder).expect("tidied up");
}

/// A system rewrites a program that has its workspace, and plans what comes of it: nothing may be missing there.
#[test]
fn a_program_in_parts_has_all_workspace_that_it_needs() {
    for net in nets::all() {
        let options = nets::NetOptions { batch: Some(11), ..nets::NetOptions::default() };
        let program = net.build(&options).expect("sound");
        if program.trace.kernels.len() > 2000 {
            continue;
        }
        let ready = prepare(program, 2);
        for shares in [2, 5, 16] {
            if let Some(parts) = ready.in_parts(share(&ready, shares)) {
                Library::new(&parts, 2).unwrap_or_else(|why| panic!("{}: {why}", net.name));
            }
        }
    }
}

#[test]
fn a_batch_in_parts_needs_no_more_memory_and_the_size_alone_leads_to_it_again() {
    for (name, program) in programs() {
        let peak = |program: &Program| Lifetimes::new(&program.trace).peak().1;
        let parts = program.in_parts(share(&program, 4)).expect("something is in parts");
        assert!(peak(&parts) <= peak(&program), "{name}: {} and {}", peak(&parts), peak(&program));
        assert_eq!(program.rewritten(parts.rewriting()).as_ref(), Ok(&parts), "{name}");
        let large = Bytes(share(&program, 1).0 + 1);
        assert_eq!(program.in_parts(large), None, "{name}");
    }
}

//! Running kernels of a trace again: whatever list is accepted, every kernel of the original finds the very bytes that it
//! found before, by following contents as symbols.

use tiercel_core::Bytes;
use tiercel_workload::repeat::Repeat;
use tiercel_workload::repeated::{RepeatError, Repeated, Rerun};
use tiercel_workload::trace::{Kernel, Phase, Role, Tensor, TensorId, Trace, Use};

fn use_of(tensor: u32) -> Use {
    Use { tensor: TensorId(tensor), bytes: Bytes(64) }
}

fn kernel(at: usize, reads: &[u32], writes: &[u32], repeat: Repeat) -> Kernel {
    Kernel {
        name: format!("k{at}"),
        op: "any".to_string(),
        reads: reads.iter().map(|t| use_of(*t)).collect(),
        writes: writes.iter().map(|t| use_of(*t)).collect(),
        flops: 0,
        layer: 0,
        phase: Phase::Forward,
        timings: Vec::new(),
        alternatives: Vec::new(),
        detached: false,
        factor: 1.0,
        repeat: Some(repeat),
        derived: Default::default(),
    }
}

fn trace(tensors: u32, kernels: Vec<Kernel>) -> Trace {
    let tensor = |at| Tensor {
        name: format!("t{at}"),
        bytes: Bytes(64),
        role: if at == 0 { Role::Input } else { Role::Activation },
        persistent: false,
    };
    let tensors = (0..tensors).map(tensor).collect();
    Trace { name: "symbols".to_string(), tensors, kernels, layers: vec!["all".to_string()] }
}

fn mix(state: u64, value: u64) -> u64 {
    let mixed = (state ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 29
}

/// What every kernel of the original finds in its operands, in a trace whose kernels do the work of these.
fn contents(trace: &Trace, origin: impl Fn(usize) -> (u32, bool)) -> Vec<u64> {
    let mut bytes: Vec<u64> = (0..trace.tensors.len() as u64).map(|t| mix(1, t)).collect();
    let mut seen = Vec::new();
    for (at, kernel) in trace.kernels.iter().enumerate() {
        let (work, again) = origin(at);
        // What it writes holds nothing of what was there, unless it reads it.
        let found =
            kernel.reads.iter().fold(u64::from(work), |state, u| mix(state, bytes[u.tensor.0 as usize]));
        for (result, used) in kernel.writes.iter().enumerate() {
            bytes[used.tensor.0 as usize] = mix(found, result as u64);
        }
        if !again {
            seen.push(found);
        }
    }
    seen
}

fn random(random: &mut fastrand::Rng) -> Trace {
    let mut kernels = Vec::new();
    let mut filled = vec![0];
    let tensors = random.u32(4..9);
    for at in 0..random.usize(4..14) {
        let mut reads: Vec<u32> =
            (0..random.usize(1..3)).map(|_| filled[random.usize(..filled.len())]).collect();
        let result = random.u32(1..tensors);
        // What holds something already is changed in place.
        if filled.contains(&result) {
            reads.push(result);
        }
        reads.sort_unstable();
        reads.dedup();
        let repeat = if random.u32(..8) == 0 { Repeat::Once } else { Repeat::Pure };
        kernels.push(kernel(at, &reads, &[result], repeat));
        filled.push(result);
    }
    trace(tensors, kernels)
}

fn same(trace: &Trace, repeated: &Repeated) {
    repeated.trace.check().unwrap_or_else(|fault| panic!("{fault}"));
    let before = contents(trace, |at| (at as u32, false));
    let after = contents(&repeated.trace, |at| (repeated.kernels[at].kernel, repeated.kernels[at].again));
    assert_eq!(before, after);
}

#[test]
fn every_kernel_finds_the_bytes_that_it_found() {
    let mut accepted = 0;
    for seed in 0..4000 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let trace = random(&mut chance);
        let steps = trace.kernels.len() as u32;
        let mut list: Vec<Rerun> = (0..chance.usize(1..4))
            .map(|_| Rerun { before: chance.u32(1..steps), kernel: chance.u32(..steps - 1) })
            .collect();
        list.sort_unstable();
        if let Ok(repeated) = trace.repeating(&list) {
            accepted += 1;
            same(&trace, &repeated);
            assert_eq!(repeated.kernels.len(), trace.kernels.len() + list.len());
        }
    }
    assert!(accepted > 300, "{accepted} lists were accepted");
}

#[test]
fn nothing_again_changes_nothing() {
    let mut chance = fastrand::Rng::with_seed(7);
    let trace = random(&mut chance);
    assert_eq!(trace.repeating(&[]).expect("nothing to refuse").trace, trace);
}

#[test]
fn a_tensor_that_is_made_again_is_a_fresh_one_and_what_changed_it_in_place_does_so_again() {
    let kernels = vec![
        kernel(0, &[0], &[1], Repeat::Pure),
        kernel(1, &[1], &[1], Repeat::Pure),
        kernel(2, &[1], &[2], Repeat::Pure),
        kernel(3, &[1, 2], &[3], Repeat::Pure),
    ];
    let trace = trace(4, kernels);
    let list = [Rerun { before: 3, kernel: 0 }, Rerun { before: 3, kernel: 1 }];
    let repeated = trace.repeating(&list).expect("both can");
    same(&trace, &repeated);
    assert_eq!(repeated.trace.tensors[4].name, "t1.again");
    assert_eq!(repeated.tensors[4], TensorId(1));
    assert_eq!(repeated.trace.kernels[5].reads[0].tensor, TensorId(4));
    // Half of it is refused: the last kernel would find what was not changed yet; and so is a second change.
    for list in [&list[..1], &list[1..]] {
        assert!(matches!(trace.repeating(list), Err(RepeatError::Bytes { .. })), "{list:?}");
    }
}

#[test]
fn what_must_run_once_and_what_has_not_run_are_refused_by_name() {
    let kernels = vec![kernel(0, &[0], &[1], Repeat::Once), kernel(1, &[1], &[2], Repeat::Pure)];
    let trace = trace(3, kernels);
    let says = |before, kernel| {
        trace.repeating(&[Rerun { before, kernel }]).map(|_| ()).expect_err("it cannot").to_string()
    };
    assert_eq!(says(1, 0), "`k0` must not run again: it is `once`");
    assert_eq!(says(1, 1), "`k1` cannot run again before step 1, because it has not run by then");
    assert_eq!(says(1, 9), "kernel 9 cannot run again before step 1: the trace has 2 kernels");
    assert_eq!(says(2, 0), "kernel 0 cannot run again before step 2: the trace has 2 kernels");
}

#[test]
fn state_that_a_kernel_changes_is_a_scratch_copy_the_second_time() {
    let mut norm = kernel(0, &[0, 1], &[1, 2], Repeat::Scratch);
    let mut trace = trace(4, vec![norm.clone(), kernel(1, &[2], &[3], Repeat::Pure)]);
    trace.tensors[1].persistent = true;
    let repeated = trace.repeating(&[Rerun { before: 1, kernel: 0 }]).expect("it can");
    repeated.trace.check().expect("sound");
    let written: Vec<bool> =
        repeated.trace.kernels[1].writes.iter().map(|u| repeated.trace.tensor(u.tensor).persistent).collect();
    assert_eq!(written, [false, false]);
    norm.repeat = Some(Repeat::Pure);
    trace.kernels[0] = norm;
    assert!(trace.repeating(&[Rerun { before: 1, kernel: 0 }]).is_err(), "it changes what lasts");
}

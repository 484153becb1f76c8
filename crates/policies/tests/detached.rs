//! Kernels that run beside others on real memory give the same losses and the same weights, bit for bit.

mod ample_training;

use ample_training::{train, train_detached};
use tiercel_core::Bytes;
use tiercel_workload::graph::Optimizer;
use tiercel_workload::nets;

/// Tables of which a batch has the same rows again and again, and bags of several rows; with and without states.
#[test]
fn bits_do_not_depend_on_updates_that_run_beside_other_kernels() {
    for (optimizer, bag) in [(Optimizer::SGD, 1), (Optimizer::MOMENTUM, 3), (Optimizer::ADAMW, 2)] {
        let options = nets::NetOptions {
            batch: Some(64),
            sequence: Some(bag),
            words: Some(3000),
            optimizer: Some(optimizer),
            ..nets::NetOptions::default()
        };
        let program = nets::find("dlrm").expect("built in").build(&options).expect("sound");
        let expected = train(program.clone());
        for program in [program.clone(), program.updating_early()] {
            let beside = program.updating_detached(Bytes::kib(64)).expect("there are large tables");
            let many = beside.trace.kernels.iter().filter(|kernel| kernel.detached).count();
            assert!((8..26).contains(&many), "{many} updates run beside others");
            assert_eq!(train(beside.clone()), expected, "{optimizer:?}: nothing to run them beside others");
            assert_eq!(train_detached(beside), expected, "{optimizer:?}, bags of {bag}");
        }
    }
}

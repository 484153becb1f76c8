//! Which seeds a fuzzer runs: few in the ordinary test run, more or just one by command.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs `fuzz` for `count` seeds, and names the seed of one that fails.
///
/// `TIERCEL_FUZZ=20` runs twenty times as many; `TIERCEL_SEED=48` runs just that one.
pub fn for_seeds(count: u64, fuzz: impl Fn(u64)) {
    for seed in range(count) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| fuzz(seed))) {
            eprintln!("failed with TIERCEL_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

fn range(count: u64) -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match (number("TIERCEL_SEED"), number("TIERCEL_FUZZ")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(times)) => 0..count * times,
        (None, None) => 0..count,
    }
}

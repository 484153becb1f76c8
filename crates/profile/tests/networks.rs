//! Whole networks on the modelled machine of AutoTM stay within what the paper shows. The model was chosen to do so
//! (`crates/profile/src/fit.rs`): this keeps it there, and proves nothing.

use tiercel_core::{Machine, TierId};
use tiercel_profile::{Model, machines};
use tiercel_sim::KernelTime;
use tiercel_workload::{Kernel, Trace, nets};

/// The time of all kernels, one after the other, with operands where `place` says.
fn seconds(machine: &Machine, trace: &Trace, place: impl Fn(&Kernel) -> Vec<TierId>) -> f64 {
    let model = Model::new(machine).unwrap();
    trace.kernels.iter().map(|k| model.time(machine, k, &place(k)).seconds()).sum()
}

fn all_in(tier: TierId) -> impl Fn(&Kernel) -> Vec<TierId> {
    move |k| vec![tier; k.reads.len() + k.writes.len()]
}

fn trace(net: &str, batch: u64) -> Trace {
    let options = nets::NetOptions { batch: Some(batch), ..nets::NetOptions::default() };
    nets::find(net).unwrap().build(&options).unwrap().trace
}

#[test]
fn slow_memory_alone_is_three_to_eight_times_slower() {
    let machine = machines::named("optane-autotm").unwrap();
    println!("{:24} {:>8} {:>8} {:>6}  conv: in, out", "network", "fast", "slow", "ratio");
    for (net, batch) in [
        ("vgg19", 2048),
        ("inception-v4-autotm", 1024),
        ("resnet200-autotm", 512),
        ("densenet264-autotm", 512),
    ] {
        let trace = trace(net, batch);
        let fast = seconds(&machine, &trace, all_in(TierId(0)));
        let slow = seconds(&machine, &trace, all_in(TierId(1)));
        let ratio = slow / fast;
        // Convolutions with their input, or their output, moved alone.
        let model = Model::new(&machine).unwrap();
        let moved = |operand: fn(&Kernel) -> usize| {
            let slowdown = |k: &Kernel| {
                let mut tiers = all_in(TierId(0))(k);
                let fast = model.time(&machine, k, &tiers).seconds();
                tiers[operand(k)] = TierId(1);
                model.time(&machine, k, &tiers).seconds() / fast
            };
            let mut all: Vec<f64> = trace.kernels.iter().filter(|k| k.op == "conv").map(slowdown).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let (input, output) = (moved(|_| 0), moved(|k| k.reads.len()));
        println!("{net:24} {fast:7.1}s {slow:7.1}s {ratio:6.2}  {input:.2}, {output:.2}");
        assert!((3.0..=8.0).contains(&ratio), "{net}: {ratio}");
        assert!(output > input, "{net}: outputs matter more than inputs");
    }
}

//! Every shipped machine reads, reads back, and runs a small network; names that are nearly right are recognised.

use expect_test::expect;
use tiercel_core::{Machine, TierId};
use tiercel_profile::{Model, machines};
use tiercel_sim::KernelTime;
use tiercel_workload::graph::DType;
use tiercel_workload::{Kernel, Trace, nets};

fn trace(net: &str, options: nets::NetOptions) -> Trace {
    nets::find(net).unwrap().build(&options).unwrap().trace
}

#[test]
fn every_file_is_a_machine_that_the_list_knows() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|file| file.strip_suffix(".toml").map(str::to_string))
        .collect();
    files.sort();
    let mut known: Vec<&str> = machines::names().collect();
    known.sort();
    assert_eq!(files, known);
    for name in known {
        let machine = machines::named(name).unwrap();
        assert_eq!(machine.name, name);
        assert!(machine.source.len() > 40, "{name} says where its figures come from");
        assert_eq!(Machine::parse(&machine.to_toml()), Ok(machine), "{name} reads back");
    }
}

#[test]
fn a_name_that_is_nearly_right_is_recognised() {
    let error = machines::named("optane-autotn").unwrap_err().to_string();
    expect!["no machine `optane-autotn`; did you mean `optane-autotm`?"].assert_eq(&error);
    let error = machines::named("quantum-foam").unwrap_err().to_string();
    expect!["no machine `quantum-foam`; there are optane-autotm, optane-cachedarrays, optane-sentinel, redl, optane-4tier, optane-4tier-emulated, v100, rtx6000, h200, h100, a100-80gb, a100-40gb, rtx3090, rtx4090, rtx5090, l40s, a10g, cxl, dram-throttled"].assert_eq(&error);
}

/// Its rates were set to these two times: this keeps them there.
#[test]
fn the_h200_takes_the_time_that_was_measured() {
    let machine = machines::named("h200").unwrap();
    let model = Model::new(&machine).unwrap();
    let fast = |k: &Kernel| vec![TierId(0); k.reads.len() + k.writes.len()];
    let seconds = |trace: &Trace| -> f64 {
        trace.kernels.iter().map(|k| model.time(&machine, k, &fast(k)).seconds()).sum()
    };
    let resnet = trace("resnet152", nets::NetOptions { batch: Some(256), ..nets::NetOptions::default() });
    let bf16 = nets::NetOptions {
        batch: Some(8),
        sequence: Some(1024),
        depth: Some(24),
        width: Some(2048),
        dtype: DType::Bf16,
        ..nets::NetOptions::default()
    };
    let gpt2 = trace("gpt2", bf16);
    for (trace, measured) in [(&resnet, 0.184), (&gpt2, 0.173)] {
        let modelled = seconds(trace);
        println!("{}: {modelled:.3} s, measured {measured} s", trace.name);
        assert!((modelled / measured - 1.0).abs() < 0.1);
    }
}

//! Plans in files: for programs as they are and as they were rewritten, and refused for any other workload.

mod shell;

use std::time::Duration;

use expect_test::{Expect, expect};
use serde_json::{Value, json as literal};
use shell::{Folder, json, tiercel};
use tiercel_core::Machine;
use tiercel_kernels::prepare;
use tiercel_plan::{Outline, Plan};
use tiercel_profile::{Model, machines};
use tiercel_systems::{Choices, Fast, Options, Setting, Times, named};
use tiercel_workload::{Program, nets};

/// Tiercel's plan for a program with these choices, and the machine that it is for.
fn planned(program: &Program, fast: f64, choices: Choices) -> (Plan, Machine) {
    let machine = machines::named("dram-throttled").expect("it ships");
    let times = Times::new(Model::new(&machine).expect("it has a model"));
    let machine = Fast::Share(fast).machine(&program.trace, &machine);
    let options = Options { choices, time: Duration::MAX, rounds: 1, ..Options::default() };
    let setting = Setting::of(program, &machine, &times).with(options);
    let prepared = named("tiercel").and_then(|system| system.prepare(&setting)).expect("there is room");
    (prepared.planned.expect("it plans").plan, machine)
}

fn network(name: &str, batch: u64) -> Program {
    let options = nets::NetOptions { batch: Some(batch), ..nets::NetOptions::default() };
    nets::find(name).expect("built in").build(&options).expect("sound")
}

#[test]
fn a_plan_with_weights_updated_early_is_written_and_played() {
    let folder = Folder::new("early");
    let path = folder.path("plan.json");
    // A time that is never reached, so that the same plan is found on any machine.
    let cnn = ["cnn", "--batch", "16"];
    let how = ["--machine", "optane-autotm", "--fast", "40%", "--gap", "100%", "--time", "60s"];
    let planned = json(&[&["plan"], &cnn[..], &how, &["--out", &path]].concat());
    assert_eq!((&planned["system"], &planned["early_updates"]), (&"tiercel".into(), &true.into()));
    let written: Value = serde_json::from_slice(&std::fs::read(&path).expect("written")).expect("JSON");
    assert_eq!((&written["early_updates"], &written["outline"]["batch"]), (&true.into(), &16.into()));
    let run = json(&[&["run"], &cnn[..], &["--plan", &path]].concat());
    assert_eq!(run["planned_ns"], planned["iteration_ns"]);
    assert_eq!(run["iteration_ns"][0], planned["simulated_ns"]);
    // A trace has no program behind it that could be rewritten.
    let trace = folder.path("cnn.trace");
    assert!(tiercel(&[&["describe"], &cnn[..], &["--out", &trace]].concat()).status.success());
    refused(
        &["run", &trace, "--plan", &path],
        &[(&trace, "TRACE")],
        expect![[r#"
            tiercel: the plan does not fit: the plan is for a network that is rewritten: weights are updated early, tensors computed again or worked on in parts; a trace cannot be
        "#]],
    );
}

#[test]
fn a_plan_that_computes_again_is_played_in_simulation_and_on_memory() {
    let folder = Folder::new("again");
    let program = prepare(network("resnet32", 4), 2);
    let (plan, machine) = planned(&program, 0.8, Choices::Recompute);
    assert!(plan.early_updates && !plan.recomputed.is_empty());
    let path = folder.file("plan.json", serde_json::to_string(&plan).expect("JSON"));
    let read: Plan = serde_json::from_slice(&std::fs::read(&path).expect("written")).expect("a plan");
    assert_eq!(read, plan);
    let net = ["run", "resnet32", "--batch", "4", "--iterations", "2", "--on", "host", "--threads", "2"];
    let on = ["--machine", "dram-throttled"];
    let run = json(&[&net[..], &on, &["--plan", &path]].concat());
    assert_eq!((&run["system"], &run["fast_bytes"]), (&"plan".into(), &machine.tiers[0].capacity.0.into()));
    assert!(run["recomputed_kernels"].as_u64().is_some_and(|n| n > 0), "{run}");
    let fast = json(&[&net[..], &on, &["--system", "fast-only"]].concat());
    assert_eq!((&run["loss"], &run["output_hash"]), (&fast["loss"], &fast["output_hash"]));
    assert!(run["output_hash"].is_string());
}

#[test]
fn a_plan_that_works_in_parts_is_played_on_memory() {
    let folder = Folder::new("parts");
    let (plan, _) = planned(&prepare(network("cnn", 64), 2), 0.2, Choices::Move);
    assert!(plan.parts_bytes.is_some_and(|bytes| bytes >= 1 << 20), "{:?}", plan.parts_bytes);
    let path = folder.file("plan.json", serde_json::to_string(&plan).expect("JSON"));
    let run = ["run", "cnn", "--batch", "64", "--image", "28", "--iterations", "2", "--on", "host"];
    let run = [&run[..], &["--threads", "2", "--machine", "dram-throttled"]].concat();
    let parts = json(&[&run[..], &["--plan", &path]].concat());
    assert!(parts["kernels_on_parts"].as_u64().is_some_and(|n| n > 0), "{parts}");
    let fast = json(&[&run[..], &["--system", "fast-only"]].concat());
    assert_eq!((&parts["loss"], &parts["output_hash"]), (&fast["loss"], &fast["output_hash"]));
}

#[test]
fn a_plan_for_another_workload_is_refused_with_what_differs() {
    let folder = Folder::new("others");
    let path = folder.path("plan.json");
    let how = [
        "--machine",
        "optane-autotm",
        "--fast",
        "40%",
        "--system",
        "autotm-sync",
        "--time",
        "1s",
        "--out",
        &path,
    ];
    assert!(tiercel(&[&["plan", "gpt2"], &GPT[..], &["--batch", "2"], &how].concat()).status.success());
    let says = |net: &[&str], expected: Expect| {
        refused(&[&["run"], net, &["--plan", &path]].concat(), &[], expected);
    };
    says(
        &["mlp", "--batch", "2"],
        expect![[r#"
        tiercel: the plan does not fit: the plan is for `gpt2`, the trace is `mlp`
    "#]],
    );
    says(
        &[&["gpt2"], &GPT[..], &["--batch", "4"]].concat(),
        expect![[r#"
        tiercel: the plan does not fit: the plan is for batch 2, this is batch 4
    "#]],
    );
    says(
        &["gpt2", "--batch", "2", "--depth", "2", "--width", "64", "--sequence", "16"],
        expect![[r#"
        tiercel: the plan does not fit: the plan is for 61 kernels, here are 103
    "#]],
    );
    says(
        &["gpt2", "--batch", "2", "--depth", "1", "--width", "64", "--sequence", "32"],
        expect![[r#"
        tiercel: the plan does not fit: the plan is for `words` of 128 B, here it has 256 B
    "#]],
    );
    says(
        &[&["gpt2"], &GPT[..], &["--batch", "2", "--dtype", "bf16"]].concat(),
        expect![[r#"
        tiercel: the plan does not fit: the plan is for `words.table` of 12.3 MiB, here it has 6.13 MiB
    "#]],
    );
    // A trace does not say its batch; its tensors do.
    let trace = folder.path("gpt2.trace");
    assert!(
        tiercel(&[&["describe", "gpt2"], &GPT[..], &["--batch", "4", "--out", &trace]].concat())
            .status
            .success()
    );
    says(
        &[&trace],
        expect![[r#"
        tiercel: the plan does not fit: the plan is for `words` of 128 B, here it has 256 B
    "#]],
    );
    let text = std::fs::read_to_string(&path).expect("it was written");
    let mut older: Value = serde_json::from_str(&text).expect("JSON");
    older.as_object_mut().expect("fields").remove("outline");
    let older = folder.file("older.json", older.to_string());
    let run = json(&[&["run", "gpt2"], &GPT[..], &["--batch", "2", "--plan", &older]].concat());
    assert_eq!(run["system"], "plan", "plans that do not say what they are for are played as ever");
}

const GPT: [&str; 6] = ["--depth", "1", "--width", "64", "--sequence", "16"];

#[test]
fn a_rewriting_that_is_not_possible_is_refused() {
    let folder = Folder::new("rewriting");
    let says = |recomputed: Value, expected: Expect| {
        let plan = literal!({
            "net": "mlp", "machine": "optane-autotm", "fast_bytes": 1u64 << 30, "iteration_ns": 1.0,
            "bound_ns": 1.0, "births": [], "moves": [], "recomputed": recomputed,
        });
        let path = folder.file("plan.json", plan.to_string());
        refused(&["run", "mlp", "--batch", "8", "--plan", &path], &[(&path, "FILE")], expected);
    };
    says(
        literal!(["ghost"]),
        expect![[r#"
        tiercel: the plan does not fit: the plan is for another network: there is no tensor `ghost` to compute again
    "#]],
    );
    says(
        literal!(["hidden1.weight"]),
        expect![[r#"
        tiercel: the plan does not fit: the plan is for another network: `hidden1.weight` cannot be computed again: it is not made by a forward kernel for the backward pass
    "#]],
    );
    says(
        literal!("all"),
        expect![[r#"
        tiercel: FILE: not a plan: invalid type: string "all", expected a sequence at line 1 column 138
    "#]],
    );
}

#[test]
fn a_plan_for_another_machine_says_so() {
    let folder = Folder::new("machines");
    let (path, file) = (folder.path("plan.json"), folder.path("attic.toml"));
    let text = include_str!("../../../machines/dram-throttled.toml");
    std::fs::write(&file, text.replace("name = \"dram-throttled\"", "name = \"attic\"")).expect("writes");
    let mlp = ["mlp", "--batch", "8"];
    let how = ["--machine", &file, "--fast", "40%", "--system", "autotm-sync", "--out", &path];
    assert!(tiercel(&[&["plan"], &mlp[..], &how].concat()).status.success());
    let run = [&["run"], &mlp[..], &["--plan", &path]].concat();
    refused(
        &run,
        &[],
        expect![[r#"
        tiercel: the plan is for the machine `attic`, which does not ship; give its file as --machine
    "#]],
    );
    refused(
        &[&run[..], &["--machine", "cxl"]].concat(),
        &[],
        expect![[r#"
        tiercel: the plan does not fit: the plan names the tier `fast`, which does not exist; the plan is for the machine `attic`, this is `cxl`
    "#]],
    );
    let attic = json(&[&run[..], &["--machine", &file]].concat());
    assert_eq!(attic["machine"], "attic");
}

#[test]
fn scratch_memory_that_a_plan_counts_on_is_asked_for() {
    let folder = Folder::new("scratch");
    let program = prepare(network("resnet32", 4), 2);
    let plan = literal!({
        "net": "resnet32", "machine": "optane-autotm", "fast_bytes": 1u64 << 30, "iteration_ns": 1.0,
        "bound_ns": 1.0, "births": [], "moves": [],
        "outline": Outline::new(&program.trace, Some(4)),
    });
    let path = folder.file("plan.json", plan.to_string());
    let name = "conv1.conv.backward-weight.workspace";
    let scratch = program.trace.tensors.iter().find(|tensor| tensor.name == name).expect("it has some");
    refused(
        &["run", "resnet32", "--batch", "4", "--plan", &path],
        &[(&scratch.bytes.to_string(), "SOME BYTES")],
        expect![[r#"
        tiercel: the plan does not fit: the plan is for a trace with `conv1.conv.backward-weight.workspace` of SOME BYTES, which is not here; kernels have this scratch memory with `--times measured` and on the host, for so many `--threads`
    "#]],
    );
}

/// Checks the one line that is said, with some paths under other names.
fn refused(arguments: &[&str], names: &[(&str, &str)], expected: Expect) {
    let output = tiercel(arguments);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{arguments:?}");
    let text = String::from_utf8(output.stderr).expect("text");
    expected.assert_eq(&names.iter().fold(text, |text, (path, name)| text.replace(path, name)));
}

//! The verb `describe`, run as a user runs it.

use std::process::{Command, Output, Stdio};

use expect_test::{Expect, expect};
use serde_json::Value;

fn tiercel(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tiercel")).args(arguments).output().expect("runs")
}

/// Checks exit status, standard output and standard error.
fn check(arguments: &[&str], status: i32, out: Expect, err: Expect) {
    let output = tiercel(arguments);
    out.assert_eq(&String::from_utf8_lossy(&output.stdout));
    err.assert_eq(&String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(status));
}

fn json(arguments: &[&str]) -> Value {
    let output = tiercel(arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A file with this text, removed with the test's folder.
fn file(name: &str, text: &[u8]) -> String {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("writes");
    path.to_str().expect("a plain path").to_string()
}

#[test]
fn table() {
    check(
        &["describe", "vgg19", "--batch", "2048", "--optimizer", "sgd"],
        0,
        expect![[r#"
        vgg19, batch 2048, f32: one training iteration

          parameters         143,667,240
          kernels            146 (forward 45, backward 63, update 38)
          tensors            128 (0 short-lived)
          forward            40.2 T multiply-adds, 19.6 G a sample
          peak               128 GiB at kernel 56, pool5.max-pool.backward
          short-lived peak   0 B

          live bytes over the iteration
          ▂▄▅▆▆▆▇▇▇██████████████████████████████████▇▇▇▆▇▆▆▆▅▅▂▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁

          role                 tensors          all  at the peak
          weight                    38      548 MiB      548 MiB
          gradient                  38      548 MiB      472 MiB
          input                      2     1.15 GiB     1.15 GiB
          activation                50      250 GiB      126 GiB

          largest tensors
              24.5 GiB  activation  conv1_1.conv
              24.5 GiB  activation  conv1_2.conv
              24.5 GiB  activation  conv1_2.relu.grad
              24.5 GiB  activation  conv1_1.relu.grad
              12.2 GiB  activation  conv2_1.conv
              12.2 GiB  activation  conv2_2.conv
              12.2 GiB  activation  conv2_2.relu.grad
              12.2 GiB  activation  conv2_1.relu.grad
              6.12 GiB  activation  pool1.max-pool
              6.12 GiB  activation  conv3_1.conv
    "#]],
        expect![""],
    );
}

#[test]
fn json_has_the_agreed_names() {
    let d = json(&["describe", "vgg19", "--batch", "4", "--json"]);
    assert_eq!(d["net"], "vgg19");
    assert_eq!(d["batch"], 4);
    assert_eq!(d["parameters"], 143_667_240);
    assert_eq!(d["forward_macs_per_sample"], 19_632_062_464_u64);
    assert_eq!(d["forward_macs"], 4 * 19_632_062_464_u64);
    for name in ["kernels", "tensors", "peak_bytes", "short_lived_peak_bytes"] {
        assert!(d[name].is_u64(), "{name}");
    }
    assert_eq!(d["largest_tensors"].as_array().map(Vec::len), Some(10));
    let half = json(&["describe", "vgg19", "--batch", "4", "--dtype", "bf16", "--json"]);
    assert!(half["bytes_by_role"]["activation"].as_u64() < d["bytes_by_role"]["activation"].as_u64());
}

#[test]
fn a_trace_that_was_written_describes_like_its_network() {
    let path = file("resnet32.trace", b"");
    let net = json(&["describe", "resnet32", "--batch", "8", "--json", "--out", &path]);
    let trace = json(&["describe", &path, "--json"]);
    for name in ["net", "kernels", "tensors", "peak_bytes", "short_lived_peak_bytes", "live_bytes", "flops"] {
        assert_eq!(net[name], trace[name], "{name}");
    }
    assert_eq!(trace["parameters"], Value::Null);
    let output = tiercel(&["describe", &path, "--batch", "4"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(error, format!("tiercel: {path}: a trace has its sizes already; `--batch` does not apply\n"));
}

#[test]
fn onnx_files() {
    let file = |name: &str| format!("{}/../workload/tests/onnx/{name}.onnx", env!("CARGO_MANIFEST_DIR"));
    let d = json(&["describe", &file("lenet"), "--batch", "8", "--json"]);
    assert_eq!(d["net"], "lenet");
    assert_eq!(d["batch"], 8);
    assert_eq!(d["parameters"], 3032);
    assert_eq!(d["forward_macs"], 8 * 160_500);
    assert_eq!(d["kernels_by_phase"]["update"], 8);
    let one = json(&["describe", &file("lenet"), "--json"]);
    assert_eq!(one["batch"], 1);
    assert!(one["peak_bytes"].as_u64() < d["peak_bytes"].as_u64());
    let output = tiercel(&["describe", &file("mlp")]);
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.starts_with("mlp, batch 4, f32: one training iteration\n"), "{table}");
    let output = tiercel(&["describe", &file("loop")]);
    assert_eq!(output.status.code(), Some(1));
    expect![[r#"
        tiercel: FILE: node 1 `loop_1`: operator `Loop` is not supported; supported are Add, ConvTranspose, Gather, Identity, Mul, Relu, Sqrt, Upsample and 65 more (docs/onnx.md)
    "#]]
    .assert_eq(&String::from_utf8_lossy(&output.stderr).replace(&file("loop"), "FILE"));
}

#[test]
fn unknown_names() {
    check(
        &["describe", "resnet-200"],
        2,
        expect![""],
        expect![[r#"
        tiercel: no network `resnet-200`; did you mean `resnet200`?
    "#]],
    );
    check(
        &["describe", "banana"],
        2,
        expect![""],
        expect![[r#"
        tiercel: no network `banana`; `tiercel list networks` names them
    "#]],
    );
    check(
        &["describe", "missing.trace"],
        1,
        expect![""],
        expect![[r#"
        tiercel: cannot read `missing.trace`: No such file or directory (os error 2)
    "#]],
    );
}

#[test]
fn bad_files_name_the_place() {
    let error = |name: &str, text: &[u8]| {
        let path = file(name, text);
        let output = tiercel(&["describe", &path]);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).replace(&path, "FILE")
    };
    let bad = b"tiercel-trace 1\nlayer l\nkernel conv1 conv forward l\n  read x9\n";
    expect![[r#"
        tiercel: FILE: line 4, column 8: kernel `conv1` reads `x9`, which no tensor line above names
    "#]]
    .assert_eq(&error("bad.trace", bad));
    expect![[r#"
        tiercel: FILE: line 1, column 6: this is not UTF-8 text
    "#]]
    .assert_eq(&error("binary.trace", b"\x7fELF\x02\xff"));
    expect![[r#"
        tiercel: FILE: line 1, column 1: a trace starts with `tiercel-trace 1`
    "#]]
    .assert_eq(&error("empty.trace", b""));
    expect![[r#"
        tiercel: FILE: byte 2: there is no graph
    "#]]
    .assert_eq(&error("net.onnx", b"\x08\x07"));
    let folder = tiercel(&["describe", env!("CARGO_TARGET_TMPDIR")]);
    assert_eq!(folder.status.code(), Some(1));
}

#[test]
fn options_that_do_not_fit() {
    check(
        &["describe", "vgg16", "--image", "8"],
        1,
        expect![""],
        expect![[r#"
        tiercel: pool4.max-pool: a window of 2x2 does not fit the input 64x512x1x1
    "#]],
    );
    check(
        &["describe", "vgg16", "--batch", "0"],
        1,
        expect![""],
        expect![[r#"
        tiercel: vgg16: batch 0 is not between 1 and 4294967296
    "#]],
    );
    for wrong in [&["describe"][..], &["describe", "mlp", "--batch", "many"], &["explain", "mlp"], &[]] {
        assert_eq!(tiercel(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn help_has_examples_that_work() {
    let output = tiercel(&["describe", "--help"]);
    let help = String::from_utf8_lossy(&output.stdout);
    let examples: Vec<&str> =
        help.lines().filter_map(|l| l.trim().strip_prefix("tiercel describe ")).collect();
    assert!(output.status.success() && examples.len() >= 2, "{help}");
    for example in examples {
        let arguments: Vec<&str> = ["describe"].into_iter().chain(example.split(' ')).collect();
        assert!(tiercel(&arguments).status.success(), "{example}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tiercel"))
        .args(["describe", "vgg416", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

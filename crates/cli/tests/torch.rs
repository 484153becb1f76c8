//! `--torch`: a step of a PyTorch program, planned from a trace that Python writes.

mod shell;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use shell::{Folder, tiercel};

/// A step that somebody else has run dry.
const TRACE: &str = "tiercel-trace 1
name linear
layer model
tensor w weight 4MiB persistent
tensor x activation 8MiB
tensor y activation 8MiB
kernel make rand forward model
  write x
  time 100us at 0
kernel forward mm forward model
  read w
  read x
  write y
  time 900us at 0 0 0
kernel backward mm backward model
  read x
  read y
  write w
  time 900us at 0 0 0
";

/// An interpreter that does not know Python: it writes down what it was asked, and a trace where it was told to.
fn interpreter(folder: &Folder, script: &str) -> String {
    let path = folder.path("python");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a script");
    path
}

fn complaint(arguments: &[&str]) -> (Option<i32>, String) {
    let output = tiercel(arguments);
    assert!(!output.status.success());
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_trace_that_python_writes_is_planned() {
    let folder = Folder::new("torch");
    let (trace, asked) = (folder.path("canned.trace"), folder.path("asked"));
    std::fs::write(&trace, TRACE).expect("written");
    // The arguments are: -m tiercel.estimate STEP --machine FILE --trace FILE --batch N.
    let script =
        format!("echo \"$@\" > {asked}; grep -q 'name = \"rtx4090\"' \"$5\" || exit 3; cp {trace} \"$7\"");
    let python = interpreter(&folder, &script);
    let how = ["--torch", "train:make", "--batch", "4", "--python", &python, "--machine", "rtx4090"];
    let output = tiercel(&[&["plan"], &how[..], &["--fast", "20MiB"]].concat());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("linear on rtx4090") && said.contains("of the peak of 20 MiB"), "{said}");
    let asked = std::fs::read_to_string(asked).expect("it was run");
    let words: Vec<&str> = asked.split_whitespace().collect();
    assert_eq!(&words[..4], ["-m", "tiercel.estimate", "train:make", "--machine"]);
    assert_eq!(&words[7..], ["--batch", "4"]);
    assert!(!Path::new(words[6]).exists(), "nothing is left behind");
    let output = tiercel(&[&["describe"], &how[..6]].concat());
    assert!(!output.status.success(), "without a machine it is the h200, which this interpreter refuses");
}

#[test]
fn what_keeps_python_from_it_is_said() {
    let folder = Folder::new("no-torch");
    let step = ["plan", "--torch", "train:make", "--python"];
    let (status, said) = complaint(&[&step[..], &["/no/such/python"]].concat());
    assert_eq!(status, Some(1));
    assert!(said.contains("there is no `/no/such/python`; --python names another"), "{said}");
    let python = interpreter(&folder, "echo \"No module named 'tiercel'\" >&2; exit 1");
    let (_, said) = complaint(&[&step[..], &[&python]].concat());
    assert!(said.contains("has no package `tiercel`"), "{said}");
    let python = interpreter(
        &folder,
        "echo 'tiercel: estimating takes PyTorch, which is not installed here' >&2; exit 1",
    );
    let (_, said) = complaint(&[&step[..], &[&python]].concat());
    assert!(said.starts_with("tiercel: estimating takes PyTorch"), "{said}");
    let python = interpreter(&folder, "exit 0");
    let (_, said) = complaint(&[&step[..], &[&python]].concat());
    assert!(said.contains("wrote no trace that can be read"), "{said}");
    let (status, said) = complaint(&[&step[..], &[&python, "--image", "32"]].concat());
    assert_eq!(status, Some(2));
    assert!(said.contains("no size `--image` of a PyTorch step; it has --batch"), "{said}");
    let (status, said) = complaint(&["plan"]);
    assert_eq!(status, Some(2));
    assert!(said.contains("NET|FILE"), "{said}");
    let (status, _) = complaint(&["plan", "vgg19", "--torch", "train:make"]);
    assert_eq!(status, Some(2));
}

const STEP: &str = "
import torch
def make():
    model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(6)]).to('cuda')
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    def step():
        optimizer.zero_grad()
        model(torch.randn(8192, 1024, device='cuda')).sum().backward()
        optimizer.step()
    return step
";

/// The whole way, where Python has PyTorch and the package; `TIERCEL_PYTHON` names the interpreter.
#[test]
fn a_step_of_a_real_program_is_planned() {
    let folder = Folder::new("step");
    let python = std::env::var("TIERCEL_PYTHON").unwrap_or_else(|_| "python3".into());
    let there = Command::new(&python).args(["-c", "import torch, tiercel._tiercel"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        println!("skipped: `{python}` has no PyTorch or no package tiercel; TIERCEL_PYTHON names another");
        return;
    }
    let file = folder.path("program.py");
    std::fs::write(&file, STEP).expect("written");
    let step = format!("{file}:make");
    let output = tiercel(&[
        "plan",
        "--torch",
        &step,
        "--python",
        &python,
        "--machine",
        "rtx4090",
        "--fast",
        "60%",
        "--json",
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    // Six layers of 1024 x 1024 with gradients, and 8192 x 1024 between them.
    let peak = plan["peak_bytes"].as_u64().expect("a peak");
    assert!((200 << 20..400 << 20).contains(&peak), "{peak}");
    assert!(plan["simulated_ns"].as_u64() >= plan["fast_only_ns"].as_u64());
}

//! A program outside the workspace, with `tiercel` as its one dependency, builds without a network and does what it should.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The example, moved to where nothing of the workspace is around it.
#[test]
fn a_program_with_one_dependency_plans_a_trace_and_trains_a_network() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let example = root.join("examples/outside");
    let manifest = fs::read_to_string(example.join("Cargo.toml")).expect("the example's manifest");
    let dependencies = manifest.split_once("[dependencies]").expect("it has dependencies").1;
    let named: Vec<&str> =
        dependencies.lines().filter_map(|line| Some(line.split_once('=')?.0.trim())).collect();
    assert_eq!(named, ["tiercel"]);
    let main = fs::read_to_string(example.join("src/main.rs")).expect("the example");
    let lines = main.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with("//"));
    assert!(lines.count() < 30);

    let away = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside");
    fs::create_dir_all(away.join("src")).expect("a folder");
    let here = format!("path = {:?}", root.display().to_string());
    fs::write(away.join("Cargo.toml"), manifest.replace("path = \"../..\"", &here)).expect("a manifest");
    fs::write(away.join("src/main.rs"), main).expect("a program");
    // The versions that are there already, so that nothing is fetched.
    fs::copy(root.join("Cargo.lock"), away.join("Cargo.lock")).expect("the versions");
    let run = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline", "--manifest-path"])
        .arg(away.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(away.join("target"))
        .arg("--")
        .arg(example.join("steps.trace"))
        .env_remove("CARGO_BUILD_TARGET_DIR")
        .output()
        .expect("cargo starts");
    let (out, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}\n{errors}");
    assert!(out.contains("two-layers: "), "{out}");
    assert!(out.contains(" moves planned, of "), "{out}");
    assert!(out.contains(" an iteration, "), "{out}");
    assert!(out.contains("mlp: loss "), "{out}");
    assert!(out.contains("after 3 iterations"), "{out}");
}

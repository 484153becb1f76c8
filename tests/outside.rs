//! A program outside the workspace, with `tiercel` as its one dependency, builds without a network and does what it should; and
//! so does the Rust code that the README shows.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The README's Rust code, one block after the other, as a program: with a machine and an array's name brought into scope, and
/// nothing else.
fn readme(text: &str) -> String {
    let blocks: Vec<&str> =
        text.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 2, "the README shows a program on `Memory` and one on a `Session`");
    let blocks: String = blocks.iter().map(|block| format!("    {{\n{block}    }}\n")).collect();
    format!(
        "use tiercel::session::{{Choice, Fast, Options, nets}};\n\
         use tiercel::{{CachedArrays, Memory, Mode, Session}};\n\
         fn main() -> Result<(), Box<dyn std::error::Error>> {{\n    \
         let machine = tiercel::profile::machines::named(\"dram-throttled\")?;\n{blocks}    \
         println!(\"{{}}\", machine.name);\n    Ok(())\n}}\n"
    )
}

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
    let shown = readme(&fs::read_to_string(root.join("README.md")).expect("the README"));
    fs::create_dir_all(away.join("src/bin")).expect("a folder");
    fs::write(away.join("src/bin/readme.rs"), shown).expect("a program");
    fs::copy(example.join("steps.trace"), away.join("iteration.trace")).expect("a trace");
    // The versions that are there already, so that nothing is fetched.
    fs::copy(root.join("Cargo.lock"), away.join("Cargo.lock")).expect("the versions");
    let run = |program: &str, arguments: &[&Path]| {
        let run = Command::new(env!("CARGO"))
            .current_dir(&away)
            .args(["run", "--quiet", "--offline", "--bin", program, "--target-dir"])
            .arg(away.join("target"))
            .arg("--")
            .args(arguments)
            .env_remove("CARGO_BUILD_TARGET_DIR")
            .output()
            .expect("cargo starts");
        let (out, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success(), "{out}\n{errors}");
        out.into_owned()
    };
    assert_eq!(run("readme", &[]), "dram-throttled\n");
    let out = run("outside", &[&example.join("steps.trace")]);
    assert!(out.contains("two-layers: "), "{out}");
    assert!(out.contains(" moves planned, of "), "{out}");
    assert!(out.contains(" an iteration, "), "{out}");
    assert!(out.contains("mlp: loss "), "{out}");
    assert!(out.contains("after 3 iterations"), "{out}");
}

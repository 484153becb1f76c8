//! The rules of the house that a test can check; ARCHITECTURE.md states them.

use std::fs;
use std::path::{Path, PathBuf};

/// The files in which `unsafe` may stand, and no others.
const UNSAFE: &[&str] = &[
    "crates/ann/src/arena.rs",
    "crates/ann/src/codes/dot.rs",
    "crates/ann/src/distance/avx2.rs",
    "crates/ann/src/distance/avx512.rs",
    "crates/ann/src/distance/mod.rs",
    "crates/ann/src/distance/portable.rs",
    "crates/ann/src/tier/memory.rs",
    "crates/ann/src/tier/reader.rs",
    "crates/core/benches/heap.rs",
    "crates/dynamic/src/learned/wide.rs",
    "crates/kernels/benches/kernels/machine.rs",
    "crates/kernels/src/pool.rs",
    "crates/kernels/src/shares.rs",
    "crates/kernels/src/simd/broad.rs",
    "crates/kernels/src/simd/depthwise.rs",
    "crates/kernels/src/simd/depthwise_strided.rs",
    "crates/kernels/src/simd/lanes/avx2.rs",
    "crates/kernels/src/simd/lanes/avx512.rs",
    "crates/kernels/src/simd/lanes/mod.rs",
    "crates/kernels/src/simd/mod.rs",
    "crates/kernels/src/simd/pack.rs",
    "crates/kernels/src/simd/paired.rs",
    "crates/kernels/src/simd/maxima.rs",
    "crates/kernels/src/simd/product.rs",
    "crates/kernels/src/simd/strip.rs",
    "crates/kernels/src/simd/vector.rs",
    "crates/kernels/tests/harness/mod.rs",
    "crates/optim/src/norm.rs",
    "crates/optim/src/pass.rs",
    "crates/pages/src/arena.rs",
    "crates/pages/src/real/calls.rs",
    "crates/pages/src/real/faults.rs",
    "crates/pages/tests/preloaded.rs",
    "crates/pic/src/simd/avx2.rs",
    "crates/pic/src/store.rs",
    "crates/pic/src/team/mpi.rs",
    "crates/plan/src/exact/highs.rs",
    "crates/policies/tests/accesses.rs",
    "crates/policies/tests/same_bits.rs",
    "crates/policies/tests/silent.rs",
    "crates/preload/src/area.rs",
    "crates/preload/src/begin.rs",
    "crates/preload/src/board.rs",
    "crates/preload/src/preloaded.rs",
    "crates/preload/src/room.rs",
    "crates/preload/src/server.rs",
    "crates/preload/src/sys.rs",
    "crates/preload/src/table.rs",
    "crates/profile/src/accesses/faults.rs",
    "crates/profile/src/measured/stopwatch.rs",
    "crates/run/benches/copy.rs",
    "crates/run/src/cores.rs",
    "crates/run/src/executor.rs",
    "crates/run/src/host/file.rs",
    "crates/run/src/host/memory.rs",
    "crates/run/src/host/mod.rs",
    "crates/run/src/host/stream.rs",
    "crates/run/src/host/tiers.rs",
    "crates/run/src/memory/mod.rs",
    "crates/run/src/stage.rs",
    "crates/run/tests/full_disk.rs",
    "crates/run/tests/host.rs",
    "crates/run/tests/quiet.rs",
    "crates/sim/src/lib.rs",
    "crates/sim/src/world.rs",
    "crates/systems/src/simulate.rs",
    "crates/testbed/src/ledger.rs",
    "crates/torch/src/ledger.rs",
    "python/src/arena.rs",
    "python/src/optim.rs",
    "python/src/slab.rs",
];

/// Crates from the one that knows least to the one that knows most; each depends only on those before it.
const LAYERS: &[&str] = &[
    "core", "workload", "report", "sim", "plan", "run", "ann", "pic", "kernels", "optim", "train", "profile",
    "preload", "pages", "policies", "dynamic", "systems", "session", "torch", "cli",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every Rust file of the project, by its path from the root.
fn sources() -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for entry in entries.map(|e| e.expect("a readable folder").path()) {
            if entry.is_dir() && !entry.ends_with("target") {
                walk(&entry, found);
            } else if entry.extension().is_some_and(|ext| ext == "rs") {
                found.push(entry);
            }
        }
    }
    let mut found = Vec::new();
    for folder in ["crates", "examples", "src", "tests"] {
        walk(&root().join(folder), &mut found);
    }
    assert!(found.len() > 20, "the sources are where they should be");
    let relative = |path: &PathBuf| path.strip_prefix(root()).expect("below the root").display().to_string();
    found.iter().map(relative).collect()
}

/// The lines of a file that are code.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"))
}

#[test]
fn core_touches_no_operating_system() {
    for file in sources().iter().filter(|file| file.starts_with("crates/core/src/")) {
        let text = read(file);
        for word in ["unsafe", "std::time", "std::thread", "std::fs", "std::net", "std::env", "std::process"]
        {
            assert!(!code(&text).any(|line| line.contains(word)), "{file} has `{word}`");
        }
    }
    let manifest = read("crates/core/Cargo.toml");
    let dependencies = manifest.split("[dependencies]").nth(1).and_then(|rest| rest.split("\n[").next());
    let names: Vec<&str> = code(dependencies.expect("core has dependencies"))
        .filter_map(|line| line.split(['.', ' ']).next())
        .collect();
    assert_eq!(names, ["serde", "thiserror", "toml"], "core depends on nothing that calls the system");
}

#[test]
fn unsafe_stays_where_it_is_needed() {
    let word =
        |line: &str| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe");
    let has = |file: &String| code(&read(file)).any(word);
    let listed = |file: &String| UNSAFE.contains(&file.as_str());
    let files = sources();
    let wrong = files.iter().filter(|file| *file != "tests/tidy.rs" && has(file) != listed(file));
    assert_eq!(
        wrong.collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "files that have unsafe code, or are listed without"
    );
}

#[test]
fn crates_depend_only_on_those_below_them() {
    for (layer, name) in LAYERS.iter().enumerate() {
        let path = format!("crates/{name}/Cargo.toml");
        if !root().join(&path).exists() {
            continue;
        }
        let manifest = read(path);
        let dependencies = manifest.split("[dependencies]").nth(1).and_then(|rest| rest.split("\n[").next());
        for line in code(dependencies.unwrap_or_default()) {
            let Some(other) = line.strip_prefix("tiercel-").and_then(|l| l.split(['.', ' ']).next()) else {
                continue;
            };
            let below = LAYERS[..layer].contains(&other);
            assert!(below, "{name} depends on {other}");
        }
    }
}

#[test]
fn files_are_small_finished_and_say_what_they_are() {
    for file in sources() {
        let text = read(&file);
        assert!(text.starts_with("//!"), "{file} does not open with what it does");
        let lines = code(&text).count();
        assert!(lines <= 600, "{file} has {lines} lines of code");
        for word in [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[", "ignore")] {
            assert!(!text.contains(word), "{file} has {word}");
        }
    }
}

#[test]
fn every_path_that_the_documents_name_exists() {
    let guides =
        ["docs/guide.md", "docs/results.md", "docs/how-it-works.md", "docs/json.md", "docs/glossary.md"];
    for document in ["ARCHITECTURE.md", "README.md", "CONTRIBUTING.md"].into_iter().chain(guides) {
        let text = read(document);
        let quoted = text.split('`').skip(1).step_by(2);
        let folders =
            ["crates/", "machines/", "examples/", "benches/", "tests/", "docs/", "scripts/", ".ci/", "src/"];
        for path in quoted.filter(|path| folders.iter().any(|folder| path.starts_with(folder))) {
            assert!(root().join(path).exists(), "{document} names {path}, which does not exist");
        }
    }
}

#[test]
fn every_path_in_a_crates_table_of_files_exists() {
    let crates = fs::read_dir(root().join("crates")).expect("there are crates");
    let mut tables = 0;
    for source in crates.map(|entry| entry.expect("a readable folder").path().join("src")) {
        let Ok(text) = fs::read_to_string(source.join("lib.rs")) else { continue };
        let rows = text.lines().filter_map(|line| line.strip_prefix("//! | `")?.split(" | ").next());
        for name in rows.flat_map(|cell| cell.split('`')).filter(|name| name.contains(['.', '/'])) {
            tables += 1;
            assert!(source.join(name).exists(), "{} names {name}, which does not exist", source.display());
        }
    }
    assert!(tables > 100, "crates say what is in their files");
}

#[test]
fn every_crate_is_in_the_table_of_crates() {
    let architecture = read("ARCHITECTURE.md");
    for entry in fs::read_dir(root().join("crates")).expect("there are crates") {
        let name = entry.expect("a readable folder").file_name();
        let row = format!("| `crates/{}` |", name.to_string_lossy());
        assert!(architecture.contains(&row), "ARCHITECTURE.md says nothing of {row}");
    }
}

#[test]
fn every_dependency_has_its_reason() {
    let architecture = read("ARCHITECTURE.md");
    let manifest = read("Cargo.toml");
    let dependencies =
        manifest.split("[workspace.dependencies]").nth(1).and_then(|rest| rest.split("\n[").next());
    for line in code(dependencies.expect("the workspace has dependencies")) {
        let name = line.split([' ', '=']).next().expect("a line has a first word");
        if !name.starts_with("tiercel-") {
            assert!(
                architecture.contains(&format!("| `{name}` |")),
                "ARCHITECTURE.md says nothing of {name}"
            );
        }
    }
}

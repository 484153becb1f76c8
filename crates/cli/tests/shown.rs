//! Commands that the documents show have verbs and options that there are.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The arguments of a line that calls Tiercel; none of any other line.
fn arguments(line: &str) -> Option<Vec<&str>> {
    let line = line.split(" #").next().unwrap_or(line).trim();
    let rest = line.strip_prefix("tiercel ").or_else(|| line.strip_prefix("cargo run --release -- "))?;
    // What follows `--` belongs to somebody else.
    let rest = rest.split(" -- ").next().unwrap_or(rest);
    Some(rest.split_whitespace().collect())
}

#[test]
fn commands_that_documents_show_can_be_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guides = fs::read_dir(root.join("docs")).expect("there are documents");
    let guides = guides.map(|entry| entry.expect("a readable folder").path());
    let mut tried = 0;
    for path in
        guides.filter(|path| path.extension().is_some_and(|e| e == "md")).chain([root.join("README.md")])
    {
        let text = fs::read_to_string(&path).expect("a document");
        for block in text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            for arguments in block.lines().filter_map(arguments) {
                // What comes before `--help` is read first, and an option that is not known ends it there.
                let mut command = Command::new(env!("CARGO_BIN_EXE_tiercel"));
                let run = command.args(&arguments).arg("--help").output().expect("it starts");
                let errors = String::from_utf8_lossy(&run.stderr);
                assert!(
                    run.status.success(),
                    "{}: tiercel {}\n{errors}",
                    path.display(),
                    arguments.join(" ")
                );
                tried += 1;
            }
        }
    }
    assert!(tried > 20, "{tried}: the documents show how");
}

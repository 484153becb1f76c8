//! Running the binary as a user runs it.

// Each test binary uses the part that it needs.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use expect_test::Expect;
use serde_json::Value;

/// The binary, away from the user's own cache folder.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiercel"));
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    command.args(arguments).env("XDG_CACHE_HOME", cache).env_remove("RUST_BACKTRACE");
    command
}

/// What it prints and how it ends.
pub fn tiercel(arguments: &[&str]) -> Output {
    command(arguments).output().expect("runs")
}

/// The one document that it prints.
pub fn json(arguments: &[&str]) -> Value {
    let output = tiercel(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one document")
}

/// The text that it prints.
pub fn text(arguments: &[&str]) -> String {
    let output = tiercel(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// What it says beside what it prints, without the notes that depend on what else the machine does and on what was run before.
pub fn said(output: &Output) -> String {
    let notes = ["tiercel: other programs had ", "tiercel: measuring "];
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = text.lines().filter(|line| !notes.iter().any(|note| line.starts_with(note)));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Checks what it complains of, and that it prints nothing else.
pub fn complains(arguments: &[&str], status: i32, expected: Expect) {
    let output = tiercel(arguments);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
    expected.assert_eq(&said(&output));
}

/// A folder that is gone when the test ends.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tiercel-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).expect("writes");
        path
    }

    pub fn entries(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("it is there");
        entries.map(|e| e.expect("readable").file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

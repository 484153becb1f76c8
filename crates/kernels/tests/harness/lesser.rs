//! The tests of a file once more, each time in a process with lesser vectors than the processor has.

use std::process::{Command, Stdio};

/// Runs all tests of this program but one, or those of a part of it, with the variable set to each of the names in turn:
/// at the same time, because one name leaves cores over.
///
/// # Panics
/// If one of them fails, with what it said.
pub fn pass<'n>(variable: &str, names: impl Iterator<Item = &'n str>, but: &str, part: Option<&str>) {
    if std::env::var_os(variable).is_some() {
        return; // whoever set it wants just that
    }
    let start = |name| {
        let mut command = Command::new(std::env::current_exe().expect("this program is a file"));
        command.args(part).args(["--skip", but]).env(variable, name);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        (name, child.expect("it runs again"))
    };
    let started: Vec<_> = names.map(start).collect();
    for (name, child) in started {
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        let some = said.contains(" passed") && !said.contains(" 0 passed");
        assert!(output.status.success() && some, "with {name}: {said}");
    }
}

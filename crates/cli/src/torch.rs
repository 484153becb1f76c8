//! A training step of a PyTorch program as a workload: Python runs it dry and writes a trace (`python/tiercel/_dry.py`).
//!
//! The interpreter is a program of its own, because the step is Python and may be anything. It gets the machine's file, so that the
//! trace has the times that its operations are taken to need there.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{env, fs, process};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use tiercel_session::machine;
use tiercel_workload::{Trace, nets, open};

use crate::progress::Progress;
use crate::terminal::Terminal;

/// The machine that a step is planned for unless the user names one.
pub const MACHINE: &str = "h200";

/// A step of a PyTorch program.
#[derive(Args)]
pub struct Torch {
    /// A training step of a PyTorch program instead of a network: the function builds model and optimizer and returns the step,
    /// which is run without bytes and without a GPU
    #[arg(long, value_name = "MODULE:FUNCTION")]
    pub torch: Option<String>,
    /// The Python interpreter, with PyTorch and the package tiercel [default: python3 or python, whichever is found]
    #[arg(long, value_name = "PYTHON", requires = "torch")]
    python: Option<PathBuf>,
}

impl Torch {
    /// Whether a step is what the user means.
    pub fn is_meant(&self) -> bool {
        self.torch.is_some()
    }

    /// Has Python run the step dry, and reads what it wrote.
    pub fn trace(&self, step: &str, machine_name: &str, batch: Option<u64>) -> anyhow::Result<Trace> {
        let machine = machine::open(machine_name, &*Terminal::new())?;
        let folder = Folder::new()?;
        let (file, trace) = (folder.0.join("machine.toml"), folder.0.join("step.trace"));
        fs::write(&file, machine.to_toml()).with_context(|| format!("cannot write `{}`", file.display()))?;
        let progress = Progress::alone("running the step dry");
        let (python, output) = self.run(step, &file, &trace, batch)?;
        drop(progress);
        if !output.status.success() {
            bail!(complaint(&python, &String::from_utf8_lossy(&output.stderr)));
        }
        let path = trace.to_string_lossy();
        let workload = open(&path, &nets::NetOptions::default());
        let workload = workload
            .map_err(|error| anyhow!("`{}` wrote no trace that can be read: {error}", python.display()))?;
        Ok(workload.trace().clone())
    }

    fn run(
        &self,
        step: &str,
        machine: &Path,
        trace: &Path,
        batch: Option<u64>,
    ) -> anyhow::Result<(PathBuf, Output)> {
        let usual = [PathBuf::from("python3"), PathBuf::from("python")];
        let tried = self.python.as_ref().map_or(&usual[..], std::slice::from_ref);
        for python in tried {
            let mut command = Command::new(python);
            command
                .args(["-m", "tiercel.estimate", step, "--machine"])
                .arg(machine)
                .arg("--trace")
                .arg(trace);
            if let Some(batch) = batch {
                command.arg("--batch").arg(batch.to_string());
            }
            match command.stdin(Stdio::null()).output() {
                Ok(output) => return Ok((python.clone(), output)),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => bail!("cannot run `{}`: {error}", python.display()),
            }
        }
        let names: Vec<String> = tried.iter().map(|python| format!("`{}`", python.display())).collect();
        bail!("--torch takes Python, and there is no {}; --python names another", names.join(" or "))
    }
}

/// What Python said, for people: the last line, unless a package is missing.
fn complaint(python: &Path, said: &str) -> String {
    let python = python.display();
    if said.contains("No module named 'tiercel'") {
        return format!("`{python}` has no package `tiercel`; docs/pytorch.md says how to install it");
    }
    if said.contains("No module named tiercel.estimate") {
        return format!("`{python}` has an older package `tiercel`, which cannot estimate");
    }
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    match lines.next_back() {
        Some(last) => last.strip_prefix("tiercel: ").unwrap_or(last).to_string(),
        None => format!("`{python}` failed and said nothing"),
    }
}

/// A folder that goes when it is no longer needed.
struct Folder(PathBuf);

impl Folder {
    fn new() -> anyhow::Result<Folder> {
        let mut tried = 0;
        loop {
            let path = env::temp_dir().join(format!("tiercel-step-{}-{tried}", process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Folder(path)),
                // Somebody with the same number left it behind.
                Err(error) if error.kind() == ErrorKind::AlreadyExists && tried < 100 => tried += 1,
                Err(error) => bail!("cannot make `{}`: {error}", path.display()),
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left of a temporary folder harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_in_a_line() {
        let python = Path::new("python3");
        let missing = "python3: Error while finding module specification for 'tiercel.estimate' (ModuleNotFoundError: No module named 'tiercel')";
        assert!(complaint(python, missing).starts_with("`python3` has no package `tiercel`"));
        assert!(complaint(python, "/bin/python3: No module named tiercel.estimate").contains("older"));
        let own = "Traceback\n  File x\ntiercel: estimating takes PyTorch, which is not installed here\n";
        assert_eq!(complaint(python, own), "estimating takes PyTorch, which is not installed here");
        assert_eq!(complaint(python, "Traceback\nValueError: no\n"), "ValueError: no");
        assert_eq!(complaint(python, ""), "`python3` failed and said nothing");
    }
}

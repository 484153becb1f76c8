//! PyTorch beside our kernels, where it can be imported.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// PyTorch in a subprocess: it is sent a case a line, and answers with the seconds of one round.
pub struct Torch {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Torch {
    /// PyTorch with so many threads, where it can be imported.
    pub fn start(threads: usize) -> Option<Torch> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/torch_bench.py");
        for python in ["python3", "/usr/bin/python3"] {
            let mut process = Command::new(python)
                .args([script, &threads.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .ok()?;
            let (to, from) = (process.stdin.take()?, BufReader::new(process.stdout.take()?));
            let mut torch = Torch { process, to, from };
            let mut line = String::new();
            if torch.from.read_line(&mut line).is_ok() && line.starts_with("ready") {
                eprintln!("PyTorch {}", line.trim_start_matches("ready").trim());
                return Some(torch);
            }
            let _ = torch.process.wait();
        }
        eprintln!("PyTorch cannot be imported; no ratios against it");
        None
    }

    /// The seconds of one round of a case.
    pub fn round(&mut self, case: &str) -> Option<f64> {
        writeln!(self.to, "{case}").ok()?;
        let mut line = String::new();
        self.from.read_line(&mut line).ok()?;
        line.trim().parse().ok()
    }

    /// Lets it end.
    pub fn end(mut self) {
        let _ = writeln!(self.to, "end");
        let _ = self.process.wait();
    }
}

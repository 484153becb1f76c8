//! What a test leaves out because the machine does not offer it: said on its output, and noted for `scripts/test`, which tells all
//! of it at the end.

use std::fs::OpenOptions;
use std::io::Write;

/// Says that something is not tested here, and why.
pub fn skipped(why: &str) {
    let line = format!("skipped: {}", why.trim_end());
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("TIERCEL_SKIPPED") {
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| writeln!(file, "{line}")).expect("what is left out can be noted");
    }
}

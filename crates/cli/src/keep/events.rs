//! The file of events of `tiercel keep`: a line of JSON each, the first of which says what the file is.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use serde_json::{Value, json};

/// A file of events, or none.
pub(super) struct Events {
    file: Option<BufWriter<File>>,
    began: Instant,
}

impl Events {
    /// Opens the file, if one is wanted.
    pub(super) fn open(path: Option<&Path>, about: &str) -> anyhow::Result<Events> {
        let file = match path {
            None => None,
            Some(path) => {
                let file = File::create(path);
                Some(BufWriter::new(file.with_context(|| format!("cannot write `{}`", path.display()))?))
            }
        };
        let mut events = Events { file, began: Instant::now() };
        events.tell("keep", json!({"version": 1, "mechanism": about}));
        Ok(events)
    }

    /// Notes something.
    pub(super) fn tell(&mut self, what: &str, mut fields: Value) {
        let Some(file) = &mut self.file else { return };
        fields["event"] = json!(what);
        fields["ns"] = json!(self.began.elapsed().as_nanos() as u64);
        // A full disk must not end the program that is kept.
        if writeln!(file, "{fields}").is_err() {
            eprintln!("tiercel: events can no longer be written");
            self.file = None;
        }
    }
}

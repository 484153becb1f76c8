//! What `tiercel keep --events` wrote: how a program's memory lay over time, and what was moved (`docs/keep.md`).
//!
//! The file has a line of JSON for each event, the first of which is `keep`. Lines of a kind that is not known here are passed
//! over; a last line that was cut off because the keeper was killed is, too.

use std::io::BufRead;

use serde::Serialize;
use serde_json::Value;
use tiercel_core::{Bytes, Nanos};

use crate::events::EventsError;

/// The address space of a kept program at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Look {
    /// When it was.
    pub ns: Nanos,
    /// Equal parts of the address space: bytes in it, bytes of these that are not in fast memory, and bytes that are hot: that
    /// came back lately, or that are accessed most.
    pub parts: Vec<[u64; 3]>,
}

/// A program that was kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Kept {
    /// How it was kept, in words.
    pub mechanism: String,
    /// How its memory lay over time.
    pub looks: Vec<Look>,
    /// Bytes that came into fast memory.
    pub came: Bytes,
    /// Bytes that left it.
    pub left: Bytes,
    /// How often each thing was done.
    pub done: Vec<(String, usize)>,
    /// What the keeper took of a processor's time.
    pub overhead: f64,
    /// When the last event was.
    pub end: Nanos,
}

/// Whether a file that begins like this is one of a kept program.
pub fn is_kept(start: &[u8]) -> bool {
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let first: Option<Value> = serde_json::from_slice(line).ok();
    first.is_some_and(|first| first["event"] == "keep")
}

impl Kept {
    /// Reads a file of events, or says what is wrong with it.
    pub fn read(from: impl BufRead) -> Result<Kept, EventsError> {
        let mut kept = Kept::default();
        let mut broken = None;
        for (at, line) in from.lines().enumerate() {
            let line = line?;
            if let Some(error) = broken.take() {
                return Err(error);
            }
            match serde_json::from_str::<Value>(&line) {
                Ok(value) => kept.take(&value),
                // Only what follows says whether this was the end.
                Err(error) => broken = Some(EventsError::Line { line: at + 1, what: error.to_string() }),
            }
        }
        match broken {
            Some(error) if kept.mechanism.is_empty() => Err(error),
            _ => Ok(kept),
        }
    }

    fn take(&mut self, value: &Value) {
        let number = |name: &str| value[name].as_u64().unwrap_or(0);
        let event = value["event"].as_str().unwrap_or_default();
        self.end = self.end.max(Nanos(number("ns")));
        match event {
            "keep" => self.mechanism = value["mechanism"].as_str().unwrap_or_default().to_string(),
            "map" => {
                let parts = serde_json::from_value(value["parts"].clone()).unwrap_or_default();
                self.looks.push(Look { ns: Nanos(number("ns")), parts });
            }
            "state" => {
                self.came = Bytes(number("came_back_bytes"));
                self.left = Bytes(number("went_out_bytes"));
                self.overhead = value["overhead"].as_f64().unwrap_or(0.0);
            }
            "interval" => {
                self.came.0 += number("promoted_pages") << 12;
                self.left.0 += number("demoted_pages") << 12;
                self.overhead = value["overhead"].as_f64().unwrap_or(0.0);
            }
            "advice" | "move" => {
                let why = value["why"].as_str().unwrap_or_default();
                let advice = value["advice"].as_str().unwrap_or(event);
                let what = format!("{advice} ({why})");
                match self.done.iter_mut().find(|(known, _)| *known == what) {
                    Some((_, count)) => *count += 1,
                    None => self.done.push((what, 1)),
                }
            }
            _ => {}
        }
    }

    /// What is to be said of it in a line.
    pub fn about(&self) -> String {
        let mut parts = vec![
            format!("{:.1} s", self.end.0 as f64 / 1e9),
            format!("{} came into fast memory", self.came),
            format!("{} left it", self.left),
            format!("the keeper took {:.2} % of a core", self.overhead * 100.0),
        ];
        parts.extend(self.done.iter().map(|(what, count)| format!("{what}: {count}")));
        parts.join(", ")
    }

    /// Looks put together, so that there are no more than so many; each part has the sums of those that it stands for.
    pub fn columns(&self, most: usize) -> Vec<Look> {
        let each = self.looks.len().div_ceil(most.max(1)).max(1);
        let together = |looks: &[Look]| {
            let mut sum = looks.first().cloned().unwrap_or_default();
            for look in &looks[1.min(looks.len())..] {
                sum.parts.resize(sum.parts.len().max(look.parts.len()), [0; 3]);
                for (to, from) in sum.parts.iter_mut().zip(&look.parts) {
                    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
                }
            }
            sum
        };
        self.looks.chunks(each).map(together).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"event":"keep","mechanism":"a group","ns":1,"version":1}
{"event":"map","ns":1000,"parts":[[8,4,0],[8,0,8]]}
{"event":"advice","advice":"willneed","why":"ahead of a stream","ns":1500}
{"event":"something new","ns":1600}
{"event":"map","ns":2000,"parts":[[8,8,1],[8,0,0]]}
{"event":"state","came_back_bytes":4096,"went_out_bytes":8192,"overhead":0.02,"ns":2000}
"#;

    #[test]
    fn what_was_written_is_read() {
        assert!(is_kept(FILE.as_bytes()) && !is_kept(b"{\"tiercel_events\":1}"));
        let kept = Kept::read(FILE.as_bytes()).expect("it is right");
        assert_eq!((kept.came, kept.left, kept.end), (Bytes(4096), Bytes(8192), Nanos(2000)));
        assert_eq!(kept.looks.len(), 2);
        let about = kept.about();
        assert!(about.contains("willneed (ahead of a stream): 1"), "{about}");
        let one = kept.columns(1);
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].parts, [[16, 12, 1], [16, 0, 8]]);
        assert_eq!(kept.columns(100), kept.looks);
    }

    #[test]
    fn a_line_that_was_cut_off_is_passed_over_and_a_broken_file_is_not() {
        let cut = &FILE[..FILE.len() - 20];
        assert_eq!(Kept::read(cut.as_bytes()).expect("the rest is right").looks.len(), 2);
        let broken = FILE.replace("\"ns\":1000,", "\"ns\":,");
        let Err(error) = Kept::read(broken.as_bytes()) else { panic!("it is broken") };
        assert!(error.to_string().starts_with("line 2"), "{error}");
        assert!(Kept::read("nonsense".as_bytes()).is_err());
    }
}

//! Text by the byte, for networks that guess the next one; and a small made-up language for tests.
//!
//! A sample is a stretch of the text at a random place. The last tenth of a text is kept to be judged by.

use std::path::Path;

use super::write::write;
use super::{Data, DataError, Input, Part, Request, Split, pick};

/// A text.
#[derive(Clone, Debug)]
pub struct Text {
    name: String,
    bytes: Vec<u8>,
    /// Where the part to be judged by begins.
    cut: usize,
    /// Positions in a sample; known once a network has been checked against it.
    length: std::cell::Cell<u64>,
}

impl Text {
    /// Different bytes.
    pub const WORDS: u64 = 256;

    /// Reads a file.
    pub fn open(path: &Path) -> Result<Text, DataError> {
        let shown = || path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| DataError::File { path: shown(), error })?;
        let name = path.file_name().map_or("text".into(), |name| name.to_string_lossy().into_owned());
        Ok(Text::new(&name, bytes))
    }

    /// This text.
    pub fn new(name: &str, bytes: Vec<u8>) -> Text {
        let cut = bytes.len() - bytes.len() / 10;
        Text { name: name.to_string(), bytes, cut, length: 0.into() }
    }

    fn half(&self, split: Split) -> &[u8] {
        match split {
            Split::Train => &self.bytes[..self.cut],
            Split::Test => &self.bytes[self.cut..],
        }
    }

    /// Where the sample at a position begins in its half.
    fn start(&self, request: &Request<'_>, at: u64, length: u64) -> u64 {
        let places = (self.half(request.split).len() as u64).saturating_sub(length).max(1);
        let position = request.position + at;
        match request.split {
            Split::Train => pick::below(pick::stream(request.seed, "places in the text"), position, places),
            Split::Test => (position * length) % places,
        }
    }
}

impl Data for Text {
    fn about(&self) -> String {
        format!(
            "{}: {} bytes of text, the last {} to be judged by",
            self.name,
            self.bytes.len(),
            self.bytes.len() - self.cut
        )
    }

    fn samples(&self, split: Split) -> Option<u64> {
        let length = self.length.get().max(1);
        Some((self.half(split).len() as u64).saturating_sub(1) / length)
    }

    fn check(&self, inputs: &[Input<'_>]) -> Result<(), DataError> {
        let name = &self.name;
        let words = inputs.iter().find(|i| i.part == Part::Words);
        let Some(words) = words else {
            return Err(DataError::Unfit(format!("{name} is text; the network reads no words")));
        };
        let length = words.value.shape.elements() / words.batch.max(1);
        for input in inputs {
            match input.part {
                Part::Labels { classes } if input.value.shape.elements() != words.value.shape.elements() => {
                    return Err(DataError::Unfit(format!(
                        "{name} is text, for networks that guess every next word; {} of {} says {} of {classes}",
                        input.value.name,
                        input.value.shape,
                        input.value.shape.elements()
                    )));
                }
                Part::Labels { classes } if classes < Text::WORDS => {
                    return Err(DataError::Unfit(format!(
                        "{name} has {} different bytes; the network knows {classes}",
                        Text::WORDS
                    )));
                }
                _ => {}
            }
        }
        let least = self.half(Split::Test).len() as u64;
        if least < length + 1 {
            return Err(DataError::Unfit(format!(
                "{name} is too short: its last tenth has {least} bytes and a sample of the network {}",
                length + 1
            )));
        }
        self.length.set(length);
        Ok(())
    }

    fn fill(&mut self, request: &Request<'_>, bytes: &mut [u8]) -> Result<bool, DataError> {
        let ahead = match request.part {
            Part::Words => 0,
            Part::Labels { .. } => 1,
            Part::Features | Part::Other => return Ok(false),
        };
        let (elements, batch) = (request.value.shape.elements(), request.batch.max(1));
        let length = elements / batch;
        let starts: Vec<u64> = (0..batch).map(|at| self.start(request, at, length)).collect();
        let text = self.half(request.split);
        let byte = |i: u64| {
            let (sample, position) =
                if request.time_first { (i % batch, i / batch) } else { (i / length, i % length) };
            u64::from(text[(starts[sample as usize] + position + ahead) as usize])
        };
        write(request.value.dtype, bytes, |_| 0.0, byte);
        Ok(true)
    }
}

/// About `length` bytes of a made-up language: sentences of a small grammar, the same for the same seed.
///
/// Most of a sentence follows from its beginning (who acts decides the ending of the verb, the place is named twice),
/// so a network that learns the grammar gets far below one that only knows how often each letter occurs.
pub fn grammar(seed: u64, length: usize) -> Vec<u8> {
    const WHO: [&str; 6] = ["the falcon", "a kernel", "the heron", "one object", "the owl", "a tier"];
    const MANY: [&str; 6] =
        ["the falcons", "two kernels", "the herons", "some objects", "the owls", "all tiers"];
    const ACT: [&str; 6] = ["see", "reach", "leave", "follow", "hold", "cross"];
    const WHERE: [&str; 6] = ["river", "meadow", "memory", "valley", "harbour", "forest"];
    let stream = pick::stream(seed, "grammar");
    let mut text = Vec::with_capacity(length + 100);
    let mut index = 0;
    while text.len() < length {
        let mut pick = |n: u64| {
            index += 1;
            pick::below(stream, index, n) as usize
        };
        let (plural, who, act, place) = (pick(2) == 1, pick(6), pick(6), pick(6));
        let (who, ending) = if plural {
            (MANY[who], "")
        } else {
            (WHO[who], if ACT[act].ends_with("ch") || ACT[act].ends_with("ss") { "es" } else { "s" })
        };
        let place = WHERE[place];
        let sentence = format!(
            "{who} {}{ending} the {place}, and the {place} is behind {}. ",
            ACT[act],
            if plural { "them" } else { "it" }
        );
        text.extend_from_slice(sentence.as_bytes());
    }
    text.truncate(length);
    text
}

//! Reading the text form, one line at a time, with the place of everything that can be wrong.

use tiercel_core::{Bytes, Nanos, TierId};

use super::lexer::{Word, words};
use super::{MAGIC, PHASES, ROLES, TextError, VERSION};
use crate::check::{Checker, Fault, Part};
use crate::repeat::WORDS;
use crate::trace::{Alternative, Kernel, Tensor, Timing, Trace, Use};

pub(super) fn parse(text: &str) -> Result<Trace, TextError> {
    let mut parser = Parser::default();
    let mut last = 1;
    let mut line_words = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let number = u32::try_from(at + 1).unwrap_or(u32::MAX);
        last = number;
        words(line, number, &mut line_words)?;
        if let Some((first, rest)) = line_words.split_first() {
            parser.line(&mut Line { number, first, rest, end: line.chars().count() as u32 + 1 })?;
        }
    }
    parser.close()?;
    if !parser.headed {
        return Err(TextError {
            line: last,
            column: 1,
            message: format!("a trace starts with `{MAGIC} {VERSION}`"),
        });
    }
    Ok(parser.trace)
}

/// The words of one line, taken one by one.
struct Line<'a> {
    number: u32,
    first: &'a Word<'a>,
    rest: &'a [Word<'a>],
    /// The column behind the last character.
    end: u32,
}

impl<'a> Line<'a> {
    fn error(&self, column: u32, message: impl Into<String>) -> TextError {
        TextError { line: self.number, column, message: message.into() }
    }

    /// The next word, or an error that says what is missing.
    fn take(&mut self, wanted: &str) -> Result<&'a Word<'a>, TextError> {
        match self.rest.split_first() {
            Some((word, rest)) => {
                self.rest = rest;
                Ok(word)
            }
            None => Err(self.error(self.end, format!("`{}` needs {wanted} here", self.first.text))),
        }
    }

    /// The next word as one of a few.
    fn choice<T: Copy>(&mut self, wanted: &str, choices: &[(&str, T)]) -> Result<T, TextError> {
        let word = self.take(wanted)?;
        let found = choices.iter().find(|(name, _)| *name == word.text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            self.error(word.column, format!("`{}` is not {wanted}: {}", word.text, names.join(", ")))
        })
    }

    /// The next word as a keyword that must be there.
    fn keyword(&mut self, keyword: &str) -> Result<(), TextError> {
        let word = self.take(&format!("the word `{keyword}`"))?;
        if word.text == keyword {
            return Ok(());
        }
        Err(self.error(word.column, format!("`{}` stands where only `{keyword}` can", word.text)))
    }

    /// The next word as a time; whole nanoseconds are read without rounding.
    fn time(&mut self) -> Result<Nanos, TextError> {
        let exact = self.rest.first().and_then(|word| word.text.strip_suffix("ns")?.parse().ok());
        let time = self.value("a time such as 1500ns or 2ms")?;
        Ok(exact.map_or(time, Nanos))
    }

    /// The next word as whatever reads from text.
    fn value<T: std::str::FromStr>(&mut self, wanted: &str) -> Result<T, TextError> {
        let word = self.take(wanted)?;
        let misfit = || self.error(word.column, format!("`{}` is not {wanted}", word.text));
        word.text.parse().map_err(|_| misfit())
    }

    /// The next word as a size.
    fn bytes(&mut self) -> Result<Bytes, TextError> {
        self.value("a size such as 4096 or 64KiB")
    }

    /// Nothing may follow.
    fn done(&self) -> Result<(), TextError> {
        match self.rest.first() {
            Some(word) => Err(self.error(word.column, format!("`{}` is one word too many", word.text))),
            None => Ok(()),
        }
    }
}

/// A kernel whose lines are being read, with the places of its parts.
struct Open {
    kernel: Kernel,
    name: (u32, u32),
    flops: (u32, u32),
    reads: Vec<(u32, u32)>,
    writes: Vec<(u32, u32)>,
    timings: Vec<(u32, u32)>,
    alternatives: Vec<(u32, u32)>,
}

#[derive(Default)]
struct Parser {
    trace: Trace,
    checker: Checker,
    headed: bool,
    named: bool,
    open: Option<Open>,
}

impl Parser {
    fn line(&mut self, line: &mut Line<'_>) -> Result<(), TextError> {
        let column = line.first.column;
        if !self.headed {
            if line.first.text != MAGIC {
                return Err(line.error(column, format!("a trace starts with `{MAGIC} {VERSION}`")));
            }
            let version = line.take("a version")?;
            if version.text != VERSION {
                let message = format!("version `{}`; this program reads version {VERSION}", version.text);
                return Err(line.error(version.column, message));
            }
            self.headed = true;
            return line.done();
        }
        match &*line.first.text {
            "name" => self.name(line),
            "layer" => self.layer(line),
            "tensor" => self.tensor(line),
            "kernel" => self.kernel(line),
            "read" | "write" | "time" | "alternative" => self.detail(line),
            other => Err(line.error(
                column,
                format!("`{other}` starts no line; lines start with name, layer, tensor, kernel, read, write, time, alternative"),
            )),
        }
    }

    fn name(&mut self, line: &mut Line<'_>) -> Result<(), TextError> {
        if std::mem::replace(&mut self.named, true) {
            return Err(line.error(line.first.column, "a second name of the trace"));
        }
        self.trace.name = line.take("a name")?.text.to_string();
        line.done()
    }

    fn layer(&mut self, line: &mut Line<'_>) -> Result<(), TextError> {
        let name = line.take("a name")?;
        self.checker.layer(&name.text).map_err(|fault| line.error(name.column, fault.message))?;
        self.trace.layers.push(name.text.to_string());
        line.done()
    }

    fn tensor(&mut self, line: &mut Line<'_>) -> Result<(), TextError> {
        let name = line.take("a name")?;
        let role = line.choice("a role", &ROLES)?;
        let size = line.rest.first().map_or(line.end, |word| word.column);
        let bytes = line.bytes()?;
        let persistent = !line.rest.is_empty();
        if persistent {
            line.keyword("persistent")?;
        }
        line.done()?;
        let tensor = Tensor { name: name.text.to_string(), bytes, role, persistent };
        let place = |fault: &Fault| if fault.part == Part::Size { size } else { name.column };
        self.checker.tensor(&tensor).map_err(|fault| line.error(place(&fault), fault.message))?;
        self.trace.tensors.push(tensor);
        Ok(())
    }

    fn kernel(&mut self, line: &mut Line<'_>) -> Result<(), TextError> {
        self.close()?;
        let name = line.take("a name")?;
        let op = line.take("a type")?.text.to_string();
        let phase = line.choice("a phase", &PHASES)?;
        let layer_word = line.take("a layer")?;
        let Some(layer) = self.checker.layer_named(&layer_word.text) else {
            let message = format!(
                "kernel `{}` is of layer `{}`, which no layer line above names",
                name.text, layer_word.text
            );
            return Err(line.error(layer_word.column, message));
        };
        let mut flops = 0;
        let mut flops_column = name.column;
        let follows =
            |word: &Word<'_>| word.text == "detached" || WORDS.iter().any(|(name, _)| *name == word.text);
        if line.rest.first().is_some_and(|word| !follows(word)) {
            line.keyword("flops")?;
            flops_column = line.rest.first().map_or(line.end, |word| word.column);
            flops = line.value("a whole number")?;
        }
        let detached = line.rest.first().is_some_and(|word| word.text == "detached");
        if detached {
            line.keyword("detached")?;
        }
        let repeat = match line.rest.is_empty() {
            true => None,
            false => Some(line.choice("a word that says whether the kernel may be run again", &WORDS)?),
        };
        line.done()?;
        let kernel = Kernel {
            name: name.text.to_string(),
            op,
            reads: Vec::new(),
            writes: Vec::new(),
            flops,
            layer,
            phase,
            timings: Vec::new(),
            alternatives: Vec::new(),
            detached,
            factor: 1.0,
            repeat,
            derived: Default::default(),
        };
        self.open = Some(Open {
            kernel,
            name: (line.number, name.column),
            flops: (line.number, flops_column),
            reads: Vec::new(),
            writes: Vec::new(),
            timings: Vec::new(),
            alternatives: Vec::new(),
        });
        Ok(())
    }

    /// A line that belongs to the kernel above it.
    fn detail(&mut self, line: &mut Line<'_>) -> Result<(), TextError> {
        let what = &*line.first.text;
        let Some(open) = &mut self.open else {
            return Err(line.error(line.first.column, format!("`{what}` belongs under a kernel line")));
        };
        let column = line.rest.first().map_or(line.first.column, |word| word.column);
        let place = (line.number, column);
        match what {
            "read" | "write" => {
                let word = line.take("a tensor")?;
                let Some(tensor) = self.checker.tensor_named(&word.text) else {
                    let message = format!(
                        "kernel `{}` {what}s `{}`, which no tensor line above names",
                        open.kernel.name, word.text
                    );
                    return Err(line.error(word.column, message));
                };
                let whole = self.trace.tensor(tensor).bytes;
                let bytes = if line.rest.is_empty() { whole } else { line.bytes()? };
                let (uses, places) = if what == "read" {
                    (&mut open.kernel.reads, &mut open.reads)
                } else {
                    (&mut open.kernel.writes, &mut open.writes)
                };
                uses.push(Use { tensor, bytes });
                places.push(place);
            }
            "time" => {
                let time = line.time()?;
                line.keyword("at")?;
                let mut tiers = Vec::new();
                while !line.rest.is_empty() {
                    tiers.push(TierId(line.value("a tier, 0 to 255")?));
                }
                open.kernel.timings.push(Timing { tiers, time });
                open.timings.push(place);
            }
            _ => {
                let name = line.take("a name")?.text.to_string();
                line.keyword("workspace")?;
                let workspace = line.bytes()?;
                line.keyword("factor")?;
                let factor = line.value("a number such as 0.8")?;
                open.kernel.alternatives.push(Alternative { name, workspace, factor });
                open.alternatives.push(place);
            }
        }
        line.done()
    }

    /// Ends the kernel that is being read, and checks it as a whole.
    fn close(&mut self) -> Result<(), TextError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        if let Err(fault) = self.checker.kernel(&open.kernel, &self.trace.tensors) {
            let place = match fault.part {
                Part::Flops => Some(&open.flops),
                Part::Read(at) => open.reads.get(at),
                Part::Write(at) => open.writes.get(at),
                Part::Timing(at) => open.timings.get(at),
                Part::Alternative(at) => open.alternatives.get(at),
                Part::Name | Part::Size | Part::Layer => None,
            };
            let (line, column) = *place.unwrap_or(&open.name);
            return Err(TextError { line, column, message: fault.message });
        }
        self.trace.kernels.push(open.kernel);
        Ok(())
    }
}

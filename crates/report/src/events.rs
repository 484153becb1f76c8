//! Events as lines of JSON: what a run writes down and what everything here reads (`docs/events-format.md`).
//!
//! The form is versioned apart from the events of the core: objects and regions are plain numbers here, good from the
//! line that makes them to the line that ends them. A reader passes over events and fields that it does not know, so
//! that newer programs may say more within one version. A file whose last line was cut off is read up to there: the
//! run was killed, and what it did before is worth seeing.

use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tiercel_core::{Bytes, Cause, Event, Hint, Nanos, Outcome, Place, Span, Stamped, Step, Ticket, TierId};

use crate::header::Header;
use crate::line::Line;

/// The version of the form that this program reads and writes.
pub const VERSION: u32 = 1;

/// The longest line that is read.
const LONGEST: u64 = 256 << 20;

/// One event of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The time since the start of the run.
    pub at: Nanos,
    /// What happened.
    pub what: What,
}

/// What happened: the events of [`tiercel_core::Event`] with plain numbers for objects, regions and zones.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // as in the core, the fields say what they are
pub enum What {
    /// An object was made.
    Created { object: u32, name: Option<Arc<str>>, bytes: Bytes },
    /// The application said something of an object's future.
    Hinted { object: u32, hint: Hint },
    /// An object was given up.
    Retired { object: u32 },
    /// A region was taken from a heap.
    Allocated { region: u32, place: Place, bytes: Bytes },
    /// A region was given back.
    Freed { region: u32, place: Place, bytes: Bytes },
    /// A region became one of an object's.
    Linked { object: u32, region: u32 },
    /// A region left its object.
    Unlinked { object: u32, region: u32 },
    /// An object's current bytes are now in this region.
    Primary { object: u32, region: u32, tier: TierId },
    /// A copy was handed to the backend.
    CopyStarted { ticket: Ticket, object: u32, from: Place, to: Place, bytes: Bytes },
    /// A copy was seen to have ended.
    CopyEnded { ticket: Ticket, object: u32, outcome: Outcome, span: Option<Span> },
    /// A cache below the level of objects moved bytes for the kernel that runs.
    Cached { fetched: Bytes, evicted: Bytes },
    /// A zone is this stretch of memory from now on; none at all once it is dissolved.
    Zoned { zone: u32, name: Arc<str>, place: Place, bytes: Bytes },
    /// A kernel runs.
    KernelBegan { step: Step },
    /// A kernel has ended.
    KernelEnded { step: Step },
    /// A kernel goes on beside those that come next.
    KernelLeft { step: Step, ticket: Ticket },
    /// A kernel beside others was seen to have ended.
    KernelReturned { step: Step, ticket: Ticket, span: Option<Span> },
    /// A kernel has waited.
    Stalled { step: Step, object: u32, ticket: Ticket, cause: Cause, time: Nanos },
    /// One pass over the trace begins.
    IterationBegan { iteration: u32 },
    /// One pass over the trace has ended.
    IterationEnded { iteration: u32 },
}

/// A file of events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// What the run was.
    pub header: Header,
    /// What happened, in order.
    pub entries: Vec<Entry>,
    /// What a reader should know: lines that were passed over, a file that was cut off.
    pub notes: Vec<String>,
}

/// Why a file of events cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    /// The system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// There is nothing in it.
    #[error("the file is empty; a file of events begins with a line that says what the run was")]
    Empty,
    /// It is something else.
    #[error("line 1: this is no file of events: it does not begin with {{\"tiercel_events\":{VERSION},…")]
    Foreign,
    /// It is of another version.
    #[error("line 1: the file is of version {found}; version {VERSION} can be read")]
    Version {
        /// The version of the file.
        found: u64,
    },
    /// A line makes no sense.
    #[error("line {line}: {what}")]
    Line {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
}

/// The first line of a file.
#[derive(Serialize, Deserialize)]
struct FirstLine<H> {
    tiercel_events: u32,
    #[serde(flatten)]
    header: H,
}

impl From<&Stamped> for Entry {
    fn from(stamped: &Stamped) -> Entry {
        Entry { at: stamped.at, what: What::from(&stamped.event) }
    }
}

impl From<&Event> for What {
    fn from(event: &Event) -> What {
        match *event {
            Event::Created { object, ref name, bytes } => {
                What::Created { object: object.index() as u32, name: name.clone(), bytes }
            }
            Event::Hinted { object, hint } => What::Hinted { object: object.index() as u32, hint },
            Event::Retired { object } => What::Retired { object: object.index() as u32 },
            Event::Allocated { region, place, bytes } => {
                What::Allocated { region: region.index() as u32, place, bytes }
            }
            Event::Freed { region, place, bytes } => {
                What::Freed { region: region.index() as u32, place, bytes }
            }
            Event::Linked { object, region } => {
                What::Linked { object: object.index() as u32, region: region.index() as u32 }
            }
            Event::Unlinked { object, region } => {
                What::Unlinked { object: object.index() as u32, region: region.index() as u32 }
            }
            Event::Primary { object, region, tier } => {
                What::Primary { object: object.index() as u32, region: region.index() as u32, tier }
            }
            Event::CopyStarted { ticket, object, from, to, bytes } => {
                What::CopyStarted { ticket, object: object.index() as u32, from, to, bytes }
            }
            Event::CopyEnded { ticket, object, outcome, span } => {
                What::CopyEnded { ticket, object: object.index() as u32, outcome, span }
            }
            Event::Cached { fetched, evicted } => What::Cached { fetched, evicted },
            Event::Zoned { zone, ref name, place, bytes } => {
                What::Zoned { zone: zone.index() as u32, name: Arc::clone(name), place, bytes }
            }
            Event::KernelBegan { step } => What::KernelBegan { step },
            Event::KernelEnded { step } => What::KernelEnded { step },
            Event::KernelLeft { step, ticket } => What::KernelLeft { step, ticket },
            Event::KernelReturned { step, ticket, span } => What::KernelReturned { step, ticket, span },
            Event::Stalled { step, object, ticket, cause, time } => {
                What::Stalled { step, object: object.index() as u32, ticket, cause, time }
            }
            Event::IterationBegan { iteration } => What::IterationBegan { iteration },
            Event::IterationEnded { iteration } => What::IterationEnded { iteration },
        }
    }
}

/// Writes the first line of a file of events.
pub fn write_header(out: &mut impl Write, header: &Header) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &FirstLine { tiercel_events: VERSION, header })?;
    out.write_all(b"\n")
}

/// Writes events as lines; a long run calls it again and again.
pub fn write_entries<'e>(
    out: &mut impl Write,
    events: impl IntoIterator<Item = &'e Stamped>,
) -> io::Result<()> {
    for event in events {
        serde_json::to_writer(&mut *out, &Line::from(&Entry::from(event)))?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Writes a whole file of events.
pub fn write_events<'e>(
    out: &mut impl Write,
    header: &Header,
    events: impl IntoIterator<Item = &'e Stamped>,
) -> io::Result<()> {
    write_header(out, header)?;
    write_entries(out, events)
}

impl Log {
    /// The log of a run that has just been made, without a file in between.
    pub fn new<'e>(header: Header, events: impl IntoIterator<Item = &'e Stamped>) -> Log {
        Log { header, entries: events.into_iter().map(Entry::from).collect(), notes: Vec::new() }
    }

    /// Reads a file of events.
    pub fn read(mut from: impl BufRead) -> Result<Log, EventsError> {
        let mut text = Vec::new();
        if next(&mut from, &mut text, 1)? == 0 {
            return Err(EventsError::Empty);
        }
        let header = read_header(&text)?;
        let mut log = Log { header, ..Log::default() };
        let (mut line, mut unknown) = (1, 0);
        while next(&mut from, &mut text, line + 1)? > 0 {
            line += 1;
            let whole = text.ends_with(b"\n");
            if text.trim_ascii().is_empty() {
                continue;
            }
            let wrong = |what: String| EventsError::Line { line, what };
            let parsed = match serde_json::from_slice::<Line<'_>>(text.trim_ascii_end()) {
                Ok(parsed) => parsed,
                Err(error) if !whole && error.is_eof() => {
                    log.notes.push(format!("line {line} is cut off: the run did not end as it should"));
                    break;
                }
                Err(error) => return Err(wrong(said(&error))),
            };
            let Some(entry) = parsed.entry().map_err(wrong)? else {
                unknown += 1;
                continue;
            };
            log.check(&entry).map_err(wrong)?;
            log.entries.push(entry);
        }
        if unknown > 0 {
            log.notes
                .push(format!("{unknown} events of kinds that this version does not know were passed over"));
        }
        Ok(log)
    }

    /// Whether an event fits what came before it, as far as drawing it relies upon that.
    fn check(&self, entry: &Entry) -> Result<(), String> {
        if let Some(before) = self.entries.last().filter(|before| before.at > entry.at) {
            return Err(format!("time runs backwards, from {} ns to {} ns", before.at.0, entry.at.0));
        }
        let tier = |tier: TierId| match tier.index() < self.header.tiers.len() {
            true => Ok(()),
            false => Err(format!("there is no {tier}; the machine has {}", self.header.tiers.len())),
        };
        let stretch = |place: Place, bytes: Bytes| {
            tier(place.tier)?;
            let end = place.offset.0.checked_add(bytes.0);
            let capacity = self.header.tiers[place.tier.index()].capacity;
            match end.is_some_and(|end| end <= capacity.0) {
                true => Ok(()),
                false => Err(format!(
                    "{bytes} at {} of tier `{}` are beyond its {capacity}",
                    place.offset.0,
                    self.header.tier_name(place.tier)
                )),
            }
        };
        match &entry.what {
            What::Allocated { place, bytes, .. }
            | What::Freed { place, bytes, .. }
            | What::Zoned { place, bytes, .. } => stretch(*place, *bytes),
            What::CopyStarted { from, to, bytes, .. } => {
                stretch(*from, *bytes)?;
                stretch(*to, *bytes)
            }
            What::Primary { tier: on, .. } => tier(*on),
            What::KernelBegan { step }
            | What::KernelEnded { step }
            | What::KernelLeft { step, .. }
            | What::KernelReturned { step, .. }
            | What::Stalled { step, .. } => {
                let kernels = self.header.kernels.len();
                match *step == Step::LOAD || kernels == 0 || (step.0 as usize) < kernels {
                    true => Ok(()),
                    false => Err(format!("there is no {step}; the header has {kernels} kernels")),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Reads the next line, its end included, and returns its length.
fn next(from: &mut impl BufRead, text: &mut Vec<u8>, line: usize) -> Result<usize, EventsError> {
    text.clear();
    let read = from.by_ref().take(LONGEST).read_until(b'\n', text)?;
    if read as u64 == LONGEST && !text.ends_with(b"\n") {
        return Err(EventsError::Line { line, what: format!("it is longer than {}", Bytes(LONGEST)) });
    }
    Ok(read)
}

fn read_header(text: &[u8]) -> Result<Header, EventsError> {
    let value: serde_json::Value = serde_json::from_slice(text).map_err(|_| EventsError::Foreign)?;
    let version = value.get("tiercel_events").ok_or(EventsError::Foreign)?;
    match version.as_u64() {
        Some(found) if found != u64::from(VERSION) => return Err(EventsError::Version { found }),
        Some(_) => {}
        None => return Err(EventsError::Foreign),
    }
    let first: FirstLine<Header> = serde_json::from_value(value)
        .map_err(|error| EventsError::Line { line: 1, what: format!("the header: {error}") })?;
    if first.header.tiers.is_empty() || first.header.tiers.len() > 64 {
        let what = format!("the header has {} tiers; a machine has 1 to 64", first.header.tiers.len());
        return Err(EventsError::Line { line: 1, what });
    }
    if first.header.grain == Bytes::ZERO {
        return Err(EventsError::Line { line: 1, what: "the header has a grain of no bytes".to_string() });
    }
    Ok(first.header)
}

/// What the parser says, without the place in a line that is always the first to it.
fn said(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    format!("{} (column {})", &text[..end], error.column())
}

/// Whether a file that begins like this is one of events.
pub fn is_events(start: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&start[..start.len().min(200)]);
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    text.starts_with("{\"tiercel_events\":")
}

//! One event as a line of JSON: the fields that events have, and which of them each event needs.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tiercel_core::{Bytes, Cause, Hint, Nanos, Outcome, Place, Span, Step, Ticket, TierId};

use crate::events::{Entry, What};

/// A line: which fields there are depends on the event.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Line<'a> {
    at: Nanos,
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    iteration: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    object: Option<u32>,
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<Hint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    region: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tier: Option<TierId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<Place>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ticket: Option<Ticket>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<Place>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<Place>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fetched: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    evicted: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    span: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<Cause>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time: Option<Nanos>,
}

/// Loading has no step in a file.
fn step_out(step: Step) -> Option<u32> {
    (step != Step::LOAD).then_some(step.0)
}

impl<'a> From<&'a Entry> for Line<'a> {
    fn from(entry: &'a Entry) -> Line<'a> {
        let line = |event: &'static str| Line { at: entry.at, event: event.into(), ..Line::default() };
        match &entry.what {
            What::Created { object, name, bytes } => Line {
                object: Some(*object),
                name: name.as_deref().map(Cow::Borrowed),
                bytes: Some(*bytes),
                ..line("created")
            },
            What::Hinted { object, hint } => {
                Line { object: Some(*object), hint: Some(*hint), ..line("hinted") }
            }
            What::Retired { object } => Line { object: Some(*object), ..line("retired") },
            What::Allocated { region, place, bytes } => {
                Line { region: Some(*region), place: Some(*place), bytes: Some(*bytes), ..line("allocated") }
            }
            What::Freed { region, place, bytes } => {
                Line { region: Some(*region), place: Some(*place), bytes: Some(*bytes), ..line("freed") }
            }
            What::Linked { object, region } => {
                Line { object: Some(*object), region: Some(*region), ..line("linked") }
            }
            What::Unlinked { object, region } => {
                Line { object: Some(*object), region: Some(*region), ..line("unlinked") }
            }
            What::Primary { object, region, tier } => {
                Line { object: Some(*object), region: Some(*region), tier: Some(*tier), ..line("primary") }
            }
            What::CopyStarted { ticket, object, from, to, bytes } => Line {
                ticket: Some(*ticket),
                object: Some(*object),
                from: Some(*from),
                to: Some(*to),
                bytes: Some(*bytes),
                ..line("copy_started")
            },
            What::CopyEnded { ticket, object, outcome, span } => Line {
                ticket: Some(*ticket),
                object: Some(*object),
                outcome: Some(*outcome),
                span: *span,
                ..line("copy_ended")
            },
            What::Cached { fetched, evicted } => {
                Line { fetched: Some(*fetched), evicted: Some(*evicted), ..line("cached") }
            }
            What::Zoned { zone, name, place, bytes } => Line {
                zone: Some(*zone),
                name: Some(Cow::Borrowed(name)),
                place: Some(*place),
                bytes: Some(*bytes),
                ..line("zoned")
            },
            What::KernelBegan { step } => Line { step: step_out(*step), ..line("kernel_began") },
            What::KernelEnded { step } => Line { step: step_out(*step), ..line("kernel_ended") },
            What::KernelLeft { step, ticket } => {
                Line { step: step_out(*step), ticket: Some(*ticket), ..line("kernel_left") }
            }
            What::KernelReturned { step, ticket, span } => {
                Line { step: step_out(*step), ticket: Some(*ticket), span: *span, ..line("kernel_returned") }
            }
            What::Stalled { step, object, ticket, cause, time } => Line {
                step: step_out(*step),
                object: Some(*object),
                ticket: Some(*ticket),
                cause: Some(*cause),
                time: Some(*time),
                ..line("stalled")
            },
            What::IterationBegan { iteration } => {
                Line { iteration: Some(*iteration), ..line("iteration_began") }
            }
            What::IterationEnded { iteration } => {
                Line { iteration: Some(*iteration), ..line("iteration_ended") }
            }
        }
    }
}

impl Line<'_> {
    /// The event that the line tells of; `None` where this version does not know it.
    pub(crate) fn entry(self) -> Result<Option<Entry>, String> {
        let event = self.event.as_ref();
        fn need<T>(field: Option<T>, event: &str, name: &str) -> Result<T, String> {
            field.ok_or_else(|| format!("`{event}` lacks `{name}`"))
        }
        macro_rules! need {
            ($field:ident) => {
                need(self.$field, event, stringify!($field))?
            };
        }
        let step = self.step.map_or(Step::LOAD, Step);
        let name = self.name.as_deref().map(Arc::from);
        let what = match event {
            "created" => What::Created { object: need!(object), name, bytes: need!(bytes) },
            "hinted" => What::Hinted { object: need!(object), hint: need!(hint) },
            "retired" => What::Retired { object: need!(object) },
            "allocated" => {
                What::Allocated { region: need!(region), place: need!(place), bytes: need!(bytes) }
            }
            "freed" => What::Freed { region: need!(region), place: need!(place), bytes: need!(bytes) },
            "linked" => What::Linked { object: need!(object), region: need!(region) },
            "unlinked" => What::Unlinked { object: need!(object), region: need!(region) },
            "primary" => What::Primary { object: need!(object), region: need!(region), tier: need!(tier) },
            "copy_started" => What::CopyStarted {
                ticket: need!(ticket),
                object: need!(object),
                from: need!(from),
                to: need!(to),
                bytes: need!(bytes),
            },
            "copy_ended" => What::CopyEnded {
                ticket: need!(ticket),
                object: need!(object),
                outcome: need!(outcome),
                span: self.span,
            },
            "cached" => What::Cached { fetched: need!(fetched), evicted: need!(evicted) },
            "zoned" => What::Zoned {
                zone: need!(zone),
                name: name.unwrap_or_else(|| Arc::from("")),
                place: need!(place),
                bytes: need!(bytes),
            },
            "kernel_began" => What::KernelBegan { step },
            "kernel_ended" => What::KernelEnded { step },
            "kernel_left" => What::KernelLeft { step, ticket: need!(ticket) },
            "kernel_returned" => What::KernelReturned { step, ticket: need!(ticket), span: self.span },
            "stalled" => What::Stalled {
                step,
                object: need!(object),
                ticket: need!(ticket),
                cause: need!(cause),
                time: need!(time),
            },
            "iteration_began" => What::IterationBegan { iteration: need!(iteration) },
            "iteration_ended" => What::IterationEnded { iteration: need!(iteration) },
            _ => return Ok(None),
        };
        Ok(Some(Entry { at: self.at, what }))
    }
}

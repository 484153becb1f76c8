//! What happened, for people to look at. Reads events and results of runs, and nothing else.
//!
//! ```text
//! events ──► Log ──► Run ──┐
//!                          ├──► Report ──► text, HTML, Perfetto, CSV, JSON
//! results ──► Comparison ──┘
//! ```
//!
//! [`events`] is the file that a run writes (`docs/events-format.md`); a [`Run`] is what can be drawn of it: kernels,
//! copies, stalls and regions with their beginnings and ends. A [`Comparison`] holds the figures of many runs, and a
//! [`Curve`] says how the time of an iteration depends on how much fast memory there is, and what that costs.

mod columns;
pub mod comparison;
pub mod csv;
pub mod curve;
pub mod events;
pub mod header;
pub mod html;
mod line;
pub mod perfetto;
pub mod report;
pub mod run;
mod scale;
pub mod stalls;
pub mod table;
mod text;
mod thin;

pub use comparison::{Comparison, Row};
pub use curve::{Curve, Point, Price};
pub use events::{Entry, EventsError, Log, What, write_events};
pub use header::Header;
pub use report::Report;
pub use run::Run;
pub use stalls::Stalls;
pub use table::Table;

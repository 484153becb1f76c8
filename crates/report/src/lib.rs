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
//!
//! | file | what |
//! |---|---|
//! | `events.rs` | the file of events (`docs/events-format.md`) |
//! | `header.rs` | what a run was |
//! | `line.rs` | one event as a line |
//! | `kept.rs` | what `tiercel keep` wrote: memory of a program over time |
//! | `run.rs` | a run with beginnings and ends |
//! | `stalls.rs` | where kernels waited, and for what: the place where stalls are counted for people |
//! | `comparison.rs` | figures of many runs, under the names of the JSON documents (`docs/json.md`) |
//! | `columns.rs` | their columns: one list for terminal, page and CSV |
//! | `curve.rs` | time against fast memory, and its price |
//! | `report.rs` | everything that is to be shown together |
//! | `html/` | the page: tables and curves written out, timeline and maps drawn by its script |
//! | `text.rs` | the same for terminals |
//! | `table.rs` | aligned tables, and numbers as people read them |
//! | `perfetto.rs` | for Perfetto |
//! | `csv.rs` | for spreadsheets |
//! | `scale.rs` | round numbers along an axis |
//! | `merged_marks.rs` | fewer marks where there are more than anybody could see |

mod columns;
pub mod comparison;
pub mod csv;
pub mod curve;
pub mod events;
pub mod header;
pub mod html;
pub mod kept;
mod line;
mod merged_marks;
pub mod perfetto;
pub mod report;
pub mod run;
mod scale;
pub mod stalls;
pub mod table;
mod text;

pub use comparison::{Comparison, ComparisonError, Row};
pub use curve::{Curve, Point, Price};
pub use events::{Entry, EventsError, Log, What, write_events};
pub use header::Header;
pub use kept::Kept;
pub use report::Report;
pub use run::Run;
pub use stalls::Stalls;
pub use table::Table;

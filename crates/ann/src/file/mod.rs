//! An index in one file.
//!
//! The first page says what the file is and where its sections are, each with its length and checksum; behind them are the
//! pages of vectors with their labels, each page with a checksum of its own, so that a page that is read alone is known to be
//! good. Whoever searches with little memory reads the sections and leaves the pages where they are.
//!
//! A file comes to be beside its place, is synced and then renamed, so that whoever reads it finds the old index or the new
//! one, also after a crash; what a killed program left beside is removed by the next that saves. `docs/ann.md` has the layout.

mod head;
mod read;
mod write;

pub(crate) use head::{Kind, PAGE, Shape};
pub(crate) use read::{Opened, check};
pub use write::SaveOptions;

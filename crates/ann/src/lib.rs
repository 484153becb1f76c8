//! A vector index that may be larger than fast memory.

mod arena;
mod beam;
mod codes;
pub mod data;
mod distance;
mod element;
mod error;
mod file;
mod filter;
mod graph;
pub mod hm;
mod index;
mod info;
mod insert;
mod links;
mod order;
mod parallel;
mod remove;
mod rows;
mod search;
mod sketch;
mod sweep;
mod tier;

pub use element::{Dtype, Matrix, Metric};
pub use error::{AnnError, MAX_DIM};
pub use file::SaveOptions;
pub use filter::Filter;
pub use index::{Ask, Index, NOBODY, Neighbours, Spec};
pub use info::{Info, Needs, memory_of};
pub use sweep::{Point, Timed, WIDTHS, Width};
pub use tier::{FastMemory, Moved, Setting, Slow, TierAsk, Tiered};

//! HM-ANN (chapter 3 of the dissertation; NeurIPS 2020): the nodes with the most links on level 0 make up level 1, as many as
//! fast memory allows, so that most of a search happens there and few steps remain to be taken in slow memory.
//!
//! `memory` says how many nodes fit, `promote` builds the upper levels anew (Algorithm 1), `search` looks in both memories (Algorithms 2 and 3) and counts what it
//! touches, `placement` says which touches are slow, for HM-ANN and for those it is compared with, and `choose` picks the
//! widths of both beams by Equation 3.1.
//!
//! Slow memory is emulated: everything is in DRAM, and a touch of what is placed in slow memory takes longer by the difference
//! that the paper measured between a distance there and one in fast memory. Counts of touches depend on no memory at all.
//! Where the text leaves something open, these are our readings of it: the `Thr` searches of level 0 take turns on one core, and
//! what all of them wait for in one turn is waited for once; a list of candidates on level 0 is `efSearchL0` times as long as the
//! search's share of the entries; what the search of level 1 has seen is not looked at again on level 0. With lists on level 0 that
//! are `efSearchL0` long in all, the other reading, two candidates never find more than 96 % of the nearest on real sets, however
//! wide the beam on level 1: so that is not what the chapter's figures up to 99.5 % were made with.

pub(crate) mod choose;
mod memory;
mod placement;
pub(crate) mod promote;
pub mod reproduce;
mod search;

pub use choose::{Chosen, Goal, choose};
pub use memory::Memory;
pub use placement::Variant;
pub use search::{Hm, Touched, Widths};

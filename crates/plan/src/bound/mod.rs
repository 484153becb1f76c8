//! What no plan can beat: prices on memory and links, and what must cross the middle of an iteration.

pub(crate) mod crossing;
pub(crate) mod dual;
pub(crate) mod margins;
pub(crate) mod paths;

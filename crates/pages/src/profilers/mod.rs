//! Ways to find out which pages are hot, each with what it may look at and what that costs.

pub mod counters;
pub mod damon;
pub mod regions;
pub mod segments;
pub mod windows;

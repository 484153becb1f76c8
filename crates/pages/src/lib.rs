//! Pages of programs that nobody changes: which are hot, where they should live, and how they get there.
//!
//! The decisions are pure: [`profilers`] say where to look and how hot spans are, [`strategies`] what moves. [`sim`] plays
//! [`programs`] under them on any machine; the daemon drives the same code on real pages. After HM-Keeper (dissertation,
//! chapter 8).

pub mod arena;
pub mod placement;
pub mod profilers;
pub mod programs;
pub mod real;
pub mod sim;
pub mod strategies;
pub mod systems;
pub mod tiers;
pub mod watch;

#[cfg(test)]
mod tests;

//! Particle-in-cell plasma simulation whose particles need not fit in fast memory (WarpX-PM, chapter 7).
//!
//! [`Simulation`] has fields and particles as objects on the tiers of a machine, under a placement. Inner loops are in
//! `cell`, `push` and `shape`, over the vectors of `simd`; `parcel` walks the particles of a tile in place.

// Loops over axes and cells index several arrays at once; sums and sights have no contents that would be a default.
#![allow(clippy::needless_range_loop, clippy::new_without_default)]

pub mod absorb;
mod around;
pub mod batch;
pub mod bench;
pub mod cell;
pub mod checkpoint;
pub mod compare;
pub mod deck;
pub mod error;
mod exchange;
pub mod grid;
mod halo;
pub mod hash;
pub mod laser;
pub mod load;
mod maxwell;
pub mod openpmd;
pub mod page;
mod paged;
pub mod parcel;
mod passes;
pub mod picture;
pub mod placement;
pub mod push;
pub mod rates;
pub mod roofline;
pub mod run;
pub mod scene;
pub mod setup;
pub mod shape;
pub mod simd;
pub mod simulation;
pub mod split;
pub mod store;
pub mod system;
pub mod team;
mod window;
pub mod yee;

pub use error::PicError;
pub use grid::{Boundary, Grid};
pub use laser::Laser;
pub use setup::{Push, Setup, Species, Window};
pub use simd::Real;
pub use simulation::{Measured, Passes, Simulation, Ways};

//! Training on memory that the manager owns: data, learning rates, evaluation, checkpoints.
//!
//! ```text
//! program ──► Task ──► Trainer ──► executor ──► stage ──► learner ──► kernels
//!                                                            ▲
//!                                                 data, checkpoint, initial values
//! ```
//!
//! The executor plays the trace as ever; what training adds sits in the learner, between the stage and the kernels. So
//! nothing here knows where a tensor lies, and results are the same under every policy: they follow from the network,
//! the data, the seed and the settings.

pub mod checkpoint;
pub mod data;
pub mod digest;
mod error;
mod finite;
mod learner;
mod norm;
mod rate;
pub mod room;
pub mod safetensors;
mod task;
mod trainer;

pub use checkpoint::{CheckpointError, Progress};
pub use data::{Data, DataError, Images, Pictures, Split, Synthetic, Text};
pub use error::TrainError;
pub use rate::{Schedule, ScheduleError};
pub use task::{Task, with_rate};
pub use trainer::{Lesson, Score, Settings, Trainer};

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
//!
//! | file | what |
//! |---|---|
//! | `task.rs` | a network as something to train |
//! | `trainer.rs` | iterations, evaluation, checkpoints, and where a NaN began |
//! | `learner.rs` | between stage and kernels: feeds what no kernel makes, looks at what kernels made |
//! | `data/` | synthetic data, IDX images, text by the byte |
//! | `rate.rs` | learning rates over time |
//! | `checkpoint.rs` | what a run leaves for the one that goes on |
//! | `safetensors.rs` | the format of that, never half-written |
//! | `digest.rs` | a checksum of results |
//! | `norm.rs` | batch norms with running statistics |
//! | `room.rs` | how much memory a run needs |
//! | `error.rs` | what can end a run |

pub mod checkpoint;
pub mod data;
pub mod digest;
mod error;
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

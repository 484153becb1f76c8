//! ZeRO-Offload on paper (dissertation, chapter 5): which states lie where, how large a model that allows, and how long a
//! step takes, by simulation. What trains models for real is `tiercel.optim` of the Python package.
//!
//! | file | what |
//! |---|---|
//! | `choices.rs` | section 5.3: every way to divide training between a GPU and a host, with its bytes |
//! | `memory.rs` | what a GPU and a host must hold: the largest model |
//! | `steps.rs` | a step on a GPU, two directions of a link, a processor and a network, task after task |

pub mod choices;
pub mod memory;
pub mod steps;

/// A transformer like GPT-2, and how many sequences of it a GPU computes at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpt {
    /// Blocks.
    pub layers: u64,
    /// Numbers of a token.
    pub hidden: u64,
    /// Sequences at once on one GPU.
    pub batch: u64,
}

/// Tokens of a sequence.
pub const SEQUENCE: f64 = 1024.0;

/// Words that are known.
pub const WORDS: f64 = 50_257.0;

impl Gpt {
    /// Parameters of one block.
    pub fn block(&self) -> f64 {
        12.0 * (self.hidden * self.hidden) as f64
    }

    /// Parameters of all blocks and of the table of words.
    pub fn parameters(&self) -> f64 {
        self.block() * self.layers as f64 + WORDS * self.hidden as f64
    }
}

//! Optimizers on the processor, for models whose optimizer states are larger than a GPU's memory (ZeRO-Offload,
//! dissertation, chapter 5).
//!
//! An update reads gradient, parameter and moments once and writes parameter and moments once: 28 bytes a parameter
//! with gradients of 32 bits, and it is the memory that sets the pace. Finished tiles are announced while the next are
//! computed, so that they can be on their way to the GPU (Algorithm 4).
//!
//! Arithmetic is in the order in which `torch.optim` has it on a processor (`foreach=False`), with the same operations
//! fused, so results are the same bits; they are also the same for any number of threads and on every instruction set.
//! The one thing that is not is which of the many not-a-numbers a not-a-number is.
//!
//! | file | what |
//! |---|---|
//! | `rule.rs` | AdamW, Adam and SGD: how one parameter changes |
//! | `number.rs` | numbers of 16 bits, and fused multiply-add where the processor has none |
//! | `pass.rs` | the pass over memory: tiles, threads, instruction sets |
//! | `queue.rs` | updates in the background, in an order that may change as more comes |
//! | `split.rs` | which parameters are updated where: on the GPU, streamed to it, by the processor |
//! | `norm.rs` | sums of squares, in an order that is always the same |

mod norm;
mod number;
mod pass;
mod queue;
mod rule;
mod split;

pub use norm::sum_of_squares;
pub use number::{Bf16, F16, Number};
pub use pass::{Gradient, Output, Part, TILE, update, update_at};
pub use queue::{Ended, Queue, Work};
pub use rule::{Adam, Decay, Rule, Sgd};
pub use split::{PASS, Rates, STATES, Split, split};
pub use tiercel_kernels::pool::Pool;
pub use tiercel_kernels::simd::{Level, level};

//! Networks whose shape depends on the sample: which sequence of operations comes, and plans for it.
//!
//! The paper is DyNN-Offload (Ren, dissertation, chapter 6); `docs/dynamic.md` says what is its and what is ours.
//!
//! ```text
//! a program's events ──► structure: a matrix with its branches ──┐
//!             └── trace ──► blocks, by Sentinel's equations ──► learned: sample → blocks → path ──┐
//!             └── trie of sequences ──► guess: sample and prefix → next branch ──► plans ─────────┴──► ground
//! ```
//!
//! | file | what |
//! |---|---|
//! | `operator.rs` | operators as nine numbers; the table of idioms and the rule for unknown ones |
//! | `structure.rs` | a network's structure as a matrix with its control flows, from recorded branches |
//! | `tape.rs` | a program that runs operator by operator: its events and its trace |
//! | `blocks.rs` | execution blocks by Sentinel's equations, even splits, and the record that is predicted |
//! | `learned/` | the paper's model: embedding, network, training, mapping, the record of misses |
//! | `trie.rs` | recorded sequences in bounded memory |
//! | `guess.rs` | the predictor of the next branch |
//! | `plans.rs` | plans by path and bucket of sizes, the cost of a wrong guess, what to fetch for other paths |
//! | `study.rs` | a workload with every rival |
//! | `exam.rs` | accuracy, misses and times of predictors |
//! | `ground/` | one simulated card for all rivals: on demand, unified memory, DTR, L2L, ZeRO-Offload, blocks, plans |
//! | `workloads/` | dynamic networks and generated samples |

pub mod blocks;
pub mod exam;
pub mod ground;
pub mod guess;
pub mod learned;
pub mod operator;
pub mod plans;
pub mod structure;
pub mod study;
pub mod tape;
pub mod trie;
pub mod workloads;

//! For tests: a world that does everything as awkwardly as it may, and a naive model of what objects hold.
//!
//! | file | what |
//! |---|---|
//! | `jumble.rs` | an adversarial world with real bytes |
//! | `ledger.rs` | a naive model of what objects hold |
//! | `trace.rs` | random traces |
//! | `seeds.rs` | which seeds a fuzzer runs |
//! | `skipped.rs` | what a test leaves out, and why |

mod jumble;
mod ledger;
mod seeds;
mod skipped;
mod trace;

pub use jumble::{Detached, Jumble};
pub use ledger::{Ledger, Visible, machine};
pub use seeds::for_seeds;
pub use skipped::skipped;
pub use trace::{Scramble, random_trace};

//! For tests: a world that does everything as awkwardly as it may, and a naive model of what objects hold.

mod jumble;
mod ledger;
mod seeds;
mod trace;

pub use jumble::{Aside, Jumble};
pub use ledger::{Ledger, Visible, machine};
pub use seeds::for_seeds;
pub use trace::{Scramble, random_trace};

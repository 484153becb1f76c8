//! How long planners search: arguments that verbs share.
//!
//! Rounds of search are counted, so that what comes out follows from the seed alone. Who gives a time instead gets the best
//! plan of that time, which depends on how fast the machine is and what else it does; answers say so.

use std::time::Duration;

use clap::Args;
use tiercel_systems::Options;

use crate::amounts::{duration, share};

/// When a planner is content.
#[derive(Args)]
pub struct Effort {
    /// For planners: the gap between plan and bound that is good enough
    #[arg(long, value_name = "1%", default_value = "1%", value_parser = share, allow_hyphen_values = true)]
    gap: f64,
    /// For planners: the rounds of search after which the best plan so far is taken: the same seed gives the same plan
    #[arg(long, value_name = "N", default_value_t = 2, allow_hyphen_values = true)]
    rounds: u32,
    /// For planners: the time after which it is taken; a busy machine then finds other plans than a quiet one
    #[arg(long, value_name = "10s", value_parser = duration, conflicts_with = "rounds", allow_hyphen_values = true)]
    time: Option<Duration>,
}

impl Effort {
    /// The same as a system takes it.
    pub fn options(&self, seed: u64) -> Options {
        let usual = Options { gap: self.gap, seed, ..Options::default() };
        match self.time {
            Some(time) => Options { time, ..usual },
            None => Options { time: Duration::MAX, rounds: self.rounds, ..usual },
        }
    }

    /// Whether the same seed gives the same plan, however busy the machine is.
    pub fn repeats(&self) -> bool {
        self.time.is_none()
    }
}

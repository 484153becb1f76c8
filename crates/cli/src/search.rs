//! How long planners search: arguments that verbs share.

use std::time::Duration;

use clap::Args;
use tiercel_systems::Options;

use crate::amounts::{duration, share};

/// When a planner is content.
#[derive(Args)]
pub struct Search {
    /// For planners: the gap between plan and bound that is good enough
    #[arg(long, value_name = "1%", default_value = "1%", value_parser = share, allow_hyphen_values = true)]
    gap: f64,
    /// For planners: the time after which the best plan so far is taken
    #[arg(long, value_name = "10s", default_value = "10s", value_parser = duration, allow_hyphen_values = true)]
    time: Duration,
}

impl Search {
    /// The same as a system takes it.
    pub fn options(&self, seed: u64) -> Options {
        Options { gap: self.gap, time: self.time, seed, ..Options::default() }
    }
}

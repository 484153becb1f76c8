//! What every verb takes: how the answer is given, and where chance starts.

use clap::Args;

use crate::amounts::count;

/// How the answer is given, and where chance starts.
#[derive(Args)]
pub struct Answer {
    /// One JSON document instead of tables
    #[arg(long)]
    pub json: bool,
    /// Seed of whatever is random: searches, weights, data
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count, allow_hyphen_values = true)]
    pub seed: u64,
}

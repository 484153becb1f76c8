//! The time limit: it stops the engines and decides nothing else, so that a result depends on the seed alone unless the
//! time was over.

use std::time::{Duration, Instant};

/// Counts down from a limit.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    start: Instant,
    limit: Duration,
}

impl Clock {
    pub fn new(limit: Duration) -> Clock {
        Clock { start: Instant::now(), limit }
    }

    /// Whether the time is over.
    pub fn over(&self) -> bool {
        self.elapsed() >= self.limit
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

//! The time limit: it stops the engines and decides nothing else, so that a result depends on the seed alone unless the
//! time was over. Where results must be the same on every machine, looks at the clock are counted instead.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::search::solve::Effort;

/// Looks at the clock before all packings that take no search have been tried.
const QUICK: u64 = 11;

/// Counts down from a limit.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    start: Instant,
    limit: Duration,
    looks: Cell<Option<u64>>,
}

impl Clock {
    pub fn new(effort: &Effort) -> Clock {
        let looks = effort.counts().then(|| QUICK + u64::from(effort.rounds));
        Clock { start: Instant::now(), limit: effort.time, looks: Cell::new(looks) }
    }

    /// Whether looks are counted; then only one may look at a time, or the order would matter.
    pub fn counts(&self) -> bool {
        self.looks.get().is_some()
    }

    /// The same limit for an engine that counts its own steps, which is not counted.
    pub fn uncounted(&self) -> Clock {
        Clock { looks: Cell::new(None), ..self.clone() }
    }

    /// Whether the time is over.
    pub fn over(&self) -> bool {
        if let Some(left) = self.looks.get() {
            self.looks.set(Some(left.saturating_sub(1)));
            return left == 0;
        }
        self.elapsed() >= self.limit
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

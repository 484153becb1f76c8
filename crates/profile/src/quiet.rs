//! Whether the processor was ours while something was measured: what other programs take, a measurement pays for.
//!
//! The system counts how long its processors were busy, and how long this process was; the difference is others. It
//! counts in hundredths of a second, so figures of shorter times are coarse. Where it does not tell, nobody is there.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Others are not worth a word up to this share of the processors.
pub const LITTLE: f64 = 0.05;

/// The processors' time from some moment on.
#[derive(Clone, Copy, Debug)]
pub struct Others {
    all: u64,
    busy: u64,
    own: u64,
}

impl Others {
    /// From now on.
    pub fn since_now() -> Others {
        let (all, busy) = processors().unwrap_or_default();
        Others { all, busy, own: own().unwrap_or_default() }
    }

    /// The share of all processors that others have had since.
    pub fn share(&self) -> f64 {
        let now = Others::since_now();
        let busy = now.busy.saturating_sub(self.busy).saturating_sub(now.own.saturating_sub(self.own));
        let all = now.all.saturating_sub(self.all);
        // Two ticks are no evidence.
        busy.saturating_sub(2) as f64 / all.max(1) as f64
    }
}

/// Waits until others have had little for a moment, or for so long; tells whether they have.
pub fn wait(patience: Duration) -> bool {
    let started = Instant::now();
    loop {
        let others = Others::since_now();
        thread::sleep(Duration::from_millis(100));
        if others.share() <= LITTLE {
            return true;
        }
        if started.elapsed() >= patience {
            return false;
        }
    }
}

/// The ticks of all processors, and those in which they were busy.
fn processors() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let ticks = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
    let ticks: Vec<u64> = ticks.map(|n| n.parse().unwrap_or(0)).collect();
    let all: u64 = ticks.iter().sum();
    // The fourth is idle, the fifth is idle until a disk answers.
    Some((all, all - ticks.get(3)? - ticks.get(4)?))
}

/// The ticks of this process and of all its threads.
fn own() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    // The name, in brackets, may have spaces.
    let after: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(after.get(11)?.parse::<u64>().ok()? + after.get(12)?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_work_is_not_that_of_others() {
        let before = own().expect("the system tells");
        let others = Others::since_now();
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(150) {
            std::hint::spin_loop();
        }
        assert!(own().expect("the system tells") > before);
        assert!((0.0..=1.0).contains(&others.share()));
    }
}

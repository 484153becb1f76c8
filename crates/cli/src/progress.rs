//! Progress for whoever is waiting: on a terminal, on standard error, and only after two seconds.

use std::io::{IsTerminal, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that appears when somebody has waited for two seconds.
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    shown: AtomicBool,
}

impl Progress {
    /// So many steps of something.
    pub fn new(steps: usize, what: &'static str) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}  {eta} left") {
            bar.set_style(style);
        }
        bar.set_message(what);
        Progress { bar, started: Instant::now(), shown: AtomicBool::new(false) }
    }

    /// One step is done.
    pub fn tick(&self) {
        let waited = self.started.elapsed() >= Duration::from_secs(2);
        if waited && stderr().is_terminal() && !self.shown.swap(true, Ordering::Relaxed) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// What is going on, in a line that changes, for work without a known number of steps.
pub struct Notes(ProgressBar);

impl Notes {
    /// Nothing to say yet.
    pub fn new() -> Notes {
        let shown = stderr().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Notes(ProgressBar::with_draw_target(None, target))
    }

    /// Says what is going on now.
    pub fn say(&self, what: &str) {
        self.0.set_message(what.to_string());
        self.0.tick();
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

//! Progress for whoever is waiting: on a terminal, on standard error, and only after two seconds.

use std::io::{IsTerminal, stderr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tiercel_session::Steps;

/// How long somebody waits before a bar appears.
const PATIENCE: Duration = Duration::from_secs(2);

/// A bar that appears when somebody has waited for two seconds, and moves on its own from then on: a single step may take
/// long.
pub struct Progress {
    bar: ProgressBar,
    /// Whether it is over, so that a bar that comes late stays away.
    over: Arc<Mutex<bool>>,
}

impl Progress {
    /// So many steps of something.
    pub fn new(steps: usize, what: &'static str) -> Progress {
        Progress::styled(
            steps as u64,
            what,
            "{spinner} {msg} {wide_bar} {pos}/{len}  {elapsed} so far, {eta} left",
        )
    }

    /// Something of which nobody knows how long it will take.
    pub fn alone(what: &'static str) -> Progress {
        Progress::styled(1, what, "{spinner} {msg}, {elapsed} so far")
    }

    fn styled(steps: u64, what: &'static str, template: &str) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        let progress = Progress { bar, over: Arc::default() };
        if stderr().is_terminal() {
            let (bar, over) = (progress.bar.clone(), progress.over.clone());
            std::thread::spawn(move || {
                std::thread::sleep(PATIENCE);
                let over = over.lock().unwrap_or_else(PoisonError::into_inner);
                if !*over {
                    bar.set_draw_target(ProgressDrawTarget::stderr());
                    bar.enable_steady_tick(Duration::from_millis(200));
                }
            });
        }
        progress
    }

    /// One step is done.
    pub fn tick(&self) {
        self.bar.inc(1);
    }
}

impl Steps for Progress {
    fn tick(&self) {
        Progress::tick(self);
    }

    fn say(&self, what: &str) {
        self.bar.set_message(what.to_string());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        *self.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
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

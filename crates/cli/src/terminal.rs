//! Whoever sits at the terminal: told what goes on, and may interrupt.

use std::collections::HashSet;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use tiercel_session::{Steps, Watch};

use crate::progress::Progress;

/// Whether somebody wants to stop.
static STOP: AtomicBool = AtomicBool::new(false);

/// Whether there is something to end well: what is done by now is kept, if one waits for it.
static PATIENT: AtomicBool = AtomicBool::new(false);

/// From now on an interrupt ends the program; once there is something that is worth ending well, it ends after that, and a
/// second interrupt does not wait.
pub fn watch_for_interrupts() -> anyhow::Result<()> {
    let handler = || {
        let patient = PATIENT.load(Ordering::SeqCst);
        if !patient || STOP.swap(true, Ordering::SeqCst) {
            tiercel_run::files::discard();
            if patient {
                eprintln!(
                    "tiercel: interrupted twice: ended within an iteration, the last whole checkpoint stays"
                );
            }
            std::process::exit(130);
        }
    };
    ctrlc::set_handler(handler).context("cannot watch for interrupts")
}

/// The same for work of which every step is kept as soon as it is done.
pub fn stop_when_interrupted() {
    PATIENT.store(true, Ordering::SeqCst);
    // Without a handler the program ends at once, and what was written by then is kept all the same.
    let _ = ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) {
            tiercel_run::files::discard();
            std::process::exit(130);
        }
    });
}

/// Whether there was an interrupt.
pub fn stopped() -> bool {
    STOP.load(Ordering::SeqCst)
}

/// The terminal, as one who watches a session.
#[derive(Default)]
pub struct Terminal {
    /// What has been said: once is enough.
    said: Mutex<HashSet<String>>,
    learning: Mutex<Option<Learning>>,
}

impl Terminal {
    /// Nothing has been said yet.
    pub fn new() -> Arc<Terminal> {
        Arc::default()
    }
}

impl Watch for Terminal {
    fn begin(&self, what: &'static str, steps: Option<usize>) -> Box<dyn Steps> {
        Box::new(match steps {
            Some(steps) => Progress::new(steps, what),
            None => Progress::alone(what),
        })
    }

    fn remark(&self, text: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.insert(text.to_string()) {
            eprintln!("tiercel: {text}");
        }
    }

    fn learning(&self) {
        PATIENT.store(true, Ordering::SeqCst);
    }

    fn learnt(&self, iteration: u64, until: u64, loss: f32) {
        let mut learning = self.learning.lock().unwrap_or_else(PoisonError::into_inner);
        learning.get_or_insert_with(|| Learning::new(until)).show(iteration, loss);
        if iteration >= until {
            *learning = None;
        }
    }

    fn stop(&self) -> bool {
        stopped()
    }
}

/// A progress bar for training that somebody may be waiting for: a terminal is there, and two seconds have passed.
struct Learning {
    until: u64,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl Learning {
    fn new(until: u64) -> Learning {
        Learning { until, started: Instant::now(), bar: None }
    }

    fn show(&mut self, done: u64, loss: f32) {
        if self.bar.is_none() {
            if !std::io::stderr().is_terminal() || self.started.elapsed() < Duration::from_secs(2) {
                return;
            }
            let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}  loss {msg}  {eta} left");
            let bar = ProgressBar::new(self.until);
            self.bar = Some(style.map_or(bar.clone(), |style| bar.with_style(style)));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            bar.set_message(format!("{loss:.4}"));
        }
    }
}

impl Drop for Learning {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

//! The papers' figures beside ours, by simulation on the papers' machines.
//!
//! A paper is a file or a folder: what it measured, as data with the place in the paper, and the simulations that answer
//! each figure. Much stands in the papers only as bars of a chart; what is compared here are the figures that their text,
//! tables and captions state. Nothing is fitted to them: machine files and networks are the same as everywhere else.

mod autotm;
mod bench;
mod cachedarrays;
mod redl;
mod sentinel;

use std::fmt;

use tiercel_workload::spelling;

use crate::Options;

pub use bench::Bench;

/// A paper whose figures can be reproduced.
pub struct Paper {
    /// The name on the command line.
    pub name: &'static str,
    /// Its title and where it appeared.
    pub title: &'static str,
    /// The shipped machine that stands for the paper's.
    pub machine: &'static str,
    /// Where ours differ, and why.
    pub remarks: &'static [&'static str],
    rows: fn(&Bench<'_>) -> Vec<Row>,
}

/// Every paper.
pub static ALL: [Paper; 4] = [autotm::PAPER, cachedarrays::PAPER, redl::PAPER, sentinel::PAPER];

/// What a paper says of one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Claim {
    /// About this much.
    About(f64),
    /// Between these.
    Between(f64, f64),
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
    /// Nothing: the figure is ours alone, beside those of the paper.
    Silent,
}

impl Claim {
    /// Whether a figure is as the paper says; not for figures, of which there is only nearer and farther.
    pub fn holds(self, ours: f64) -> Option<bool> {
        match self {
            Claim::About(_) | Claim::Silent => None,
            Claim::Between(low, high) => Some((low..=high).contains(&ours)),
            Claim::AtLeast(low) => Some(ours >= low),
            Claim::AtMost(high) => Some(ours <= high),
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Claim::About(figure) => figure.to_string(),
            Claim::Between(low, high) => format!("{low} to {high}"),
            Claim::AtLeast(low) => format!("≥ {low}"),
            Claim::AtMost(high) => format!("≤ {high}"),
            Claim::Silent => "-".to_string(),
        };
        f.pad(&text)
    }
}

/// One figure of a paper, beside ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What it is.
    pub what: String,
    /// Where it stands in the paper.
    pub place: &'static str,
    /// What the paper says.
    pub paper: Claim,
    /// What we find, or why nothing.
    pub ours: Result<f64, String>,
    /// What both are counted in.
    pub unit: &'static str,
    /// Why they differ, where something can be said of just this figure.
    pub note: Option<&'static str>,
}

impl Row {
    /// The same with a note.
    fn note(mut self, note: &'static str) -> Row {
        self.note = Some(note);
        self
    }
}

/// The paper of this name, or what is wrong with the name.
pub fn named(name: &str) -> Result<&'static Paper, String> {
    ALL.iter().find(|paper| paper.name == name).ok_or_else(|| {
        let names = || ALL.iter().map(|paper| paper.name);
        match spelling::nearest(name, names()) {
            Some(nearest) => format!("no paper `{name}`; did you mean `{nearest}`?"),
            None => format!("no paper `{name}`; there are {}", names().collect::<Vec<_>>().join(", ")),
        }
    })
}

impl Paper {
    /// Simulates what it takes; `tick` is called after each simulation.
    pub fn reproduce(&self, options: Options, threads: usize, tick: &(dyn Fn() + Sync)) -> Vec<Row> {
        (self.rows)(&Bench::new(self.machine, options, threads, tick))
    }
}

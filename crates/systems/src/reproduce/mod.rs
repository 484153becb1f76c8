//! The papers' figures beside ours, by simulation on the papers' machines.
//!
//! A paper is a file or a folder: what it measured, as data with the place in the paper, and the simulations that answer
//! each figure. Much stands in the papers only as bars of a chart; what is compared here are the figures that their text,
//! tables and captions state. Machine files and networks are the same as everywhere else, and nothing is fitted to a paper's
//! results but for one row of them, which says so: how much slower persistent memory alone is (AutoTM, Figure 7), because
//! three choices of the kernel model were made with that figure in view (`crates/profile/src/fit.rs`).
//!
//! Every row says how it stands to the paper: it holds, it differs by so much and why as far as that is known, or it was
//! fitted (`verdict.rs`).

mod autotm;
mod bench;
mod cachedarrays;
mod dynn_offload;
pub mod hm_ann;
mod hm_keeper;
mod redl;
mod sentinel;
mod verdict;
mod warpx_pm;
mod zero_offload;

use std::fmt;

use tiercel_workload::spelling;

use crate::Options;

pub use bench::Bench;
pub use verdict::{Difference, Verdict};

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
    /// Why figures differ that have no note of their own: by a part of what they are or of their place.
    reasons: &'static [(&'static str, &'static str)],
    rows: fn(&Bench<'_>) -> Vec<Row>,
}

/// Every paper.
pub static ALL: [Paper; 8] = [
    autotm::PAPER,
    cachedarrays::PAPER,
    redl::PAPER,
    sentinel::PAPER,
    hm_keeper::PAPER,
    warpx_pm::PAPER,
    zero_offload::PAPER,
    dynn_offload::PAPER,
];

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
    /// Why they differ, as far as that is known.
    pub note: Option<&'static str>,
    /// Whether a model was made with this figure in view.
    pub fitted: bool,
}

impl Row {
    /// The same with a note.
    fn note(mut self, note: &'static str) -> Row {
        self.note = Some(note);
        self
    }

    /// The same as one that a model was made with in view.
    fn fitted(self) -> Row {
        Row { fitted: true, ..self }
    }
}

/// There is no paper of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no paper `{name}`; {}", match .nearest {
    Some(nearest) => format!("did you mean `{nearest}`?"),
    None => format!("there are {}", ALL.iter().map(|paper| paper.name).collect::<Vec<_>>().join(", ")),
})]
pub struct UnknownPaper {
    /// What was given.
    pub name: String,
    /// The name that is nearest to it, where one is near.
    pub nearest: Option<&'static str>,
}

/// The paper of this name, or what is wrong with the name.
pub fn named(name: &str) -> Result<&'static Paper, UnknownPaper> {
    ALL.iter().find(|paper| paper.name == name).ok_or_else(|| UnknownPaper {
        name: name.to_string(),
        nearest: spelling::nearest(name, ALL.iter().map(|paper| paper.name)),
    })
}

impl Paper {
    /// Simulates what it takes; `tick` is called after each simulation.
    pub fn reproduce(&self, options: Options, threads: usize, tick: &(dyn Fn() + Sync)) -> Vec<Row> {
        let mut rows = (self.rows)(&Bench::new(self.machine, options, threads, tick));
        for row in &mut rows {
            if row.note.is_none() && row.difference().is_some() {
                row.note = self.reason(row);
            }
        }
        rows
    }

    /// Why a figure differs, where that is known of all of its kind.
    fn reason(&self, row: &Row) -> Option<&'static str> {
        let of = |part: &str| row.what.contains(part) || row.place.contains(part);
        self.reasons.iter().find(|(part, _)| of(part)).map(|(_, why)| *why)
    }
}

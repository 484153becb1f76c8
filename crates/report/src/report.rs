//! Everything that is to be shown together.

use serde_json::{Value, json};

use crate::comparison::Comparison;
use crate::curve::Curve;
use crate::kept::Kept;
use crate::run::Run;
use crate::stalls::Stalls;

/// Everything that is to be shown together.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What it is called.
    pub title: String,
    /// Figures of runs side by side.
    pub comparison: Comparison,
    /// Curves beside those that the comparison contains.
    pub curves: Vec<Curve>,
    /// Runs with all that happened in them.
    pub runs: Vec<Run>,
    /// Programs that were kept on less fast memory than they have.
    pub kept: Vec<Kept>,
}

impl Report {
    /// A report of runs with their events, whose figures are compared.
    pub fn of_runs(title: impl Into<String>, runs: Vec<Run>) -> Report {
        let comparison = Comparison::new(runs.iter().map(Run::row).collect());
        Report { title: title.into(), comparison, runs, ..Report::default() }
    }

    /// A report of figures alone.
    pub fn of_rows(title: impl Into<String>, comparison: Comparison) -> Report {
        Report { title: title.into(), comparison, ..Report::default() }
    }

    /// Every curve: those given, and those that the comparison contains.
    pub fn all_curves(&self) -> Vec<Curve> {
        self.curves.iter().cloned().chain(Curve::all(&self.comparison)).collect()
    }

    /// The report for a terminal.
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        if self.comparison.rows.len() > 1 || (self.runs.is_empty() && !self.comparison.rows.is_empty()) {
            parts.push(self.comparison.text());
        }
        for curve in &self.curves {
            parts.push(format!("{}, {} on {}\n\n{}", curve.net, curve.system, curve.machine, curve.table()));
        }
        parts.extend(self.runs.iter().map(Run::text));
        parts.extend(self.kept.iter().map(|kept| format!("kept: {}\n  {}\n", kept.mechanism, kept.about())));
        parts.join("\n")
    }

    /// The report for programs.
    pub fn document(&self) -> Value {
        let runs = self.runs.iter().map(|run| {
            let mut value = serde_json::to_value(run.row()).unwrap_or_default();
            value["iterations"] = serde_json::to_value(&run.iterations).unwrap_or_default();
            value["stalls"] = serde_json::to_value(Stalls::counted(run)).unwrap_or_default();
            value["kernels"] = run.kernels.len().into();
            value["copies"] = run.copies.len().into();
            value["peak_bytes_by_tier"] = run.peak.iter().map(|bytes| bytes.0).collect::<Vec<_>>().into();
            value["notes"] = run.notes.clone().into();
            value
        });
        json!({
            "title": self.title,
            "comparison": self.comparison,
            "curves": self.all_curves(),
            "runs": runs.collect::<Vec<_>>(),
            "kept": self.kept,
        })
    }
}

//! The main job's table and page: systems beside each other on real memory.

use std::path::Path;

use serde_json::json;
use tiercel_report::{Comparison, Report, Row};
use tiercel_session::Watch;
use tiercel_session::trial::{Learnt, Played, SYSTEMS, Trial};

use crate::figures::counted;
use crate::files;

/// Runs everything, writes the page, and says what came of it.
pub fn run(trial: &Trial<'_>, html: &Path, json: bool, watch: &dyn Watch) -> anyhow::Result<String> {
    files::check(html)?;
    let played = trial.run(watch)?;
    let default = |p: &&Played| p.row.system == SYSTEMS[0] && p.row.error.is_none();
    let learnt = played.iter().find(default).and_then(|p| p.learnt.as_ref());
    let text = learnt.map_or(String::new(), |learnt| told(learnt, &played));
    let score = learnt.and_then(|learnt| learnt.score);
    let hash = learnt.map(|learnt| format!("{:016x}", learnt.hash));
    let last = learnt.and_then(|learnt| learnt.losses.last().copied());
    let iterations = learnt.map(|learnt| learnt.iterations);
    let rows: Vec<Row> = played.iter().map(|p| p.row.clone()).collect();
    let title = format!("{} trained on a little fast memory", trial.net);
    let mut report = Report::of_rows(title, Comparison::new(rows));
    report.runs = played.into_iter().filter_map(|p| p.run).collect();
    files::replace(html, report.html())?;
    if json {
        let document = json!({
            "rows": report.comparison.rows,
            // A trial whose losses differ ends with an error.
            "same_losses": true,
            "learnt_iterations": iterations,
            "last_loss": last,
            "accuracy": score.map(|score| score.accuracy()),
            "test_loss": score.map(|score| score.loss),
            "output_hash": hash,
            "html": html.display().to_string(),
        });
        return Ok(format!("{document:#}\n"));
    }
    let table = report.comparison.text();
    let same = "\nlosses are the same bits under every system\n";
    Ok(format!("{table}{same}{text}the page: {}\n", html.display()))
}

/// What the network has come to, in a line or two.
fn told(learnt: &Learnt, played: &[Played]) -> String {
    let Learnt { losses, iterations, .. } = learnt;
    let mut text = String::new();
    if let Some(last) = losses.last() {
        let times = played.iter().filter_map(|p| {
            let time = p.learnt.as_ref()?.time.seconds();
            Some(format!("{time:.1} s under {}", p.row.system))
        });
        let times = times.collect::<Vec<_>>().join(", ");
        text += &format!(
            "trained on for {}: loss {last:.4} after {iterations}, the same bits; {times}\n",
            counted(losses.len() as u64, "iteration"),
        );
    }
    text += &learnt.score.map_or(String::new(), |score| {
        format!(
            "accuracy {:.1} % ({} of {}) on data not learnt from\n",
            100.0 * score.accuracy(),
            score.right,
            score.guesses
        )
    });
    text
}

//! A report as one HTML file that needs nothing but a browser: styles, script and data are in it, and its own policy
//! forbids it to load anything else.
//!
//! Tables, curves and lists are written out here; the timeline and the memory maps, which have many marks and can be
//! zoomed into, are drawn by the script from data that is prepared here (`charts.rs`). Every chart says in an attribute
//! how many marks it has, so that a test in a browser can tell whether they have all been drawn.

mod charts;
mod comparison;
mod curves;
mod escape;
mod kept;
mod runs;
mod waiting;

use std::fmt::Write;

use escape::Text;

use crate::report::Report;

/// What every page begins with; its policy forbids it to load anything from anywhere.
const HEAD: &str = include_str!("head.html");
const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("page.js");

impl Report {
    /// The report as a page.
    pub fn html(&self) -> String {
        let mut page = String::new();
        // Writing to a string never fails.
        let _ = self.write_html(&mut page);
        page
    }

    fn write_html(&self, out: &mut String) -> std::fmt::Result {
        let title = if self.title.is_empty() { "Tiercel report" } else { &self.title };
        write!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n{HEAD}<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
            Text(title)
        )?;
        write!(out, "<header>\n<h1>{}</h1>\n", Text(title))?;
        self.about(out)?;
        out.push_str("</header>\n<main>\n");
        out.push_str(
            "<noscript><p class=\"note\">The timeline and the memory maps are drawn by a script in this page; \
             allow it to see them.</p></noscript>\n",
        );
        if self.comparison.rows.len() > 1 || (self.runs.is_empty() && !self.comparison.rows.is_empty()) {
            comparison::write(out, &self.comparison)?;
        }
        let curves = self.all_curves();
        if !curves.is_empty() {
            curves::write(out, &curves)?;
        }
        runs::write(out, &self.runs)?;
        kept::write(out, &self.kept)?;
        let nothing = self.runs.is_empty() && self.kept.is_empty() && curves.is_empty();
        if self.comparison.rows.is_empty() && nothing {
            out.push_str("<p class=\"note\">There is nothing to show.</p>\n");
        }
        write!(
            out,
            "</main>\n<footer>Made by Tiercel {}. This page is one file and loads nothing.</footer>\n\
             <div id=\"tip\" role=\"status\" hidden></div>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
            env!("CARGO_PKG_VERSION")
        )
    }

    /// What the figures are: measured or simulated, said before any of them.
    fn about(&self, out: &mut String) -> std::fmt::Result {
        let rows = &self.comparison.rows;
        let measured = rows.iter().filter(|row| row.measured).count();
        let emulated = rows.iter().any(|row| row.measured && !row.emulated.is_empty());
        let kind = match (measured, rows.len() - measured) {
            (0, 0) => return Ok(()),
            (0, _) => "All times are simulated.",
            (_, 0) if emulated => {
                "All times are measured. Some memory was slowed down to stand in for memory that this machine does not \
                 have."
            }
            (_, 0) => "All times are measured.",
            _ => "Some times are measured, some simulated; the tables say which.",
        };
        writeln!(out, "<p class=\"about\">{kind}</p>")
    }
}

/// The number of the colour and the shape of something that is one of many.
pub(crate) fn shade(position: usize) -> usize {
    position % 16
}

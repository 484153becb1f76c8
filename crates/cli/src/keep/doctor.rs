//! `tiercel keep --doctor`: what this machine offers for keeping pages.

use std::fmt::Write;

use serde_json::json;
use tiercel_pages::real::doctor::look;

/// What was found, for people or for programs.
pub(super) fn run(as_json: bool) -> String {
    let report = look();
    if as_json {
        let facilities: Vec<_> = report
            .facilities
            .iter()
            .map(|f| json!({"name": f.name, "usable": f.usable, "detail": f.detail, "missing": f.missing}))
            .collect();
        let document = json!({"kernel": report.kernel, "facilities": facilities, "plan": report.plan});
        return format!("{document:#}\n");
    }
    let mut page = String::new();
    let width = report.facilities.iter().map(|f| f.name.len()).max().unwrap_or(0);
    let _ = writeln!(page, "Linux {}\n", report.kernel);
    for facility in &report.facilities {
        let mark = if facility.usable { "yes" } else { "no " };
        let missing = facility.missing.map_or(String::new(), |what| format!("; missing: {what}"));
        let _ = writeln!(page, "  {mark}  {:<width$}  {}{missing}", facility.name, facility.detail);
    }
    let _ = writeln!(page, "\nwhat will be used");
    for line in &report.plan {
        let _ = writeln!(page, "  {line}");
    }
    page
}

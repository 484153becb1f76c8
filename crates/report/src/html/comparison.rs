//! The comparison: slowdowns at a glance, and the whole table.

use std::fmt::{self, Write};

use super::escape::Text;
use crate::columns;
use crate::comparison::{Comparison, Row};

/// Writes the section.
pub(super) fn write(out: &mut String, comparison: &Comparison) -> fmt::Result {
    out.push_str("<section id=\"comparison\">\n<h2>Comparison</h2>\n");
    let caption = columns::caption(comparison);
    if !caption.is_empty() {
        writeln!(out, "<p class=\"sub\">{}</p>", Text(&caption))?;
    }
    matrices(out, comparison)?;
    table(out, comparison)?;
    if let Some(doubts) = comparison.doubts() {
        writeln!(out, "<p class=\"doubts\">{}</p>", Text(&doubts))?;
    }
    out.push_str("</section>\n");
    Ok(())
}

/// A matrix of slowdowns for each machine and share of fast memory, networks by systems.
fn matrices(out: &mut String, comparison: &Comparison) -> fmt::Result {
    let systems = comparison.distinct(|row| row.system.clone());
    let nets = comparison.distinct(|row| (row.net.clone(), row.batch));
    let known = comparison.rows.iter().filter(|row| row.slowdown.is_some()).count();
    if systems.len() < 3 || known < 4 || (nets.len() < 2 && shares(comparison).len() < 2) {
        return Ok(());
    }
    out.push_str(
        "<p>How much slower than with everything in fast memory: 1.00× is as fast. Fast memory is a share of the most \
         bytes alive at once.</p>\n<div class=\"matrices\">\n",
    );
    let machines = comparison.distinct(|row| (row.machine.clone(), row.measured));
    for machine in &machines {
        for share in shares(comparison) {
            let rows: Vec<&Row> = comparison
                .rows
                .iter()
                .filter(|row| (&row.machine, row.measured) == (&machine.0, machine.1))
                .filter(|row| row.slowdown.is_some() && of_share(row, share))
                .collect();
            if !rows.is_empty() {
                let on = if machines.len() > 1 { format!(", {}", machine.0) } else { String::new() };
                matrix(out, &on, share, &rows, &systems, &nets)?;
            }
        }
    }
    out.push_str("</div>\n");
    Ok(())
}

/// The shares of fast memory that were tried, in tenths of a percent, least first.
fn shares(comparison: &Comparison) -> Vec<i64> {
    let tried = comparison.rows.iter().filter(|row| row.system != "fast-only");
    let mut shares: Vec<i64> = tried.filter_map(|row| row.fast_fraction.map(tenths)).collect();
    shares.sort_unstable();
    shares.dedup();
    shares
}

fn tenths(share: f64) -> i64 {
    (share * 1000.0).round() as i64
}

/// Fast-only has all the memory that it wants and belongs to every share.
fn of_share(row: &Row, share: i64) -> bool {
    row.system == "fast-only" || row.fast_fraction.map(tenths) == Some(share)
}

fn matrix(
    out: &mut String,
    on: &str,
    share: i64,
    rows: &[&Row],
    systems: &[String],
    nets: &[(String, Option<u64>)],
) -> fmt::Result {
    let percent = columns::percent(share as f64 / 1000.0);
    let here = |system: &&String| *system != "fast-only" && rows.iter().any(|row| row.system == **system);
    let shown: Vec<&String> = systems.iter().filter(here).collect();
    write!(
        out,
        "<figure class=\"matrix\"><figcaption>{percent} fast memory{}</figcaption>\n<div class=\"scroll\"><table>\
         <thead><tr><th></th>",
        Text(on)
    )?;
    for system in &shown {
        write!(out, "<th scope=\"col\"><span>{}</span></th>", Text(system))?;
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (net, batch) in nets {
        let of_net: Vec<&&Row> = rows.iter().filter(|row| (&row.net, row.batch) == (net, *batch)).collect();
        if of_net.is_empty() {
            continue;
        }
        write!(out, "<tr><th scope=\"row\">{}</th>", Text(net))?;
        let others = of_net.iter().filter(|row| row.system != "fast-only");
        let best = others.filter_map(|row| row.slowdown).fold(f64::INFINITY, f64::min);
        for system in &shown {
            match of_net.iter().find(|row| row.system == **system).and_then(|row| row.slowdown) {
                Some(slowdown) => {
                    let best = if slowdown <= best { " best" } else { "" };
                    let text = columns::factor(slowdown);
                    write!(out, "<td class=\"h{}{best}\">{text}</td>", heat(slowdown))?;
                }
                None => out.push_str("<td class=\"none\">–</td>"),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div></figure>\n");
    Ok(())
}

/// How warm a cell is: 0 up to two percent slower, 7 from five times slower on.
fn heat(slowdown: f64) -> usize {
    [1.02, 1.05, 1.1, 1.25, 1.6, 2.5, 5.0].iter().take_while(|limit| slowdown > **limit).count()
}

/// The whole table; the script lets people sort and filter it.
fn table(out: &mut String, comparison: &Comparison) -> fmt::Result {
    let columns = columns::of(comparison);
    let count = comparison.rows.len();
    if count > 12 {
        out.push_str(
            "<p class=\"tools\"><label>Show rows with <input type=\"search\" class=\"filter\" \
             placeholder=\"a network or a system\"></label> <span class=\"count\"></span></p>\n",
        );
    }
    write!(out, "<div class=\"scroll tall\"><table class=\"rows\" data-marks=\"{count}\">\n<thead><tr>")?;
    for column in &columns {
        let class = if column.numeric { " class=\"n\"" } else { "" };
        write!(
            out,
            "<th scope=\"col\"{class} data-tip=\"{}\"><button type=\"button\">{}</button></th>",
            Text(column.meaning),
            Text(column.title)
        )?;
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &comparison.rows {
        out.push_str("<tr>");
        for column in &columns {
            let text = (column.text)(row).unwrap_or_default();
            match (column.numeric, (column.value)(row).filter(|value| value.is_finite())) {
                (true, Some(value)) => {
                    write!(out, "<td class=\"n\" data-v=\"{value}\">{}</td>", Text(&text))?;
                }
                (true, None) => write!(out, "<td class=\"n\">{}</td>", Text(&text))?,
                (false, _) => write!(out, "<td>{}</td>", Text(&text))?,
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    Ok(())
}

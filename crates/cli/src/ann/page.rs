//! A page with curves: recall against queries a second, and slow reads a query.

use std::fmt::Write;

use tiercel_ann::Point;

const COLOURS: [&str; 4] = ["#1f6feb", "#d1661b", "#2a9d4b", "#8250df"];

/// The size of the drawing, and the margin around it.
const SIZE: (f64, f64) = (720.0, 400.0);
const MARGIN: f64 = 60.0;

/// The page.
pub(super) fn page(curves: &[(String, Vec<Point>)], k: usize, queries: f64) -> String {
    let mut html = String::from(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>tiercel ann bench</title><style>body{font:15px \
         system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}td,th{padding:.2em \
         .8em;text-align:right}tr:nth-child(even){background:#8881}svg{max-width:100%}</style>",
    );
    let recall = |p: &Point| p.recall;
    // Writing to a string never fails.
    let _ = write!(html, "<h1>Recall@{k} against queries a second</h1>");
    html.push_str(&chart(curves, recall, |p| p.qps, "queries a second"));
    html.push_str("<h2>Slow reads a query</h2>");
    html.push_str(&chart(
        curves,
        recall,
        |p| (p.moved.reads as f64 / queries).max(0.1),
        "slow reads a query",
    ));
    for (name, points) in curves {
        let _ = write!(
            html,
            "<h2>{name}</h2><table><tr><th>ef<th>read<th>recall<th>queries/s<th>p50 µs<th>p99 µs<th>slow reads<th>bytes</tr>"
        );
        for p in points {
            let rerank = p.rerank.map_or("-".to_string(), |rerank| rerank.to_string());
            let _ = write!(
                html,
                "<tr><td>{}<td>{rerank}<td>{:.4}<td>{:.0}<td>{:.0}<td>{:.0}<td>{:.1}<td>{:.0}</tr>",
                p.ef,
                p.recall,
                p.qps,
                p.p50 * 1e6,
                p.p99 * 1e6,
                p.moved.reads as f64 / queries,
                p.moved.bytes as f64 / queries
            );
        }
        html.push_str("</table>");
    }
    html
}

fn chart(
    curves: &[(String, Vec<Point>)],
    across: impl Fn(&Point) -> f64,
    up: impl Fn(&Point) -> f64,
    what: &str,
) -> String {
    let all = || curves.iter().flat_map(|(_, points)| points);
    let left = all().map(&across).fold(1.0, f64::min).max(0.5);
    let (low, high) = all().map(&up).fold((f64::MAX, 0.1f64), |(l, h), y| (l.min(y), h.max(y)));
    let (low, high) =
        (low.max(0.1).log10().floor(), high.log10().ceil().max(low.max(0.1).log10().floor() + 1.0));
    let x = |value: f64| MARGIN + (value - left) / (1.0 - left).max(1e-6) * (SIZE.0 - 2.0 * MARGIN);
    let y = |value: f64| SIZE.1 - MARGIN - (value.log10() - low) / (high - low) * (SIZE.1 - 2.0 * MARGIN);
    let mut svg =
        format!("<svg viewBox=\"0 0 {} {}\" font-size=\"12\" fill=\"currentColor\">", SIZE.0, SIZE.1);
    // Writing to a string never fails.
    for power in low as i32..=high as i32 {
        let at = y(10f64.powi(power));
        let _ = write!(
            svg,
            "<line x1=\"{MARGIN}\" x2=\"{}\" y1=\"{at}\" y2=\"{at}\" stroke=\"#8884\"/><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            SIZE.0 - MARGIN,
            MARGIN - 6.0,
            at + 4.0,
            10f64.powi(power)
        );
    }
    for step in 0..=5 {
        let value = left + (1.0 - left) * f64::from(step) / 5.0;
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{value:.3}</text>",
            x(value),
            SIZE.1 - MARGIN + 18.0
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{}\" y=\"{}\">recall</text><text x=\"{MARGIN}\" y=\"20\">{what}</text>",
        SIZE.0 - MARGIN + 4.0,
        SIZE.1 - MARGIN + 4.0
    );
    for (at, (name, points)) in curves.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let line: Vec<String> = points
            .iter()
            .filter(|p| across(p) >= left)
            .map(|p| format!("{:.1},{:.1}", x(across(p)), y(up(p))))
            .collect();
        let _ = write!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/><text x=\"{}\" y=\"{}\" fill=\"{colour}\">{name}</text>",
            line.join(" "),
            MARGIN + 90.0,
            20.0 + 16.0 * at as f64
        );
    }
    svg.push_str("</svg>");
    svg
}

//! A page with curves: recall against queries a second, and slow reads a query.

use std::fmt::Write;

use tiercel_ann::Point;

const COLOURS: [&str; 4] = ["#1f6feb", "#d1661b", "#2a9d4b", "#8250df"];

/// The size of the drawing, and the margin around it.
const SIZE: (f64, f64) = (720.0, 400.0);
const MARGIN: f64 = 60.0;

/// Recalls that lines are drawn for.
const RECALLS: [f64; 7] = [0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999];

/// Beyond this recall all is one.
const WHOLE: f64 = 0.9995;

/// The page; `said` are the sentences at its beginning.
pub(super) fn page(curves: &[(String, Vec<Point>)], k: usize, queries: f64, said: &[String]) -> String {
    let mut html = String::from(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>tiercel ann bench</title><style>body{font:15px \
         system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}td,th{padding:.2em \
         .8em;text-align:right}tr:nth-child(even){background:#8881}svg{max-width:100%}</style>",
    );
    // Writing to a string never fails.
    let _ = write!(html, "<h1>Recall@{k} against queries a second</h1>");
    said.iter().for_each(|sentence| {
        let _ = write!(html, "<p>{sentence}</p>");
    });
    html.push_str(&chart(curves, |p| p.qps, "queries a second"));
    let read: Vec<(String, Vec<Point>)> =
        curves.iter().filter(|(_, points)| points.iter().any(|p| p.moved.reads > 0)).cloned().collect();
    if !read.is_empty() {
        html.push_str("<h2>Slow reads a query</h2>");
        html.push_str(&chart(&read, |p| (p.moved.reads as f64 / queries).max(0.1), "slow reads a query"));
    }
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

/// Recall to the right, by how little is missed, and something else upwards, both in powers of ten.
fn chart(curves: &[(String, Vec<Point>)], up: impl Fn(&Point) -> f64, what: &str) -> String {
    let all = || curves.iter().flat_map(|(_, points)| points);
    let along = |recall: f64| -(1.0 - recall.min(WHOLE)).log10();
    let left = all().map(|p| along(p.recall)).fold(along(0.95), f64::min).max(along(RECALLS[0]));
    let right = along(WHOLE);
    let (low, high) = all().map(&up).fold((f64::MAX, 0.1f64), |(l, h), y| (l.min(y), h.max(y)));
    let low = low.max(0.1).log10().floor();
    let high = high.log10().ceil().max(low + 1.0);
    let x = |recall: f64| MARGIN + (along(recall) - left) / (right - left) * (SIZE.0 - 2.0 * MARGIN);
    let y = |value: f64| SIZE.1 - MARGIN - (value.log10() - low) / (high - low) * (SIZE.1 - 2.0 * MARGIN);
    let (bottom, end) = (SIZE.1 - MARGIN, SIZE.0 - MARGIN);
    let mut svg =
        format!("<svg viewBox=\"0 0 {} {}\" font-size=\"12\" fill=\"currentColor\">", SIZE.0, SIZE.1);
    // Writing to a string never fails.
    for power in low as i32..=high as i32 {
        let (value, at) = (10f64.powi(power), y(10f64.powi(power)));
        let _ = write!(
            svg,
            "<line x1=\"{MARGIN}\" x2=\"{end}\" y1=\"{at}\" y2=\"{at}\" stroke=\"#8884\"/><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{value}</text>",
            MARGIN - 6.0,
            at + 4.0,
        );
    }
    for recall in RECALLS.into_iter().filter(|recall| along(*recall) >= left) {
        let at = x(recall);
        let _ = write!(
            svg,
            "<line x1=\"{at}\" x2=\"{at}\" y1=\"{MARGIN}\" y2=\"{bottom}\" stroke=\"#8884\"/><text x=\"{at}\" y=\"{}\" text-anchor=\"middle\">{recall}</text>",
            bottom + 18.0,
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{}\" y=\"{}\">recall</text><text x=\"{MARGIN}\" y=\"20\">{what}</text>",
        end + 4.0,
        bottom + 4.0
    );
    for (at, (name, points)) in curves.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let line: Vec<String> = points
            .iter()
            .filter(|p| along(p.recall) >= left)
            .map(|p| format!("{:.1},{:.1}", x(p.recall), y(up(p))))
            .collect();
        let dots: String = line
            .iter()
            .filter_map(|dot| dot.split_once(','))
            .map(|(x, y)| format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>"))
            .collect();
        let _ = write!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>{dots}<text x=\"{}\" y=\"{}\" fill=\"{colour}\">{name}</text>",
            line.join(" "),
            MARGIN + 130.0,
            20.0 + 16.0 * at as f64
        );
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_how_its_figures_came_to_be_and_draws_within_its_frame() {
        let point = |recall: f64, reads| Point {
            ef: 10,
            rerank: None,
            recall,
            qps: 1e4 * (1.01 - recall),
            busy_qps: 1e4 * (1.01 - recall),
            p50: 1e-4,
            p99: 2e-4,
            moved: tiercel_ann::Moved { reads, ..Default::default() },
        };
        let slow = [0.3, 0.8, 0.95, 1.0].map(|recall| point(recall, 500));
        let fast = [0.9, 0.99].map(|recall| point(recall, 0));
        let curves = [("in a file".to_string(), slow.to_vec()), ("in memory".to_string(), fast.to_vec())];
        let page = page(&curves, 10, 100.0, &["Measured.".to_string()]);
        assert!(page.contains("<p>Measured.</p>") && page.contains("Slow reads a query"));
        assert_eq!(page.matches("<svg").count(), 2);
        for part in page.split("<circle cx=\"").skip(1) {
            let mut numbers = part.split('"').step_by(2).map(|n| n.parse::<f64>().unwrap_or(-1.0));
            let (x, y) = (numbers.next().unwrap(), numbers.next().unwrap());
            assert!(
                (MARGIN..=SIZE.0 - MARGIN).contains(&x) && (MARGIN..=SIZE.1 - MARGIN).contains(&y),
                "{x}, {y}"
            );
        }
        let alone = [("in memory".to_string(), fast.to_vec())];
        assert!(!super::page(&alone, 10, 100.0, &[]).contains("Slow reads"));
    }
}

//! The report page of a run: what it was, its energies, fields and phase space as pictures, and what each iteration took.

use std::fmt::Write;

use crate::compare::{Comparison, Entry};
use crate::picture::{Picture, escaped};

/// An iteration, for the timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Its number.
    pub iteration: u64,
    /// How long it took, in seconds, and how much of that kernels waited for copies.
    pub took: f64,
    /// How much of it kernels waited for copies.
    pub stalled: f64,
    /// Bytes that were fetched.
    pub fetched: u64,
    /// Bytes that were sent back.
    pub evicted: u64,
    /// The energies of the electric and the magnetic field and of all particles, where they were measured.
    pub energies: Option<[f64; 3]>,
}

/// A chart of some series over iterations, each with its name and colour.
fn chart(title: &str, points: &[u64], series: &[(&str, &str, Vec<f64>)]) -> String {
    let (width, height) = (900.0, 200.0);
    let most = series.iter().flat_map(|(.., values)| values).fold(0.0f64, |most, value| most.max(*value));
    let (first, last) = (points.first().copied().unwrap_or(0), points.last().copied().unwrap_or(1));
    let mut out = format!("<h3>{}</h3><p>", escaped(title));
    for (name, colour, _) in series {
        let _ = write!(out, "<span style=\"color:{colour}\">■</span> {} &nbsp;", escaped(name));
    }
    let _ = write!(out, "largest: {most:.4e}</p><svg viewBox=\"0 0 {width} {height}\" role=\"img\">");
    for (_, colour, values) in series {
        let _ = write!(out, "<polyline fill=\"none\" stroke=\"{colour}\" points=\"");
        for (point, value) in points.iter().zip(values) {
            let x = (point - first) as f64 / (last - first).max(1) as f64 * width;
            let y = height - value / most.max(f64::MIN_POSITIVE) * (height - 4.0);
            let _ = write!(out, "{x:.1},{y:.1} ");
        }
        out.push_str("\"/>");
    }
    let _ = write!(out, "</svg><p class=\"axes\">iterations {first} to {last}</p>");
    out
}

/// How every page begins: its title, and lines of text.
fn head(title: &str, summary: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{0}</title><style>body{{font:15px system-ui,sans-serif;\
         max-width:1000px;margin:2em auto;padding:0 1em}}pre{{background:#f4f4f4;padding:1em;overflow:auto}}figure{{margin:1.5em 0}}\
         img{{width:100%;image-rendering:pixelated;border:1px solid #ccc}}svg{{width:100%;border:1px solid #ccc}}.axes{{color:#666;\
         font-size:13px}}</style><h1>{0}</h1><pre>{1}</pre>",
        escaped(title),
        escaped(summary)
    )
}

/// The page of a comparison: the seconds of an iteration as bars, the best round and the median, and a line at what is possible.
pub fn contest(title: &str, summary: &str, found: &Comparison) -> String {
    let mut html = head(title, summary);
    let ran: Vec<&Entry> = found.entries.iter().filter_map(|(_, entry)| entry.as_ref().ok()).collect();
    let most = ran.iter().map(|entry| entry.median()).fold(found.roofline.floor(), f64::max).max(1e-12);
    let (left, width, row) = (120.0, 760.0, 34.0);
    let height = row * ran.len() as f64 + 8.0;
    let _ = write!(
        html,
        "<h2>Time of an iteration</h2><p>bars: the best round; pale: the median; the line: what is possible, {:.4} s, bound by {}</p>\
         <svg viewBox=\"0 0 900 {height}\" role=\"img\">",
        found.roofline.floor(),
        escaped(found.roofline.bound())
    );
    for (at, entry) in ran.iter().enumerate() {
        let y = row * at as f64 + 6.0;
        let long = |seconds: f64| seconds / most * width * 0.88;
        let _ = write!(
            html,
            "<text x=\"4\" y=\"{:.1}\" font-size=\"15\">{}</text><rect x=\"{left}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"22\" \
             fill=\"#c9dcec\"/><rect x=\"{left}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"22\" fill=\"#1f6fb5\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"13\">{:.4} s</text>",
            y + 16.0,
            escaped(&entry.system.to_string()),
            long(entry.median()),
            long(entry.best()),
            left + long(entry.median()) + 6.0,
            y + 16.0,
            entry.best()
        );
    }
    let line = left + found.roofline.floor() / most * width * 0.88;
    let _ = writeln!(
        html,
        "<line x1=\"{line:.1}\" x2=\"{line:.1}\" y1=\"0\" y2=\"{height}\" stroke=\"#c0392b\" stroke-width=\"2\"/></svg></html>"
    );
    html
}

/// The page, with lines of text as the run's own summary.
pub fn page(title: &str, summary: &str, pictures: &[Picture], history: &[Moment]) -> String {
    let mut html = head(title, summary);
    html.push_str("<h2>At the end</h2>");
    pictures.iter().for_each(|picture| html.push_str(&picture.figure()));
    html.push_str("<h2>While it ran</h2>");
    let measured: Vec<&Moment> = history.iter().filter(|moment| moment.energies.is_some()).collect();
    if measured.len() > 1 {
        let points: Vec<u64> = measured.iter().map(|moment| moment.iteration).collect();
        let of = |at: usize| measured.iter().map(|m| m.energies.unwrap_or_default()[at]).collect();
        let series = [
            ("electric field", "#1f6fb5", of(0)),
            ("magnetic field", "#2a9d5c", of(1)),
            ("particles", "#c0392b", of(2)),
        ];
        html.push_str(&chart("Energy", &points, &series));
    }
    let points: Vec<u64> = history.iter().map(|moment| moment.iteration).collect();
    let of = |which: fn(&Moment) -> f64| history.iter().map(which).collect::<Vec<f64>>();
    let time = [
        ("iteration", "#555555", of(|m| m.took)),
        ("of it, kernels waited for copies", "#c0392b", of(|m| m.stalled)),
    ];
    html.push_str(&chart("Time of iterations, in seconds", &points, &time));
    let copies = [
        ("fetched", "#1f6fb5", of(|m| m.fetched as f64)),
        ("sent back", "#e67e22", of(|m| m.evicted as f64)),
    ];
    if history.iter().any(|moment| moment.fetched + moment.evicted > 0) {
        html.push_str(&chart("Bytes copied in an iteration", &points, &copies));
    }
    html.push_str("</html>\n");
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_what_was_measured() {
        let moment =
            |iteration, energies| Moment { iteration, took: 0.1, fetched: 5, energies, ..Moment::default() };
        let history = [moment(0, Some([1.0, 0.0, 2.0])), moment(1, None), moment(2, Some([0.5, 0.1, 2.4]))];
        let page = page("a <run>", "lines", &[], &history);
        assert!(page.contains("a &lt;run&gt;") && page.contains("Energy") && page.contains("Bytes copied"));
        assert_eq!(page.matches("<svg").count(), 3);
    }
}

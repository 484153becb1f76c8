//! Programs that were kept: maps of their address space over time. The marks of a map are put together into a path for each
//! shade, so that a page with thousands of them stays small and needs no script.

use std::fmt::{self, Write};

use super::escape::Text;
use crate::kept::{Kept, Look};

/// The most columns of a map.
const COLUMNS: usize = 240;

/// How many shades there are beside none (`style.css`).
const SHADES: usize = 8;

/// The size of a map in its own units, and what its axes take of it on the left and below.
const SIZE: (f64, f64) = (900.0, 260.0);
const LEFT: f64 = 64.0;
const BELOW: f64 = 24.0;

/// Writes the section of all that were kept.
pub(super) fn write(out: &mut String, list: &[Kept]) -> fmt::Result {
    for kept in list {
        write!(out, "<section class=\"kept\">\n<h2>Kept: {}</h2>\n", Text(&kept.mechanism))?;
        writeln!(out, "<p class=\"about\">{}</p>", Text(&kept.about()))?;
        if kept.looks.is_empty() {
            out.push_str("<p class=\"note\">It ended before its memory was looked at.</p>\n");
        } else {
            let columns = kept.columns(COLUMNS);
            let fast = |part: &[u64; 3]| part[0].saturating_sub(part[1]) as f64;
            map(out, "In fast memory: the darker, the more of it", &columns, kept, 1.0, &fast)?;
            let hot = |part: &[u64; 3]| part[2] as f64;
            let share = |part: &[u64; 3]| hot(part) / part[0].max(1) as f64;
            let most = columns.iter().flat_map(|look| &look.parts).map(share).fold(0.0, f64::max);
            let title = "Hot: came back lately, or is accessed most; the darker, the more of it";
            map(out, title, &columns, kept, if most > 0.0 { most } else { 1.0 }, &hot)?;
        }
        out.push_str("</section>\n");
    }
    Ok(())
}

fn map(
    out: &mut String,
    title: &str,
    columns: &[Look],
    kept: &Kept,
    most: f64,
    value: &dyn Fn(&[u64; 3]) -> f64,
) -> fmt::Result {
    let rows = columns.iter().map(|look| look.parts.len()).max().unwrap_or(1).max(1);
    let (width, height) = ((SIZE.0 - LEFT) / columns.len() as f64, (SIZE.1 - BELOW) / rows as f64);
    let mut paths = vec![String::new(); SHADES + 1];
    let mut marks = 0;
    for (x, look) in columns.iter().enumerate() {
        for (y, part) in look.parts.iter().enumerate().filter(|(_, part)| part[0] > 0) {
            let share = value(part) / part[0] as f64 / most;
            let shade = (share * SHADES as f64).ceil().clamp(0.0, SHADES as f64) as usize;
            marks += 1;
            // Low addresses are at the bottom.
            let top = SIZE.1 - BELOW - (y + 1) as f64 * height;
            let left = LEFT + x as f64 * width;
            write!(paths[shade], "M{left:.1} {top:.1}h{width:.2}v{height:.2}h-{width:.2}z")?;
        }
    }
    write!(
        out,
        "<figure><figcaption>{0}</figcaption>\n<svg class=\"heat\" viewBox=\"0 0 {1} {2}\" role=\"img\" \
         aria-label=\"{0}\" data-marks=\"{marks}\">\n",
        Text(title),
        SIZE.0,
        SIZE.1
    )?;
    for (shade, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
        writeln!(out, "<path class=\"h{shade}\" d=\"{path}\"/>")?;
    }
    let base = SIZE.1 - 6.0;
    write!(
        out,
        "<text x=\"{0}\" y=\"{1}\" text-anchor=\"end\">low</text>\n<text x=\"{0}\" y=\"12\" \
         text-anchor=\"end\">high</text>\n<text x=\"{LEFT}\" y=\"{base}\">0 s</text>\n\
         <text x=\"{2}\" y=\"{base}\" text-anchor=\"end\">{3:.1} s</text>\n</svg></figure>\n",
        LEFT - 8.0,
        SIZE.1 - BELOW,
        SIZE.0,
        kept.end.0 as f64 / 1e9
    )
}

#[cfg(test)]
mod tests {
    use tiercel_core::Nanos;

    use crate::Report;
    use crate::kept::{Kept, Look};

    #[test]
    fn a_map_has_a_mark_for_every_part_at_every_time() {
        let look =
            |at: u64| Look { ns: Nanos(at * 1_000_000_000), parts: vec![[8, 4, at], [0, 0, 0], [8, 8, 0]] };
        let kept =
            Kept { mechanism: "a <group>".into(), looks: (0..1000).map(look).collect(), ..Kept::default() };
        let report = Report { kept: vec![kept, Kept::default()], ..Report::default() };
        let page = report.html();
        assert!(page.contains("Kept: a &lt;group&gt;"), "names are written as text");
        // 1000 looks in 200 columns, of which each has two parts with memory, on two maps.
        assert_eq!(page.matches("data-marks=\"400\"").count(), 2);
        assert_eq!(page.matches("h4.18v").count(), 800);
        let from = page.find("<section").expect("a section");
        let section = &page[from..page.find("<footer").expect("an end")];
        assert!(!section.contains("NaN") && !section.contains("inf"), "{section}");
        assert!(page.contains("ended before"), "a program that was never looked at");
        assert!(page.len() < 200_000, "{}", page.len());
    }
}

//! Iteration time against fast memory, with what the memory costs along the top: one chart for each network and machine.

use std::fmt::{self, Write};

use tiercel_core::{Bytes, Nanos};

use super::escape::Text;
use super::shade;
use crate::columns::{factor, percent};
use crate::curve::{Curve, Point};
use crate::scale::{byte_ticks, ticks};
use crate::table::number;

/// The size of a chart in its own units; the page scales it.
const SIZE: (f64, f64) = (440.0, 300.0);
/// Where the plot is in it: left, top, right, bottom.
const PLOT: (f64, f64, f64, f64) = (52.0, 44.0, 428.0, 254.0);

/// What the curves of one chart have in common: network, batch, machine, and whether times were measured.
type Work<'c> = (&'c str, Option<u64>, &'c str, bool);

/// Writes the section.
pub(super) fn write(out: &mut String, curves: &[Curve]) -> fmt::Result {
    let mut systems: Vec<&str> = Vec::new();
    let mut charts: Vec<(Work<'_>, Vec<&Curve>)> = Vec::new();
    for curve in curves {
        if !systems.contains(&curve.system.as_str()) {
            systems.push(&curve.system);
        }
        let key = (curve.net.as_str(), curve.batch, curve.machine.as_str(), curve.measured);
        match charts.iter_mut().find(|(known, _)| *known == key) {
            Some((_, list)) => list.push(curve),
            None => charts.push((key, vec![curve])),
        }
    }
    out.push_str("<section id=\"curves\">\n<h2>Iteration time against fast memory</h2>\n");
    let priced = curves.iter().any(|curve| curve.price.is_some());
    out.push_str("<p>The dashed line is the time with everything in fast memory.");
    if priced {
        out.push_str(" Along the top: what the memory costs, with the rest of the peak on the slowest tier.");
    }
    out.push_str("</p>\n<ul class=\"legend systems\">");
    for (at, system) in systems.iter().enumerate() {
        write!(
            out,
            "<li><svg viewBox=\"-12 -7 24 14\" width=\"24\" height=\"14\" aria-hidden=\"true\"><path class=\"line s{0}\" \
             d=\"M-12 0H12\"/>{1}</svg>{2}</li>",
            shade(at),
            marker(at, 0.0, 0.0, ""),
            Text(system)
        )?;
    }
    out.push_str("</ul>\n<div class=\"charts\">\n");
    for ((net, batch, machine, measured), list) in &charts {
        let batch = batch.map_or(String::new(), |batch| format!(", batch {batch}"));
        let kind = if *measured { "measured" } else { "simulated" };
        let on = if machine.is_empty() { String::new() } else { format!(" on {machine}") };
        let title = format!("{net}{batch}{on}, {kind}");
        chart(out, &title, list, &systems)?;
    }
    out.push_str("</div>\n</section>\n");
    Ok(())
}

/// Where values lie on a chart.
struct Axes {
    x: (f64, f64),
    y: (f64, f64),
}

impl Axes {
    fn of(curves: &[&Curve]) -> Axes {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let fast = points().map(|p| p.fast_bytes.0 as f64);
        let times = points().map(|p| p.iteration_ns as f64);
        let times = times.chain(curves.iter().filter_map(|c| c.fast_only_ns).map(|ns| ns as f64));
        let (low, high) =
            times.fold((f64::INFINITY, 0.0f64), |(low, high), time| (low.min(time), high.max(time)));
        let right = fast.fold(1.0, f64::max);
        let (low, high) = if low.is_finite() { (low, high.max(1.0)) } else { (0.0, 1.0) };
        // Room below the least and above the most; from zero on where that costs little.
        let bottom =
            if low < 0.4 * high { 0.0 } else { (low - 0.15 * (high - low).max(0.02 * high)).max(0.0) };
        Axes { x: (0.0, right * 1.04), y: (bottom, high + 0.08 * (high - bottom)) }
    }

    fn across(&self, fast: f64) -> f64 {
        PLOT.0 + (fast - self.x.0) / (self.x.1 - self.x.0) * (PLOT.2 - PLOT.0)
    }

    fn up(&self, time: f64) -> f64 {
        PLOT.3 - (time - self.y.0) / (self.y.1 - self.y.0) * (PLOT.3 - PLOT.1)
    }
}

fn chart(out: &mut String, title: &str, curves: &[&Curve], systems: &[&str]) -> fmt::Result {
    let axes = Axes::of(curves);
    let marks: usize = curves.iter().map(|curve| curve.points.len()).sum();
    write!(
        out,
        "<figure class=\"curve\"><figcaption>{0}</figcaption>\n<svg viewBox=\"0 0 {1} {2}\" role=\"img\" \
         aria-label=\"iteration time against fast memory: {0}\" data-marks=\"{marks}\">\n",
        Text(title),
        SIZE.0,
        SIZE.1
    )?;
    grid(out, &axes)?;
    if let Some(price) = curves.iter().find_map(|curve| curve.price) {
        price_axis(out, &axes, &price)?;
    }
    if let Some(time) = curves.iter().find_map(|curve| curve.fast_only_ns) {
        let y = axes.up(time as f64);
        writeln!(
            out,
            "<path class=\"base\" d=\"M{} {y:.1}H{}\" data-tip=\"everything in fast memory: {}\"/>",
            PLOT.0,
            PLOT.2,
            Nanos(time)
        )?;
    }
    for curve in curves {
        line(out, &axes, curve, systems.iter().position(|s| *s == curve.system).unwrap_or(0))?;
    }
    out.push_str("</svg></figure>\n");
    Ok(())
}

fn line(out: &mut String, axes: &Axes, curve: &Curve, at: usize) -> fmt::Result {
    write!(out, "<g class=\"curve-line\"><polyline class=\"line s{}\" points=\"", shade(at))?;
    for point in &curve.points {
        let (x, y) = (axes.across(point.fast_bytes.0 as f64), axes.up(point.iteration_ns as f64));
        write!(out, "{x:.1},{y:.1} ")?;
    }
    out.push_str("\"/>\n");
    for point in &curve.points {
        let (x, y) = (axes.across(point.fast_bytes.0 as f64), axes.up(point.iteration_ns as f64));
        writeln!(out, "{}", marker(at, x, y, &tip(curve, point)))?;
    }
    out.push_str("</g>\n");
    Ok(())
}

/// What hovering over a point says.
fn tip(curve: &Curve, point: &Point) -> String {
    let share =
        point.fast_fraction.map_or(String::new(), |share| format!(" ({} of the peak)", percent(share)));
    let mut tip = format!(
        "{}\n{} with {} fast memory{share}",
        curve.system,
        Nanos(point.iteration_ns),
        point.fast_bytes
    );
    if let Some(fast) = curve.fast_only_ns.filter(|ns| *ns > 0) {
        let _ = write!(tip, "\n{} of fast-only", factor(point.iteration_ns as f64 / fast as f64));
    }
    if let Some(price) = curve.price.and_then(|price| price.at(point.fast_bytes)) {
        let _ = write!(tip, "\nmemory for ${}", number(price));
    }
    if let Some(bound) = point.bound_ns {
        let _ = write!(tip, "\nproven: not below {}", Nanos(bound));
    }
    tip
}

/// A point of the system at a position: shapes tell apart what colours may not.
fn marker(at: usize, x: f64, y: f64, tip: &str) -> String {
    let shape = match at % 4 {
        0 => "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
        1 => "m-3.6-3.6h7.2v7.2h-7.2z",
        2 => "m0-4.8l4.6 8h-9.2z",
        _ => "m0-5l5 5l-5 5l-5-5z",
    };
    let tip =
        if tip.is_empty() { String::new() } else { format!(" data-tip=\"{}\" tabindex=\"0\"", Text(tip)) };
    format!("<path class=\"mark s{}\" d=\"M{x:.1} {y:.1}{shape}\"{tip}/>", shade(at))
}

/// The unit for times up to this one, and how many nanoseconds it has.
fn time_unit(most: f64) -> (&'static str, f64) {
    match most {
        t if t >= 2e9 => ("s", 1e9),
        t if t >= 2e6 => ("ms", 1e6),
        t if t >= 2e3 => ("µs", 1e3),
        _ => ("ns", 1.0),
    }
}

/// The unit for sizes up to this one, and how many bytes it has.
fn size_unit(most: f64) -> (&'static str, f64) {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let found = units.into_iter().find(|(_, shift)| most >= 2.0 * (1u64 << shift) as f64);
    found.map_or(("B", 1.0), |(name, shift)| (name, (1u64 << shift) as f64))
}

/// A number along an axis, without digits that say nothing.
fn label(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn grid(out: &mut String, axes: &Axes) -> fmt::Result {
    let (name, unit) = time_unit(axes.y.1);
    for tick in ticks(axes.y.0 / unit, axes.y.1 / unit, 5) {
        let y = axes.up(tick * unit);
        writeln!(
            out,
            "<path class=\"grid\" d=\"M{} {y:.1}H{}\"/><text class=\"tick\" x=\"{}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            PLOT.0,
            PLOT.2,
            PLOT.0 - 6.0,
            y + 4.0,
            label(tick)
        )?;
    }
    writeln!(out, "<text class=\"axis\" x=\"4\" y=\"{}\">time ({name})</text>", PLOT.1 - 26.0)?;
    let (name, unit) = size_unit(axes.x.1);
    for tick in byte_ticks(axes.x.0 / unit, axes.x.1 / unit, 6) {
        let x = axes.across(tick * unit);
        writeln!(
            out,
            "<path class=\"grid\" d=\"M{x:.1} {}V{}\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{}\" \
             text-anchor=\"middle\">{}</text>",
            PLOT.1,
            PLOT.3,
            PLOT.3 + 16.0,
            label(tick)
        )?;
    }
    writeln!(
        out,
        "<text class=\"axis\" x=\"{}\" y=\"{}\" text-anchor=\"end\">fast memory ({name})</text>",
        PLOT.2,
        SIZE.1 - 10.0
    )
}

/// What memory costs by how much of it is fast: a second scale along the top.
fn price_axis(out: &mut String, axes: &Axes, price: &crate::curve::Price) -> fmt::Result {
    let at = |fast: f64| price.at(Bytes(fast.max(0.0) as u64)).unwrap_or(0.0);
    let (left, right) = (at(axes.x.0), at(axes.x.1));
    if right <= left {
        return Ok(());
    }
    for tick in ticks(left, right, 5) {
        let x = PLOT.0 + (tick - left) / (right - left) * (PLOT.2 - PLOT.0);
        writeln!(
            out,
            "<path class=\"stub\" d=\"M{x:.1} {}V{}\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{}\" \
             text-anchor=\"middle\">${}</text>",
            PLOT.1,
            PLOT.1 - 5.0,
            PLOT.1 - 9.0,
            label(tick)
        )?;
    }
    writeln!(
        out,
        "<text class=\"axis\" x=\"{}\" y=\"{}\" text-anchor=\"end\">memory price</text>",
        PLOT.2,
        PLOT.1 - 26.0
    )
}

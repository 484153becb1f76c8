//! One run on the page: its figures, where its time went, the timeline and the memory maps.

use std::fmt::{self, Write};

use tiercel_core::{Bytes, Nanos};

use super::charts::{BUDGET, Charts, Count, Kind};
use super::escape::{Text, data};
use super::waiting;
use crate::columns::percent;
use crate::run::{Run, add_up};

/// How many iterations are listed.
const ITERATIONS: usize = 200;

/// Writes all runs; the first is open.
pub(super) fn write(out: &mut String, runs: &[Run]) -> fmt::Result {
    if runs.is_empty() {
        return Ok(());
    }
    let title = if runs.len() == 1 { "The run" } else { "The runs" };
    writeln!(out, "<section id=\"runs\">\n<h2>{title}</h2>")?;
    let budget = BUDGET / runs.len();
    for (number, run) in runs.iter().enumerate() {
        one(out, number, run, budget)?;
    }
    out.push_str("</section>\n");
    Ok(())
}

fn one(out: &mut String, number: usize, run: &Run, budget: usize) -> fmt::Result {
    let (header, row) = (&run.header, run.row());
    let open = if number == 0 { " open" } else { "" };
    let batch = header.batch.map_or(String::new(), |batch| format!(", batch {batch}"));
    let time = row.time().map_or(String::new(), |time| format!(" — {time} an iteration"));
    write!(
        out,
        "<details class=\"run\" id=\"run-{number}\"{open}>\n<summary><h3>{}{batch}: {}</h3> <span>{} on {}{time}\
         </span></summary>\n",
        Text(&header.net),
        Text(&header.system),
        Text(header.kind()),
        Text(&header.machine)
    )?;
    notes(out, run)?;
    cards(out, run)?;
    breakdown(out, run)?;
    let (charts, counts) = Charts::new(run, budget);
    toolbar(out, run, &charts)?;
    timeline(out, number, &charts, &counts[0])?;
    maps(out, number, run, &charts, &counts[1..])?;
    waiting::write(out, run)?;
    iterations(out, run)?;
    write!(
        out,
        "<script type=\"application/json\" id=\"data-{number}\">{}</script>\n</details>\n",
        data(&charts)
    )
}

fn notes(out: &mut String, run: &Run) -> fmt::Result {
    let emulated = run.header.emulated();
    if run.header.measured && !emulated.is_empty() {
        writeln!(
            out,
            "<p class=\"note\">Emulated: {} is other memory, slowed down. Times were read off a clock, but on no real \
             memory of that kind.</p>",
            Text(&emulated.join(", "))
        )?;
    }
    for note in &run.notes {
        writeln!(out, "<p class=\"note\">{}</p>", Text(note))?;
    }
    Ok(())
}

fn cards(out: &mut String, run: &Run) -> fmt::Result {
    let (header, row) = (&run.header, run.row());
    out.push_str("<dl class=\"cards\">");
    let mut card = |name: &str, value: String, more: String| {
        write!(
            out,
            "<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>",
            Text(name),
            Text(&value),
            Text(&more)
        )
    };
    if let Some(time) = row.time() {
        let more = run.basis();
        card("iteration", time.to_string(), more)?;
        let share = percent(row.stall_share().unwrap_or(0.0));
        card("kernels waited", row.stall().to_string(), format!("{share} of an iteration"))?;
        card("fetched", row.fetched().to_string(), "an iteration".to_string())?;
        card("evicted", row.evicted().to_string(), "an iteration".to_string())?;
    }
    if let Some(throughput) = row.throughput() {
        card("throughput", crate::table::number(throughput), "samples a second".to_string())?;
    }
    let share = row.fast_fraction.map(|share| format!(", {} of the peak", percent(share)));
    let more = format!("of {}{}", header.fast_bytes, share.unwrap_or_default());
    card("fast memory used", row.peak_fast_bytes.to_string(), more)?;
    out.push_str("</dl>\n");
    Ok(())
}

/// Where the time of an iteration went, as one bar.
fn breakdown(out: &mut String, run: &Run) -> fmt::Result {
    let sum = |pick: &dyn Fn(&crate::run::Iteration) -> Nanos| -> u64 {
        add_up(run.counted().iter().map(|i| pick(i).0))
    };
    let all = sum(&|i| i.time());
    if all == 0 {
        return Ok(());
    }
    let compute = sum(&|i| i.compute);
    let known = run.counted().iter().all(|i| i.alone.is_some());
    let alone = if known { sum(&|i| i.alone.unwrap_or_default()).min(compute) } else { compute };
    let parts = [
        (if known { "kernels, as fast as in fast memory" } else { "kernels" }, "--forward", alone),
        ("kernels, slowed by slow memory and by copies", "--slowed", compute - alone),
        ("waiting for copies", "--stall", sum(&|i| i.stall)),
        ("everything else", "--other", sum(&|i| i.rest())),
    ];
    out.push_str(
        "<figure class=\"breakdown\"><figcaption>Where the time of an iteration goes</figcaption>\n",
    );
    let shown: Vec<_> = parts.iter().filter(|(_, _, time)| *time > 0).collect();
    write!(out, "<div class=\"stack\" data-marks=\"{}\">", shown.len())?;
    let each = run.counted().len() as u64;
    for (name, colour, time) in &shown {
        let share = *time as f64 / all as f64;
        let text = format!("{name}: {} ({})", Nanos(time / each), percent(share));
        let text = Text(&text).to_string();
        write!(
            out,
            "<span class=\"mark\" style=\"flex:{share:.5} 0 0;background:var({colour})\" data-tip=\"{text}\"></span>"
        )?;
    }
    out.push_str("</div>\n<ul class=\"legend\">");
    for (name, colour, time) in &shown {
        let share = percent(*time as f64 / all as f64);
        let time = Nanos(time / each);
        write!(out, "<li><i style=\"background:var({colour})\"></i>{name}: {time}, {share}</li>")?;
    }
    out.push_str("</ul></figure>\n");
    Ok(())
}

fn toolbar(out: &mut String, run: &Run, charts: &Charts) -> fmt::Result {
    out.push_str("<div class=\"tools zoom\"><label>Show <select class=\"range\"><option value=\"all\">everything</option>");
    let last = run.iterations.last().map(|i| i.number);
    let (from, to) = charts.window;
    let within = run.iterations.iter().filter(|i| i.began.0 >= from && i.ended.0 <= to);
    for (at, i) in within.enumerate().take(ITERATIONS) {
        let selected = if Some(i.number) == last { " selected" } else { "" };
        write!(out, "<option value=\"{at}\"{selected}>iteration {}</option>", i.number)?;
    }
    out.push_str(
        "</select></label> <button type=\"button\" data-zoom=\"0.5\" aria-label=\"closer\">+</button>\
         <button type=\"button\" data-zoom=\"2\" aria-label=\"further\">−</button>\
         <button type=\"button\" data-zoom=\"0\">reset</button>\
         <span class=\"hint\">Drag to zoom in, double-click to reset; hover to see names.</span></div>\n",
    );
    if charts.window.0 > 0 {
        let hidden = run.iterations.iter().filter(|i| i.began.0 < charts.window.0).count();
        writeln!(
            out,
            "<p class=\"note\">The charts show the last iterations; loading and the first {hidden} are left out, because \
             they would have more marks than fit. All figures are of the whole run.</p>"
        )?;
    }
    Ok(())
}

/// The place where the script draws a chart.
fn plot(out: &mut String, number: usize, chart: &str, about: &str, count: &Count) -> fmt::Result {
    writeln!(
        out,
        "<div class=\"plot\" data-run=\"{number}\" data-chart=\"{chart}\" data-marks=\"{}\" data-shown=\"{}\">\
         <canvas role=\"img\" aria-label=\"{}\"></canvas></div>",
        count.marks,
        count.shown,
        Text(about)
    )
}

/// Says what was merged, if anything was.
fn merged(out: &mut String, count: &Count) -> fmt::Result {
    if count.merged == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "<p class=\"note\">{} things too small to see are drawn together with their neighbours; a mark says how many it \
         stands for.</p>",
        crate::table::number(count.merged as f64)
    )
}

fn timeline(out: &mut String, number: usize, charts: &Charts, count: &Count) -> fmt::Result {
    out.push_str("<figure class=\"timeline\"><figcaption>What ran when</figcaption>\n");
    let lanes: Vec<&str> = charts.lanes.iter().map(|lane| lane.title.as_str()).collect();
    plot(out, number, "timeline", &format!("timeline of {}", lanes.join(", ")), count)?;
    legend(out, &charts.kinds)?;
    merged(out, count)?;
    out.push_str("</figure>\n");
    Ok(())
}

fn legend(out: &mut String, kinds: &[Kind]) -> fmt::Result {
    out.push_str("<ul class=\"legend\">");
    for (name, colour) in kinds {
        write!(out, "<li><i style=\"background:var({colour})\"></i>{name}</li>")?;
    }
    out.push_str("</ul>\n");
    Ok(())
}

fn maps(out: &mut String, number: usize, run: &Run, charts: &Charts, counts: &[Count]) -> fmt::Result {
    if charts.maps.is_empty() {
        return Ok(());
    }
    out.push_str("<figure class=\"maps\"><figcaption>What lay where</figcaption>\n");
    legend(out, &charts.roles)?;
    for (at, (map, count)) in charts.maps.iter().zip(counts).enumerate() {
        let (capacity, top) = (Bytes(map.capacity), Bytes(map.top));
        let tier = run.header.tiers.iter().position(|tier| tier.name == map.tier);
        let peak = tier.and_then(|tier| run.peak.get(tier)).copied().unwrap_or_default();
        let beyond =
            if map.top < map.capacity / 2 { format!("; the first {top} are shown") } else { String::new() };
        writeln!(
            out,
            "<h4>{} <small>{capacity}, at most {peak} in use{beyond}</small></h4>",
            Text(&map.tier)
        )?;
        plot(out, number, &format!("map-{at}"), &format!("addresses of {} over time", map.tier), count)?;
        merged(out, count)?;
    }
    out.push_str("</figure>\n");
    Ok(())
}

fn iterations(out: &mut String, run: &Run) -> fmt::Result {
    if run.iterations.len() < 2 {
        return Ok(());
    }
    let skipped = run.iterations.len().saturating_sub(ITERATIONS);
    out.push_str("<details><summary>Every iteration</summary>\n");
    if skipped > 0 {
        writeln!(out, "<p>The last {ITERATIONS}; {skipped} before them are left out.</p>")?;
    }
    out.push_str("<div class=\"scroll tall\"><table class=\"rows\"><thead><tr>");
    for title in ["iteration", "time", "in kernels", "waiting", "else", "fetched", "evicted"] {
        write!(out, "<th class=\"n\"><button type=\"button\">{title}</button></th>")?;
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for i in &run.iterations[skipped..] {
        write!(out, "<tr><td class=\"n\" data-v=\"{0}\">{0}</td>", i.number)?;
        for time in [i.time(), i.compute, i.stall, i.rest()] {
            write!(out, "<td class=\"n\" data-v=\"{}\">{time}</td>", time.0)?;
        }
        for bytes in [i.fetched, i.evicted] {
            write!(out, "<td class=\"n\" data-v=\"{}\">{bytes}</td>", bytes.0)?;
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div></details>\n");
    Ok(())
}

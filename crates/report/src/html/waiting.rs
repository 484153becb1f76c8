//! Where every stalled millisecond comes from: by tensor, by kernel, by reason, and all of it as a table.

use std::fmt::{self, Write};

use tiercel_core::Nanos;

use super::charts::CAUSES;
use super::escape::Text;
use crate::columns::percent;
use crate::run::{Run, add_up};
use crate::stalls::{Share, Stalls, advice, meaning};

/// How many bars a list of what waited has.
const BARS: usize = 12;
/// How many lines the full list of what waited has.
const LINES: usize = 500;

/// Writes the figure.
pub(super) fn write(out: &mut String, run: &Run) -> fmt::Result {
    let stalls = Stalls::counted(run);
    out.push_str("<figure class=\"stalls\"><figcaption>Where kernels waited</figcaption>\n");
    let Some(cause) = stalls.main_cause() else {
        out.push_str("<p>No kernel waited for a copy.</p></figure>\n");
        return Ok(());
    };
    writeln!(
        out,
        "<p><b>{}</b> in {}. {}</p>\n<div class=\"bars\">",
        stalls.total,
        match run.counted().len() {
            1 => "one iteration".to_string(),
            count => format!("{count} iterations"),
        },
        Text(advice(cause))
    )?;
    bars(out, &stalls, "by tensor", &stalls.by_object)?;
    bars(out, &stalls, "by kernel", &stalls.by_kernel)?;
    bars(out, &stalls, "by reason", &stalls.by_cause)?;
    out.push_str("</div>\n<details><summary>Every kernel and tensor</summary>\n");
    let lines = stalls.all.len().min(LINES);
    write!(
        out,
        "<div class=\"scroll tall\"><table class=\"rows\" data-marks=\"{lines}\"><thead><tr>\
         <th class=\"n\"><button type=\"button\">time</button></th>\
         <th class=\"n\"><button type=\"button\">share</button></th>\
         <th class=\"n\"><button type=\"button\">times</button></th>\
         <th><button type=\"button\">tensor</button></th><th><button type=\"button\">kernel</button></th>\
         <th><button type=\"button\">because</button></th></tr></thead>\n<tbody>\n"
    )?;
    for w in stalls.all.iter().take(LINES) {
        let share = stalls.share(w.time);
        writeln!(
            out,
            "<tr><td class=\"n\" data-v=\"{}\">{}</td><td class=\"n\" data-v=\"{share}\">{}</td>\
             <td class=\"n\" data-v=\"{3}\">{3}</td><td>{4}</td><td>{5}</td><td>{6}</td></tr>",
            w.time.0,
            w.time,
            percent(share),
            w.times,
            Text(&w.object),
            Text(&w.kernel),
            meaning(w.cause)
        )?;
    }
    out.push_str("</tbody></table></div>\n");
    if stalls.all.len() > LINES {
        let rest = add_up(stalls.all[LINES..].iter().map(|w| w.time.0));
        writeln!(out, "<p>And {} more, {} together.</p>", stalls.all.len() - LINES, Nanos(rest))?;
    }
    out.push_str("</details></figure>\n");
    Ok(())
}

fn bars(out: &mut String, stalls: &Stalls, title: &str, shares: &[Share]) -> fmt::Result {
    let shown = shares.len().min(BARS);
    write!(out, "<div><h4>{title}</h4><table class=\"barlist\" data-marks=\"{shown}\"><tbody>")?;
    let most = shares.first().map_or(1, |share| share.time.0).max(1);
    for share in shares.iter().take(BARS) {
        let width = share.time.0 as f64 / most as f64 * 100.0;
        let colour =
            CAUSES.iter().find(|(name, _)| name.ends_with(&share.name)).map_or("--stall", |(_, c)| c);
        let times = if share.times == 1 { "once".to_string() } else { format!("{} times", share.times) };
        let tip = format!("{}\n{}, {}, {times}", share.name, share.time, percent(stalls.share(share.time)));
        write!(
            out,
            "<tr class=\"mark\" data-tip=\"{}\"><th scope=\"row\">{}</th><td class=\"bar\"><i style=\"width:{width:.2}%;\
             background:var({colour})\"></i></td><td class=\"n\">{}</td></tr>",
            Text(&tip),
            Text(&share.name),
            share.time
        )?;
    }
    out.push_str("</tbody></table>");
    if shares.len() > BARS {
        let rest = add_up(shares[BARS..].iter().map(|share| share.time.0));
        write!(out, "<p class=\"note\">and {} more, {} together</p>", shares.len() - BARS, Nanos(rest))?;
    }
    out.push_str("</div>\n");
    Ok(())
}

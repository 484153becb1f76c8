//! Tables for spreadsheets and for other programs: RFC 4180, times in nanoseconds, sizes in bytes.

use std::io::{self, Write};

use tiercel_core::{Nanos, Outcome, Step};

use crate::columns::COLUMNS;
use crate::comparison::Comparison;
use crate::run::Run;

/// One field, quoted where it must be.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}

fn line(out: &mut dyn Write, fields: &[String]) -> io::Result<()> {
    let fields: Vec<String> = fields.iter().map(|text| field(text)).collect();
    write!(out, "{}\r\n", fields.join(","))
}

/// Writes a comparison: one line a run, sums as the part of one iteration.
pub fn comparison(out: &mut dyn Write, comparison: &Comparison) -> io::Result<()> {
    line(out, &COLUMNS.map(|column| column.key.to_string()))?;
    for row in &comparison.rows {
        let cells = COLUMNS.map(|column| match column.numeric {
            true => (column.value)(row).filter(|v| v.is_finite()).map_or(String::new(), |v| v.to_string()),
            false => (column.text)(row).unwrap_or_default(),
        });
        line(out, &cells)?;
    }
    Ok(())
}

/// The columns of [`runs`].
const SPANS: [&str; 14] = [
    "run", "net", "system", "kind", "began_ns", "ended_ns", "step", "kernel", "object", "role", "bytes",
    "from", "to", "detail",
];

/// Writes what happened in runs: one line for each iteration, kernel, copy, stall and region, by kind.
pub fn runs(out: &mut dyn Write, runs: &[Run]) -> io::Result<()> {
    line(out, &SPANS.map(str::to_string))?;
    for (number, run) in runs.iter().enumerate() {
        spans(out, number, run)?;
    }
    Ok(())
}

/// What a line says beside its kind and its times.
#[derive(Default)]
struct Details {
    step: Option<Step>,
    object: Option<usize>,
    bytes: Option<u64>,
    from: String,
    to: String,
    detail: String,
}

fn spans(out: &mut dyn Write, number: usize, run: &Run) -> io::Result<()> {
    let mut write = |kind: &str, began: Nanos, ended: Nanos, details: Details| {
        let step = details.step.filter(|step| *step != Step::LOAD);
        let object = details.object.and_then(|object| run.objects.get(object));
        let fields = [
            number.to_string(),
            run.header.net.clone(),
            run.header.system.clone(),
            kind.to_string(),
            began.0.to_string(),
            ended.0.to_string(),
            step.map_or(String::new(), |step| step.0.to_string()),
            details.step.map_or(String::new(), |step| run.kernel_name(step)),
            object.map_or(String::new(), |object| object.name.to_string()),
            object.and_then(|object| object.role).map_or(String::new(), |role| role.name().to_string()),
            details.bytes.map_or(String::new(), |bytes| bytes.to_string()),
            details.from,
            details.to,
            details.detail,
        ];
        line(out, &fields)
    };
    for i in &run.iterations {
        let detail = format!("iteration {}", i.number);
        write("iteration", i.began, i.ended, Details { detail, ..Details::default() })?;
    }
    for k in &run.kernels {
        let detail = match (k.again, k.detached) {
            (true, _) => "again",
            (_, true) => "detached",
            _ => "",
        };
        let detail = detail.to_string();
        let details = Details { step: Some(k.step), detail, ..Details::default() };
        write("kernel", k.span.began, k.span.ended, details)?;
    }
    for c in &run.copies {
        let details = Details {
            object: Some(c.object),
            bytes: Some(c.bytes.0),
            from: run.header.tier_name(c.from.tier),
            to: run.header.tier_name(c.to.tier),
            detail: match c.outcome {
                Some(Outcome::Done) => "done".to_string(),
                Some(Outcome::Cancelled) => "cancelled".to_string(),
                Some(Outcome::Failed) => "failed".to_string(),
                None => "unfinished".to_string(),
            },
            ..Details::default()
        };
        write(c.kind(), c.span.began, c.span.ended, details)?;
    }
    for s in &run.stalls {
        let detail = crate::stalls::meaning(s.cause).to_string();
        let details = Details { step: Some(s.step), object: Some(s.object), detail, ..Details::default() };
        write("stall", s.span.began, s.span.ended, details)?;
    }
    for r in &run.regions {
        let details = Details {
            object: r.object,
            bytes: Some(r.bytes.0),
            to: run.header.tier_name(r.place.tier),
            detail: format!("at {}", r.place.offset.0),
            ..Details::default()
        };
        write("region", r.span.began, r.span.ended, details)?;
    }
    Ok(())
}

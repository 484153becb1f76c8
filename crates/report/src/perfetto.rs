//! Trace-event JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
//!
//! One process a run; tracks for iterations, compute, stalls and every direction between two tiers, and a counter for
//! the bytes in use on each tier. Slices on one track must not overlap, so copies that do get further tracks.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};
use tiercel_core::{Span, Step, TierId};

use crate::run::{CopySpan, Run};

/// Microseconds, the unit of the format, without losing a nanosecond.
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

/// Writes comma-separated values of a list, one a line.
struct List<'w> {
    out: &'w mut dyn Write,
    empty: bool,
}

impl List<'_> {
    fn add(&mut self, value: &Value) -> io::Result<()> {
        self.out.write_all(if self.empty { b"\n" } else { b",\n" })?;
        self.empty = false;
        serde_json::to_writer(&mut *self.out, value).map_err(io::Error::from)
    }

    fn slice(
        &mut self,
        track: (usize, usize),
        span: Span,
        name: &str,
        kind: &str,
        args: Value,
    ) -> io::Result<()> {
        let (began, ended) = (span.began.0, span.ended.0.max(span.began.0));
        self.add(&json!({
            "name": name, "cat": kind, "ph": "X", "pid": track.0, "tid": track.1,
            "ts": micros(began), "dur": micros(ended - began), "args": args,
        }))
    }

    fn name(&mut self, track: (usize, Option<usize>), what: &str, name: &str) -> io::Result<()> {
        let mut value = json!({ "name": what, "ph": "M", "pid": track.0, "args": { "name": name } });
        if let Some(tid) = track.1 {
            value["tid"] = tid.into();
        }
        self.add(&value)?;
        if let Some(tid) = track.1 {
            let order = json!({ "sort_index": tid });
            self.add(
                &json!({ "name": "thread_sort_index", "ph": "M", "pid": track.0, "tid": tid, "args": order }),
            )?;
        }
        Ok(())
    }
}

/// Writes runs as one trace.
pub fn write(out: &mut dyn Write, runs: &[Run]) -> io::Result<()> {
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"otherData\":{\"made by\":\"tiercel\"},\"traceEvents\":[")?;
    let mut list = List { out, empty: true };
    for (at, run) in runs.iter().enumerate() {
        one(&mut list, at + 1, run)?;
    }
    list.out.write_all(b"\n]}\n")
}

const ITERATIONS: usize = 1;
const COMPUTE: usize = 2;
const STALLS: usize = 3;
const BESIDE: usize = 4;
const COPIES: usize = 5;

fn one(list: &mut List<'_>, pid: usize, run: &Run) -> io::Result<()> {
    let header = &run.header;
    let title = format!("{} · {} · {} ({})", header.net, header.system, header.machine, header.kind());
    list.name((pid, None), "process_name", &title)?;
    for (tid, name) in [(ITERATIONS, "iterations"), (COMPUTE, "compute"), (STALLS, "stall")] {
        list.name((pid, Some(tid)), "thread_name", name)?;
    }
    if run.kernels.iter().any(|k| k.detached) {
        list.name((pid, Some(BESIDE)), "thread_name", "beside")?;
    }
    for i in &run.iterations {
        let span = Span { began: i.began, ended: i.ended };
        let args =
            json!({ "stall_ns": i.stall.0, "fetched_bytes": i.fetched.0, "evicted_bytes": i.evicted.0 });
        list.slice((pid, ITERATIONS), span, &format!("iteration {}", i.number), "iteration", args)?;
    }
    for k in &run.kernels {
        let mut args = json!({ "step": (k.step != Step::LOAD).then_some(k.step.0) });
        if let Some(kernel) = run.kernel(k.step) {
            args["op"] = kernel.op.as_str().into();
            args["layer"] = kernel.layer.as_str().into();
        }
        let kind = run.kernel(k.step).map_or("load", |kernel| kernel.phase.as_str());
        let track = if k.detached { BESIDE } else { COMPUTE };
        list.slice((pid, track), k.span, &run.kernel_name(k.step), kind, args)?;
    }
    for s in &run.stalls {
        let object = object(run, s.object);
        let args = json!({
            "kernel": run.kernel_name(s.step), "cause": crate::stalls::meaning(s.cause), "ticket": s.ticket.0,
        });
        list.slice((pid, STALLS), s.span, object, "stall", args)?;
    }
    copies(list, pid, run)?;
    counters(list, pid, run)
}

fn object(run: &Run, position: usize) -> &str {
    run.objects.get(position).map_or("?", |object| &object.name)
}

fn copies(list: &mut List<'_>, pid: usize, run: &Run) -> io::Result<()> {
    let mut tid = COPIES;
    for ((from, to), copies) in lanes(run) {
        let rows = rows(copies.iter().map(|copy| copy.span));
        let name = format!("{} {} → {}", copies[0].kind(), header_tier(run, from), header_tier(run, to));
        let count = rows.iter().copied().max().map_or(0, |row| row + 1);
        for row in 0..count {
            let name = if row == 0 { name.clone() } else { format!("{name} ({})", row + 1) };
            list.name((pid, Some(tid + row)), "thread_name", &name)?;
        }
        for (copy, row) in copies.iter().zip(&rows) {
            let args = json!({
                "bytes": copy.bytes.0, "asked_ns": copy.asked.0, "outcome": copy.outcome, "ticket": copy.ticket.0,
                "from_offset": copy.from.offset.0, "to_offset": copy.to.offset.0,
            });
            list.slice((pid, tid + row), copy.span, object(run, copy.object), copy.kind(), args)?;
        }
        tid += count;
    }
    Ok(())
}

fn header_tier(run: &Run, tier: TierId) -> String {
    run.header.tier_name(tier)
}

/// The copies that took any time, by direction: fetches first, then by tier.
pub(crate) fn lanes(run: &Run) -> Vec<((TierId, TierId), Vec<CopySpan>)> {
    let mut lanes: BTreeMap<(bool, TierId, TierId), Vec<CopySpan>> = BTreeMap::new();
    for copy in run.copies.iter().filter(|copy| copy.span.ended > copy.span.began) {
        lanes.entry((!copy.is_fetch(), copy.from.tier, copy.to.tier)).or_default().push(*copy);
    }
    let lanes = lanes.into_iter().map(|((_, from, to), mut copies)| {
        copies.sort_by_key(|copy| (copy.span.began, copy.span.ended));
        ((from, to), copies)
    });
    lanes.collect()
}

/// The first row on which each of these spans, sorted by their beginning, overlaps none before it.
pub(crate) fn rows(spans: impl Iterator<Item = Span>) -> Vec<usize> {
    let mut free: Vec<u64> = Vec::new();
    let place = spans.map(|span| {
        let row = free.iter().position(|end| *end <= span.began.0).unwrap_or_else(|| {
            free.push(0);
            free.len() - 1
        });
        free[row] = span.ended.0;
        row
    });
    place.collect()
}

/// Bytes in use over time, one counter a tier.
fn counters(list: &mut List<'_>, pid: usize, run: &Run) -> io::Result<()> {
    for (at, tier) in run.header.tiers.iter().enumerate() {
        let name = format!("bytes in {}", tier.name);
        let mut last = None;
        for (time, bytes) in used(run, TierId(at as u8)) {
            if last != Some(bytes) {
                list.add(&json!({
                    "name": name, "ph": "C", "pid": pid, "ts": micros(time), "args": { "bytes": bytes },
                }))?;
            }
            last = Some(bytes);
        }
    }
    Ok(())
}

/// The bytes in use on a tier after every moment at which they change.
fn used(run: &Run, tier: TierId) -> Vec<(u64, u64)> {
    let regions = run.regions.iter().filter(|region| region.place.tier == tier);
    let mut changes: BTreeMap<u64, i128> = BTreeMap::new();
    for region in regions {
        *changes.entry(region.span.began.0).or_default() += i128::from(region.bytes.0);
        *changes.entry(region.span.ended.0).or_default() -= i128::from(region.bytes.0);
    }
    let mut sum = 0i128;
    let steps = changes.into_iter().map(|(at, change)| {
        sum += change;
        (at, u64::try_from(sum.max(0)).unwrap_or(u64::MAX))
    });
    steps.collect()
}

//! `tiercel describe`: what a network, an ONNX file or a trace is: sizes, lifetimes, peak.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use tiercel_workload::summary::{PHASES, ROLES};
use tiercel_workload::{Lifetimes, Summary, Workload, text};

use crate::answer::Answer;
use crate::figures::{grouped, scaled, sparkline};
use crate::files;
use crate::sizes::Subject;
use crate::torch;

const EXAMPLES: &str = "\
Examples:
  tiercel describe resnet200 --batch 512
      what one training iteration of ResNet-200 keeps in memory
  tiercel describe gpt2 --sequence 512 --dtype bf16 --json
      the same figures for another program to read";

/// Say what a network or a trace is: parameters, kernels, tensors, lifetimes, peak memory.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    subject: Subject,
    /// Write the trace to this file, in the text form
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    answer: Answer,
}

/// The text to print, or what is wrong.
pub fn run(arguments: &Arguments) -> anyhow::Result<String> {
    arguments.out.as_deref().map_or(Ok(()), files::check)?;
    let workload = arguments.subject.open(torch::MACHINE)?;
    if let Some(path) = &arguments.out {
        files::replace(path, text::write(workload.trace()))?;
    }
    let lifetimes = Lifetimes::new(workload.trace());
    let summary = Summary::new(&workload, &lifetimes, 10);
    let dtype = workload.program().map(|_| arguments.subject.sizes.dtype());
    if arguments.answer.json {
        Ok(format!("{:#}\n", document(&workload, &summary, &lifetimes, dtype)))
    } else {
        let mut page = String::new();
        // Writing to a string never fails.
        let _ = table(&mut page, &workload, &summary, dtype);
        Ok(page)
    }
}

fn document(workload: &Workload, summary: &Summary, lifetimes: &Lifetimes, dtype: Option<&str>) -> Value {
    let trace = workload.trace();
    let largest: Vec<Value> = summary
        .largest
        .iter()
        .map(|id| {
            let (tensor, life) = (trace.tensor(*id), lifetimes.of(*id));
            json!({
                "name": tensor.name,
                "bytes": tensor.bytes.0,
                "role": tensor.role.name(),
                "first_step": life.map(|l| l.birth.0),
                "last_step": life.map(|l| l.last.0),
                "uses": lifetimes.uses(*id).len(),
            })
        })
        .collect();
    let by_role = |pick: fn(&(usize, tiercel_core::Bytes, tiercel_core::Bytes)) -> u64| {
        let pairs = ROLES.iter().zip(&summary.roles);
        Value::Object(pairs.map(|(role, figures)| (role.name().to_string(), pick(figures).into())).collect())
    };
    let phases = PHASES.iter().zip(summary.kernels).map(|(phase, n)| (phase.name().to_string(), n.into()));
    json!({
        "net": trace.name,
        "batch": workload.batch(),
        "dtype": dtype,
        "parameters": summary.parameters,
        "kernels": trace.kernels.len(),
        "kernels_by_phase": Value::Object(phases.collect()),
        "tensors": summary.tensors,
        "short_lived_tensors": summary.short_lived,
        "layers": trace.layers.len(),
        "forward_macs": summary.forward_macs,
        "forward_macs_per_sample": workload.batch().map(|batch| summary.forward_macs / batch.max(1)),
        "flops": summary.flops,
        "peak_bytes": summary.peak.0,
        "peak_step": summary.peak_step.0,
        "peak_kernel": trace.kernels.get(summary.peak_step.0 as usize).map(|k| k.name.as_str()),
        "short_lived_peak_bytes": summary.short_lived_peak.0,
        "bytes_by_role": by_role(|(_, all, _)| all.0),
        "peak_bytes_by_role": by_role(|(_, _, alive)| alive.0),
        "largest_tensors": largest,
        "live_bytes": summary.curve(200).iter().map(|b| b.0).collect::<Vec<_>>(),
    })
}

fn table(out: &mut String, workload: &Workload, summary: &Summary, dtype: Option<&str>) -> std::fmt::Result {
    let trace = workload.trace();
    match (workload.batch(), dtype) {
        (Some(batch), Some(dtype)) => {
            writeln!(out, "{}, batch {batch}, {dtype}: one training iteration\n", trace.name)?;
        }
        _ if trace.name.is_empty() => writeln!(out, "a trace: one iteration\n")?,
        _ => writeln!(out, "{}: one iteration\n", trace.name)?,
    }
    let mut row = |name: &str, text: String| writeln!(out, "  {name:<18} {text}");
    if let Some(parameters) = summary.parameters {
        row("parameters", grouped(parameters))?;
    }
    let [forward, backward, update] = summary.kernels.map(|n| grouped(n as u64));
    let kernels = grouped(trace.kernels.len() as u64);
    row("kernels", format!("{kernels} (forward {forward}, backward {backward}, update {update})"))?;
    let (tensors, short) = (grouped(summary.tensors as u64), grouped(summary.short_lived as u64));
    row("tensors", format!("{tensors} ({short} short-lived)"))?;
    let each = workload.batch().map(|batch| summary.forward_macs as f64 / batch.max(1) as f64);
    let each = each.map_or(String::new(), |n| format!(", {} a sample", scaled(n)));
    row("forward", format!("{} multiply-adds{each}", scaled(summary.forward_macs as f64)))?;
    let at = trace.kernels.get(summary.peak_step.0 as usize);
    let at = at.map_or(String::new(), |k| format!(" at kernel {}, {}", summary.peak_step.0, k.name));
    row("peak", format!("{}{at}", summary.peak))?;
    row("short-lived peak", summary.short_lived_peak.to_string())?;

    writeln!(out, "\n  live bytes over the iteration\n  {}\n", sparkline(&summary.curve(72)))?;

    writeln!(out, "  {:<18} {:>9} {:>12} {:>12}", "role", "tensors", "all", "at the peak")?;
    for (role, (count, all, alive)) in ROLES.iter().zip(summary.roles).filter(|(_, r)| r.0 > 0) {
        writeln!(out, "  {:<18} {:>9} {all:>12} {alive:>12}", role.name(), grouped(count as u64))?;
    }

    writeln!(out, "\n  largest tensors")?;
    for id in &summary.largest {
        let tensor = trace.tensor(*id);
        writeln!(out, "  {:>12}  {:<10}  {}", tensor.bytes, tensor.role.name(), tensor.name)?;
    }
    Ok(())
}

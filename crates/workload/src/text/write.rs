//! The canonical text of a trace.

use std::fmt::Write;

use super::lexer::is_bare;
use super::{MAGIC, VERSION};
use crate::trace::{Kernel, Trace, Use};

/// Writes a trace: layers, then tensors, then kernels, all in their order; a use that touches its whole tensor
/// once does not repeat the size.
pub(super) fn write(trace: &Trace) -> String {
    let mut out = String::new();
    // Writing to a string never fails.
    let _ = all(&mut out, trace);
    out
}

fn all(out: &mut String, trace: &Trace) -> std::fmt::Result {
    writeln!(out, "{MAGIC} {VERSION}\nname {}\n", word(&trace.name))?;
    for layer in &trace.layers {
        writeln!(out, "layer {}", word(layer))?;
    }
    writeln!(out)?;
    for tensor in &trace.tensors {
        let persistent = if tensor.persistent { " persistent" } else { "" };
        writeln!(out, "tensor {} {} {}{persistent}", word(&tensor.name), tensor.role.name(), tensor.bytes.0)?;
    }
    for each in &trace.kernels {
        kernel(out, trace, each)?;
    }
    Ok(())
}

fn kernel(out: &mut String, trace: &Trace, kernel: &Kernel) -> std::fmt::Result {
    let layer = trace.layers.get(kernel.layer as usize).map_or("", String::as_str);
    let (name, op, phase) = (word(&kernel.name), word(&kernel.op), kernel.phase.name());
    write!(out, "\nkernel {name} {op} {phase} {}", word(layer))?;
    if kernel.flops > 0 {
        write!(out, " flops {}", kernel.flops)?;
    }
    if kernel.detached {
        write!(out, " detached")?;
    }
    if let Some(repeat) = kernel.repeat {
        write!(out, " {}", repeat.name())?;
    }
    writeln!(out)?;
    kernel.reads.iter().try_for_each(|used| touch(out, trace, "read", used))?;
    kernel.writes.iter().try_for_each(|used| touch(out, trace, "write", used))?;
    for timing in &kernel.timings {
        write!(out, "  time {}ns at", timing.time.0)?;
        timing.tiers.iter().try_for_each(|tier| write!(out, " {}", tier.0))?;
        writeln!(out)?;
    }
    for other in &kernel.alternatives {
        let (name, workspace) = (word(&other.name), other.workspace.0);
        writeln!(out, "  alternative {name} workspace {workspace} factor {}", other.factor)?;
    }
    Ok(())
}

fn touch(out: &mut String, trace: &Trace, verb: &str, used: &Use) -> std::fmt::Result {
    let tensor = trace.tensor(used.tensor);
    write!(out, "  {verb} {}", word(&tensor.name))?;
    if used.bytes != tensor.bytes {
        write!(out, " {}", used.bytes.0)?;
    }
    writeln!(out)
}

/// A name as a word: bare where it can be, else quoted.
fn word(name: &str) -> String {
    if is_bare(name) {
        return name.to_string();
    }
    let mut quoted = String::from('"');
    for c in name.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => quoted.push_str(&format!("\\u{{{:x}}}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

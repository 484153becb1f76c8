//! `tiercel pic bench`: how fast a uniform plasma runs on one core, by phase, beside the floor.

use std::fmt::Write;

use clap::Args;
use serde_json::{Value, json};
use tiercel_pic::bench::{Case, Speed, vectors};
use tiercel_pic::{Passes, PicError};

use crate::answer::Answer;

const EXAMPLES: &str = "\
Examples:
  tiercel pic bench
      single precision at order 1 and double at order 2: 32 × 32 × 32 cells with 64 particles each
  tiercel pic bench --cells 16 --thermal 0.1 --json
      fewer cells, and more particles that change them; for another program to read";

/// How fast particles are on one core of this machine, by phase, beside what memory and arithmetic allow.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Bench {
    /// Cells along each axis
    #[arg(long, value_name = "N", default_value = "32", value_parser = clap::value_parser!(u16).range(4..=128), allow_hyphen_values = true)]
    cells: u16,
    /// The standard deviation of momenta, in mc: how many particles change cells
    #[arg(long, value_name = "U", default_value = "0.01", value_parser = thermal, allow_hyphen_values = true)]
    thermal: f64,
    /// Iterations that are timed
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u32).range(1..), allow_hyphen_values = true)]
    steps: u32,
    #[command(flatten)]
    answer: Answer,
}

fn thermal(text: &str) -> Result<f64, String> {
    let momentum = text.parse::<f64>().ok().filter(|u| u.is_finite() && *u >= 0.0);
    momentum.ok_or_else(|| format!("`{text}` is no momentum such as 0.01"))
}

/// One line of the table.
struct Line {
    precision: &'static str,
    case: Case,
    speed: Speed,
}

/// The text to print, or what is wrong.
pub fn run(arguments: &Bench) -> Result<String, PicError> {
    let mut lines = Vec::new();
    for passes in [Passes::One, Passes::Two] {
        let case = Case {
            cells: usize::from(arguments.cells),
            thermal: arguments.thermal,
            steps: arguments.steps,
            passes,
            ..Case::default()
        };
        lines.push(Line { precision: "f32", case, speed: case.measure::<f32>()? });
        let case = Case { order: 2, ..case };
        lines.push(Line { precision: "f64", case, speed: case.measure::<f64>()? });
    }
    if arguments.answer.json {
        let lines: Vec<Value> = lines.iter().map(document).collect();
        return Ok(format!("{:#}\n", json!({ "measured": true, "vectors": vectors(), "cases": lines })));
    }
    let mut page = String::new();
    // Writing to a string never fails.
    let _ = table(&mut page, arguments, &lines);
    Ok(page)
}

fn document(line: &Line) -> Value {
    let speed = &line.speed;
    json!({
        "precision": line.precision,
        "order": line.case.order,
        "passes": match line.case.passes { Passes::One => 1, Passes::Two => 2 },
        "particles": speed.particles,
        "updates_per_second": speed.mean,
        "best_updates_per_second": speed.best,
        "ns_per_particle": {
            "push": speed.push,
            "deposit": speed.deposit,
            "fields": speed.fields,
            "exchange": speed.exchange,
        },
        "bytes_per_particle": speed.bytes,
        "operations_per_particle": speed.operations,
        "floor_ns": { "bytes": speed.bytes_floor, "operations": speed.operations_floor },
    })
}

fn table(out: &mut String, arguments: &Bench, lines: &[Line]) -> std::fmt::Result {
    let n = arguments.cells;
    writeln!(
        out,
        "a uniform plasma on one core: {n} × {n} × {n} cells, 64 particles each, {} vectors\n",
        vectors()
    )?;
    writeln!(
        out,
        "  {:<24} {:>10} {:>10}   {:>6} {:>8} {:>7} {:>9}   {:>7} {:>11}",
        "", "M/s, best", "mean", "push", "deposit", "fields", "exchange", "bytes", "operations"
    )?;
    for Line { precision, case, speed } in lines {
        let passes = if case.passes == Passes::One { "one pass" } else { "two passes" };
        writeln!(
            out,
            "  {:<24} {:>10.1} {:>10.1}   {:>6.2} {:>8.2} {:>7.2} {:>9.2}   {:>7.2} {:>11.2}",
            format!("{precision}, order {}, {passes}", case.order),
            speed.best / 1e6,
            speed.mean / 1e6,
            speed.push,
            speed.deposit,
            speed.fields,
            speed.exchange,
            speed.bytes_floor,
            speed.operations_floor
        )?;
    }
    writeln!(
        out,
        "\nupdates a second of whole iterations; phases in nanoseconds a particle (one pass pushes and deposits); then the floors in\n\
         nanoseconds a particle: its bytes read and written once, and its multiply-adds in full vectors, both measured here"
    )
}

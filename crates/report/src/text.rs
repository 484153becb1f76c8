//! Reports for the terminal.

use std::fmt::Write;

use tiercel_core::{Bytes, Nanos};

use crate::columns;
use crate::comparison::Comparison;
use crate::curve::Curve;
use crate::run::{Run, add_up};
use crate::stalls::{Stalls, advice, meaning};
use crate::table::{Align, Table, number};

/// How many lines a list of what waited has.
const LONGEST: usize = 10;

impl Comparison {
    /// The rows as a table, without the columns that say nothing.
    pub fn table(&self) -> Table {
        let columns = columns::of(self);
        let align = |numeric: bool| if numeric { Align::Right } else { Align::Left };
        let mut table = Table::new(columns.iter().map(|column| (column.title, align(column.numeric))));
        for row in &self.rows {
            table.row(columns.iter().map(|column| (column.text)(row).unwrap_or_default()));
        }
        table
    }

    /// What is the same of all rows, the table, and which predictions are not to be trusted.
    pub fn text(&self) -> String {
        let doubts = self.doubts().map_or(String::new(), |doubts| format!("\n{doubts}\n"));
        match columns::caption(self) {
            caption if caption.is_empty() => format!("{}{doubts}", self.table()),
            caption => format!("{caption}\n\n{}{doubts}", self.table()),
        }
    }
}

impl Curve {
    /// The points as a table.
    pub fn table(&self) -> Table {
        let right = |title: &str| (title.to_string(), Align::Right);
        let mut table = Table::new(["fast", "of peak", "iteration", "slowdown", "price"].map(right));
        for point in &self.points {
            let slowdown =
                self.fast_only_ns.filter(|ns| *ns > 0).map(|ns| point.iteration_ns as f64 / ns as f64);
            let price = self.price.and_then(|price| price.at(point.fast_bytes));
            table.row([
                point.fast_bytes.to_string(),
                point.fast_fraction.map_or(String::new(), columns::percent),
                Nanos(point.iteration_ns).to_string(),
                slowdown.map_or(String::new(), columns::factor),
                price.map_or(String::new(), |price| format!("${}", number(price))),
            ]);
        }
        table
    }
}

impl Run {
    /// What figures of an iteration are based on.
    pub(crate) fn basis(&self) -> String {
        let count = match self.counted().len() {
            1 => "one".to_string(),
            count => format!("median of {count}"),
        };
        match self.iterations.len() - self.counted().len() {
            0 => count,
            warm => format!("{count} after {warm} to warm up"),
        }
    }

    /// What it was, what it took, and where waiting came from.
    pub fn text(&self) -> String {
        let mut page = String::new();
        // Writing to a string never fails.
        let _ = self.write(&mut page);
        page
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let (header, row) = (&self.header, self.row());
        let batch = header.batch.map_or(String::new(), |batch| format!(", batch {batch}"));
        writeln!(out, "{}{batch}: {} on {}, {}\n", header.net, header.system, header.machine, header.kind())?;
        let mut line = |name: &str, text: String| writeln!(out, "  {name:<14} {text}");
        let emulated = header.emulated();
        if !emulated.is_empty() {
            line("emulated", format!("{}: other memory, slowed down", emulated.join(", ")))?;
        }
        let share =
            row.fast_fraction.map_or(String::new(), |f| format!(", {} of the peak", columns::percent(f)));
        line("fast memory", format!("{}{share}; {} used", header.fast_bytes, row.peak_fast_bytes))?;
        if let Some(time) = row.time() {
            line("iteration", format!("{time} ({})", self.basis()))?;
            line("moved", format!("{} fetched and {} evicted an iteration", row.fetched(), row.evicted()))?;
            let share = row.stall_share().unwrap_or(0.0);
            line("stall", format!("{} an iteration, {} of the time", row.stall(), columns::percent(share)))?;
        }
        let moved = Bytes(add_up(self.copies.iter().map(|copy| copy.bytes.0)));
        line(
            "recorded",
            format!(
                "{}, {} of {moved}",
                count(self.kernels.len(), "kernel", "kernels"),
                count(self.copies.len(), "copy", "copies")
            ),
        )?;
        for note in &self.notes {
            line("note", note.clone())?;
        }
        stalls(out, &Stalls::counted(self), self.stall())
    }
}

fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

fn stalls(out: &mut String, stalls: &Stalls, all: Nanos) -> std::fmt::Result {
    let more = all.saturating_sub(stalls.total);
    let more = if more == Nanos::ZERO { String::new() } else { format!("; {more} more before and between") };
    let Some(cause) = stalls.main_cause() else {
        return writeln!(out, "\n  No kernel waited{more}.");
    };
    writeln!(out, "\n  where kernels waited, {} in the iterations that count{more}\n", stalls.total)?;
    let mut table = Table::new([
        ("time", Align::Right),
        ("share", Align::Right),
        ("times", Align::Right),
        ("tensor", Align::Left),
        ("kernel", Align::Left),
        ("because", Align::Left),
    ]);
    for waiting in stalls.all.iter().take(LONGEST) {
        table.row([
            waiting.time.to_string(),
            columns::percent(stalls.share(waiting.time)),
            waiting.times.to_string(),
            waiting.object.clone(),
            waiting.kernel.clone(),
            meaning(waiting.cause).to_string(),
        ]);
    }
    write!(out, "{table}")?;
    if stalls.all.len() > LONGEST {
        let rest = add_up(stalls.all[LONGEST..].iter().map(|w| w.time.0));
        writeln!(out, "  and {} more, {} together", stalls.all.len() - LONGEST, Nanos(rest))?;
    }
    out.push('\n');
    for line in wrapped(advice(cause), 100) {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

/// A text in lines of at most so many characters, unless one word has more.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| line.chars().count() + 1 + word.chars().count() <= width) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_string()),
        }
    }
    lines
}

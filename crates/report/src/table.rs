//! Aligned tables for the terminal, and numbers as people read them.

use std::fmt;

/// A table for a terminal: words to the left, numbers to the right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

/// On which side of its column a text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

impl Table {
    /// A table with these headings and no rows.
    pub fn new<S: Into<String>>(columns: impl IntoIterator<Item = (S, Align)>) -> Table {
        let columns = columns.into_iter().map(|(title, align)| (title.into(), align)).collect();
        Table { columns, rows: Vec::new() }
    }

    /// Adds a row; cells that are missing stay empty, those beyond the last column are dropped.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) -> &mut Table {
        let mut cells: Vec<String> = cells.into_iter().map(|cell| plain(cell.into())).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
        self
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// A text that stays on its line: what would steer a terminal becomes a question mark.
fn plain(text: String) -> String {
    if text.chars().any(char::is_control) {
        text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
    } else {
        text
    }
}

impl fmt::Display for Table {
    /// Two spaces before every line and between columns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |at: usize| {
            let cells = self.rows.iter().map(|row| row[at].chars().count());
            cells.chain([self.columns[at].0.chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let titles: Vec<String> = self.columns.iter().map(|(title, _)| title.clone()).collect();
        for row in std::iter::once(&titles).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, (_, align)), width) in row.iter().zip(&self.columns).zip(&widths) {
                line.push_str("  ");
                match align {
                    Align::Left => line.push_str(&format!("{cell:<width$}")),
                    Align::Right => line.push_str(&format!("{cell:>width$}")),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A number with three or four digits that matter, and its thousands apart.
pub fn number(x: f64) -> String {
    if !x.is_finite() {
        return "–".to_string();
    }
    match x.abs() {
        v if v >= 999.5 => grouped(x.round()),
        v if v >= 99.95 => format!("{x:.0}"),
        v if v >= 9.995 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

fn grouped(x: f64) -> String {
    let digits = format!("{:.0}", x.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if x < 0.0 { format!("−{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_is_in_them() {
        let mut table = Table::new([("system", Align::Left), ("time", Align::Right), ("note", Align::Left)]);
        table.row(["fast-only", "1.5 µs", "x"]).row(["redl", "12 ms"]).row([
            "a\nb\u{1b}[31m",
            "0",
            "",
            "lost",
        ]);
        let shown = table.to_string();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines,
            [
                "  system       time  note",
                "  fast-only  1.5 µs  x",
                "  redl        12 ms",
                "  a?b?[31m        0"
            ]
        );
        assert_eq!((table.len(), table.is_empty()), (3, false));
    }

    #[test]
    fn numbers_have_the_digits_that_matter() {
        let shown: Vec<String> =
            [0.0, 1.234, 12.34, 123.4, 1234.4, 1e6, -2.5e4, f64::NAN].map(number).to_vec();
        assert_eq!(shown, ["0.00", "1.23", "12.3", "123", "1,234", "1,000,000", "−25,000", "–"]);
    }
}

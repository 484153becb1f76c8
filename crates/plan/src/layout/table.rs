//! Buffers as a table: the comma-separated files of the MiniMalloc benchmark.
//!
//! The first line names the columns, in any order: `id`, `lower`, `upper`, `size`, and `alignment` if wanted. Other columns
//! are kept and mean nothing here; an `offset` column is replaced when the table is written, so that a result can be
//! read again. Lifetimes are half-open. Ids are names only and may repeat: rows keep their order. Fields may be quoted
//! as in RFC 4180; blank lines are skipped.

use std::fmt::Write;

use thiserror::Error;
use tiercel_core::Bytes;

use super::Buffer;

/// A table that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// One buffer a row.
    pub buffers: Vec<Buffer>,
    /// Their names.
    pub ids: Vec<String>,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// What is wrong with a table, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}{}: {what}", column.as_ref().map_or(String::new(), |name| format!(", column `{name}`")))]
pub struct TableError {
    /// The line, from 1.
    pub line: usize,
    /// The column by its name, where it is about one.
    pub column: Option<String>,
    /// What is wrong.
    pub what: String,
}

fn wrong<T>(line: usize, column: Option<&str>, what: impl Into<String>) -> Result<T, TableError> {
    Err(TableError { line, column: column.map(str::to_string), what: what.into() })
}

/// Where the columns are.
struct Columns {
    id: usize,
    lower: usize,
    upper: usize,
    size: usize,
    alignment: Option<usize>,
}

/// Reads a table.
///
/// # Errors
/// The line and column of the first thing that cannot be understood.
pub fn read(bytes: &[u8]) -> Result<Table, TableError> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => {
            let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
            return wrong(line, None, "this is no UTF-8 text");
        }
    };
    let mut records = Records { text, at: 0, line: 1 };
    let Some((line, header)) = records.next()? else {
        return wrong(1, None, "the file is empty; a header with id, lower, upper and size was expected");
    };
    let columns = columns(line, &header)?;
    let mut table = Table { buffers: Vec::new(), ids: Vec::new(), header, rows: Vec::new() };
    while let Some((line, row)) = records.next()? {
        if row.len() != table.header.len() {
            let (found, wanted) = (row.len(), table.header.len());
            return wrong(line, None, format!("{found} fields where the header has {wanted}"));
        }
        table.buffers.push(buffer(line, &row, &columns)?);
        table.ids.push(row[columns.id].clone());
        table.rows.push(row);
    }
    Ok(table)
}

fn columns(line: usize, header: &[String]) -> Result<Columns, TableError> {
    let find = |name: &str| {
        let mut found = (0..header.len()).filter(|at| header[*at].trim().eq_ignore_ascii_case(name));
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => wrong(line, Some(name), "this column appears twice"),
            (first, _) => Ok(first),
        }
    };
    let need = |name: &str| match find(name)? {
        Some(at) => Ok(at),
        None => {
            let mut names = header.join(", ");
            if names.chars().count() > 80 {
                names = names.chars().take(80).chain("…".chars()).collect();
            }
            wrong(line, Some(name), format!("the header has no such column; it has: {names}"))
        }
    };
    find("offset")?;
    Ok(Columns {
        id: need("id")?,
        lower: need("lower")?,
        upper: need("upper")?,
        size: need("size")?,
        alignment: find("alignment")?,
    })
}

fn buffer(line: usize, row: &[String], columns: &Columns) -> Result<Buffer, TableError> {
    let lower = number(line, "lower", &row[columns.lower])?;
    let upper = number(line, "upper", &row[columns.upper])?;
    let size = number(line, "size", &row[columns.size])?;
    if lower >= upper {
        return wrong(line, Some("upper"), format!("{upper} must be greater than lower, which is {lower}"));
    }
    if size == 0 {
        return wrong(line, Some("size"), "a buffer needs at least one byte");
    }
    let buffer = Buffer::new(lower, upper, Bytes(size));
    match columns.alignment.map(|at| row[at].trim()).filter(|text| !text.is_empty()) {
        None => Ok(buffer),
        Some(text) => match number(line, "alignment", text)? {
            0 => wrong(line, Some("alignment"), "an alignment is 1 at least"),
            alignment => Ok(buffer.aligned(Bytes(alignment))),
        },
    }
}

fn number(line: usize, column: &str, text: &str) -> Result<u64, TableError> {
    let text = text.trim();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let shown: String = text.chars().take(40).collect();
    if text.is_empty() {
        wrong(line, Some(column), "a number is missing")
    } else if !digits.bytes().all(|byte| byte.is_ascii_digit()) || digits.is_empty() {
        wrong(line, Some(column), format!("`{shown}` is no whole number"))
    } else if text.len() > digits.len() {
        wrong(line, Some(column), format!("{shown} is negative"))
    } else {
        text.parse().or_else(|_| wrong(line, Some(column), format!("{shown} is more than 64 bits count")))
    }
}

impl Table {
    /// The table as text, with these offsets in its `offset` column, which becomes the last if there was none.
    ///
    /// # Panics
    /// If there is not one offset a row.
    pub fn write(&self, offsets: &[Bytes]) -> String {
        assert_eq!(offsets.len(), self.rows.len(), "one offset a row");
        let place = self.header.iter().position(|name| name.trim().eq_ignore_ascii_case("offset"));
        let mut text = String::new();
        let mut line = |fields: &[String], offset: &str| {
            let old =
                fields.iter().enumerate().map(|(at, field)| if Some(at) == place { offset } else { field });
            let new = place.is_none().then_some(offset);
            for (at, field) in old.chain(new).enumerate() {
                let comma = if at == 0 { "" } else { "," };
                // Writing to a string never fails.
                let _ = if field.contains([',', '"', '\n', '\r']) || field.trim() != field {
                    write!(text, "{comma}\"{}\"", field.replace('"', "\"\""))
                } else {
                    write!(text, "{comma}{field}")
                };
            }
            text.push('\n');
        };
        line(&self.header, "offset");
        for (row, offset) in self.rows.iter().zip(offsets) {
            line(row, &offset.0.to_string());
        }
        text
    }
}

/// Cuts text into records of fields.
struct Records<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl Records<'_> {
    /// The next record that is not blank, with its first line.
    fn next(&mut self) -> Result<Option<(usize, Vec<String>)>, TableError> {
        while self.at < self.text.len() {
            let line = self.line;
            let (fields, blank) = self.record()?;
            if !blank {
                return Ok(Some((line, fields)));
            }
        }
        Ok(None)
    }

    /// The fields up to the end of the line, and whether there was nothing in it.
    fn record(&mut self) -> Result<(Vec<String>, bool), TableError> {
        let mut fields = Vec::new();
        loop {
            let (field, quoted) = self.field()?;
            let rest = &self.text[self.at..];
            let blank = fields.is_empty() && !quoted && field.trim().is_empty();
            fields.push(field);
            match rest.as_bytes().first() {
                Some(b',') => self.at += 1,
                Some(_) => {
                    self.at += 1;
                    self.line += 1;
                    return Ok((fields, blank));
                }
                None => return Ok((fields, blank)),
            }
        }
    }

    /// One field, up to the comma or the end of the line after it, and whether it was quoted.
    fn field(&mut self) -> Result<(String, bool), TableError> {
        let rest = &self.text[self.at..];
        let skipped = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        if !rest[skipped..].starts_with('"') {
            let end = rest.find([',', '\n']).unwrap_or(rest.len());
            self.at += end;
            return Ok((rest[..end].trim().to_string(), false));
        }
        let start = self.line;
        self.at += skipped + 1;
        let mut field = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(end) = rest.find('"') else {
                return wrong(start, None, "a quotation mark is never closed");
            };
            field.push_str(&rest[..end]);
            self.line += rest[..end].matches('\n').count();
            self.at += end + 1;
            if !self.text[self.at..].starts_with('"') {
                break;
            }
            field.push('"');
            self.at += 1;
        }
        let rest = &self.text[self.at..];
        let end = rest.find([',', '\n']).unwrap_or(rest.len());
        if !rest[..end].trim().is_empty() {
            return wrong(self.line, None, "text after a closing quotation mark");
        }
        self.at += end;
        Ok((field, true))
    }
}

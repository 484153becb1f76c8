//! Lines into words: bare or quoted, with their columns; a `#` starts a comment.

use std::borrow::Cow;

use super::TextError;

/// A word of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word<'a> {
    pub column: u32,
    pub text: Cow<'a, str>,
}

/// Whether a character can stand in a word without quotes.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || !(c.is_whitespace() || c.is_control() || c == '"' || c == '#')
}

/// Whether a name can stand in a file without quotes.
pub(super) fn is_bare(name: &str) -> bool {
    !name.is_empty() && name.chars().all(is_plain)
}

/// The words of one line.
pub(super) fn words<'a>(text: &'a str, line: u32, words: &mut Vec<Word<'a>>) -> Result<(), TextError> {
    words.clear();
    let mut chars = Chars { rest: text, line, column: 1 };
    while let Some(c) = chars.peek() {
        let column = chars.column;
        match c {
            '#' => break,
            '"' => words.push(Word { column, text: Cow::Owned(chars.quoted()?) }),
            c if c.is_whitespace() => {
                chars.next();
            }
            c if c.is_control() => return Err(chars.error(column, format!("a stray character {c:?}"))),
            _ => words.push(Word { column, text: Cow::Borrowed(chars.bare()) }),
        }
    }
    Ok(())
}

struct Chars<'a> {
    rest: &'a str,
    line: u32,
    column: u32,
}

impl<'a> Chars<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next();
        self.rest = chars.as_str();
        self.column += u32::from(c.is_some());
        c
    }

    fn error(&self, column: u32, message: String) -> TextError {
        TextError { line: self.line, column, message }
    }

    fn bare(&mut self) -> &'a str {
        let end = self.rest.find(|c| !is_plain(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.column += word.chars().count() as u32;
        word
    }

    fn quoted(&mut self) -> Result<String, TextError> {
        let start = self.column;
        self.next();
        let mut word = String::new();
        loop {
            let column = self.column;
            match self.next() {
                Some('"') => return Ok(word),
                Some('\\') => match self.escape() {
                    Some(c) => word.push(c),
                    None => {
                        let message = "an escape other than \\\\ \\\" \\n \\r \\t \\u{…}".to_string();
                        return Err(self.error(column, message));
                    }
                },
                Some(c) => word.push(c),
                None => return Err(self.error(start, "a quote without its end".to_string())),
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        match self.next()? {
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            c @ ('\\' | '"') => Some(c),
            'u' => {
                if self.next()? != '{' {
                    return None;
                }
                let mut code = 0u32;
                for _ in 0..7 {
                    match self.next()? {
                        '}' => return char::from_u32(code),
                        digit => code = (code << 4) | digit.to_digit(16)?,
                    }
                }
                None
            }
            _ => None,
        }
    }
}

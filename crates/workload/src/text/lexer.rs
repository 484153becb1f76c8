//! Lines into words: bare or quoted, with their columns; a `#` starts a comment.

use super::TextError;

/// A word of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub column: u32,
    pub text: String,
}

/// Whether a name can stand in a file without quotes.
pub(super) fn is_bare(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| !(c.is_whitespace() || c.is_control() || c == '"' || c == '#'))
}

/// The words of one line.
pub(super) fn words(text: &str, line: u32) -> Result<Vec<Word>, TextError> {
    let mut words = Vec::new();
    let mut chars = Chars { rest: text.chars().peekable(), line, column: 1 };
    while let Some(c) = chars.peek() {
        let column = chars.column;
        match c {
            '#' => break,
            '"' => words.push(Word { column, text: chars.quoted()? }),
            c if c.is_whitespace() => {
                chars.next();
            }
            c if c.is_control() => return Err(chars.error(column, format!("a stray character {c:?}"))),
            _ => words.push(Word { column, text: chars.bare() }),
        }
    }
    Ok(words)
}

struct Chars<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    line: u32,
    column: u32,
}

impl Chars<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.next();
        self.column += u32::from(c.is_some());
        c
    }

    fn error(&self, column: u32, message: String) -> TextError {
        TextError { line: self.line, column, message }
    }

    fn bare(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) =
            self.peek().filter(|c| !(c.is_whitespace() || c.is_control() || "\"#".contains(*c)))
        {
            word.push(c);
            self.next();
        }
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

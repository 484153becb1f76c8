//! What can be wrong with a deck, said with its line; and numbers that are judged as they are read.

use toml::Spanned;

/// What is wrong with a deck.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct DeckError {
    /// The line, counted from one.
    pub line: usize,
    /// What is wrong there.
    pub what: Wrong,
}

/// What can be wrong with a deck.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Wrong {
    /// Not TOML, or a value of another kind.
    #[error("{0}")]
    Text(String),
    /// A key that nothing knows.
    #[error("there is no key `{key}` here{}; there are {}", nearest.as_ref().map_or(String::new(), |key| format!(", did you mean `{key}`?")), known.join(", "))]
    Key {
        /// The key.
        key: String,
        /// The one that is spelt most like it.
        nearest: Option<String>,
        /// All that there are.
        known: Vec<String>,
    },
    /// A number that makes no sense.
    #[error("`{key}` is {is}, and must be {must}")]
    Number {
        /// Its key.
        key: &'static str,
        /// What it is.
        is: String,
        /// What it must be.
        must: String,
    },
    /// A name that nothing has.
    #[error("`{key}` is `{is}`; there are {known}")]
    Name {
        /// The key.
        key: &'static str,
        /// The name.
        is: String,
        /// All that there are.
        known: &'static str,
    },
    /// A time step with which waves grow without bound.
    #[error(
        "a step of {step} is beyond Courant's limit of {limit:.6} for these cells; `courant = 0.99` in [grid] takes 0.99 of it"
    )]
    Courant {
        /// The step.
        step: f64,
        /// The limit.
        limit: f64,
    },
    /// Ends that absorb everything.
    #[error(
        "the ends absorb {absorber} cells each{}, and leave none of the {cells} cells along {axis}; more cells or a smaller `absorber` in [grid] would do", if *whole > 1 { format!(", in whole tiles of {whole}") } else { String::new() }
    )]
    NoCells {
        /// The axis.
        axis: char,
        /// Its cells.
        cells: usize,
        /// How many absorb at either end.
        absorber: usize,
        /// The cells that a window drops at once; one without a window.
        whole: usize,
    },
    /// A window that cannot move.
    #[error("{0}")]
    Window(String),
    /// Two species of one name.
    #[error("there are two species called `{0}`")]
    Twice(String),
}

/// The most cells along an axis, and particles in a cell along an axis.
const MOST: i64 = 1 << 16;

/// A deck's text, to name lines in it, and its dimensions.
pub(super) struct Source<'a> {
    pub(super) text: &'a str,
    pub(super) dimensions: usize,
}

impl Source<'_> {
    pub(super) fn line(&self, at: usize) -> usize {
        self.text.as_bytes()[..at.min(self.text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
    }

    pub(super) fn wrong<T>(&self, at: &Spanned<T>, what: Wrong) -> DeckError {
        DeckError { line: self.line(at.span().start), what }
    }

    pub(super) fn number<T: std::fmt::Debug>(
        &self,
        key: &'static str,
        at: &Spanned<T>,
        must: &str,
    ) -> DeckError {
        self.wrong(at, Wrong::Number { key, is: format!("{:?}", at.get_ref()), must: must.to_string() })
    }

    /// A whole number that is at least `least`.
    pub(super) fn count(&self, key: &'static str, at: &Spanned<i64>, least: i64) -> Result<u64, DeckError> {
        let ok = *at.get_ref() >= least;
        if ok { Ok(*at.get_ref() as u64) } else { Err(self.number(key, at, &format!("{least} at least"))) }
    }

    /// What stands for each axis: of two dimensions x and z, and for y what says that it is flat.
    pub(super) fn each<T: Copy + std::fmt::Debug>(
        &self,
        key: &'static str,
        at: &Spanned<Vec<T>>,
        flat: T,
    ) -> Result<[T; 3], DeckError> {
        match (self.dimensions, &at.get_ref()[..]) {
            (3, [x, y, z]) => Ok([*x, *y, *z]),
            (2, [x, z]) => Ok([*x, flat, *z]),
            (2, _) => Err(self.number(key, at, "two numbers, for x and z, in two dimensions")),
            _ => Err(self.number(key, at, "three numbers, for x, y and z")),
        }
    }

    pub(super) fn counts(&self, key: &'static str, at: &Spanned<Vec<i64>>) -> Result<[usize; 3], DeckError> {
        let each = self.each(key, at, 1)?;
        let ok = each.iter().all(|n| (1..=MOST).contains(n));
        let must = format!("{} numbers from 1 to {MOST}", if self.dimensions == 2 { "two" } else { "three" });
        if ok { Ok(each.map(|n| n as usize)) } else { Err(self.number(key, at, &must)) }
    }

    /// A finite number above zero, or zero where that is allowed.
    pub(super) fn positive(
        &self,
        key: &'static str,
        at: &Spanned<f64>,
        zero: bool,
    ) -> Result<f64, DeckError> {
        let x = *at.get_ref();
        let ok = x.is_finite() && (x > 0.0 || zero && x == 0.0);
        if ok {
            Ok(x)
        } else {
            Err(self.number(key, at, if zero { "zero or more" } else { "more than zero" }))
        }
    }
}

/// What the parser has to say, with the key that was probably meant.
pub(super) fn unreadable(source: &Source<'_>, error: &toml::de::Error) -> DeckError {
    let line = source.line(error.span().map_or(0, |span| span.start));
    let message = error.message();
    let quoted: Vec<String> = message.split('`').skip(1).step_by(2).map(str::to_string).collect();
    if message.starts_with("unknown field") && quoted.len() > 1 {
        let (key, known) = (quoted[0].clone(), quoted[1..].to_vec());
        let nearest = known.iter().min_by_key(|other| distance(&key, other));
        let nearest = nearest.filter(|other| distance(&key, other) <= key.len().div_ceil(2)).cloned();
        return DeckError { line, what: Wrong::Key { key, nearest, known } };
    }
    DeckError { line, what: Wrong::Text(message.to_string()) }
}

/// How many letters have to change, come or go.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

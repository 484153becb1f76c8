//! Amounts as types, so that a size is never added to a time.
//!
//! Every amount prints the way a person would write it (`512 MiB`, `3.2 ms`, `55.5 GB/s`), and sizes and
//! bandwidths read back from such text, in machine files and on the command line.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An amount of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A duration, or a moment counted from the start of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

/// The position of a kernel in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Step(pub u32);

/// The position of a tier in its machine; tier 0 is the fastest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TierId(pub u8);

/// A rate of moving bytes, in bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Bandwidth(pub f64);

impl Bytes {
    /// No bytes at all.
    pub const ZERO: Bytes = Bytes(0);

    /// `n` times 1024 bytes.
    pub const fn kib(n: u64) -> Bytes {
        Bytes(n << 10)
    }

    /// `n` times 1024² bytes.
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n << 20)
    }

    /// `n` times 1024³ bytes.
    pub const fn gib(n: u64) -> Bytes {
        Bytes(n << 30)
    }

    /// The smallest multiple of `grain` that is no less than this, or `None` where no 64-bit number is.
    pub fn round_up(self, grain: Bytes) -> Option<Bytes> {
        self.0.checked_next_multiple_of(grain.0).map(Bytes)
    }

    /// The difference, or zero where `other` is larger.
    pub fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl Nanos {
    /// No time at all.
    pub const ZERO: Nanos = Nanos(0);

    /// The duration in seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// A duration from seconds, rounded to the nearest nanosecond; negative and not-a-number become zero.
    pub fn from_seconds(seconds: f64) -> Nanos {
        Nanos((seconds * 1e9).round() as u64)
    }

    /// The difference, or zero where `other` is later.
    pub fn saturating_sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl Step {
    /// Before the first kernel, when objects get their first contents.
    pub const LOAD: Step = Step(u32::MAX);
}

impl TierId {
    /// This tier's position as an index into `Machine::tiers`.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl Bandwidth {
    /// A bandwidth of `n` times 10⁹ bytes a second.
    pub const fn gb(n: f64) -> Bandwidth {
        Bandwidth(n * 1e9)
    }

    /// How long `bytes` take at this rate, rounded up so that work never takes no time.
    pub fn time(self, bytes: Bytes) -> Nanos {
        Nanos((bytes.0 as f64 / self.0 * 1e9).ceil() as u64)
    }
}

macro_rules! arithmetic {
    ($($unit:ident),*) => {$(
        impl Add for $unit {
            type Output = $unit;
            fn add(self, other: $unit) -> $unit { $unit(self.0 + other.0) }
        }
        impl Sub for $unit {
            type Output = $unit;
            fn sub(self, other: $unit) -> $unit { $unit(self.0 - other.0) }
        }
        impl AddAssign for $unit {
            fn add_assign(&mut self, other: $unit) { self.0 += other.0 }
        }
        impl SubAssign for $unit {
            fn sub_assign(&mut self, other: $unit) { self.0 -= other.0 }
        }
        impl Mul<u64> for $unit {
            type Output = $unit;
            fn mul(self, n: u64) -> $unit { $unit(self.0 * n) }
        }
        impl Sum for $unit {
            fn sum<I: Iterator<Item = $unit>>(all: I) -> $unit { $unit(all.map(|x| x.0).sum()) }
        }
    )*};
}
arithmetic!(Bytes, Nanos);

/// Prints `value` with up to four significant digits and no trailing zeros.
fn short(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    let decimals = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    f.pad(&format!("{text} {unit}"))
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        short(f, value, UNITS[unit])
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        match self.0 {
            0..1_000 => f.pad(&format!("{} ns", self.0)),
            1_000..1_000_000 => short(f, ns / 1e3, "µs"),
            1_000_000..1_000_000_000 => short(f, ns / 1e6, "ms"),
            _ => short(f, ns / 1e9, "s"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Step::LOAD => f.write_str("loading"),
            Step(step) => write!(f, "step {step}"),
        }
    }
}

impl fmt::Display for TierId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tier {}", self.0)
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        short(f, self.0 / 1e9, "GB/s")
    }
}

/// Why a text is not an amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {wanted}")]
pub struct UnitError {
    text: String,
    wanted: &'static str,
}

/// Splits `8.5 GiB` into the number and the unit, both trimmed.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    let number: f64 = text[..end].replace('_', "").parse().ok()?;
    Some((number, text[end..].trim()))
}

/// The factor that a unit of size stands for: `GiB` is 1024³, `GB` is 1000³, and a bare `G` is 1024³.
fn size_factor(unit: &str) -> Option<f64> {
    let unit = unit.to_ascii_lowercase();
    let (prefix, base) = match unit.as_str() {
        "" | "b" => return Some(1.0),
        u if u.ends_with("ib") => (&u[..u.len() - 2], 1024.0),
        u if u.ends_with('b') => (&u[..u.len() - 1], 1000.0),
        u => (u, 1024.0),
    };
    let power = ["k", "m", "g", "t", "p"].iter().position(|p| *p == prefix)?;
    Some(f64::powi(base, power as i32 + 1))
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Bytes, UnitError> {
        let bad = || UnitError { text: text.to_string(), wanted: "a size such as 64 KiB, 8GiB or 1.5 GB" };
        if let Ok(exact) = text.trim().replace('_', "").parse::<u64>() {
            return Ok(Bytes(exact));
        }
        let (number, unit) = split(text).ok_or_else(bad)?;
        let value = number * size_factor(unit).ok_or_else(bad)?;
        if value >= u64::MAX as f64 { Err(bad()) } else { Ok(Bytes(value.round() as u64)) }
    }
}

impl FromStr for Bandwidth {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Bandwidth, UnitError> {
        let bad =
            || UnitError { text: text.to_string(), wanted: "a bandwidth such as 55.5 GB/s or 800 MB/s" };
        let (number, unit) = split(text).ok_or_else(bad)?;
        let unit = unit.strip_suffix("/s").ok_or_else(bad)?;
        Ok(Bandwidth(number * size_factor(unit.trim()).ok_or_else(bad)?))
    }
}

impl FromStr for Nanos {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Nanos, UnitError> {
        let bad = || UnitError { text: text.to_string(), wanted: "a time such as 90 ns, 1.5 us or 2 ms" };
        let (number, unit) = split(text).ok_or_else(bad)?;
        let factor = match unit {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => return Err(bad()),
        };
        let value = number * factor;
        if value >= u64::MAX as f64 { Err(bad()) } else { Ok(Nanos(value.round() as u64)) }
    }
}

/// The text form of an amount in a machine file: `capacity = "96 GiB"`, `latency = "90 ns"`.
pub(crate) mod text {
    use super::*;

    /// Writes the amount as text that reads back to the very same amount.
    pub fn serialize<T: Exact, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&value.exact())
    }

    /// Reads the amount from text.
    pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err = UnitError>,
        D: Deserializer<'de>,
    {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }

    /// An amount that can be written without losing a digit.
    pub trait Exact {
        /// The amount as text that reads back to the very same amount.
        fn exact(&self) -> String;
    }

    impl Exact for Bytes {
        fn exact(&self) -> String {
            for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
                if self.0 != 0 && self.0.trailing_zeros() >= shift {
                    return format!("{} {unit}", self.0 >> shift);
                }
            }
            self.0.to_string()
        }
    }

    impl Exact for Nanos {
        fn exact(&self) -> String {
            format!("{} ns", self.0)
        }
    }

    impl Exact for Bandwidth {
        fn exact(&self) -> String {
            let gb = self.0 / 1e9;
            if gb * 1e9 == self.0 { format!("{gb} GB/s") } else { format!("{} B/s", self.0) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_print_as_people_write_them() {
        let bytes = [0, 1023, 1024, 1536, 96 << 20, 658_000_000_000];
        let shown: Vec<String> = bytes.iter().map(|b| Bytes(*b).to_string()).collect();
        assert_eq!(shown, ["0 B", "1023 B", "1 KiB", "1.5 KiB", "96 MiB", "613 GiB"]);
        let times = [999, 1_500, 2_000_000, 184_000_000, 61_300_000_000];
        let shown: Vec<String> = times.iter().map(|t| Nanos(*t).to_string()).collect();
        assert_eq!(shown, ["999 ns", "1.5 µs", "2 ms", "184 ms", "61.3 s"]);
        assert_eq!(Bandwidth::gb(55.5).to_string(), "55.5 GB/s");
    }

    #[test]
    fn sizes_read_back() {
        for (text, bytes) in
            [("64", 64), ("8GiB", 8 << 30), ("1.5 GB", 1_500_000_000), ("2k", 2048), ("1_000 B", 1000)]
        {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "GiB", "8 GiBs", "-1", "1e9", "99999999 PiB"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        assert_eq!("12 GB/s".parse::<Bandwidth>(), Ok(Bandwidth(12e9)));
        assert!("12 GB".parse::<Bandwidth>().is_err());
        assert_eq!("1.5us".parse::<Nanos>(), Ok(Nanos(1500)));
    }

    #[test]
    fn exact_text_loses_nothing() {
        use text::Exact;
        for b in [0, 1, 63, 1024, 3 << 20, 5 << 30, u64::MAX >> 1, 1 << 50] {
            assert_eq!(Bytes(b).exact().parse::<Bytes>(), Ok(Bytes(b)));
        }
        for b in [1.0, 2.5e9, 1e9 / 3.0, 104e9] {
            assert_eq!(Bandwidth(b).exact().parse::<Bandwidth>(), Ok(Bandwidth(b)));
        }
    }
}

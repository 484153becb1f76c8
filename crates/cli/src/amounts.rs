//! Shares, durations and counts as people write them on a command line.

use std::time::Duration;

/// `5%` or `0.05`.
pub fn share(text: &str) -> Result<f64, String> {
    let bad = || format!("`{text}` is no share such as 5% or 0.05");
    let (number, whole) = match text.trim().strip_suffix('%') {
        Some(number) => (number.trim(), 100.0),
        None => (text.trim(), 1.0),
    };
    let share = number.parse::<f64>().map_err(|_| bad())? / whole;
    if share.is_finite() && (0.0..=100.0).contains(&share) { Ok(share) } else { Err(bad()) }
}

/// A share of what is wanted, none of it excluded and no more than all.
pub fn recall(text: &str) -> Result<f64, String> {
    let part = share(text).ok().filter(|part| *part > 0.0 && *part <= 1.0);
    part.ok_or_else(|| format!("`{text}` is no recall above 0 and up to 1, such as 0.95 or 95%"))
}

/// A whole number.
pub fn count(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is no whole number between 0 and {}", u64::MAX))
}

/// `10s`, `500ms`, `2m`, or seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is no time such as 10s, 500ms or 2m");
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..digits].parse().map_err(|_| bad())?;
    let seconds = match text[digits..].trim() {
        "" | "s" => number,
        "ms" => number / 1e3,
        "us" | "µs" => number / 1e6,
        "ns" => number / 1e9,
        "m" | "min" => number * 60.0,
        _ => return Err(bad()),
    };
    // A year is enough for anybody.
    if seconds <= 3.2e7 { Ok(Duration::from_secs_f64(seconds)) } else { Err(bad()) }
}

/// How many threads: at least one, and no more than anybody has.
pub fn threads(text: &str) -> Result<usize, String> {
    let count = text.trim().parse().ok().filter(|count| (1..=4096).contains(count));
    count.ok_or_else(|| format!("`{text}` is no number of threads between 1 and 4096"))
}

/// A learning rate.
pub fn rate(text: &str) -> Result<f32, String> {
    let rate = text.trim().parse().ok().filter(|rate: &f32| rate.is_finite() && *rate >= 0.0);
    rate.ok_or_else(|| format!("`{text}` is no learning rate such as 0.01"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_read() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share(" 0.5 % "), Ok(0.005));
        assert_eq!(share("0.25"), Ok(0.25));
        for text in ["", "%", "-1%", "nan", "inf%", "five"] {
            assert!(share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn recalls_are_shares_of_no_more_than_all() {
        assert_eq!((recall("0.95"), recall("99%"), recall("1")), (Ok(0.95), Ok(0.99), Ok(1.0)));
        for text in ["1.5", "0", "-0.5", "101%", "all", "nan"] {
            assert!(recall(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_read() {
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("20 ms"), Ok(Duration::from_millis(20)));
        assert_eq!(duration("90 us"), Ok(Duration::from_micros(90)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for text in ["", "s", "-1s", "1h", "1e400", "99999999999s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_and_rates_read() {
        assert_eq!((count("0"), count(" 18446744073709551615 ")), (Ok(0), Ok(u64::MAX)));
        for text in ["", "-1", "1.5", "18446744073709551616", "many"] {
            assert!(count(text).is_err(), "{text}");
        }
        assert_eq!((threads("2"), rate("1e-3")), (Ok(2), Ok(1e-3)));
        for text in ["", "0", "-1", "1.5", "5000", "two"] {
            assert!(threads(text).is_err(), "{text}");
        }
        for text in ["", "-0.1", "nan", "inf", "1e99", "low"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}

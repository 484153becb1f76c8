//! Round numbers along an axis.

/// About `count` round numbers from `low` to `high`: steps are 1, 2 or 5 times a power of ten.
pub(crate) fn ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let range = high - low;
    if !(range.is_finite() && range > 0.0) || count == 0 {
        return vec![low];
    }
    let rough = range / count as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|step| *step >= rough);
    within(low, high, step.unwrap_or(power * 10.0))
}

/// About `count` round amounts of bytes: steps are powers of two.
pub(crate) fn byte_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let range = high - low;
    if !(range.is_finite() && range > 0.0) || count == 0 {
        return vec![low];
    }
    let rough = (range / count as f64).max(1.0);
    within(low, high, 2f64.powf(rough.log2().ceil()))
}

fn within(low: f64, high: f64, step: f64) -> Vec<f64> {
    let first = (low / step).ceil();
    let mut all = Vec::new();
    let mut at = first;
    while at * step <= high * (1.0 + 1e-12) && all.len() < 100 {
        all.push(at * step);
        at += 1.0;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks(0.0, 10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(3.0, 47.0, 5), [10.0, 20.0, 30.0, 40.0]);
        assert_eq!(byte_ticks(0.0, 1024.0, 4), [0.0, 256.0, 512.0, 768.0, 1024.0]);
        assert_eq!(ticks(1.0, 1.0, 5), [1.0]);
        assert_eq!(ticks(0.0, f64::NAN, 5), [0.0]);
        for exponent in -20..20 {
            let high = 1.7 * 10f64.powi(exponent);
            let all = ticks(0.0, high, 6);
            assert!((3..=13).contains(&all.len()) && all.iter().all(|t| *t <= high * 1.000001), "{all:?}");
        }
    }
}

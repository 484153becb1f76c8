//! Least squares that outliers do not rule: Levenberg and Marquardt's step on reweighted residuals, within bounds.

/// A parameter to be found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub low: f64,
    pub high: f64,
}

/// Finds parameters near `start` that make the residuals small. A residual far above `scale` counts by its size
/// rather than by its square, so that the result leans to the median and not to the mean.
pub(crate) fn minimise(
    residuals: impl Fn(&[f64]) -> Vec<f64>,
    start: &[f64],
    bounds: &[Bounds],
    scale: f64,
    rounds: usize,
) -> Vec<f64> {
    let cost = |r: &[f64]| r.iter().map(|r| (1.0 + (r / scale).powi(2)).sqrt() - 1.0).sum::<f64>();
    let mut at = start.to_vec();
    let mut here = residuals(&at);
    let mut best = cost(&here);
    let mut damping = 1e-2;
    for _ in 0..rounds {
        let slopes: Vec<Vec<f64>> =
            (0..at.len()).map(|i| slope(&residuals, &at, &bounds[i], i, &here)).collect();
        let weights: Vec<f64> = here.iter().map(|r| 1.0 / (1.0 + (r / scale).powi(2)).sqrt()).collect();
        let dot = |a: &[f64], b: &[f64]| -> f64 {
            a.iter().zip(b).zip(&weights).map(|((a, b), w)| a * b * w).sum()
        };
        let normal: Vec<Vec<f64>> =
            slopes.iter().map(|a| slopes.iter().map(|b| dot(a, b)).collect()).collect();
        let downhill: Vec<f64> = slopes.iter().map(|a| -dot(a, &here)).collect();
        let before = best;
        for _ in 0..8 {
            let step = solve(&normal, &downhill, damping);
            let moved = |((x, s), b): ((&f64, &f64), &Bounds)| (x + s.clamp(-1.0, 1.0)).clamp(b.low, b.high);
            let next: Vec<f64> = at.iter().zip(&step).zip(bounds).map(moved).collect();
            let there = residuals(&next);
            let found = cost(&there);
            if found.is_finite() && found < best {
                (at, here, best) = (next, there, found);
                damping = (damping / 5.0).max(1e-9);
                break;
            }
            damping = (damping * 4.0).min(1e9);
        }
        if before - best < 1e-6 * before {
            break;
        }
    }
    at
}

/// How the residuals change with parameter `i`.
fn slope(
    residuals: &impl Fn(&[f64]) -> Vec<f64>,
    at: &[f64],
    bounds: &Bounds,
    i: usize,
    here: &[f64],
) -> Vec<f64> {
    let mut aside = at.to_vec();
    let step = if at[i] + 1e-4 > bounds.high { -1e-4 } else { 1e-4 };
    aside[i] += step;
    residuals(&aside).iter().zip(here).map(|(there, here)| (there - here) / step).collect()
}

/// Solves the damped normal equations by elimination.
fn solve(normal: &[Vec<f64>], right: &[f64], damping: f64) -> Vec<f64> {
    let n = right.len();
    let mut rows: Vec<Vec<f64>> =
        normal.iter().zip(right).map(|(row, r)| [&row[..], &[*r]].concat()).collect();
    for (i, row) in rows.iter_mut().enumerate() {
        row[i] += damping * row[i].max(1e-9) + 1e-12;
    }
    for i in 0..n {
        let pivot = rows[i].clone();
        for row in rows.iter_mut().skip(i + 1) {
            let factor = row[i] / pivot[i];
            row.iter_mut().zip(&pivot).skip(i).for_each(|(x, p)| *x -= factor * p);
        }
    }
    let mut found = vec![0.0; n];
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|j| rows[i][j] * found[j]).sum();
        found[i] = (rows[i][n] - known) / rows[i][i];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_among_outliers() {
        let points: Vec<(f64, f64)> = (0..40)
            .map(|x| (f64::from(x), 3.0 + 0.5 * f64::from(x) + if x % 7 == 0 { 50.0 } else { 0.0 }))
            .collect();
        let residuals = |p: &[f64]| points.iter().map(|(x, y)| p[0] + p[1] * x - y).collect();
        let free = Bounds { low: -100.0, high: 100.0 };
        let found = minimise(residuals, &[0.0, 0.0], &[free; 2], 0.01, 200);
        assert!((found[0] - 3.0).abs() < 0.1 && (found[1] - 0.5).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn bounds_hold() {
        let residuals = |p: &[f64]| vec![p[0] - 5.0, 0.1 * p[1]];
        let found = minimise(residuals, &[0.0, 1.0], &[Bounds { low: -1.0, high: 2.0 }; 2], 1.0, 50);
        assert_eq!(found[0], 2.0);
    }
}

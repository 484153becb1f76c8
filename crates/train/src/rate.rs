//! Learning rates over time, as a factor on the rate that the optimizer has.
//!
//! A factor is computed from the iteration alone, so that a resumed run goes on as if it had never stopped, and a
//! network with two optimizers has one schedule.

use std::fmt;
use std::str::FromStr;

/// What the learning rate is multiplied by, iteration by iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Schedule {
    /// Always 1.
    #[default]
    Constant,
    /// Multiplied by `factor` after every `every` iterations.
    Step {
        /// Iterations between two drops.
        every: u64,
        /// What remains of the rate at a drop.
        factor: f32,
    },
    /// Rises evenly to 1 over `warmup` iterations, then falls along half a cosine until `iterations` are done, and
    /// stays at zero.
    Cosine {
        /// Iterations until the full rate.
        warmup: u64,
        /// Iterations in all.
        iterations: u64,
    },
}

impl Schedule {
    /// The factor in the iteration that this many came before.
    pub fn factor(self, iteration: u64) -> f32 {
        match self {
            Schedule::Constant => 1.0,
            Schedule::Step { every, factor } => {
                let drops = (iteration / every.max(1)).min(i32::MAX as u64);
                factor.powi(drops as i32)
            }
            Schedule::Cosine { warmup, .. } if iteration < warmup => {
                ((iteration + 1) as f64 / warmup as f64) as f32
            }
            Schedule::Cosine { warmup, iterations } => {
                let whole = iterations.saturating_sub(warmup);
                if iteration >= iterations || whole == 0 {
                    return 0.0;
                }
                let along = (iteration - warmup) as f64 / whole as f64;
                (0.5 * (1.0 + (std::f64::consts::PI * along).cos())) as f32
            }
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Constant => f.write_str("constant"),
            Schedule::Step { every, factor } => write!(f, "step:{every}:{factor}"),
            Schedule::Cosine { warmup, iterations } => write!(f, "cosine:{warmup}:{iterations}"),
        }
    }
}

/// What is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no schedule; there are constant, step:EVERY:FACTOR and cosine[:WARMUP[:ITERATIONS]], all in iterations"
)]
pub struct ScheduleError(String);

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Schedule, ScheduleError> {
        let wrong = || ScheduleError(text.to_string());
        let parts: Vec<&str> = text.split(':').collect();
        let count = |part: &str| part.parse::<u64>().map_err(|_| wrong());
        match parts[..] {
            ["constant"] => Ok(Schedule::Constant),
            ["step", every, factor] => {
                let (every, factor) = (count(every)?, factor.parse::<f32>().map_err(|_| wrong())?);
                let sound = every > 0 && factor.is_finite() && factor > 0.0;
                if sound { Ok(Schedule::Step { every, factor }) } else { Err(wrong()) }
            }
            ["cosine", warmup, iterations] => {
                let (warmup, iterations) = (count(warmup)?, count(iterations)?);
                if warmup <= iterations { Ok(Schedule::Cosine { warmup, iterations }) } else { Err(wrong()) }
            }
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let factors = |text: &str, at: &[u64]| {
            let schedule: Schedule = text.parse().expect("a schedule");
            assert_eq!(schedule.to_string(), text);
            at.iter().map(|i| schedule.factor(*i)).collect::<Vec<f32>>()
        };
        assert_eq!(factors("constant", &[0, 1, u64::MAX]), [1.0, 1.0, 1.0]);
        assert_eq!(factors("step:10:0.5", &[0, 9, 10, 19, 20, 35]), [1.0, 1.0, 0.5, 0.5, 0.25, 0.125]);
        assert_eq!(factors("step:1:0.5", &[u64::MAX]), [0.0]);
        assert_eq!(
            factors("cosine:4:104", &[0, 1, 2, 3, 4, 54, 104, 1000]),
            [0.25, 0.5, 0.75, 1.0, 1.0, 0.5, 0.0, 0.0]
        );
        assert_eq!(factors("cosine:0:3", &[0, 1, 2, 3]), [1.0, 0.75, 0.25, 0.0]);
    }

    #[test]
    fn what_is_no_schedule_is_refused_by_name() {
        for text in ["", "cosine", "step:0:0.5", "step:5:nan", "step:5:-1", "cosine:10:5", "linear", "step:5"]
        {
            let error = text.parse::<Schedule>().expect_err(text).to_string();
            assert!(error.contains(&format!("`{text}` is no schedule")), "{error}");
        }
    }
}

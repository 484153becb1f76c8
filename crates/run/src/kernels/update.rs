//! How weights change: gradient descent with momentum, and AdamW, for whole weights and for rows of tables.
//!
//! Whether the new weights are finite is found out while they are in registers: their largest exponent says so.

use std::sync::atomic::{AtomicBool, Ordering};

use tiercel_workload::graph::Optimizer;

use super::args::{Args, Moment};
use super::simd::wide;

/// The exponent of numbers that are not finite.
const EXPONENT: u32 = 0x7f80_0000;

/// The largest exponent with that of a number.
#[inline(always)]
fn largest(most: u32, w: f32) -> u32 {
    most.max(w.to_bits() & EXPONENT)
}

wide! {
    /// Gradient descent without memory. Like the others it returns the largest exponent of a new weight.
    fn plain(w: &mut [f32], g: &[f32], rate: f32, decay: f32) -> u32 {
        w.iter_mut().zip(g).fold(0, |most, (w, g)| {
            *w -= rate * (g + decay * *w);
            largest(most, *w)
        })
    }
}

wide! {
    /// Gradient descent with momentum.
    fn momentum(w: &mut [f32], g: &[f32], m: &mut [f32], rate: f32, keep: f32, decay: f32) -> u32 {
        w.iter_mut().zip(g).zip(m).fold(0, |most, ((w, g), m)| {
            *m = keep * *m + (g + decay * *w);
            *w -= rate * *m;
            largest(most, *w)
        })
    }
}

/// AdamW's numbers for one iteration.
#[derive(Clone, Copy)]
pub(super) struct Adam {
    rate: f32,
    keep: [f32; 2],
    epsilon: f32,
    decay: f32,
    /// What the two means are multiplied with, because they began at zero.
    corrections: [f32; 2],
}

wide! {
    /// Adam with decoupled weight decay.
    fn adam(w: &mut [f32], g: &[f32], m: &mut [f32], s: &mut [f32], a: Adam) -> u32 {
        w.iter_mut().zip(g).zip(m).zip(s).fold(0, |most, (((w, g), m), s)| {
            *m = a.keep[0] * *m + (1.0 - a.keep[0]) * g;
            *s = a.keep[1] * *s + (1.0 - a.keep[1]) * g * g;
            let step = (*m * a.corrections[0]) / ((*s * a.corrections[1]).sqrt() + a.epsilon);
            *w -= a.rate * (step + a.decay * *w);
            largest(most, *w)
        })
    }
}

/// How weights change in one iteration.
#[derive(Clone, Copy)]
pub(super) enum Rule {
    Plain { rate: f32, decay: f32 },
    Momentum { rate: f32, keep: f32, decay: f32 },
    Adam(Adam),
}

impl Rule {
    pub fn new(optimizer: Optimizer, moment: Moment) -> Rule {
        match optimizer {
            Optimizer::Sgd { rate, momentum: 0.0, decay } => Rule::Plain { rate: rate * moment.rate, decay },
            Optimizer::Sgd { rate, momentum: keep, decay } => {
                Rule::Momentum { rate: rate * moment.rate, keep, decay }
            }
            Optimizer::AdamW { rate, betas, epsilon, decay } => {
                let steps = i32::try_from(moment.iteration + 1).unwrap_or(i32::MAX);
                let corrections = betas.map(|b| (1.0 / (1.0 - f64::from(b).powi(steps))) as f32);
                Rule::Adam(Adam { rate: rate * moment.rate, keep: betas, epsilon, decay, corrections })
            }
        }
    }

    /// Changes weights by their gradients; `first` and `second` are as long as the optimizer remembers them, or empty.
    /// Returns whether all new weights are finite.
    pub fn apply(self, w: &mut [f32], g: &[f32], first: &mut [f32], second: &mut [f32]) -> bool {
        let most = match self {
            Rule::Plain { rate, decay } => plain(w, g, rate, decay),
            Rule::Momentum { rate, keep, decay } => momentum(w, g, first, rate, keep, decay),
            Rule::Adam(numbers) => adam(w, g, first, second, numbers),
        };
        most < EXPONENT
    }
}

/// Changes a weight, and returns whether it is finite.
pub(super) fn whole(mut args: Args<'_, '_>, optimizer: Optimizer) -> Result<bool, String> {
    let g = args.read(1)?;
    let states = optimizer.states().len();
    let w = args.write(0)?;
    let first = if states > 0 { args.write(1)? } else { &mut [] };
    let second = if states > 1 { args.write(2)? } else { &mut [] };
    let master = args.write_optional(1 + states)?;
    let (rule, rows) = (Rule::new(optimizer, args.moment), [states > 0, states > 1].map(usize::from));
    let finite = AtomicBool::new(true);
    let mut run = |pool: &mut super::pool::Pool, w: &mut [f32]| {
        pool.rows3(4, (w, 1), (first, rows[0]), (second, rows[1]), |start, w, first, second| {
            if !rule.apply(w, &g[start..start + w.len()], first, second) {
                finite.store(false, Ordering::Relaxed);
            }
        });
    };
    match master {
        None => run(args.pool, w),
        Some(master) => {
            run(args.pool, master);
            args.pool.rows(w, 1, |start, w| w.copy_from_slice(&master[start..start + w.len()]));
        }
    }
    Ok(finite.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinite_weights_are_noticed() {
        let moment = Moment { seed: 0, iteration: 0, rate: 1.0 };
        for optimizer in [Optimizer::MOMENTUM, Optimizer::ADAMW] {
            for len in [1, 7, 64, 203] {
                let (mut w, mut m, mut s) = (vec![1f32; len], vec![0f32; len], vec![0f32; len]);
                let rule = Rule::new(optimizer, moment);
                assert!(rule.apply(&mut w, &vec![1.0; len], &mut m, &mut s), "nothing is wrong yet");
                for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
                    let mut w = w.clone();
                    w[len / 2] = bad;
                    assert!(!rule.apply(&mut w, &vec![1.0; len], &mut m, &mut s), "{bad} of {len}");
                }
            }
        }
    }
}

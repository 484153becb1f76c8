//! How weights change: gradient descent with momentum, and AdamW, for whole weights and for rows of tables.

use tiercel_workload::graph::Optimizer;

use super::args::{Args, Moment};
use super::simd::wide;

wide! {
    /// Gradient descent without memory.
    fn plain(w: &mut [f32], g: &[f32], rate: f32, decay: f32) {
        w.iter_mut().zip(g).for_each(|(w, g)| *w -= rate * (g + decay * *w));
    }
}

wide! {
    /// Gradient descent with momentum.
    fn momentum(w: &mut [f32], g: &[f32], m: &mut [f32], rate: f32, keep: f32, decay: f32) {
        w.iter_mut().zip(g).zip(m).for_each(|((w, g), m)| {
            *m = keep * *m + (g + decay * *w);
            *w -= rate * *m;
        });
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
    fn adam(w: &mut [f32], g: &[f32], m: &mut [f32], s: &mut [f32], a: Adam) {
        w.iter_mut().zip(g).zip(m).zip(s).for_each(|(((w, g), m), s)| {
            *m = a.keep[0] * *m + (1.0 - a.keep[0]) * g;
            *s = a.keep[1] * *s + (1.0 - a.keep[1]) * g * g;
            let step = (*m * a.corrections[0]) / ((*s * a.corrections[1]).sqrt() + a.epsilon);
            *w -= a.rate * (step + a.decay * *w);
        });
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
    pub fn apply(self, w: &mut [f32], g: &[f32], first: &mut [f32], second: &mut [f32]) {
        match self {
            Rule::Plain { rate, decay } => plain(w, g, rate, decay),
            Rule::Momentum { rate, keep, decay } => momentum(w, g, first, rate, keep, decay),
            Rule::Adam(numbers) => adam(w, g, first, second, numbers),
        }
    }
}

pub(super) fn whole(mut args: Args<'_, '_>, optimizer: Optimizer) -> Result<(), String> {
    let g = args.read(1)?;
    let states = optimizer.states().len();
    let w = args.write(0)?;
    let first = if states > 0 { args.write(1)? } else { &mut [] };
    let second = if states > 1 { args.write(2)? } else { &mut [] };
    let master = args.write_optional(1 + states)?;
    let (rule, rows) = (Rule::new(optimizer, args.moment), [states > 0, states > 1].map(usize::from));
    let mut run = |pool: &mut super::pool::Pool, w: &mut [f32]| {
        pool.rows3(4, (w, 1), (first, rows[0]), (second, rows[1]), |start, w, first, second| {
            rule.apply(w, &g[start..start + w.len()], first, second);
        });
    };
    match master {
        None => run(args.pool, w),
        Some(master) => {
            run(args.pool, master);
            args.pool.rows(w, 1, |start, w| w.copy_from_slice(&master[start..start + w.len()]));
        }
    }
    Ok(())
}

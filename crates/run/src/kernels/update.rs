//! How weights change: gradient descent with momentum, and AdamW, for whole weights and for rows of tables.
//!
//! Whether the new weights are finite is found out while they are in registers: their largest exponent says so.

use std::sync::atomic::{AtomicBool, Ordering};

use tiercel_workload::graph::Optimizer;

use super::args::{Args, Moment};
use super::simd::wide;

/// The exponent of numbers that are not finite.
const EXPONENT: u32 = 0x7f80_0000;

const LANES: usize = 16;

/// Weights that are looked at while they are in the cache.
const PIECE: usize = 1024;

/// The largest exponents of weights so far, each of some of them.
#[derive(Clone, Copy, Default)]
pub(super) struct Largest([u32; LANES]);

impl Largest {
    /// Whether all weights are finite.
    pub fn finite(self) -> bool {
        self.0.iter().all(|most| *most < EXPONENT)
    }
}

/// The larger exponent.
#[inline(always)]
fn larger(most: u32, w: f32) -> u32 {
    most.max(w.to_bits() & EXPONENT)
}

/// How weights change by their gradients. Like all others it looks at the new weights, and is part of loops that are
/// compiled for each kind of vectors.
pub(super) trait Step: Copy {
    /// Changes some weights; `first` and `second` are as long as the optimizer remembers them, or empty.
    fn step(self, w: &mut [f32], g: &[f32], first: &mut [f32], second: &mut [f32], most: &mut Largest);
}

/// Gradient descent without memory.
#[derive(Clone, Copy)]
pub(super) struct Plain {
    rate: f32,
    decay: f32,
}

impl Step for Plain {
    #[inline(always)]
    fn step(self, w: &mut [f32], g: &[f32], _: &mut [f32], _: &mut [f32], most: &mut Largest) {
        let (Plain { rate, decay }, mut all) = (self, most.0);
        // Piece by piece in two loops: of one the compiler takes the same lane of many vectors at once, which are far apart.
        for (w, g) in w.chunks_mut(PIECE).zip(g.chunks(PIECE)) {
            w.iter_mut().zip(g).for_each(|(w, g)| *w -= rate * (g + decay * *w));
            all[0] = w.iter().fold(all[0], |most, w| larger(most, *w));
        }
        most.0 = all;
    }
}

/// Gradient descent with momentum.
#[derive(Clone, Copy)]
pub(super) struct Momentum {
    rate: f32,
    keep: f32,
    decay: f32,
}

impl Step for Momentum {
    #[inline(always)]
    fn step(self, w: &mut [f32], g: &[f32], m: &mut [f32], _: &mut [f32], most: &mut Largest) {
        let (Momentum { rate, keep, decay }, mut all) = (self, most.0);
        let ((w, w_rest), (g, g_rest)) = (w.as_chunks_mut::<LANES>(), g.as_chunks::<LANES>());
        let (m, m_rest) = m.as_chunks_mut::<LANES>();
        for ((w, g), m) in w.iter_mut().zip(g).zip(m) {
            for lane in 0..LANES {
                m[lane] = keep * m[lane] + (g[lane] + decay * w[lane]);
                w[lane] -= rate * m[lane];
                all[lane] = larger(all[lane], w[lane]);
            }
        }
        for ((w, g), m) in w_rest.iter_mut().zip(g_rest).zip(m_rest) {
            *m = keep * *m + (g + decay * *w);
            *w -= rate * *m;
            all[0] = larger(all[0], *w);
        }
        most.0 = all;
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

/// One step of Adam with decoupled weight decay.
#[inline(always)]
fn adam_step(w: &mut f32, g: f32, m: &mut f32, s: &mut f32, a: Adam) {
    *m = a.keep[0] * *m + (1.0 - a.keep[0]) * g;
    *s = a.keep[1] * *s + (1.0 - a.keep[1]) * g * g;
    let step = (*m * a.corrections[0]) / ((*s * a.corrections[1]).sqrt() + a.epsilon);
    *w -= a.rate * (step + a.decay * *w);
}

impl Step for Adam {
    #[inline(always)]
    fn step(self, w: &mut [f32], g: &[f32], m: &mut [f32], s: &mut [f32], most: &mut Largest) {
        let ((w, w_rest), (g, g_rest), mut all) =
            (w.as_chunks_mut::<LANES>(), g.as_chunks::<LANES>(), most.0);
        let ((m, m_rest), (s, s_rest)) = (m.as_chunks_mut::<LANES>(), s.as_chunks_mut::<LANES>());
        for (((w, g), m), s) in w.iter_mut().zip(g).zip(m).zip(s) {
            for lane in 0..LANES {
                adam_step(&mut w[lane], g[lane], &mut m[lane], &mut s[lane], self);
                all[lane] = larger(all[lane], w[lane]);
            }
        }
        for (((w, g), m), s) in w_rest.iter_mut().zip(g_rest).zip(m_rest).zip(s_rest) {
            adam_step(w, *g, m, s, self);
            all[0] = larger(all[0], *w);
        }
        most.0 = all;
    }
}

wide! {
    /// Changes neighbouring weights.
    fn change[S: Step](step: S, w: &mut [f32], g: &[f32], first: &mut [f32], second: &mut [f32], most: &mut Largest) {
        step.step(w, g, first, second, most);
    }
}

/// How weights change in one iteration.
#[derive(Clone, Copy)]
pub(super) enum Rule {
    Plain(Plain),
    Momentum(Momentum),
    Adam(Adam),
}

impl Rule {
    pub fn new(optimizer: Optimizer, moment: Moment) -> Rule {
        match optimizer {
            Optimizer::Sgd { rate, momentum: 0.0, decay } => {
                Rule::Plain(Plain { rate: rate * moment.rate, decay })
            }
            Optimizer::Sgd { rate, momentum: keep, decay } => {
                Rule::Momentum(Momentum { rate: rate * moment.rate, keep, decay })
            }
            Optimizer::AdamW { rate, betas, epsilon, decay } => {
                let steps = i32::try_from(moment.iteration + 1).unwrap_or(i32::MAX);
                let corrections = betas.map(|b| (1.0 / (1.0 - f64::from(b).powi(steps))) as f32);
                Rule::Adam(Adam { rate: rate * moment.rate, keep: betas, epsilon, decay, corrections })
            }
        }
    }

    /// Changes weights by their gradients; `first` and `second` are as long as the optimizer remembers them, or empty.
    pub fn apply(self, w: &mut [f32], g: &[f32], first: &mut [f32], second: &mut [f32], most: &mut Largest) {
        match self {
            Rule::Plain(step) => change(step, w, g, first, second, most),
            Rule::Momentum(step) => change(step, w, g, first, second, most),
            Rule::Adam(step) => change(step, w, g, first, second, most),
        }
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
            let mut most = Largest::default();
            rule.apply(w, &g[start..start + w.len()], first, second, &mut most);
            if !most.finite() {
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
                let mut most = Largest::default();
                rule.apply(&mut w, &vec![1.0; len], &mut m, &mut s, &mut most);
                assert!(most.finite(), "nothing is wrong yet");
                for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
                    let mut w = w.clone();
                    w[len / 2] = bad;
                    let mut most = most;
                    rule.apply(&mut w, &vec![1.0; len], &mut m, &mut s, &mut most);
                    assert!(!most.finite(), "{bad} of {len}");
                }
            }
        }
    }
}

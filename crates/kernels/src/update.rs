//! How weights change: gradient descent with momentum, and AdamW, for whole weights and for rows of tables.
//!
//! Whether the new weights are finite is found out while they are in registers: what is taken from itself is zero, or not a
//! number.

use crate::KernelError;
use std::sync::atomic::{AtomicBool, Ordering};

use tiercel_workload::graph::Optimizer;

use super::args::{Args, Moment};
use super::simd::{Lanes, PARTS, lanes};

/// How a vector of weights changes by its gradients. All between it and the loops over vectors is inlined.
pub(super) trait Step: Copy {
    /// How many numbers the optimizer remembers of every weight.
    const STATES: usize;

    /// The new weights and what is remembered of them, first and second, as far as anything is.
    fn step<L: Lanes>(self, l: L, old: [L::Vector; 3], g: L::Vector) -> [L::Vector; 3];
}

/// Gradient descent without memory.
#[derive(Clone, Copy)]
pub(super) struct Plain {
    rate: f32,
    decay: f32,
}

impl Step for Plain {
    const STATES: usize = 0;

    #[inline(always)]
    fn step<L: Lanes>(self, l: L, [w, m, s]: [L::Vector; 3], g: L::Vector) -> [L::Vector; 3] {
        let slope = l.add(g, l.mul(l.splat(self.decay), w));
        [l.sub(w, l.mul(l.splat(self.rate), slope)), m, s]
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
    const STATES: usize = 1;

    #[inline(always)]
    fn step<L: Lanes>(self, l: L, [w, m, s]: [L::Vector; 3], g: L::Vector) -> [L::Vector; 3] {
        let slope = l.add(g, l.mul(l.splat(self.decay), w));
        let m = l.add(l.mul(l.splat(self.keep), m), slope);
        [l.sub(w, l.mul(l.splat(self.rate), m)), m, s]
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

impl Step for Adam {
    const STATES: usize = 2;

    /// Adam with decoupled weight decay.
    #[inline(always)]
    fn step<L: Lanes>(self, l: L, [w, m, s]: [L::Vector; 3], g: L::Vector) -> [L::Vector; 3] {
        let [keep, keep_square] = self.keep;
        let m = l.add(l.mul(l.splat(keep), m), l.mul(l.splat(1.0 - keep), g));
        let square = l.mul(l.mul(l.splat(1.0 - keep_square), g), g);
        let s = l.add(l.mul(l.splat(keep_square), s), square);
        let [mean, deviation] =
            [l.mul(m, l.splat(self.corrections[0])), l.mul(s, l.splat(self.corrections[1]))];
        let step = l.div(mean, l.add(l.root(deviation), l.splat(self.epsilon)));
        let change = l.add(step, l.mul(l.splat(self.decay), w));
        [l.sub(w, l.mul(l.splat(self.rate), change)), m, s]
    }
}

/// Weights, and what an optimizer remembers of them: each as many numbers, or none.
pub(super) struct Weights<'s> {
    pub w: &'s mut [f32],
    pub first: &'s mut [f32],
    pub second: &'s mut [f32],
}

impl Weights<'_> {
    /// Changes those of a vector from `at` on, of which the last ones of all may be missing (`SOME`), by their gradients.
    /// `wrong` remembers whether all were finite.
    #[inline(always)]
    pub fn change<L: Lanes, S: Step, const SOME: bool>(
        &mut self,
        l: L,
        step: S,
        at: usize,
        g: L::Vector,
        wrong: L::Vector,
    ) -> L::Vector {
        let Weights { w, first, second } = self;
        let states = [S::STATES > 0, S::STATES > 1];
        let mut old = [l.splat(0.0); 3];
        for (old, (numbers, there)) in
            old.iter_mut().zip([(&*w, true), (&*first, states[0]), (&*second, states[1])])
        {
            if there {
                *old = if SOME { l.load_some(numbers, at) } else { l.load(numbers, at) };
            }
        }
        let new = step.step(l, old, g);
        for (new, (numbers, there)) in
            new.into_iter().zip([(w, true), (first, states[0]), (second, states[1])])
        {
            if there {
                match SOME {
                    true => l.store_some(new, numbers, at),
                    false => l.store(new, numbers, at),
                }
            }
        }
        l.add(wrong, l.sub(new[0], new[0]))
    }
}

/// Whether nothing went wrong in any lane.
#[inline(always)]
pub(super) fn finite<L: Lanes>(l: L, wrong: L::Vector) -> bool {
    let mut parts = [0f32; PARTS];
    l.store(wrong, &mut parts, 0);
    parts == [0f32; PARTS]
}

lanes! {
    /// Changes neighbouring weights, and returns whether they are finite.
    fn change['s, S: Step](l; step: S, weights: Weights<'s>, g: &[f32]) -> bool {
        let (mut weights, mut wrong, len) = (weights, l.splat(0.0), g.len());
        let whole = len / L::COUNT * L::COUNT;
        for at in (0..whole).step_by(L::COUNT) {
            wrong = weights.change::<L, S, false>(l, step, at, l.load(g, at), wrong);
        }
        if whole < len {
            wrong = weights.change::<L, S, true>(l, step, whole, l.load_some(g, whole), wrong);
        }
        finite(l, wrong)
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

    /// Changes weights by their gradients, and returns whether they are finite.
    pub fn apply(self, weights: Weights<'_>, g: &[f32]) -> bool {
        match self {
            Rule::Plain(step) => change(step, weights, g),
            Rule::Momentum(step) => change(step, weights, g),
            Rule::Adam(step) => change(step, weights, g),
        }
    }
}

/// Changes a weight, and returns whether it is finite.
pub(super) fn whole(mut args: Args<'_, '_>, optimizer: Optimizer) -> Result<bool, KernelError> {
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
            let g = &g[start..start + w.len()];
            if !rule.apply(Weights { w, first, second }, g) {
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
                let mut apply = |w: &mut [f32]| {
                    let weights = Weights { w, first: &mut m, second: &mut s };
                    Rule::new(optimizer, moment).apply(weights, &vec![1.0; len])
                };
                assert!(apply(&mut w), "nothing is wrong yet");
                for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
                    let mut w = w.clone();
                    w[len / 2] = bad;
                    assert!(!apply(&mut w), "{bad} of {len}");
                }
            }
        }
    }
}

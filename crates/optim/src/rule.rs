//! How one parameter changes by its gradient: AdamW, Adam and SGD with momentum.
//!
//! The operations and their order are those of `torch.optim` on a processor with fused multiply-add, `foreach=False`:
//! `lerp`, `addcmul` and `add` with a factor are fused there, `addcdiv` divides last. Factors are computed in 64 bits and
//! rounded once, as Python's numbers are when torch takes them.

use crate::number::Fused;

/// Where weight decay acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decay {
    /// On the parameter, apart from the gradient: AdamW.
    Decoupled,
    /// Added to the gradient: Adam.
    Coupled,
}

/// Adam's numbers, in 64 bits as a program gives them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// The learning rate.
    pub rate: f64,
    /// How much of each mean is kept.
    pub betas: [f64; 2],
    /// What is added below the division.
    pub epsilon: f64,
    /// The weight decay.
    pub decay: f64,
    /// Where that acts.
    pub kind: Decay,
    /// Whether to climb rather than descend.
    pub maximize: bool,
}

impl Default for Adam {
    fn default() -> Adam {
        Adam {
            rate: 1e-3,
            betas: [0.9, 0.999],
            epsilon: 1e-8,
            decay: 0.01,
            kind: Decay::Decoupled,
            maximize: false,
        }
    }
}

/// SGD's numbers, in 64 bits as a program gives them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// The learning rate.
    pub rate: f64,
    /// How much of the mean is kept.
    pub momentum: f64,
    /// How much of a new gradient is left out of the mean.
    pub dampening: f64,
    /// The weight decay.
    pub decay: f64,
    /// Whether to look ahead.
    pub nesterov: bool,
    /// Whether to climb rather than descend.
    pub maximize: bool,
}

impl Default for Sgd {
    fn default() -> Sgd {
        Sgd { rate: 1e-3, momentum: 0.9, dampening: 0.0, decay: 0.0, nesterov: false, maximize: false }
    }
}

/// An optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Adam or AdamW: two moments.
    Adam(Adam),
    /// Gradient descent: the first moment alone, and none without momentum.
    Sgd(Sgd),
}

impl Rule {
    /// How many moments it keeps of every parameter.
    pub fn moments(&self) -> usize {
        match self {
            Rule::Adam(_) => 2,
            Rule::Sgd(sgd) => usize::from(sgd.momentum != 0.0),
        }
    }
}

/// One step of an optimizer on one parameter.
pub(crate) trait Step: Copy + Send + Sync {
    /// How many moments are read and written.
    const MOMENTS: usize;

    /// The new parameter and moments.
    fn step<F: Fused>(&self, parameter: f32, moments: [f32; 2], gradient: f32) -> (f32, [f32; 2]);
}

/// What gradients are multiplied with, one after the other: what loss scaling and clipping ask for.
#[derive(Clone, Copy)]
pub(crate) struct Factors(pub [f32; 2]);

impl Factors {
    #[inline(always)]
    fn of(self, gradient: f32, negative: bool) -> f32 {
        let gradient = gradient * self.0[0] * self.0[1];
        if negative { -gradient } else { gradient }
    }
}

/// Adam's numbers for one step, in 32 bits.
#[derive(Clone, Copy)]
pub(crate) struct AdamStep<const COUPLED: bool> {
    factors: Factors,
    /// What the parameter is multiplied with.
    shrink: f32,
    decay: f32,
    /// What the first mean moves by, from its old value or back from the gradient, whichever is nearer.
    weight: f32,
    near: bool,
    keep: f32,
    new: f32,
    correction: f32,
    epsilon: f32,
    rate: f32,
    negative: bool,
}

impl<const COUPLED: bool> AdamStep<COUPLED> {
    /// Step `step` counts from 1.
    pub fn new(adam: Adam, step: u64, factors: Factors) -> AdamStep<COUPLED> {
        let step = step as f64;
        let [first, second] = adam.betas;
        let corrections = [1.0 - first.powf(step), 1.0 - second.powf(step)];
        let weight = (1.0 - first) as f32;
        let near = weight.abs() < 0.5;
        AdamStep {
            factors,
            shrink: (1.0 - adam.rate * adam.decay) as f32,
            decay: adam.decay as f32,
            weight: if near { weight } else { weight - 1.0 },
            near,
            keep: second as f32,
            new: (1.0 - second) as f32,
            correction: corrections[1].powf(0.5) as f32,
            epsilon: adam.epsilon as f32,
            rate: -(adam.rate / corrections[0]) as f32,
            negative: adam.maximize,
        }
    }
}

impl<const COUPLED: bool> Step for AdamStep<COUPLED> {
    const MOMENTS: usize = 2;

    #[inline(always)]
    fn step<F: Fused>(&self, parameter: f32, [m, v]: [f32; 2], gradient: f32) -> (f32, [f32; 2]) {
        let mut g = self.factors.of(gradient, self.negative);
        let mut p = parameter;
        if !COUPLED {
            p *= self.shrink;
        } else if self.decay != 0.0 {
            g = F::fused(self.decay, p, g);
        }
        let m = F::fused(self.weight, g - m, if self.near { m } else { g });
        let v = F::fused(self.new * g, g, v * self.keep);
        let below = v.sqrt() / self.correction + self.epsilon;
        (p + self.rate * m / below, [m, v])
    }
}

/// SGD's numbers for one step, in 32 bits.
#[derive(Clone, Copy)]
pub(crate) struct SgdStep<const MOMENTUM: bool> {
    factors: Factors,
    rate: f32,
    momentum: f32,
    new: f32,
    decay: f32,
    /// The first step, which takes the gradient for the mean.
    first: bool,
    nesterov: bool,
    negative: bool,
}

impl<const MOMENTUM: bool> SgdStep<MOMENTUM> {
    /// Step `step` counts from 1.
    pub fn new(sgd: Sgd, step: u64, factors: Factors) -> SgdStep<MOMENTUM> {
        SgdStep {
            factors,
            rate: -sgd.rate as f32,
            momentum: sgd.momentum as f32,
            new: (1.0 - sgd.dampening) as f32,
            decay: sgd.decay as f32,
            first: step <= 1,
            nesterov: sgd.nesterov,
            negative: sgd.maximize,
        }
    }
}

impl<const MOMENTUM: bool> Step for SgdStep<MOMENTUM> {
    const MOMENTS: usize = if MOMENTUM { 1 } else { 0 };

    #[inline(always)]
    fn step<F: Fused>(&self, p: f32, [m, v]: [f32; 2], gradient: f32) -> (f32, [f32; 2]) {
        let mut g = self.factors.of(gradient, self.negative);
        if self.decay != 0.0 {
            g = F::fused(self.decay, p, g);
        }
        if !MOMENTUM {
            return (F::fused(self.rate, g, p), [m, v]);
        }
        let m = if self.first { g } else { F::fused(self.new, g, m * self.momentum) };
        let along = if self.nesterov { F::fused(self.momentum, m, g) } else { m };
        (F::fused(self.rate, along, p), [m, v])
    }
}

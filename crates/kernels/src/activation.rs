//! Element-wise functions and their gradients.

use crate::KernelError;
use tiercel_workload::graph::Activation;

use super::args::Args;
use super::elementwise::{map, zip};
use super::math::{exp, gelu, gelu_slope, gelu_tanh, gelu_tanh_slope, phi, sigmoid, tanh};

/// A power with a small whole exponent, or one half more: what networks raise to. It is made of a few products.
#[derive(Clone, Copy)]
struct Power {
    /// Whether the number itself, its square, its fourth power and its root take part.
    parts: [bool; 4],
    /// Whether all of it is the denominator.
    below: bool,
}

impl Power {
    fn new(exponent: f32) -> Option<Power> {
        let size = exponent.abs();
        let whole = size.trunc();
        if size >= 8.0 || (size != whole && size != whole + 0.5) {
            return None;
        }
        let bits = whole as u32;
        let parts = [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0, size != whole];
        Some(Power { parts, below: exponent < 0.0 })
    }

    #[inline(always)]
    fn of(self, x: f32) -> f32 {
        let factor = |part: bool, x: f32| if part { x } else { 1.0 };
        let square = x * x;
        let root = if self.parts[3] { x.sqrt() } else { 1.0 };
        let all = factor(self.parts[0], x)
            * factor(self.parts[1], square)
            * factor(self.parts[2], square * square)
            * root;
        if self.below { 1.0 / all } else { all }
    }
}

pub(super) fn forward(mut args: Args<'_, '_>, kind: Activation) -> Result<(), KernelError> {
    let (x, y) = (args.maybe(0)?, args.write(0)?);
    let pool = args.pool;
    match kind {
        // A comparison and not `max`, so that a NaN stays one.
        Activation::Relu => map(pool, y, x, |x| if x < 0.0 { 0.0 } else { x }),
        Activation::Relu6 => map(pool, y, x, |x| x.clamp(0.0, 6.0)),
        Activation::LeakyRelu { slope } => map(pool, y, x, |x| if x < 0.0 { slope * x } else { x }),
        Activation::Sigmoid => map(pool, y, x, sigmoid),
        Activation::Tanh => map(pool, y, x, tanh),
        Activation::Gelu => map(pool, y, x, gelu),
        Activation::GeluTanh => map(pool, y, x, gelu_tanh),
        Activation::Power { exponent } => match Power::new(exponent) {
            Some(power) => map(pool, y, x, |x| power.of(x)),
            None => map(pool, y, x, |x| x.powf(exponent)),
        },
        Activation::Erf => map(pool, y, x, |x| 2.0 * phi(std::f32::consts::SQRT_2 * x) - 1.0),
        Activation::Exp => map(pool, y, x, exp),
    }
    Ok(())
}

pub(super) fn backward(mut args: Args<'_, '_>, kind: Activation) -> Result<(), KernelError> {
    let (y, dy, dx) = (args.maybe(0)?, args.maybe(1)?, args.write(0)?);
    let pool = args.pool;
    match kind {
        Activation::Relu => zip(pool, dx, y, dy, |y, dy| if y > 0.0 { dy } else { 0.0 }),
        Activation::Relu6 => {
            zip(pool, dx, y, dy, |y, dy| if y > 0.0 && y < 6.0 { dy } else { 0.0 });
        }
        Activation::LeakyRelu { slope } => {
            zip(pool, dx, y, dy, |y, dy| if y > 0.0 { dy } else { slope * dy });
        }
        Activation::Sigmoid => zip(pool, dx, y, dy, |y, dy| dy * y * (1.0 - y)),
        Activation::Tanh => zip(pool, dx, y, dy, |y, dy| dy * (1.0 - y * y)),
        Activation::Gelu => zip(pool, dx, y, dy, |x, dy| dy * gelu_slope(x)),
        Activation::GeluTanh => zip(pool, dx, y, dy, |x, dy| dy * gelu_tanh_slope(x)),
        Activation::Power { exponent } => match Power::new(exponent - 1.0) {
            Some(power) => zip(pool, dx, y, dy, |x, dy| dy * exponent * power.of(x)),
            None => zip(pool, dx, y, dy, |x, dy| dy * exponent * x.powf(exponent - 1.0)),
        },
        Activation::Erf => zip(pool, dx, y, dy, |x, dy| dy * std::f32::consts::FRAC_2_SQRT_PI * exp(-x * x)),
        Activation::Exp => zip(pool, dx, y, dy, |y, dy| dy * y),
    }
    Ok(())
}

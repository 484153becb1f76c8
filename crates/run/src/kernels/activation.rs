//! Element-wise functions and their gradients.

use tiercel_workload::graph::Activation;

use super::args::Args;
use super::elementwise::{map, zip};
use super::math::{density, exp, phi, sigmoid, tanh};

/// √(2 / π), of the approximation of GELU.
const ROOT: f32 = 0.797_884_6;
const CUBE: f32 = 0.044_715;

pub(super) fn forward(mut args: Args<'_, '_>, kind: Activation) -> Result<(), String> {
    let (x, y) = (args.maybe(0)?, args.write(0)?);
    let pool = args.pool;
    match kind {
        // A comparison and not `max`, so that a NaN stays one.
        Activation::Relu => map(pool, y, x, |x| if x < 0.0 { 0.0 } else { x }),
        Activation::Relu6 => {
            map(pool, y, x, |x| {
                if x < 0.0 {
                    0.0
                } else if x > 6.0 {
                    6.0
                } else {
                    x
                }
            });
        }
        Activation::LeakyRelu { slope } => map(pool, y, x, |x| if x < 0.0 { slope * x } else { x }),
        Activation::Sigmoid => map(pool, y, x, sigmoid),
        Activation::Tanh => map(pool, y, x, tanh),
        Activation::Gelu => map(pool, y, x, |x| x * phi(x)),
        Activation::GeluTanh => {
            // (1 + tanh u) / 2 is the sigmoid of 2 u.
            map(pool, y, x, |x| x / (1.0 + exp(-2.0 * ROOT * (x + CUBE * x * x * x))));
        }
        Activation::Power { exponent } => map(pool, y, x, |x| x.powf(exponent)),
        Activation::Erf => map(pool, y, x, |x| 2.0 * phi(std::f32::consts::SQRT_2 * x) - 1.0),
        Activation::Exp => map(pool, y, x, exp),
    }
    Ok(())
}

pub(super) fn backward(mut args: Args<'_, '_>, kind: Activation) -> Result<(), String> {
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
        Activation::Gelu => zip(pool, dx, y, dy, |x, dy| dy * (phi(x) + x * density(x))),
        Activation::GeluTanh => zip(pool, dx, y, dy, |x, dy| {
            let s = sigmoid(2.0 * ROOT * (x + CUBE * x * x * x));
            let slope = 2.0 * ROOT * (1.0 + 3.0 * CUBE * x * x);
            dy * (s + x * s * (1.0 - s) * slope)
        }),
        Activation::Power { exponent } => {
            zip(pool, dx, y, dy, |x, dy| dy * exponent * x.powf(exponent - 1.0));
        }
        Activation::Erf => zip(pool, dx, y, dy, |x, dy| dy * std::f32::consts::FRAC_2_SQRT_PI * exp(-x * x)),
        Activation::Exp => zip(pool, dx, y, dy, |y, dy| dy * y),
    }
    Ok(())
}

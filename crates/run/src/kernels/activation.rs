//! Element-wise functions and their gradients.

use tiercel_workload::graph::Activation;

use super::args::Args;
use super::elementwise::{map, zip};
use super::math::{gelu, gelu_slope, gelu_tanh, gelu_tanh_slope, sigmoid, tanh};

/// The gradient of a function that is large: a name of its own, so that it is compiled into the loops.
#[inline(always)]
fn gelu_backward(x: f32, dy: f32) -> f32 {
    dy * gelu_slope(x)
}

#[inline(always)]
fn gelu_tanh_backward(x: f32, dy: f32) -> f32 {
    dy * gelu_tanh_slope(x)
}

pub(super) fn forward(mut args: Args<'_, '_>, kind: Activation) -> Result<(), String> {
    let (x, y) = (args.maybe(0)?, args.write(0)?);
    let pool = args.pool;
    match kind {
        // A comparison and not `max`, so that a NaN stays one.
        Activation::Relu => map(pool, y, x, |x| if x < 0.0 { 0.0 } else { x }),
        Activation::Relu6 => {
            map(pool, y, x, |x| if x < 0.0 { 0.0 } else if x > 6.0 { 6.0 } else { x });
        }
        Activation::LeakyRelu { slope } => map(pool, y, x, |x| if x < 0.0 { slope * x } else { x }),
        Activation::Sigmoid => map(pool, y, x, sigmoid),
        Activation::Tanh => map(pool, y, x, tanh),
        Activation::Gelu => map(pool, y, x, gelu),
        Activation::GeluTanh => map(pool, y, x, gelu_tanh),
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
        Activation::Gelu => zip(pool, dx, y, dy, gelu_backward),
        Activation::GeluTanh => zip(pool, dx, y, dy, gelu_tanh_backward),
    }
    Ok(())
}

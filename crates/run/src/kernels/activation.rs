//! Element-wise functions and their gradients.

use tiercel_workload::graph::Activation;

use super::args::Args;
use super::elementwise::{map, map_part, zip, zip_part};
use super::math::{density, exp, gelu, gelu_tanh, gelu_tanh_slope, phi, sigmoid, tanh};
use super::pool::Pool;

/// dx = dy · slope(x), a piece at a time: the slopes first, then what is to be added to them, then the products. Of two
/// exponentials in one loop the compiler makes no vectors.
fn steep(
    pool: &mut Pool,
    dx: &mut [f32],
    x: Option<&[f32]>,
    dy: Option<&[f32]>,
    slope: impl Fn(f32) -> f32 + Sync + Copy,
    more: Option<impl Fn(f32, f32) -> f32 + Sync + Copy>,
) {
    const PIECE: usize = 512;
    pool.rows(dx, 1, |start, dx| {
        let mut slopes = [0f32; PIECE];
        for (i, dx) in dx.chunks_mut(PIECE).enumerate() {
            let at = start + i * PIECE..start + i * PIECE + dx.len();
            let slopes = &mut slopes[..dx.len()];
            let x = x.map_or(&*dx, |x| &x[at.clone()]);
            map_part(slopes, Some(x), slope);
            if let Some(more) = more {
                zip_part(slopes, None, Some(x), more);
            }
            zip_part(dx, Some(slopes), dy.map(|dy| &dy[at.clone()]), |slope, dy| slope * dy);
        }
    });
}

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

/// What is added to Φ(x) in the derivative of x · Φ(x).
#[inline(always)]
fn add_density(slope: f32, x: f32) -> f32 {
    slope + x * density(x)
}

pub(super) fn forward(mut args: Args<'_, '_>, kind: Activation) -> Result<(), String> {
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
        Activation::Gelu => steep(pool, dx, y, dy, phi, Some(add_density)),
        Activation::GeluTanh => steep(pool, dx, y, dy, gelu_tanh_slope, None::<fn(f32, f32) -> f32>),
        Activation::Power { exponent } => match Power::new(exponent - 1.0) {
            Some(power) => zip(pool, dx, y, dy, |x, dy| dy * exponent * power.of(x)),
            None => zip(pool, dx, y, dy, |x, dy| dy * exponent * x.powf(exponent - 1.0)),
        },
        Activation::Erf => zip(pool, dx, y, dy, |x, dy| dy * std::f32::consts::FRAC_2_SQRT_PI * exp(-x * x)),
        Activation::Exp => zip(pool, dx, y, dy, |y, dy| dy * y),
    }
    Ok(())
}

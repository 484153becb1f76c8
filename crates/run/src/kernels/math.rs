//! Functions of one number that loops can take in vectors: exponentials, logarithms and what is made of them.
//!
//! Errors are a few units in the last place. No branch, no table: the compiler makes vector code of them. Products are
//! added with a single rounding, which processors with vectors have an instruction for.

/// A polynomial, its highest coefficient first.
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[0];
    for c in &coefficients[1..] {
        sum = sum.mul_add(x, *c);
    }
    sum
}

/// e^x. Below -87.3 and above 88.3, where the result leaves the range of ordinary numbers, it is that of the bound;
/// NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Comparisons that let a NaN pass, each of which is one instruction.
    let x = if x < -87.3 { -87.3 } else { x };
    let x = if x > 88.3 { 88.3 } else { x };
    exp_within(x)
}

/// The same for a number that is known to be within these bounds.
#[inline(always)]
fn exp_within(x: f32) -> f32 {
    // x = n · ln 2 + r, with n rounded by adding a number that has no room for fractions; n is in the last bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-0.693_359_4, x);
    let r = n.mul_add(2.121_944_4e-4, r);
    let p =
        polynomial(r, [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_6e-1, 0.5]);
    let p = p.mul_add(r * r, r) + 1.0;
    p * f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23))
}

/// The natural logarithm of an ordinary positive number. NaN stays NaN, infinity becomes it; of other numbers it has no
/// meaning.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    // x = m · 2^n, with m between √½ and √2.
    let bits = x.to_bits().wrapping_sub(0x3f35_04f3);
    let n = (bits as i32 >> 23) as f32;
    let f = f32::from_bits((bits & 0x007f_ffff).wrapping_add(0x3f35_04f3)) - 1.0;
    let p = polynomial(
        f,
        [
            7.037_683_6e-2,
            -1.151_461e-1,
            1.167_699_9e-1,
            -1.242_014_1e-1,
            1.424_932_3e-1,
            -1.666_805_8e-1,
            2.000_071_5e-1,
            -2.499_999_4e-1,
            3.333_333e-1,
        ],
    );
    let square = f * f;
    let small = (p * f).mul_add(square, n.mul_add(-2.121_944_4e-4, -0.5 * square));
    // Zero, or NaN.
    let none = x * 0.0;
    n.mul_add(0.693_359_4, f + small) + none
}

/// ln(1 + e^-|x|).
#[inline(always)]
pub fn ln_1p_exp(x: f32) -> f32 {
    let e = exp(-x.abs());
    let u = 1.0 + e;
    // What 1 + e has lost of a small e comes back.
    ln(u) + (e - (u - 1.0))
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The hyperbolic tangent.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let magnitude = x.abs();
    // Near zero a polynomial, where the quotient would lose digits.
    let s = x * x;
    let p = polynomial(s, [-5.704_988_7e-3, 2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1]);
    let small = (p * s).mul_add(x, x);
    let e = exp(2.0 * magnitude);
    let large = (1.0 - 2.0 / (e + 1.0)).copysign(x);
    if magnitude < 0.625 { small } else { large }
}

/// The distribution function of the normal distribution, Φ(x).
#[inline(always)]
pub fn phi(x: f32) -> f32 {
    // ln erfc(z) as a polynomial without a constant, fitted by weighted least squares over 0..4 so that the greatest
    // error of erfc is least (1.5e-8); beyond, Φ differs from 0 or 1 by less than a number near 1 can tell.
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let near = if z > 4.0 { 4.0 } else { z };
    let p = polynomial(
        near,
        [
            -5.514_949_6e-7,
            1.187_094_6e-5,
            -1.095_842_5e-4,
            5.507_633e-4,
            -1.435_324_5e-3,
            -1.620_521_4e-4,
            1.939_254e-2,
            -1.028_698_5e-1,
            -6.366_033e-1,
            -1.128_380_1,
        ],
    );
    let half = 0.5 * exp_within(near * p);
    let half = if z > 4.0 { 0.0 } else { half };
    if x < 0.0 { half } else { 1.0 - half }
}

/// The density of the normal distribution.
#[inline(always)]
pub fn density(x: f32) -> f32 {
    0.398_942_3 * exp(-0.5 * x * x)
}

/// √(2 / π), of the approximation of GELU.
const ROOT: f32 = 0.797_884_6;
const CUBE: f32 = 0.044_715;

/// x · Φ(x).
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    x * phi(x)
}

/// x · Φ(x) by the approximation with tanh; (1 + tanh u) / 2 is the sigmoid of 2 u.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    x * sigmoid(2.0 * ROOT * (x + CUBE * x * x * x))
}

/// The derivative of that.
#[inline(always)]
pub fn gelu_tanh_slope(x: f32) -> f32 {
    let s = sigmoid(2.0 * ROOT * (x + CUBE * x * x * x));
    s + x * s * (1.0 - s) * (2.0 * ROOT * (1.0 + 3.0 * CUBE * x * x))
}

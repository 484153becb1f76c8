//! Functions of one number that loops can take in vectors: exponentials and what is made of them.
//!
//! Errors are a few units in the last place. No branch, no table: the compiler makes vector code of them.

/// e^x. Below -87.3 and above 88.3, where the result leaves the range of ordinary numbers, it is that of the bound;
/// NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Comparisons that let a NaN pass, each of which is one instruction.
    let x = if x < -87.3 { -87.3 } else { x };
    let x = if x > 88.3 { 88.3 } else { x };
    // x = n · ln 2 + r, with n rounded by adding a number that has no room for fractions; n is in the last bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * 0.693_359_4;
    let r = r - n * -2.121_944_4e-4;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_6e-1;
    let p = p * r + 0.5;
    let p = p * (r * r) + r + 1.0;
    p * f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23))
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
    let p = -5.704_988_7e-3;
    let p = p * s + 2.063_909e-2;
    let p = p * s - 5.373_971_6e-2;
    let p = p * s + 1.333_144_2e-1;
    let p = p * s - 3.333_328e-1;
    let small = p * s * x + x;
    let e = exp(2.0 * magnitude);
    let large = (1.0 - 2.0 / (e + 1.0)).copysign(x);
    if magnitude < 0.625 { small } else { large }
}

/// The distribution function of the normal distribution, Φ(x).
#[inline(always)]
pub fn phi(x: f32) -> f32 {
    // Abramowitz and Stegun 7.1.26 is too coarse; this is erfc by W. J. Cody's method of one rational function in
    // t = 1 / (1 + z / 2) (Numerical Recipes, erfcc), whose relative error is below 1.2e-7.
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * z);
    let p = 0.170_872_77;
    let p = p * t - 0.822_152_23;
    let p = p * t + 1.488_515_9;
    let p = p * t - 1.135_204;
    let p = p * t + 0.278_868_07;
    let p = p * t - 0.186_288_06;
    let p = p * t + 0.096_784_18;
    let p = p * t + 0.374_091_96;
    let p = p * t + 1.000_023_7;
    let p = p * t - 1.265_512_2;
    let half = 0.5 * t * exp(p - z * z);
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

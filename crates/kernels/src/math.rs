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

/// A number that has no room for fractions.
pub(super) const ROUND: f32 = 12_582_912.0;

/// ln 2, as a number with few digits and what is left.
pub(super) const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// (e^x − 1 − x) / x², near zero.
pub(super) const EXP: [f32; 6] =
    [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_6e-1, 0.5];

/// (ln(1 + x) − x + x² / 2) / x³, near zero.
pub(super) const LN: [f32; 9] = [
    7.037_683_6e-2,
    -1.151_461e-1,
    1.167_699_9e-1,
    -1.242_014_1e-1,
    1.424_932_3e-1,
    -1.666_805_8e-1,
    2.000_071_5e-1,
    -2.499_999_4e-1,
    3.333_333e-1,
];

/// The least and the greatest number that an exponential is computed of.
pub(super) const BOUNDS: [f32; 2] = [-87.3, 88.3];

/// e^x. Below -87.3 and above 88.3, where the result leaves the range of ordinary numbers, it is that of the bound;
/// NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Comparisons that let a NaN pass, each of which is one instruction.
    let x = if x < BOUNDS[0] { BOUNDS[0] } else { x };
    let x = if x > BOUNDS[1] { BOUNDS[1] } else { x };
    exp_within(x)
}

/// The same for a number that is known to be within these bounds.
#[inline(always)]
fn exp_within(x: f32) -> f32 {
    // x = n · ln 2 + r, with n rounded by adding a number that has no room for fractions; n is in the last bits.
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN_2[0], x);
    let r = n.mul_add(-LN_2[1], r);
    let p = polynomial(r, EXP);
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
    let p = polynomial(f, LN);
    let square = f * f;
    let small = (p * f).mul_add(square, n.mul_add(LN_2[1], -0.5 * square));
    // Zero, or NaN.
    let none = x * 0.0;
    n.mul_add(LN_2[0], f + small) + none
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

/// √(2 / π), of the approximation of GELU.
const ROOT: f32 = 0.797_884_6;
const CUBE: f32 = 0.044_715;

/// x · Φ(x).
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    x * phi(x)
}

/// The derivative of that: Φ(x) and x times the density of the normal distribution.
#[inline(always)]
pub fn gelu_slope(x: f32) -> f32 {
    // Of numbers above zero it is 1 + e^(−x² / 2) · p(x), with a polynomial that was fitted by weighted least squares over
    // 0..6 so that the greatest error of the product is least (1.7e-8); beyond, it differs from 1 by less than a number near 1
    // can tell. Of numbers below zero it is what is missing to 1.
    let size = x.abs();
    let near = if size > 6.0 { 6.0 } else { size };
    let p = polynomial(
        near,
        [
            3.155_569_2e-7,
            -7.709_066e-6,
            8.477_354e-5,
            -5.636_654e-4,
            2.590_129_2e-3,
            -9.003_923e-3,
            2.547_191_3e-2,
            -6.192_400_7e-2,
            1.328_058_2e-1,
            -2.499_725_8e-1,
            7.978_828_5e-1,
            -0.5,
        ],
    );
    let more = p * exp_within(-0.5 * near * near);
    let more = if size > 6.0 { 0.0 } else { more };
    if x < 0.0 { -more } else { 1.0 + more }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_of_gelu_is_that_of_the_normal_distribution() {
        let known =
            [(0.0, 0.5), (0.5, 0.867_495_1), (1.0, 1.083_315_5), (2.0, 1.085_231_8), (4.0, 1.000_503_7)];
        for (x, slope) in known.into_iter().chain([(7.0, 1.0), (1e30, 1.0), (f32::INFINITY, 1.0)]) {
            assert!((gelu_slope(x) - slope).abs() < 2e-7, "{x}: {} instead of {slope}", gelu_slope(x));
            assert!((gelu_slope(-x) - (1.0 - slope)).abs() < 2e-7, "-{x}: {}", gelu_slope(-x));
        }
        assert!(gelu_slope(f32::NAN).is_nan());
    }
}

/// The same functions of vectors: of some at once, because each step of one waits for the step before.
pub(super) mod vectors {
    use super::{BOUNDS, EXP, LN, LN_2, ROUND};
    use crate::simd::Lanes;

    /// The polynomials of some vectors.
    #[inline(always)]
    fn polynomial<L: Lanes, const N: usize>(
        l: L,
        x: &[L::Vector; N],
        coefficients: &[f32],
    ) -> [L::Vector; N] {
        let mut sums = [l.splat(coefficients[0]); N];
        for c in &coefficients[1..] {
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = l.fma(*sum, *x, l.splat(*c));
            }
        }
        sums
    }

    /// e^x, as [`super::exp`] has it.
    #[inline(always)]
    pub fn exp<L: Lanes, const N: usize>(l: L, mut x: [L::Vector; N]) -> [L::Vector; N] {
        x.iter_mut().for_each(|x| *x = l.smaller(l.splat(BOUNDS[1]), *x));
        exp_below(l, x)
    }

    /// The same of numbers that are not above the greatest that it is computed of.
    #[inline(always)]
    pub fn exp_below<L: Lanes, const N: usize>(l: L, x: [L::Vector; N]) -> [L::Vector; N] {
        let (mut shifted, mut r) = (x, x);
        for (shifted, r) in shifted.iter_mut().zip(&mut r) {
            *r = l.larger(l.splat(BOUNDS[0]), *r);
            *shifted = l.fma(*r, l.splat(std::f32::consts::LOG2_E), l.splat(ROUND));
            let n = l.add(*shifted, l.splat(-ROUND));
            *r = l.fma(n, l.splat(-LN_2[0]), *r);
            *r = l.fma(n, l.splat(-LN_2[1]), *r);
        }
        let mut p = polynomial(l, &r, &EXP);
        for (p, (r, shifted)) in p.iter_mut().zip(r.iter().zip(&shifted)) {
            *p = l.add(l.fma(*p, l.mul(*r, *r), *r), l.splat(1.0));
            *p = l.mul(*p, l.two_to(*shifted));
        }
        p
    }

    /// ln x, as [`super::ln`] has it.
    #[inline(always)]
    pub fn ln<L: Lanes, const N: usize>(l: L, x: [L::Vector; N]) -> [L::Vector; N] {
        let (mut n, mut f) = (x, x);
        for (n, f) in n.iter_mut().zip(&mut f) {
            let [exponent, rest] = l.parts(*f);
            (*n, *f) = (exponent, l.add(rest, l.splat(-1.0)));
        }
        let mut p = polynomial(l, &f, &LN);
        for (((p, n), f), x) in p.iter_mut().zip(&n).zip(&f).zip(&x) {
            let square = l.mul(*f, *f);
            let small = l.fma(*n, l.splat(LN_2[1]), l.mul(l.splat(-0.5), square));
            let small = l.fma(l.mul(*p, *f), square, small);
            let none = l.mul(*x, l.splat(0.0));
            *p = l.add(l.fma(*n, l.splat(LN_2[0]), l.add(*f, small)), none);
        }
        p
    }

    #[cfg(test)]
    mod tests {
        use crate::math;
        use crate::simd::lanes;

        lanes! {
            fn both(l; x: &[f32], to: &mut [f32]) {
                let all = [l.load_some(x, 0), l.load_some(x, L::COUNT)];
                for (half, [low, high]) in [super::exp(l, all), super::ln(l, all)].into_iter().enumerate() {
                    l.store(low, to, 32 * half);
                    l.store(high, to, 32 * half + L::COUNT);
                }
            }
        }

        #[test]
        fn they_are_those_of_single_numbers() {
            let odd = [0.0, -0.0, 1.0, 1e-30, 1e30, 88.4, -88.4, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
            let mut random = fastrand::Rng::with_seed(7);
            let numbers: Vec<f32> =
                odd.into_iter().chain((0..9990).map(|_| (random.f32() - 0.3) * 90.0)).collect();
            for x in numbers.chunks(10) {
                let mut to = [0f32; 64];
                both(x, &mut to);
                for (i, x) in x.iter().enumerate() {
                    let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
                    assert!(same(to[i], math::exp(*x)), "exp {x}");
                    assert!(same(to[32 + i], math::ln(*x)), "ln {x}");
                }
            }
        }
    }
}

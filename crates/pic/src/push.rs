//! How momenta change in a time step: the pushers of Boris, of Vay, and of Higuera and Cary.
//!
//! Momenta are `γv/c`; fields come multiplied with `q·Δt/2m`. Boris is the usual one; the others keep the drift in crossed
//! fields right for relativistic particles, and Higuera and Cary's keeps phase space volume, too.

use crate::simd::{Real, Vector};

/// A way to advance momenta.
pub trait Pusher: Copy + Send + Sync + 'static {
    /// The momenta after a step with these fields.
    fn push<V: Vector>(u: [V; 3], e: [V; 3], b: [V; 3]) -> [V; 3];
}

/// Boris (1970).
#[derive(Clone, Copy, Debug)]
pub struct Boris;

/// Vay (Physics of Plasmas 15, 2008).
#[derive(Clone, Copy, Debug)]
pub struct Vay;

/// Higuera and Cary (Physics of Plasmas 24, 2017).
#[derive(Clone, Copy, Debug)]
pub struct HigueraCary;

#[inline(always)]
fn number<V: Vector>(x: f64) -> V {
    V::splat(V::Real::of(x))
}

#[inline(always)]
fn sum<V: Vector>(a: [V; 3], b: [V; 3]) -> [V; 3] {
    [a[0].add(b[0]), a[1].add(b[1]), a[2].add(b[2])]
}

#[inline(always)]
fn scaled<V: Vector>(a: [V; 3], by: V) -> [V; 3] {
    [a[0].mul(by), a[1].mul(by), a[2].mul(by)]
}

#[inline(always)]
fn dot<V: Vector>(a: [V; 3], b: [V; 3]) -> V {
    a[2].fma(b[2], a[1].fma(b[1], a[0].mul(b[0])))
}

/// `a × b + c`.
#[inline(always)]
fn cross<V: Vector>(a: [V; 3], b: [V; 3], c: [V; 3]) -> [V; 3] {
    [
        a[2].fnma(b[1], a[1].fma(b[2], c[0])),
        a[0].fnma(b[2], a[2].fma(b[0], c[1])),
        a[1].fnma(b[0], a[0].fma(b[1], c[2])),
    ]
}

/// `1/γ` of a momentum.
#[inline(always)]
pub fn inverse_gamma<V: Vector>(u: [V; 3]) -> V {
    let one = number::<V>(1.0);
    one.div(dot(u, u).add(one).root())
}

impl Pusher for Boris {
    #[inline(always)]
    fn push<V: Vector>(u: [V; 3], e: [V; 3], b: [V; 3]) -> [V; 3] {
        let one = number::<V>(1.0);
        let before = sum(u, e);
        let t = scaled(b, inverse_gamma(before));
        let turn = number::<V>(2.0).div(dot(t, t).add(one));
        let middle = cross(before, t, before);
        sum(cross(middle, scaled(t, turn), before), e)
    }
}

/// The rotation that Vay's and Higuera and Cary's have in common: `u` turned by the field at the `γ` that it has afterwards.
#[inline(always)]
fn turned<V: Vector>(u: [V; 3], b: [V; 3]) -> ([V; 3], [V; 3]) {
    let one = number::<V>(1.0);
    let squared = dot(b, b);
    let along = dot(u, b);
    let sigma = dot(u, u).add(one).sub(squared);
    let rest = along.fma(along, squared).mul(number(4.0));
    let gamma = sigma.add(sigma.fma(sigma, rest).root()).mul(number(0.5)).root();
    let t = scaled(b, one.div(gamma));
    let s = one.div(dot(t, t).add(one));
    let along = dot(u, t);
    let straight = [t[0].fma(along, u[0]), t[1].fma(along, u[1]), t[2].fma(along, u[2])];
    (scaled(cross(u, t, straight), s), t)
}

impl Pusher for Vay {
    #[inline(always)]
    fn push<V: Vector>(u: [V; 3], e: [V; 3], b: [V; 3]) -> [V; 3] {
        let half = cross(scaled(u, inverse_gamma(u)), b, sum(u, e));
        turned(sum(half, e), b).0
    }
}

impl Pusher for HigueraCary {
    #[inline(always)]
    fn push<V: Vector>(u: [V; 3], e: [V; 3], b: [V; 3]) -> [V; 3] {
        let (after, t) = turned(sum(u, e), b);
        sum(cross(after, t, after), e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Four;

    fn step<P: Pusher>(u: [f64; 3], e: [f64; 3], b: [f64; 3]) -> [f64; 3] {
        let out = P::push(u.map(Four::splat), e.map(Four::splat), b.map(Four::splat));
        out.map(|v| {
            let mut block = [0.0; 4];
            v.store(&mut block);
            block[0]
        })
    }

    fn norm(u: [f64; 3]) -> f64 {
        u.iter().map(|x| x * x).sum::<f64>().sqrt()
    }

    /// In a magnetic field alone energy stays, and each step turns by `2·atan(Ωdt/2γ)`: exactly so for Boris and Vay; Higuera
    /// and Cary take the `γ` of the mean velocity, which is smaller by a part in `(Ωdt)²/8`.
    fn larmor<P: Pusher>(exact: f64) {
        for momentum in [0.1, 1.0, 10.0] {
            let (mut u, turn) = ([momentum, 0.0, 0.3], 0.05);
            let size = norm(u);
            let gamma = (1.0 + size * size).sqrt();
            let mut angle = 0.0;
            for _ in 0..200 {
                let next = step::<P>(u, [0.0; 3], [0.0, 0.0, turn]);
                let cosine = (u[0] * next[0] + u[1] * next[1]) / (momentum * momentum);
                angle += cosine.min(1.0).acos();
                assert!(
                    next[0] * u[1] - next[1] * u[0] > 0.0,
                    "a positive charge turns against the clock's way"
                );
                u = next;
            }
            assert!((norm(u) - size).abs() < 1e-12 * size);
            assert!((u[2] - 0.3).abs() < 1e-12);
            let expected = 200.0 * 2.0 * (turn / gamma).atan();
            assert!((angle - expected).abs() < exact * expected, "{angle} of {expected}");
        }
    }

    #[test]
    fn magnetic_fields_turn_momenta_and_keep_energy() {
        larmor::<Boris>(1e-9);
        larmor::<HigueraCary>(2e-3);
        larmor::<Vay>(1e-9);
    }

    /// In an electric field alone momentum grows evenly.
    #[test]
    fn electric_fields_accelerate_evenly() {
        for push in [step::<Boris>, step::<Vay>, step::<HigueraCary>] {
            let u = (0..100).fold([0.0, 1.0, 0.0], |u, _| push(u, [0.01, 0.0, 0.0], [0.0; 3]));
            assert!((u[0] - 2.0).abs() < 1e-12 && (u[1] - 1.0).abs() < 1e-12);
        }
    }

    /// A particle that drifts as fast as the fields want it to feels no force: what Vay's and Higuera and Cary's pushers
    /// keep at any speed, and Boris's does not.
    #[test]
    fn drifts_in_crossed_fields_stay() {
        // E + v × B = 0 with E along y, B along z, v along x: v = E/B.
        let (b, speed) = (0.5, 0.99_f64);
        let u = speed / (1.0 - speed * speed).sqrt();
        let change = |push: fn([f64; 3], [f64; 3], [f64; 3]) -> [f64; 3]| {
            let next = push([u, 0.0, 0.0], [0.0, speed * b, 0.0], [0.0, 0.0, b]);
            norm([next[0] - u, next[1], next[2]]) / u
        };
        assert!(change(step::<Vay>) < 1e-12);
        assert!(change(step::<HigueraCary>) < 1e-12);
        assert!(change(step::<Boris>) > 1e-4);
    }
}

//! Shape functions of order 1 to 3: how much of a particle each node of the grid has.
//!
//! A particle's place is kept as its cell and an offset in `[0, 1)` within it. Nodes are at whole numbers; for even orders
//! the cells lie around nodes rather than between them, so that all particles of a cell have the same nodes whatever the
//! order. Along a field's own direction, in which it is staggered, the shape is one order lower: the gather that conserves
//! energy, as in WarpX. Then that, too, is the same few places for all particles of a cell.

use crate::simd::{Real, Vector};

/// The most nodes that an order has along an axis.
pub const MOST: usize = 4;

/// A shape function.
pub trait Shape: Copy + Send + Sync + 'static {
    /// Its order.
    const ORDER: usize;
    /// How many nodes it has along an axis.
    const NODES: usize = Self::ORDER + 1;
    /// The first node, from the cell's own number.
    const FIRST: isize;
    /// Where in its cell a particle is that lies on the node of the cell's number.
    const CENTRE: f64;
    /// The weights of the nodes for an offset.
    fn whole<V: Vector>(s: V) -> [V; MOST];
    /// The weights of the places halfway between them, one fewer, of the shape one order lower.
    fn half<V: Vector>(s: V) -> [V; MOST];
}

/// Linear: cloud in cell.
#[derive(Clone, Copy, Debug)]
pub struct Linear;

/// Quadratic: triangular cloud.
#[derive(Clone, Copy, Debug)]
pub struct Quadratic;

/// Cubic.
#[derive(Clone, Copy, Debug)]
pub struct Cubic;

#[inline(always)]
fn number<V: Vector>(x: f64) -> V {
    V::splat(V::Real::of(x))
}

/// The quadratic weights around a node, for a distance to it.
#[inline(always)]
fn quadratic<V: Vector>(x: V) -> [V; 3] {
    let half = number::<V>(0.5);
    let (left, right) = (half.sub(x), half.add(x));
    [left.mul(left).mul(half), x.fnma(x, number(0.75)), right.mul(right).mul(half)]
}

/// `x³/6`.
#[inline(always)]
fn outer<V: Vector>(x: V, sixth: V) -> V {
    x.mul(x).mul(x).mul(sixth)
}

/// `2/3 − x² + x³/2`.
#[inline(always)]
fn inner<V: Vector>(x: V) -> V {
    x.mul(x).fma(x.fma(number(0.5), number(-1.0)), number(2.0 / 3.0))
}

impl Shape for Linear {
    const ORDER: usize = 1;
    const FIRST: isize = 0;
    const CENTRE: f64 = 0.0;
    #[inline(always)]
    fn whole<V: Vector>(s: V) -> [V; MOST] {
        let nothing = number::<V>(0.0);
        [number::<V>(1.0).sub(s), s, nothing, nothing]
    }
    #[inline(always)]
    fn half<V: Vector>(_: V) -> [V; MOST] {
        let nothing = number::<V>(0.0);
        [number(1.0), nothing, nothing, nothing]
    }
}

impl Shape for Quadratic {
    const ORDER: usize = 2;
    const FIRST: isize = -1;
    const CENTRE: f64 = 0.5;
    #[inline(always)]
    fn whole<V: Vector>(s: V) -> [V; MOST] {
        let [a, b, c] = quadratic(s.sub(number(0.5)));
        [a, b, c, number(0.0)]
    }
    #[inline(always)]
    fn half<V: Vector>(s: V) -> [V; MOST] {
        let nothing = number::<V>(0.0);
        [number::<V>(1.0).sub(s), s, nothing, nothing]
    }
}

impl Shape for Cubic {
    const ORDER: usize = 3;
    const FIRST: isize = -1;
    const CENTRE: f64 = 0.0;
    #[inline(always)]
    fn whole<V: Vector>(s: V) -> [V; MOST] {
        let (sixth, rest) = (number::<V>(1.0 / 6.0), number::<V>(1.0).sub(s));
        [outer(rest, sixth), inner(s), inner(rest), outer(s, sixth)]
    }
    #[inline(always)]
    fn half<V: Vector>(s: V) -> [V; MOST] {
        let [a, b, c] = quadratic(s.sub(number(0.5)));
        [a, b, c, number(0.0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Four;

    fn weights<S: Shape>(s: f64) -> (Vec<f64>, Vec<f64>) {
        let first = |all: [Four; MOST], count: usize| {
            all[..count]
                .iter()
                .map(|v| {
                    let mut block = [0.0; 4];
                    v.store(&mut block);
                    block[0]
                })
                .collect()
        };
        (first(S::whole(Four::splat(s)), S::NODES), first(S::half(Four::splat(s)), S::NODES - 1))
    }

    /// Weights add up to one, and their mean is where the particle is (order 0 has none): what conserves charge and its
    /// first moment.
    fn moments<S: Shape>() {
        for step in 0..=20 {
            let s = f64::from(step) / 20.0;
            let (whole, half) = weights::<S>(s);
            assert!((whole.iter().sum::<f64>() - 1.0).abs() < 1e-14, "order {} at {s}", S::ORDER);
            assert!((half.iter().sum::<f64>() - 1.0).abs() < 1e-14, "order {} at {s}", S::ORDER);
            let mean = |all: &[f64], at: f64| -> f64 {
                all.iter().enumerate().map(|(i, w)| w * (i as f64 + S::FIRST as f64 + at)).sum()
            };
            assert!((mean(&whole, 0.0) - (s - S::CENTRE)).abs() < 1e-14, "order {} at {s}", S::ORDER);
            assert!(S::ORDER == 1 || (mean(&half, 0.5) - (s - S::CENTRE)).abs() < 1e-14);
        }
    }

    /// At the end of a cell a particle has the weights that it has at the beginning of the next.
    fn continuous<S: Shape>() {
        let (end, begin) = (weights::<S>(1.0).0, weights::<S>(0.0).0);
        assert!(end[0].abs() < 1e-15 && begin[S::NODES - 1].abs() < 1e-15);
        for i in 1..S::NODES {
            assert!((end[i] - begin[i - 1]).abs() < 1e-15);
        }
    }

    #[test]
    fn weights_have_the_right_moments_and_no_jumps() {
        moments::<Linear>();
        moments::<Quadratic>();
        moments::<Cubic>();
        continuous::<Linear>();
        continuous::<Quadratic>();
        continuous::<Cubic>();
    }
}
